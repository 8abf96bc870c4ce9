"""Leaving a stream early, in every way there is: no task, no warning, and a run that can be finished."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from overt import Agent, RunStream, Runtime, Status, tool
from overt.events import Event, HandleSettled, ResultReady
from overt.journal.store import Store
from overt.message import ModelRequest
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import call, say
from overt.testing.mock import Reply
from tests.driver.support import settle, tasks
from tests.stream_kit import ENTRY, Tool, all_of, facts, read, worker
from tests.suspend_kit import agent


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Both stores there are."""
    made: Store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "runs.db")
    yield made
    await made.close()


async def by_break(stream: RunStream[Any], at: str) -> None:
    async with stream:
        async for event in stream:
            if event.kind == at:
                break


def give_up() -> None:
    raise ZeroDivisionError


async def by_exception(stream: RunStream[Any], at: str) -> None:
    with pytest.raises(ZeroDivisionError):
        await read(stream, at=at, then=give_up)


async def by_scope(stream: RunStream[Any], at: str) -> None:
    """A cancel scope around everything."""
    with anyio.CancelScope() as scope:
        await read(stream, at=at, then=scope.cancel)
    assert scope.cancelled_caught


async def by_inner_scope(stream: RunStream[Any], at: str) -> None:
    """A cancel scope around the reader alone."""
    async with stream:
        with anyio.CancelScope() as scope:
            async for event in stream:
                if event.kind == at:
                    scope.cancel()
        assert scope.cancelled_caught


async def by_fail_after(stream: RunStream[Any], at: str) -> None:
    async def wait() -> None:
        async with stream:
            with anyio.fail_after(60) as scope:
                async for event in stream:
                    if event.kind == at:
                        scope.deadline = anyio.current_time() - 1

    with pytest.raises(TimeoutError):
        await wait()


async def by_group(stream: RunStream[Any], at: str) -> None:
    """The reader is a task of a group that is cancelled."""
    reached = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(partial(read, stream, at=at, then=reached.set))
        await reached.wait()
        group.cancel_scope.cancel()


async def by_failing_sibling(stream: RunStream[Any], at: str) -> None:
    reached = anyio.Event()

    async def fail() -> None:
        await reached.wait()
        give_up()

    async def both() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(fail)
            await read(stream, at=at, then=reached.set)

    with pytest.raises(ExceptionGroup) as raised:
        await both()
    assert [type(e) for e in raised.value.exceptions] == [ZeroDivisionError]


async def by_asyncio_timeout(stream: RunStream[Any], at: str) -> None:
    async def wait() -> None:
        async with asyncio.timeout(60) as timeout:
            await read(stream, at=at, then=partial(timeout.reschedule, 0))

    with pytest.raises(TimeoutError):
        await wait()


async def by_inner_asyncio_timeout(stream: RunStream[Any], at: str) -> None:
    async def wait() -> None:
        async with asyncio.timeout(60) as timeout:
            async for event in stream:
                if event.kind == at:
                    timeout.reschedule(0)

    async with stream:
        with pytest.raises(TimeoutError):
            await wait()


async def by_task_cancel(stream: RunStream[Any], at: str) -> None:
    reached = asyncio.Event()
    task = asyncio.create_task(read(stream, at=at, then=reached.set))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


WAYS: list[Callable[[RunStream[Any], str], Awaitable[None]]] = [
    by_break,
    by_exception,
    by_scope,
    by_inner_scope,
    by_fail_after,
    by_group,
    by_failing_sibling,
]
OF_ASYNCIO = [by_asyncio_timeout, by_inner_asyncio_timeout, by_task_cancel]


@pytest.mark.parametrize("at", ["spawned", "turn", "tool_started"])
@pytest.mark.parametrize("leave", WAYS, ids=lambda way: way.__name__)
async def test_leaving_early_leaves_a_run_that_can_be_finished(
    leave: Callable[[RunStream[Any], str], Awaitable[None]], at: str, store: Store
) -> None:
    await check_leaving(leave, at, store)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("at", ["spawned", "turn", "tool_started"])
@pytest.mark.parametrize("leave", OF_ASYNCIO, ids=lambda way: way.__name__)
async def test_leaving_early_by_what_asyncio_has(
    leave: Callable[[RunStream[Any], str], Awaitable[None]], at: str, store: Store
) -> None:
    await check_leaving(leave, at, store)


async def check_leaving(
    leave: Callable[[RunStream[Any], str], Awaitable[None]], at: str, store: Store
) -> None:
    before = tasks()
    work = Tool()
    stream = worker(work, name="w").stream("go", store=store, shutdown=0)
    await leave(stream, at)
    assert tasks() == before
    runtime = stream.runtime
    assert runtime._driver.listeners == []
    assert not runtime._driver.audience
    assert runtime.result().status is Status.INTERRUPTED
    assert (await store.info(runtime.id)).owner is None
    entered = work.entered
    assert entered <= 1
    seen = runtime.events()[-1].position
    assert seen == (await store.info(runtime.id)).position

    work.go_on.set()
    again = await Runtime.open(worker(work), runtime.id, store=store)
    events = await all_of(again.stream(after=0))
    assert (again.result().status, again.result().text) == (Status.DONE, "done")
    assert work.entered == entered + 1
    assert tuple(facts(events)) == again.events()
    assert [e.cut for e in events if isinstance(e, HandleSettled)][:1] == [True]


async def test_leaving_when_all_is_read_is_no_early_leaving(store: Store) -> None:
    async with worker(Tool(waits=False)).stream("go", store=store) as stream:
        async for event in stream:
            if event.kind == "result":
                break
    assert (await stream.result()).status is Status.DONE
    assert "cut" not in str(stream.runtime.trace())


async def test_a_timeout_of_one_event_loses_none(store: Store) -> None:
    work = Tool()
    events: list[Event] = []
    async with worker(work).stream("go", store=store) as stream:
        while not events or events[-1].kind != "result":
            # Cancelled again and again while it waits, and while it has something to give.
            with anyio.move_on_after(0):
                events.append(await stream.__anext__())
            if work.inside.is_set():
                await settle()
                work.go_on.set()
            await anyio.lowlevel.checkpoint()
    assert tuple(facts(events)) == stream.runtime.events()


async def test_inside_async_with_runtime_leaving_ends_the_reading_alone() -> None:
    work = Tool()
    runtime = Runtime(worker(work))
    async with runtime:
        await by_break(runtime.stream("go"), "tool_started")
        assert runtime.result().status is Status.TIMEOUT
        work.go_on.set()
        assert (await runtime.wait(ENTRY)).text == "done"
    assert work.entered == 1


@pytest.mark.parametrize("leave", [by_break, by_group, by_inner_scope], ids=lambda way: way.__name__)
async def test_leaving_while_the_model_speaks(
    leave: Callable[[RunStream[Any], str], Awaitable[None]], store: Store
) -> None:
    asked: list[str] = []
    go_on = anyio.Event()

    async def slow(request: ModelRequest) -> Any:
        asked.append(request.handle)
        await go_on.wait()
        return say("done")

    before = tasks()
    stream = agent(slow).stream("go", store=store, shutdown=0)
    await leave(stream, "wake")
    assert tasks() == before
    go_on.set()
    result = await stream.runtime.recover()
    assert (result.text, result.usage.unreported_calls) == ("done", result.usage.model_calls - 1)


@pytest.mark.parametrize("step", [1, 2, 5])
async def test_left_again_and_again_it_is_read_to_its_end(step: int, store: Store) -> None:
    """A browser that loses its connection every few events, and a process that is another one each time."""
    ran: list[str] = []

    @tool
    async def look() -> str:
        await anyio.lowlevel.checkpoint()
        ran.append("look")
        return "seen"

    def who() -> Agent[None, str]:
        child = agent([[call("look"), call("look")], say("child")], look, name="child")
        boss: list[Reply] = [
            [call("look"), *(call("task", agent="child", prompt=p) for p in ("1", "2"))],
            say("boss"),
        ]
        return agent(boss, look, team=[child])

    stream = who().stream("go", store=store, run_id="r", shutdown=0)
    seen: list[Event] = []
    for lives in range(1, 30):
        # Whoever leaves cuts the run off, which is recorded too: with as much each time it would get nowhere.
        until = len(stream.runtime.events()) + step * lives
        async with stream:
            async for event in stream:
                seen.append(event)
                if event.position >= until:
                    break
        assert (await store.info("r")).owner is None
        if isinstance(seen[-1], ResultReady):
            break
        runtime = await Runtime.open(who(), "r", store=store, shutdown=0)
        stream = runtime.stream(after=facts(seen)[-1].position)
    runtime = stream.runtime
    assert isinstance(seen[-1], ResultReady)
    assert tuple(facts(seen)) == runtime.events()
    assert (seen[-1].result.text, len(ran) >= 5) == ("boss", True)
    ledger = runtime.ledger()
    assert ledger.total.total_tokens == sum(one.own.total_tokens for _, one in ledger.walk())
