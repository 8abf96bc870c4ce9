"""A result over the limit is stored once, shown to the model in part, and given whole to whoever asks for it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.suspend_kit import yes

from overt import (
    AfterTool,
    Agent,
    Allow,
    Answer,
    Ask,
    AssistantMessage,
    BeforeLLM,
    BeforeTool,
    GuardrailEvent,
    Hooks,
    LLMOverride,
    ResumePolicy,
    Runtime,
    Status,
    TaskResult,
    ToolCall,
    ToolContext,
    ToolMessage,
    ToolOverride,
    ToolResult,
    UserMessage,
    tool,
)
from overt.message import Message, ModelRequest
from overt.stores import SQLiteStore, Store
from overt.testing import MockModel, Reply, call, say

SIZE = 400_000
BIG = "é" + "x" * SIZE + "😀"
LIMIT = 1_000
ROOM = 40_000
"""Bytes everything else of these runs may take."""
POLICIES = pytest.mark.parametrize("policy", list(ResumePolicy))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStore]:
    made = SQLiteStore(tmp_path / "runs.db")
    yield made
    await made.close()


@tool
async def ask(ctx: ToolContext) -> str:
    """Ask."""
    answer = await ctx.ask("ok?")
    return "yes" if answer.ok else "no"


@tool(on_replay="reuse")
async def load() -> str:
    """Load."""
    return BIG


@tool(on_replay="reuse")
async def fail() -> str:
    """Fail."""
    raise ValueError(BIG)


@tool(on_replay="reuse")
async def mark() -> ToolResult:
    """Mark."""
    return ToolResult("small", metadata={"big": BIG})


@tool(on_replay="reuse")
async def small() -> str:
    """Small."""
    return "small"


class Case:
    """An agent whose call `what` comes to a large result, and then asks, so that the wake is replayed or goes on."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.requests: list[ModelRequest] = []
        self.child = MockModel([say(BIG)])
        team = [Agent("child", does="writes", model=self.child)]
        rules: dict[str, Any] = {}
        tools: list[Any] = [load, fail, mark, small, ask]
        first = call(what)
        if what == "task":
            first = call("task", agent="child", prompt="p")
        elif what == "agent_tool":
            tools.append(team[0].as_tool(name="agent_tool", description="d"))
            first = call("agent_tool", prompt="p")
            team = []
        elif what in ("before", "before_async", "after"):
            first = call("small")
            rules["hooks"] = HOOKS[what]
        elif what in ("answer", "answer_async"):
            first = call("small")
            rules["guardrails"] = [asks if what == "answer" else asks_async]

        def script(request: ModelRequest) -> Reply:
            self.requests.append(request)
            said = [m.name for m in request.messages if m.role == "tool"]
            return first if not said else say("end") if "ask" in said else call("ask")

        team = team if what == "task" else []
        self.agent = Agent("a", does="works", tools=tools, team=team, model=MockModel(script), **rules)

    async def run(self, store: Store, policy: ResumePolicy) -> tuple[TaskResult[str], Runtime[str]]:
        """Run it to its end, each answer in a runtime of its own."""
        options: dict[str, Any] = {"store": store, "max_result_chars": LIMIT, "guardrails": []}
        result, runtime = await self.agent.run("go", run_id="r", resume_policy=policy, **options)
        while result.pending is not None:
            runtime = await Runtime.open(self.agent, "r", **options)
            (request,) = runtime.pendings()
            by_hand = {"output": BIG} if request.prompt == "by hand?" else None
            result = await runtime.resume(yes(request, by_hand))
        return result, await Runtime.open(self.agent, "r", **options)


def before_tool(event: BeforeTool) -> ToolOverride | None:
    return ToolOverride(result=ToolResult(BIG)) if event.call.name == "small" else None


async def before_tool_async(event: BeforeTool) -> ToolOverride | None:
    return before_tool(event)


def after_tool(event: AfterTool) -> ToolOverride | None:
    return ToolOverride(result=ToolResult(BIG)) if event.call.name == "small" else None


def asks(event: GuardrailEvent) -> Allow | Ask:
    return Ask("by hand?") if event.call.name == "small" else Allow()


async def asks_async(event: GuardrailEvent) -> Allow | Ask:
    return asks(event)


HOOKS = {
    "before": Hooks(before_tool=before_tool),
    "before_async": Hooks(before_tool=before_tool_async),
    "after": Hooks(after_tool=after_tool),
}
CASES = [
    "load", "fail", "mark", "task", "agent_tool", "before", "before_async", "after", "answer", "answer_async",
]  # fmt: skip


async def stored(store: Store) -> int:
    """Bytes of the journal."""
    return sum(len(rec.text.encode()) for rec in await store.read("r"))


@POLICIES
@pytest.mark.parametrize("what", CASES)
async def test_it_is_stored_once_whatever_gave_it(
    store: SQLiteStore, what: str, policy: ResumePolicy
) -> None:
    case = Case(what)
    result, runtime = await case.run(store, policy)
    assert (result.status, result.text) == (Status.DONE, "end")
    assert SIZE < await stored(store) < SIZE + ROOM
    message = next(m for m in runtime.transcript(result.handle) if isinstance(m, ToolMessage))
    whole = {"fail": f"ValueError: {BIG}", "mark": "small"}.get(what, BIG)
    assert runtime.tool_result(result.handle, message.call_id) == whole
    events = [e for e in runtime.events() if e.kind == "tool_finished" and e.call_id == message.call_id]
    assert [e.output for e in events] == [whole], "a reader of the journal gets all of it"
    longest = max(len(m.text) for r in case.requests for m in r.messages if m.role == "tool")
    assert longest <= LIMIT
    if whole != "small":
        assert message.text.startswith(whole[:500])
        assert message.text.endswith(whole[-200:])
        assert (
            f'of {len(whole)} characters left out; tool_result("{message.call_id}") has all' in message.text
        )
    live = [
        m.text for r in case.requests for m in r.messages if m.role == "tool" and m.call_id == message.call_id
    ]
    assert set(live) == {message.text}, "the same live, after a resume, and for readers"


@POLICIES
@pytest.mark.parametrize("in_once", [False, True])
async def test_an_outcome_somebody_tells_is_stored_once(
    store: SQLiteStore, policy: ResumePolicy, in_once: bool
) -> None:
    inside = anyio.Event()

    async def effect() -> str:
        inside.set()
        await anyio.sleep_forever()
        return ""

    @tool(on_replay="rerun" if in_once else "reuse")
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        return await (ctx.once("pay", effect) if in_once else effect())

    agent = Agent("a", does="works", tools=[pay], model=MockModel([call("pay"), say("end")]))
    options: dict[str, Any] = {"store": store, "max_result_chars": LIMIT}
    async with anyio.create_task_group() as group:
        group.start_soon(Runtime(agent, run_id="r", resume_policy=policy, **options).run, "go")
        await inside.wait()
        group.cancel_scope.cancel()
    runtime = await Runtime.open(agent, "r", **options)
    result = await runtime.recover()
    result = await runtime.resume(yes(result, {"outcome": "succeeded", "output": BIG}))
    assert (result.status, result.text) == (Status.DONE, "end")
    copies = 2 if in_once else 1  # the block's value, and what the tool makes of it
    assert copies * SIZE < await stored(store) < copies * SIZE + ROOM
    message = next(m for m in runtime.transcript(result.handle) if isinstance(m, ToolMessage))
    assert len(message.text) <= LIMIT
    assert runtime.tool_result(result.handle, message.call_id) == BIG


async def test_five_megabytes_take_five_megabytes_of_the_file(tmp_path: Path) -> None:
    @tool(on_replay="reuse")
    async def fetch() -> str:
        """Fetch."""
        return "y" * 5_000_000

    path = tmp_path / "runs.db"
    store = SQLiteStore(path)
    agent = Agent(
        "a", does="works", tools=[fetch, ask], model=MockModel([call("fetch"), call("ask"), say("end")])
    )
    result, _ = await agent.run("go", store=store, run_id="r")
    runtime = await Runtime.open(agent, "r", store=store)
    assert result.pending is not None
    result = await runtime.resume(Answer(id=result.pending.id, ok=True))
    assert result.text == "end"
    await store.close()
    assert 5_000_000 < path.stat().st_size < 5_200_000


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 67, 68, 90, 91, 92, 100, 150])
async def test_no_limit_is_too_small(limit: int) -> None:
    requests: list[ModelRequest] = []

    def script(request: ModelRequest) -> Reply:
        requests.append(request)
        return call("load") if len(request.messages) == 1 else say("end")

    agent = Agent("a", does="works", tools=[load], model=MockModel(script))
    result, runtime = await agent.run("go", max_result_chars=limit)
    text = requests[-1].messages[-1].text
    assert 0 < len(text) <= limit
    assert "…" in text
    assert runtime.tool_result(result.handle, "c1") == BIG


LETTERS: list[tuple[str, Callable[[str], bool]]] = [
    ("e\u0301", lambda text: not text.startswith("\u0301")),
    ("क\u093f", lambda text: not text.startswith("\u093f")),
    ("👩\u200d👩\u200d👧", lambda text: not text.startswith("\u200d")),
    ("👍🏽", lambda text: not text.startswith("🏽")),
    ("🇩🇪", lambda text: not text.startswith("🇪")),
    ("\r\n", lambda text: not text.startswith("\n")),
]


@pytest.mark.parametrize(("letter", "whole"), LETTERS, ids=range(len(LETTERS)))
@pytest.mark.parametrize("limit", [20, 21, 22, 23, 24, 25, 200, 201, 202, 203, 204, 205])
async def test_the_cut_parts_no_character(letter: str, whole: Callable[[str], bool], limit: int) -> None:
    @tool
    async def many() -> str:
        """Many."""
        return letter * 1_000

    agent = Agent("a", does="works", tools=[many], model=MockModel([call("many"), say("end")]))
    result, runtime = await agent.run("go", max_result_chars=limit)
    (message,) = [m for m in runtime.transcript(result.handle) if isinstance(m, ToolMessage)]
    assert len(message.text) <= limit
    head, tail = re.split(r"\n\[….*…\]\n|…", message.text)
    assert head == letter * (len(head) // len(letter))
    assert tail == letter * (len(tail) // len(letter))
    assert whole(tail)


async def test_a_character_without_end_is_cut_all_the_same() -> None:
    @tool
    async def marks() -> str:
        """Marks."""
        return "e" + "\u0301" * 100_000

    agent = Agent("a", does="works", tools=[marks], model=MockModel([call("marks"), say("end")]))
    result, runtime = await agent.run("go", max_result_chars=1_000)
    (message,) = [m for m in runtime.transcript(result.handle) if isinstance(m, ToolMessage)]
    assert len(message.text) == 1_000


# ------------------------------------------------------------------ what did not come from a tool of this run


def seeded() -> list[Message]:
    asked = AssistantMessage(tool_calls=(ToolCall(id="old", name="load"),))
    return [UserMessage(text="before"), asked, ToolMessage(text=BIG, call_id="old", name="load")]


@pytest.mark.parametrize("loop", [False, True])
async def test_a_history_is_bounded_for_the_model_and_whole_for_the_host(
    store: SQLiteStore, loop: bool
) -> None:
    requests: list[ModelRequest] = []

    def script(request: ModelRequest) -> Reply:
        requests.append(request)
        return say("end")

    agent = Agent("a", does="works", tools=[load], model=MockModel(script))
    options: dict[str, Any] = {"store": store, "max_result_chars": LIMIT}
    if loop:
        talk = agent.loop(run_id="r", history=seeded(), **options)
        await talk.run("one")
        result = await talk.run("two")
        runtime = talk.runtime
    else:
        result, runtime = await agent.run("go", run_id="r", history=seeded(), **options)
    for reader in (runtime, await Runtime.open(agent, "r", **options)):
        assert reader.transcript(result.handle)[2].text == BIG
        assert reader.tool_result(result.handle, "old") == BIG
    assert SIZE < await stored(store) < SIZE + ROOM
    for request in requests:
        text = request.messages[2].text
        assert len(text) <= LIMIT
        assert f'of {len(BIG)} characters left out; tool_result("old") has all' in text
    assert all(r.messages[2] is requests[0].messages[2] for r in requests), "converted once"


async def test_what_a_hook_puts_into_the_transcript_is_bounded_too(store: SQLiteStore) -> None:
    requests: list[ModelRequest] = []

    def script(request: ModelRequest) -> Reply:
        requests.append(request)
        return say("end")

    def rewrite(event: BeforeLLM) -> LLMOverride | None:
        return LLMOverride(messages=[*seeded(), *event.messages])

    agent = Agent("a", does="works", tools=[load], model=MockModel(script), hooks=Hooks(before_llm=rewrite))
    _, runtime = await agent.run("go", store=store, run_id="r", max_result_chars=LIMIT)
    assert len(requests[0].messages[2].text) <= LIMIT
    assert SIZE < await stored(store) < SIZE + ROOM
    assert runtime.tool_result("root/a.1", "old") == BIG


async def test_arguments_put_in_place_are_told_within_the_limit() -> None:
    @tool
    async def take(text: str) -> str:
        """Take."""
        return f"took {len(text)}"

    def rule(event: GuardrailEvent) -> Ask:
        return Ask("sure?")

    agent = Agent(
        "a",
        does="works",
        tools=[take],
        guardrails=[rule],
        model=MockModel([call("take", text="x"), say("end")]),
    )
    result, runtime = await agent.run("go", max_result_chars=LIMIT)
    result = await runtime.resume(yes(result, {"arguments": {"text": "y" * 5_000}}))
    (message,) = [m for m in runtime.transcript(result.handle) if isinstance(m, ToolMessage)]
    assert len(message.text) <= LIMIT
    assert message.text.endswith("took 5000")
    assert runtime.tool_result(result.handle, message.call_id) == "took 5000", (
        "the result, not what was put before it"
    )


async def test_a_stream_gives_all_of_it(store: SQLiteStore) -> None:
    agent = Agent("a", does="works", tools=[load], model=MockModel([call("load"), say("end")]))
    async with agent.stream("go", store=store, run_id="r", max_result_chars=LIMIT) as stream:
        seen = [event async for event in stream]
    outputs = [event.output for event in seen if event.kind == "tool_finished"]
    assert outputs == [BIG]
    assert json.loads(json.dumps(outputs)) == [BIG]
