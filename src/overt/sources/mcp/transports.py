"""The SDK's transports, watched: that one has come to its end is known when it happens, and why."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Self

import anyio
import httpx2
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

from overt.sources.mcp.endpoints import Http, Stdio
from overt.sources.mcp.mending import mend

__all__ = ("Watch", "watched_http", "watched_stdio")

_TAIL = 4_000
_LARGEST = 64 * 1024 * 1024
"""Bytes of one message; an image or a file is one."""


class Watch:
    """What is known of a connection from outside the protocol."""

    def __init__(self) -> None:
        self.lost: anyio.Event = anyio.Event()
        """Set when the other side has gone."""
        self.status: int | None = None
        """The last HTTP status that was an error."""
        self.unknown: bool = False
        """Whether the server has said that it does not know the session."""
        self._stderr = b""

    def heard(self, piece: bytes) -> None:
        """Keep the end of what a program writes to its standard error."""
        self._stderr = (self._stderr + piece)[-_TAIL:]

    @property
    def last_words(self) -> str:
        """The last lines of the program's standard error."""
        text = self._stderr.decode("utf-8", "replace").strip()
        return "\n".join(text.splitlines()[-8:])[-1_000:]


class _Watched:
    """A stream of incoming messages, mended, that tells when it ends."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    @property
    def last_context(self) -> object:
        """What the SDK looks for beside the messages."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Any:
        return await self._inner.receive()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            item = await self._inner.__anext__()
        except BaseException:
            self._watch.lost.set()
            raise
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            mend(item.message.result)
        return item

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> bool | None:
        self._watch.lost.set()
        done: bool | None = await self._inner.__aexit__(*exc)
        return done


@asynccontextmanager
async def watched_stdio(endpoint: Stdio, watch: Watch) -> AsyncGenerator[Any]:
    """Start the program. Its standard error is kept, not passed on."""
    parameters = StdioServerParameters(
        command=endpoint.command,
        args=list(endpoint.args),
        env=dict(endpoint.env),
        cwd=endpoint.cwd,
        # A line that is no UTF-8 is no message, as any other that is none; else it would end the reading, and nobody
        # would be told.
        encoding_error_handler="replace",
    )
    async with _listening(watch) as errlog, stdio_client(parameters, errlog) as (incoming, outgoing):
        errlog.close()  # the program has its own; ours would keep the pipe open after it has gone
        yield _Watched(incoming, watch), outgoing


@asynccontextmanager
async def _listening(watch: Watch) -> AsyncGenerator[Any]:
    if sys.platform == "win32":  # its event loop cannot wait for a pipe
        with open(os.devnull, "w") as nowhere:  # noqa: ASYNC230, PTH123  # opened at once
            yield nowhere
        return
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    loop = asyncio.get_running_loop()

    def ready() -> None:
        try:
            piece = os.read(reading, 65_536)
        except BlockingIOError:
            return
        if piece:
            watch.heard(piece)
        else:
            loop.remove_reader(reading)

    try:
        with os.fdopen(writing, "w") as errlog:
            loop.add_reader(reading, ready)
            yield errlog
    finally:
        loop.remove_reader(reading)
        os.close(reading)


@asynccontextmanager
async def watched_http(endpoint: Http, watch: Watch, connect_timeout: float) -> AsyncGenerator[Any]:
    """Reach the server. Answers may take any time: what a call may take is the caller's to say."""

    async def note(response: httpx2.Response) -> None:
        if response.status_code >= 400:
            watch.status = response.status_code
            watch.unknown = watch.unknown or (
                response.status_code == 404 and MCP_SESSION_ID in response.request.headers
            )

    async with (
        httpx2.AsyncClient(
            headers=dict(endpoint.headers),
            timeout=httpx2.Timeout(connect_timeout, read=None),
            event_hooks={"response": [note]},
        ) as client,
        streamable_http_client(endpoint.url, http_client=client, max_sse_event_size=_LARGEST) as (
            incoming,
            outgoing,
        ),
    ):
        yield _Watched(incoming, watch), outgoing
