"""Time as the runtime sees it; `overt.testing.VirtualClock` is the other implementation."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable

__all__ = ("Clock", "SystemClock")


@runtime_checkable
class Clock(Protocol):
    """Where every timestamp, timeout and expiry of a run comes from."""

    def now(self) -> datetime:
        """The wall clock, aware."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; a cancellation point."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        """The wall clock in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """`time.monotonic()`."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """`anyio.sleep(seconds)`."""
        from anyio import sleep  # not while agents are only declared

        await sleep(seconds)
