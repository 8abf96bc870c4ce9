"""Both adapters for OpenAI stream what they would have returned, however a reply is cut."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx2
import pytest
from tests.models.openai_fake import (
    CASES,
    REFUSAL,
    TEXT,
    THOUGHT,
    Body,
    OpenAIWire,
    Provider,
    pieces,
    sse,
    streamed,
)
from tests.models.responses_fake import ResponsesWire

from overt.errors import ModelError
from overt.message import ModelDelta, ModelRequest, ModelResponse, ToolSpec, Usage, UserMessage
from overt.models._sse import Events
from overt.models.assemble import Assembler

pytestmark = pytest.mark.anyio
one_loop = pytest.mark.parametrize("anyio_backend", ["asyncio"])

Wire = OpenAIWire | ResponsesWire
WIRES: dict[str, Wire] = {"chat": OpenAIWire(), "responses": ResponsesWire()}
on_both = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)

TOOL = ToolSpec(name="look", description="Look.", input_schema={"type": "object", "properties": {}})
REQUEST = ModelRequest(messages=(UserMessage(text="go"),), tools=(TOOL,))
USAGE = Usage(input_tokens=100, output_tokens=20, total_tokens=120)


def asked(wire: Wire, reply: object, **headers: str) -> Any:
    """A model whose provider answers so."""
    return wire.make(httpx2.MockTransport(Provider(reply, headers=headers).handle))


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


async def outcome(get: Callable[[ModelRequest], Any]) -> ModelResponse | str:
    try:
        reply: ModelResponse = await get(REQUEST)
    except ModelError as error:
        return f"{error} {error.retryable}"
    return reply


@on_both
@one_loop
@pytest.mark.parametrize("case", CASES)
async def test_a_stream_is_the_reply_however_its_bytes_are_cut(wire: Wire, case: str) -> None:
    whole = await outcome(asked(wire, wire.body(case)).generate)
    data = b"".join(wire.events(case))
    for size in (1, 7, len(data)):
        assert await outcome(partial(streamed, asked(wire, Body(cut(data, size))))) == whole


@on_both
async def test_what_the_replies_are(wire: Wire) -> None:
    replies = {case: await outcome(asked(wire, wire.body(case)).generate) for case in CASES}
    texts = {name: reply.message.text for name, reply in replies.items() if isinstance(reply, ModelResponse)}
    assert {name: text for name, text in texts.items() if text} == {
        "text": TEXT,
        "truncated": TEXT[:9],
        "refusal": REFUSAL,
        "no_usage": TEXT,
        "null_usage": TEXT,
        "cached_usage": TEXT,
        "unknown_finish": TEXT,
        "structured": '{"value": "A1"}',
    }
    assert replies.pop("error_in_200") == "ErrorReply 500: The server had an error True"
    look: dict[str, list[Any]] = {
        "call": [("call_a", "look", {"at": "A1"})],
        "calls": [("call_a", "look", {"at": "A1"}), ("call_b", "look", {"at": "B2"})],
        "truncated_call": [("call_a", "look", {})],
        "bad_arguments": [("call_a", "look", {})],
        "missing_id": [("call_0", "look", {"at": "A1"})],
        "empty_id": [("call_0", "look", {"at": "A1"})],
        "repeated_id": [("call_a", "look", {"at": "A1"}), ("call_a", "look", {"at": "B2"})],
        "reasoning_call": [("call_a", "look", {"at": "A1"})],
    }
    finishes: dict[str, str] = {}
    for name, reply in replies.items():
        assert isinstance(reply, ModelResponse)
        finishes[name] = reply.finish_reason
        said = [(call.id, call.name, call.arguments) for call in reply.message.tool_calls]
        assert said == look.get(name, [])
        raw = {"truncated_call": {0: '{"at": "A'}, "bad_arguments": {0: '{"at": A1'}}
        assert reply.invalid_arguments == raw.get(name, {})
        assert reply.message.reasoning == (THOUGHT if name == "reasoning_call" else None)
        split = {"cached_tokens": 60, "cache_write_tokens": 10, "reasoning_tokens": 5}
        usage = {"no_usage": None, "null_usage": None, "cached_usage": USAGE.model_copy(update=split)}
        assert reply.usage == usage.get(name, USAGE)
        assert reply.model == "gpt-5-mini-2026"
    calls = {name: "tool_calls" for name in look if name != "truncated_call"}
    assert finishes == {
        **dict.fromkeys(replies, "stop"),
        **calls,
        "truncated": "length",
        "truncated_call": "length",
        "refusal": "refusal",
        "filtered": "content_filter",
        "unknown_finish": "unknown",
    }


@on_both
@one_loop
async def test_a_stream_is_the_reply_however_its_events_are_cut(wire: Wire) -> None:
    dice = random.Random(20261201)

    def anywhere(text: str) -> list[str]:
        places = sorted(dice.randrange(len(text) + 1) for _ in range(dice.randrange(4)))
        return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]

    for case in ("text", "calls", "reasoning_call", "refusal", "bad_arguments", "structured"):
        whole = await asked(wire, wire.body(case)).generate(REQUEST)
        for _ in range(12):
            events = sse(wire.said(case, anywhere), named=isinstance(wire, ResponsesWire))
            assert await streamed(asked(wire, Body(events)), REQUEST) == whole


@on_both
@one_loop
async def test_text_comes_as_it_is_said(wire: Wire) -> None:
    deltas = await pieces(asked(wire, Body(wire.events("text"))), REQUEST)
    texts = [delta.text for delta in deltas if delta.text]
    assert texts == [TEXT[at : at + 3] for at in range(0, len(TEXT), 3)]
    deltas = await pieces(asked(wire, Body(wire.events("reasoning_call"))), REQUEST)
    assert "".join(delta.reasoning for delta in deltas if delta.reasoning) == THOUGHT
    assert [delta.tool_call.arguments for delta in deltas if delta.tool_call and delta.tool_call.arguments] == [
        '{"a', 't":', ' "A', '1"}',
    ]  # fmt: skip


@on_both
@one_loop
async def test_a_character_cut_by_the_provider_is_whole(wire: Wire) -> None:
    """Halves of a surrogate pair come in two events, and half of one alone."""
    said = wire.said("text", lambda text: [text[:-1], "\ud83c", "\udf89 \ud83c"])
    for event in said:
        # The last event of the Responses API repeats the text.
        if isinstance(event, dict) and event.get("type") in (
            "response.completed",
            "response.output_item.done",
        ):
            at = event.get("item") or event["response"]["output"][0]
            at["content"][0]["text"] = f"{TEXT} \ud83c"
    reply = await streamed(asked(wire, Body([_escaped(event) for event in said])), REQUEST)
    assert reply.message.text == f"{TEXT} �"


def _escaped(event: object) -> bytes:
    return f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()


@on_both
@one_loop
async def test_a_huge_event_is_read(wire: Wire) -> None:
    huge = "ä" * 2_500_000
    said = wire.said("text", lambda _: [huge])
    if isinstance(wire, ResponsesWire):
        said = [event for event in said if event["type"] == "response.output_text.delta"]
        said.append({"type": "response.completed", "response": {}})
    reply = await streamed(asked(wire, Body(cut(b"".join(sse(said)), 65_536))), REQUEST)
    assert reply.message.text == huge


@on_both
async def test_an_endpoint_that_answers_whole_is_read_all_the_same(wire: Wire) -> None:
    for case in ("calls", "reasoning_call", "bad_arguments", "error_in_200"):
        kind = {"content-type": "application/json"}
        whole = await outcome(asked(wire, wire.body(case), **kind).generate)
        assert await outcome(partial(streamed, asked(wire, wire.body(case), **kind))) == whole
    page = asked(wire, b"<html><title>Sign in</title></html>", **{"content-type": "text/html"})
    with pytest.raises(ModelError, match="a web page titled 'Sign in', not JSON; does base_url"):
        await streamed(page, REQUEST)


# ------------------------------------------------------------------ events out of bytes

STREAM = (
    "\ufeffdata: a\r\n\r\n: note\r\nevent: x\r\ndata:b\r\ndata:  ä🎉\n\rid: 1\n\nretry: 2\rdata: c\r\rdata: lost"
).encode()
EVENTS = [("message", "a"), ("x", "b\n ä🎉"), ("message", "c")]


def test_events_are_the_same_wherever_their_bytes_are_cut() -> None:
    for first in range(len(STREAM) + 1):
        for second in (first, first + 1, first + 5):
            reader = Events()
            parts = (STREAM[:first], STREAM[first:second], STREAM[second:])
            assert [event for part in parts for event in reader.feed(part)] == EVENTS
    reader = Events()
    assert [event for at in range(len(STREAM)) for event in reader.feed(STREAM[at : at + 1])] == EVENTS


def test_what_is_no_utf8_is_replaced() -> None:
    assert list(Events().feed(b"data: \xff!\n\n")) == [("message", "\ufffd!")]


# ------------------------------------------------------------------ streams that break


@on_both
async def test_a_stream_that_ends_early_is_no_reply(wire: Wire) -> None:
    events = wire.events("text")
    for kept in (0, 3, len(events) - 3):
        model = asked(wire, Body(events[:kept]))
        with pytest.raises(ModelError) as caught:
            await streamed(model, REQUEST)
        assert (caught.value.type, caught.value.retryable) == ("StreamIncomplete", True)
    half = b"".join(events[:3]) + events[3][:20]
    for rest in (b"", b"\n\n"):
        with pytest.raises(ModelError) as caught:
            await streamed(asked(wire, Body([half + rest])), REQUEST)
        assert caught.value.retryable


@one_loop
async def test_usage_that_was_said_before_a_stream_broke_is_kept() -> None:
    wire, reset = OpenAIWire(), httpx2.RemoteProtocolError("peer closed connection")
    events = [
        {**event, "usage": {"prompt_tokens": 7, "completion_tokens": 1}} for event in wire.said("text")[:3]
    ]
    for body in (Body(sse(events)), Body(sse(events), then=reset), Body([*sse(events), b"data: {\n\n"])):
        with pytest.raises(ModelError) as caught:
            await streamed(asked(wire, body), REQUEST)
        assert caught.value.usage == Usage(input_tokens=7, output_tokens=1, total_tokens=8)


@on_both
@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (httpx2.ReadTimeout("slow"), "APITimeoutError"),
        (httpx2.RemoteProtocolError("gone"), "APIConnectionError"),
        (OSError("reset"), "APIConnectionError"),
    ],
)
@one_loop
async def test_a_connection_that_breaks_can_be_tried_again(wire: Wire, broken: Exception, kind: str) -> None:
    body = Body(wire.events("text")[:6], then=broken)
    model = asked(wire, body, **{"x-request-id": "req_1"})
    stream = model.stream(REQUEST)
    heard = [await anext(stream)]
    with pytest.raises(ModelError, match=r"the answer broke off: (slow|gone|reset)") as caught:
        heard.extend([piece async for piece in stream])
    error = caught.value
    assert (error.type, error.retryable, error.request_id) == (kind, True, "req_1")
    assert (error.__cause__, error.__context__, body.closes) == (None, None, 1)
    assert heard[0] != ModelDelta()


@on_both
async def test_leaving_early_closes_the_answer_and_nothing_is_sent_before(wire: Wire) -> None:
    body = Body(wire.events("text"))
    provider = Provider(body)
    model = wire.make(httpx2.MockTransport(provider.handle))
    stream = model.stream(REQUEST)
    assert provider.requests == []
    assembler = Assembler()
    while not assembler._text:
        assembler.add(await anext(stream))
    assert body.closes == 0
    sent = body.sent
    await stream.aclose()
    assert body.closes == 1
    assert body.sent == sent < len(body.pieces)


@on_both
async def test_an_answer_is_closed_after_its_end(wire: Wire) -> None:
    body = Body([*wire.events("text"), b"data: {}\n\n"])
    await streamed(asked(wire, body), REQUEST)
    assert body.closes == 1
    # Read to its end, so that the connection can be used again.
    assert body.sent == len(body.pieces)
