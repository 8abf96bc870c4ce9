"""B051: what tools raise beside a healthy sibling; outer cancellation; the end of the process."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from tests.driver.support import agent, calling, results

from overt import Runtime, tool


@tool(on_replay="reuse")
async def healthy() -> str:
    await anyio.lowlevel.checkpoint()
    return "healthy"


@pytest.mark.parametrize("error", [asyncio.CancelledError(), GeneratorExit()], ids=lambda e: type(e).__name__)
async def test_raised_by_the_tool_itself_it_is_a_tool_error(error: BaseException) -> None:
    @tool
    async def odd() -> str:
        raise error

    result, rt = await agent(odd, healthy).run("go", model=calling("odd", "healthy"))
    assert result.status == "done"
    assert results(rt) == [(type(error).__name__, True), ("healthy", False)]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()], ids=lambda e: type(e).__name__)
async def test_the_end_of_the_process_leaves_its_call_in_doubt(error: BaseException) -> None:
    @tool(on_replay="reuse")
    async def ends() -> str:
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        raise error

    runtime = Runtime(agent(ends, healthy), model=calling("healthy", "ends"))
    with pytest.raises(type(error)):
        await runtime.run("go")
    assert runtime.result().status == "interrupted"
    result = await runtime.recover()
    assert [(r.kind, r.data["call"]["tool"]) for r in result.pendings] == [("in_doubt", "ends")]  # type: ignore[index,call-overload]  # JSON


async def test_outer_cancellation_propagates_after_the_state_is_saved() -> None:
    begun, entered = anyio.Event(), []

    @tool
    async def waits() -> str:
        entered.append(1)
        begun.set()
        if len(entered) == 1:
            await anyio.sleep_forever()
        return "waited"

    runtime = Runtime(agent(waits, healthy), model=calling("healthy", "waits"))
    async with anyio.create_task_group() as group:

        async def stop() -> None:
            await begun.wait()
            await anyio.lowlevel.checkpoint()
            scope.cancel()

        group.start_soon(stop)
        with anyio.CancelScope() as scope:
            await runtime.run("go")
    assert scope.cancelled_caught
    assert runtime.result().status == "interrupted"
    result = await runtime.recover()
    if result.pending is None:
        assert results(runtime) == [("healthy", False), ("waited", False)]
