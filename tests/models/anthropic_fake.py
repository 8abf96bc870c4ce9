"""Anthropic's messages API in the process: what tests of the adapter talk to."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import anyio
import httpx2
from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

from overt.models import AnthropicModel

KEY = "sk-ant-test-0123456789"
MODEL = "claude-sonnet-5"
USAGE = {"input_tokens": 100, "output_tokens": 20}
THOUGHT = {"type": "thinking", "thinking": "A1 comes first.", "signature": "c2lnbmF0dXJl"}
HIDDEN = {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"}


def text(said: object) -> dict[str, Any]:
    return {"type": "text", "text": said}


def call(input: object, *, id: object = "toolu_1", name: object = "look", **more: object) -> dict[str, Any]:
    """A call; `id=None` has none. An `input` that is a text is sent as the pieces of it are when streamed."""
    return {"type": "tool_use", **({} if id is None else {"id": id}), "name": name, "input": input, **more}


def reply(
    *content: dict[str, Any] | None, stop: object = "end_turn", usage: object = USAGE, **more: object
) -> dict[str, Any]:
    """A whole reply; one block `None` makes its content `null`."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-20260101",
        "content": None if content == (None,) else [*content],
        "stop_reason": stop,
        "stop_sequence": None,
        **({} if usage is ... else {"usage": usage}),
        **more,
    }


def error(type: str = "overloaded_error", message: str = "Overloaded") -> dict[str, Any]:
    return {"type": "error", "error": {"type": type, "message": message}, "request_id": "req_inner"}


def event(kind: str, **body: object) -> bytes:
    """One event, as it is on the wire."""
    data = json.dumps({"type": kind, **body}, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode()


def delta(index: int, type: str, **piece: object) -> bytes:
    return event("content_block_delta", index=index, delta={"type": type, **piece})


def pieces(whole: str, width: int) -> list[str]:
    return [whole[at : at + width] for at in range(0, len(whole), width)]


def block_events(index: int, block: dict[str, Any], width: int) -> list[bytes]:
    """The events of one block, its texts in pieces of so many characters."""
    kind = block.get("type")
    if kind == "text":
        start = {**block, "text": block["text"] and ""}
        parts = [delta(index, "text_delta", text=piece) for piece in pieces(block["text"] or "", width)]
    elif kind == "thinking":
        start = {**block, "thinking": "", "signature": ""}
        parts = [delta(index, "thinking_delta", thinking=piece) for piece in pieces(block["thinking"], width)]
        parts.append(delta(index, "signature_delta", signature=block["signature"]))
    elif kind in ("tool_use", "server_tool_use"):
        start = {**block, "input": {}}
        given = block["input"]
        written = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False) if given else ""
        parts = [delta(index, "input_json_delta", partial_json="")]
        parts += [delta(index, "input_json_delta", partial_json=piece) for piece in pieces(written, width)]
    else:
        start, parts = block, []
    return [
        event("content_block_start", index=index, content_block=start),
        *parts,
        event("content_block_stop", index=index),
    ]


def events_of(body: dict[str, Any], *, width: int = 5) -> list[bytes]:
    """The events the same reply is streamed as."""
    usage = body.get("usage")
    begun = {**body, "content": [], "stop_reason": None}
    done: dict[str, Any] = {
        "delta": {key: body[key] for key in ("stop_reason", "stop_sequence", "stop_details") if key in body}
    }
    if isinstance(usage, dict):
        begun["usage"] = {**usage, "output_tokens": usage.get("output_tokens") and 1}
        begun["usage"].pop("output_tokens_details", None)
        # What was sent is often not told again, or as null.
        done["usage"] = {"input_tokens": None, **{key: usage[key] for key in usage if "output" in key}}
    found = [event("message_start", message=begun), event("ping")]
    for index, block in enumerate(body["content"] or []):
        found += block_events(index, block, width)
    return [*found, event("message_delta", **done), event("message_stop")]


class Body(httpx2.AsyncByteStream):
    """The bytes of an answer in the chunks given; says whether it was closed.

    Args:
        chunks: What arrives. An exception is raised where it stands; at `None` nothing arrives any more.
    """

    def __init__(self, chunks: Iterable[bytes | Exception | None]) -> None:
        self.chunks = chunks
        self.closed = 0
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            if self.closed:
                raise httpx2.ReadError("closed")
            if isinstance(chunk, Exception):
                raise chunk
            self.taken += 1
            if chunk is None:
                await anyio.sleep_forever()
            else:
                yield chunk

    async def aclose(self) -> None:
        self.closed += 1


class Provider:
    """Answers every request with `answer` and keeps the bodies it was sent.

    Args:
        answer: A reply (streamed where a stream is asked for), bytes, the chunks of a stream, or an exception.
        status: Of the answer.
        headers: Of the answer.
    """

    def __init__(self, answer: object, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.answer = answer
        self.status = status
        self.headers = headers or {}
        self.requests: list[httpx2.Request] = []
        self.streams: list[Body] = []

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.requests]

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self.answer
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, bytes):
            return httpx2.Response(self.status, content=answer, headers=self.headers)
        if isinstance(answer, dict) and self.status == 200 and self.bodies[-1].get("stream"):
            answer = [event("error", **answer)] if "error" in answer else events_of(answer)
        if isinstance(answer, list):
            self.streams.append(Body(answer))
            headers = {"content-type": "text/event-stream; charset=utf-8", **self.headers}
            return httpx2.Response(self.status, stream=self.streams[-1], headers=headers)
        return httpx2.Response(self.status, json=answer, headers=self.headers)

    def client(self, **options: Any) -> AsyncAnthropic:
        return AsyncAnthropic(**{"api_key": KEY, "http_client": _http(self.transport()), **options})

    def model(self, name: str = MODEL, **options: Any) -> AnthropicModel:
        return AnthropicModel(name, client=self.client(), **options)

    def transport(self) -> httpx2.MockTransport:
        return httpx2.MockTransport(self.handle)


def _http(transport: httpx2.AsyncBaseTransport) -> httpx2.AsyncClient:
    return DefaultAsyncHttpxClient(transport=transport)


HELLO = "Hello, wörld 🎉"
A1, B2 = call({"at": "A1"}), call({"at": "B2"}, id="toolu_2")
CASES: dict[str, dict[str, Any]] = {
    "text": reply(text(HELLO)),
    "call": reply(A1, stop="tool_use"),
    "calls": reply(A1, B2, stop="tool_use"),
    "reasoning_call": reply(THOUGHT, HIDDEN, text("I look."), A1, stop="tool_use"),
    "truncated": reply(text("Hello, wö"), stop="max_tokens"),
    # Cut off where its arguments begin: the API says {} then, and streams nothing of them.
    "truncated_call": reply(text("I look."), call({}), stop="max_tokens"),
    "refusal": reply(
        stop="refusal",
        stop_details={"type": "refusal", "category": "cyber", "explanation": "I cannot help with that."},
    ),
    # There is no finish reason of its own for a filter: it refuses.
    "filtered": reply(text("Hello"), stop="refusal", stop_details={"type": "refusal", "category": None}),
    "empty": reply(),
    "no_usage": reply(text(HELLO), usage=...),
    "null_usage": reply(text(HELLO), usage={"input_tokens": None, "output_tokens": None}),
    "cached_usage": reply(
        text(HELLO),
        usage={
            "input_tokens": 30,
            "cache_read_input_tokens": 60,
            "cache_creation_input_tokens": 10,
            "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 20,
            "output_tokens_details": {"thinking_tokens": 5},
        },
    ),
    "unknown_finish": reply(text(HELLO), stop="kit_reason"),
    "bad_arguments": reply(call('{"at": A1}'), stop="tool_use"),
    "missing_id": reply(call({"at": "A1"}, id=None), stop="tool_use"),
    "empty_id": reply(call({"at": "A1"}, id=""), stop="tool_use"),
    "repeated_id": reply(A1, call({"at": "B2"}), stop="tool_use"),
    "error_in_200": error(),
    "null_content": reply(None),
    "structured": reply(text('{"city":"Oslo"}')),
    "final_call": reply(call({"city": "Oslo"}, name="final_result"), stop="tool_use"),
}


class AnthropicWire:
    """The provider's answers on the wire, by the name of the case."""

    def body(self, case: str) -> bytes:
        """The answer where no stream is asked for."""
        return json.dumps(CASES[case], ensure_ascii=False).encode()

    def events(self, case: str) -> list[bytes]:
        """The same answer as events of a stream."""
        answer = CASES[case]
        return [event("error", **answer)] if "error" in answer else events_of(answer)

    def make(self, transport: httpx2.AsyncBaseTransport) -> AnthropicModel:
        """The adapter over a transport."""
        return AnthropicModel(
            MODEL, client=AsyncAnthropic(api_key=KEY, max_retries=3, http_client=_http(transport))
        )


def cut(stream: Sequence[bytes], width: int) -> list[bytes]:
    """The same bytes in chunks of so many, also within a character."""
    whole = b"".join(stream)
    return [whole[at : at + width] for at in range(0, len(whole), width)]
