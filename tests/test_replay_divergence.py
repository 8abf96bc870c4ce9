"""Where a replay strays from what was answered or settled: marked questions, refused delegations, reattachment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from overt import Agent, ResumePolicy, Runtime, State, Status, tool
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say
from tests.suspend_kit import agent, approve, first, tools_said, yes

pytestmark = pytest.mark.anyio


def wording(*replies: Any, after: Any = "end") -> Callable[[Any], Any]:
    """A model whose first reply differs each time the wake begins anew; the last of `replies` is repeated."""
    begun: list[int] = []

    def script(request: Any) -> Any:
        if any(m.role == "assistant" for m in request.messages):
            return say(after)
        begun.append(1)
        return replies[min(len(begun), len(replies)) - 1]

    return script


def task(prompt: str, name: str = "child") -> Any:
    return call("task", agent=name, prompt=prompt)


def child() -> Agent[None, str]:
    return agent([call("approve"), say("child is through")], approve, name="child")


# --------------------------------------------------------------- questions


async def test_a_question_in_other_words_is_asked_anew_and_marked() -> None:
    script = wording(call("approve", what="the refund"), call("approve", what="the REFUND"))
    result, runtime = await agent(script, approve).run("go")
    old = first(result)
    result = await runtime.resume(yes(old))
    new = first(result)
    assert (new.diverged, new.prompt) == (True, "do the REFUND?")
    assert new.id != old.id
    assert not old.diverged
    result = await runtime.resume(yes(new))
    assert result.status is Status.DONE
    assert tools_said(runtime.transcript(result.handle)) == ["the REFUND: yes"]
    assert result.replay is not None
    assert result.replay.unused_answers == (old.id,)
    assert any("Diverged" in line for line in runtime.trace())


async def test_an_answer_is_never_applied_to_another_call() -> None:
    script = wording(call("approve", what="1 euro"), call("approve", what="1000 euros"))
    result, runtime = await agent(script, approve).run("go")
    result = await runtime.resume(yes(result))
    assert result.status is Status.PENDING
    assert tools_said(runtime.transcript(result.handle)) == []


@pytest.mark.parametrize("cap", [0, 1, 2])
async def test_questions_diverge_at_most_so_often(cap: int) -> None:
    script = wording(*[call("approve", what=f"w{n}") for n in range(5)])
    result, runtime = await agent(script, approve).run("go", max_divergences=cap)
    for _ in range(cap):
        result = await runtime.resume(yes(result))
        assert first(result).diverged
    result = await runtime.resume(yes(result))
    assert result.status is Status.ERROR
    assert result.error is not None
    assert (result.error.type, result.error.source) == ("ReplayDiverged", "runtime")
    assert f"w{cap + 1}" in result.text
    assert "w0" in result.text


async def test_a_reordered_batch_does_not_diverge() -> None:
    a, b = call("approve", what="a"), call("approve", what="b")
    result, runtime = await agent(wording([a, b], [b, a]), approve).run("go")
    result = await runtime.resume([yes(r) for r in result.pendings])
    assert result.status is Status.DONE
    assert tools_said(runtime.transcript(result.handle)) == ["b: yes", "a: yes"]


async def test_asking_more_beside_what_is_claimed_does_not_diverge() -> None:
    a, b = call("approve", what="a"), call("approve", what="b")
    result, runtime = await agent(wording(a, [b, a]), approve).run("go")
    result = await runtime.resume(yes(result))
    assert not first(result).diverged
    assert first(result).prompt == "do b?"


async def test_continue_never_diverges() -> None:
    script = wording(call("approve", what="a"), call("approve", what="b"))
    result, runtime = await agent(script, approve).run("go", resume_policy=ResumePolicy.CONTINUE)
    result = await runtime.resume(yes(result))
    assert result.status is Status.DONE


# --------------------------------------------------------------- delegations


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_delegation_in_other_words_is_an_error_before_anything_is_entered(elsewhere: bool) -> None:
    ran: list[int] = []

    @tool
    def count() -> str:
        """Count."""
        ran.append(1)
        return "counted"

    script = wording(task("the report"), [call("count"), task("The report!")], task("the report"))
    boss = agent(script, count, name="boss", team=[child()])
    store = MemoryStore()
    result, runtime = await boss.run("go", store=store, run_id="r")
    result = await runtime.resume(yes(result))
    assert result.status is Status.ERROR
    assert result.error is not None
    assert result.error.type == "ReplayDiverged"
    assert "the report" in result.error.message
    assert "The report!" in result.error.message
    assert ran == []
    assert result.replay is not None
    assert result.replay.unused_children == ("root/boss.1/child.1",)
    assert len(runtime.list()) == 2
    if elsewhere:
        runtime = await Runtime.open(boss, "r", store=store)
        assert runtime.result().error == result.error
    assert runtime.inspect("root/boss.1").state is not State.CLOSED, "the run stays open"
    result = await runtime.recover()
    assert (result.status, result.text) == (Status.DONE, "end")
    assert tools_said(runtime.transcript(result.handle)) == ["child is through"]
    assert len(runtime.list()) == 2
    assert result.replay is not None
    assert result.replay.unused_children == ()


async def test_a_refused_delegation_is_bought_once_more() -> None:
    """The turn that was dropped is still to be bought again: `recover` counts it, and the one after it."""
    script = wording(task("settle it"), task("settle IT"), task("settle it"), after="end")

    def two_turns(request: Any) -> Any:
        said = [m.role for m in request.messages].count("assistant")
        return call("approve") if said == 1 else script(request)

    leaf = agent([say("settled")], name="child")
    result, runtime = await Agent("a", does="x", tools=[approve], team=[leaf]).run(
        "go", model=MockModel({"a": two_turns, "child": [say("settled")]})
    )
    result = await runtime.resume(yes(first(result)))
    assert result.error is not None
    assert result.error.type == "ReplayDiverged"
    assert result.replay is not None
    assert result.replay.turns_bought_again == 1
    result = await runtime.recover()
    assert result.replay is not None
    assert (result.text, result.replay.turns_bought_again, result.turns) == ("end", 2, 6)


async def test_a_child_nobody_claims_is_reported() -> None:
    boss = agent(wording(task("p"), say("I know it already")), name="boss", team=[child()])
    result, runtime = await boss.run("go")
    result = await runtime.resume(yes(result))
    assert (result.status, result.text) == (Status.DONE, "I know it already")
    assert result.replay is not None
    assert result.replay.unused_children == ("root/boss.1/child.1",)
    assert runtime.inspect("root/boss.1/child.1").state is State.CLOSED


async def test_an_answer_nobody_uses_is_reported() -> None:
    result, runtime = await agent(wording(call("approve"), say("never mind")), approve).run("go")
    old = first(result)
    result = await runtime.resume(yes(old))
    assert result.status is Status.DONE
    assert result.replay is not None
    assert result.replay.unused_answers == (old.id,)


async def test_a_new_delegation_beside_the_old_one_is_started() -> None:
    boss = agent(wording(task("p"), [task("more"), task("p")]), name="boss", team=[child()])
    result, runtime = await boss.run("go")
    result = await runtime.resume(yes(result))
    assert result.status is Status.PENDING
    assert [v.id for v in runtime.list()][1:] == ["root/boss.1/child.1", "root/boss.1/child.2"]
    assert first(result).path[-1] == "child.2"


# --------------------------------------------------------------- reattachment


async def test_identical_parallel_delegations_are_two_children_found_again_in_order() -> None:
    heard = iter(["first", "second"])

    @tool
    def draw() -> str:
        """Draw."""
        return next(heard)

    def leaf(request: Any) -> Any:
        said = [m.text for m in request.messages if m.role == "tool"]
        return [call("draw"), call("approve"), say(f"drew {said[0] if said else ''}")][min(len(said), 2)]

    worker = agent(leaf, tool(on_replay="reuse")(draw.__wrapped__), approve, name="child")
    boss = agent([[task("same"), task("same")], say("end")], name="boss", team=[worker])
    result, runtime = await boss.run("go")
    assert len(result.pendings) == 2
    assert [r.path[-1] for r in result.pendings] == ["child.1", "child.2"]
    for request in reversed(result.pendings):
        result = await runtime.resume(yes(request))
    assert result.status is Status.DONE
    assert sorted(tools_said(runtime.transcript(result.handle))) == ["drew first", "drew second"]
    assert len(runtime.list()) == 3
    ones = [tools_said(runtime.transcript(f"root/boss.1/child.{n}"))[0] for n in (1, 2)]
    assert tools_said(runtime.transcript(result.handle)) == [f"drew {one}" for one in ones]


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_rewound_parent_finds_settled_children_and_buys_nothing_of_them(elsewhere: bool) -> None:
    @tool
    def note() -> str:
        """Note."""
        return "noted"

    quick = agent([call("note"), say("quick is through")], note, name="quick")
    boss = agent([[task("p", "quick"), task("p")], say("end")], name="boss", team=[quick, child()])
    store = MemoryStore()
    result, runtime = await boss.run("go", store=store, run_id="r")
    spent = runtime.usage_tokens("root/boss.1/quick.1")
    if elsewhere:
        runtime = await Runtime.open(boss, "r", store=store)
    result = await runtime.resume(yes(result))
    assert result.status is Status.DONE
    assert tools_said(runtime.transcript(result.handle)) == ["quick is through", "child is through"]
    assert runtime.usage_tokens("root/boss.1/quick.1") == spent
    assert len(runtime.list()) == 3


async def test_a_failed_child_is_found_again_as_it_is() -> None:
    bad = agent([RuntimeError("boom")], name="bad")
    boss = agent([[task("p", "bad"), task("p")], say("end")], name="boss", team=[bad, child()])
    result, runtime = await boss.run("go")
    result = await runtime.resume(yes(result))
    assert tools_said(runtime.transcript(result.handle)) == ["[error] RuntimeError: boom", "child is through"]
    assert runtime.inspect("root/boss.1/bad.1").turns == 0
    assert len(runtime.list()) == 3


async def test_reattachment_covers_task_calls_only() -> None:
    ran: list[int] = []

    @tool
    def count() -> str:
        """Count."""
        ran.append(1)
        return "counted"

    boss = agent([[call("count"), task("p")], say("end")], count, name="boss", team=[child()])
    result, runtime = await boss.run("go")
    assert [c.tool for c in first(result).replays] == ["count"]
    await runtime.resume(yes(result))
    assert ran == [1, 1]
