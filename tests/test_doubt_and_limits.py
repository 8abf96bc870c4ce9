"""Doubt and questions across a limit, as a host meets them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from overt import (
    Budget,
    ResumePolicy,
    Runtime,
    Status,
    TaskResult,
    ToolContext,
    ToolResult,
    pending,
    tool,
)
from overt.errors import RequestExpired
from overt.stores import MemoryStore
from overt.testing import VirtualClock, call, say
from tests.suspend_kit import agent, approve, first, tools_said, yes

pytestmark = pytest.mark.anyio


async def driven(clock: VirtualClock, work: Any, *seconds: float) -> Any:
    """Run `work` while the clock moves on by these steps."""
    found: list[Any] = []

    async def host() -> None:
        found.append(await work)

    async with anyio.create_task_group() as group:
        group.start_soon(host)
        for step in seconds:
            await clock.advance(step)
    return found[0]


class World:
    """A payment that never comes back, and a call that is slow the first time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.paid = 0
        self.slow_done = 0
        world = self

        @tool(on_replay="reuse", timeout=5)
        async def pay() -> str:
            """Pay."""
            world.paid += 1
            await world.clock.sleep(1_000)
            return "paid"

        @tool
        async def slow() -> str:
            """Take a minute, once."""
            if world.slow_done == 0:
                world.slow_done = 1
                await world.clock.sleep(60)
            return "slow"

        self.pay, self.slow = pay, slow


async def test_a_payment_in_doubt_is_asked_after_extend_and_not_made_again() -> None:
    world = World()
    worker = agent([[call("pay"), call("slow")], say("end")], world.pay, world.slow)
    runtime = Runtime(worker, clock=world.clock, budget=Budget(max_wall=10))
    result: TaskResult[str] = await driven(world.clock, runtime.run("go"), 6, 5)
    assert (result.status, result.limit, result.pendings) == (Status.INCOMPLETE, "maxWall", ())
    assert "In doubt" in result.text
    assert "pay({})" in result.text
    result = await driven(world.clock, runtime.extend(Budget(max_wall=100)), 1)
    request = first(result)
    assert (request.kind, world.paid) == ("in_doubt", 1)
    result = await runtime.resume(yes(request, {"outcome": "succeeded", "output": "receipt"}))
    assert (result.status, world.paid) == (Status.DONE, 1)
    assert tools_said(runtime.transcript(result.handle)) == ["receipt", "slow"]


async def test_a_rewind_to_a_stop_in_doubt_goes_on() -> None:
    world = World()
    worker = agent([call("pay"), call("approve"), say("end")], world.pay, approve)
    runtime = Runtime(worker, clock=world.clock, budget=Budget(max_wall=3))
    result = await driven(world.clock, runtime.run("go"), 4)
    assert result.limit == "maxWall"
    result = await driven(world.clock, runtime.extend(Budget(max_wall=100)), 0)
    result = await runtime.resume(yes(result, {"outcome": "succeeded", "output": "receipt"}))
    assert first(result).kind == "approval"
    result = await runtime.resume(yes(result), policy=ResumePolicy.REWIND)
    assert (result.status, world.paid) == (Status.DONE, 1)
    assert tools_said(runtime.transcript(result.handle))[0] == "receipt"


async def test_a_parent_is_told_of_its_child_in_doubt() -> None:
    world = World()
    child = agent([call("pay"), say("end")], world.pay, name="c", budget=Budget(max_wall=3))
    parent = agent([call("task", agent="c", prompt="p"), say("end")], team=[child])
    runtime = Runtime(parent, clock=world.clock)
    result = await driven(world.clock, runtime.run("go"), 4)
    assert result.status is Status.DONE
    message = runtime.transcript(result.handle)[2]
    assert message.role == "tool"
    assert "In doubt" in message.text
    assert message.metadata["in_doubt"] == ["pay({})"]
    assert tools_said(runtime.transcript(f"{result.handle}/c.1")) == ["entered, outcome unknown (maxWall)"]


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_a_pending_that_a_limit_cancelled_gets_its_answer(policy: ResumePolicy) -> None:
    world = World()
    asked: list[bool] = []

    @tool
    async def signed(ctx: ToolContext) -> ToolResult:
        """Ask before anything else."""
        asked.append(ctx.answer is None)
        return pending(kind="approval", prompt="go?") if ctx.answer is None else ToolResult("signed")

    worker = agent([[call("signed"), call("slow")], say("end")], signed, world.slow)
    runtime = Runtime(worker, clock=world.clock, budget=Budget(max_wall=10), resume_policy=policy)
    result = await driven(world.clock, runtime.run("go"), 1, 10)
    assert (result.limit, result.pendings) == ("maxWall", ())
    assert any("RequestCancelled" in line for line in runtime.trace())
    result = await driven(world.clock, runtime.extend(Budget(max_wall=100)), 1)
    assert result.status is Status.PENDING
    result = await runtime.resume(yes(result))
    assert (result.status, asked) == (Status.DONE, [True, True, False])
    assert tools_said(runtime.transcript(result.handle)) == ["signed", "slow"]


# ------------------------------------------------------------ expiry in a live runtime


async def test_a_late_answer_in_a_live_runtime_is_refused_and_the_run_goes_on_by_itself() -> None:
    clock = VirtualClock()
    never = anyio.Event()
    asked = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=1)

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask with a deadline."""
        return str((await ctx.ask("?", expires_at=asked)).reason)

    @tool
    async def hang() -> str:
        """Work on and on."""
        await never.wait()
        return "ok"

    busy = agent([call("hang"), say("s")], hang, name="busy")
    asker = agent([call("ask"), say("end")], ask, name="asker")
    runtime = Runtime(agent([say("x")], team=[busy, asker]), clock=clock)
    async with runtime:
        one = await runtime.spawn(runtime.root, "busy")
        two = await runtime.spawn(runtime.root, "asker")
        await runtime.wake(one, "x")
        await runtime.wake(two, "x")
        result = await runtime.wait(two)
        request = first(result)
        await clock.advance(3_601)
        with pytest.raises(RequestExpired):
            await runtime.resume(yes(request))
        result = await runtime.wait(two)
        assert result.status is Status.DONE
        assert tools_said(runtime.transcript(two)) == ["expired"]
        assert runtime.inspect(one).state == "running"
        never.set()
        await runtime.wait(one)


# ------------------------------------------------------------ after a cancellation


async def cancelled(worker: Any, inside: anyio.Event, **options: Any) -> Runtime[str]:
    runtime = Runtime(worker, **options)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.run, "go")
        await inside.wait()
        group.cancel_scope.cancel()
    return runtime


async def test_an_interrupt_after_a_cancelled_host_ends_the_run_for_good() -> None:
    store, inside = MemoryStore(), anyio.Event()
    entered: list[int] = []

    @tool(on_replay="reuse")
    async def pay() -> str:
        """Pay."""
        entered.append(1)
        inside.set()
        await anyio.sleep_forever()
        return "paid"

    worker = agent([call("pay"), say("end")], pay)
    runtime = await cancelled(worker, inside, store=store)
    assert (runtime.result().status, len(runtime.pendings())) == (Status.INTERRUPTED, 1)
    await runtime.interrupt()
    for at in (runtime, await Runtime.open(worker, runtime.id, store=store)):
        assert (at.result().status, at.pendings()) == (Status.INTERRUPTED, ())
        result = await at.recover()
        assert (result.status, len(entered)) == (Status.INTERRUPTED, 1)
