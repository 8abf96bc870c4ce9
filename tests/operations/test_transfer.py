"""One run as lines, from one kind of store into another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from overt import ResumePolicy, Runtime, UsageError
from overt.errors import JournalCorrupt, RunExists, RunNotFound, StoreError, UnsupportedSchema
from overt.journal.codec import SCHEMA, encode, seal
from overt.journal.record import Record
from overt.journal.transfer import _digest
from overt.stores import MemoryStore, SQLiteStore, Store, StoreWrapper
from overt.testing import VirtualClock, say
from overt.testing.crashing import Crashed, CrashingStore
from tests.golden.runs import RUNS
from tests.journal.test_golden import FOLDER, name_of, records
from tests.operations.kit import HOUR, START, answer, chief, clerk, copy, damaged, facts_of, options, park

pytestmark = pytest.mark.anyio

PATHS = sorted(FOLDER.glob("v*.jsonl"))
NOW = START + HOUR


@pytest.fixture
def other(store: Store, tmp_path: Path) -> Store:
    """A store of the other kind."""
    return SQLiteStore(tmp_path / "other.db") if isinstance(store, MemoryStore) else MemoryStore()


def export(name: str, agent: str, texts: Sequence[str], **changed: Any) -> str:
    """An export of records, whose first line is changed."""
    count = sum(len(json.loads(text)["facts"]) for text in texts)
    header = {
        "overt": "run", "format": 1, "run_id": name, "agent": agent, "status": "any", "records": len(texts),
        "position": count, "sha256": _digest(texts),
    } | changed  # fmt: skip
    return "".join(f"{line}\n" for line in (json.dumps(header), *texts))


async def test_a_run_as_it_is_stored(store: Store) -> None:
    await park(store, "run", chief())
    first, *lines = (await store.export_run("run")).removesuffix("\n").split("\n")
    assert lines == [record.text for record in await store.read("run")]
    header = json.loads(first)
    assert header.pop("sha256") == _digest(lines)
    position = (await store.info("run")).position
    assert header == {
        "overt": "run", "format": 1, "run_id": "run", "agent": "chief", "status": "pending",
        "records": len(lines), "position": position,
    }  # fmt: skip


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_a_parked_run_moves_and_goes_on(store: Store, other: Store, policy: ResumePolicy) -> None:
    await park(store, "run", chief(), resume_policy=policy)
    text = await store.export_run("run")
    assert await other.import_run(text, now=NOW) == "run"
    assert await other.export_run("run") == text
    before, after = await store.info("run"), await other.info("run")
    for name in ("position", "owner", "until", "status", "agent", "created", "updated", "interrupt"):
        assert getattr(after, name) == getattr(before, name), name
    assert await other.open_requests() == await store.open_requests()
    assert await other.pendings() == await store.pendings()
    assert await other.verify() == ()
    assert (await answer(other, "run", chief())).text == "all done"
    await other.close()


@pytest.mark.parametrize("whole", [True, False])
async def test_text_with_other_line_ends(store: Store, other: Store, tmp_path: Path, whole: bool) -> None:
    """What other programs take for the end of a line, in one text and in the lines of a file."""
    agent = clerk(say("one\u2028two\x85three\x0b\r\n"))
    await agent.run("a\u2029b", **options(store, "run"))
    path = tmp_path / "run.jsonl"
    path.write_text(await store.export_run("run"), encoding="utf-8", newline="\n")
    with path.open(encoding="utf-8", newline="\n") as file:
        await other.import_run(file.read() if whole else file, now=NOW)
    assert [one.text for one in await other.read("run")] == [one.text for one in await store.read("run")]
    await other.close()


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the loop plays no part in what is stored
async def test_golden_journals(path: Path, store: Store) -> None:
    name = name_of(path)
    text = export(name, RUNS[name].agent.name, [record.text for record in records(path)])
    await store.import_run(text, now=NOW)
    assert (await store.export_run(name)).split("\n")[1:] == text.split("\n")[1:]
    assert await store.verify() == ()
    info = await store.info(name)
    assert info.owner is None
    assert [one.run_id for one in await store.abandoned(NOW)] == ([name] if info.status == "running" else [])
    if info.status == "pending":
        assert await store.pendings()


async def test_a_run_under_way_is_abandoned_where_it_comes(store: Store, other: Store) -> None:
    whole = MemoryStore()
    await park(whole, "run", clerk())
    await copy(whole, "run", store, change=lambda rows: rows[:3])
    await other.import_run(await store.export_run("run"), now=NOW)
    assert [one.run_id for one in await other.abandoned(NOW)] == ["run"]
    runtime = await Runtime.open(clerk(), "run", store=other, clock=VirtualClock(NOW))
    assert (await runtime.recover()).status == "pending"
    await other.close()


async def test_one_that_is_there_is_refused(store: Store) -> None:
    await park(store, "run", clerk())
    text = await store.export_run("run")
    before = await facts_of(store, "run")
    with pytest.raises(RunExists, match="'run'"):
        await store.import_run(text, now=NOW)
    assert await facts_of(store, "run") == before
    assert (await store.info("run")).status == "pending"


# --------------------------------------------------------------- damage


def lines_of(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


async def exported() -> list[str]:
    store = MemoryStore()
    await park(store, "run", clerk())
    return lines_of(await store.export_run("run"))


async def refused(store: Store, lines: Sequence[str], kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        await store.import_run("\n".join(lines), now=NOW)
    assert await store.runs() == []


async def test_a_damaged_line_is_named(store: Store) -> None:
    lines = await exported()
    for number in range(2, len(lines) + 1):
        cut = [*lines]
        cut[number - 1] = cut[number - 1][:-1]
        await refused(store, cut, JournalCorrupt, f"^line {number}: run run, position ")
    await refused(store, [*lines[:3], encode(0, ()), *lines[4:]], JournalCorrupt, "^line 4: .*0 facts")
    await refused(store, [*lines[:3], "", *lines[3:]], JournalCorrupt, "^line 4: ")
    await refused(store, [*lines[:3], *lines[4:]], JournalCorrupt, "^line [4-9]: .*do not follow on")


async def test_lines_that_are_missing_at_the_end(store: Store) -> None:
    """What is left is a whole journal, of an earlier time: answers would be lost, and tools run again."""
    lines = await exported()
    for end in range(1, len(lines)):
        await refused(store, lines[:end], JournalCorrupt, "line 1 says .*lines are missing")


async def test_a_record_that_is_whole_and_another(store: Store) -> None:
    """As somebody writes it who changes what has happened."""
    lines = await exported()
    (place,) = (number for number, line in enumerate(lines) if "tea is fine" in line)
    row = json.loads(lines[place].replace("tea is fine", "tea is gone"))
    other = seal(json.dumps({"at": row["at"], "facts": row["facts"]}).encode(), version=SCHEMA)
    changed = [*lines[:place], other, *lines[place + 1 :]]
    await refused(store, changed, JournalCorrupt, "line 1 says sha256")


@pytest.mark.parametrize(
    ("first", "kind", "match"),
    [
        ("", UsageError, "line 1: this is no exported run"),
        ("{", UsageError, "line 1: this is no exported run"),
        ("[" * 100_000, UsageError, "line 1: this is no exported run"),
        ('{"v":1,"at":0,"facts":[]}', UsageError, "line 1: this is no exported run"),
        ('{"overt":"run","format":2}', UnsupportedSchema, "line 1: .* format 2"),
        ('{"overt":"run","format":0}', JournalCorrupt, "line 1: "),
        ('{"overt":"run","format":1,"run_id":7}', JournalCorrupt, r"line 1: .*run_id is 7"),
    ],
)
async def test_a_first_line_that_is_none(store: Store, first: str, kind: type[Exception], match: str) -> None:
    lines = await exported()
    await refused(store, [first, *lines[1:]], kind, match)
    await refused(store, [], UsageError, "line 1")


@pytest.mark.parametrize(
    "change", [{"run_id": "other"}, {"agent": "other"}, {"position": 1}, {"records": 99}]
)
async def test_a_first_line_of_another_run(store: Store, change: dict[str, Any]) -> None:
    """A run cannot be given another id: those of its requests are made of it."""
    lines = await exported()
    header = json.loads(lines[0]) | change
    await refused(store, [json.dumps(header), *lines[1:]], JournalCorrupt, "line 1 says")


async def test_a_newer_release(store: Store) -> None:
    lines = await exported()
    newer = lines[4].replace(f'"v":{SCHEMA}', f'"v":{SCHEMA + 1}')
    await refused(store, [*lines[:4], newer, *lines[5:]], UnsupportedSchema, "^line 5: ")


async def test_a_damaged_run_is_not_exported(store: Store) -> None:
    await damaged(store, "broken", clerk())
    with pytest.raises(JournalCorrupt, match="run broken, position "):
        await store.export_run("broken")
    with pytest.raises(RunNotFound, match="nowhere"):
        await store.export_run("nowhere")


async def test_a_text_of_two_lines_is_not_exported() -> None:
    """A store that writes its records otherwise; JSON has no line end of its own in it."""

    class Pretty(StoreWrapper):
        async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]:
            return [
                Record(one.position, one.count, text=pretty(one.text))
                for one in await super().read(run_id, after=after)
            ]

    def pretty(text: str) -> str:
        row = json.loads(text)
        return json.dumps({"v": 1, "at": row["at"], "facts": row["facts"]}, indent=1)

    store = MemoryStore()
    await park(store, "run", clerk())
    with pytest.raises(StoreError, match=r"run 'run', position 1: .* more than one line"):
        await Pretty(store).export_run("run")


# --------------------------------------------------------------- in the middle


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_process_that_dies_over_it(store: Store, at: int, when: Any) -> None:
    lines = await exported()
    dying = CrashingStore(store, crash_at=at, when=when)
    with pytest.raises(Crashed):
        await dying.import_run("\n".join(lines), now=NOW)
    if (at, when) == (2, "after"):
        with pytest.raises(RunExists):
            await store.import_run("\n".join(lines), now=NOW)
    else:
        # What was left of it is in nobody's way.
        await store.import_run("\n".join(lines), now=NOW)
    assert await store.verify() == ()
    assert (await answer(store, "run", clerk())).status == "done"


async def test_a_store_that_fails_keeps_nothing(store: Store) -> None:
    class Full(StoreWrapper):
        async def append(self, run_id: str, records: Sequence[Record], **more: Any) -> str | None:
            raise StoreError("the disk is full")

    with pytest.raises(StoreError, match="the disk is full"):
        await Full(store).import_run("\n".join(await exported()), now=NOW)
    assert await store.runs() == []


async def test_two_at_once(store: Store) -> None:
    lines = "\n".join(await exported())
    refusals: list[StoreError] = []

    async def take() -> None:
        try:
            await store.import_run(lines, now=NOW)
        except RunExists as refused:
            refusals.append(refused)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(take)
    assert len(refusals) == 2
    assert await store.verify() == ()


async def test_a_time_without_a_zone_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="time zone"):
        await store.import_run("", now=NOW.replace(tzinfo=None))
