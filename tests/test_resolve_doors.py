"""When a tool's own lookup is asked: timeouts, limits, exits, a team, and processes with other code."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from overt import (
    Agent,
    Budget,
    Doubt,
    Request,
    Resolution,
    ResumePolicy,
    Retry,
    Runtime,
    Succeeded,
    TaskResult,
    ToolContext,
    tool,
)
from overt.stores import MemoryStore
from overt.testing import VirtualClock, call, say
from tests.suspend_kit import agent, approve, first, tools_said, yes
from tests.test_doubt_and_limits import driven
from tests.test_resolve import BOTH, KINDS, Kind, World, cut_off, trail

pytestmark = pytest.mark.anyio


@KINDS
async def test_a_call_that_times_out_is_looked_up_at_once(kind: Kind) -> None:
    clock = VirtualClock()
    world = World(kind, Succeeded("receipt"), timeout=5)
    result, runtime = await driven(clock, world.agent().run("go", clock=clock), 5)
    assert (result.status, world.paid, len(world.doubts)) == ("done", world.paid[:1], 1)
    assert tools_said(runtime.transcript(result.handle)) == ["receipt"]
    assert trail(runtime) == [("asked", "resolve"), ("answered", "resolve")]


async def test_a_call_that_times_out_again_after_a_retry_is_a_new_doubt() -> None:
    clock = VirtualClock()
    world = World("reuse", Retry(), Succeeded("receipt"), timeout=5, dies=2)
    result, _ = await driven(clock, world.agent().run("go", clock=clock), 5, 5)
    assert (result.status, len(world.doubts)) == ("done", 2)
    assert (len(world.paid), len(set(world.paid))) == (2, 1)


@pytest.mark.parametrize("stubborn", [True, False])
async def test_a_lookup_has_the_time_of_its_tool(stubborn: bool) -> None:
    clock = VirtualClock()
    asked: list[int] = []
    late = anyio.Event()

    async def look(doubt: Doubt) -> Resolution | None:
        asked.append(1)
        try:
            await anyio.sleep_forever()
        except BaseException:
            if not stubborn:
                raise
        finally:
            late.set()
        return Succeeded("too late")

    @tool(on_replay="reuse", timeout=5, resolve=look)
    async def pay() -> str:
        """Pay."""
        await anyio.sleep_forever()
        return ""

    worker = agent([call("pay"), say("end")], pay)
    result, _ = await driven(clock, worker.run("go", clock=clock), 5, 5)
    assert late.is_set()
    assert (first(result).kind, asked) == ("in_doubt", [1])
    assert result.error is not None
    assert (result.error.type, result.error.source) == ("TimeoutError", "tool")
    assert result.error.message == "resolve of 'pay' did not say within 5 s"


async def test_siblings_go_on_while_it_is_asked_and_the_model_is_told_in_call_order() -> None:
    clock = VirtualClock()
    going, asked = anyio.Event(), anyio.Event()

    async def look(doubt: Doubt) -> Succeeded:
        asked.set()
        return Succeeded(f"looked up {doubt.arguments['n']}")

    @tool(on_replay="reuse", timeout=1, resolve=look)
    async def pay(n: int) -> str:
        """Pay."""
        await anyio.sleep_forever()
        return ""

    @tool
    async def slow() -> str:
        """Take longer."""
        await going.wait()
        return "slow"

    async def release() -> None:
        await asked.wait()
        going.set()

    worker = agent([[call("pay", n=1), call("slow"), call("pay", n=2)], say("end")], pay, slow)
    async with anyio.create_task_group() as group:
        group.start_soon(release)
        result, runtime = await driven(clock, worker.run("go", clock=clock), 1)
    assert result.status == "done"
    assert tools_said(runtime.transcript(result.handle)) == ["looked up 1", "slow", "looked up 2"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_an_exit_inside_it_leaves_the_doubt_and_it_is_asked_again(error: type[BaseException]) -> None:
    world = World("reuse", error(), Succeeded("receipt"))
    runtime = await cut_off(world, world.agent())
    with pytest.raises(error):
        await runtime.recover()
    runtime = await Runtime.open(world.agent(), "r", store=runtime._driver.tenure.store)
    result = await runtime.recover()
    assert (result.status, len(world.doubts), len(world.paid)) == ("done", 2, 1)


async def test_a_host_cancelled_while_it_is_asked_can_go_on() -> None:
    looking, seen = anyio.Event(), list[int]()

    async def look(doubt: Doubt) -> Succeeded:
        seen.append(1)
        if len(seen) == 1:
            looking.set()
            await anyio.sleep_forever()
        return Succeeded("receipt")

    world = World("reuse", None)
    paying = tool(world.pay.__wrapped__, on_replay="reuse", resolve=look)
    worker = agent([call("pay"), say("end")], paying)
    runtime = await cut_off(world, worker)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.recover)
        await looking.wait()
        group.cancel_scope.cancel()
    assert runtime.result().status == "interrupted"
    result = await runtime.recover()
    assert (result.status, len(seen), len(world.paid)) == ("done", 2, 1)


async def test_an_answer_that_comes_while_it_is_asked_counts() -> None:
    looking = anyio.Event()

    async def look(doubt: Doubt) -> None:
        looking.set()
        await anyio.sleep_forever()

    world = World("reuse", None)
    worker = agent([call("pay"), say("end")], tool(world.pay.__wrapped__, on_replay="reuse", resolve=look))
    runtime = await cut_off(world, worker)
    out: list[TaskResult[str]] = []

    async def recover() -> None:
        out.append(await runtime.recover())

    async with anyio.create_task_group() as group:
        group.start_soon(recover)
        await looking.wait()
        (request,) = runtime.pendings()
        await runtime.resume(yes(request, {"outcome": "succeeded", "output": "by hand"}, by="ann"))
    assert (out[0].status, trail(runtime)) == ("done", [("asked", "resolve"), ("answered", "ann")])


async def test_a_wake_that_a_limit_stopped_is_looked_up_when_it_goes_on() -> None:
    clock = VirtualClock()
    world = World("reuse", Succeeded("receipt"))
    worker = world.agent(budget=Budget(max_wall=5))
    result, runtime = await driven(clock, worker.run("go", clock=clock), 5)
    assert (result.status, result.limit, world.doubts) == ("incomplete", "maxWall", [])
    result = await runtime.extend(Budget(max_wall=100))
    assert (result.status, len(world.paid), len(world.doubts)) == ("done", 1, 1)


@BOTH
async def test_below_a_parent_that_waits(policy: ResumePolicy) -> None:
    """The child's call is looked up with the child's handle, and the parent is told as if nothing had been."""
    world = World("reuse", Succeeded("receipt"))
    child = agent([call("pay"), say("child done")], world.pay, name="c")
    boss = agent([call("task", agent="c", prompt="p"), say("end")], name="w", team=[child])
    runtime = await cut_off(world, boss, resume_policy=policy)
    result = await runtime.recover()
    assert (result.status, result.text, len(world.paid)) == ("done", "end", 1)
    assert [doubt.handle for doubt in world.doubts] == ["root/w.1/c.1"]
    assert tools_said(runtime.transcript(result.handle)) == ["child done"]


async def test_in_a_parent_beside_a_child_that_asks() -> None:
    world = World("reuse", Succeeded("receipt"))
    child = agent([call("approve"), say("child done")], approve, name="c")
    batch = [call("task", agent="c", prompt="p"), call("pay")]
    boss = agent([batch, say("end")], world.pay, name="w", team=[child])
    told = anyio.Event()

    async def on_pending(request: Request) -> None:
        told.set()

    store = MemoryStore()
    runtime = Runtime(boss, store=store, run_id="r", on_pending=on_pending)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.run, "go")
        await world.inside.wait()
        await told.wait()
        group.cancel_scope.cancel()
    runtime = await Runtime.open(boss, "r", store=store)
    (approval,) = [r for r in runtime.pendings() if r.kind == "approval"]
    result = await runtime.resume(yes(approval))
    assert (result.status, len(world.paid), len(world.doubts)) == ("done", 1, 1)
    assert tools_said(runtime.transcript(result.handle)) == ["child done", "receipt"]


async def test_before_a_rewind_whether_or_not_the_model_would_call_again() -> None:
    world = World("reuse", Succeeded("receipt"))
    runtime = await _approved(world)
    result = await runtime.recover(policy=ResumePolicy.REWIND)
    assert (result.status, len(world.paid)) == ("done", 1)
    assert tools_said(runtime.transcript(result.handle)) == ["it: yes", "receipt"]
    assert [doubt.attempt for doubt in world.doubts] == [2]
    assert result.replay is not None
    assert [call.tool for call in result.replay.calls_reused] == ["pay"]


async def _approved(world: World) -> Runtime[str]:
    store, worker = MemoryStore(), world.agent(call("approve"))
    parked, runtime = await worker.run("go", store=store, run_id="r")
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.resume, yes(parked))
        await world.inside.wait()
        group.cancel_scope.cancel()
    return await Runtime.open(worker, "r", store=store)


def plain(world: World) -> Agent[Any, str]:
    """The same agent, whose tool has no lookup."""
    return agent([call("pay"), say("end")], tool(world.pay.__wrapped__, on_replay="reuse"), approve)


async def test_code_that_has_a_lookup_by_now_settles_what_was_cut_off_before() -> None:
    world = World("reuse", Succeeded("receipt"))
    runtime = await cut_off(world, plain(world))
    runtime = await Runtime.open(world.agent(), "r", store=runtime._driver.tenure.store)
    result = await runtime.recover()
    assert (result.status, len(world.paid), len(world.doubts)) == ("done", 1, 1)


async def test_code_that_has_none_any_more_asks_a_person() -> None:
    world = World("reuse", None)
    runtime = await cut_off(world, world.agent())
    runtime = await Runtime.open(plain(world), "r", store=runtime._driver.tenure.store)
    result = await runtime.recover()
    assert (first(result).kind, world.doubts) == ("in_doubt", [])


async def test_a_tool_that_is_never_in_doubt_may_have_one() -> None:
    @tool(resolve=lambda doubt: None)
    async def look(ctx: ToolContext, at: str) -> str:
        """Look."""
        return at

    result, runtime = await agent([call("look", at="it"), say("end")], look).run("go")
    assert (result.status, trail(runtime)) == ("done", [])
