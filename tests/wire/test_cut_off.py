"""Streams that end anywhere, or are cut anywhere: a reply is whole or it is an error, never a shorter reply."""

from __future__ import annotations

import pytest

from overt.demo.provider.anthropic import Anthropic
from overt.demo.provider.chat import OpenAIChat
from overt.demo.provider.google import Google
from overt.demo.provider.responses import OpenAIResponses
from overt.demo.provider.spoken import Spoken
from overt.errors import ModelError
from overt.message import ModelRequest, ModelResponse, StreamingModel, ToolSpec, UserMessage
from overt.models.assemble import Assembler
from overt.testing import MockModel, call
from tests.wire.adapters import Adapter, each_adapter
from tests.wire.raw import sending

pytestmark = [pytest.mark.anyio, each_adapter]

SPOKEN: dict[str, Spoken] = {
    "openai": OpenAIChat(),
    "openai-responses": OpenAIResponses(),
    "anthropic": Anthropic(),
    "google": Google(),
}
TOOL = ToolSpec(name="price", description="Say a price.", input_schema={"type": "object", "properties": {}})
ASKED = ModelRequest(messages=(UserMessage(text="go"),), tools=(TOOL,))


async def events(adapter: Adapter) -> tuple[ModelResponse, list[bytes]]:
    """A reply of text and two calls, and the events that are it."""
    script = MockModel([["Both é😀.", call("price", item="çay 😀"), call("price", item="tea")]])
    reply = await script.generate(ASKED)
    said = SPOKEN[adapter.provider].events(reply, "000001", counted=True)
    return reply, [event.encode() for event in said]


async def streamed(model: StreamingModel) -> ModelResponse:
    made = Assembler()
    async for delta in model.stream(ASKED):
        made.add(delta)
    return made.response()


async def outcome(model: StreamingModel) -> ModelResponse | ModelError:
    try:
        return await streamed(model)
    except ModelError as error:
        return error


def asked_and_said(reply: ModelResponse) -> object:
    return reply.message.text, [(call.name, call.arguments) for call in reply.message.tool_calls]


def shown(reply: ModelResponse) -> object:
    return asked_and_said(reply), reply.usage, reply.finish_reason, reply.invalid_arguments


@pytest.mark.parametrize("size", [1, 3, 1_000_000])
async def test_where_the_bytes_are_cut_makes_no_difference(adapter: Adapter, size: int) -> None:
    want, sent = await events(adapter)
    whole = b"".join(sent)
    with sending() as server:
        server.pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
        got = await streamed(adapter.at(server.url))
    assert shown(got) == shown(want)


# After these the reply is whole, though more would have come.
LAST = {"openai": b'"finish_reason": "tool_calls"', "anthropic": b"message_delta", "google": b"finishReason"}


@pytest.mark.parametrize("ends", [True, False], ids=["ended", "dropped"])
async def test_a_stream_that_stops_early_is_no_reply(adapter: Adapter, ends: bool) -> None:
    """Wherever it stops, between two events or within one, and whether or not the connection ends as it should."""
    want, sent = await events(adapter)
    marker = LAST.get(adapter.provider, b"response.completed")
    told = next(number for number, event in enumerate(sent) if marker in event)
    whole = b"".join(sent)
    ends_of_events = [len(b"".join(sent[:number])) for number in range(len(sent) + 1)]
    with sending() as server:
        server.ends = ends
        for number, end in enumerate(ends_of_events):
            for cut in {end, max(end - 3, 0)}:
                server.pieces = [whole[:cut]]
                before = server.requests
                got = await outcome(adapter.at(server.url))
                if isinstance(got, ModelError):
                    assert got.retryable, (number, cut, got)
                else:
                    assert number > told, (number, cut, got)
                    assert asked_and_said(got) == asked_and_said(want)
                assert server.requests == before + 1


async def test_an_event_that_is_no_json_is_an_error(adapter: Adapter) -> None:
    _, sent = await events(adapter)
    with sending() as server:
        server.pieces = [*sent[:3], b"data: {half\n\n", *sent[3:]]
        with pytest.raises(ModelError):
            await streamed(adapter.at(server.url))


async def test_comments_and_empty_lines_between_events_are_nothing(adapter: Adapter) -> None:
    want, sent = await events(adapter)
    with sending() as server:
        server.pieces = [piece for event in sent for piece in (b": keep-alive\n\n", event)]
        got = await streamed(adapter.at(server.url))
    assert shown(got) == shown(want)


async def test_a_stream_of_nothing_is_no_reply(adapter: Adapter) -> None:
    with sending() as server, pytest.raises(ModelError) as raised:
        await streamed(adapter.at(server.url))
    assert raised.value.retryable
