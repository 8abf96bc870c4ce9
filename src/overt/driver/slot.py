"""An input on its way through the driver, and who waits for something to be so."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context

import anyio

from overt.core import facts as f
from overt.core import inputs as i
from overt.core.effects import Effect, Notify
from overt.core.tree import Tree
from overt.errors import StoreError
from overt.result import State

__all__ = ("Slot", "Watch", "as_store_error", "cut_off", "run_status")


class Slot:
    """One input on its way."""

    __slots__ = ("context", "done", "effects", "error", "facts", "input", "owner", "take", "wants")

    def __init__(self, inp: i.Input, *, wants: bool, owner: Slot | None = None) -> None:
        self.input = inp
        self.owner = self if owner is None else owner
        """The last of the inputs that were given together."""
        self.wants = wants
        """Whether the caller performs an effect that follows."""
        self.context = copy_context()
        """The caller's: what follows from an input runs in it, whoever appends the facts."""
        self.effects = range(0)
        """Ids of the effects it led to."""
        self.take: Effect | None = None
        self.error: Exception | None = None
        self.facts: list[f.Fact] = []
        self.done: anyio.Event | None = None


class Watch:
    """Somebody who waits until something is so."""

    __slots__ = ("event", "holds")

    def __init__(self, holds: Callable[[], bool]) -> None:
        self.holds = holds
        self.event = anyio.Event()


def run_status(tree: Tree) -> str:
    """Return the run's status for lists: that of the entry handle, `running` while something runs."""
    entry = tree.entry
    if tree.root.live:
        return "running"
    if entry is None or entry.wake is None:
        return "idle"
    return entry.wake.status or "pending"


def cut_off(tree: Tree) -> bool:
    """Whether the journal holds work under way, or work that was cut off."""
    return any(not isinstance(e, Notify) for e in tree.open.values()) or any(
        n.wake is not None and n.wake.cut and n.state is not State.CLOSED for n in tree.nodes.values()
    )


def as_store_error(error: BaseException) -> Exception:
    """Return what callers are told of a driver that has stopped."""
    if isinstance(error, StoreError):
        return error
    stopped = StoreError(f"the run was given up: {type(error).__name__}: {error}; open it again to go on")
    stopped.__cause__ = error
    return stopped
