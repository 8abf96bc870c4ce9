"""Chunks of chat completions as endpoints really send them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.models.openai_fake import Body, Provider, calls, pieces, reply, sse, streamed

from overt.errors import ModelError
from overt.message import AssistantMessage, ModelRequest, ModelResponse, ToolSpec, Usage, UserMessage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


def tool(name: str) -> ToolSpec:
    return ToolSpec(name=name, description="", input_schema={"type": "object", "properties": {}})


REQUEST = ModelRequest(messages=(UserMessage(text="go"),), tools=(tool("look"), tool("lo"), tool("a.b")))


def chunk(*choices: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "model": "m", "choices": list(choices), **more}


def say(finish: str | None = None, *, index: int = 0, **delta: object) -> dict[str, Any]:
    return chunk({"index": index, "delta": delta, "finish_reason": finish})


def call(
    index: object = 0, id: object = None, name: object = None, arguments: object = None
) -> dict[str, Any]:
    item = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {key: value for key, value in item.items() if not (key == "index" and value is None)}


def call_chunks(*items: dict[str, Any] | list[dict[str, Any]]) -> list[Any]:
    said = [say(tool_calls=item if isinstance(item, list) else [item]) for item in items]
    return [*said, say("tool_calls"), "[DONE]"]


async def stream(*events: object, **options: Any) -> ModelResponse:
    return await streamed(Provider(Body(sse(events))).model(**options), REQUEST)


async def whole(**message: object) -> ModelResponse:
    body = {**reply(**message), "model": "m"}
    del body["usage"]
    return await Provider(body).model().generate(REQUEST)


LOOK, LO = ("x", "look", '{"at":"A1"}'), ("y", "lo", '{"n":[1]}')


@pytest.mark.parametrize(
    "items",
    [
        pytest.param(
            [[call(0, "x", "look", '{"at":"A1"}'), call(0, "y", "lo", '{"n":[1]}')]],
            id="same index twice in a chunk",
        ),
        pytest.param(
            [
                call(0, "x", "look", '{"at"'), call(1, "y", "lo", ""), call(0, arguments=':"A'),
                call(1, arguments='{"n"'), call(0, arguments='1"}'), call(1, arguments=":[1]}"),
            ],
            id="interleaved, id with the first piece only",
        ),
        pytest.param(
            [call(1, "y", "lo", '{"n":[1]}'), call(0, "x", "look", '{"at":"A1"}')],
            id="indices out of order",
        ),
        pytest.param(
            [
                call(0, "x", "lo", ""), call(0, "x", "ok", '{"at'), call(0, "x", None, '":"A1"}'),
                call(1, "y", "l", '{"n":'), call(1, "y", "o", "[1]}"),
            ],
            id="names split, ids repeated",
        ),
        pytest.param(
            [
                call(0, "x", "look", ""), call(0, "x", "look", '{"at"'), call(0, "x", "look", ':"A1"}'),
                call(1, "y", "lo", '{"n"'), call(1, "y", "lo", ":[1]}"), call(1, "y", "lo", ""),
            ],
            id="names repeated with every piece",
        ),
        pytest.param(
            [
                call(0, arguments='{"at":'), call(0, arguments='"A1"}'), call(0, "x", "look"),
                call(1, arguments='{"n":[1]}'), call(1, None, "lo"), call(1, "y"),
            ],
            id="arguments before the name, id last",
        ),
        pytest.param(
            [
                call(None, "x", "look", '{"at":'), call(None, None, None, '"A1"}'),
                call(None, "y", "lo", ""), call(None, "y", None, '{"n":[1]}'),
            ],
            id="no index",
        ),
        pytest.param(
            [call(0, "x", "look", {"at": "A1"}), call(1, "y", "lo", {"n": [1]})],
            id="arguments as an object",
        ),
    ],
)  # fmt: skip
async def test_calls_in_pieces(items: list[Any]) -> None:
    assert await stream(*call_chunks(*items)) == await whole(
        tool_calls=calls(LOOK, LO), finish_reason="tool_calls"
    )


async def test_whole_calls_under_one_index_without_ids_are_several() -> None:
    items = [call(0, id, "look", f'{{"at":"{at}"}}') for id, at in ((None, "A1"), ("", "B2"), (None, "C3"))]
    made = [("", "look", f'{{"at":"{at}"}}') for at in ("A1", "B2", "C3")]
    expected = await whole(tool_calls=calls(*made), finish_reason="tool_calls")
    assert [item.id for item in expected.message.tool_calls] == ["call_0", "call_1", "call_2"]
    assert await stream(*call_chunks(*items)) == expected


async def test_names_come_back_as_the_tools_own() -> None:
    provider = Provider(Body([]))
    model = provider.model()
    with pytest.raises(ModelError):
        await streamed(model, REQUEST)
    sent = [item["function"]["name"] for item in provider.bodies[0]["tools"]]
    assert sent[2] != "a.b"
    response = await stream(*call_chunks(call(0, "x", sent[2][:5], ""), call(0, None, sent[2][5:], "{}")))
    assert [item.name for item in response.message.tool_calls] == ["a.b"]


@pytest.mark.parametrize("leave_out", [False, True])
async def test_usage_is_asked_for_unless_the_endpoint_refuses(leave_out: bool) -> None:
    provider = Provider(Body([]))
    model = provider.model(stream_usage=not leave_out)
    with pytest.raises(ModelError):
        await streamed(model, REQUEST)
    (body,) = provider.bodies
    assert body["stream"] is True
    assert body.get("stream_options") == (None if leave_out else {"include_usage": True})


async def test_usage_counts_once() -> None:
    def used(out: object) -> dict[str, object]:
        return {
            "prompt_tokens": 100,
            "completion_tokens": out,
            "prompt_tokens_details": {"cached_tokens": 60},
        }

    cumulative = [chunk({"index": 0, "delta": {"content": "a"}}, usage=used(n)) for n in (1, 2)]
    end = chunk({"index": 0, "delta": {}, "finish_reason": "stop"}, usage=used(20))
    last = chunk(usage=used(20))
    expected = Usage(input_tokens=100, output_tokens=20, cached_tokens=60, total_tokens=120)
    assert (await stream(*cumulative, end, last, "[DONE]")).usage == expected
    # One endpoint reports it inside the choice.
    inside = chunk({"index": 0, "delta": {}, "finish_reason": "stop", "usage": used(20)})
    assert (await stream(inside, "[DONE]")).usage == expected
    body = reply(content="a", usage=None)
    body["choices"][0]["usage"] = used(20)
    assert (await Provider(body).model().generate(REQUEST)).usage == expected
    nothing = chunk(usage=dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens")))
    assert (await stream(say("stop", content="a"), nothing, "[DONE]")).usage is None
    assert (await stream(say(content="a"), say("stop"), chunk(usage=None), "[DONE]")).usage is None


async def test_how_streams_end() -> None:
    assert (await stream(say("stop", content="a"))).finish_reason == "stop"
    unknown = await stream(say(content="a"), "[DONE]")
    assert (unknown.finish_reason, unknown.raw_finish_reason) == ("unknown", None)
    after = await stream(say("length"), say(content="late"), "[DONE]", say("stop", content="never"))
    assert (after.finish_reason, after.message.text) == ("length", "late")
    # A filter of the host says what it found before the first choice.
    assert (
        await stream(chunk(prompt_filter_results=[{}]), say("content_filter"), "[DONE]")
    ).finish_reason == ("content_filter")


async def test_other_choices_are_not_read() -> None:
    response = await stream(say(content="a"), say(index=1, content="b"), say("stop", index=1), say("length"))
    assert (response.message.text, response.finish_reason) == ("a", "length")


async def test_reasoning_in_two_fields_is_heard_once_and_goes_back_whole() -> None:
    events = [
        say(reasoning="so", reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "so"}]),
        say(
            reasoning=" on",
            content="",
            reasoning_details=[{"type": "reasoning.text", "index": 0, "text": " on", "signature": None}],
        ),
        say(reasoning=None, reasoning_details=[{"type": "reasoning.text", "index": 0, "signature": "s=="}]),
        say(reasoning_details=[{"type": "reasoning.encrypted", "index": 1, "id": "r1", "data": "d1"}]),
        say(reasoning_details=[{"type": "reasoning.encrypted", "index": 1, "id": "r2", "data": "d2"}]),
        *call_chunks({**call(0, "x", "look", '{"at":'), "extra_content": {"google": {"signature": "g"}}},
                     call(0, arguments='"A1"}')),
    ]  # fmt: skip
    item = calls(LOOK)
    item[0]["extra_content"] = {"google": {"signature": "g"}}
    details = [
        {"type": "reasoning.text", "index": 0, "text": "so on", "signature": "s=="},
        {"type": "reasoning.encrypted", "index": 1, "id": "r1", "data": "d1"},
        {"type": "reasoning.encrypted", "index": 1, "id": "r2", "data": "d2"},
    ]
    expected = await whole(
        tool_calls=item, reasoning="so on", reasoning_details=details, finish_reason="tool_calls"
    )
    response = await stream(*events)
    assert response == expected
    assert response.message.reasoning == "so on"
    provider = Provider(reply(content="ok"))
    message = AssistantMessage.model_validate_json(response.message.model_dump_json())
    await provider.model().generate(ModelRequest(messages=(UserMessage(text="go"), message)))
    sent = provider.bodies[0]["messages"][1]
    assert (sent["reasoning"], sent["reasoning_details"]) == ("so on", details)
    assert sent["tool_calls"][0]["extra_content"] == {"google": {"signature": "g"}}


async def test_reasoning_that_two_fields_repeat_is_said_once() -> None:
    events = [
        say(reasoning_content="so", reasoning="so"),
        say(reasoning="!", reasoning_content="!"),
        say("stop"),
    ]
    deltas = await pieces(Provider(Body(sse(events))).model(), REQUEST)
    assert [delta.reasoning for delta in deltas] == ["so", "!", None]


async def test_reasoning_without_calls_is_not_carried() -> None:
    response = await stream(say(reasoning_content="so"), say(content="a"), say("stop"))
    assert (response.message.reasoning, response.message.opaque) == ("so", None)


@pytest.mark.parametrize(
    ("event", "status"),
    [
        ({"error": {"message": "slow down", "code": 429}}, 429),
        ({"error": {"message": "slow down", "type": "tokens", "code": "rate_limit_exceeded"}}, 429),
        (chunk({"index": 0, "delta": {}, "error": {"message": "slow down", "code": 502}}), 502),
        ({"object": "error", "message": "slow down", "type": "BadRequestError", "code": 400}, 400),
    ],
)
async def test_an_error_in_a_stream(event: dict[str, Any], status: int) -> None:
    usage = chunk(usage={"prompt_tokens": 5, "completion_tokens": 1})
    with pytest.raises(ModelError, match=f"ErrorReply {status}: slow down") as caught:
        await stream(say(content="a"), usage, event, say("stop"))
    assert (caught.value.status_code, caught.value.retryable) == (status, status != 400)
    assert caught.value.usage == Usage(input_tokens=5, output_tokens=1, total_tokens=6)
    model = Provider(Body([b'event: error\ndata: {"message": "down", "code": 503}\n\n'])).model()
    with pytest.raises(ModelError, match="ErrorReply 503: down"):
        await streamed(model, REQUEST)


async def test_an_event_that_makes_no_sense_can_be_tried_again() -> None:
    for data in (b"data: [1]\n\n", b'data: {"choices": [\n\n', b"data: \xff\n\n"):
        with pytest.raises(ModelError, match="is not a JSON object") as caught:
            await streamed(Provider(Body([data])).model(), REQUEST)
        assert caught.value.retryable


async def test_a_stream_says_nothing_for_nothing() -> None:
    events = [
        chunk(),
        {"choices": None},
        {"choices": [None]},
        {"choices": [{"delta": None}]},
        say(content=None, tool_calls=None, refusal=None),
        say(content=[{"type": "text", "text": "a"}]),
        say("stop"),
    ]
    body = Body([b": keep-alive\n\n", b"event: ping\n\n", *sse(events)])
    deltas = await pieces(Provider(body).model(), REQUEST)
    assert [delta.text for delta in deltas] == ["a", None]
