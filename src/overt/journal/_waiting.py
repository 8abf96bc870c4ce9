"""Tasks that wait for a run to move on, in any event loop and thread."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, cast

import anyio
from anyio.lowlevel import current_token

__all__ = ("Waiter", "Waiters")


class _TrioToken(Protocol):
    def run_sync_soon(self, sync_fn: object) -> object: ...


class Waiter:
    """One task that waits. Made in its event loop."""

    __slots__ = ("event", "loop")

    def __init__(self) -> None:
        self.event: Final = anyio.Event()
        self.loop: Final = current_token().native_token

    def wake(self) -> None:
        """Let it go on; from any thread."""
        try:
            if isinstance(self.loop, asyncio.AbstractEventLoop):
                self.loop.call_soon_threadsafe(self.event.set)
            else:
                cast("_TrioToken", self.loop).run_sync_soon(self.event.set)
        except RuntimeError:
            # The loop has ended, and the task with it. Trio's error derives from RuntimeError as well.
            return


class Waiters:
    """All who wait, by run. Whoever uses it holds a lock."""

    __slots__ = ("_by_run",)

    def __init__(self) -> None:
        self._by_run: dict[str, list[Waiter]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_run)

    def add(self, run_id: str) -> Waiter:
        """Return a new waiter of the current task."""
        waiter = Waiter()
        self._by_run.setdefault(run_id, []).append(waiter)
        return waiter

    def remove(self, run_id: str, waiter: Waiter) -> None:
        """Forget one that waits no more; nothing happens where it was woken."""
        waiting = self._by_run.get(run_id, [])
        if waiter in waiting:
            waiting.remove(waiter)
            if not waiting:
                del self._by_run[run_id]

    def wake(self, run_id: str) -> None:
        """Wake those who wait for a run."""
        for waiter in self._by_run.pop(run_id, ()):
            waiter.wake()

    def wake_all(self) -> None:
        """Wake everybody."""
        for run_id in list(self._by_run):
            self.wake(run_id)
