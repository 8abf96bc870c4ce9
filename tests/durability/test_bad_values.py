"""Text, numbers and sizes that break things far from where they enter."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from overt import Agent, Answer, InboxItem, ResumePolicy, Runtime, ToolContext, ToolResult, pending, tool
from overt.core import facts as f
from overt.errors import DefinitionError, InvalidAnswer
from overt.journal.codec import decode
from overt.message import (
    AssistantMessage,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from overt.stores import SQLiteStore, Store
from overt.testing import MockModel, Script, VirtualClock, call, say

pytestmark = pytest.mark.anyio
DIRTY = "a\ud800b\x00\ud83d\ude00c"
CLEAN = "a\ufffdb\x00😀c"


class Saying:
    """A model that hands over whatever it was given, unchecked, as somebody's own model may."""

    name = "saying"

    def __init__(self, *messages: AssistantMessage) -> None:
        self.messages = messages
        self.requests: list[ModelRequest] = []

    async def generate(self, request: ModelRequest) -> ModelResponse:
        self.requests.append(request)
        turn = sum(m.role == "assistant" for m in request.messages)
        message = self.messages[turn]
        return ModelResponse.model_construct(
            message=message,
            usage=Usage(input_tokens=1, output_tokens=1, total_tokens=2),
            finish_reason="tool_calls" if message.tool_calls else "stop",
            raw_finish_reason="x",
            model=DIRTY,
            invalid_arguments={},
        )


def said(text: str, *calls: ToolCall) -> AssistantMessage:
    return AssistantMessage.model_construct(
        role="assistant", text=text, tool_calls=calls, reasoning=DIRTY, opaque={DIRTY: [DIRTY]}
    )


def called(name: str, id: str = DIRTY, **arguments: Any) -> ToolCall:
    return ToolCall.model_construct(id=id, name=name, arguments=arguments)


async def journal(store: Store, run_id: str) -> list[f.Fact]:
    facts: list[f.Fact] = []
    for rec in await store.read(run_id):
        rec.text.encode()
        facts += decode(run_id, rec)[1]
    return facts


async def test_half_a_surrogate_and_nul_wherever_text_enters(tmp_path: Path) -> None:
    store, seen = SQLiteStore(tmp_path / "runs.db"), dict[str, Any]()

    @tool
    async def echo(ctx: ToolContext[None], text: str, more: dict[str, Any]) -> ToolResult:
        """Echo."""
        seen["args"] = (text, more)
        seen["once"] = await ctx.once(DIRTY, once)
        return ToolResult(DIRTY, metadata={DIRTY: DIRTY})

    async def once() -> str:
        return CLEAN

    @tool
    async def fail() -> str:
        """Fail."""
        raise ValueError(DIRTY)

    @tool
    async def ask(ctx: ToolContext[None]) -> str:
        """Ask."""
        answer = await ctx.ask(DIRTY, url=f"https://x.test/{DIRTY}", data={DIRTY: DIRTY}, kind=DIRTY)
        seen["answer"] = answer
        return str(answer.data)

    agent = Agent("a", does=DIRTY, tools=[echo, fail, ask], soul=DIRTY)
    model = Saying(
        said(
            DIRTY,
            called("echo", text=DIRTY, more={DIRTY: [DIRTY]}),
            called("fail"),
            called(DIRTY),
            called("ask"),
        ),
        said(DIRTY),
    )
    told: list[str] = []

    async def on_pending(request: Any) -> None:
        told.append(request.prompt)
        raise RuntimeError(DIRTY)

    options: dict[str, Any] = {
        "store": store, "model": model, "clock": VirtualClock(), "on_pending": on_pending,
        "resume_policy": ResumePolicy.CONTINUE,
    }  # fmt: skip
    runtime = Runtime(agent, run_id=f"r{DIRTY}", history=[UserMessage(text=DIRTY)], **options)
    result = await runtime.run(DIRTY)
    assert result.pending is not None, result.text
    assert told == [CLEAN]
    runtime = await Runtime.open(agent, runtime.id, **options)
    (request,) = runtime.pendings()
    assert (request.prompt, request.kind, request.data[CLEAN]) == (CLEAN, CLEAN, CLEAN)
    answer = Answer[Any].model_construct(
        id=request.id, ok=True, data={DIRTY: DIRTY}, by=DIRTY, reason=DIRTY, at=None
    )
    result = await runtime.resume(answer)
    assert result.text == CLEAN
    assert seen["args"] == (CLEAN, {CLEAN: [CLEAN]})
    assert (seen["answer"].data, seen["answer"].by, seen["answer"].reason) == ({CLEAN: CLEAN}, CLEAN, CLEAN)
    tools = {m.name: m for m in runtime.transcript(result.handle) if isinstance(m, ToolMessage)}
    assert tools["echo"].text == CLEAN
    assert tools["echo"].metadata == {CLEAN: CLEAN}
    assert tools["fail"].text == f"ValueError: {CLEAN}"
    assert CLEAN in tools
    result.model_dump_json().encode()
    "".join(runtime.trace()).encode()
    for sent in model.requests:
        for message in sent.messages:
            message.model_dump_json().encode()
    child = await Runtime.open(agent, runtime.id, **options)
    assert child.result() == result
    assert "\ud800" not in repr(await journal(store, runtime.id))
    await store.close()


async def test_dirty_inbox_items_and_a_dirty_model_error(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    agent = Agent("a", does="Works.")
    runtime = Runtime(agent, run_id="r", store=store, model=MockModel([ValueError(DIRTY)]))
    handle = await runtime.spawn("root", "a")
    item = InboxItem.model_construct(sender=DIRTY, channel=DIRTY, text=DIRTY)
    assert (await runtime.post(handle, item)).ok
    result = await runtime.run_turn(handle, DIRTY)
    assert result.error is not None
    assert result.error.message == CLEAN
    await runtime.close(handle, reason=DIRTY)
    opened = await Runtime.open(agent, "r", store=store, model=MockModel([say("x")]))
    assert opened.result().error == result.error
    assert "\ud800" not in repr(await journal(store, "r"))
    await store.close()


async def test_a_result_of_ten_megabytes(tmp_path: Path) -> None:
    """Stored once, shown in part, read whole, and no burden to a resume."""
    big = "é" + "x" * 10_000_000 + "😀"
    store = SQLiteStore(tmp_path / "runs.db")

    @tool(on_replay="reuse")
    async def load() -> str:
        """Load."""
        return big

    @tool
    async def ask(ctx: ToolContext[None]) -> str:
        """Ask."""
        await ctx.ask("ok?")
        return "asked"

    agent = Agent("a", does="Works.", tools=[load, ask])
    model = MockModel([call("load"), call("ask"), say("end")])
    options: dict[str, Any] = {"store": store, "model": model}
    runtime = Runtime(agent, run_id="r", **options)
    result = await runtime.run("go")
    assert result.pending is not None
    sizes = [len(rec.text) for rec in await store.read("r")]
    assert 10_000_000 < sum(sizes) < 10_100_000
    runtime = await Runtime.open(agent, "r", **options)
    result = await runtime.resume(Answer(id=result.pending.id, ok=True))
    assert result.text == "end"
    assert sum(len(rec.text) for rec in await store.read("r")) < 10_200_000, "the replay stored it again"
    shown = [m for m in runtime.transcript(result.handle) if isinstance(m, ToolMessage) and m.name == "load"]
    assert len(shown[0].text) == 100_000
    assert shown[0].text[0] == "é"
    assert shown[0].text[-1] == "😀"
    assert runtime.tool_result(result.handle, shown[0].call_id) == big
    opened = await Runtime.open(agent, "r", **options)
    assert opened.tool_result(result.handle, shown[0].call_id) == big
    await store.close()


async def test_ordinary_values_through_save_and_load(tmp_path: Path) -> None:
    """A tool may return them; the model, the journal and another process have the same text."""

    @dataclass
    class Point:
        x: int

    values: list[Any] = [
        b"\xff\xfe", datetime(2024, 1, 2, tzinfo=UTC), Decimal("1.10"), UUID(int=5), {"b", "a"}, Point(1),
    ]  # fmt: skip
    texts = ['"//4="', '"2024-01-02T00:00:00Z"', '"1.10"', f'"{UUID(int=5)}"', '["a","b"]', '{"x":1}']

    @tool
    async def give(n: int) -> Any:
        """Give."""
        return values[n]

    @tool
    async def odd() -> Any:
        """Give what nobody can write down."""
        return type("socket", (), {})()

    store = SQLiteStore(tmp_path / "runs.db")
    agent = Agent("a", does="Works.", tools=[give, odd])
    script: Script = [[*(call("give", n=n) for n in range(len(values))), call("odd")], say("end")]
    result, runtime = await agent.run("go", model=MockModel(script), store=store, run_id="r")
    assert result.text == "end"
    opened = await Runtime.open(agent, "r", model=MockModel(script), store=store)
    shown = opened.transcript(result.handle)
    assert shown == runtime.transcript(result.handle)
    tools = [m for m in shown if isinstance(m, ToolMessage)]
    assert [m.text for m in tools[:-1]] == texts
    assert tools[-1].is_error
    assert "tool 'odd' returned a socket that cannot be recorded" in tools[-1].text
    await store.close()


NUMBERS = pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")], ids=str)


@NUMBERS
async def test_numbers_that_are_no_json_are_refused_where_they_are_made(number: float) -> None:
    @tool
    async def give() -> dict[str, float]:
        """Give."""
        return {"n": number}

    @tool
    async def mark() -> ToolResult:
        """Mark."""
        return ToolResult("x", metadata={"n": number})

    @tool
    async def block(ctx: ToolContext[None]) -> str:
        """Once."""

        async def fn() -> float:
            return number

        return str(await ctx.once("l", fn))

    @tool
    async def ask(ctx: ToolContext[None]) -> str:
        """Ask."""
        await ctx.ask("ok?", data={"n": number})
        return ""

    @tool
    async def wait() -> ToolResult:
        """Wait."""
        return pending(kind="k", prompt="p", data={"n": number})

    @tool
    async def take(n: float) -> str:
        """Take."""
        raise AssertionError("entered")

    agent = Agent("a", does="Works.", tools=[give, mark, block, ask, wait, take])
    names = ["give", "mark", "block", "ask", "wait"]
    model = Saying(said("", *(called(n, n) for n in names), called("take", "t", n=number)), said("end"))
    result, runtime = await agent.run("go", model=model)
    assert result.text == "end"
    tools = [m for m in runtime.transcript(result.handle) if isinstance(m, ToolMessage)]
    assert [m.name for m in tools] == [*names, "take"]
    for message in tools:
        assert message.is_error, message
        assert any(word in message.text for word in ("NaN", "nan", "inf", "finite")), message.text
    for message in tools[:1]:
        assert "give" in message.text


@NUMBERS
def test_a_history_with_such_a_number_is_refused(number: float) -> None:
    history = [said("", called("t", "t", n=number))]
    with pytest.raises(DefinitionError, match="history"):
        Runtime(Agent("a", does="Works."), model=MockModel([say("end")]), history=history)


@NUMBERS
async def test_an_answer_with_such_a_number_is_refused(number: float) -> None:
    @tool
    async def ask(ctx: ToolContext[None]) -> str:
        """Ask."""
        return str((await ctx.ask("ok?")).data)

    agent = Agent("a", does="Works.", tools=[ask])
    result, runtime = await agent.run("go", model=MockModel([call("ask"), say("end")]))
    assert result.pending is not None
    with pytest.raises(InvalidAnswer, match=r"\$\.data"):
        await runtime.resume(Answer(id=result.pending.id, ok=True, data={"n": [number]}))
    assert runtime.pendings() == (result.pending,)
    assert (await runtime.resume(Answer(id=result.pending.id, ok=True, data=1.5))).text == "end"


async def test_json_of_great_depth_and_great_numbers() -> None:
    deep: Any = 0
    for _ in range(100_000):
        deep = [deep]

    @tool
    async def give(what: str) -> Any:
        """Give."""
        return deep if what == "deep" else 10**5000

    agent = Agent("a", does="Works.", tools=[give])
    model = MockModel([[call("give", what="deep"), call("give", what="great")], say("end")])
    result, runtime = await agent.run("go", model=model)
    assert result.text == "end", result.text
    tools = [m for m in runtime.transcript(result.handle) if isinstance(m, ToolMessage)]
    assert tools[0].is_error
    for message in tools:
        json.dumps(message.text)
