"""One atomic append as a store sees it: a position, a count and a text."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ("Record",)


class Record:
    """The facts of one input, as one row.

    Positions count facts from 1. A record that begins at `position` and holds `count` facts ends at
    `position + count - 1`, and the next one begins right after. `text` is written when first asked for, so a store
    that keeps records as they are never pays for it.

    Raises:
        ValueError: There is neither a `text` nor an `encode`.
    """

    __slots__ = ("_encode", "_text", "count", "payload", "position")

    def __init__(
        self,
        position: int,
        count: int,
        *,
        text: str | None = None,
        payload: object = None,
        encode: Callable[[object], str] | None = None,
    ) -> None:
        if text is None and encode is None:
            raise ValueError("a record needs its text or a way to write it")
        self.position: int = position
        self.count: int = count
        self.payload: object = payload
        self._text = text
        self._encode = encode

    @property
    def text(self) -> str:
        """The record's JSON text."""
        if self._text is None:
            assert self._encode is not None
            self._text = self._encode(self.payload)
        return self._text

    @property
    def last(self) -> int:
        """Position of the last fact in it."""
        return self.position + self.count - 1
