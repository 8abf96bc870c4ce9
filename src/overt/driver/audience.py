"""Who is told what happens in a run while it happens: facts once they are durable, and what models say meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from overt.core import facts as f

__all__ = ("Audience", "Hearer", "Listener", "tell")

T = TypeVar("T")


class Listener(Protocol):
    """Is told of facts: each once, in the order of the journal, before anything that follows from it happens."""

    def record(self, position: int, at: int, facts: Sequence[f.Fact]) -> None:
        """Hear of one record. What it raises is a fault of ours: it is logged, and the listener is told no more.

        Args:
            position: Of the first fact in the journal.
            at: When it was recorded, in microseconds since 1970.
            facts: For reading only.
        """
        ...


class Hearer(Protocol):
    """Is told what models say while they say it."""

    def piece(self, handle: str, call: object, *, reasoning: bool, text: str) -> None:
        """Hear one piece; as for `Listener.record` where it raises.

        Args:
            handle: Whose model it is.
            call: The same object for all pieces of one model call.
            reasoning: Whether it is of the reasoning, not of the text.
            text: Not empty.
        """
        ...


def tell(whom: list[T], how: Callable[[T], object]) -> None:
    """Tell everybody; who raises is taken off the list, and the run goes on."""
    for one in tuple(whom):
        try:
            how(one)
        except Exception:
            if one in whom:
                whom.remove(one)
            logging.getLogger("overt").exception("%r was told of a run and raised; it is told no more", one)


class Audience:
    """All who hear what models say. Without any, models are not asked to stream."""

    __slots__ = ("_hearers",)

    def __init__(self) -> None:
        self._hearers: list[Hearer] = []

    def __bool__(self) -> bool:
        return bool(self._hearers)

    def add(self, hearer: Hearer) -> None:
        """Tell it what is said from now on."""
        self._hearers.append(hearer)

    def remove(self, hearer: Hearer) -> None:
        """Tell it nothing more."""
        if hearer in self._hearers:
            self._hearers.remove(hearer)

    def piece(self, handle: str, call: object, *, reasoning: bool, text: str) -> None:
        """Tell everybody one piece."""
        tell(self._hearers, lambda one: one.piece(handle, call, reasoning=reasoning, text=text))
