"""Gemini in the process: what tests of the adapter talk to, and its replies as bytes, whole and streamed."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, cast

import httpx2
from google.genai import Client
from google.genai.types import HttpOptions

from overt.message import ModelSettings
from overt.models import GoogleModel

KEY = "AIzaTest-0123456789abcdef"
NAME = "gemini-3.8-flash"
TEXT = "Hello, wörld 🎉"
SIGNATURE = "c2lnbmF0dXJlIG9mIGEgdGhvdWdodA=="

Body = dict[str, Any]


def usage(sent: object = 100, received: object = 20, **more: object) -> Body:
    total = sent + received if isinstance(sent, int) and isinstance(received, int) else None
    return {"promptTokenCount": sent, "candidatesTokenCount": received, "totalTokenCount": total, **more}


def reply(*parts: Body, finish: object = "STOP", used: object = None, **more: object) -> Body:
    """A reply with one candidate."""
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": finish, "index": 0}
    return {
        "candidates": [candidate],
        "usageMetadata": usage() if used is None else used,
        "modelVersion": NAME,
        "responseId": "r1",
        **more,
    }


def call(at: str = "A1", **more: object) -> Body:
    return {"functionCall": {"name": "look", "args": {"at": at}, **more}}


def refusal(status: int, word: str, message: str, *details: Body) -> Body:
    return {"error": {"code": status, "message": message, "status": word, "details": list(details)}}


def event(body: object) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\r\n\r\n"


def pieces(body: Body, size: int = 3) -> list[Body]:
    """A reply as Gemini streams it: texts in pieces, all else whole; usage so far in each, the reason in the last."""
    if "candidates" not in body or not body["candidates"]:
        return [body]
    candidate, used = body["candidates"][0], body.get("usageMetadata")
    begun = (
        {"usageMetadata": {"promptTokenCount": used.get("promptTokenCount")}}
        if isinstance(used, dict)
        else {}
    )
    content = candidate.get("content") or {}
    cut: list[Body] = []
    for part in content.get("parts") or []:
        text = part.get("text", "")
        if text and not part.keys() - {"text", "thought"}:
            cut.extend({**part, "text": text[at : at + size]} for at in range(0, len(text), size))
        else:
            cut.append(part)
    made = [
        {
            **body,
            "candidates": [
                {"content": {"role": "model", "parts": [part]}, "index": candidate.get("index", 0)}
            ],
            **begun,
        }
        for part in cut
    ]
    end = {key: value for key, value in candidate.items() if key != "content"}
    made.append({**body, "candidates": [{**end, "content": {"role": "model", "parts": [{"text": ""}]}}]})
    return made


def _cases() -> dict[str, Body]:
    thought = {"text": "Let me look.", "thought": True}
    none = reply({"text": TEXT})
    del none["usageMetadata"]
    nothing = reply(finish="STOP")
    nothing["candidates"][0]["content"] = None
    return {
        "text": reply({"text": TEXT}),
        "call": reply(call()),
        "calls": reply(call(), call("B2")),
        "reasoning_call": reply(thought, {**call(), "thoughtSignature": SIGNATURE}),
        "truncated": reply({"text": TEXT}, finish="MAX_TOKENS"),
        "truncated_call": reply({"functionCall": {"name": "look"}}, finish="MAX_TOKENS"),
        # Gemini has no refusal of its own: what it will not answer, it blocks.
        "refusal": {
            "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
            "usageMetadata": usage(100, 20),
            "modelVersion": NAME,
        },
        "filtered": reply(finish="SAFETY"),
        "empty": reply(),
        "no_usage": none,
        "null_usage": reply({"text": TEXT}, used=usage(None, None)),
        "cached_usage": reply(
            {"text": TEXT},
            used=usage(100, 15, cachedContentTokenCount=60, thoughtsTokenCount=5, totalTokenCount=120),
        ),
        "unknown_finish": reply({"text": TEXT}, finish="PONDERING"),
        "bad_arguments": reply({"functionCall": {"name": "look", "args": '{"at": '}}),
        "missing_id": reply(call()),
        "empty_id": reply(call(id="")),
        "repeated_id": reply(call(id="x"), call("B2", id="x")),
        "error_in_200": refusal(503, "UNAVAILABLE", "The model is overloaded."),
        "null_content": nothing,
        "structured": reply({"text": '{"city": "Oslo"}'}),
    }


class GoogleWire:
    """Replies by the name of their case."""

    provider = "google"
    cases: tuple[str, ...] = tuple(_cases())

    def body(self, case: str) -> bytes:
        return json.dumps(_cases()[case], ensure_ascii=False).encode()

    def events(self, case: str) -> list[bytes]:
        return [event(piece) for piece in pieces(_cases()[case])]

    def make(self, transport: httpx2.AsyncBaseTransport) -> GoogleModel:
        return GoogleModel(NAME, client=client(transport))


def client(transport: httpx2.AsyncBaseTransport, *, vertexai: bool = False, **options: Any) -> Client:
    """A client on a transport. What it never uses is given too, since making it takes a tenth of a second."""
    http_options = HttpOptions(
        httpx_async_client=httpx2.AsyncClient(transport=transport),
        httpx_client=httpx2.Client(transport=httpx2.MockTransport(lambda _: httpx2.Response(500))),
        async_client_args={"ssl": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)},
        **options.pop("http_options", {}),
    )
    return Client(vertexai=vertexai, **{"api_key": KEY, "http_options": http_options, **options})


class Stream(httpx2.AsyncByteStream):
    """A body in chunks, which says when it was closed; an exception among them is raised."""

    def __init__(self, chunks: Iterable[bytes | Exception]) -> None:
        self._chunks = chunks
        self.given = 0
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            if self.closed:
                return  # as a connection that is closed gives no more
            if isinstance(chunk, Exception):
                raise chunk
            self.given += 1
            yield chunk

    async def aclose(self) -> None:
        self.closed = True


class Provider:
    """Answers every request with `reply`, streamed where that is a list of chunks, and keeps what it was sent."""

    def __init__(self, reply: object, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.reply = reply
        self.status = status
        self.headers = headers or {}
        self.requests: list[httpx2.Request] = []
        self.streams: list[Stream] = []

    @property
    def bodies(self) -> list[Body]:
        return [json.loads(request.content) for request in self.requests]

    @property
    def contents(self) -> list[Body]:
        """What the last request says was said."""
        return cast("list[Body]", self.bodies[-1]["contents"])

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if isinstance(self.reply, Exception):
            raise self.reply
        if isinstance(self.reply, list):
            self.streams.append(Stream(self.reply))
            return httpx2.Response(self.status, stream=self.streams[-1], headers=self.headers)
        if isinstance(self.reply, bytes):
            return httpx2.Response(self.status, content=self.reply, headers=self.headers)
        return httpx2.Response(self.status, json=self.reply, headers=self.headers)

    def client(self, **options: Any) -> Client:
        return client(httpx2.MockTransport(self.handle), **options)

    def model(
        self, name: str = NAME, *, settings: ModelSettings | None = None, **options: Any
    ) -> GoogleModel:
        return GoogleModel(name, client=self.client(), settings=settings, **options)


def streamed(*bodies: Body) -> list[bytes]:
    return [event(body) for body in bodies]


def cut(whole: bytes, at: Callable[[int], int] | int) -> Sequence[bytes]:
    """The same bytes in other chunks."""
    chunks: list[bytes] = []
    start = 0
    while start < len(whole):
        size = max(at if isinstance(at, int) else at(start), 1)
        chunks.append(whole[start : start + size])
        start += size
    return chunks
