"""What comes back from Anthropic, whole and streamed."""

from __future__ import annotations

import json
import random
from typing import Any

import anyio
import pytest
from tests.models.anthropic_fake import (
    CASES,
    HELLO,
    Provider,
    call,
    cut,
    delta,
    event,
    events_of,
    reply,
    text,
)

from overt.errors import ModelError
from overt.message import ModelRequest, ModelResponse, ToolSpec, Usage, UserMessage
from overt.models._sse import Events
from overt.models.assemble import Assembler

pytestmark = pytest.mark.anyio
one_loop = pytest.mark.parametrize("anyio_backend", ["asyncio"])

ASK = ModelRequest(messages=(UserMessage(text="go"),))
REPLIES = {name: body for name, body in CASES.items() if "error" not in body}
ENDED = event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 20})
BEGUN = event("message_start", message=reply(stop=None))


async def whole(body: dict[str, Any], request: ModelRequest = ASK) -> ModelResponse:
    return await Provider(body).model().generate(request)


async def streamed(answer: object, request: ModelRequest = ASK) -> ModelResponse:
    assembler = Assembler()
    async for piece in Provider(answer).model().stream(request):
        assembler.add(piece)
    return assembler.response()


def begun(index: int, block: dict[str, Any]) -> bytes:
    return event("content_block_start", index=index, content_block=block)


def written(index: int, piece: str) -> bytes:
    return delta(index, "input_json_delta", partial_json=piece)


# ------------------------------------------------------------------ both ways alike


@pytest.mark.parametrize("case", REPLIES)
async def test_a_stream_comes_to_the_whole_reply(case: str) -> None:
    expected = await whole(REPLIES[case])
    for width in (1, 3, 1_000):
        assert await streamed(events_of(REPLIES[case], width=width)) == expected


RICH = reply(
    {"type": "thinking", "thinking": "Ä 🎉", "signature": "c2ln"},
    text("wörld 🎉\r\n\u2028 “"),
    {"type": "thinking", "thinking": "more", "signature": "bW9yZQ=="},
    call({"at": "ä🎉", "n": [1, {"x": None}]}),
    call({}, id="toolu_2"),
    stop="tool_use",
    usage=CASES["cached_usage"]["usage"],
)


@one_loop
async def test_no_cutting_of_the_bytes_changes_the_reply() -> None:
    expected = await whole(RICH)
    assert expected.message.reasoning == "Ä 🎉\n\nmore"
    stream = events_of(RICH, width=2)
    for width in (1, 2, 7, 100):
        assert await streamed(cut(stream, width)) == expected
    chance = random.Random(7)
    data = b"\xef\xbb\xbf: hi\r\n\r\n" + b"".join(stream).replace(b"\n", b"\r\n")
    for _ in range(20):
        places = sorted(chance.sample(range(len(data)), 30))
        chunks = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
        assert await streamed(chunks) == expected
    # Every place once, without a client between.
    assert Events().feed(b"\xef\xbb\xbfdata:  a\rdata: b\r\r") == [("message", " a\nb")]
    feed = Events().feed(data)
    for at in range(0, len(data), 3):
        events = Events()
        assert [*events.feed(data[:at]), *events.feed(b""), *events.feed(data[at:])] == feed


@one_loop
async def test_a_reply_of_megabytes_comes_in_chunks_of_any_size() -> None:
    large = "é" * 2_500_000
    body = reply(text(large), call({"at": large}), stop="tool_use")
    for chunks in (events_of(body, width=5_000_000), cut(events_of(body, width=5_000_000), 65_536)):
        response = await streamed(chunks)
        assert response.message.text == large
        assert response.message.tool_calls[0].arguments == {"at": large}


# ------------------------------------------------------------------ texts, calls, reasons


@one_loop
async def test_text_usage_and_model() -> None:
    response = await whole(CASES["text"])
    assert (response.message.text, response.message.opaque) == (HELLO, None)
    assert (response.finish_reason, response.raw_finish_reason) == ("stop", "end_turn")
    assert response.model == "claude-sonnet-5-20260101"
    assert response.usage == Usage(input_tokens=100, output_tokens=20, total_tokens=120)


@one_loop
@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "length"),
        ("refusal", "refusal"),
        ("novel", "unknown"),
        (None, "unknown"),
    ],
)
async def test_finish_reasons(stop: str | None, finish: str) -> None:
    body = reply(text("x"), stop=stop)
    for response in (await whole(body), await streamed(events_of(body))):
        assert (response.finish_reason, response.raw_finish_reason) == (finish, stop)
    if finish == "stop":
        assert (await whole(reply(call({}), stop=stop))).finish_reason == "tool_calls"


@one_loop
async def test_a_refusal_says_why_where_it_says_nothing_else() -> None:
    assert (await whole(CASES["refusal"])).message.text == "I cannot help with that."
    assert (await whole(CASES["filtered"])).message.text == "Hello"
    silent = reply(stop="refusal", stop_details=None)
    assert (await whole(silent)).message.text == (await streamed(events_of(silent))).message.text == ""


@one_loop
async def test_no_arguments_are_an_empty_object_unless_the_reply_was_cut_off_there() -> None:
    nothing: tuple[object, ...] = ({}, None, "")
    for given in nothing:
        body = reply(call(given), text("x"), call(given, id="b"), stop="tool_use")
        for response in (await whole(body), await streamed(events_of(body))):
            assert [item.arguments for item in response.message.tool_calls] == [{}, {}]
            assert response.invalid_arguments == {}
        body = reply(call(given), call(given, id="b"), stop="max_tokens")
        for response in (await whole(body), await streamed(events_of(body))):
            assert response.invalid_arguments == {1: ""}


@one_loop
async def test_arguments_cut_off_in_the_middle_are_kept_as_text() -> None:
    response = await streamed(
        [
            BEGUN,
            begun(0, call({})),
            written(0, '{"at":'),
            written(0, '"A'),
            event("message_delta", delta={"stop_reason": "max_tokens"}, usage={"output_tokens": 20}),
        ]
    )
    assert (response.finish_reason, response.invalid_arguments) == ("length", {0: '{"at":"A'})
    assert response.message.tool_calls[0].arguments == {}


@one_loop
async def test_arguments_that_are_no_object_are_not_repaired() -> None:
    body = reply(call("[1]"), call([1, 2], id="b"), call('{"a":1,"a":2}', id="c"), stop="tool_use")
    for response in (await whole(body), await streamed(events_of(body, width=100))):
        assert response.invalid_arguments == {0: "[1]", 1: "[1, 2]", 2: '{"a":1,"a":2}'}


@one_loop
async def test_pieces_of_calls_in_any_order_come_to_their_calls() -> None:
    expected = [("t1", "look", {"at": "A1"}), ("t2", "look", {"at": "B2"}), ("t3", "look", {})]
    first, second, third = (call({}, id=f"t{n}") for n in (1, 2, 3))
    scripts = {
        "interleaved": [
            begun(0, first),
            begun(1, second),
            written(1, '{"at":'),
            written(0, '{"at"'),
            begun(2, third),
            written(1, '"B2"}'),
            written(0, ':"A1"}'),
        ],
        "one index for all": [
            begun(0, first),
            written(0, '{"at":"A1"}'),
            begun(0, second),
            written(0, '{"at":"B2"}'),
            begun(0, third),
        ],
        "arguments first": [
            written(0, '{"at":'),
            begun(0, first),
            written(0, '"A1"}'),
            written(1, '{"at":"B2"}'),
            begun(1, second),
            begun(2, third),
        ],
        "all at once": [
            begun(0, call({"at": "A1"}, id="t1")),
            begun(1, call({"at": "B2"}, id="t2")),
            begun(2, third),
        ],
    }
    for name, script in scripts.items():
        response = await streamed([BEGUN, *script, ENDED, ENDED, event("message_stop")])
        found = [(item.id, item.name, item.arguments) for item in response.message.tool_calls]
        assert (found, response.invalid_arguments) == (expected, {}), name


@one_loop
async def test_a_surrogate_pair_may_be_cut_between_two_events() -> None:
    pair = "\U0001f389".encode("utf-16-be", "surrogatepass")
    high, low = (pair[:2].decode("utf-16-be", "surrogatepass"), pair[2:].decode("utf-16-be", "surrogatepass"))
    pieces = [json.dumps({"type": "text_delta", "text": half}) for half in (high, low, high)]
    stream = [
        f'data: {{"type":"content_block_delta","index":0,"delta":{piece}}}\n\n'.encode() for piece in pieces
    ]
    assert (await streamed([BEGUN, begun(0, text("")), *stream, ENDED])).message.text == "🎉�"


@one_loop
async def test_what_is_missing_or_of_another_type_is_read_as_absent() -> None:
    body = reply({"type": "text"}, text(5), {}, {"type": "tool_use"}, stop=7, model=None)
    for response in (
        await whole(body),
        await streamed(
            [
                BEGUN,
                *(begun(n, b) for n, b in enumerate(body["content"])),
                event("message_delta", delta={"stop_reason": 7}),
            ]
        ),
    ):
        assert (response.message.text, response.finish_reason) == ("", "unknown")
        (made,) = response.message.tool_calls
        assert (made.id, made.name, made.arguments) == ("call_0", "", {})
    odd = [
        event("unheard_of"),
        event("content_block_delta", index=[1], delta=None),
        event("content_block_start"),
    ]
    assert (await streamed([BEGUN, *odd, *events_of(CASES["text"])])).message.text == HELLO


async def test_a_tool_comes_back_under_its_own_name() -> None:
    tool = ToolSpec(name="look.at", description="", input_schema={"type": "object"})
    request = ModelRequest(messages=ASK.messages, tools=(tool,))
    provider = Provider(CASES["text"])
    await provider.model().generate(request)
    body = reply(call({}, name=provider.bodies[0]["tools"][0]["name"]), stop="tool_use")
    for response in (await whole(body, request), await streamed(events_of(body), request)):
        assert response.message.tool_calls[0].name == "look.at"


@one_loop
async def test_a_block_may_have_something_at_its_beginning_and_anything_in_it() -> None:
    odd = {"type": "server_tool_use", "id": "s", "name": "x", "input": "{"}
    thought = {"type": "thinking", "thinking": "so", "signature": "c2ln"}
    body = reply(thought, text("a"), odd, {"type": "novel", "data": {"n": [1]}}, text("b"))
    stream = [
        BEGUN,
        begun(0, {**thought, "signature": ""}),
        delta(0, "signature_delta", signature="c2ln"),
        delta(0, "novel_delta", thinking="?"),
        begun(1, text("a")),
        begun(2, {**odd, "input": {}}),
        written(2, "{"),
        begun(3, body["content"][3]),
        begun(4, text("b")),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 20}),
    ]
    response = await streamed(stream)
    assert response == await whole(body)
    assert (response.message.text, response.message.reasoning) == ("ab", "so")


# ------------------------------------------------------------------ usage


@one_loop
@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({}, None),
        ("much", None),
        ({"input_tokens": None, "output_tokens": None, "cache_read_input_tokens": None}, None),
        ({"input_tokens": -1, "output_tokens": True}, None),
        (
            {"input_tokens": 3, "output_tokens": None, "output_tokens_details": None},
            Usage(input_tokens=3, total_tokens=3),
        ),
        (
            {
                "input_tokens": 0,
                "cache_read_input_tokens": 9,
                "cache_creation_input_tokens": None,
                "output_tokens": 1,
            },
            Usage(input_tokens=9, cached_tokens=9, output_tokens=1, total_tokens=10),
        ),
    ],
)
async def test_usage_that_is_not_whole(usage: object, expected: Usage | None) -> None:
    assert (await whole(reply(text("hi"), usage=usage))).usage == expected


@one_loop
async def test_streamed_usage_is_a_total_however_often_it_is_said() -> None:
    expected = Usage(
        input_tokens=100,
        cached_tokens=60,
        cache_write_tokens=10,
        output_tokens=20,
        reasoning_tokens=5,
        total_tokens=120,
    )
    started = {
        "input_tokens": 30,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 10,
        "output_tokens": 1,
    }
    done = {"output_tokens": 20, "output_tokens_details": {"thinking_tokens": 5}, "input_tokens": None}
    midway = event("message_delta", delta={"stop_reason": None}, usage={"output_tokens": 7})
    last = event("message_delta", delta={"stop_reason": "end_turn"}, usage=done)
    again = event("message_delta", delta={}, usage={**done, **started, "output_tokens": 20})
    start = event("message_start", message=reply(usage=started))
    assert (await streamed([start, midway, last, last, again])).usage == expected
    # What of it is not told is not made up.
    lone = await streamed([event("message_start", message=reply(usage=...)), midway, event("message_stop")])
    assert lone.usage == Usage(output_tokens=7, total_tokens=7)
    bare = event("message_delta", delta={"stop_reason": "end_turn"})
    assert (await streamed([event("message_start", message={}), bare])).usage is None


# ------------------------------------------------------------------ streams that break


async def test_a_stream_that_ends_early_can_be_tried_again() -> None:
    stream = events_of(CASES["call"])
    for end in (0, 1, len(stream) - 2):
        with pytest.raises(ModelError) as caught:
            await streamed(stream[:end])
        assert (caught.value.type, caught.value.retryable) == ("StreamIncomplete", True)
    # The last event has all of its bytes but the empty line.
    with pytest.raises(ModelError, match="incomplete"):
        await streamed([*stream[:-2], stream[-2].rstrip()])


async def test_an_event_that_is_no_json_can_be_tried_again() -> None:
    with pytest.raises(ModelError, match="cannot be read") as caught:
        await streamed([BEGUN, b'event: content_block_delta\ndata: {"type":"cont\n\n'])
    error = caught.value
    assert (error.type, error.retryable) == ("StreamIncomplete", True)
    assert error.usage == Usage(input_tokens=100, output_tokens=20, total_tokens=120)


async def test_leaving_a_stream_early_closes_the_connection() -> None:
    provider = Provider(events_of(CASES["text"], width=1))
    model = provider.model()
    stream = model.stream(ASK)
    assert provider.requests == []
    async for piece in stream:
        if piece.text:
            break
    (body,) = provider.streams
    assert (body.closed, body.taken < len(events_of(CASES["text"], width=1))) == (0, True)
    await stream.aclose()
    assert body.closed == 1
    async for _ in model.stream(ASK):
        pass
    assert provider.streams[1].closed == 1


async def test_cancelling_a_stream_closes_the_connection() -> None:
    provider = Provider([BEGUN, None])
    reading = anyio.Event()

    async def read() -> None:
        async for _ in provider.model().stream(ASK):
            reading.set()

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await reading.wait()
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert group.cancel_scope.cancelled_caught
    assert [(body.taken, body.closed) for body in provider.streams] == [(2, 1)]
