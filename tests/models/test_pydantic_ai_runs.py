"""The bridge to pydantic-ai's models on both event loops: streams, connections, runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import anyio
import httpx2
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic_ai.messages import ModelMessage
from pydantic_ai.messages import ModelResponse as Reply
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from tests.models.openai_fake import KEY, calls, reply
from tests.models.pydantic_ai_fake import Provider, chunks, streamed

from overt.message import ModelRequest, ToolSpec, Usage, UserMessage
from overt.models import PydanticAIModel

pytestmark = pytest.mark.anyio

TOOL = ToolSpec(name="look", description="Look.", input_schema={"type": "object", "properties": {}})


def ask(*tools: ToolSpec) -> ModelRequest:
    return ModelRequest(messages=(UserMessage(text="go"),), tools=tools)


async def test_a_streamed_reply_is_the_reply() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    made = calls(("a", "look", '{"n": [1, 2.50, "é"]}'), ("b", "look", "{}"))
    whole = Provider(
        reply(content="Hi 😀", reasoning_content="so", tool_calls=made, finish_reason="tool_calls")
    )
    deltas = [
        {"reasoning_content": "s"},
        {"reasoning_content": "o"},
        {"content": "H"},
        {"content": "i 😀"},
        {
            "tool_calls": [
                {"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": 1, "id": "b", "type": "function", "function": {"name": "look"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"n": [1, 2.'}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '50, "é"]}'}}]},
    ]
    pieces = Provider(chunks(*deltas, finish="tool_calls", usage=usage))
    request = ask(TOOL)
    heard = [delta async for delta in pieces.chat().stream(request)]
    assert [delta.text for delta in heard if delta.text] == ["H", "i 😀"]
    assert [delta.reasoning for delta in heard if delta.reasoning] == ["s", "o"]
    response = await streamed(pieces.chat(), request)
    assert response == await whole.chat().generate(request)
    assert response.usage == Usage(input_tokens=10, output_tokens=5, total_tokens=15)


async def test_leaving_a_stream_early_closes_the_connection() -> None:
    closed = anyio.Event()

    class Body(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for item in chunks({"content": "a"}, {"content": "b"}, finish=None):
                yield f"data: {json.dumps(item)}\n\n".encode()
            await anyio.sleep_forever()

        async def aclose(self) -> None:
            closed.set()

    def handle(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, stream=Body(), headers={"content-type": "text/event-stream"})

    http = DefaultAsyncHttpxClient(transport=httpx2.MockTransport(handle))
    client = AsyncOpenAI(api_key=KEY, http_client=http)
    model = PydanticAIModel(OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client)))
    stream = model.stream(ask())
    assert (await anext(stream)).text == "a"
    await stream.aclose()  # type: ignore[attr-defined]
    assert closed.is_set()

    with anyio.CancelScope() as scope:
        async for delta in model.stream(ask()):
            if delta.text == "b":
                scope.cancel()
    assert scope.cancelled_caught


async def test_cancellation_goes_through() -> None:
    started = anyio.Event()

    async def hang(_: list[ModelMessage], __: AgentInfo) -> Reply:
        started.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with anyio.create_task_group() as group:
        group.start_soon(PydanticAIModel(FunctionModel(hang)).generate, ask())
        await started.wait()
        group.cancel_scope.cancel()
    assert group.cancel_scope.cancelled_caught
