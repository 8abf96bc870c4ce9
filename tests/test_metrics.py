"""What a host is told as it happens: metrics of model calls, tools and wakes, and handles that come and go."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from overt import (
    Agent,
    Allow,
    Answer,
    Budget,
    Completion,
    Deny,
    GuardrailEvent,
    Handle,
    MetricEvent,
    ResumePolicy,
    Ruling,
    Runtime,
    Suspend,
    ToolContext,
    ToolResult,
    Usage,
    pending,
    tool,
)
from overt.errors import StoreError
from overt.stores import MemoryStore
from overt.testing import MockModel, VirtualClock, call, say
from overt.testing.crashing import Crashed, CrashingStore
from tests.suspend_kit import approve, yes
from tests.test_budget_wall import driven

W = "root/w.1"
both = pytest.mark.parametrize("policy", list(ResumePolicy))


class Told(list[MetricEvent]):
    """Metrics, in the order they came."""

    def __call__(self, event: MetricEvent) -> None:
        self.append(event)

    def short(self, kind: str | None = None, handle: str | None = None) -> list[tuple[Any, ...]]:
        """What each event is of, how it ended and how long it took."""
        return [
            (e.event, e.model or e.tool, e.status, e.seconds)
            for e in self
            if kind in (None, e.event) and handle in (None, e.handle)
        ]

    def statuses(self, kind: str, handle: str | None = None) -> list[str]:
        return [status for _, _, status, _ in self.short(kind, handle)]


@tool
async def t(n: int) -> str:
    if n < 0:
        raise ValueError("below zero")
    return str(n)


# ------------------------------------------------------------------ model calls, tools, runs


async def test_each_call_tool_and_wake_is_told_with_its_time_and_usage() -> None:
    clock = VirtualClock()
    told = Told()

    @tool
    async def slow(n: int) -> str:
        await clock.sleep(3)
        return "slept"

    script = [say("thinking", tokens=70), call("slow", n=1), say("done", tokens=30)]
    model = MockModel([[script[0], script[1]], script[2]], think_time=2, clock=clock, name="m-1")
    agent = Agent("w", does="x", tools=[slow], model=model)
    rt = Runtime(agent, clock=clock, on_metric=told)
    await driven(clock, rt.run("go"), 2, 3, 2)
    assert told.short() == [
        ("llm", "m-1", "ok", 2), ("tool", "slow", "ok", 3), ("llm", "m-1", "ok", 2), ("run", None, "done", 7),
    ]  # fmt: skip
    assert [e.usage.total_tokens if e.usage else None for e in told] == [70, None, 30, 100]
    run = told[-1]
    assert run.usage == rt.result().usage
    assert all((e.run_id, e.handle, e.agent, e.pending) == (rt.id, W, "w", False) for e in told)
    assert MetricEvent.model_validate_json(run.model_dump_json()) == run


async def test_how_each_may_end() -> None:
    clock = VirtualClock()
    told = Told()

    @tool(timeout=5)
    async def late() -> str:
        await clock.sleep(60)
        return ""

    @tool
    async def soft() -> ToolResult:
        return ToolResult("no", is_error=True)

    def guard(event: GuardrailEvent) -> Ruling:
        return Deny("no") if event.call.arguments.get("n") == 9 else Allow()

    calls = [call("t", n=-1), call("soft"), call("late"), call("t", n=1), call("t", n="x"), call("t", n=9)]
    model = MockModel([calls, RuntimeError("down")])
    agent = Agent("w", does="x", tools=[t, soft, late], model=model, guardrails=[guard])
    rt = Runtime(agent, clock=clock, on_metric=told)
    await driven(clock, rt.run("go"), 5, 60)
    # What was not entered is no entry: an invalid call, a denied one.
    assert sorted(told.short("tool")) == [
        ("tool", "late", "error", 5), ("tool", "soft", "error", 0), ("tool", "t", "error", 0), ("tool", "t", "ok", 0),
    ]  # fmt: skip
    assert told.statuses("llm") == ["ok", "error"]
    assert told.statuses("run") == ["error"]
    assert [e.usage for e in told if e.event == "llm"][1] is None
    await rt.recover()
    assert told.statuses("llm") == ["ok", "error", "error"]
    assert told.statuses("run") == ["error", "error"]


async def test_a_call_nobody_reported_the_usage_of_has_none() -> None:
    told = Told()
    model = MockModel([say("done", usage=None)])
    await Agent("w", does="x", model=model).run("go", on_metric=told)
    assert [e.usage for e in told] == [None, Usage(turns=1, model_calls=1, unreported_calls=1)]


async def test_waiting_for_a_place_among_the_calls_at_once_is_not_counted() -> None:
    clock = VirtualClock()
    told = Told()
    delegations = [call("task", agent="c", prompt=str(n)) for n in range(3)]
    model = MockModel({"w": [delegations, "done"], "c": ["helped"]}, think_time=4, clock=clock)
    agent = Agent("w", does="x", team=[Agent("c", does="x")])
    rt = Runtime(agent, model=model, clock=clock, on_metric=told, max_concurrent_turns=1)
    await driven(clock, rt.run("go"), 4, 4, 4, 4, 4)
    assert [e.seconds for e in told if e.event == "llm"] == [4] * 5
    assert sorted(e.seconds for e in told if e.event == "run") == [4, 8, 12, 20]
    assert [(e.handle, e.usage.total_tokens) for e in told if e.event == "run" and e.usage][-1] == (W, 500)


@pytest.mark.parametrize("what", ["llm", "tool"])
@pytest.mark.parametrize("how", ["cancel", "interrupt"])
async def test_what_was_cut_off_has_ended_too(what: str, how: str) -> None:
    clock = VirtualClock()
    told = Told()

    @tool
    async def slow() -> str:
        await clock.sleep(60)
        return ""

    model = MockModel([call("slow"), "done"], think_time=60 if what == "llm" else 0, clock=clock)
    rt = Runtime(Agent("w", does="x", tools=[slow], model=model), clock=clock, on_metric=told)
    async with anyio.create_task_group() as group:
        group.start_soon(rt.run, "go")
        await clock.wait_for_sleepers()
        await clock.advance(7)
        if how == "cancel":
            group.cancel_scope.cancel()
        else:
            await rt.interrupt()
    name = "mock" if what == "llm" else "slow"
    assert (what, name, "error", 7) in told.short()
    assert told.short("run") == [("run", None, "interrupted", 7)]


# ------------------------------------------------------------------ questions


@both
async def test_a_question_is_pending_and_never_an_error(policy: ResumePolicy) -> None:
    clock = VirtualClock()
    told = Told()

    @tool(name="approve")
    async def consent(ctx: ToolContext) -> ToolResult:
        return ToolResult("yes") if ctx.answer else pending(kind="approval", prompt="?")

    @tool
    async def ask(ctx: ToolContext) -> str:
        await clock.sleep(1)
        await ctx.ask("one?")
        return "asked"

    model = MockModel([[call("approve"), call("ask"), call("t", n=1)], "done"], think_time=2, clock=clock)
    agent = Agent("w", does="x", tools=[consent, ask, t], model=model)
    options: dict[str, Any] = {"clock": clock, "on_metric": told, "resume_policy": policy}
    rt = Runtime(agent, **options)
    result = await driven(clock, rt.run("go"), 2, 1)
    assert sorted(told.short("tool")) == [
        ("tool", "approve", "pending", 0), ("tool", "ask", "pending", 1), ("tool", "t", "ok", 0)
    ]  # fmt: skip
    assert told.short("run") == [("run", None, "pending", 3)]
    assert {e.status for e in told if e.pending} == {"pending"}
    assert all(e.pending for e in told if e.status == "pending")
    await clock.advance(1_000)  # it waits for its answers; nobody works
    told.clear()
    await driven(clock, rt.resume([yes(r) for r in result.pendings]), 2, 1, 2)
    again = policy is ResumePolicy.REWIND
    assert sorted(told.short("tool")) == [
        ("tool", "approve", "ok", 0), ("tool", "ask", "ok", 1), *([("tool", "t", "ok", 0)] if again else [])
    ]  # fmt: skip
    assert told.short("run") == [("run", None, "done", 5 if again else 3)]


async def test_an_inline_answer_and_a_question_about_a_budget_are_no_errors() -> None:
    async def wait_for(request: Any) -> Answer[Any]:
        return yes(request, 9 if request.kind == "budget" else None)

    told = Told()
    agent = Agent("w", does="x", tools=[approve], model=MockModel([call("approve"), "done"]))
    options: dict[str, Any] = {"on_limit": lambda info: Suspend(), "budget": Budget(max_model_calls=1)}
    result, _ = await agent.run("go", on_metric=told, wait_for=wait_for, **options)
    assert result.status == "done"
    assert told.statuses("tool") == ["pending", "ok"]
    assert told.statuses("run") == ["pending", "pending", "done"]


async def test_a_child_that_asks_and_a_gate_that_sends_back_are_no_errors() -> None:
    told = Told()
    child = Agent("c", does="x", tools=[approve], model=MockModel([call("approve"), "helped"]))
    lead = Agent(
        "w", does="x", model=MockModel(prompts=[[call("task", agent="c", prompt="p"), "a"], ["b"]]), team=[child],
        completion=Completion(lambda attempt: (attempt.number == 2, "again"), max_attempts=2),
    )  # fmt: skip
    result, rt = await lead.run("go", on_metric=told, resume_policy=ResumePolicy.CONTINUE)
    assert told.statuses("run") == ["pending", "pending"]
    await rt.resume(yes(result))
    assert told.statuses("run", f"{W}/c.1") == ["pending", "done"]
    assert told.statuses("run", W) == ["pending", "done"]
    assert told.statuses("llm", W) == ["ok", "ok", "ok"]


# ------------------------------------------------------------------ whose, and what a listener does


async def test_the_agents_own_replaces_the_runs() -> None:
    own, house = Told(), Told()
    child = Agent("c", does="x", model=MockModel(["helped"]))
    lead = Agent(
        "w", does="x", team=[child], on_metric=own, model=MockModel([call("task", agent="c", prompt="p"), "done"])
    )  # fmt: skip
    await lead.run("go", on_metric=house)
    assert {e.handle for e in own} == {W}
    assert {e.handle for e in house} == {f"{W}/c.1"}
    assert [e.event for e in house] == ["llm", "run"]


async def test_a_listener_that_raises_is_logged_and_told_on(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    def broken(event: MetricEvent) -> None:
        told.append(event.event)
        raise RuntimeError("no statsd")

    def gone(handle: Handle, reason: str = "") -> None:
        told.append(handle.id)
        raise RuntimeError("no statsd")

    agent = Agent(
        "w", does="x", tools=[t], model=MockModel([call("t", n=1), "done"]), on_spawn=gone, on_close=gone
    )  # fmt: skip
    with caplog.at_level(logging.ERROR, logger="overt"):
        result, _ = await agent.run("go", on_metric=broken)
    assert result.status == "done"
    assert told == [W, "llm", "tool", "llm", "run", W]
    assert len(caplog.records) == 6
    assert all("no statsd" in (r.exc_text or "") for r in caplog.records)


async def test_through_loop_and_stream_it_is_the_same() -> None:
    def agent() -> Agent[None, str]:
        return Agent("w", does="x", tools=[t], model=MockModel([call("t", n=1), "done"]))

    by_run, by_loop, by_stream = Told(), Told(), Told()
    await agent().run("go", on_metric=by_run)
    loop = agent().loop(on_metric=by_loop)
    await loop.run("go")
    async with agent().stream("go", on_metric=by_stream) as stream:
        _ = [event async for event in stream]

    def shown(told: Told) -> list[tuple[Any, ...]]:
        return [(e.event, e.model, e.tool, e.status, e.usage) for e in told]

    assert shown(by_run) == shown(by_loop) == shown(by_stream)
    await loop.run("again")
    assert by_loop.statuses("run") == ["done", "done"]


# ------------------------------------------------------------------ handles


class Comings:
    """Agents that note which of their handles come and go."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []

    def __call__(self, handle: Handle) -> None:
        self.seen.append(("+", handle.id, handle.agent))

    def gone(self, handle: Handle, reason: str) -> None:
        self.seen.append(("-", handle.id, handle.agent, reason))

    def agent(self, name: str, script: Any, *tools: Any, team: Any = ()) -> Agent[None, str]:
        return Agent(
            name, does="x", model=MockModel(script), tools=tools, team=team, on_spawn=self, on_close=self.gone
        )  # fmt: skip


async def test_handles_come_and_go_once_each_leaves_first() -> None:
    comings = Comings()
    leaf = comings.agent("leaf", ["done"])
    mid = comings.agent("mid", [call("task", agent="leaf", prompt="p"), "done"], team=[leaf])
    lead = comings.agent("w", [call("task", agent="mid", prompt="p"), "done"], team=[mid])
    await lead.run("go")
    m, deep = f"{W}/mid.1", f"{W}/mid.1/leaf.1"
    assert comings.seen == [
        ("+", W, "w"), ("+", m, "mid"), ("+", deep, "leaf"),
        ("-", deep, "leaf", ""), ("-", m, "mid", ""), ("-", W, "w", ""),
    ]  # fmt: skip


async def test_a_close_of_the_host_has_its_reason() -> None:
    comings = Comings()
    child = comings.agent("c", [call("approve"), "never"], approve)
    loop = comings.agent("w", [call("task", agent="c", prompt="p"), "done"], team=[child]).loop()
    assert (await loop.run("go")).status == "pending"
    comings.seen.clear()
    await loop.close(reason="out of business")
    await loop.close(reason="again")
    assert comings.seen == [
        ("-", f"{W}/c.1", "c", "out of business"), ("-", W, "w", "out of business")
    ]  # fmt: skip


@both
async def test_another_process_is_told_only_of_what_it_does(policy: ResumePolicy) -> None:
    store = MemoryStore()

    def made(comings: Comings) -> Agent[None, str]:
        child = comings.agent("c", [call("approve"), "helped"], approve)
        asks = [call("task", agent="c", prompt="p"), call("task", agent="c", prompt="q"), "done"]
        return comings.agent("w", asks, team=[child])

    ours, theirs = Comings(), Comings()
    told, heard = Told(), Told()
    result, rt = await made(ours).run("go", store=store, run_id="r", resume_policy=policy, on_metric=told)
    begun = [("+", W, "w"), ("+", f"{W}/c.1", "c")]
    assert ours.seen == begun
    count = len(told)
    other = await Runtime.open(made(theirs), "r", store=store, on_metric=heard)
    assert (theirs.seen, heard) == ([], [])
    result = await other.resume(yes(result))
    assert result.status == "pending"
    assert theirs.seen == [("-", f"{W}/c.1", "c", ""), ("+", f"{W}/c.2", "c")]
    # The first one takes the run again, and learns what has happened; it is not told it as if it had done it.
    result = await rt.resume(yes(result))
    assert result.status == "done"
    assert ours.seen == [*begun, ("-", f"{W}/c.2", "c", ""), ("-", W, "w", "")]
    assert {e.handle for e in told[count:]} == {W, f"{W}/c.2"}
    assert {e.handle for e in heard} == {W, f"{W}/c.1", f"{W}/c.2"}
    assert len(heard) + len(told) == len({id(e) for e in [*heard, *told]})
    llm = [e for e in [*told, *heard] if e.event == "llm"]
    assert len(llm) == result.usage.model_calls


async def test_nothing_is_told_that_is_not_stored() -> None:
    """A run that could not be stored has not happened."""
    comings, told = Comings(), Told()
    store = CrashingStore(MemoryStore(), crash_at=1)
    with pytest.raises((StoreError, Crashed, BaseExceptionGroup)):
        await comings.agent("w", ["done"]).run("go", store=store, on_metric=told)
    assert (comings.seen, told) == ([], [])
