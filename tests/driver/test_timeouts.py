"""Tool timeouts: on the run's clock, and without waiting for the tool's clean-up."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from overt import Answer, Budget, Runtime, ToolContext, tool
from overt.errors import UsageError
from overt.message import ModelRequest
from overt.testing import MockModel, VirtualClock, call, say
from tests.driver.support import Cancelled, agent, calling, results, tasks


async def drive(runtime: Runtime[Any], clock: VirtualClock, seconds: float, *, sleepers: int = 1) -> Any:
    async with anyio.create_task_group() as group:

        async def later() -> None:
            await clock.wait_for_sleepers(sleepers)
            await clock.advance(seconds)

        group.start_soon(later)
        return await runtime.run("go")
    raise AssertionError


async def test_the_model_hears_of_it_while_the_clean_up_still_goes_on() -> None:
    clock, told, cleaned = VirtualClock(), anyio.Event(), []

    @tool(timeout=5)
    async def slow() -> str:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                # Were the clean-up waited for, this would never be set.
                await told.wait()
            cleaned.append("yes")
        return "x"

    async def reply(request: ModelRequest) -> Any:
        if len(request.messages) == 1:
            return call("slow")
        assert cleaned == []
        told.set()
        return say(request.messages[-1].text)

    before = tasks()
    runtime = Runtime(agent(slow), model=MockModel(reply), clock=clock)
    result = await drive(runtime, clock, 5)
    assert result.status == "done"
    assert result.text == "slow timed out after 5 s"
    assert results(runtime) == [("slow timed out after 5 s", True)]
    assert cleaned == ["yes"]
    assert tasks() == before


async def test_just_in_time_is_in_time() -> None:
    clock = VirtualClock()

    @tool(timeout=5)
    async def slow() -> str:
        await clock.sleep(4.999)
        return "in time"

    runtime = Runtime(agent(slow), model=calling("slow"), clock=clock)
    await drive(runtime, clock, 5, sleepers=2)
    assert results(runtime) == [("in time", False)]


async def test_parallel_ones_each_have_their_own() -> None:
    clock = VirtualClock()

    def sleeper(name: str, timeout: float, takes: float) -> Any:
        @tool(name=name, timeout=timeout)
        async def sleeps() -> str:
            await clock.sleep(takes)
            return name

        return sleeps

    tools = [sleeper("a", 3, 10), sleeper("b", 10, 5), sleeper("c", 4, 10), sleeper("d", 1, 0.5)]
    runtime = Runtime(agent(*tools), model=calling("a", "b", "c", "d"), clock=clock)
    await drive(runtime, clock, 20, sleepers=8)
    assert results(runtime) == [
        ("a timed out after 3 s", True),
        ("b", False),
        ("c timed out after 4 s", True),
        ("d", False),
    ]


async def test_a_tool_in_a_thread_is_left_behind() -> None:
    clock, go_on, entered = VirtualClock(), threading.Event(), threading.Event()

    @tool(timeout=5)
    def slow() -> str:
        entered.set()
        assert go_on.wait(30)
        return "too late"

    async def reply(request: ModelRequest) -> Any:
        if len(request.messages) == 1:
            return call("slow")
        go_on.set()
        return say("done")

    runtime = Runtime(agent(slow), model=MockModel(reply), clock=clock)
    await drive(runtime, clock, 5)
    assert results(runtime) == [("slow timed out after 5 s", True)]


async def test_one_that_swallows_the_cancellation_and_returns_is_too_late_all_the_same() -> None:
    clock = VirtualClock()

    @tool(timeout=5)
    async def stubborn() -> str:
        try:
            await anyio.sleep_forever()
        except Cancelled:
            return "too late"
        return "x"

    runtime = Runtime(agent(stubborn), model=calling("stubborn"), clock=clock)
    await drive(runtime, clock, 5)
    assert results(runtime) == [("stubborn timed out after 5 s", True)]


async def test_a_call_that_may_not_be_repeated_is_in_doubt() -> None:
    clock, entered = VirtualClock(), []

    @tool(timeout=5, on_replay="reuse")
    async def pays() -> str:
        entered.append("pays")
        if len(entered) == 1:
            await anyio.sleep_forever()
        return "paid"

    @tool(timeout=5)
    async def quick() -> str:
        return "quick"

    runtime = Runtime(agent(pays, quick), model=calling("pays", "quick"), clock=clock)
    result = await drive(runtime, clock, 5)
    assert result.status == "pending"
    assert result.pending is not None
    assert result.pending.kind == "in_doubt"
    assert "pays" in result.pending.prompt
    result = await runtime.resume(Answer(id=result.pending.id, ok=True, data={"outcome": "retry"}))
    assert result.status == "done"
    assert results(runtime) == [("paid", False), ("quick", False)]
    assert len(entered) == 2


async def test_a_block_that_was_under_way_is_in_doubt() -> None:
    clock = VirtualClock()

    @tool(timeout=5)
    async def pays(ctx: ToolContext) -> str:
        async def block() -> str:
            await anyio.sleep_forever()
            return "x"

        return await ctx.once("pay", block)

    runtime = Runtime(agent(pays), model=calling("pays"), clock=clock)
    result = await drive(runtime, clock, 5)
    assert result.pending is not None
    assert result.pending.kind == "in_doubt"
    assert result.pending.data["once"] == "pay"


async def test_nothing_is_begun_in_the_clean_up() -> None:
    """A `once` block of a call that was given up would run an effect nobody has written down."""
    clock, ran, errors = VirtualClock(), [], []

    @tool(timeout=5)
    async def slow(ctx: ToolContext) -> str:
        async def block() -> str:
            ran.append("block")
            return "x"

        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    await ctx.once("late", block)
                except UsageError as error:
                    errors.append(str(error))
        return "x"

    runtime = Runtime(agent(slow), model=calling("slow"), clock=clock)
    assert (await drive(runtime, clock, 5)).status == "done"
    assert ran == []
    assert "given up" in errors[0]


async def test_a_question_in_time_is_a_question() -> None:
    clock = VirtualClock()

    @tool(timeout=5)
    async def asks(ctx: ToolContext) -> str:
        return str((await ctx.ask("who?")).data)

    runtime = Runtime(agent(asks), model=calling("asks"), clock=clock)
    result = await runtime.run("go")
    assert result.pending is not None
    await runtime.resume(Answer(id=result.pending.id, ok=True, data="me"))
    assert results(runtime) == [("me", False)]


@pytest.mark.parametrize("early", [0.0, 0.5])
async def test_max_wall_holds_although_the_clock_wakes_early(early: float) -> None:
    """A sleep that ends before its time must not be the last look at the budget."""

    class Early(VirtualClock):
        async def sleep(self, seconds: float) -> None:
            await super().sleep(seconds - early if seconds > 1 else seconds)

    clock = Early()

    async def reply(request: ModelRequest) -> Any:
        await anyio.sleep_forever()

    runtime = Runtime(agent(), model=MockModel(reply), clock=clock, budget=Budget(max_wall=10))
    result = await drive(runtime, clock, 11)
    assert result.status == "incomplete"
    assert result.limit == "maxWall"
