"""Models that raise, hang, or hand over what no model should: the run ends with a result or goes on, and is whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from tests.core.sim import fold, tree_snapshot

from overt import Agent, Budget, RetryPolicy, Runtime, TaskResult, tool
from overt.core import facts as f
from overt.errors import ModelError
from overt.message import AssistantMessage, ModelRequest, ModelResponse, ToolCall, ToolMessage, Usage
from overt.stores import MemoryStore
from overt.testing import MockModel, Script, VirtualClock, call, raw_call, say

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


AGENT = Agent("a", does="Adds.", tools=[add])


class Odd:
    """A model that does what a function does."""

    name = "odd"

    def __init__(self, reply: Callable[[ModelRequest], Any]) -> None:
        self.reply = reply

    async def generate(self, request: ModelRequest) -> ModelResponse:
        answer: ModelResponse = self.reply(request)
        return answer


async def ran(model: Any, **options: Any) -> tuple[TaskResult[str], Runtime[str]]:
    """Run it, and see that what is stored is what is shown, and that the ledger adds up."""
    options.setdefault("store", MemoryStore())
    result, runtime = await AGENT.run("go", model=model, run_id="r", **options)
    opened = await Runtime.open(AGENT, "r", model=model, **options)
    assert opened.result() == result
    log = runtime._driver.log
    assert tree_snapshot(fold([(at, facts) for _, at, facts in log])) == tree_snapshot(runtime._driver.tree)
    assert result.usage.model_calls == sum(isinstance(x, f.ModelCalled) for _, _, facts in log for x in facts)
    return result, runtime


class Nasty(Exception):
    """An exception that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        ModelError("busy", retryable=True, status_code=503),
        TimeoutError(),
        Nasty(),
        StopIteration(),
    ],
    ids=lambda e: type(e).__name__,
)
async def test_a_model_that_raises(error: Exception) -> None:
    def fail(_: ModelRequest) -> Any:
        raise error

    store = MemoryStore()
    result, _ = await ran(Odd(fail), store=store, retry=RetryPolicy(max_retries=0))
    assert result.status == "error"
    assert result.error is not None
    assert result.error.source == "model"
    assert (result.usage.turns, result.usage.unreported_calls, result.usage.model_calls) == (0, 1, 1)
    opened = await Runtime.open(AGENT, "r", model=MockModel([say("end")]), store=store)
    assert (await opened.recover()).text == "end"


async def test_a_model_that_hangs_is_ended_by_the_wall() -> None:
    clock, asked = VirtualClock(), anyio.Event()

    class Hanging:
        name = "hanging"

        async def generate(self, request: ModelRequest) -> ModelResponse:
            asked.set()
            await anyio.sleep_forever()
            raise AssertionError

    runtime = Runtime(AGENT, model=Hanging(), clock=clock, budget=Budget(max_wall=5))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.run, "go")
            await asked.wait()
            await clock.advance(4)
            assert runtime.result().status == "timeout"
            await clock.advance(2)
    result = runtime.result()
    assert (result.status, result.limit, result.limit_at) == ("incomplete", "maxWall", "root")
    assert result.usage.unreported_calls == 1


async def test_a_model_without_usage() -> None:
    result, runtime = await ran(MockModel([say("end", usage=None)]), budget=Budget(max_tokens=5000))
    assert (result.total_tokens, result.usage.turns, result.usage.unreported_calls) == (0, 1, 1)
    left = runtime.remaining("root/a.1").max_tokens
    assert left is not None
    assert left < 5000, "what was not reported was given away"


def response(message: Any, **fields: Any) -> ModelResponse:
    base: dict[str, Any] = {
        "usage": None, "finish_reason": "stop", "raw_finish_reason": None, "model": "m", "invalid_arguments": {},
    }  # fmt: skip
    return ModelResponse.model_construct(message=message, **base | fields)


def text(value: Any) -> AssistantMessage:
    return AssistantMessage.model_construct(
        role="assistant", text=value, tool_calls=(), reasoning=None, opaque=None
    )


def calling(*calls: Any) -> AssistantMessage:
    return AssistantMessage.model_construct(
        role="assistant", text="", tool_calls=calls, reasoning=None, opaque=None
    )


NAN: Any = float("nan")
TEXT: Any = "5"
NONE: Any = None


@pytest.mark.parametrize(
    "reply",
    [
        None,
        "text",
        {"message": "x"},
        response(None),
        response(text(None)),
        response(text(b"bytes")),
        response(text("x"), finish_reason=None),
        response(text("x"), model=None),
        response(text("x"), usage=Usage.model_construct(input_tokens=-5, output_tokens=1, total_tokens=-4)),
        response(text("x"), usage=Usage.model_construct(input_tokens=NAN, output_tokens=1, total_tokens=1)),
        response(text("x"), usage=Usage.model_construct(input_tokens=TEXT, output_tokens=1, total_tokens=6)),
        response(text("x"), usage={"input_tokens": 1}),
        response(calling(None)),
        response(calling(ToolCall.model_construct(id="1", name=NONE, arguments={}))),
        response(
            AssistantMessage.model_construct(
                role="assistant", text="x", tool_calls=(), reasoning=None, opaque={"n": NAN}
            )
        ),
    ],
)
async def test_garbage_is_a_failed_model_call(reply: Any) -> None:
    result, _ = await ran(Odd(lambda _: reply))
    assert result.status == "error", result
    assert result.error is not None
    assert result.error.source == "model"
    assert result.usage.unreported_calls == 1
    assert result.text


@pytest.mark.parametrize("ids", [("", ""), ("same", "same"), (None, None), ("x" * 10_000, "1")], ids=repr)
async def test_ids_of_calls_that_name_nothing(ids: tuple[Any, Any]) -> None:
    """The provider's ids are not ours: each call gets its own, and each its own result."""
    calls = [
        ToolCall.model_construct(id=id, name="add", arguments={"a": n, "b": 1}) for n, id in enumerate(ids)
    ]

    def reply(request: ModelRequest) -> ModelResponse:
        done = any(m.role == "tool" for m in request.messages)
        return response(text("end") if done else calling(*calls), finish_reason="stop")

    result, runtime = await ran(Odd(reply))
    assert result.text == "end"
    tools = [m for m in runtime.transcript("root/a.1") if isinstance(m, ToolMessage)]
    assert [m.text for m in tools] == ["1", "2"]
    assert len({m.call_id for m in tools}) == 2
    assert all(m.call_id for m in tools)


@pytest.mark.parametrize(
    "arguments", [None, [1], "x", pytest.param({"a": object()}, id="an object in it"), {1: 2}], ids=repr
)
async def test_arguments_that_are_no_object(arguments: Any) -> None:
    odd = ToolCall.model_construct(id="1", name="add", arguments=arguments)

    def reply(request: ModelRequest) -> ModelResponse:
        done = any(m.role == "tool" for m in request.messages)
        return response(text("end") if done else calling(odd), finish_reason="stop")

    result, runtime = await ran(Odd(reply))
    assert result.text == "end", result.text
    (message,) = [m for m in runtime.transcript("root/a.1") if isinstance(m, ToolMessage)]
    assert message.is_error
    assert "arguments" in message.text


async def test_broken_calls_beside_a_good_one() -> None:
    script: Script = [
        [
            raw_call("add", "{"),
            raw_call("", "{}"),
            raw_call("nope", "[]"),
            call("add", a=1, b=2),
            raw_call("add", ""),
        ],
        say("end"),
    ]
    result, runtime = await ran(MockModel(script))
    assert result.text == "end"
    tools = [m for m in runtime.transcript("root/a.1") if isinstance(m, ToolMessage)]
    assert [m.is_error for m in tools] == [True, True, True, False, True]
    assert result.usage.tool_calls == 1
