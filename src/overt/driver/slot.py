"""An input on its way through the driver."""

from __future__ import annotations

import anyio

from overt.core import facts as f
from overt.core import inputs as i
from overt.core.effects import Effect

__all__ = ("Slot",)


class Slot:
    """One input on its way."""

    __slots__ = ("done", "error", "facts", "input", "take", "wants")

    def __init__(self, inp: i.Input, *, wants: bool) -> None:
        self.input = inp
        self.wants = wants
        """Whether the caller performs an effect that follows."""
        self.take: Effect | None = None
        self.error: Exception | None = None
        self.facts: list[f.Fact] = []
        self.done: anyio.Event | None = None
