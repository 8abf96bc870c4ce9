"""Suspended children: who waits for whom, what ends them, and what their parents do then."""

from __future__ import annotations

from typing import Any

import pytest

from overt import InboxItem, ResumePolicy, Runtime, State, Status, UsageError, tool
from overt.errors import AlreadyAnswered, AwaitingAnswer
from overt.stores import MemoryStore
from overt.testing import call, say
from tests.suspend_kit import agent, approve, first, tools_said, yes

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("policy", list(ResumePolicy))


def task(name: str, prompt: str = "p") -> Any:
    return call("task", agent=name, prompt=prompt)


def family(*, levels: int = 2) -> Any:
    """A chain of agents; the last one asks."""
    below = agent([call("approve"), say("leaf is through")], approve, name=f"a{levels}")
    for level in range(levels - 1, 0, -1):
        below = agent([task(below.name), say(f"a{level} is through")], name=f"a{level}", team=[below])
    return below


@BOTH
@pytest.mark.parametrize("levels", [2, 3])
async def test_pending_goes_all_the_way_up_and_back(policy: ResumePolicy, levels: int) -> None:
    worker = family(levels=levels)
    store = MemoryStore()
    result, runtime = await worker.run("go", resume_policy=policy, store=store, run_id="r")
    assert (result.status, result.handle) == (Status.PENDING, "root/a1.1")
    assert first(result).path == ("root", *(f"a{n}.1" for n in range(1, levels + 1)))
    assert [v.state for v in runtime.list()] == [State.SUSPENDED] * levels
    assert [v.pending_kind for v in runtime.list()] == ["approval"] * levels
    there = await Runtime.open(family(levels=levels), "r", store=store)
    result = await there.resume(yes(result))
    assert (result.status, result.text) == (Status.DONE, "a1 is through")
    assert len(there.list()) == levels, "no child is made twice"
    assert tools_said(there.transcript("root/a1.1")) == [
        "leaf is through" if levels == 2 else "a2 is through"
    ]


@BOTH
async def test_an_ancestor_goes_on_when_nothing_below_is_parked(policy: ResumePolicy) -> None:
    one = agent([call("approve", what="1"), say("one")], approve, name="one")
    two = agent([call("approve", what="2"), say("two")], approve, name="two")
    boss = agent(
        [[task("one"), task("two"), call("approve", what="3")], say("end")],
        approve,
        name="boss",
        team=[one, two],
    )
    result, runtime = await boss.run("go", resume_policy=policy)
    assert [r.prompt for r in result.pendings] == ["do 1?", "do 2?", "do 3?"]
    by = {r.prompt: r for r in result.pendings}
    result = await runtime.resume(yes(by["do 1?"]))
    assert runtime.inspect("root/boss.1/one.1").state is State.CLOSED, "other branches do not wait"
    assert result.status is Status.PENDING
    assert result.own_usage.turns == 1
    result = await runtime.resume(yes(by["do 3?"]))
    assert [r.prompt for r in result.pendings] == ["do 2?"]
    assert result.own_usage.turns == 1, "the parent waits for what is parked below it"
    result = await runtime.resume(yes(by["do 2?"]))
    assert result.status is Status.DONE
    assert tools_said(runtime.transcript(result.handle)) == ["one", "two", "3: yes"]
    assert len(runtime.list()) == 3


@pytest.mark.parametrize("end", ["interrupt", "close"])
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_ending_a_suspended_child_settles_the_parents_call_without_a_rewind(
    end: str, elsewhere: bool
) -> None:
    ran: list[int] = []

    @tool
    def count() -> str:
        """Count."""
        ran.append(1)
        return "counted"

    child = agent([call("approve"), say("child")], approve, name="child")
    boss = agent([call("count"), task("child"), say("end")], count, name="boss", team=[child])
    store = MemoryStore()
    result, runtime = await boss.run("go", store=store, run_id="r")
    request = first(result)
    if elsewhere:
        runtime = await Runtime.open(boss, "r", store=store)
    handle = "root/boss.1/child.1"
    await (runtime.interrupt(handle) if end == "interrupt" else runtime.close(handle, reason="not needed"))
    result = runtime.result()
    assert (result.status, result.text) == (Status.DONE, "end")
    assert (ran, result.turns) == ([1], 3), "only an answer rewinds"
    said = tools_said(runtime.transcript(result.handle))[-1]
    assert said.startswith("[interrupted]" if end == "interrupt" else "[closed]")
    with pytest.raises(AlreadyAnswered) as caught:
        await runtime.resume(yes(request))
    assert (caught.value.answer.ok, caught.value.answer.reason) == (False, "cancelled")


async def test_interrupting_the_entry_cancels_what_is_open_below() -> None:
    result, runtime = await family(levels=3).run("go")
    await runtime.interrupt()
    assert runtime.result().status is Status.INTERRUPTED
    assert runtime.pendings() == ()
    with pytest.raises(AlreadyAnswered):
        await runtime.resume(yes(result))


async def test_closing_the_tree_cancels_what_is_open() -> None:
    _, runtime = await family().run("go")
    await runtime.close()
    assert runtime.result().status is Status.CLOSED
    assert runtime.pendings() == ()
    assert {v.state for v in runtime.list()} == {State.CLOSED}


async def test_a_prompt_to_a_suspended_handle_raises_and_post_buffers() -> None:
    worker = agent([call("approve"), say("end")], approve)
    async with Runtime(worker) as runtime:
        handle = await runtime.spawn(runtime.root, "w")
        result = await runtime.run_turn(handle, "one")
        assert result.status is Status.PENDING
        for verb in (runtime.wake, runtime.run_turn):
            with pytest.raises(AwaitingAnswer) as caught:
                await verb(handle, "two")
            assert caught.value.request_ids == (first(result).id,)
        posted = await runtime.post(handle, InboxItem(sender="external", channel="external", text="later"))
        assert posted.ok
        assert runtime.inspect(handle).inbox == 1
        await runtime.resume(yes(result))
        assert (await runtime.wait(handle)).text == "end"
        assert runtime.inspect(handle).inbox == 1
        await runtime.close()


async def test_a_prompt_to_the_parent_of_a_suspended_child_raises_too() -> None:
    result, runtime = await family().run("go")
    with pytest.raises(AwaitingAnswer) as caught:
        await runtime.wake("root/a1.1", "again")
    assert caught.value.request_ids == (first(result).id,)
    with pytest.raises(UsageError):
        await runtime.run("again")


async def test_a_failed_child_of_a_resume_is_an_error_result() -> None:
    child = agent([call("approve"), RuntimeError("503")], approve, name="child")
    boss = agent([task("child"), say("end")], name="boss", team=[child])
    result, runtime = await boss.run("go", resume_policy=ResumePolicy.CONTINUE)
    result = await runtime.resume(yes(result))
    assert (result.status, result.text) == (Status.DONE, "end")
    assert tools_said(runtime.transcript(result.handle)) == ["[error] RuntimeError: 503"]


async def test_a_failure_after_an_approval_keeps_the_approval() -> None:
    fails = iter([True, False])
    ran: list[int] = []

    @tool(on_replay="reuse")
    def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    def script(request: Any) -> Any:
        done = sum(m.role == "assistant" for m in request.messages)
        if done == 2 and next(fails):
            return RuntimeError("503")
        return [call("approve"), call("pay"), say("end")][done]

    result, runtime = await agent(script, approve, pay).run("go")
    result = await runtime.resume(yes(result))
    assert result.status is Status.ERROR
    result = await runtime.recover()
    assert result.status is Status.DONE
    assert tools_said(runtime.transcript(result.handle)) == ["it: yes", "paid"]
    assert ran == [1]


async def test_a_closed_childs_children_are_closed_with_it() -> None:
    result, runtime = await family(levels=3).run("go")
    await runtime.close("root/a1.1/a2.1")
    assert runtime.pendings() == ()
    result = runtime.result()
    assert result.status is Status.DONE
    assert [v.state for v in runtime.list()] == [State.CLOSED] * 3
