"""What is special about the memory store."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from overt.errors import RunConflict, StoreError
from overt.journal.record import Record
from overt.journal.store import ImmediateStore, Owner, Store
from overt.stores import MemoryStore, SQLiteStore
from overt.testing._store_checks import now_is

NOW = datetime(2024, 1, 1, tzinfo=UTC)
UNTIL = NOW + timedelta(seconds=30)
OWNER = Owner(id="me")


def never(payload: object) -> str:
    raise AssertionError("a record was encoded")


@pytest.mark.anyio
async def test_records_are_kept_as_they_are_and_never_encoded() -> None:
    store = MemoryStore()
    records = [Record(1, 1, payload=object(), encode=never), Record(2, 1, payload=object(), encode=never)]
    await store.create("run", records[:1], agent="a", owner=OWNER, now=NOW, until=UNTIL)
    store.append_now("run", records[1:], after=1, epoch=1, change=now_is("running"))
    read = await store.read("run")
    assert read[0] is records[0]
    assert read[1] is records[1]


@pytest.mark.anyio
async def test_what_was_read_does_not_change() -> None:
    store = MemoryStore()
    mine = [Record(1, 1, text="a")]
    await store.create("run", mine, agent="a", owner=OWNER, now=NOW, until=UNTIL)
    read = await store.read("run")
    mine.append(Record(2, 1, text="not appended"))
    await store.append("run", [Record(2, 1, text="b")], after=1, epoch=1, change=now_is("running"))
    assert [one.text for one in read] == ["a"]
    assert [one.text for one in await store.read("run")] == ["a", "b"]


def test_no_method_suspends() -> None:
    store = MemoryStore()
    calls = (
        store.create("run", (), agent="a", owner=OWNER, now=NOW, until=UNTIL),
        store.append("run", [Record(1, 1, text="a")], after=0, epoch=1, change=now_is("running")),
        store.read("run"),
        store.info("run"),
        store.claim("run", owner=OWNER, now=NOW, until=UNTIL),
        store.renew("run", epoch=2, until=UNTIL),
        store.release("run", epoch=2),
        store.close(),
    )
    for call in calls:
        with pytest.raises(StopIteration):
            call.send(None)


def test_append_now_refuses_what_append_refuses() -> None:
    store = MemoryStore()
    with pytest.raises(StopIteration):
        store.create("run", (), agent="a", owner=OWNER, now=NOW, until=UNTIL).send(None)
    with pytest.raises(RunConflict, match="at position 0, not at 1"):
        store.append_now("run", [Record(2, 1, text="b")], after=1, epoch=1, change=now_is("running"))
    with pytest.raises(RunConflict, match="epoch 1, this driver's had 2"):
        store.append_now("run", [Record(1, 1, text="b")], after=0, epoch=2, change=now_is("running"))
    with pytest.raises(StoreError, match="position 3 with 1 facts cannot follow position 1"):
        store.append_now(
            "run",
            [Record(1, 1, text="a"), Record(3, 1, text="b")],
            after=0,
            epoch=1,
            change=now_is("running"),
        )
    store.append_now("run", [Record(1, 1, text="a")], after=0, epoch=1, change=now_is("done"), release=True)
    with pytest.raises(RunConflict, match="released"):
        store.append_now("run", [Record(2, 1, text="b")], after=1, epoch=1, change=now_is("running"))


def test_only_memory_appends_immediately() -> None:
    memory: Store = MemoryStore()
    sqlite: Store = SQLiteStore("unused.db")
    assert isinstance(memory, ImmediateStore)
    assert not isinstance(sqlite, ImmediateStore)


def test_threads_may_share_it() -> None:
    store = MemoryStore()
    with pytest.raises(StopIteration):
        store.create("run", (), agent="a", owner=OWNER, now=NOW, until=UNTIL).send(None)
    won: list[int] = []
    start = threading.Barrier(4)

    def write(name: int) -> None:
        start.wait()
        for position in range(1, 501):
            try:
                store.append_now(
                    "run",
                    [Record(position, 1, text=str(name))],
                    after=position - 1,
                    epoch=1,
                    change=now_is("running"),
                )
            except RunConflict:
                continue
            won.append(position)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == len(set(won))
    with pytest.raises(StopIteration) as done:
        store.read("run").send(None)
    assert [one.position for one in done.value.value] == list(range(1, len(won) + 1))
