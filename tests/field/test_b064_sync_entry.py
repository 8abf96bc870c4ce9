"""B064: the synchronous door works twice, after a closed loop, in a thread, and refuses inside a running loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from overt import Agent, Answer, ToolContext, tool
from overt.errors import UsageError
from overt.testing import MockModel, call, say


@tool
async def ask(ctx: ToolContext[None]) -> str:
    """Ask."""
    return str((await ctx.ask("ok?")).data)


AGENT = Agent("a", does="Works.", tools=[ask], model=MockModel([call("ask"), say("end")]))


def once() -> str:
    """Run and answer, both without a loop."""
    result, runtime = AGENT.run_sync("go")
    assert result.pending is not None
    return runtime.resume_sync(Answer(id=result.pending.id, ok=True, data=1)).text


def test_twice_and_after_a_loop_was_closed() -> None:
    assert (once(), once()) == ("end", "end")
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.close()
    assert once() == "end"
    asyncio.set_event_loop(None)


def test_in_a_worker_thread() -> None:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(once()))
    thread.start()
    thread.join()
    assert found == ["end"]


def test_one_agent_in_two_loops() -> None:
    for _ in range(2):
        result, _ = asyncio.run(AGENT.run("go"))
        assert result.status == "pending"


async def test_inside_a_running_loop_it_says_what_to_await() -> None:
    with pytest.raises(UsageError, match=r"await agent\.run"):
        AGENT.run_sync("go")
    result, runtime = await AGENT.run("go")
    assert result.pending is not None
    with pytest.raises(UsageError, match="await resume"):
        runtime.resume_sync(Answer(id=result.pending.id, ok=True))
    assert (await runtime.resume(Answer(id=result.pending.id, ok=True, data=1))).text == "end"
