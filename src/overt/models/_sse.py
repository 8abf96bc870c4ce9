"""Server-sent events out of bytes that may be cut anywhere."""

from __future__ import annotations

__all__ = ("Events",)


class Events:
    """Takes the bytes of a stream and gives its events, as the HTML standard reads them.

    The work is in proportion to the bytes, however they are cut. What is no UTF-8 is read as U+FFFD. An event without
    the empty line behind it is none: the stream has broken off there.
    """

    __slots__ = ("_begun", "_cr", "_data", "_event", "_line")

    def __init__(self) -> None:
        self._begun = False
        self._cr = False
        self._line: list[bytes] = []
        self._event = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[tuple[str, str]]:
        """Return name and data of the events that are complete with these bytes."""
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

    def _read(self, line: bytes, found: list[tuple[str, str]]) -> None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if self._data:
                found.append((self._event or "message", "\n".join(self._data)))
            self._event = ""
            self._data = []
            return
        name, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if name == b"data":
            self._data.append(text)
        elif name == b"event":
            self._event = text
