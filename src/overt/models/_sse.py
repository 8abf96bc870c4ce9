"""Server-sent events out of bytes that may be cut anywhere.

The clients' own streams leave async generators behind where they are left early, which trio warns of; so the bytes of
an answer are read here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress

import anyio

__all__ = ("Events", "chunks_of")

_MAX_STRAY = 20_000
_MAX_BUFFERED = 10_000


async def chunks_of(
    chunks: AsyncIterator[bytes], close: Callable[[], Awaitable[None]]
) -> AsyncGenerator[bytes]:
    """Yield the bytes of an answer; leaving closes it.

    Args:
        chunks: The bytes as the client gives them.
        close: Closes the answer.
    """
    try:
        async for chunk in chunks:
            yield chunk
    finally:
        await close()
        # Below are generators that nobody closes; trio warns of those that did not come to an end, so they are made to.
        with anyio.CancelScope() as scope, suppress(Exception):
            scope.cancel()
            for _ in range(_MAX_BUFFERED):
                await anext(chunks)


class Events:
    """Takes the bytes of a stream and gives its events, as the HTML standard reads them.

    The work is in proportion to the bytes, however they are cut. What is no UTF-8 is read as U+FFFD. An event without
    the empty line behind it is none, since the stream has broken off there; `end` gives it all the same.

    Attributes:
        stray: Lines that belong to no event: an error, or a page that is no stream. The first 20,000 bytes are kept.
    """

    __slots__ = ("_begun", "_cr", "_data", "_event", "_line", "_strayed", "stray")

    def __init__(self) -> None:
        self._begun = False
        self._cr = False
        self._line: list[bytes] = []
        """Pieces of a line that has not ended."""
        self._event = ""
        self._data: list[bytes] = []
        self.stray: list[bytes] = []
        self._strayed = 0

    def feed(self, chunk: bytes) -> list[tuple[str, str]]:
        """Return name and data of the events that are complete with these bytes. One without a name is "message"."""
        if not chunk:
            return []
        if self._cr and chunk.startswith(b"\n"):
            # The second half of a line end that was cut in two.
            chunk = chunk[1:]
        self._cr = chunk.endswith(b"\r")
        found: list[tuple[str, str]] = []
        for piece in chunk.splitlines(keepends=True):
            if not piece.endswith((b"\n", b"\r")):
                self._line.append(piece)
                break
            self._line.append(piece.rstrip(b"\r\n"))
            line = b"".join(self._line)
            self._line.clear()
            self._read(line, found)
        return found

    def end(self) -> list[tuple[str, str]]:
        """Return the event that was begun and has no empty line behind it, if there is one."""
        found: list[tuple[str, str]] = []
        if self._line:
            line = b"".join(self._line)
            self._line.clear()
            self._read(line, found)
        self._read(b"", found)
        return found

    def _read(self, line: bytes, found: list[tuple[str, str]]) -> None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if self._data:
                found.append((self._event or "message", b"\n".join(self._data).decode(errors="replace")))
            self._event = ""
            self._data = []
            return
        name, colon, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode(errors="replace")
        elif not (colon and name in (b"", b"id", b"retry")) and self._strayed < _MAX_STRAY:
            self.stray.append(line)
            self._strayed += len(line) + 1
