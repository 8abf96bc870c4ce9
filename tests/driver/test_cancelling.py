"""Genuine cancellation of the host: it propagates, the journal is closed off, and recover() finishes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from overt import (
    Agent,
    Allow,
    Answer,
    Budget,
    Completion,
    Extend,
    Hooks,
    Request,
    Runtime,
    ToolContext,
    pending,
    tool,
)
from overt.message import ModelRequest
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say
from overt.testing.crashing import CrashingStore
from tests.driver.support import Cancelled, agent, calling, kinds, results, tasks


class Stage:
    """Where a run stands still until the test lets it go: the first time only, so that a recovery goes through."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.release = anyio.Event()
        self.thread = threading.Event()
        self.entered = 0

    async def stop(self) -> None:
        self.entered += 1
        if self.entered == 1:
            self.reached.set()
            await self.release.wait()


def in_model(stage: Stage) -> tuple[Agent, dict[str, Any]]:
    async def reply(request: ModelRequest) -> Any:
        await stage.stop()
        return say("done")

    return agent(), {"model": MockModel(reply)}


def in_async_tool(stage: Stage) -> tuple[Agent, dict[str, Any]]:
    @tool
    async def t() -> str:
        await stage.stop()
        return "t"

    return agent(t), {"model": calling("t")}


def in_parallel_tools(stage: Stage) -> tuple[Agent, dict[str, Any]]:
    @tool
    async def t() -> str:
        stage.entered += 1
        if stage.entered == 2:
            stage.reached.set()
        if stage.entered <= 2:
            await stage.release.wait()
        return "t"

    return agent(t), {"model": calling("t", "t")}


def in_timed_tool(stage: Stage) -> tuple[Agent, dict[str, Any]]:
    @tool(timeout=60)
    async def t() -> str:
        await stage.stop()
        return "t"

    return agent(t), {"model": calling("t")}


def in_sync_tool(stage: Stage) -> tuple[Agent, dict[str, Any]]:
    @tool
    def t() -> str:
        stage.entered += 1
        if stage.entered == 1:
            anyio.from_thread.run_sync(stage.reached.set)
            assert stage.thread.wait(30)
        return "t"

    return agent(t), {"model": calling("t")}


def in_child(stage: Stage) -> tuple[Agent, dict[str, Any]]:
    @tool
    async def t() -> str:
        await stage.stop()
        return "t"

    child = Agent("child", does="works", tools=[t])
    script = {"a": [call("task", agent="child", prompt="p"), say("done")], "child": [call("t"), say("c")]}
    return Agent("a", does="works", team=[child]), {"model": MockModel(script)}


def asking() -> Any:
    @tool
    async def asks(ctx: ToolContext) -> object:
        return "answered" if ctx.answer else pending(kind="approval", prompt="ok?")

    return asks


def in_wait_for(stage: Stage) -> tuple[Agent, dict[str, Any]]:
    async def wait_for(request: Request) -> Answer[Any]:
        await stage.stop()
        return Answer(id=request.id, ok=True)

    return agent(asking()), {"model": calling("asks"), "wait_for": wait_for}


def at(where: str, value: Any = None, *, times: int = 1) -> Callable[[Stage], tuple[Agent, dict[str, Any]]]:
    """Return a place inside a rule, hook, verifier or policy: it stands still, and says `value` when it may go on."""

    def place(stage: Stage) -> tuple[Agent, dict[str, Any]]:
        async def stands(_: Any) -> Any:
            await stage.stop()
            return value

        @tool
        async def t() -> str:
            return "t"

        options: dict[str, Any] = {"model": calling("t")}
        if where == "on_limit":
            return agent(t, budget=Budget(max_turns=1)), {**options, "on_limit": stands}
        if where == "completion":
            return agent(t, completion=Completion(stands, max_attempts=2)), options
        if where in HOOKS:
            return agent(t, hooks=Hooks(**{where: stands})), options
        return agent(t, **{where: [stands] * times}), options

    place.__name__ = f"in_{where}_{times}"
    return place


HOOKS = ("before_llm", "after_llm", "before_tool", "after_tool")


async def by_scope(run: Callable[[], Awaitable[Any]], stage: Stage) -> None:
    async with anyio.create_task_group() as group:

        async def cancel() -> None:
            await stage.reached.wait()
            scope.cancel()

        group.start_soon(cancel)
        with anyio.CancelScope() as scope:
            await run()
            raise AssertionError("the cancellation was lost")
    assert scope.cancelled_caught


async def by_task_cancel(run: Callable[[], Awaitable[Any]], stage: Stage) -> None:
    async def host() -> None:
        await run()

    task = asyncio.create_task(host())
    await stage.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def by_timeout(run: Callable[[], Awaitable[Any]], stage: Stage) -> None:
    with pytest.raises(TimeoutError):  # noqa: PT012  # the deadline surrounds the run
        async with asyncio.timeout(None) as deadline:

            async def due() -> None:
                await stage.reached.wait()
                deadline.reschedule(0)

            helper = asyncio.create_task(due())
            await run()
    await helper
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def by_wait_for(run: Callable[[], Awaitable[Any]], stage: Stage) -> None:
    task = asyncio.create_task(asyncio.wait_for(run(), 3600))
    await stage.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


WAYS = {"scope": by_scope, "cancel": by_task_cancel, "timeout": by_timeout, "wait_for": by_wait_for}
PLACES = (
    in_model,
    in_async_tool,
    in_parallel_tools,
    in_timed_tool,
    in_sync_tool,
    in_child,
    in_wait_for,
    at("guardrails", Allow()),
    at("guardrails", Allow(), times=3),
    at("input_guardrails", Allow(), times=2),
    at("output_guardrails", Allow(), times=2),
    at("completion", (True, "good")),
    at("on_limit", Extend(Budget(max_turns=9))),
    *map(at, HOOKS),
)


@pytest.fixture(
    params=["asyncio scope", "asyncio cancel", "asyncio timeout", "asyncio wait_for", "trio scope"]
)
def backend_and_way(request: pytest.FixtureRequest) -> list[str]:
    return str(request.param).split()


@pytest.fixture
def anyio_backend(backend_and_way: list[str]) -> str:
    return backend_and_way[0]


@pytest.fixture
def way(backend_and_way: list[str]) -> Any:
    return WAYS[backend_and_way[1]]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["private", "memory", "slow"])
async def test_it_propagates_is_closed_off_and_recovers(place: Any, way: Any, kind: str) -> None:
    stage = Stage()
    made, options = place(stage)
    if kind != "private":
        inner = MemoryStore()
        options["store"] = inner if kind == "memory" else CrashingStore(inner)
    runtime = Runtime(made, **options)
    before = tasks()
    try:
        await way(lambda: runtime.run("go"), stage)
    finally:
        stage.thread.set()
    assert tasks() == before
    result = runtime.result()
    assert result.status == "interrupted"
    assert kinds(runtime).count("settled") >= 1
    if kind != "private":
        info = await options["store"].info(runtime.id)
        assert info.owner is None
        assert info.status == "cut_off"
    assert (await runtime.recover()).status == "done"
    assert tasks() == before


async def test_while_on_pending_is_told(way: Any) -> None:
    stage, told = Stage(), []

    async def on_pending(request: Request) -> None:
        await stage.stop()
        told.append(request.id)

    runtime = Runtime(agent(asking()), model=calling("asks"), on_pending=on_pending)
    await way(lambda: runtime.run("go"), stage)
    result = await runtime.recover()
    assert result.status == "pending"
    assert told == [result.pending.id] if result.pending else False


async def test_a_call_that_may_not_be_repeated_is_in_doubt(way: Any) -> None:
    stage = Stage()

    @tool(on_replay="reuse")
    async def t() -> str:
        await stage.stop()
        return "t"

    runtime = Runtime(agent(t), model=calling("t"))
    await way(lambda: runtime.run("go"), stage)
    result = await runtime.recover()
    assert result.status == "pending"
    assert result.pending is not None
    assert result.pending.kind == "in_doubt"
    answer = Answer(id=result.pending.id, ok=True, data={"outcome": "succeeded", "output": "happened"})
    assert (await runtime.resume(answer)).status == "done"
    assert results(runtime) == [("happened", False)]
    assert stage.entered == 1


@pytest.mark.parametrize("append", [1, 2, 3, 4])
async def test_during_an_append_of_a_slow_store(way: Any, append: int) -> None:
    """What is being stored is stored, the closing fact after it, and nothing is lost or done twice."""
    store = CrashingStore(MemoryStore())
    gate = store.hold(append)
    entered: list[str] = []

    @tool(on_replay="reuse")
    async def t() -> str:
        entered.append("t")
        return "t"

    runtime = Runtime(agent(t), model=calling("t"), store=store)
    stage = Stage()

    async def watch() -> None:
        await gate.reached()
        stage.reached.set()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        gate.release()

    before = tasks()
    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await way(lambda: runtime.run("go"), stage)
    assert tasks() == before
    assert (await store.info(runtime.id)).owner is None
    again = await Runtime.open(agent(t), runtime.id, model=calling("t"), store=store)
    result = await again.recover()
    assert result.status in ("done", "pending")
    if result.pending is not None:
        assert result.pending.kind == "in_doubt"
        await again.resume(Answer(id=result.pending.id, ok=True, data={"outcome": "retry"}))
    assert again.result().status == "done"
    assert results(again) == [("t", False)]
    assert len(entered) == 1


async def test_a_store_that_hangs_does_not_hold_the_host(
    way: Any, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if anyio_backend == "trio":
        return  # there the host's own task appends, and waits for the store
    monkeypatch.setattr("overt.driver.loop.PATIENCE", 0.01)
    store = CrashingStore(MemoryStore())
    gate = store.hold(2)
    runtime = Runtime(agent(), model=calling("t"), store=store, shutdown=0)
    stage = Stage()

    async def watch() -> None:
        await gate.reached()
        stage.reached.set()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await way(lambda: runtime.run("go"), stage)


async def test_while_queued_for_the_gate(way: Any) -> None:
    """A cancelled holder or waiter leaks no place."""
    inside, stage = [], Stage()

    async def reply(request: ModelRequest) -> Any:
        if request.agent == "child" and stage.entered < 2:
            stage.entered += 1
            inside.append(request.handle)
            stage.reached.set()
            await stage.release.wait()
        return (
            [call("task", agent="child", prompt="x")] * 4
            if len(request.messages) == 1 and request.agent == "a"
            else say("ok")
        )

    boss = Agent("a", does="works", team=[Agent("child", does="works")])
    runtime = Runtime(boss, model=MockModel(reply), max_concurrent_turns=1)
    await way(lambda: runtime.run("go"), stage)
    assert len(inside) == 1
    stage.entered = 2
    result = await runtime.recover()
    assert result.status == "done"
    assert [text for text, _ in results(runtime)] == ["ok"] * 4


async def test_a_tool_that_swallows_it_does_not_keep_the_host(way: Any) -> None:
    stage, entered = Stage(), []

    @tool
    async def stubborn() -> str:
        entered.append("stubborn")
        try:
            await stage.stop()
        except Cancelled:
            return "I go on"
        return "went on"

    @tool
    async def later() -> str:
        entered.append("later")
        return "later"

    model = MockModel([call("stubborn"), call("later"), say("done")])
    runtime = Runtime(agent(stubborn, later), model=model)
    await way(lambda: runtime.run("go"), stage)
    assert entered == ["stubborn"]
    assert runtime.result().status == "interrupted"
    assert (await runtime.recover()).status == "done"


async def test_a_tool_that_turns_it_into_an_error_does_not_keep_the_host(way: Any) -> None:
    stage = Stage()

    @tool
    async def translates() -> str:
        try:
            await stage.stop()
        except BaseException as error:
            raise ValueError("interrupted") from error
        return "x"

    @tool
    async def groups() -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(stage.stop)
            try:
                await anyio.sleep_forever()
            except BaseException as error:
                raise ValueError("clean-up failed") from error
        return "x"

    for t, name in ((translates, "translates"), (groups, "groups")):
        stage.__init__()  # type: ignore[misc]  # begins anew
        runtime = Runtime(agent(t), model=calling(name))
        await way(lambda runtime=runtime: runtime.run("go"), stage)
        assert runtime.result().status == "interrupted"


async def test_a_guest_that_is_cancelled_leaves_the_others_alone(way: Any, anyio_backend: str) -> None:
    """Inside `async with runtime` a verb is only a guest: what it began goes on."""
    if anyio_backend == "trio":
        return  # there the guest's own task appends, and is through before it can be cancelled
    store = CrashingStore(MemoryStore())
    stage = Stage()

    @tool
    async def t() -> str:
        return "t"

    async with Runtime(agent(t), model=calling("t"), store=store) as runtime:
        first = await runtime.spawn("root", "a")
        gate = store.hold(store.appends + 1)

        async def watch() -> None:
            await gate.reached()
            stage.reached.set()

        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            await way(lambda: runtime.wake(first, "go"), stage)
            gate.release()
        assert (await runtime.wait(first)).status == "done"
    assert (await store.info(runtime.id)).owner is None
