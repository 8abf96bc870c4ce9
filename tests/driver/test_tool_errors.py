"""What a tool raises or returns wrongly is a result for its model, and nothing more."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio

from overt import Agent, Runtime, ToolResult, tool
from overt.errors import ToolError, UsageError
from overt.testing import MockModel, call, say
from tests.driver.support import agent, calling, results, tasks


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class Fatalish(BaseException):
    pass


class Empty(Exception):
    pass


ERRORS: list[tuple[BaseException, str]] = [
    (ValueError("bad luck"), "ValueError: bad luck"),
    (Empty(), "Empty"),
    (KeyError("k"), "KeyError: 'k'"),
    (ToolError("exactly this"), "exactly this"),
    (ToolError(""), ""),
    (Unreadable(), "Unreadable"),
    (Fatalish("odd"), "Fatalish: odd"),
    (GeneratorExit("gone"), "GeneratorExit: gone"),
    (StopAsyncIteration("s"), "StopAsyncIteration: s"),
    (asyncio.CancelledError("mine"), "CancelledError: mine"),
    (ValueError("\ud800 half"), "ValueError: \ufffd half"),
    (
        ExceptionGroup("two", [ValueError("a"), ExceptionGroup("in", [Unreadable()])]),
        (
            "ExceptionGroup: two (2 sub-exceptions): ValueError: a; ExceptionGroup: in (1 sub-exception): "
            "Unreadable"
        ),
    ),
    (BaseExceptionGroup("g", [Fatalish("x")]), "BaseExceptionGroup: g (1 sub-exception): Fatalish: x"),
]


def raising(error: BaseException, thread: bool, **options: Any) -> Any:
    if thread:

        @tool(name="fails", **options)
        def in_thread() -> str:
            raise error

        return in_thread

    @tool(name="fails", **options)
    async def fails() -> str:
        await anyio.lowlevel.checkpoint()
        raise error

    return fails


@tool
async def fine() -> str:
    return "fine"


@pytest.mark.parametrize(("error", "text"), ERRORS, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
@pytest.mark.parametrize("timeout", [None, 60.0])
async def test_type_and_message_no_traceback_and_the_siblings_go_on(
    error: BaseException, text: str, thread: bool, timeout: float | None
) -> None:
    before = tasks()
    t = raising(error, thread, timeout=timeout)
    result, rt = await agent(t, fine).run("go", model=calling("fine", "fails", "fine"))
    assert result.status == "done"
    assert results(rt) == [("fine", False), (text, True), ("fine", False)]
    assert tasks() == before


async def test_its_own_cancellation_is_its_failure(anyio_backend: str) -> None:
    @tool
    async def cancels() -> str:
        if anyio_backend == "trio":
            # As a library that lets a cancellation of its own scope escape.
            raise trio.Cancelled._create(source="explicit")
        task = asyncio.ensure_future(asyncio.sleep(3600))
        await asyncio.sleep(0)
        task.cancel()
        await task
        return "x"

    result, rt = await agent(cancels, fine).run("go", model=calling("fine", "cancels"))
    assert result.status == "done"
    (first, second) = results(rt)
    assert first == ("fine", False)
    assert second[1]
    assert second[0].startswith("Cancelled")


async def test_a_tool_that_cancels_the_task_it_runs_in_hangs_nothing(anyio_backend: str) -> None:
    if anyio_backend == "trio":
        return

    @tool
    async def cancels() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return "x"

    # The second call of a batch never runs in the host's task.
    result, rt = await agent(cancels, fine).run("go", model=calling("fine", "cancels"))
    assert result.status == "done"
    assert results(rt) == [("fine", False), ("CancelledError", True)]


async def test_cancelling_its_own_scope_or_group_is_its_own_business() -> None:
    @tool
    async def careful() -> str:
        with anyio.move_on_after(0):
            await anyio.sleep_forever()
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            group.cancel_scope.cancel()
        try:
            with anyio.fail_after(0):
                await anyio.sleep_forever()
        except TimeoutError:
            pass
        return "still here"

    _, rt = await agent(careful).run("go", model=calling("careful", "careful"))
    assert results(rt) == [("still here", False)] * 2


async def test_an_error_in_a_task_group_of_the_tool_names_its_members() -> None:
    @tool
    async def groups() -> str:
        async def inner() -> None:
            raise LookupError("deep down")

        async with anyio.create_task_group() as group:
            group.start_soon(inner)
            await anyio.sleep_forever()
        return "x"

    _, rt = await agent(groups).run("go", model=calling("groups"))
    ((text, failed),) = results(rt)
    assert failed
    assert "LookupError: deep down" in text
    assert "Traceback" not in text


async def test_a_huge_message_is_cut_for_the_model_and_kept_whole() -> None:
    message = "x" * 300_000
    runtime = Runtime(agent(raising(ValueError(message), thread=False)), model=calling("fails"))
    await runtime.run("go")
    ((text, failed),) = results(runtime)
    assert failed
    assert len(text) <= 100_000
    assert runtime.tool_result("root/a.1", "c1") == f"ValueError: {message}"


async def test_a_sync_function_that_hands_out_an_awaitable() -> None:
    async def later(text: str) -> str:
        await anyio.lowlevel.checkpoint()
        return text

    class Awaitable:
        def __await__(self) -> Any:
            return later("custom").__await__()

    @tool
    def coroutine() -> Any:
        return later("coroutine")

    @tool
    def custom() -> Any:
        return Awaitable()

    _, rt = await agent(coroutine, custom).run("go", model=calling("coroutine", "custom"))
    assert results(rt) == [("coroutine", False), ("custom", False)]


async def test_what_cannot_be_recorded_is_an_error_naming_tool_and_type() -> None:
    @tool
    async def nan() -> float:
        return float("nan")

    @tool
    async def thing() -> Any:
        return object()

    @tool
    async def metadata() -> ToolResult:
        return ToolResult("x", metadata={"n": float("inf")})

    result, rt = await agent(nan, thing, metadata, fine).run(
        "go", model=calling("nan", "thing", "metadata", "fine")
    )
    assert result.status == "done"
    (first, a), (second, b), (third, c), last = results(rt)
    assert (a, b, c) == (True, True, True)
    assert "'nan'" in first
    assert "float" in first
    assert "'thing'" in second
    assert "object" in second
    assert "metadata" in third
    assert last == ("fine", False)


async def test_a_generator_is_not_taken_for_a_coroutine() -> None:
    @tool
    def generates() -> Any:
        return (letter for letter in "ab")

    result, rt = await agent(generates).run("go", model=calling("generates"))
    assert result.status == "done"
    assert results(rt) == [('["a","b"]', False)]


async def test_a_tool_may_run_another_agent() -> None:
    helper = Agent("helper", does="helps")

    @tool
    async def asks_helper(n: int) -> str:
        result, runtime = await helper.run(f"{n}", model=MockModel([say(f"helped {n}")]))
        assert runtime.id != ""
        return result.unwrap()

    @tool
    def asks_in_thread() -> str:
        return helper.run_sync("x", model=MockModel([say("from a thread")]))[0].unwrap()

    model = MockModel(
        [[call("asks_helper", n=1), call("asks_in_thread"), call("asks_helper", n=2)], say("done")]
    )
    _, rt = await agent(asks_helper, asks_in_thread).run("go", model=model)
    assert [text for text, _ in results(rt)] == ["helped 1", "from a thread", "helped 2"]


async def test_run_sync_inside_a_loop_says_what_to_await() -> None:
    with pytest.raises(UsageError, match=r"await agent\.run"):
        agent().run_sync("go", model=MockModel([say("x")]))
