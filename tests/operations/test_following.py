"""A run followed from its store alone, while somebody else drives it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from overt import Runtime, UsageError
from overt.errors import JournalCorrupt, RunNotFound
from overt.events import Event, ResultReady
from overt.operations import follow
from overt.stores import MemoryStore, Store
from overt.testing import VirtualClock, say
from tests.operations.kit import (
    GONE,
    HOUR,
    START,
    Inside,
    Reader,
    answer,
    chief,
    clerk,
    copy,
    damaged,
    options,
    park,
)

pytestmark = pytest.mark.anyio

CLOCK = VirtualClock(START)


async def read(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


async def test_a_run_at_rest(store: Store) -> None:
    await park(store, "run", chief())
    runtime = await Runtime.open(chief(), "run", store=store, clock=VirtualClock(START))
    *events, last = await read(follow(store, "run"))
    assert tuple(events) == runtime.events()
    assert isinstance(last, ResultReady)
    assert last.result == runtime.result()
    assert (last.position, last.handle) == ((await store.info("run")).position, "root/chief.1")


async def test_from_a_position(store: Store) -> None:
    await park(store, "run", chief())
    *events, _ = await read(follow(store, "run"))
    for after in (0, 1, 7, len(events) - 1):
        *rest, last = await read(follow(store, "run", after=after))
        assert rest == events[after:]
        assert last.kind == "result"
    assert [event.kind for event in await read(follow(store, "run", after=len(events) + 9))] == ["result"]


async def test_while_somebody_drives(store: Store, opens: Callable[[], Store]) -> None:
    """Each fact is told once it is recorded, and not only at the end."""
    other = opens()
    reader = Reader(follow(other, "run", clock=CLOCK))

    async def meanwhile() -> None:
        # The tool is inside until the follower has heard that it was entered.
        await reader.until("tool_started")

    inside = Inside(meanwhile)
    async with anyio.create_task_group() as tasks:
        runtime = Runtime(inside.agent, **options(store, "run"))
        tasks.start_soon(runtime.run, "go")
        while not await store.runs():
            await checkpoint()
        tasks.start_soon(reader.read)
    *events, last = reader.seen
    assert tuple(events) == runtime.events()
    assert isinstance(last, ResultReady)
    assert last.result.status == "pending"
    if other is not store:
        await other.close()


async def test_over_an_answer(store: Store) -> None:
    """It ends when the run comes to rest; whoever follows on sees what the answer led to."""
    await park(store, "run", clerk())
    *first, last = await read(follow(store, "run", clock=CLOCK))
    await answer(store, "run", clerk())
    *second, done = await read(follow(store, "run", after=last.position, clock=CLOCK))
    assert [event.position for event in (*first, *second)] == list(range(1, done.position + 1))
    assert isinstance(done, ResultReady)
    assert (done.result.status, done.result.text) == ("done", "bought")


async def test_not_before_it_is_given_up(store: Store) -> None:
    """At rest by its journal, and somebody holds it: more may come."""
    await park(store, "run", clerk())
    claim = await store.claim("run", owner=GONE, now=START, until=START + HOUR)
    reader = Reader(follow(store, "run", clock=CLOCK))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.read)
        await reader.until("parked")
        for _ in range(20):
            await checkpoint()
        assert not reader.has("result")
        await store.release("run", epoch=claim.epoch)
    assert reader.has("result")


async def test_a_claim_that_has_run_out_holds_nobody_up(store: Store) -> None:
    await park(store, "run", clerk())
    await store.claim("run", owner=GONE, now=START, until=START + HOUR)
    events = await read(follow(store, "run", clock=VirtualClock(START + HOUR)))
    assert events[-1].kind == "result"


async def test_it_waits_for_whoever_goes_on_with_an_abandoned_run(store: Store) -> None:
    whole = MemoryStore()
    await park(whole, "run", clerk())
    await copy(whole, "run", store, change=lambda rows: rows[:3])
    reader = Reader(follow(store, "run", clock=CLOCK))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.read)
        await reader.until("wake")
        assert not reader.has("result")
        runtime = await Runtime.open(clerk(), "run", store=store, clock=VirtualClock(START))
        await runtime.recover()
    assert tuple(reader.seen[:-1]) == runtime.events()


async def test_left_early_and_by_several(store: Store) -> None:
    await park(store, "run", clerk())
    events = follow(store, "run")
    first = [await anext(events) for _ in range(3)]
    assert [event.position for event in first] == [1, 2, 3]
    both = [follow(store, "run") for _ in range(2)]
    assert [await anext(one) for one in both] == first[:1] * 2
    assert [event.position for event in islice(await read(events), 2)] == [4, 5]
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_cancelled_while_it_waits(store: Store) -> None:
    whole = MemoryStore()
    await park(whole, "run", clerk())
    await copy(whole, "run", store, change=lambda rows: rows[:3])
    events = follow(store, "run", clock=CLOCK)
    with anyio.CancelScope() as scope:
        while True:
            if (await anext(events)).position == (await store.info("run")).position:
                scope.cancel()
    assert scope.cancelled_caught


async def test_a_reader_that_never_waits_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overt.operations.BREATH", 3)
    store = MemoryStore()
    await park(store, "run", clerk())
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(others)
        events = await read(follow(store, "run"))
        tasks.cancel_scope.cancel()
    assert len(events) > 9
    assert turns > 1


async def test_errors(store: Store) -> None:
    await damaged(store, "broken", clerk())
    with pytest.raises(RunNotFound, match="nowhere"):
        await anext(follow(store, "nowhere"))
    with pytest.raises(JournalCorrupt, match="run broken, position "):
        await read(follow(store, "broken"))
    wrong: Any
    for wrong in (-1, None, "1"):
        with pytest.raises(UsageError, match="after is a position"):
            follow(store, "broken", after=wrong)


async def test_one_that_is_removed(store: Store) -> None:
    whole = MemoryStore()
    await park(whole, "run", clerk())
    await copy(whole, "run", store, change=lambda rows: rows[:3])
    events = follow(store, "run", clock=CLOCK)
    await anext(events)
    await store.delete("run", now=START)
    with pytest.raises(RunNotFound):
        await read(events)


async def test_a_run_of_another_name(store: Store) -> None:
    whole = MemoryStore()
    await clerk(say("done")).run("go", **options(whole, "run"))
    records = await whole.read("run")
    await store.create("name", records, agent="clerk", owner=GONE, now=START, until=START + HOUR)
    with pytest.raises(JournalCorrupt, match="of run 'run'"):
        await read(follow(store, "name"))
