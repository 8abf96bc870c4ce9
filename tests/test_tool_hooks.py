"""Hooks around tools: what they may change, when they are asked, and that what they change is marked."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import anyio
import pytest

from overt import (
    AfterTool,
    Agent,
    Allow,
    Answer,
    BeforeTool,
    Deny,
    GuardrailEvent,
    Hooks,
    ResumePolicy,
    Ruling,
    Runtime,
    ToolContext,
    ToolOverride,
    ToolResult,
    pending,
    require_approval,
    tool,
)
from overt.errors import StoreError
from overt.stores import MemoryStore
from overt.testing import MockModel, VirtualClock, call
from overt.testing.crashing import Crashed, CrashingStore
from tests.suspend_kit import approve, first, no, tools_said, yes
from tests.test_budget_wall import driven
from tests.test_hooks import W, World, both, either, failed, made, tool_messages


def to(**arguments: Any) -> ToolOverride:
    return ToolOverride(arguments=arguments)


# ------------------------------------------------------------------ before_tool


@either
async def test_arguments_it_puts_in_place_are_validated_guarded_and_run(sync: bool) -> None:
    guarded: list[Any] = []

    def guard(event: GuardrailEvent) -> Ruling:
        guarded.append(event.call.arguments)
        return Deny("too much") if event.call.arguments["n"] == 9 else Allow()

    def hook(event: BeforeTool) -> ToolOverride | None:
        return {1: to(n="5"), 2: to(n=9), 3: to(n=3, unit="m"), 4: None, 5: ToolOverride()}[
            event.call.arguments["n"]  # type: ignore[index]  # a number
        ]

    world = World([call("t", n=n) for n in (1, 2, 3, 4, 5)], "done")
    hooks = Hooks(before_tool=made(hook, sync))
    result, rt = await world.run(hooks=hooks, guardrails=[made(guard, sync)])
    assert (result.status, sorted(world.ran)) == ("done", [3, 4, 5, 5])
    numbers = [5, 9, 3, 4, 5]
    assert sorted(one["n"] for one in guarded) == sorted(numbers)
    assert all(one["unit"] == "m" for one in guarded)
    messages = tool_messages(rt)
    assert [m.text for m in messages] == ["t5m", "denied: too much", "t3m", "t4m", "t5m"]
    # Only what differs from what the model asked for is marked.
    changed = [m.metadata.get("arguments") for m in messages]
    assert changed == [{"n": 5, "unit": "m"}, {"n": 9, "unit": "m"}, None, None, None]
    assert result.usage.tool_calls == 4


@both
@either
async def test_a_person_is_asked_about_what_will_run(policy: ResumePolicy, sync: bool) -> None:
    asked: list[int] = []

    def hook(event: BeforeTool) -> ToolOverride | None:
        asked.append(1)
        return to(n=7)

    world = World(call("t", n=1), "done")
    options: dict[str, Any] = {
        "hooks": Hooks(before_tool=made(hook, sync)),
        "guardrails": [require_approval("t")],
        "resume_policy": policy,
    }
    result, rt = await world.run(**options)
    shown = first(result).data["call"]
    assert shown == {"tool": "t", "arguments": {"n": 7, "unit": "m"}}
    result = await rt.resume(yes(result))
    assert (result.status, world.ran) == ("done", [7])
    (message,) = tool_messages(rt)
    assert message.metadata["arguments"] == {"n": 7, "unit": "m"}
    assert len(asked) == (2 if policy is ResumePolicy.REWIND else 1)


@either
@pytest.mark.parametrize("is_error", [True, False])
async def test_a_result_it_gives_keeps_the_tool_from_being_entered(sync: bool, is_error: bool) -> None:
    ruled: list[str] = []

    def guard(event: GuardrailEvent) -> Ruling:
        ruled.append(event.call.name)
        return Allow()

    given = ToolResult("cached", is_error=is_error, metadata={"age": 3, "overridden": "no"})
    world = World([call("t", n=1), call("pay", n=2)], "done")
    hooks = Hooks(
        before_tool=made(lambda event: ToolOverride(result=given) if event.call.name == "t" else None, sync)
    )
    result, rt = await world.run(hooks=hooks, guardrails=[guard])
    assert (result.status, world.ran, ruled) == ("done", ["pay 2"], ["pay"])
    cached, paid = tool_messages(rt)
    assert (cached.text, cached.is_error) == ("cached", is_error)
    assert cached.metadata == {"age": 3, "overridden": "before_tool"}
    assert paid.metadata == {"receipt": 2}
    assert result.usage.tool_calls == 1


@pytest.mark.parametrize(
    ("given", "kind", "why"),
    [
        (to(), "ArgumentsInvalid", "n: missing"),
        (to(n="many"), "ArgumentsInvalid", "n:"),
        (to(n=1, size=2), "ArgumentsInvalid", "size"),
        (to(n=float("nan")), "ArgumentsInvalid", "n"),
        (to(n=object()), "ArgumentsInvalid", "n"),
        (ToolOverride(arguments=[1]), "ArgumentsInvalid", "before_tool changed t"),  # type: ignore[arg-type]  # wrong on purpose
        (ToolOverride(result="text"), "TypeError", "before_tool gave a result of type str"),  # type: ignore[arg-type]  # as above
        (ToolOverride(result=pending(kind="approval", prompt="?")), "UsageError", "only a tool can"),
        ("text", "TypeError", "returned str, not ToolOverride"),
        (ToolResult("x"), "TypeError", "returned ToolResult, not ToolOverride"),
    ],
)
@either
@pytest.mark.parametrize("name", ["before_tool", "after_tool"])
async def test_what_it_may_not_give_fails_the_wake(
    given: Any, kind: str, why: str, sync: bool, name: str
) -> None:
    if name == "after_tool" and kind == "ArgumentsInvalid":
        return  # it has no say in what has run
    says = [given]
    world = World([call("t", n=1), call("t", n=2)], "done")
    hooks = Hooks(**{name: made(lambda event: says.pop() if says else None, sync)})
    result, rt = await world.run(hooks=hooks)
    failed(result, kind, why.replace("before_tool", name))
    assert world.ran == ([] if name == "before_tool" else world.ran)
    result = await rt.recover()
    assert (result.status, sorted(world.ran), result.total_tokens) == ("done", [1, 2], 200)
    assert len(world.model.requests) == 2


@both
@either
async def test_it_sees_a_call_once_an_attempt(policy: ResumePolicy, sync: bool) -> None:
    seen: list[tuple[str, str]] = []

    @tool
    async def ask(ctx: ToolContext, n: int) -> str:
        for question in ("one", "two"):
            await ctx.ask(question)
        return f"asked {n}"

    world = World([call("ask", n=1), call("t", n=2)], "done")
    hooks = Hooks(
        before_tool=made(lambda event: seen.append(("before", event.call.name)), sync),
        after_tool=made(lambda event: seen.append(("after", event.call.name)), sync),
    )
    result, rt = await world.run(ask, hooks=hooks, resume_policy=policy)
    while result.status == "pending":
        result = await rt.resume(yes(result))
    assert result.status == "done"
    attempts = 3 if policy is ResumePolicy.REWIND else 1
    for name in ("ask", "t"):
        assert seen.count(("before", name)) == attempts
    # A tool that asks has not ended: after_tool comes once, with the result.
    assert seen.count(("after", "ask")) == 1
    assert seen.count(("after", "t")) == attempts


@pytest.mark.parametrize("door", ["task", "as_tool"])
@pytest.mark.parametrize("how", ["see", "change", "give"])
async def test_it_sees_delegations_and_after_tool_does_not(door: str, how: str) -> None:
    seen: list[Any] = []

    def hook(event: BeforeTool) -> ToolOverride | None:
        seen.append((event.call.name, dict(event.call.arguments)))
        if how == "change":
            return ToolOverride(arguments={**event.call.arguments, "prompt": "changed"})
        return ToolOverride(result=ToolResult("given")) if how == "give" else None

    def after(event: AfterTool) -> None:
        seen.append("after")

    helper = Agent("c", does="helps", model=MockModel(["helped"]))
    arguments: dict[str, Any] = {"prompt": "p"} | ({"agent": "c"} if door == "task" else {})
    name = "task" if door == "task" else "c"
    lead = Agent(
        "w", does="leads", model=MockModel([call(name, **arguments), "done"]),
        tools=[] if door == "task" else [helper.as_tool()], team=[helper] if door == "task" else [],
    )  # fmt: skip
    result, rt = await lead.run("go", hooks=Hooks(before_tool=hook, after_tool=after))
    assert result.status == "done"
    assert seen == [(name, arguments)]
    assert tools_said(rt.transcript(W)) == ["given" if how == "give" else "helped"]
    if how != "give":
        assert rt.transcript(f"{W}/c.1")[0].text == ("changed" if how == "change" else "p")
    assert len(rt.list()) == (1 if how == "give" else 2)


async def test_it_sees_neither_what_is_no_call_nor_the_typed_answer() -> None:
    seen: list[str] = []
    hooks = Hooks(
        before_tool=lambda event: seen.append(event.call.name),
        after_tool=lambda event: seen.append(event.call.name),
    )
    world = World()
    script: Any = [[call("nope"), call("t", n="x")], call("final_result", value=1)]
    agent = Agent("w", does="x", tools=[world.t], model=MockModel(script), output_type=int)
    result, _ = await agent.run("go", hooks=hooks)
    assert (result.output, seen) == (1, [])


def counting(start: int) -> Callable[[BeforeTool], ToolOverride]:
    numbers = count(start)
    return lambda event: to(n=next(numbers))


@either
async def test_after_a_crash_it_is_asked_again_and_the_last_word_counts(sync: bool) -> None:
    """At every append the process may die; what runs has the arguments of the attempt that ran it."""
    at = 0
    while True:
        at += 1
        world = World(call("t", n=1), "done")
        hooks = Hooks(before_tool=made(counting(10), sync))
        store = CrashingStore(MemoryStore(), crash_at=at)
        rt = Runtime(world.agent(), store=store, run_id="r", hooks=hooks)
        try:
            await rt.run("go")
        except (Crashed, StoreError, BaseExceptionGroup):
            assert store.crashed
        if not store.crashed:
            break
        if at == 1:
            continue
        rt = await Runtime.open(world.agent(), "r", store=store.survivor, hooks=hooks)
        result = await (rt.recover() if rt.list() else rt.run("go"))
        assert result.status == "done"
        (message,) = tool_messages(rt)
        assert message.metadata["arguments"] == {"n": world.ran[-1], "unit": "m"}
        assert message.text == f"t{world.ran[-1]}m"
        assert len(world.ran) <= 2
    assert at > 3


# ------------------------------------------------------------------ after_tool


@either
async def test_after_tool_replaces_results_and_is_marked(sync: bool) -> None:
    def hook(event: AfterTool) -> ToolOverride | None:
        match event.result.output:
            case "t1m":
                return ToolOverride(result=ToolResult("shorter", metadata={"cut": True}))
            case "ValueError: below zero":
                assert event.result.is_error
                return ToolOverride(result=ToolResult("took the other way"))
            case "paid 3":
                assert event.result.metadata == {"receipt": 3}
                return ToolOverride(result=ToolResult("no", is_error=True))
            case _:
                return ToolOverride(arguments={"n": 8})

    world = World([call("t", n=1), call("t", n=-1), call("pay", n=3), call("t", n=4)], "done")
    _, rt = await world.run(hooks=Hooks(after_tool=made(hook, sync)))
    assert [(m.text, m.is_error, m.metadata) for m in tool_messages(rt)] == [
        ("shorter", False, {"cut": True, "overridden": "after_tool"}),
        ("took the other way", False, {"overridden": "after_tool"}),
        ("no", True, {"overridden": "after_tool"}),
        ("t4m", False, {}),
    ]
    assert world.model.requests[1].messages[2].text == "shorter"
    assert rt.tool_result(W, "c1") == "shorter"


@both
@either
async def test_one_that_raises_loses_nothing_that_ran(policy: ResumePolicy, sync: bool) -> None:
    """A payment is not made again, and a sibling that was inside its tool is not cut off."""
    inside, go_on = anyio.Event(), anyio.Event()
    left = [RuntimeError("no disk")]
    entries: list[str] = []

    @tool(on_replay="reuse")
    async def slow() -> str:
        entries.append("slow")
        inside.set()
        await go_on.wait()
        return "slow is done"

    def hook(event: AfterTool) -> None:
        if event.call.name == "pay" and left:
            go_on.set()
            raise left.pop()

    world = World(
        [call("slow"), call("pay", n=1), call("approve"), call("task", agent="c", prompt="p")], "done"
    )
    agent = world.agent(slow, approve, team=[Agent("c", does="helps", model=MockModel(["helped"]))])
    rt = Runtime(agent, hooks=Hooks(after_tool=made(hook, sync)), resume_policy=policy)
    result = await rt.run("go")
    # At once, although somebody is asked: nobody is to answer for a wake that has failed.
    failed(result, "RuntimeError", "no disk")
    result = await rt.recover()
    assert result.status == "pending"
    result = await rt.resume(yes(result), policy=ResumePolicy.CONTINUE)
    assert (result.status, world.ran, entries) == ("done", ["pay 1"], ["slow"])
    assert tools_said(rt.transcript(W)) == ["slow is done", "paid 1", "it: yes", "helped"]
    assert (len(world.model.requests), len(rt.list())) == (2, 2)


@both
async def test_what_it_put_in_place_is_what_a_replay_reuses(policy: ResumePolicy) -> None:
    seen: list[str] = []

    def hook(event: AfterTool) -> ToolOverride:
        seen.append(event.result.output)
        return ToolOverride(result=ToolResult(f"{event.result.output}!"))

    world = World([call("pay", n=1), call("approve")], "done")
    result, rt = await world.run(approve, hooks=Hooks(after_tool=hook), resume_policy=policy)
    result = await rt.resume(yes(result))
    assert tools_said(rt.transcript(W)) == ["paid 1!", "it: yes!"]
    assert (world.ran, seen) == (["pay 1"], ["paid 1", "it: yes"])
    assert tool_messages(rt)[0].metadata == {"overridden": "after_tool"}


async def test_it_is_not_called_for_what_did_not_run() -> None:
    seen: list[str] = []
    clock = VirtualClock()

    @tool(timeout=5)
    async def slow() -> str:
        await clock.sleep(60)
        return "late"

    def guard(event: GuardrailEvent) -> Ruling:
        return Deny("no") if event.call.arguments.get("n") == 1 else Allow()

    world = World([call("t", n=1), call("nope"), call("slow"), call("t", n=2)], "done")
    agent = world.agent(slow, guardrails=[guard])
    hooks = Hooks(after_tool=lambda event: seen.append(f"{event.call.name} {event.result.output}"))
    result = await driven(clock, Runtime(agent, hooks=hooks, clock=clock).run("go"), 5, 60)
    assert (result.status, seen) == ("done", ["t t2m"])


async def test_what_a_refused_question_came_to_is_seen() -> None:
    seen: list[str] = []
    world = World(call("approve"), "done")
    hooks = Hooks(after_tool=lambda event: seen.append(event.result.output))
    result, rt = await world.run(approve, hooks=hooks)
    await rt.resume(no(result))
    assert seen == ["it: no (declined)"]


async def test_inline_answers_are_one_end() -> None:
    async def wait_for(request: Any) -> Answer[Any]:
        return yes(request)

    seen: list[str] = []
    world = World(call("approve"), "done")
    hooks = Hooks(
        before_tool=lambda event: seen.append("before"), after_tool=lambda event: seen.append("after")
    )
    await world.run(approve, hooks=hooks, wait_for=wait_for)
    assert seen == ["before", "after"]
