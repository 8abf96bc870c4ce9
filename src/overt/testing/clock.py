"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import math
from datetime import UTC, datetime, timedelta

import anyio
import anyio.lowlevel

__all__ = ("VirtualClock",)

_NANO = 1_000_000_000
_MAX_ROUNDS = 1_000


class VirtualClock:
    """A [`Clock`][overt.Clock] whose time passes only by [`advance`][overt.testing.VirtualClock.advance].

    It works on asyncio and on trio. Tasks that sleep on it and `advance` belong to one event loop; `now` and
    `monotonic` may be read from anywhere. Time is counted in whole nanoseconds, so ten steps of 0.1 s make one second.

    ```python
    import anyio

    from overt import Agent
    from overt.testing import MockModel, VirtualClock

    async def main() -> None:
        clock = VirtualClock()
        agent = Agent("agent", does="Answers.", model=MockModel(["Done."], think_time=3600, clock=clock))
        async with anyio.create_task_group() as group:
            group.start_soon(clock.advance, 3600)
            result, _ = await agent.run("Go.", clock=clock)
        print(result.status, clock.now())
        #> done 2026-01-01 01:00:00+00:00

    anyio.run(main)
    ```

    Args:
        start: The wall clock at the beginning (aware). `monotonic()` begins at 0.0.

    Raises:
        ValueError: `start` has no timezone.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._wall = _aware(start)
        self._wall_at = 0
        self._time = 0
        self._count = 0
        self._queue: list[tuple[int, int, anyio.Event]] = []
        self._asleep: set[int] = set()
        self._watchers: list[tuple[int, anyio.Event]] = []
        self._settling: set[object] = set()

    def now(self) -> datetime:
        """The wall clock, in the timezone it was given in."""
        return self._wall + timedelta(microseconds=(self._time - self._wall_at) // 1_000)

    def monotonic(self) -> float:
        """Seconds advanced since the clock was made."""
        return self._time / _NANO

    @property
    def sleepers(self) -> int:
        """How many tasks sleep on this clock now."""
        return len(self._asleep)

    async def sleep(self, seconds: float) -> None:
        """Wait until `seconds` have been advanced; a cancellation point.

        Args:
            seconds: Zero or less only yields; infinity never ends but by cancellation.

        Raises:
            ValueError: `seconds` is not a number.
        """
        if math.isnan(seconds):
            raise ValueError("sleep: seconds is NaN")
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        self._count += 1
        number = self._count
        event = anyio.Event()
        self._asleep.add(number)
        if not math.isinf(seconds):
            heapq.heappush(self._queue, (self._time + _nanoseconds(seconds), number, event))
        reached = [watcher for watcher in self._watchers if len(self._asleep) >= watcher[0]]
        for watcher in reached:
            self._watchers.remove(watcher)
            watcher[1].set()
        try:
            await event.wait()
        finally:
            self._asleep.discard(number)

    async def advance(self, seconds: float) -> None:
        """Let time pass, waking sleepers in the order of their times.

        Before anything else, and after each wake-up, all other tasks run until they wait for something, so what a woken
        task sleeps next is met too if it falls into the same stretch. Work in worker threads, sockets and
        processes is not waited for.

        Args:
            seconds: How far, zero or more; zero wakes nobody and only lets the other tasks run.

        Raises:
            ValueError: `seconds` is negative or not finite.
        """
        if not (math.isfinite(seconds) and seconds >= 0):
            raise ValueError(f"advance: seconds has to be finite and not negative, got {seconds}")
        target = self._time + _nanoseconds(seconds)
        await self._settle()
        while self._queue and self._queue[0][0] <= target:
            at, number, event = heapq.heappop(self._queue)
            if number not in self._asleep:
                continue
            self._time = max(self._time, at)
            # Before it runs: whoever looks meanwhile must not count it, and a second advance must not wake it again.
            self._asleep.discard(number)
            event.set()
            await self._settle()
        self._time = max(self._time, target)

    def set_wall(self, to: datetime) -> None:
        """Set the wall clock, back or forth. `monotonic` and sleepers are not touched.

        Args:
            to: What `now()` says from here (aware).

        Raises:
            ValueError: `to` has no timezone.
        """
        self._wall = _aware(to)
        self._wall_at = self._time

    async def wait_for_sleepers(self, count: int = 1) -> None:
        """Wait until at least `count` tasks sleep on this clock. Bound it with `anyio.fail_after`.

        Args:
            count: How many.
        """
        if len(self._asleep) >= count:
            await anyio.lowlevel.checkpoint()
            return
        watcher = (count, anyio.Event())
        self._watchers.append(watcher)
        try:
            await watcher[1].wait()
        finally:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

    async def _settle(self) -> None:
        try:
            me = asyncio.current_task()
        except RuntimeError:
            await anyio.wait_all_tasks_blocked()
            return
        # anyio's own function takes 0.1 s a look on asyncio.
        self._settling.add(me)
        try:
            for _ in range(_MAX_ROUNDS):
                await asyncio.sleep(0)
                if not any(_busy(task) for task in asyncio.all_tasks() if task not in self._settling):
                    return
        finally:
            self._settling.discard(me)


def _busy(task: asyncio.Task[object]) -> bool:
    waiter: object = getattr(task, "_fut_waiter", None)
    return not asyncio.isfuture(waiter) or waiter.done()


def _nanoseconds(seconds: float) -> int:
    return round(seconds * _NANO)


def _aware(time: datetime) -> datetime:
    if time.utcoffset() is None:
        raise ValueError(f"the time {time.isoformat()} has no timezone")
    return time
