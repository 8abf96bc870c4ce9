"""Who may call a model now: first come, first served, and nothing leaks when a holder or a waiter is cancelled."""

from __future__ import annotations

from collections import deque
from types import TracebackType

import anyio

__all__ = ("Gate",)


class Gate:
    """Lets so many in at once. Unlike a semaphore of the event loop it may be made before there is one."""

    __slots__ = ("_free", "_waiters")

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiters: deque[anyio.Event] = deque()

    async def __aenter__(self) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn = anyio.Event()
        self._waiters.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                # The place was handed over in the moment of the cancellation.
                self._leave()
            else:
                self._waiters.remove(turn)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._waiters:
            self._waiters.popleft().set()
        else:
            self._free += 1
