"""Guardrails over processes and levels: rules that are gone, processes that die, questions from far below."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from overt import (
    Agent,
    Allow,
    Answer,
    Ask,
    Budget,
    Deny,
    Hooks,
    ResumePolicy,
    Runtime,
    Status,
    ToolOverride,
    tool,
)
from overt.errors import SpecDrift
from overt.hooks import AfterTool
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import MockModel, VirtualClock, call, say
from overt.testing.crashing import CrashingStore
from tests.guard_kit import Mood, World, asking, denying
from tests.suspend_kit import first, no, tools_said, yes

HANDLE = "root/w.1"
policies = pytest.mark.parametrize("policy", list(ResumePolicy))


# ------------------------------------------------------------------ the rule is gone


@policies
@pytest.mark.parametrize("ok", [False, True])
async def test_a_question_binds_although_its_rule_is_gone(
    policy: ResumePolicy, ok: bool, tmp_path: Path
) -> None:
    world = World([call("danger"), call("safe")], own=[asking("danger")], house=[asking("safe")])
    store = SQLiteStore(tmp_path / "runs.db")
    await world.worker().run("go", **world.options(resume_policy=policy, store=store, run_id="r"))
    await store.close()
    world.own, world.house = [], []
    store = SQLiteStore(tmp_path / "runs.db")
    with pytest.raises(SpecDrift, match=r"started with guardrails=.*give them again, or guardrails=\[\]"):
        await Runtime.open(world.worker(), "r", store=store)
    runtime = await Runtime.open(world.worker(), "r", store=store, guardrails=[])
    result = await runtime.recover()
    assert (result.status, world.ran) == (Status.PENDING, [])
    danger, safe = runtime.pendings()
    result = await runtime.resume(yes(safe))
    assert (result.status, world.ran) == (Status.PENDING, [])
    result = await runtime.resume(Answer(id=danger.id, ok=ok))
    assert result.status is Status.DONE
    assert sorted(world.ran) == (["danger 1", "safe 1"] if ok else ["safe 1"])
    await store.close()


@policies
async def test_an_edit_and_a_reply_hold_although_the_rule_is_gone(policy: ResumePolicy) -> None:
    for data, ran in (({"arguments": {"n": 7}}, ["danger 7"]), ({"output": "by hand"}, [])):
        store = MemoryStore()
        world = World(call("danger"), own=[asking("danger")])
        result, _ = await world.worker().run("go", resume_policy=policy, store=store, run_id="r")
        world.own = []
        runtime = await Runtime.open(world.worker(), "r", store=store)
        result = await runtime.resume(yes(result, data))
        assert (result.status, world.ran) == (Status.DONE, ran)


@policies
@pytest.mark.parametrize("gone", [False, True])
async def test_a_question_that_was_given_up_with_its_wake_is_asked_again(
    policy: ResumePolicy, gone: bool
) -> None:
    """The wake failed beside it, and its request was cancelled. Nobody has said yes since."""
    broken = [True]

    def after_tool(event: AfterTool) -> ToolOverride | None:
        if broken[0]:
            raise ValueError("a hook")
        return None

    store = MemoryStore()
    mood = Mood(Ask("may it?"))
    world = World(
        [call("safe"), call("danger")], own=[mood.rule], more={"hooks": Hooks(after_tool=after_tool)}
    )
    result, runtime = await world.worker().run("go", resume_policy=policy, store=store, run_id="r")
    assert (result.status, runtime.pendings(), world.ran) == (Status.ERROR, (), ["safe 1"])
    broken[0] = False
    world.own = [] if gone else world.own
    runtime = await Runtime.open(world.worker(), "r", store=store)
    result = await runtime.recover()
    request = first(result)
    assert (request.prompt, world.ran) == ("may it?", ["safe 1"])
    result = await runtime.resume(no(request))
    assert result.status is Status.DONE
    assert set(world.ran) == {"safe 1"}


async def test_a_question_that_was_given_up_at_a_limit_is_asked_again() -> None:
    clock, store = VirtualClock(), MemoryStore()

    @tool
    async def slow() -> str:
        """Take an hour, the first time."""
        if clock.monotonic() < 60:
            await clock.sleep(3600)
        return "slow"

    world = World([call("slow"), call("danger")], own=[asking("danger")], more={"tools": [slow]})
    runtime = Runtime(world.worker(), budget=Budget(max_wall=60), store=store, run_id="r", clock=clock)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.run, "go")
            await clock.wait_for_sleepers(2)
            assert len(runtime.pendings()) == 1
            await clock.advance(61)
    result = runtime.result()
    assert (result.limit, result.pendings, world.ran) == ("maxWall", (), [])
    world.own = []
    runtime = await Runtime.open(world.worker(), "r", store=store, clock=clock)
    result = await runtime.extend(Budget(max_wall=600))
    assert (first(result).prompt, world.ran) == ("may it?", [])
    result = await runtime.resume(yes(result))
    assert (result.status, world.ran) == (Status.DONE, ["danger 1"])


async def test_what_somebody_agreed_to_holds_past_a_limit_although_the_rule_is_gone() -> None:
    store = MemoryStore()
    world = World([call("safe", n=1), call("danger"), call("safe", n=2)], own=[asking("danger")])
    budget = Budget(max_tool_calls=1)
    result, runtime = await world.worker().run("go", budget=budget, store=store, run_id="r")
    result = await runtime.resume(yes(result), policy=ResumePolicy.CONTINUE)
    assert (result.limit, world.ran) == ("maxToolCalls", ["safe 1"])
    world.own = []
    runtime = await Runtime.open(world.worker(), "r", store=store)
    result = await runtime.extend(Budget(max_tool_calls=9))
    assert result.status is Status.DONE
    assert sorted(world.ran) == ["danger 1", "safe 1", "safe 2"]


# ------------------------------------------------------------------ crashes


@policies
@pytest.mark.parametrize("ok", [False, True])
async def test_an_answer_holds_wherever_the_process_dies(policy: ResumePolicy, ok: bool) -> None:
    for at in range(1, 40):
        world = World([call("danger"), call("safe")], own=[asking("danger")])
        store = MemoryStore()
        result, _ = await world.worker().run("go", store=store, run_id="r", resume_policy=policy)
        dying = CrashingStore(store, crash_at=at, when="after")
        runtime = await Runtime.open(world.worker(), "r", store=dying)
        try:
            result = await runtime.resume(Answer(id=first(result).id, ok=ok))
            assert at > 2
            return
        except BaseException:
            if not dying.crashed:
                raise
        runtime = await Runtime.open(world.worker(), "r", store=store)
        result = await runtime.recover()
        assert (result.status, runtime.pendings()) == (Status.DONE, ())
        assert ("danger 1" in world.ran) is ok
        assert len(set(world.keys)) == ok


@policies
async def test_a_call_in_doubt_is_checked_before_it_is_tried_again(policy: ResumePolicy) -> None:
    """What is said of the doubt is no answer to the rule."""
    entered: list[str] = []

    @tool(on_replay="reuse")
    async def danger() -> str:
        """Do harm, and end the process."""
        entered.append("danger")
        raise SystemExit

    store = MemoryStore()
    mood = Mood(Ask("may it?"), Allow(), Deny("not again"))
    agent = Agent(
        "w", does="w", tools=[danger], guardrails=[mood.rule], model=MockModel([call("danger"), say("end")])
    )
    result, runtime = await agent.run("go", store=store, run_id="r", resume_policy=policy)
    with pytest.raises(SystemExit):
        await runtime.resume(yes(result))
    runtime = await Runtime.open(agent, "r", store=store)
    result = await runtime.recover()
    assert (first(result).kind, mood.asked) == ("in_doubt", 2)
    result = await runtime.resume(yes(result, {"outcome": "retry"}))
    assert (result.status, entered, mood.asked) == (Status.DONE, ["danger"], 3)
    assert tools_said(runtime.transcript(HANDLE)) == ["denied: not again"]


# ------------------------------------------------------------------ three levels down


def levels(ran: list[str], rules: Sequence[Any] = ()) -> Agent[None, str]:
    """a has b has c, and c does harm."""

    @tool
    async def danger() -> str:
        """Do harm."""
        ran.append("danger")
        return "harm"

    c = Agent(
        "c",
        does="harms",
        tools=[danger],
        guardrails=list(rules),
        model=MockModel([call("danger"), say("c: done")]),
    )
    b = Agent(
        "b", does="leads", team=[c], model=MockModel([call("task", agent="c", prompt="p"), say("b: done")])
    )
    return Agent(
        "a", does="leads", team=[b], model=MockModel([call("task", agent="b", prompt="p"), say("a: done")])
    )


@policies
@pytest.mark.parametrize("whose", ["own", "house"])
@pytest.mark.parametrize("ok", [False, True])
async def test_a_question_three_levels_down_surfaces_at_the_root_and_is_answered_there(
    policy: ResumePolicy, whose: str, ok: bool, tmp_path: Path
) -> None:
    ran: list[str] = []
    rules = [asking("danger")]
    own, house = (rules, []) if whose == "own" else ([], rules)
    store = SQLiteStore(tmp_path / "runs.db")
    result, runtime = await levels(ran, own).run(
        "go", guardrails=house, store=store, run_id="r", resume_policy=policy
    )
    path = ("root", "a.1", "b.1", "c.1")
    assert (first(result).path, result.handle) == (path, "root/a.1")
    (event,) = [e for e in runtime.events() if e.kind == "request"]
    assert (event.request.path, event.handle) == (path, "root/a.1/b.1/c.1")
    await store.close()
    store = SQLiteStore(tmp_path / "runs.db")
    runtime = await Runtime.open(levels(ran, own), "r", guardrails=house, store=store)
    (request,) = runtime.pendings()
    assert request == runtime.result().pending == result.pending
    result = await runtime.resume(Answer(id=request.id, ok=ok))
    assert (result.status, result.text) == (Status.DONE, "a: done")
    assert ran == (["danger"] if ok else [])
    assert [h.id for h in runtime.list()] == ["root/a.1", "root/a.1/b.1", "root/a.1/b.1/c.1"]
    await store.close()


@policies
@pytest.mark.parametrize("whose", ["own", "house"])
async def test_a_rule_another_process_brings_holds_three_levels_down(
    policy: ResumePolicy, whose: str
) -> None:
    ran: list[str] = []
    store = MemoryStore()
    result, _ = await levels(ran, [asking("danger")]).run("go", store=store, run_id="r", resume_policy=policy)
    strict = [denying("danger")]
    own, house = (strict, []) if whose == "own" else ([], strict)
    runtime = await Runtime.open(levels(ran, own), "r", guardrails=house, store=store)
    result = await runtime.resume(yes(result))
    assert (result.status, ran) == (Status.DONE, [])
    assert tools_said(runtime.transcript("root/a.1/b.1/c.1")) == ["denied: no way"]


@policies
async def test_rules_hold_in_a_process_that_goes_on_where_one_without_them_was(policy: ResumePolicy) -> None:
    world = World(
        [call("approve")], [call("approve", what="that")], [call("danger")], own=[denying("danger")]
    )
    store = MemoryStore()
    result, runtime = await world.worker().run("go", store=store, resume_policy=policy)
    world.own = []
    other = await Runtime.open(world.worker(), runtime.id, store=store)
    result = await other.resume(yes(result))
    assert result.status == "pending"
    result = await runtime.resume(yes(result))
    assert (result.status, world.ran) == (Status.DONE, [])


async def test_a_process_whose_agents_no_longer_fit_learns_it_when_it_goes_on() -> None:
    world = World([call("approve")], [call("more")], [call("approve", what="that")])
    store = MemoryStore()
    result, runtime = await world.worker().run("go", store=store)

    @tool(name="more")
    async def another() -> str:
        return "more"

    world.more["tools"] = [another]
    other = await Runtime.open(world.worker(), runtime.id, store=store)
    result = await other.resume(yes(result))
    assert result.status == "pending"
    for _ in range(2):
        with pytest.raises(SpecDrift, match="tool 'more' of agent 'w' is gone"):
            await runtime.resume(yes(result))
    result = await other.resume(yes(result))
    assert result.status == "done"
