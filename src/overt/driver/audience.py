"""Who is told what happens in a run while it happens: facts once they are durable, and what models say meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol, TypeVar

import anyio

from overt.core import facts as f
from overt.driver.context import current_host

__all__ = ("Audience", "Bell", "Hearer", "Listener", "drop")

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


def drop(whom: list[T], one: T) -> None:
    """Take somebody off a list who was told something and raised; call it where that is caught."""
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
        for hearer in tuple(self._hearers):
            try:
                hearer.piece(handle, call, reasoning=reasoning, text=text)
            except Exception:  # noqa: BLE001  # logged
                drop(self._hearers, hearer)


class Bell:
    """Wakes one task that waits for news. What rings while nobody waits is not kept: look first, then wait.

    An `anyio.Event` serves one wait, and making it costs more than all else that an event of a stream takes; the future
    it is made of on asyncio does not.
    """

    __slots__ = ("_event", "_future")

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None
        self._event: anyio.Event | None = None

    def ring(self) -> None:
        """Wake whoever waits."""
        if self._future is not None:
            if not self._future.done():
                self._future.set_result(None)
        elif self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        """Wait until it rings."""
        if current_host() is None:
            self._event = anyio.Event()
            try:
                await self._event.wait()
            finally:
                self._event = None
            return
        self._future = asyncio.get_running_loop().create_future()
        try:
            await self._future
        finally:
            self._future = None
