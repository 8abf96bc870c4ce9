"""A store looked over: journals read, lists compared, the file checked, lists written anew."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from overt import Agent, Runtime, Upgrade, UsageError
from overt.errors import RunNotFound, StoreError
from overt.journal.record import Record
from overt.journal.store import Change, OpenRequest
from overt.stores import Damage, MemoryStore, SQLiteStore, Store, StoreWrapper
from overt.testing import MockModel, VirtualClock, say
from tests.operations.kit import (
    GONE,
    HOUR,
    START,
    Inside,
    answer,
    ask,
    asking,
    chief,
    clerk,
    copy,
    damaged,
    look,
    options,
    park,
)

pytestmark = pytest.mark.anyio


async def spoil_lists(store: Store, run_id: str, *, status: str = "done", **changed: Any) -> None:
    """Change the lists of a run behind its journal's back."""
    info = await store.info(run_id)
    claim = await store.claim(run_id, owner=GONE, now=START, until=START + HOUR)
    change = Change(status=status, at=info.updated, **changed)
    await store.append(run_id, (), after=info.position, epoch=claim.epoch, change=change, release=True)


async def all_kinds(store: Store) -> None:
    """A run of each status."""
    await park(store, "ready", asking(what="Go", hours=1))
    await store.expire_due(START + HOUR)
    await park(store, "parked", chief())
    await park(store, "done", clerk())
    await answer(store, "done", clerk())
    await park(store, "stopped", clerk())
    await store.interrupt("stopped", now=START)
    await clerk(RuntimeError("no line")).run("go", **options(store, "failed"))


async def test_nothing_is_wrong(store: Store) -> None:
    assert await store.verify() == ()
    await all_kinds(store)
    assert await store.verify() == ()
    assert await store.verify(repair_lists=True, now=START + HOUR) == ()


async def test_nothing_is_wrong_with_a_run_whose_agents_were_renamed(store: Store) -> None:
    await park(store, "run", chief())
    seller = Agent("seller", does="Buys.", tools=[look, ask])
    boss = Agent("boss", does="Leads.", tools=[look], team=[seller], model=MockModel({}))
    names = Upgrade(agents={"chief": "boss", "buyer": "seller"})
    runtime = await Runtime.open(boss, "run", store=store, clock=VirtualClock(START), upgrade=names)
    await runtime.recover()
    assert await store.verify() == ()
    (asked,) = await store.pendings(agent="seller")
    assert (asked.entry, asked.agent) == ("boss", "seller")
    assert await store.pendings(agent="buyer") == ()
    whole = MemoryStore()
    await whole.import_run(await store.export_run("run"))
    assert await whole.verify() == ()


async def test_nothing_is_wrong_with_a_run_that_is_driven(store: Store) -> None:
    found: list[tuple[Damage, ...]] = []

    async def meanwhile() -> None:
        found.append(await store.verify(repair_lists=True, now=START))

    result, _ = await Inside(meanwhile).agent.run("go", **options(store, "run"))
    assert found == [()]
    assert result.status == "pending"


async def test_a_run_that_has_only_been_created(store: Store) -> None:
    whole = MemoryStore()
    await clerk(say("done")).run("go", **options(whole, "run"))
    (first, *_) = await whole.read("run")
    await store.create("run", [first], agent="clerk", owner=GONE, now=START, until=START + HOUR)
    found = await store.verify()
    assert [one.what for one in found] == []


async def test_damaged_journals_are_named_and_others_are_not(store: Store) -> None:
    await damaged(store, "broken", clerk())
    await park(store, "whole", clerk())
    (found,) = await store.verify()
    third = (await store.read("broken"))[2]
    assert (found.run_id, found.position, found.repaired) == ("broken", third.position, False)
    assert found.what.startswith("the record is no journal record")
    assert str(found).startswith(f"run 'broken', position {third.position}: the record is no journal")
    assert await store.verify(repair_lists=True) == (found,)


async def test_a_gap(store: Store) -> None:
    class Gap(StoreWrapper):
        async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]:
            records = list(await super().read(run_id, after=after))
            return records[:1] + records[2:]

    await park(store, "run", clerk())
    (found,) = await Gap(store).verify()
    assert "expected position" in found.what


async def test_a_store_that_is_behind(store: Store) -> None:
    class Short(StoreWrapper):
        async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]:
            return list(await super().read(run_id, after=after))[:-1]

    await park(store, "run", clerk())
    (found,) = await Short(store).verify()
    position = (await store.info("run")).position
    assert found.what.endswith(f"its head says {position}")


async def test_the_journal_of_another_run(store: Store) -> None:
    whole = MemoryStore()
    await park(whole, "run", clerk())
    records = await whole.read("run")
    claim = await store.create("name", records, agent="clerk", owner=GONE, now=START, until=START + HOUR)
    now = Change(status="pending", at=START)
    await store.append("name", (), after=records[-1].last, epoch=claim.epoch, change=now, release=True)
    (found,) = await store.verify()
    assert found == Damage(run_id="name", what="the journal is of run 'run'")


async def test_a_run_without_a_journal(store: Store) -> None:
    await store.create("run", (), agent="clerk", owner=GONE, now=START, until=START + HOUR)
    (found,) = await store.verify()
    assert "it has no journal" in found.what


async def test_a_status_that_is_wrong(store: Store) -> None:
    await park(store, "run", clerk())
    await spoil_lists(store, "run", status="done")
    (found,) = await store.verify()
    assert found == Damage(run_id="run", what="it is listed as 'done', its journal says 'pending'")
    assert await store.verify(repair_lists=True) == (replace(found, repaired=True),)
    assert str(replace(found, repaired=True)).endswith("(repaired)")
    info = await store.info("run")
    assert (info.status, info.owner) == ("pending", None)
    assert await store.verify() == ()


async def test_requests_that_are_listed_wrongly(store: Store) -> None:
    await park(store, "run", clerk())
    (row,) = await store.open_requests()
    changed = replace(row, kind="input")
    ghost = OpenRequest(run_id="run", request="ghost", kind="input", agent="clerk", asked_at=START)
    await spoil_lists(store, "run", status="pending", asked=(changed, ghost))
    found = await store.verify()
    assert [one.what for one in found] == [
        f"open request {row.request} is listed otherwise than the journal has it",
        "request ghost is listed as open, and is not in the journal",
    ]
    await spoil_lists(store, "run", status="pending", settled=(row.request,))
    assert f"open request {row.request} is not in the list" in [one.what for one in await store.verify()]
    assert all(one.repaired for one in await store.verify(repair_lists=True))
    assert await store.open_requests() == [row]
    assert (await store.info("run")).updated == START
    assert await store.verify() == ()


async def test_a_request_that_has_its_answer(store: Store) -> None:
    await park(store, "run", clerk())
    (row,) = await store.open_requests()
    await answer(store, "run", clerk())
    await spoil_lists(store, "run", asked=(row,))
    (found,) = await store.verify()
    assert found.what == f"request {row.request} is listed as open, and is answered"


async def test_lists_of_a_run_that_is_driven_are_left_to_its_driver(store: Store) -> None:
    await park(store, "run", clerk())
    await spoil_lists(store, "run", status="done")
    await store.claim("run", owner=GONE, now=START, until=START + HOUR)
    (found,) = await store.verify(repair_lists=True, now=START)
    assert not found.repaired
    assert (await store.info("run")).status == "done"


async def test_an_entry_agent_cannot_be_repaired(store: Store) -> None:
    whole = MemoryStore()
    await park(whole, "run", clerk())
    records = await whole.read("run")
    claim = await store.create("run", records, agent="other", owner=GONE, now=START, until=START + HOUR)
    asked = tuple(await whole.open_requests())
    now = Change(status="done", at=START, asked=asked)
    await store.append("run", (), after=records[-1].last, epoch=claim.epoch, change=now, release=True)
    found = {one.what: one.repaired for one in await store.verify(repair_lists=True)}
    assert found == {
        "it is listed as 'done', its journal says 'pending'": True,
        "it is listed with entry agent 'other', its journal says 'clerk'": False,
    }


async def test_one_run(store: Store) -> None:
    await damaged(store, "broken", clerk())
    await park(store, "whole", clerk())
    assert await store.verify("whole") == ()
    assert len(await store.verify("broken")) == 1
    with pytest.raises(RunNotFound, match="nowhere"):
        await store.verify("nowhere")
    with pytest.raises(UsageError, match="time zone"):
        await store.verify(now=START.replace(tzinfo=None))


async def test_a_run_that_never_stands_still_is_read_all_the_same(store: Store) -> None:
    """Its lists are not compared: they are of another moment."""
    await park(store, "run", clerk())
    whole = MemoryStore()
    await park(whole, "run", clerk())

    class Moving(StoreWrapper):
        looked = 0

        async def info(self, run_id: str) -> Any:
            self.looked += 1
            return replace(await super().info(run_id), position=self.looked)

    assert await Moving(store).verify() == ()


# --------------------------------------------------------------- the file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


async def change_file(path: Path, *statements: str) -> None:
    store = SQLiteStore(path)
    await all_kinds(store)
    await store.close()
    with sqlite3.connect(path) as file:
        for statement in statements:
            file.execute(statement)
    file.close()


async def wrong(path: Path) -> list[str]:
    store = SQLiteStore(path)
    found = await store.verify()
    await store.close()
    return [str(one) for one in found]


def overwrite(path: Path) -> None:
    """Write over the beginning of every page but the first."""
    data, page = bytearray(path.read_bytes()), 4096
    for start in range(page, len(data), page):
        data[start : start + 200] = b"\xff" * 200
    path.write_bytes(data)


async def test_heads_and_journals_that_are_missing(path: Path) -> None:
    await change_file(
        path,
        "DELETE FROM runs WHERE run_id = 'parked'",
        "DELETE FROM journal WHERE run_id = 'done'",
        "DELETE FROM journal WHERE run_id = 'stopped' AND position = 3",
    )
    done, gap, *orphans = sorted(await wrong(path))
    assert done.startswith("run 'done': the journal ends at position 0, its head says ")
    assert gap == "run 'parked': open requests are listed and there is no such run"
    assert orphans == [
        "run 'parked': there is a journal and no head of it",
        "run 'stopped': position 3 is missing (a row is at 5)",
    ]


async def test_the_integrity_check(path: Path) -> None:
    """An index that has lost an entry: every row can be read, and none is found by it."""
    await change_file(
        path,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = 'CREATE INDEX runs_by_status ON runs (agent)' WHERE name = 'runs_by_status'",
    )
    assert all("store: SQLite's integrity check: " in one for one in await wrong(path))
    assert await wrong(path)


async def test_a_file_full_of_something_else(path: Path) -> None:
    await change_file(path)
    overwrite(path)
    found = await wrong(path)
    assert found[0].startswith(f"store: {path}: the file is damaged (")


async def test_a_head_that_cannot_be_read(path: Path) -> None:
    await change_file(path, "UPDATE runs SET updated = 'yesterday' WHERE run_id = 'done'")
    assert await wrong(path) == ["store: run 'done': its head is damaged (TypeError)"]


async def test_a_file_that_is_no_database(path: Path) -> None:
    await anyio.Path(path).write_text("nothing of the kind " * 100)
    store = SQLiteStore(path)
    with pytest.raises(StoreError, match="not an SQLite database"):
        await store.verify()
    await store.close()


async def test_a_file_that_is_not_there_is_not_made(path: Path) -> None:
    store = SQLiteStore(path)
    assert await store.verify() == ()
    await store.close()
    assert not await anyio.Path(path).exists()


async def test_a_wrapper_looks_at_the_file_of_its_inner_store(path: Path) -> None:
    await change_file(path, "DELETE FROM runs WHERE run_id = 'parked'")
    store = StoreWrapper(SQLiteStore(path))
    assert {one.run_id for one in await store.verify()} == {"parked"}
    await store.close()


async def test_a_copy_is_whole(store: Store) -> None:
    """The kit's copy, on which the others rest."""
    whole = MemoryStore()
    await park(whole, "run", clerk())
    await copy(whole, "run", store)
    assert await store.verify() == ()
