"""An input on its way through the driver, and what its sender is told when the driver has stopped."""

from __future__ import annotations

from contextvars import Context, copy_context

import anyio

from overt.core import facts as f
from overt.core import inputs as i
from overt.core.effects import Effect
from overt.errors import StoreError

__all__ = ("Slot", "store_error")


class Slot:
    """One input on its way."""

    __slots__ = ("context", "done", "effects", "error", "facts", "input", "owner", "take", "wants")

    def __init__(self, inp: i.Input, *, wants: bool, owner: Slot | None = None) -> None:
        self.input: i.Input = inp
        self.owner: Slot = self if owner is None else owner
        """The last of the inputs that were given together."""
        self.wants: bool = wants
        """Whether the caller performs an effect that follows."""
        self.context: Context = copy_context()
        """The caller's: what follows from an input runs in it, whoever appends the facts."""
        self.effects: range = range(0)
        """Ids of the effects it led to."""
        self.take: Effect | None = None
        self.error: Exception | None = None
        self.facts: list[f.Fact] = []
        self.done: anyio.Event | None = None


def store_error(error: BaseException) -> Exception:
    """Return what callers are told of a driver that has stopped."""
    if isinstance(error, StoreError):
        return error
    stopped = StoreError(f"the run was given up: {type(error).__name__}: {error}; open it again to go on")
    stopped.__cause__ = error
    return stopped
