"""Hooks: what they see, what they may change, and that what they change is on the record."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from overt import (
    AfterLLM,
    AfterTool,
    Agent,
    AssistantMessage,
    BeforeLLM,
    BeforeTool,
    Budget,
    Hooks,
    LLMOverride,
    Message,
    ResumePolicy,
    Runtime,
    TaskResult,
    ToolMessage,
    ToolOverride,
    ToolResult,
    UserMessage,
    tool,
)
from overt.compaction import compactor, estimate_tokens
from overt.core import facts as f
from overt.driver.rewriting import broken
from overt.message import ModelRequest, ToolCall
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say
from tests.suspend_kit import approve, tools_said, yes

W = "root/w.1"
both = pytest.mark.parametrize("policy", list(ResumePolicy))
either = pytest.mark.parametrize("sync", [True, False])


class World:
    """A worker with a tool, and what ran in it."""

    def __init__(self, *script: Any, function: Any = None) -> None:
        self.ran: list[Any] = []
        self.model = MockModel(function if function is not None else list(script))

        @tool
        def t(n: int, unit: str = "m") -> str:
            self.ran.append(n)
            if n < 0:
                raise ValueError("below zero")
            return f"t{n}{unit}"

        @tool(on_replay="reuse")
        def pay(n: int) -> ToolResult:
            self.ran.append(f"pay {n}")
            return ToolResult(f"paid {n}", metadata={"receipt": n})

        self.t, self.pay = t, pay

    def agent(self, *tools: Any, **options: Any) -> Agent[None, str]:
        return Agent("w", does="works", tools=[self.t, self.pay, *tools], model=self.model, **options)

    async def run(self, *tools: Any, **options: Any) -> tuple[TaskResult[str], Runtime[str]]:
        return await self.agent(*tools).run("go", **options)


def made(fn: Callable[[Any], Any], sync: bool) -> Any:
    """The same hook, plain or async."""
    if sync:
        return fn

    async def later(event: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return fn(event)

    return later


def texts(messages: Sequence[Message]) -> list[str]:
    return [m.text for m in messages]


def facts(rt: Runtime[Any], kind: type) -> list[Any]:
    return [fact for _, _, record in rt._driver.log for fact in record if isinstance(fact, kind)]


def tool_messages(rt: Runtime[Any], handle: str = W) -> list[ToolMessage]:
    return [m for m in rt.transcript(handle) if isinstance(m, ToolMessage)]


def failed(result: TaskResult[Any], kind: str, *says: str) -> None:
    """The wake ended at a hook."""
    assert result.error is not None, result
    assert (result.status, result.error.source, result.error.type) == ("error", "hook", kind)
    for part in says:
        assert part in result.error.message


# ------------------------------------------------------------------ whose, and what they are told

NAMES = ["before_llm", "after_llm", "before_tool", "after_tool"]


@pytest.mark.parametrize("own", NAMES)
async def test_the_agents_replace_the_runs_field_by_field(own: str) -> None:
    heard: list[tuple[str, str, str]] = []

    def hook(whose: str, name: str) -> Any:
        return lambda event: heard.append((whose, name, event.handle))

    house = Hooks(**{name: hook("run", name) for name in NAMES})
    model: MockModel = MockModel(
        {
            "w": [[call("t", n=1), call("task", agent="c", prompt="p")], "done"],
            "c": [call("t", n=2), "helped"],
        }
    )
    t = World().t
    agent = Agent(
        "w", does="x", tools=[t], hooks=Hooks(**{own: hook("agent", own)}),
        team=[Agent("c", does="x", tools=[t])],
    )  # fmt: skip
    await agent.run("go", hooks=house, model=model)
    # Delegating is a call that before_tool sees; only what ran a tool is seen after.
    times = {"before_llm": 2, "after_llm": 2, "before_tool": 2, "after_tool": 1}
    for name in NAMES:
        whose = "agent" if name == own else "run"
        assert [h for h in heard if h[1:] == (name, W)] == [(whose, name, W)] * times[name]
        child = f"{W}/c.1"
        count = 1 if name.endswith("tool") else 2
        assert [h for h in heard if h[1:] == (name, child)] == [("run", name, child)] * count


def test_a_hook_that_is_an_empty_list_is_a_hook() -> None:
    class Heard(list[Any]):
        def __call__(self, event: Any) -> None:
            self.append(event)

    own = Heard()
    assert Hooks(before_llm=own).over(Hooks(before_llm=lambda event: None)).before_llm is own


@either
async def test_what_they_are_told(sync: bool) -> None:
    told: list[Any] = []
    note = made(told.append, sync)
    world = World([call("t", n=1), call("t", n=-1)], "done")
    agent = world.agent(soul="be brief", team=[Agent("c", does="helps")])
    await agent.run("go", hooks=Hooks(before_llm=note, after_llm=note, before_tool=note, after_tool=note))
    kinds = [type(event) for event in told]
    assert kinds[:4] == [BeforeLLM, AfterLLM, BeforeTool, BeforeTool]
    assert kinds[4:] == [AfterTool, AfterTool, BeforeLLM, AfterLLM]
    assert all(event.handle == W for event in told)
    assert [event.turn for event in told] == [1, 1, 1, 1, 1, 1, 2, 2]
    before, after = told[0], told[1]
    # The instructions are not part of the transcript: they are put before it anew each turn.
    assert (texts(before.messages), before.model) == (["go"], "mock")
    assert [offered.name for offered in before.tools] == ["t", "pay", "task"]
    assert texts(told[6].messages) == ["go", "", "t1m", "ValueError: below zero"]
    assert [c.arguments for c in after.response.message.tool_calls] == [{"n": 1}, {"n": -1}]
    assert after.response.usage.total_tokens == 100
    assert told[2].call == ToolCall(id="c1", name="t", arguments={"n": 1, "unit": "m"})
    ends = {event.call.id: (event.result.output, event.result.is_error) for event in told[4:6]}
    assert ends == {"c1": ("t1m", False), "c2": ("ValueError: below zero", True)}


async def test_what_a_hook_does_to_what_it_is_shown_alters_nothing() -> None:
    def spoil(event: Any) -> None:
        made_of = event.response.message.tool_calls if isinstance(event, AfterLLM) else [event.call]
        for one in made_of:
            one.arguments["n"] = 99

    world = World(call("t", n=1), "done")
    _, rt = await world.run(hooks=Hooks(after_llm=spoil, before_tool=spoil, after_tool=spoil))
    assert world.ran == [1]
    assert rt.transcript(W)[1].tool_calls[0].arguments == {"n": 1}  # type: ignore[union-attr]  # the reply


# ------------------------------------------------------------------ before_llm: messages


def shorten(event: BeforeLLM) -> LLMOverride | None:
    """Put a note in place of all but the last two messages."""
    if len(event.messages) <= 3:
        return None
    note = UserMessage(text=f"note of {len(event.messages) - 2}")
    return LLMOverride(messages=[note, *event.messages[-2:]])


@either
async def test_a_replaced_transcript_is_what_every_later_turn_goes_on_from(sync: bool) -> None:
    def script(request: ModelRequest) -> Any:
        n = len(model.requests)
        return call("t", n=n) if n < 4 else say("done")

    world = World(function=script)
    model = world.model
    store = MemoryStore()
    agent = world.agent(soul="be brief")
    hooks = Hooks(before_llm=made(shorten, sync))
    result, rt = await agent.run("go", hooks=hooks, store=store, run_id="r")
    assert [texts(request.messages) for request in model.requests] == [
        ["be brief", "go"],
        ["be brief", "go", "", "t1m"],
        ["be brief", "note of 3", "", "t2m"],
        ["be brief", "note of 3", "", "t3m"],
    ]
    assert (result.status, texts(rt.transcript(W))) == ("done", ["note of 3", "", "t3m", "done"])
    assert len(facts(rt, f.Overridden)) == 2
    assert sum("Overridden" in line for line in rt.trace()) == 2
    again = await Runtime.open(agent, "r", store=store)
    assert again.transcript(W) == rt.transcript(W)
    assert again.events() == rt.events()
    assert result.turns == 4


async def test_what_is_kept_is_stored_as_a_reference() -> None:
    long = "x" * 50_000

    @tool
    def read(n: int) -> str:
        return f"{n} {long}"

    def drop_second(event: BeforeLLM) -> LLMOverride | None:
        if len(event.messages) < 5:
            return None
        return LLMOverride(messages=[event.messages[0], *event.messages[3:]])

    model: MockModel = MockModel(
        lambda request: call("read", n=len(model.requests)) if len(model.requests) < 10 else "end"
    )
    agent = Agent("w", does="x", tools=[read], model=model, budget=Budget(max_turns=20))
    result, rt = await agent.run("go", hooks=Hooks(before_llm=drop_second))
    assert result.text == "end"
    changed = facts(rt, f.Overridden)
    assert len(changed) == 8
    assert all(len(fact.messages) < 30 for fact in changed), "it is written as what is new"
    assert all(isinstance(part, int) for fact in changed for part in json.loads(fact.messages))


async def test_every_kind_of_message_survives_being_put_in() -> None:
    mine: list[Message] = [
        UserMessage(text="before \ud800 ünï"),
        AssistantMessage(
            text="I look", reasoning="hm", opaque={"sig": [1, {"a": None}]},
            tool_calls=(ToolCall(id="x1", name="t", arguments={"n": 1, "deep": {"a": [1.5]}}),),
        ),
        ToolMessage(text="found", call_id="x1", name="t", is_error=True, metadata={"k": [1]}),
        UserMessage(text=""),
    ]  # fmt: skip
    world = World("done")
    store = MemoryStore()
    hooks = Hooks(before_llm=lambda event: LLMOverride(messages=[*mine, *event.messages]))
    result, rt = await world.run(hooks=hooks, store=store, run_id="r")
    assert result.status == "done"
    kept = rt.transcript(W)
    assert kept[1:4] == tuple(mine[1:])
    assert kept[0].text == "before \ufffd ünï"
    assert world.model.requests[0].messages == kept[:-1]
    assert (await Runtime.open(world.agent(), "r", store=store)).transcript(W) == kept


CALLED = AssistantMessage(text="", tool_calls=(ToolCall(id="x", name="t", arguments={}),))
GIVEN = ToolMessage(text="r", call_id="x", name="t")


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([CALLED], "call 'x' (t) without its result"),
        ([GIVEN], "the result of call 'x' (t) without its call"),
        ([GIVEN, CALLED], "the result of call 'x' (t) without its call"),
        ([CALLED, UserMessage(text="so?"), GIVEN], "call 'x' (t) without its result"),
        ([CALLED, GIVEN, GIVEN], "the result of call 'x' (t) without its call"),
        ([CALLED, CALLED, GIVEN], "call 'x' (t) without its result"),
        ([], "no message at all"),
    ],
)
async def test_an_orphan_is_reported_before_anything_is_sent(messages: Any, why: str) -> None:
    broken_now = [True]

    def cut(event: BeforeLLM) -> LLMOverride | None:
        if event.turn != 2 or not broken_now[0]:
            return None
        return LLMOverride(messages=[*event.messages, *messages] if messages else [])

    world = World(call("t", n=1), "done")
    result, rt = await world.run(hooks=Hooks(before_llm=cut))
    failed(result, "BrokenTranscript", why, "nothing was sent")
    assert len(world.model.requests) == 1
    assert (result.usage.model_calls, result.usage.unreported_calls, result.total_tokens) == (1, 0, 100)
    assert facts(rt, f.Overridden) == []
    broken_now[0] = False
    result = await rt.recover()
    assert (result.status, result.usage.model_calls, world.ran) == ("done", 2, [1])


def test_a_batch_may_have_its_results_in_any_order() -> None:
    two = AssistantMessage(
        text="", tool_calls=tuple(ToolCall(id=i, name="t", arguments={}) for i in ("x", "y"))
    )
    other = ToolMessage(text="r", call_id="y", name="t")
    assert broken([two, other, GIVEN, CALLED, GIVEN]) is None
    assert broken([two, other]) == "call 'x' (t) without its result"


@pytest.mark.parametrize(
    ("given", "kind", "why"),
    [
        (["a list"], "TypeError", "returned list, not LLMOverride"),
        (ToolOverride(), "TypeError", "returned ToolOverride, not LLMOverride"),
        (LLMOverride(messages=[{"role": "user", "text": "x"}]), "TypeError", "dict among the messages"),  # type: ignore[list-item]  # wrong on purpose
        (LLMOverride(messages="text"), "TypeError", "str among the messages"),  # type: ignore[arg-type]  # as above
        (LLMOverride(messages=5), "TypeError", "int"),  # type: ignore[arg-type]  # as above
        (LLMOverride(tools=5), "TypeError", "int"),  # type: ignore[arg-type]  # as above
        (LLMOverride(tools=["ghost"]), "UsageError", "'ghost', which is not offered: t, pay"),  # type: ignore[list-item]  # as above
        (LLMOverride(tools=[approve]), "UsageError", "'approve', which is not offered"),
        (
            LLMOverride(messages=[UserMessage.model_construct(text="x", role="user", parts=5)]),  # type: ignore[arg-type]  # as above
            "TypeError", "cannot be recorded",
        ),
    ],
)  # fmt: skip
@either
async def test_what_it_may_not_give_fails_the_wake_and_sends_nothing(
    given: Any, kind: str, why: str, sync: bool
) -> None:
    says = [given, None]
    world = World("done")
    hooks = Hooks(before_llm=made(lambda event: says.pop(0), sync))
    result, rt = await world.run(hooks=hooks)
    failed(result, kind, why)
    assert (world.model.requests, result.usage.model_calls) == ([], 0)
    assert (await rt.recover()).text == "done"


@pytest.mark.parametrize("name", NAMES)
@either
async def test_one_that_raises_fails_the_wake_and_recover_goes_on(name: str, sync: bool) -> None:
    left = [RuntimeError("with sk-1234567890abcdefghijklmnop in it")]

    def hook(event: Any) -> None:
        if left:
            raise left.pop()

    world = World([call("pay", n=1), call("t", n=2)], "done")
    result, rt = await world.run(hooks=Hooks(**{name: made(hook, sync)}))
    failed(result, "RuntimeError")
    assert result.error is not None
    assert "sk-12345" not in result.error.message
    assert result.total_tokens == (0 if name == "before_llm" else 100)
    result = await rt.recover()
    assert (result.status, result.total_tokens, result.usage.unreported_calls) == ("done", 200, 0)
    assert world.ran.count("pay 1") == 1
    assert len(world.model.requests) == 2
    assert tools_said(rt.transcript(W)) == ["paid 1", "t2m"]


# ------------------------------------------------------------------ before_llm: a wake that does not end


def rewriting(*more: Any) -> World:
    return World(*[call("t", n=1), call("approve"), *more, "done"])


def note_once(event: BeforeLLM) -> LLMOverride | None:
    """Put a system-like note in front, of the second turn on."""
    if event.turn != 2:
        return None
    return LLMOverride(messages=[UserMessage(text="note"), *event.messages[1:]])


@both
async def test_a_wake_that_parks_still_has_the_full_checkpoint(policy: ResumePolicy) -> None:
    world = rewriting()
    history = [UserMessage(text="earlier"), AssistantMessage(text="answer")]
    hooks = Hooks(before_llm=note_once)
    result, rt = await world.run(approve, hooks=hooks, history=history, resume_policy=policy)
    assert texts(rt.transcript(W)) == ["earlier", "answer"]
    now = ["note", "answer", "go", "", "t1m", ""]
    assert texts(rt.transcript(W, uncommitted=True)) == now
    result = await rt.resume(yes(result))
    assert result.text == "done"
    asked = [texts(request.messages) for request in world.model.requests]
    again = [["earlier", "answer", "go"], ["note", "answer", "go", "", "t1m"]]
    last = ["note", "answer", "go", "", "t1m", "", "it: yes"]
    assert asked == [*again, *(again if policy is ResumePolicy.REWIND else []), last]
    assert texts(rt.transcript(W)) == [*last, "done"]
    assert world.ran == ([1, 1] if policy is ResumePolicy.REWIND else [1])


@pytest.mark.parametrize("end", ["interrupt", "close", "error", "next prompt"])
async def test_an_end_without_a_result_restores_the_full_one(end: str) -> None:
    world = rewriting(RuntimeError("down")) if end == "error" else rewriting()
    loop = world.agent(approve).loop(
        hooks=Hooks(before_llm=note_once), history=[UserMessage(text="e"), AssistantMessage(text="a")]
    )
    result = await loop.run("go")
    if end == "error":
        result = await loop.resume(yes(result), policy=ResumePolicy.CONTINUE)
        assert result.status == "error"
    elif end == "close":
        await loop.close()
    else:
        await loop.runtime.interrupt()
    assert texts(loop.transcript()) == ["e", "a"]
    assert texts(loop.runtime.transcript(W)) == ["e", "a"]
    if end == "next prompt":
        result = await loop.run("again")
        assert texts(world.model.requests[2].messages) == ["e", "a", "again"]


# ------------------------------------------------------------------ before_llm: tools


async def test_tools_are_narrowed_for_one_call() -> None:
    def safe(event: BeforeLLM) -> LLMOverride | None:
        if event.turn != 1:
            return None
        return LLMOverride(tools=[one for one in event.tools if one.name != "pay"])

    world = World([call("pay", n=1), call("t", n=1)], call("pay", n=2), "done")
    helper = Agent("c", does="helps")
    agent = world.agent(team=[helper])
    result, rt = await agent.run("go", hooks=Hooks(before_llm=safe))
    offered = [[spec.name for spec in request.tools] for request in world.model.requests]
    assert offered == [["t", "task"], ["t", "pay", "task"], ["t", "pay", "task"]]
    assert (result.status, world.ran) == ("done", [1, "pay 2"])
    unknown, ran, paid = tool_messages(rt)
    assert (unknown.is_error, unknown.text) == (True, "unknown tool: 'pay'. The tools: t, task.")
    assert [ran.text, paid.text] == ["t1m", "paid 2"]
    assert rt.transcript(W)[0].text == "go"


@pytest.mark.parametrize("door", ["task", "as_tool"])
async def test_all_tools_may_be_withheld_those_that_delegate_too(door: str) -> None:
    def none(event: BeforeLLM) -> LLMOverride:
        return LLMOverride(tools=[])

    helper = Agent("c", does="helps", model=MockModel(["helped"]))
    asks = call("task", agent="c", prompt="p") if door == "task" else call("c", prompt="p")
    world = World([asks, call("t", n=1)], "done")
    agent = world.agent(
        *([] if door == "task" else [helper.as_tool()]), team=[helper] if door == "task" else []
    )
    result, rt = await agent.run("go", hooks=Hooks(before_llm=none))
    assert [request.tools for request in world.model.requests] == [(), ()]
    assert (result.status, world.ran, len(rt.list())) == ("done", [], 1)
    assert all("unknown tool" in m.text for m in tool_messages(rt))


async def test_the_final_tool_stays_offered() -> None:
    model = MockModel([call("final_result", value=3)])
    agent = Agent("w", does="x", tools=[World().t], model=model, output_type=int)
    hooks = Hooks(before_llm=lambda event: LLMOverride(tools=[]))
    result, _ = await agent.run("go", hooks=hooks)
    assert (result.output, [spec.name for spec in model.requests[0].tools]) == (3, ["final_result"])


async def test_a_hook_is_asked_again_by_whoever_goes_on_after_a_cancellation() -> None:
    begun = anyio.Event()

    async def slow(event: BeforeLLM) -> LLMOverride | None:
        if not begun.is_set():
            begun.set()
            await anyio.sleep_forever()
        return None

    world = World("done")
    rt = Runtime(world.agent(), hooks=Hooks(before_llm=slow))
    async with anyio.create_task_group() as group:
        group.start_soon(rt.run, "go")
        await begun.wait()
        group.cancel_scope.cancel()
    assert rt.result().status == "interrupted"
    assert (await rt.recover()).status == "done"
    assert len(world.model.requests) == 1


# ------------------------------------------------------------------ a long run


@both
async def test_a_compacted_run_of_many_turns(policy: ResumePolicy) -> None:
    """Forty turns in a small window: each request is balanced and short, and so are the journal's records of it."""
    turns = 40

    @tool
    def read(page: int) -> str:
        return f"page {page}: " + "lorem ipsum " * 100

    def script(request: ModelRequest) -> Any:
        assert broken(request.messages) is None
        if request.messages[-1].text == "it: yes":
            return say("done")
        pages = [int(m.text.split()[1].rstrip(":")) for m in request.messages if m.role == "tool"]
        n = max(pages, default=seen[-1] if seen else 0) + 1
        seen.append(n)
        return call("approve") if n >= turns else [call("read", page=n), call("read", page=n)]

    seen: list[int] = []
    asked: list[int] = []

    def summarize(messages: Sequence[Message]) -> str:
        asked.append(len(messages))
        return "read so far"

    model = MockModel(script)
    hooks = Hooks(before_llm=compactor(max_tokens=4_000, keep_tail=6, summarize=summarize))
    agent = Agent("w", does="x", tools=[read, approve], model=model, budget=Budget(max_turns=200))
    store = MemoryStore()
    result, rt = await agent.run("go", hooks=hooks, store=store, run_id="r", resume_policy=policy)
    assert (result.status, rt.transcript(W)) == ("pending", ())
    assert 4 <= len(asked) <= 20
    sizes = [estimate_tokens(request.messages) for request in model.requests]
    assert max(sizes) < 5_000
    assert len(model.requests) == turns
    assert all(len(fact.messages) < 500 for fact in facts(rt, f.Overridden))
    again = await Runtime.open(agent, "r", store=store, hooks=hooks)
    assert again.transcript(W, uncommitted=True) == rt.transcript(W, uncommitted=True)
    seen.clear()
    result = await again.resume(yes(result))
    if policy is ResumePolicy.REWIND:
        # From the full checkpoint: the first page is read again.
        assert (texts(model.requests[turns].messages), len(model.requests)) == (["go"], 2 * turns + 1)
    else:
        assert len(model.requests) == turns + 1
    assert result.text == "done"
    assert estimate_tokens(again.transcript(W)) < 5_000


# ------------------------------------------------------------------ after_llm


async def test_after_llm_may_say_nothing() -> None:
    world = World(call("pay", n=1), "done")
    hooks = Hooks(after_llm=lambda event: LLMOverride())  # type: ignore[arg-type,return-value]  # wrong on purpose
    result, _ = await world.run(hooks=hooks)
    failed(result, "TypeError", "returned LLMOverride, not nothing")
    assert (result.total_tokens, result.turns, world.ran) == (100, 1, [])


@pytest.mark.parametrize("reply", ["text", "calls at the cap", "typed", "not typed"])
async def test_a_reply_that_was_bought_is_kept_whatever_the_hook_does(reply: str) -> None:
    left = [ValueError("no")]

    def hook(event: AfterLLM) -> None:
        if left:
            raise left.pop()

    world = World("answer") if reply == "text" else World(call("t", n=1), "answer")
    options: dict[str, Any] = {"budget": Budget(max_turns=1)} if reply == "calls at the cap" else {}
    agent: Agent[None, Any] = world.agent(**options)
    if reply.endswith("typed"):
        model: MockModel = MockModel(lambda request: replies[len(model.requests) - 1])
        replies: list[Any] = [call("final_result", value=1)]
        if reply == "not typed":
            replies.insert(0, say("it is one"))
        agent = Agent("w", does="x", model=model, output_type=int)
    result, rt = await agent.run("go", hooks=Hooks(after_llm=hook))
    failed(result, "ValueError", "no")
    assert (result.total_tokens, result.turns) == (100, 1)
    result = await rt.recover()
    match reply:
        case "text":
            assert (result.text, result.turns) == ("answer", 1)
        case "typed":
            assert (result.output, result.turns) == (1, 1)
        case "not typed":
            assert (result.output, result.turns) == (1, 2)
            assert "Give the final answer by calling final_result." in texts(rt.transcript(W))
        case _:
            assert (result.status, result.limit, world.ran) == ("incomplete", "maxTurns", [])
