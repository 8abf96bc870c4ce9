"""Server-sent events out of bytes, however these were cut.

The client's own stream leaves async generators behind when it is left early, which trio warns of; so the bytes of the
response are read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ("EventReader",)

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventReader:
    """Takes a response's bytes and gives its events. An event without its blank line at the end is none."""

    __slots__ = ("_after_cr", "_begun", "_data", "_line", "_name")

    def __init__(self) -> None:
        self._line: list[bytes] = []
        """Pieces of a line that has not ended."""
        self._after_cr = False
        self._begun = False
        self._name = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[tuple[str, str]]:
        """Take the next bytes and yield name and data of every event that is whole with them.

        Args:
            chunk: Any number of bytes; a character or a line end may be cut.
        """
        if not chunk:
            return
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        first, *rest = _LINE_END.split(chunk)
        self._line.append(first)
        for line in rest:
            whole = b"".join(self._line)
            self._line = [line]
            event = self._take(whole)
            if event is not None:
                yield event

    def _take(self, line: bytes) -> tuple[str, str] | None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(_BOM)
        if not line:
            name, data, self._name, self._data = self._name, self._data, b"", []
            # What is no UTF-8 is read as of a reply that came whole.
            return (
                (name.decode(errors="replace"), b"\n".join(data).decode(errors="replace")) if data else None
            )
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        return None
