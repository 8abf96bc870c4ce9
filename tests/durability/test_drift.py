"""Code that changed while a run was parked: refused where it cannot carry on, recorded where it can."""

from __future__ import annotations

from typing import Any

import pytest
from tests.durability.crew import RUN, facts_of

from overt import Agent, Answer, Ask, Budget, OutputEvent, ResumePolicy, Ruling, Runtime, ToolContext, tool
from overt.core import facts as f
from overt.errors import SpecDrift
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say

pytestmark = pytest.mark.anyio
MODEL = MockModel(
    {"lead": [call("task", agent="b", prompt="p"), say("end")], "b": [call("pay", n=1), say("ok")]}
)


def agent(*tools: Any, does: str = "Pays.", budget: Budget | None = None) -> Agent:
    return Agent("lead", does="Leads.", team=[Agent("b", does=does, tools=tools, budget=budget)])


async def pay(ctx: ToolContext[None], n: int) -> str:
    """Pay."""
    return str((await ctx.ask("ok?")).data)


async def pay_text(ctx: ToolContext[None], n: list[int]) -> str:
    """Pay."""
    return str((await ctx.ask("ok?")).data)


@tool
async def other() -> str:
    """Do something else."""
    return ""


async def parked() -> tuple[MemoryStore, str]:
    store = MemoryStore()
    result, _ = await agent(tool(pay)).run("go", model=MODEL, store=store, run_id=RUN)
    assert result.pending is not None
    return store, result.pending.id


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (agent(other), "'pay' .* is gone"),
        (agent(tool(pay, on_replay="reuse")), "was 'rerun' and is 'reuse'"),
        (agent(tool(pay_text, name="pay")), "no longer takes the arguments"),
        (Agent("lead", does="Leads.", tools=[other]), "'b' .* no longer in the team"),
        (Agent("boss", does="Leads."), "started with agent 'lead'"),
    ],
)
async def test_what_cannot_carry_on_is_refused_before_anything_runs(changed: Agent, what: str) -> None:
    store, _ = await parked()
    before = await facts_of(store)
    with pytest.raises(SpecDrift, match=what):
        await Runtime.open(changed, RUN, model=MODEL, store=store)
    assert await facts_of(store) == before


async def test_a_changed_budget_or_a_further_tool_is_recorded() -> None:
    store, request = await parked()
    changed = agent(tool(pay), other, does="Pays well.", budget=Budget(max_turns=9))
    runtime = await Runtime.open(changed, RUN, model=MODEL, store=store)
    result = await runtime.resume(Answer(id=request, ok=True, data="x"))
    assert result.text == "end"
    assert sum(isinstance(x, f.PlanChanged) for x in await facts_of(store)) == 1


async def test_a_finished_reuse_call_of_a_wake_that_may_be_replayed_counts() -> None:
    """Its result would be given on a replay: declared otherwise, or gone, the call would run again unasked."""
    runs: list[str] = []

    async def book() -> str:
        """Book."""
        runs.append("book")
        return "booked"

    async def ask(ctx: ToolContext[None]) -> str:
        """Ask."""
        return str((await ctx.ask("ok?")).ok)

    def worker(*tools: Any) -> Agent:
        return Agent("w", does="Works.", tools=tools)

    model = MockModel([call("book"), call("ask"), say("end")])
    store = MemoryStore()
    booking = tool(book, on_replay="reuse")
    await worker(booking, tool(ask)).run("go", model=model, store=store, run_id=RUN)
    with pytest.raises(SpecDrift, match="was 'reuse' and is 'rerun'"):
        await Runtime.open(worker(tool(book), tool(ask)), RUN, model=model, store=store)
    with pytest.raises(SpecDrift, match=r"'book' .* is gone"):
        await Runtime.open(worker(tool(ask)), RUN, model=model, store=store)
    runtime = await Runtime.open(worker(booking, tool(ask)), RUN, model=model, store=store)
    await runtime.resume(Answer(id=runtime.pendings()[0].id, ok=True))
    assert runs == ["book"]


async def test_an_agent_that_has_nothing_to_go_on_with_may_be_gone() -> None:
    store = MemoryStore()
    lead = Agent("lead", does="Leads.", team=[Agent("b", does="Helps.")])
    async with Runtime(
        lead, model=MockModel({"lead": ["end"], "b": ["ok"]}), store=store, run_id=RUN
    ) as runtime:
        helper = await runtime.spawn("root", "b")
        assert (await runtime.run_turn(helper, "help")).text == "ok"
    reopened = await Runtime.open(Agent("lead", does="Leads."), RUN, model=MockModel(["end"]), store=store)
    assert reopened.inspect(helper).turns == 1


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_an_agent_that_is_a_tool_is_one_of_the_tools_in_use(policy: ResumePolicy) -> None:
    store = MemoryStore()
    helper = Agent("b", does="Helps.", tools=[tool(pay)])
    model = MockModel({"lead": [call("b", prompt="p"), say("end")], "b": [call("pay", n=1), say("ok")]})
    await Agent("lead", does="Leads.", tools=[helper.as_tool()]).run(
        "go", model=model, store=store, run_id=RUN, resume_policy=policy
    )

    @tool(name="b")
    async def plain(prompt: str) -> str:
        """Help."""
        return prompt

    for changed, what in (
        (Agent("lead", does="Leads.", tools=[other], team=[helper]), "'b' of agent 'lead' is gone"),
        (Agent("lead", does="Leads.", tools=[plain], team=[helper]), "'b' .* was 'agent' and is 'rerun'"),
    ):
        with pytest.raises(SpecDrift, match=what):
            await Runtime.open(changed, RUN, model=model, store=store)
    same = Agent("lead", does="Leads.", tools=[helper.as_tool()])
    runtime = await Runtime.open(same, RUN, model=model, store=store)
    result = await runtime.resume(Answer(id=runtime.pendings()[0].id, ok=True, data="x"))
    assert (result.status, result.text) == ("done", "end")
    assert len(runtime.list()) == 2


def look(event: OutputEvent) -> Ruling:
    return Ask("Will it do?")


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_a_typed_answer_that_waits_for_somebody(policy: ResumePolicy) -> None:
    store, model = MemoryStore(), MockModel([call("final_result", value=3)])
    declared = Agent("lead", does="Counts.", output_type=int, output_guardrails=[look])
    await declared.run("go", model=model, store=store, run_id=RUN, resume_policy=policy)
    others: list[Agent[Any, Any]] = [
        Agent("lead", does="Counts.", output_type=list[int], output_guardrails=[look]),
        Agent("lead", does="Counts.", output_guardrails=[look]),
    ]
    for changed in others:
        with pytest.raises(SpecDrift, match=r"root/lead\.1 .* no longer fits the output_type"):
            await Runtime.open(changed, RUN, model=model, store=store)
    runtime = await Runtime.open(declared, RUN, model=model, store=store)
    result = await runtime.resume(Answer(id=runtime.pendings()[0].id, ok=True))
    assert (result.status, result.output) == ("done", 3)
