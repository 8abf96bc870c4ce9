"""Replies that cannot be worked with, and models that fail: each an error of its own type, and one more try."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from overt import Agent, Budget, RetryPolicy, Runtime, tool
from overt.errors import ModelError
from overt.message import AssistantMessage, Message, ModelRequest
from overt.testing import MockModel, call, say
from tests.driver.support import ENTRY, agent, results


class Once:
    """A model that misbehaves the first time it gets this far, and then behaves."""

    def __init__(self, *bad: Any, good: Any = None) -> None:
        self.bad = list(bad)
        self.good = say("good") if good is None else good
        self.model = MockModel(self._reply)

    def _reply(self, request: ModelRequest) -> Any:
        for message in request.messages:
            if isinstance(message, AssistantMessage):
                assert message.text.strip() or message.tool_calls, "resent with neither content nor calls"
        reply = self.bad.pop(0) if self.bad else self.good
        if isinstance(reply, BaseException):
            raise reply
        return reply


@tool
async def never() -> str:
    raise AssertionError("entered")


BAD: list[tuple[Any, str]] = [
    (say(""), "EmptyReply"),
    (say(" \n"), "EmptyReply"),
    (say("no", finish="refusal"), "Refusal"),
    ([say("no", finish="refusal"), call("never")], "Refusal"),
    (say("", finish="content_filter"), "ContentFilter"),
    ([call("never").with_options(finish="content_filter")], "ContentFilter"),
    (say("half a sen", finish="length"), "OutputTruncated"),
    ([say("well"), call("never").with_options(finish="length")], "OutputTruncated"),
]


@pytest.mark.parametrize(("reply", "type"), BAD)
async def test_each_has_its_type_is_never_resent_and_recover_buys_one_more(reply: Any, type: str) -> None:
    once = Once(reply)
    runtime = Runtime(agent(never), model=once.model)
    result = await runtime.run("go")
    assert result.status == "error"
    assert result.error is not None
    assert (result.error.type, result.error.source) == (type, "model")
    assert (result.turns, result.total_tokens, result.usage.model_calls) == (1, 100, 1)
    first = once.model.requests[0].messages
    result = await runtime.recover()
    assert (result.status, result.text) == ("done", "good")
    assert once.model.requests[1].messages == first
    assert (result.turns, result.total_tokens, result.usage.tool_calls) == (2, 200, 0)


async def test_mid_way_the_work_before_it_is_kept() -> None:
    entered: list[str] = []

    @tool
    async def t() -> str:
        entered.append("t")
        return "t"

    once = Once(call("t"), say(""))
    runtime = Runtime(agent(t), model=once.model)
    assert (await runtime.run("go")).status == "error"
    assert (await runtime.recover()).text == "good"
    assert entered == ["t"]


async def test_endless_emptiness_ends_each_time() -> None:
    runtime = Runtime(agent(), model=MockModel(lambda request: say("")))
    for turns in range(1, 5):
        result = await (runtime.run("go") if turns == 1 else runtime.recover())
        assert result.error is not None
        assert (result.status, result.error.type, result.turns) == ("error", "EmptyReply", turns)
    assert (await runtime.recover()).status == "error"


@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_tools_at_the_turn_cap_are_not_entered(turns: int) -> None:
    entered: list[int] = []

    @tool
    async def t() -> str:
        entered.append(1)
        return "t"

    model = MockModel([[say(f"step {n}"), call("t"), call("t")] for n in range(1, 9)])
    runtime = Runtime(agent(t, budget=Budget(max_turns=turns)), model=model)
    result = await runtime.run("go")
    assert (result.status, result.limit, result.limit_at) == ("incomplete", "maxTurns", ENTRY)
    assert len(entered) == 2 * (turns - 1)
    assert result.partial == f"step {turns}"
    assert results(runtime)[-2:] == [("not run (maxTurns)", True)] * 2
    result = await runtime.extend(Budget(max_turns=turns + 1))
    assert len(entered) == 2 * turns
    assert result.status == "incomplete"


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class Odd(BaseException):
    pass


ONCE = RetryPolicy(max_retries=0)
FAILURES: list[tuple[BaseException, str, str]] = [
    (ValueError("broken"), "ValueError", "broken"),
    (RuntimeError(), "RuntimeError", "RuntimeError"),
    (Unreadable(), "Unreadable", "Unreadable"),
    (Odd("odd"), "Odd", "odd"),
    (GeneratorExit("gone"), "GeneratorExit", "gone"),
    (asyncio.CancelledError("mine"), "CancelledError", "mine"),
    (TimeoutError("late"), "TimeoutError", "late"),
    (StopIteration("s"), "RuntimeError", "coroutine raised StopIteration"),
    (ExceptionGroup("g", [ValueError("inner")]), "ExceptionGroup", "g (1 sub-exception): ValueError: inner"),
    (
        ModelError("503 overloaded", type="Overloaded", retryable=True, status_code=503),
        "Overloaded",
        "503 overloaded",
    ),
]


@pytest.mark.parametrize(("error", "type", "message"), FAILURES)
async def test_what_a_model_raises_is_an_error_result(error: BaseException, type: str, message: str) -> None:
    runtime = Runtime(agent(), model=Once(error).model, retry=ONCE)
    result = await runtime.run("go")
    assert result.status == "error"
    assert result.error is not None
    assert (result.error.type, result.error.message, result.error.source) == (type, message, "model")
    assert (result.usage.model_calls, result.usage.unreported_calls, result.turns) == (1, 1, 0)
    result = await runtime.recover()
    assert (result.status, result.text) == ("done", "good")


async def test_a_cancellation_of_the_models_own(anyio_backend: str) -> None:
    if anyio_backend == "trio":
        error: BaseException = trio.Cancelled._create(source="explicit")
    else:
        error = asyncio.CancelledError()
    runtime = Runtime(agent(), model=Once(error).model)
    result = await runtime.run("go")
    assert result.error is not None
    assert result.error.type.startswith("Cancelled")
    assert (await runtime.recover()).status == "done"


async def test_one_that_returns_something_else() -> None:
    class Wrong:
        name = "wrong"

        async def generate(self, request: ModelRequest) -> Any:
            return {"text": "hi"}

    result, _ = await agent().run("go", model=Wrong())
    assert result.error is not None
    assert "ModelResponse" in result.error.message


async def test_credentials_pass_neither_into_the_message_nor_the_detail_nor_the_journal() -> None:
    key = "sk-proj-abcdefghijklmnop1234"
    body = '{"error": {"message": "bad key", "api_key": "hunter2hunter2"}}'
    for error in (
        ModelError(f"422 for {key}", type="Unprocessable", status_code=422, detail=body),
        RuntimeError(f"could not send Authorization: Bearer {key}"),
    ):
        runtime = Runtime(agent(), model=Once(error).model)
        result = await runtime.run("go")
        assert result.error is not None
        shown = result.model_dump_json() + "".join(e.model_dump_json() for e in runtime.events())
        shown += "".join(runtime.trace())
        assert key not in shown
        assert "hunter2" not in shown
        assert "«redacted»" in shown
        assert len(result.error.message) <= 500


async def test_a_childs_failure_is_its_parents_tool_error() -> None:
    boss = Agent("a", does="works", team=[Agent("child", does="works")])
    model = MockModel({"a": [call("task", agent="child", prompt="p"), say("done")], "child": [say("")]})
    result, rt = await boss.run("go", model=model)
    assert result.status == "done"
    ((text, failed),) = results(rt)
    assert failed
    assert text.startswith("[error]")


def requests_are_well_formed(messages: tuple[Message, ...]) -> None:
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            assert open_calls == []
            open_calls = [c.id for c in message.tool_calls]
        elif message.role == "tool":
            open_calls.remove(message.call_id)
    assert open_calls == []


async def test_every_request_is_balanced_after_a_stop_and_a_second_go() -> None:
    @tool
    async def t() -> str:
        return "t"

    model = MockModel(lambda request: [call("t"), call("t")])
    runtime = Runtime(agent(t, budget=Budget(max_turns=2)), model=model)
    await runtime.run("go")
    await runtime.extend(Budget(max_turns=4))
    for request in model.requests:
        requests_are_well_formed(request.messages)


class Denied(Exception):
    """A provider library's own exception."""

    def __init__(self, message: str, *, status: int, nested: bool) -> None:
        super().__init__(message)
        if nested:
            self.response = SimpleNamespace(status_code=status)
        else:
            self.status_code = status


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("kind", ["ours", "theirs", "nested"])
async def test_nothing_of_a_body_about_credentials_is_kept(kind: str, status: int) -> None:
    body = "You wrote: hunter2 of acme"

    def model(request: ModelRequest) -> Any:
        if kind == "ours":
            raise ModelError(body, status_code=status, detail=body)
        raise Denied(body, status=status, nested=kind == "nested")

    runtime = Runtime(agent(never), model=MockModel(model))
    result = await runtime.run("go")
    assert result.error is not None
    assert (result.error.status_code, result.error.detail) == (status, None)
    assert result.error.message.endswith("credentials were refused" if status == 401 else "access was denied")
    for text in (result.model_dump_json(), *runtime.trace()):
        assert "hunter2" not in text
        assert "acme" not in text


async def test_a_body_about_anything_else_is_kept() -> None:
    def model(request: ModelRequest) -> Any:
        raise ModelError("busy", status_code=429, detail="come back at noon", retryable=True)

    result = await Runtime(agent(never), model=MockModel(model), retry=ONCE).run("go")
    assert result.error is not None
    assert (result.error.message, result.error.detail) == ("busy", "come back at noon")


async def test_instructions_that_raise_are_not_the_models_error() -> None:
    broken = [True]

    def soul(deps: None) -> str:
        if broken:
            raise LookupError("no such tenant")
        return "Be brief."

    worker = Agent("worker", does="works", soul=soul, model=MockModel([say("end")]))
    runtime = Runtime(worker)
    result = await runtime.run("go")
    assert result.error is not None
    assert (result.error.type, result.error.source) == ("LookupError", "runtime")
    assert "no such tenant" in result.error.message
    broken.clear()
    assert (await runtime.recover()).status == "done"


async def test_arguments_that_do_not_fit_are_said_once() -> None:
    @tool
    async def price(item: str) -> str:
        return item

    model = MockModel([[call("price", itm=1), call("price", item=float("nan"))], say("end")])
    _, runtime = await agent(price).run("go", model=model)
    found = [text for text, _ in results(runtime)]
    assert len(found) == 2
    assert all(text.count("invalid arguments") == 1 for text in found), found
