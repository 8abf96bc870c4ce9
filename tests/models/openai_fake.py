"""A provider in the process: what tests of the adapters for OpenAI talk to."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Protocol

import anyio.lowlevel
import httpx2
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from overt.message import ModelDelta, ModelRequest, ModelResponse, ModelSettings
from overt.models import OpenAIModel, OpenAIResponsesModel
from overt.models.assemble import Assembler

KEY = "sk-test-0123456789"
TEXT = "Hello, wörld 🎉"
REFUSAL = "I cannot help with that."
THOUGHT = "Let me look — at A1."
CASES = (
    "text",
    "call",
    "calls",
    "reasoning_call",
    "truncated",
    "truncated_call",
    "refusal",
    "filtered",
    "empty",
    "no_usage",
    "null_usage",
    "cached_usage",
    "unknown_finish",
    "bad_arguments",
    "missing_id",
    "empty_id",
    "repeated_id",
    "error_in_200",
    "null_content",
    "structured",
)
SSE = {"content-type": "text/event-stream; charset=utf-8"}

Cut = Callable[[str], list[str]]


class Body(httpx2.AsyncByteStream):
    """The bytes of a stream in the pieces they are sent in; `then` breaks it off."""

    def __init__(self, pieces: Sequence[bytes], then: Exception | None = None) -> None:
        self.pieces = pieces
        self.then = then
        self.sent = 0
        self.closes = 0

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        before = self.closes
        for piece in self.pieces:
            if self.closes > before:
                return  # as a connection that is closed gives no more
            self.sent += 1
            yield piece
            if self.sent % 16 == 1:
                await anyio.lowlevel.checkpoint()
        if self.then is not None:
            raise self.then

    async def aclose(self) -> None:
        self.closes += 1


class Provider:
    """Answers every request with `reply` and keeps the bodies it was sent."""

    def __init__(self, reply: object, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.reply = reply
        self.status = status
        self.headers = headers or {}
        self.requests: list[httpx2.Request] = []

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.requests]

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if isinstance(self.reply, Exception):
            raise self.reply
        if isinstance(self.reply, Body):
            return httpx2.Response(self.status, stream=self.reply, headers={**SSE, **self.headers})
        if isinstance(self.reply, bytes):
            return httpx2.Response(self.status, content=self.reply, headers=self.headers)
        return httpx2.Response(self.status, json=self.reply, headers=self.headers)

    def client(self, **options: Any) -> AsyncOpenAI:
        http = DefaultAsyncHttpxClient(transport=httpx2.MockTransport(self.handle))
        return AsyncOpenAI(**{"api_key": KEY, "http_client": http, **options})

    def model(self, *, settings: ModelSettings | None = None, **options: Any) -> OpenAIModel:
        return OpenAIModel("gpt-5-mini", client=self.client(), settings=settings, **options)

    def responses(self, *, settings: ModelSettings | None = None, **options: Any) -> OpenAIResponsesModel:
        return OpenAIResponsesModel("gpt-5-mini", client=self.client(), settings=settings, **options)


class Streams(Protocol):
    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]: ...


async def pieces(model: Streams, request: ModelRequest) -> list[ModelDelta]:
    """All a model streams."""
    async with aclosing(model.stream(request)) as stream:
        return [piece async for piece in stream]


async def streamed(model: Streams, request: ModelRequest) -> ModelResponse:
    """A streamed reply put together, as the runtime does it."""
    assembler = Assembler()
    async with aclosing(model.stream(request)) as stream:
        async for piece in stream:
            assembler.add(piece)
    return assembler.response()


def sse(events: Sequence[object], *, named: bool = False) -> list[bytes]:
    """Events as they are sent."""
    out: list[bytes] = []
    for event in events:
        head = f"event: {event['type']}\n" if named and isinstance(event, dict) else ""
        data = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
        out.append(f"{head}data: {data}\n\n".encode("utf-8", "surrogatepass"))
    return out


def in_threes(text: str) -> list[str]:
    return [text[at : at + 3] for at in range(0, len(text), 3)]


# ------------------------------------------------------------------ chat completions


def reply(**message: object) -> dict[str, Any]:
    """A reply with one choice; `finish_reason` and `usage` are lifted to where they belong."""
    finish = message.pop("finish_reason", "stop")
    usage = message.pop("usage", {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})
    content = {"role": "assistant", "content": None, **message}
    choice = {"index": 0, "finish_reason": finish, "message": content}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5-mini-2026",
        "choices": [choice],
        "usage": usage,
    }


def calls(*items: tuple[object, object, object]) -> list[dict[str, object]]:
    """Tool calls from `(id, name, arguments)`."""
    return [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id, name, arguments in items
    ]


def chunks(whole: dict[str, Any], cut: Cut = in_threes) -> list[Any]:
    """The chunks that OpenAI streams for a reply: texts in pieces, usage after the choices, `[DONE]`."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": whole["model"]}
    choice = whole["choices"][0]
    message = choice["message"]

    def chunk(finish: object = None, **delta: object) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    def texts() -> Iterator[dict[str, Any]]:
        for key in ("reasoning_content", "content", "refusal"):
            if message.get(key) is not None:
                yield from (chunk(**{key: piece}) for piece in cut(message[key]))
        for index, call in enumerate(message.get("tool_calls") or ()):
            function = call["function"]
            first = {**call, "index": index, "function": {"name": function["name"], "arguments": ""}}
            yield chunk(tool_calls=[first])
            for piece in cut(function["arguments"]):
                yield chunk(tool_calls=[{"index": index, "function": {"arguments": piece}}])

    end: list[Any] = [chunk(choice["finish_reason"])]
    if "usage" in whole:
        end.append({**head, "choices": [], "usage": whole["usage"]})
    return [chunk(role="assistant", content=""), *texts(), *end, "[DONE]"]


def _chat(case: str) -> dict[str, Any]:
    usage: dict[str, Any] = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    look, at = ("call_a", "look", '{"at": "A1"}'), ("call_b", "look", '{"at": "B2"}')
    messages: dict[str, dict[str, Any]] = {
        "call": {"tool_calls": calls(look), "finish_reason": "tool_calls"},
        "calls": {"tool_calls": calls(look, at), "finish_reason": "tool_calls"},
        "reasoning_call": {
            "reasoning_content": THOUGHT,
            "tool_calls": calls(look),
            "finish_reason": "tool_calls",
        },
        "truncated": {"content": TEXT[:9], "finish_reason": "length"},
        "truncated_call": {"tool_calls": calls(("call_a", "look", '{"at": "A')), "finish_reason": "length"},
        "refusal": {"refusal": REFUSAL},
        "filtered": {"content": "", "finish_reason": "content_filter"},
        "empty": {"content": ""},
        "unknown_finish": {"content": TEXT, "finish_reason": "eos"},
        "bad_arguments": {
            "tool_calls": calls(("call_a", "look", '{"at": A1')),
            "finish_reason": "tool_calls",
        },
        "missing_id": {"tool_calls": calls((None, *look[1:])), "finish_reason": "tool_calls"},
        "empty_id": {"tool_calls": calls(("", *look[1:])), "finish_reason": "tool_calls"},
        "repeated_id": {
            "tool_calls": calls(look, ("call_a", *at[1:])),
            "finish_reason": "tool_calls",
        },
        "null_content": {"content": None},
        "structured": {"content": '{"value": "A1"}'},
    }
    if case == "null_usage":
        usage = dict.fromkeys(usage)
    if case == "cached_usage":
        usage["prompt_tokens_details"] = {"cached_tokens": 60, "cache_write_tokens": 10}
        usage["completion_tokens_details"] = {"reasoning_tokens": 5}
    whole = reply(**{"content": TEXT, **messages.get(case, {})}, usage=usage)
    if case in messages and "content" not in messages[case]:
        whole["choices"][0]["message"]["content"] = None
    if case == "no_usage":
        del whole["usage"]
    return whole


FAILED = {"message": "The server had an error", "type": "server_error", "param": None, "code": None}


class OpenAIWire:
    """What the chat completions API sends, case by case."""

    cases: ClassVar[tuple[str, ...]] = CASES

    def body(self, case: str) -> bytes:
        """A reply that comes whole."""
        return json.dumps({"error": FAILED} if case == "error_in_200" else _chat(case)).encode()

    def events(self, case: str) -> list[bytes]:
        """The same reply as a stream."""
        return sse(self.said(case))

    def said(self, case: str, cut: Cut = in_threes) -> list[Any]:
        if case == "error_in_200":
            return [*chunks(_chat("text"), cut)[:3], {"error": FAILED}]
        return chunks(_chat(case), cut)

    def make(self, transport: httpx2.AsyncBaseTransport, **options: Any) -> OpenAIModel:
        """The adapter over a transport."""
        http = DefaultAsyncHttpxClient(transport=transport)
        return OpenAIModel("gpt-5-mini", client=AsyncOpenAI(api_key=KEY, http_client=http), **options)
