"""The scripted model streams what it would have returned."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overt.errors import DefinitionError, ModelError
from overt.message import (
    AssistantMessage,
    Model,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    StreamingModel,
    ToolCall,
    Usage,
    UserMessage,
)
from overt.models.assemble import Assembler
from overt.testing import MockModel, Reply, VirtualClock, call, raw_call, say

ASKED = ModelRequest(messages=(UserMessage(text="go"),), agent="clerk")


async def streamed(model: StreamingModel, asked: ModelRequest = ASKED) -> ModelResponse:
    made = Assembler()
    async for delta in model.stream(asked):
        made.add(delta)
    return made.response()


async def pieces(model: StreamingModel) -> list[ModelDelta]:
    return [delta async for delta in model.stream(ASKED)]


async def read_into(got: list[ModelDelta], model: StreamingModel) -> None:
    """Keep what came also where the stream raises."""
    async for delta in model.stream(ASKED):
        got.append(delta)  # noqa: PERF401  # a comprehension keeps nothing of a stream that raises


REPLIES: dict[str, Reply] = {
    "text": say("A text of some length, é😀\x00, cut in pieces."),
    "empty": say(""),
    "call": call("price", item="tea", options={"deep": [1, 2.5, None, True, "é😀"]}),
    "call without arguments": call("now"),
    "text and calls": ["Both. ", call("a", n=1), raw_call("a", '{"n": 2}'), call("b", text="x" * 50)],
    "broken arguments": [raw_call("a", '{"n": '), call("b", n=1), raw_call("c", "")],
    "cut off": raw_call("write", '{"path": "a", "te', finish="length"),
    "odd ids": [raw_call("a", "{}", id=""), raw_call("a", "{}", id="x"), raw_call("a", "{}", id="x")],
    "no usage": say("free", usage=None),
    "own usage": say(
        "dear",
        usage=Usage(input_tokens=80, output_tokens=20, cached_tokens=7, reasoning_tokens=5, total_tokens=100),
    ),
    "refusal": say("I will not.", finish="refusal"),
    "filtered": say("", finish="content_filter"),
    "response": ModelResponse(
        message=AssistantMessage(
            text="Answer.",
            reasoning="I think, therefore I am long.",
            opaque={"mock": {"signature": "abc"}},
            tool_calls=(ToolCall(id="t1", name="a", arguments={"n": [1]}),),
        ),
        finish_reason="unknown",
        raw_finish_reason="eos",
        model="mock-2",
        invalid_arguments={},
    ),
    "empty reasoning": ModelResponse(message=AssistantMessage(text="x", reasoning=""), usage=Usage()),
}
kinds = pytest.mark.parametrize("reply", list(REPLIES.values()), ids=list(REPLIES))


def test_is_a_streaming_model() -> None:
    model = MockModel(["x"])
    assert isinstance(model, StreamingModel)
    assert isinstance(model, Model)


def test_a_model_without_stream_is_not_one() -> None:
    class Plain:
        name = "plain"

        async def generate(self, request: ModelRequest) -> ModelResponse:
            raise NotImplementedError

    assert isinstance(Plain(), Model)
    assert not isinstance(Plain(), StreamingModel)


@kinds
@pytest.mark.parametrize("chunk", [1, 2, 8, 10_000])
async def test_the_pieces_together_are_the_reply(reply: Reply, chunk: int) -> None:
    model = MockModel([reply], chunk=chunk)
    assert await streamed(model) == await model.generate(ASKED)


@given(text=st.text(max_size=40), chunk=st.integers(1, 9), tokens=st.integers(0, 500))
def test_any_text_in_any_pieces(text: str, chunk: int, tokens: int) -> None:
    async def both() -> None:
        model = MockModel([[say(text, tokens=tokens), call("t", text=text)]], chunk=chunk)
        assert await streamed(model) == await model.generate(ASKED)

    anyio.run(both)


async def test_text_reasoning_and_arguments_come_in_pieces_of_the_size_asked_for() -> None:
    response = ModelResponse(
        message=AssistantMessage(
            text="abcdefg",
            reasoning="hijkl",
            tool_calls=(ToolCall(id="1", name="t", arguments={"n": "mnopq"}),),
        )
    )
    said = await pieces(MockModel([response], chunk=3))
    assert [d.text for d in said if d.text] == ["abc", "def", "g"]
    assert [d.reasoning for d in said if d.reasoning] == ["hij", "kl"]
    calls = [d.tool_call for d in said if d.tool_call is not None]
    assert "".join(c.arguments or "" for c in calls) == '{"n": "mnopq"}'
    assert max(len(c.arguments or "") for c in calls) == 3
    assert [(c.id, c.name) for c in calls] == [("1", "t")] + [(None, None)] * (len(calls) - 1)


async def test_usage_is_what_it_came_to_so_far_and_said_several_times() -> None:
    usage = Usage(input_tokens=80, output_tokens=20, cached_tokens=7, reasoning_tokens=5, total_tokens=100)
    said = [d.usage for d in await pieces(MockModel([say("x" * 30, usage=usage)])) if d.usage is not None]
    assert len(said) > 3
    assert said[-2:] == [usage, usage]
    assert said[0] == Usage(input_tokens=80, cached_tokens=7, total_tokens=80)
    totals = [u.total_tokens for u in said]
    assert totals == sorted(totals)


async def test_a_reply_without_usage_streams_none() -> None:
    assert not [d for d in await pieces(MockModel([say("x", usage=None)])) if d.usage is not None]


async def test_what_the_script_raises_is_raised_before_the_first_piece() -> None:
    got: list[ModelDelta] = []
    with pytest.raises(TimeoutError):
        await read_into(got, MockModel([TimeoutError("late")]))
    assert got == []
    with pytest.raises(ModelError) as caught:
        await streamed(MockModel([]))
    assert caught.value.type == "ScriptExhausted"


async def test_a_reply_may_break_off_in_the_middle() -> None:
    model = MockModel([say("abcdef", fail_after=2)], chunk=1)
    got: list[ModelDelta] = []
    with pytest.raises(ModelError) as caught:
        await read_into(got, model)
    assert [delta.text for delta in got] == ["a", "b"]
    assert (caught.value.type, caught.value.retryable) == ("StreamBroken", True)
    with pytest.raises(ModelError, match="broke off"):
        await model.generate(ASKED)


@pytest.mark.parametrize("part", [call("t", n=1), raw_call("t", "{}", fail_after=0), say("x")])
async def test_any_part_can_break_off(part: Any) -> None:
    got: list[ModelDelta] = []
    with pytest.raises(ModelError, match="after 0 pieces"):
        await read_into(got, MockModel([["text", part.with_options(fail_after=0)]]))
    assert got == []


async def test_a_first_attempt_that_dies_is_followed_by_a_good_one() -> None:
    replies: list[Reply] = [say("no", fail_after=1), say("yes")]
    model = MockModel(lambda request: replies.pop(0))
    with pytest.raises(ModelError):
        await streamed(model)
    assert (await streamed(model)).message.text == "yes"
    assert len(model.requests) == 2


async def test_nothing_is_asked_before_the_first_piece() -> None:
    model = MockModel(["x"])
    stream = model.stream(ASKED)
    assert model.requests == []
    async for _ in stream:
        break
    assert model.requests == [ASKED]
    await stream.aclose()  # type: ignore[attr-defined]  # an async generator, which the protocol leaves open


async def test_others_run_between_the_pieces() -> None:
    order: list[str] = []

    async def reader(name: str) -> None:
        async for delta in MockModel([say("abcdef")], chunk=1).stream(ASKED):
            if delta.text:
                order.append(name)  # noqa: PERF401  # the order of the two readers is what is looked at

    async with anyio.create_task_group() as group:
        group.start_soon(reader, "1")
        group.start_soon(reader, "2")
    assert sorted(order) == ["1"] * 6 + ["2"] * 6
    assert order not in (sorted(order), sorted(order, reverse=True))


async def test_a_stream_can_be_cancelled_between_its_pieces() -> None:
    got: list[ModelDelta] = []
    with anyio.CancelScope() as scope:
        async for delta in MockModel([say("abcdef")], chunk=1).stream(ASKED):
            got.append(delta)
            scope.cancel()
    assert len(got) == 1


async def test_thinking_takes_its_time_before_the_first_piece() -> None:
    clock = VirtualClock()
    got: list[ModelResponse] = []

    async def read() -> None:
        got.append(await streamed(MockModel(["x"], think_time=3, clock=clock)))

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await clock.wait_for_sleepers()
        assert got == []
        await clock.advance(3)
    assert got[0].message.text == "x"


def test_whether_it_takes_an_output_schema_is_said() -> None:
    assert MockModel(["x"]).structured_output is False
    assert MockModel(["x"], structured_output=True).structured_output is True


@pytest.mark.parametrize("chunk", [0, -1, True, 2.0, "8"])
def test_a_size_that_is_none_is_refused(chunk: Any) -> None:
    with pytest.raises(DefinitionError, match="chunk is an int of at least 1"):
        MockModel(["x"], chunk=chunk)
