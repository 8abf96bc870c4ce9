"""B032, B033, B043 streamed: usage that is repeated, missing or lost, and a call cut off in the middle."""

from __future__ import annotations

from typing import Any

import pytest
from tests.driver.support import agent

from overt import Agent, TaskResult, Usage, tool
from overt.testing import MockModel, Reply, call, raw_call, say

DEAR = Usage(input_tokens=80, output_tokens=20, cached_tokens=7, reasoning_tokens=5, total_tokens=100)


@tool
async def nothing() -> str:
    """Do nothing."""
    return "nothing"


def loud(usage: Usage | None, **options: Any) -> MockModel:
    replies: list[Reply] = [call("nothing").with_options(usage=usage), say("x" * 40, usage=usage)]
    return MockModel(replies, **options)


async def streamed(made: Agent[None, Any], model: MockModel, *, read: bool) -> TaskResult[Any]:
    async with made.stream("go", model=model) as stream:
        if read:
            async for _ in stream:
                pass
        return await stream.result()


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("chunk", [1, 8, 1000])
async def test_usage_repeated_in_several_pieces_is_counted_once(read: bool, chunk: int) -> None:
    plain, _ = await agent(nothing).run("go", model=loud(DEAR))
    result = await streamed(agent(nothing), loud(DEAR, chunk=chunk), read=read)
    usage = result.usage
    assert usage == plain.usage
    assert (usage.cached_tokens, usage.reasoning_tokens, usage.total_tokens) == (14, 10, 200)


@pytest.mark.parametrize("read", [True, False])
async def test_usage_that_is_never_said_is_unknown(read: bool) -> None:
    # `with_options(usage=None)` and `say(usage=None)`: a provider that reports none.
    result = await streamed(agent(nothing), loud(None), read=read)
    assert result.status == "done"
    assert (result.usage.total_tokens, result.usage.unreported_calls, result.usage.model_calls) == (0, 2, 2)
    assert result.cost is None


async def test_an_attempt_that_dies_is_counted_beside_the_good_one() -> None:
    replies: list[Reply] = [say("half", fail_after=1), say("whole")]
    model = MockModel(lambda request: replies.pop(0), chunk=2)
    async with agent().stream("go", model=model) as stream:
        events = [event async for event in stream]
        result = await stream.result()
    if result.status == "error":
        result = await stream.runtime.recover()
    assert (result.status, result.text) == ("done", "whole")
    assert (result.usage.model_calls, result.usage.unreported_calls, result.usage.total_tokens) == (2, 1, 100)
    assert any(event.kind == "text" for event in events)


async def test_half_a_json_argument_is_not_run() -> None:
    entered: list[str] = []

    @tool
    async def write(path: str, text: str = "") -> str:
        entered.append(path)
        return "written"

    model = MockModel([raw_call("write", '{"path": "a", "te', finish="length")], chunk=3)
    async with agent(write).stream("go", model=model) as stream:
        events = [event async for event in stream]
        result = await stream.result()
    assert (result.status, entered) == ("error", [])
    assert result.error is not None
    assert result.error.type == "OutputTruncated"
    assert not [event for event in events if event.kind in ("tool_started", "tool_finished")]
