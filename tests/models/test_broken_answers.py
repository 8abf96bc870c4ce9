"""Answers that no provider should give, and proxies do: each is an error of ours or a reply that can be kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from tests.models.anthropic_fake import AnthropicWire
from tests.models.google_fake import GoogleWire
from tests.models.openai_fake import OpenAIWire
from tests.models.responses_fake import ResponsesWire, function_call, reasoning, response

from overt import Agent, RetryPolicy, Status, tool
from overt.errors import ModelError
from overt.message import ModelRequest, ModelResponse, StreamingModel, UserMessage
from overt.models._failures import loads
from overt.models._wire import json_copy
from overt.models.assemble import Assembler

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

WIRES: dict[str, Any] = {
    "openai": OpenAIWire(),
    "openai-responses": ResponsesWire(),
    "anthropic": AnthropicWire(),
    "google": GoogleWire(),
}
each_wire = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
ASK = ModelRequest(messages=(UserMessage(text="go"),))
JSON = "application/json"


async def whole(model: StreamingModel) -> ModelResponse:
    return await model.generate(ASK)


async def streamed(model: StreamingModel) -> ModelResponse:
    made = Assembler()
    async for piece in model.stream(ASK):
        made.add(piece)
    return made.response()


WAYS = [whole, streamed]
Way = Callable[[StreamingModel], Any]


def model(wire: Any, body: Any, *, status: int = 200, kind: str = JSON, **headers: str) -> StreamingModel:
    def answer(request: httpx2.Request) -> httpx2.Response:
        head = {"content-type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if isinstance(body, bytes):
            return httpx2.Response(status, content=body, headers=head)
        return httpx2.Response(status, stream=body, headers=head)

    made: StreamingModel = wire.make(httpx2.MockTransport(answer))
    return made


class Dropped(httpx2.AsyncByteStream):
    """A body whose connection is gone after its first bytes."""

    async def __aiter__(self) -> Any:
        yield b'{"error": '
        raise httpx2.ReadError("reset")


class Unpacked(httpx2.AsyncByteStream):
    """A body that is not packed as its headers say."""

    async def __aiter__(self) -> Any:
        yield b"hello"


@each_wire
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("body", [Dropped, Unpacked])
async def test_a_refusal_whose_body_cannot_be_read_may_be_tried_again(wire: Any, way: Way, body: Any) -> None:
    packed = {"content_encoding": "gzip"} if body is Unpacked else {}
    with pytest.raises(ModelError) as caught:
        await way(model(wire, body(), status=503, **packed))
    assert (caught.value.type, caught.value.retryable) == ("APIConnectionError", True)
    assert caught.value.__context__ is None


@each_wire
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("charset", ["idna", "undefined"])
async def test_an_encoding_that_cannot_be_used(wire: Any, way: Way, status: int, charset: str) -> None:
    body = json.dumps({"error": {"message": "no"}}).encode()
    with pytest.raises(ModelError):
        await way(model(wire, body, status=status, kind=f"{JSON}; charset={charset}"))


@each_wire
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("status", [200, 500])
async def test_a_body_without_bottom(wire: Any, way: Way, status: int) -> None:
    with pytest.raises(ModelError):
        await way(model(wire, b"[" * 10_000, status=status))


def test_a_body_is_read_as_deep_as_a_journal_can_be(anyio_backend: str) -> None:
    assert loads("[" * 150 + "]" * 150) is not None
    assert loads("[" * 151 + "]" * 151) is None
    assert loads('{"a":' * 151 + "1" + "}" * 151) is None
    assert loads("[" + "[]," * 500 + "[]]") == [[]] * 501


@each_wire
async def test_a_reply_nested_too_deeply_is_none(wire: Any) -> None:
    body = json.loads(wire.body("reasoning_call"))
    deep = "[" * 300 + "]" * 300
    for value in body.values():
        for item in value if isinstance(value, list) else []:
            item["extra"] = "deep"
    with pytest.raises(ModelError) as caught:
        await whole(model(wire, json.dumps(body).replace('"deep"', deep).encode()))
    assert caught.value.type == "InvalidReply"


def test_what_is_no_number_is_kept_as_null(anyio_backend: str) -> None:
    assert json_copy({"a": [float("nan"), float("inf"), 1.5]}) == {"a": [None, None, 1.5]}


@tool
async def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


async def test_an_item_that_is_no_number_costs_no_reply() -> None:
    odd = {**reasoning("Hm."), "id": float("nan")}
    replies = [
        response(odd, function_call('{"at": "A1"}')),
        json.loads(WIRES["openai-responses"].body("text")),
    ]

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            200, content=json.dumps(replies.pop(0)).encode(), headers={"content-type": JSON}
        )

    asked = WIRES["openai-responses"].make(httpx2.MockTransport(answer))
    agent = Agent("a", does="works", tools=[look], model=asked)
    result, _ = await agent.run("go", retry=RetryPolicy(max_retries=0))
    assert (result.status, result.usage.unreported_calls) == (Status.DONE, 0)


async def test_an_item_whose_type_is_no_text() -> None:
    body = json.dumps(response({**function_call("{}"), "type": {"a": 1}})).encode()
    assert (await whole(model(WIRES["openai-responses"], body))).message.tool_calls == ()
