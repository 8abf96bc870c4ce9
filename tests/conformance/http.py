"""A bench for adapters that send HTTP: the answers of a fake provider, through the client's own transport."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Protocol

import anyio
import httpx2
from pydantic import JsonValue

from overt.message import Model
from overt.testing import ModelCase

__all__ = ("HttpBench", "Wire")


class Wire(Protocol):
    """A provider's replies as bytes."""

    def body(self, case: str) -> bytes: ...
    def events(self, case: str) -> list[bytes]: ...
    def make(self, transport: Any) -> Model: ...


class HttpBench:
    """A model over a transport that answers what the cases say."""

    def __init__(self, wire: Wire, not_applicable: Mapping[str, str]) -> None:
        self.wire = wire
        self.not_applicable = not_applicable
        self.bodies: list[JsonValue] = []
        self.open = 0

    def model(self, *cases: ModelCase, pieces: int | None = None) -> Model:
        left = iter(cases)

        async def handle(request: httpx2.Request) -> httpx2.Response:
            self.bodies.append(json.loads(request.content))
            case = next(left)
            if case.name == "silent":
                await anyio.sleep_forever()
            if case.name == "unreachable":
                raise httpx2.ConnectError("All connection attempts failed")
            kind = "text/html" if case.name == "web_page" else "application/json"
            chunks = [(case.body or "").encode()]
            if case.body is None and _streams(request):
                kind, chunks = "text/event-stream", self._events(case.name)
            elif case.body is None:
                chunks = [self.wire.body(case.name)]
            headers = {"content-type": kind, **case.headers}
            return httpx2.Response(case.status, headers=headers, stream=_Stream(self, chunks, pieces))

        return self.wire.make(httpx2.MockTransport(handle))

    def _events(self, case: str) -> list[bytes]:
        if case != "cut_off":
            return self.wire.events(case)
        events = self.wire.events("text")
        return events[: len(events) // 2]

    def sent(self) -> Sequence[JsonValue]:
        return self.bodies

    def unclosed(self) -> int:
        return self.open


class _Stream(httpx2.AsyncByteStream):
    """An answer as it comes over the network; it is open until it is read to its end or closed."""

    def __init__(self, bench: HttpBench, chunks: Sequence[bytes], pieces: int | None) -> None:
        self.bench = bench
        self.chunks = chunks
        self.pieces = pieces
        self.is_open = True
        bench.open += 1

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in _cut(self.chunks, self.pieces):
            await anyio.lowlevel.checkpoint()
            yield chunk
        self._end()

    async def aclose(self) -> None:
        self._end()

    def _end(self) -> None:
        self.bench.open -= self.is_open
        self.is_open = False


def _cut(chunks: Sequence[bytes], size: int | None) -> Iterator[bytes]:
    if size is None:
        yield from chunks
        return
    whole = b"".join(chunks)
    for start in range(0, len(whole), size):
        yield whole[start : start + size]


def _streams(request: httpx2.Request) -> bool:
    return b'"stream":true' in request.content.replace(b" ", b"") or "stream" in request.url.path
