"""What the Gemini adapter makes of replies, whole and streamed: the same."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.google_fake import (
    NAME,
    SIGNATURE,
    TEXT,
    Body,
    GoogleWire,
    Provider,
    call,
    cut,
    event,
    pieces,
    refusal,
    reply,
    streamed,
    usage,
)

from overt.errors import ModelError
from overt.message import ModelRequest, ModelResponse, ToolCall, ToolSpec, Usage, UserMessage
from overt.models import GoogleModel
from overt.models._google_reply import Reader
from overt.models._sse import Events
from overt.models.assemble import Assembler

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

WIRE = GoogleWire()
LOOK = ToolSpec(name="look", description="Look.", input_schema={"type": "object"})
ASK = ModelRequest(messages=(UserMessage(text="go"),), tools=(LOOK,))
SPENT = Usage(input_tokens=100, output_tokens=20, total_tokens=120)
HOST = "google:generativelanguage.googleapis.com"


async def put_together(model: GoogleModel, request: ModelRequest = ASK) -> ModelResponse:
    made = Assembler()
    async for delta in model.stream(request):
        made.add(delta)
    return made.response()


async def both(body: Body) -> ModelResponse:
    """The reply, which has to be the same streamed in small pieces, and in one."""
    whole = await Provider(body).model().generate(ASK)
    for chunks in (streamed(*pieces(body, 1)), streamed(body)):
        assert await put_together(Provider(chunks).model()) == whole
    return whole


# ------------------------------------------------------------------ every case, in every cut


@pytest.mark.parametrize("case", [case for case in WIRE.cases if case != "error_in_200"])
async def test_a_reply_is_the_same_however_it_comes(case: str) -> None:
    def model(reply: object) -> GoogleModel:
        return WIRE.make(httpx2.MockTransport(Provider(reply).handle))

    whole = await model(WIRE.body(case)).generate(ASK)
    stream = b"".join(WIRE.events(case))
    assert await put_together(model(WIRE.events(case))) == whole
    for other in (stream.replace(b"\r\n", b"\n"), stream.replace(b"\r\n", b"\r")):
        assert await put_together(model([other])) == whole
    for size in (1, 7):
        assert await put_together(model(list(cut(stream, size)))) == whole


texts = st.text(st.characters(codec=None, categories=None), max_size=6) | st.just("🎉é\u2028\ud83d")
parts = st.lists(
    st.builds(lambda text: {"text": text}, texts)
    | st.builds(lambda text: {"text": text, "thought": True}, texts)
    | st.builds(lambda text: {"text": text, "thoughtSignature": SIGNATURE}, texts)
    | st.builds(lambda at, id: call(at, id=id), texts, st.sampled_from([None, "", "x", "y"]))
    | st.just({"functionCall": {"name": "go"}, "thoughtSignature": SIGNATURE})
    | st.just({"functionCall": {"name": "go", "args": "[1]"}})
    | st.just({"executableCode": {"code": "1"}}),
    max_size=6,
)


@settings(max_examples=60)
@given(
    parts,
    st.sampled_from(["STOP", "MAX_TOKENS", "SAFETY", "PONDERING"]),
    st.integers(1, 4),
    st.integers(0, 2**32),
)
def test_any_reply_is_the_same_in_any_pieces(
    anyio_backend: str, said: list[Body], finish: str, size: int, seed: int
) -> None:
    body = reply(*said, finish=finish)
    whole = Assembler()
    reader = Reader(ASK, provider=HOST)
    for delta in (*reader.read(json.loads(json.dumps(body))), reader.end(whole=True)):
        whole.add(delta)
    made, reader, events = Assembler(), Reader(ASK, provider=HOST), Events()
    chance = random.Random(seed)
    # Python writes lone surrogates as escapes only.
    stream = b"".join(b"data: " + json.dumps(piece).encode() + b"\r\n\r\n" for piece in pieces(body, size))
    found: list[tuple[str, str]] = []
    for chunk in cut(stream, lambda _: chance.randrange(1, 60)):
        found.extend(events.feed(chunk))
    found.extend(events.end())
    for _, data in found:
        for delta in reader.read(json.loads(data)):
            made.add(delta)
    made.add(reader.end(whole=False))
    assert made.response() == whole.response()


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=9), max_size=6), st.lists(st.integers(0, 80), max_size=8))
def test_events_are_the_same_in_any_chunks(anyio_backend: str, lines: list[bytes], places: list[int]) -> None:
    stream = (
        b"".join(b"data:" + line + b"\r\n" for line in lines) + b"\n:x\n\rdata: \xc3\xa9\r\n\n\ndata: end"
    )
    whole = Events()
    expected = [*whole.feed(stream), *whole.end()]
    events = Events()
    found: list[tuple[str, str]] = []
    bounds = sorted({0, len(stream), *(place for place in places if place < len(stream))})
    for start, end in pairwise(bounds):
        found.extend(events.feed(stream[start:end]))
        found.extend(events.feed(b""))
    assert ([*found, *events.end()], events.stray) == (expected, whole.stray)


# ------------------------------------------------------------------ what is read


async def test_text_usage_and_model() -> None:
    used = usage(
        100,
        20,
        totalTokenCount=151,
        cachedContentTokenCount=64,
        thoughtsTokenCount=12,
        toolUsePromptTokenCount=7,
    )
    response = await both(reply({"text": TEXT}, used=used))
    assert (response.message.text, response.message.opaque, response.model) == (TEXT, None, NAME)
    assert (response.finish_reason, response.raw_finish_reason) == ("stop", "STOP")
    assert response.usage == Usage(
        input_tokens=107, output_tokens=32, cached_tokens=64, reasoning_tokens=12, total_tokens=151
    )


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ({}, None),
        ("much", None),
        (usage(None, None), None),
        ({"promptTokenCount": -1, "candidatesTokenCount": True, "totalTokenCount": "9"}, None),
        ({"trafficType": "ON_DEMAND"}, None),
        ({"promptTokenCount": 3}, Usage(input_tokens=3, total_tokens=3)),
        ({"totalTokenCount": 9}, Usage(output_tokens=0, input_tokens=9, total_tokens=9)),
        (
            {"promptTokenCount": 4, "totalTokenCount": 9},
            Usage(input_tokens=4, output_tokens=5, total_tokens=9),
        ),
        # All of the limit went into thinking: there is no candidate's count at all.
        (
            {"promptTokenCount": 4, "thoughtsTokenCount": 5, "totalTokenCount": 9},
            Usage(input_tokens=4, output_tokens=5, reasoning_tokens=5, total_tokens=9),
        ),
        (
            {"candidatesTokenCount": 2, "thoughtsTokenCount": 3, "totalTokenCount": 9},
            Usage(input_tokens=4, output_tokens=5, reasoning_tokens=3, total_tokens=9),
        ),
    ],
)
async def test_usage_that_is_not_whole(used: object, expected: Usage | None) -> None:
    assert (await both(reply({"text": "hi"}, used=used))).usage == expected


async def test_usage_is_what_was_used_so_far() -> None:
    first, second, third = reply({"text": "a"}), reply({"text": "b"}), reply({"text": "c"})
    first["usageMetadata"] = usage(100, None, cachedContentTokenCount=60)
    second["usageMetadata"] = usage(100, 15)
    # What does not change may be left out, and a chunk may have nothing at all.
    third["usageMetadata"] = {"candidatesTokenCount": 20, "totalTokenCount": 120}
    del first["candidates"][0]["finishReason"], second["candidates"][0]["finishReason"]
    last = {"candidates": [], "modelVersion": NAME}
    response = await put_together(Provider(streamed(first, second, third, last)).model())
    assert response.usage == Usage(input_tokens=100, output_tokens=20, cached_tokens=60, total_tokens=120)
    assert response.message.text == "abc"


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("CONTINUATION", "length"),
        *(
            (reason, "content_filter")
            for reason in ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY")
        ),
        ("OTHER", "unknown"),
        ("FINISH_REASON_UNSPECIFIED", "unknown"),
        ("SOMETHING_NEW", "unknown"),
    ],
)
async def test_finish_reasons(finish: str, expected: str) -> None:
    response = await both(reply({"text": "x"}, finish=finish))
    assert (response.finish_reason, response.raw_finish_reason) == (expected, finish)
    calling = await both(reply(call(), finish=finish))
    assert calling.finish_reason == ("tool_calls" if finish == "STOP" else expected)


async def test_a_whole_reply_without_a_reason_has_an_unknown_one() -> None:
    response = await Provider(reply({"text": "x"}, finish=None)).model().generate(ASK)
    assert (response.finish_reason, response.raw_finish_reason) == ("unknown", None)


async def test_a_prompt_that_is_blocked() -> None:
    response = await both(
        {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 9}}
    )
    assert (response.finish_reason, response.raw_finish_reason) == ("content_filter", "SAFETY")
    assert response.usage == Usage(input_tokens=9, total_tokens=9)


@pytest.mark.parametrize(
    ("finish", "kind", "again"),
    [
        ("MALFORMED_FUNCTION_CALL", "MalformedFunctionCall", True),
        ("UNEXPECTED_TOOL_CALL", "UnexpectedToolCall", True),
        ("MISSING_THOUGHT_SIGNATURE", "MissingThoughtSignature", False),
    ],
)
async def test_an_end_that_leaves_no_reply_is_an_error_with_its_usage(
    finish: str, kind: str, again: bool
) -> None:
    body = reply({"text": "Let me look."}, finish=finish)
    body["candidates"][0]["finishMessage"] = "Malformed: look(at=projects/12345)"
    for answer in (
        Provider(body).model().generate(ASK),
        put_together(Provider(streamed(*pieces(body))).model()),
    ):
        with pytest.raises(ModelError) as caught:
            await answer
        error = caught.value
        assert (error.type, error.retryable, error.usage) == (kind, again, SPENT)
        assert str(error) == (
            f"{kind}: the reply ended with {finish}: Malformed: look(at=projects/«redacted»)"
        )


async def test_calls_and_their_arguments() -> None:
    # `{"n": NaN}` is what Python's reader makes of it; JSON has no such number.
    body = reply(
        {"functionCall": {"name": "look", "args": {"at": "é", "n": 1.5}}},
        {"functionCall": {"name": "look"}},
        {"functionCall": {"name": "look", "args": [1]}, "thought": None},
        {"functionCall": {"name": "look", "args": {"n": float("nan")}}},
        {"functionCall": {"args": {}}},
        {"functionCall": "look"},
    )
    model = Provider(json.dumps(body).encode()).model()
    response = await model.generate(ASK)
    assert response.message.tool_calls == (
        ToolCall(id="call_0", name="look", arguments={"at": "é", "n": 1.5}),
        ToolCall(id="call_1", name="look"),
        ToolCall(id="call_2", name="look"),
        ToolCall(id="call_3", name="look"),
        ToolCall(id="call_4", name=""),
    )
    assert response.invalid_arguments == {2: "[1]", 3: '{"n": NaN}'}


async def test_pieces_of_arguments_are_not_taken_for_all_of_them() -> None:
    piece = {"jsonPath": "$.at", "stringValue": "A"}
    begun: Body = {"functionCall": {"name": "look", "partialArgs": None, "willContinue": True}}
    more: Body = {"functionCall": {"partialArgs": [piece], "willContinue": True}}
    response = await both(reply(begun, more))
    assert list(response.invalid_arguments) == [0, 1]


async def test_ids_of_calls() -> None:
    response = await both(reply(call(id="x"), call(id=""), call(id=None), call(id="x")))
    assert [item.id for item in response.message.tool_calls] == ["x", "call_1", "call_2", "x"]


async def test_thoughts_are_reasoning_and_no_text() -> None:
    response = await both(
        reply({"text": "Hm, ", "thought": True}, {"text": "so.", "thought": True}, {"text": "42"})
    )
    assert (response.message.reasoning, response.message.text) == ("Hm, so.", "42")
    assert response.message.opaque == {HOST: {"parts": [{"thought": 7}, {"text": 2}]}}


async def test_the_first_of_several_candidates_counts() -> None:
    body = reply({"text": "a"})
    other = {"content": {"parts": [{"text": "z"}]}, "finishReason": "SAFETY", "index": 1}
    body["candidates"].insert(0, other)
    for answer in (body, streamed(body)):
        provider = Provider(answer)
        response = await (
            put_together(provider.model()) if answer is not body else provider.model().generate(ASK)
        )
        assert (response.message.text, response.finish_reason) == ("a", "stop")


# ------------------------------------------------------------------ replies that are none


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"candidates": []}, "has no candidates"),
        ({"candidates": None}, "has no candidates"),
        ({}, "has no candidates"),
        (b"[1]", "is not a JSON object"),
        (b"<html><title>Sign in</title>", "web page titled 'Sign in'"),
        (b"", "is not a JSON object"),
        (b"[" * 100_000, "is not a JSON object"),
    ],
)
async def test_a_reply_that_is_none(body: object, told: str) -> None:
    with pytest.raises(ModelError, match=told) as caught:
        await Provider(body).model().generate(ASK)
    assert (caught.value.type, caught.value.retryable) == ("InvalidReply", False)


async def test_a_reply_that_is_none_may_have_cost() -> None:
    with pytest.raises(ModelError) as caught:
        await Provider({"usageMetadata": usage()}).model().generate(ASK)
    assert caught.value.usage == SPENT


OVERLOADED = refusal(503, "UNAVAILABLE", "The model is overloaded.")


@pytest.mark.parametrize(
    "body", [OVERLOADED, [OVERLOADED], {"error": {"status": "UNAVAILABLE", "message": "overloaded"}}]
)
async def test_an_error_within_a_200(body: object) -> None:
    with pytest.raises(ModelError, match=r"ErrorReply 503: .*overloaded") as caught:
        await Provider(json.dumps(body).encode()).model().generate(ASK)
    assert (caught.value.retryable, caught.value.status_code) == (True, 503)


async def test_an_error_within_a_stream() -> None:
    begun = reply({"text": "a"}, finish=None)
    pretty = json.dumps(OVERLOADED, indent=2).encode()
    for last in (event(OVERLOADED), pretty, b"[" + pretty + b"\r\n]"):
        with pytest.raises(ModelError, match="ErrorReply 503: The model") as caught:
            await put_together(Provider([*streamed(begun), last]).model())
        assert (caught.value.retryable, caught.value.usage) == (True, SPENT)
        with pytest.raises(ModelError, match="ErrorReply 503"):
            await put_together(Provider([last]).model())
    denied = refusal(403, "PERMISSION_DENIED", "the words of the body")
    with pytest.raises(ModelError) as caught:
        await put_together(Provider(streamed(begun, denied)).model())
    assert (str(caught.value), caught.value.detail) == ("ErrorReply 403: access was denied", None)


async def test_what_is_no_stream() -> None:
    for page in (b"<html><title>Sign in</title>", b'{"candidates": []}'):
        with pytest.raises(ModelError, match="is not a stream of events") as caught:
            await put_together(Provider([page]).model())
        assert caught.value.type == "InvalidReply"


async def test_values_of_other_types_are_read_as_absent() -> None:
    odd: list[Any] = [
        {"candidates": "x", "promptFeedback": {"blockReason": "SAFETY"}},
        {
            "candidates": [
                None,
                {"content": {"parts": [None, 3, {"text": None}, {"text": 5}]}, "finishReason": 7},
            ]
        },
        {"candidates": [{"content": "x", "index": None}], "modelVersion": 3, "usageMetadata": [1]},
    ]
    for body in odd:
        response = await Provider(body).model().generate(ASK)
        assert (response.message.text, response.message.tool_calls, response.usage) == ("", (), None)
