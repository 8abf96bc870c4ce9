"""Where guardrails meet replays: what was answered holds, nothing else does, and each entry is cleared anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from overt import (
    Agent,
    Allow,
    Answer,
    Ask,
    Budget,
    Deny,
    Extend,
    GuardrailEvent,
    Hooks,
    Request,
    ResumePolicy,
    Ruling,
    Runtime,
    Status,
    Suspend,
    ToolContext,
    ToolOverride,
    ToolResult,
    tool,
)
from overt.core import facts as f
from overt.hooks import BeforeTool
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import MockModel, call, say
from tests.guard_kit import Mood, World, answer_all, asking, denying, facts, rule
from tests.suspend_kit import first, no, tools_said, yes

HANDLE = "root/w.1"
policies = pytest.mark.parametrize("policy", list(ResumePolicy))


# ------------------------------------------------------------------ no is no


@policies
@pytest.mark.parametrize("waits", [False, True])
async def test_a_decline_holds_in_every_attempt_and_the_rule_is_not_asked_again(
    policy: ResumePolicy, waits: bool
) -> None:
    mood = Mood(Ask("may it?"), Allow(), waits=waits)
    world = World([call("danger"), call("safe")], call("approve", what="x"), call("approve", what="y"))
    world.own = [mood.rule]
    result, runtime = await world.worker().run("go", **world.options(resume_policy=policy))
    result = await runtime.resume(no(result, "never"))
    assert mood.asked == 1
    result = await answer_all(result, runtime.resume)
    assert result.status is Status.DONE
    assert mood.asked == 1, "the rule would allow it by now; somebody said no"
    assert set(world.ran) == {"safe 1"}
    assert tools_said(runtime.transcript(HANDLE))[0] == "declined: never"
    # Every answer but the last of all begins a new attempt.
    attempts = 3 if policy is ResumePolicy.REWIND else 1
    assert len(facts(runtime, f.CallDenied)) == attempts


@policies
async def test_a_decline_holds_where_the_rule_is_gone(policy: ResumePolicy) -> None:
    store = MemoryStore()
    world = World(call("danger"), call("approve"), own=[asking("danger")])
    result, runtime = await world.worker().run("go", store=store, run_id="r", resume_policy=policy)
    result = await runtime.resume(no(result, "never"))
    world.own = []
    runtime = await Runtime.open(world.worker(), "r", store=store)
    result = await runtime.resume(yes(result))
    assert (result.status, world.ran) == (Status.DONE, [])
    assert tools_said(runtime.transcript(HANDLE))[0] == "declined: never"


async def test_a_decline_is_about_one_call_of_one_wake() -> None:
    """The next prompt's is another one, and so is the second of the same arguments."""
    world = World([call("danger"), call("danger")], own=[asking("danger")])
    loop = world.worker().loop(**world.options())
    result = await loop.run("go")
    one, two = result.pendings
    result = await loop.resume([no(one), yes(two)])
    assert world.ran == ["danger 1"]
    result = await loop.run("again")
    assert [r.id in (one.id, two.id) for r in result.pendings] == [False, False]
    assert world.ran == ["danger 1"]


# ------------------------------------------------------------------ yes, but


async def approve_here(world: World, policy: ResumePolicy, path: Path) -> Runtime[Any]:
    result, runtime = await world.worker().run("go", **world.options(resume_policy=policy))
    await runtime.resume(yes(result))
    return runtime


async def approve_inline(world: World, policy: ResumePolicy, path: Path) -> Runtime[Any]:
    async def wait_for(request: Request) -> Answer[Any] | None:
        return yes(request)

    _, runtime = await world.worker().run("go", **world.options(resume_policy=policy, wait_for=wait_for))
    return runtime


async def approve_elsewhere(world: World, policy: ResumePolicy, path: Path) -> Runtime[Any]:
    store = SQLiteStore(path / "runs.db")
    result, _ = await world.worker().run("go", **world.options(resume_policy=policy, store=store, run_id="r"))
    await store.close()
    store = SQLiteStore(path / "runs.db")
    runtime = await Runtime.open(world.worker(), "r", **world.options(store=store))
    await runtime.resume(yes(result))
    await store.close()
    return runtime


approvals = pytest.mark.parametrize("approve", [approve_here, approve_inline, approve_elsewhere])


@policies
@approvals
@pytest.mark.parametrize("waits", [False, True])
async def test_an_approved_call_is_checked_for_deny_right_before_it_is_entered(
    approve: Any, policy: ResumePolicy, waits: bool, tmp_path: Path
) -> None:
    mood = Mood(Ask("may it?"), Deny("not on a friday"), waits=waits)
    world = World([call("danger"), call("safe")], own=[mood.rule])
    runtime = await approve(world, policy, tmp_path)
    assert runtime.result().status is Status.DONE
    assert mood.asked == 2
    assert set(world.ran) == {"safe 1"}
    assert tools_said(runtime.transcript(HANDLE)) == ["denied: not on a friday", "fine 1"]


@policies
@approvals
@pytest.mark.parametrize("waits", [False, True])
async def test_a_rule_that_still_asks_has_its_answer(
    approve: Any, policy: ResumePolicy, waits: bool, tmp_path: Path
) -> None:
    mood = Mood(Ask("may it?"), waits=waits)
    world = World(call("danger"), own=[mood.rule])
    runtime = await approve(world, policy, tmp_path)
    assert runtime.result().status is Status.DONE
    assert mood.asked == 2
    assert world.ran == ["danger 1"]
    assert len(facts(runtime, f.CallAsked)) == 1


@pytest.mark.parametrize("waits", [False, True])
async def test_what_was_approved_inline_is_approved_when_the_wake_is_replayed(waits: bool) -> None:
    mood = Mood(Ask("may it?"), waits=waits)
    world = World(call("danger"), call("approve"), own=[mood.rule])
    told: list[str] = []

    async def wait_for(request: Request) -> Answer[Any] | None:
        told.append(request.prompt)
        return yes(request) if request.prompt == "may it?" else None

    result, runtime = await world.worker().run("go", wait_for=wait_for)
    assert (first(result).prompt, world.ran) == ("do it?", ["danger 1"])
    result = await runtime.resume(yes(result))
    assert (result.status, world.ran) == (Status.DONE, ["danger 1", "danger 1"])
    assert told == ["may it?", "do it?"]
    assert len(set(world.keys)) == 1


@policies
async def test_another_process_may_bring_a_rule_that_denies(policy: ResumePolicy) -> None:
    store = MemoryStore()
    for brings in ("own", "house"):
        world = World([call("danger"), call("approve")])
        result, _ = await world.worker().run("go", store=store, run_id=brings, resume_policy=policy)
        assert world.ran == ["danger 1"], "nobody minded then"
        world.ran.clear()
        setattr(world, brings, [denying("danger", "approve")])
        runtime = await Runtime.open(world.worker(), brings, **world.options(store=store))
        result = await runtime.resume(yes(result))
        assert (result.status, world.ran) == (Status.DONE, [])
        assert tools_said(runtime.transcript(HANDLE))[1] == "denied: no way"


@policies
async def test_every_entry_is_cleared_anew(policy: ResumePolicy) -> None:
    """A tool that asks runs from its first line again when it is answered: the rule has its say before that."""
    entered: list[str] = []

    @tool
    async def danger(ctx: ToolContext) -> str:
        """Ask in between."""
        entered.append("danger")
        await ctx.ask("sure?")
        entered.append("harm")
        return "harm"

    mood = Mood(Ask("may it?"), Allow(), Deny("no more"))
    agent = Agent(
        "w", does="w", tools=[danger], guardrails=[mood.rule], model=MockModel([call("danger"), say("end")])
    )
    result, runtime = await agent.run("go", resume_policy=policy)
    result = await runtime.resume(yes(result))
    assert (first(result).prompt, entered) == ("sure?", ["danger"])
    result = await runtime.resume(yes(result))
    assert (result.status, entered, mood.asked) == (Status.DONE, ["danger"], 3)
    assert tools_said(runtime.transcript(HANDLE)) == ["denied: no more"]


@pytest.mark.parametrize("durable", [False, True])
async def test_what_waited_for_a_budget_is_cleared_anew(durable: bool) -> None:
    mood = Mood(Ask("may it?"), Allow(), Deny("too late"))
    world = World([call("safe"), call("danger")], own=[mood.rule])

    def on_limit(info: Any) -> Any:
        return Suspend() if durable else Extend(Budget(max_tool_calls=9))

    options = world.options(budget=Budget(max_tool_calls=1), on_limit=on_limit)
    result, runtime = await world.worker().run("go", resume_policy=ResumePolicy.CONTINUE, **options)
    result = await runtime.resume(yes(result))
    if durable:
        assert first(result).kind == "budget"
        result = await runtime.resume(yes(result, 5))
    assert (result.status, world.ran) == (Status.DONE, ["safe 1"])
    assert tools_said(runtime.transcript(HANDLE)) == ["fine 1", "denied: too late"]


async def test_what_a_limit_left_open_is_cleared_anew() -> None:
    mood = Mood(Allow(), Deny("too late"))
    world = World([call("safe"), call("danger")], own=[mood.rule])
    result, runtime = await world.worker().run("go", budget=Budget(max_tool_calls=1))
    assert (result.limit, world.ran) == ("maxToolCalls", ["safe 1"])
    result = await runtime.extend(Budget(max_tool_calls=9))
    assert (result.status, world.ran) == (Status.DONE, ["safe 1"])


# ------------------------------------------------------------------ only the very call


def drifting(ran: list[int], rules: Sequence[Any], amounts: Sequence[int], **more: Any) -> Agent[None, str]:
    """An agent whose model calls for another amount each time it is asked."""
    left = list(amounts)

    @tool
    async def refund(amount: int) -> str:
        """Pay back."""
        ran.append(amount)
        return f"paid {amount}"

    def script(request: Any) -> Any:
        if request.messages[-1].role == "tool":
            return say("end")
        return call("refund", amount=left.pop(0) if len(left) > 1 else left[0])

    return Agent("w", does="pays", tools=[refund], guardrails=list(rules), model=MockModel(script), **more)


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_an_approval_lets_nothing_in_but_what_was_shown(elsewhere: bool) -> None:
    ran: list[int] = []
    store = MemoryStore()
    agent = drifting(ran, [asking("refund")], [100, 101])
    result, runtime = await agent.run("go", store=store, run_id="r")
    one = first(result)
    if elsewhere:
        runtime = await Runtime.open(drifting(ran, [asking("refund")], [101]), "r", store=store)
    result = await runtime.resume(yes(one))
    two = first(result)
    assert (ran, result.status) == ([], Status.PENDING)
    assert (two.id != one.id, two.diverged, one.diverged) == (True, True, False)
    assert two.data["call"] == {"tool": "refund", "arguments": {"amount": 101}}
    result = await runtime.resume(yes(two))
    assert (ran, result.status) == ([101], Status.DONE)
    assert result.replay is not None
    assert result.replay.unused_answers == (one.id,)


async def test_a_replay_that_asks_otherwise_again_and_again_fails() -> None:
    ran: list[int] = []
    agent = drifting(ran, [asking("refund")], [1, 2, 3, 4, 5, 6])
    result, runtime = await agent.run("go")
    asked = []
    while result.pending is not None:
        asked.append(result.pending.diverged)
        result = await runtime.resume(yes(result))
    assert asked == [False, True, True]
    assert result.error is not None
    assert (ran, result.error.type) == ([], "ReplayDiverged")
    # Asked again, the model may say what somebody has agreed to.
    result = await answer_all(await runtime.recover(), runtime.resume, ok=False)
    assert ran == []


async def test_a_rule_that_words_its_question_otherwise_asks_anew() -> None:
    prompts = iter(["first?", "second?", "second?", "second?"])
    ran: list[int] = []
    agent = drifting(ran, [lambda event: Ask(next(prompts))], [1])
    result, runtime = await agent.run("go")
    assert first(result).prompt == "first?"
    result = await runtime.resume(yes(result))
    assert (first(result).prompt, first(result).diverged, ran) == ("second?", True, [])
    result = await runtime.resume(yes(result))
    assert (result.status, ran) == (Status.DONE, [1])


async def test_continue_lets_in_what_was_approved_whatever_the_model_would_say_now() -> None:
    ran: list[int] = []
    agent = drifting(ran, [asking("refund")], [100, 101])
    result, runtime = await agent.run("go", resume_policy=ResumePolicy.CONTINUE)
    result = await runtime.resume(yes(result))
    assert (result.status, ran) == (Status.DONE, [100])


def leading(ran: list[str], prompts: Sequence[str], ruling: Callable[[str], Ruling]) -> Agent[None, str]:
    """A lead that asks somebody first, then delegates with another prompt each time; a rule judges the prompts."""
    left = list(prompts)

    @tool
    async def approve(ctx: ToolContext, what: str) -> str:
        """Ask."""
        await ctx.ask(f"do {what}?")
        return "yes"

    def script(request: Any) -> Any:
        said = [m.role for m in request.messages].count("assistant")
        if said == 0:
            return call("task", agent="b", prompt=left.pop(0) if len(left) > 1 else left[0])
        return call("approve", what="it") if said == 1 else say("end")

    def below(request: Any) -> Any:
        ran.append(request.messages[-1].text)
        return say("done")

    def rules(event: GuardrailEvent) -> Ruling:
        return ruling(str(event.call.arguments["prompt"])) if event.call.name == "task" else Allow()

    team = [Agent("b", does="works", model=MockModel(below))]
    model = MockModel(script)
    return Agent("w", does="leads", team=team, tools=[approve], guardrails=[rules], model=model)


@pytest.mark.parametrize("ruling", [Allow(), Ask("may it?")])
async def test_a_delegation_that_strays_is_not_started_by_a_rule_that_lets_it(ruling: Ruling) -> None:
    ran: list[str] = []
    agent = leading(ran, ["p", "q"], lambda prompt: Allow() if prompt == "p" else ruling)
    result, runtime = await agent.run("go")
    assert ran == ["p"]
    result = await runtime.resume(yes(result))
    assert result.error is not None
    assert (result.error.type, ran, runtime.pendings()) == ("ReplayDiverged", ["p"], ())
    assert "Nothing was entered" in result.error.message


async def test_a_delegation_that_strays_and_is_denied_strays_nowhere() -> None:
    ran: list[str] = []
    agent = leading(ran, ["p", "q"], lambda prompt: Allow() if prompt == "p" else Deny("not that"))
    result, runtime = await agent.run("go")
    result = await runtime.resume(yes(result))
    assert (result.status, ran) == (Status.DONE, ["p"])
    assert result.replay is not None
    assert result.replay.unused_children == ("root/w.1/b.1",)


# ------------------------------------------------------------------ reuse


@policies
async def test_a_finished_reuse_call_is_given_again_and_a_denied_one_never_was_finished(
    policy: ResumePolicy,
) -> None:
    asked: list[str] = []
    world = World([call("once"), call("once", n=2)], call("approve"))
    world.own = [rule({}, asked), lambda e: Deny("no") if e.call.arguments.get("n") == 2 else Allow()]
    result, runtime = await world.worker().run("go", resume_policy=policy)
    result = await runtime.resume(yes(result))
    assert result.status is Status.DONE
    assert world.ran == ["once 1"]
    # In the second attempt only the one that was denied, and the question that is entered again.
    again = ["once"] if policy is ResumePolicy.REWIND else []
    assert asked == ["once", "once", "approve", *again, "approve"]
    assert tools_said(runtime.transcript(HANDLE))[:2] == ["done 1", "denied: no"]


# ------------------------------------------------------------------ hooks


@policies
@pytest.mark.parametrize("waits", [False, True])
async def test_what_a_hook_changes_is_what_is_guarded_asked_about_and_run(
    policy: ResumePolicy, waits: bool
) -> None:
    seen: list[Any] = []

    def halve(event: BeforeTool) -> ToolOverride | None:
        n = event.call.arguments.get("n")
        return ToolOverride(arguments={"n": n // 2}) if isinstance(n, int) else None

    def looks(event: GuardrailEvent) -> Ruling:
        seen.append(event.call.arguments["n"])
        return Ask("may it?") if event.call.name == "danger" else Allow()

    async def looks_later(event: GuardrailEvent) -> Ruling:
        return looks(event)

    hooks = Hooks(before_tool=halve)
    world = World(call("danger", n=100), own=[looks_later if waits else looks], more={"hooks": hooks})
    result, runtime = await world.worker().run("go", resume_policy=policy)
    assert first(result).data["call"] == {"tool": "danger", "arguments": {"n": 50}}
    result = await runtime.resume(yes(result))
    assert (result.status, world.ran, seen) == (Status.DONE, ["danger 50"], [50, 50])
    assert tools_said(runtime.transcript(HANDLE)) == ["harm 50"], "nobody but the hook changed anything"


async def test_a_hook_that_changes_an_approved_call_otherwise_has_it_asked_about_anew() -> None:
    left = [50, 51, 51, 51]
    hooks = Hooks(before_tool=lambda event: ToolOverride(arguments={"n": left.pop(0)}))
    world = World(call("danger", n=100), own=[asking("danger")], more={"hooks": hooks})
    result, runtime = await world.worker().run("go")
    result = await runtime.resume(yes(result))
    assert first(result).diverged
    assert first(result).data["call"] == {"tool": "danger", "arguments": {"n": 51}}
    assert world.ran == []
    result = await runtime.resume(yes(result))
    assert world.ran == ["danger 51"]


async def test_a_result_a_hook_gave_at_the_turn_cap_is_given_when_the_wake_goes_on() -> None:
    hooks = Hooks(before_tool=lambda event: ToolOverride(result=ToolResult("from the cache")))
    world = World(call("danger"), own=[rule({})], more={"hooks": hooks, "budget": Budget(max_turns=1)})
    result, runtime = await world.worker().run("go")
    assert (result.limit, world.ran) == ("maxTurns", [])
    result = await runtime.extend(Budget(max_turns=3))
    assert (result.status, world.ran) == (Status.DONE, [])
    assert tools_said(runtime.transcript(HANDLE)) == ["from the cache"]
