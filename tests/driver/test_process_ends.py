"""KeyboardInterrupt and SystemExit leave run() bare, and the journal says what was cut off."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from overt import Agent, Answer, Request, Runtime, ToolContext, pending, tool
from overt.message import ModelRequest
from overt.stores import MemoryStore
from overt.testing import MockModel, VirtualClock, call, say
from overt.testing.crashing import Crashed, CrashingStore
from tests.driver.support import agent, calling, results, tasks

ENDS = [KeyboardInterrupt("stop"), SystemExit(3)]


def raiser(error: BaseException, how: str, **options: Any) -> tuple[Any, list[str]]:
    """A tool that ends the process the first time it is entered."""
    entered: list[str] = []

    def first() -> None:
        entered.append("ends")
        if len(entered) == 1:
            raise error

    if how == "thread":

        @tool(name="ends", **options)
        def in_thread() -> str:
            first()
            return "ok"

        return in_thread, entered

    @tool(name="ends", **options)
    async def ends() -> str:
        if how == "late":
            await anyio.lowlevel.checkpoint()
        if how == "group":
            # Of a task of its own asyncio lets neither out but through the event loop, past everybody.
            async with anyio.create_task_group():
                first()
            return "ok"
        first()
        return "ok"

    return ends, entered


@pytest.mark.parametrize("error", ENDS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("how", ["async", "late", "thread", "group"])
@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("where", ["alone", "beside", "child"])
async def test_out_of_run_bare_and_recoverable(
    error: BaseException, how: str, timeout: float | None, where: str
) -> None:
    ends, entered = raiser(error, how, timeout=timeout)
    waiting = anyio.Event()

    @tool
    async def sibling() -> str:
        if len(entered) <= 1 and where == "beside":
            await waiting.wait()
        return "s"

    if where == "child":
        child = Agent("child", does="works", tools=[ends])
        made = Agent("a", does="works", team=[child])
        model = MockModel(
            {"a": [call("task", agent="child", prompt="p"), say("done")], "child": [call("ends"), say("ok")]}
        )
    else:
        made = agent(ends, sibling)
        # The host's own task performs the first; the interrupt has to reach it there.
        model = calling("sibling", "ends", "sibling") if where == "beside" else calling("ends")
    before = tasks()
    runtime = Runtime(made, model=model)
    with pytest.raises(type(error)) as caught:
        await runtime.run("go")
    assert caught.value is error
    assert tasks() == before
    result = runtime.result()
    assert result.status == "interrupted"
    waiting.set()
    assert (await runtime.recover()).status == "done"
    assert len(entered) == 2


@pytest.mark.parametrize("error", ENDS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("how", ["async", "thread", "group"])
@pytest.mark.parametrize("timeout", [None, 60.0])
async def test_a_call_that_may_not_be_repeated_is_in_doubt(
    error: BaseException, how: str, timeout: float | None
) -> None:
    ends, entered = raiser(error, how, on_replay="reuse", timeout=timeout)
    store = MemoryStore()
    runtime = Runtime(agent(ends), model=calling("ends"), store=store)
    with pytest.raises(type(error)):
        await runtime.run("go")
    assert (await store.info(runtime.id)).owner is None
    again = await Runtime.open(agent(ends), runtime.id, model=calling("ends"), store=store)
    result = await again.recover()
    assert result.pending is not None
    assert result.pending.kind == "in_doubt"
    await again.resume(Answer(id=result.pending.id, ok=True, data={"outcome": "failed", "output": "no"}))
    assert results(again) == [("no", True)]
    assert len(entered) == 1


@pytest.mark.parametrize("error", ENDS, ids=lambda e: type(e).__name__)
async def test_from_models_interpreters_and_watchers(error: BaseException) -> None:
    @tool
    async def asks(ctx: ToolContext) -> object:
        return "ok" if ctx.answer else pending(kind="approval", prompt="?")

    async def model(request: ModelRequest) -> Any:
        raise error

    async def hook(request: Request) -> None:
        raise error

    for options in (
        {"model": MockModel(model)},
        {"model": MockModel([BaseExceptionGroup("g", [error])])},
        {"model": calling("asks"), "wait_for": hook},
        {"model": calling("asks"), "on_pending": hook},
    ):
        runtime = Runtime(agent(asks), **options)
        with pytest.raises(type(error)) as caught:
            await runtime.run("go")
        assert caught.value is error
        assert runtime.result().status in ("interrupted", "pending")


async def test_a_guest_and_the_owner_both_hear_of_it() -> None:
    ends, _ = raiser(KeyboardInterrupt(), "late")
    runtime = Runtime(agent(ends), model=calling("ends"))
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # out of the block, too
        async with runtime:
            handle = await runtime.spawn("root", "a")
            await runtime.wake(handle, "go")
            await runtime.wait(handle)
    assert runtime.result().status == "interrupted"
    assert (await runtime.recover()).status == "done"


async def test_in_the_background_the_end_of_the_block_tells() -> None:
    ends, entered = raiser(SystemExit(1), "async")
    runtime = Runtime(agent(ends), model=calling("ends"))
    with pytest.raises(SystemExit):  # noqa: PT012  # out of the block
        async with runtime:
            handle = await runtime.spawn("root", "a")
            await runtime.wake(handle, "go")
            while not entered:
                await anyio.lowlevel.checkpoint()
    assert runtime.result().status == "interrupted"


async def test_an_error_of_the_block_is_raised_as_it_is() -> None:
    runtime = Runtime(agent(), model=MockModel([say("x")]))
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        async with runtime:
            raise error
    assert caught.value is error


@pytest.mark.parametrize("append", [1, 2, 3, 4])
async def test_a_dead_process_comes_out_bare(append: int) -> None:
    @tool
    async def t() -> str:
        return "t"

    store = CrashingStore(MemoryStore(), crash_at=append)
    with pytest.raises(Crashed):
        await agent(t).run("go", model=calling("t", "t"), store=store)


def test_from_a_sync_entry_point() -> None:
    ends, _ = raiser(KeyboardInterrupt(), "thread")
    with pytest.raises(KeyboardInterrupt):
        agent(ends).run_sync("go", model=calling("ends"))


async def test_code_after_a_timeout_may_still_end_the_process() -> None:
    clock, released = VirtualClock(), anyio.Event()

    @tool(timeout=5)
    async def slow() -> str:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await released.wait()
            raise KeyboardInterrupt

    second = anyio.Event()

    async def reply(request: ModelRequest) -> Any:
        if len(request.messages) == 1:
            return call("slow")
        second.set()
        await anyio.sleep_forever()
        raise AssertionError

    runtime = Runtime(agent(slow), model=MockModel(reply), clock=clock)

    async def later() -> None:
        await clock.wait_for_sleepers()
        await clock.advance(6)
        await second.wait()
        released.set()

    async with anyio.create_task_group() as group:
        group.start_soon(later)
        with pytest.raises(KeyboardInterrupt):
            await runtime.run("go")
    assert runtime.result().status == "interrupted"


async def test_it_is_not_lost_in_a_cancellation() -> None:
    """A later verb would raise it, and do nothing."""
    scope = anyio.CancelScope()
    interrupted = [True]

    @tool
    async def ends() -> str:
        if interrupted.pop():
            interrupted.append(False)
            scope.cancel()
            try:
                await anyio.sleep_forever()
            finally:
                raise KeyboardInterrupt  # as a signal does that comes meanwhile
        return "ok"

    runtime = Runtime(agent(ends), model=calling("ends"))
    with pytest.raises(KeyboardInterrupt), scope:
        await runtime.run("go")
    assert runtime.result().status == "interrupted"
    assert (await runtime.recover()).status == "done"
