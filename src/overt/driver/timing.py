"""Giving user code a time after which nobody waits for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import anyio

if TYPE_CHECKING:
    from overt.driver.loop import Driver

__all__ = ("in_time",)

T = TypeVar("T")


async def in_time(driver: Driver, work: Callable[[], Awaitable[T]], seconds: float) -> T | None:
    """Work beside a timer and return what came of it; `None` when the timer is first: it is left to its own clean-up.

    Args:
        driver: Whose clock and tasks are used.
        work: Raises nothing but a cancellation or the end of the process. It is in no task of the host's.
        seconds: How long to wait for it.
    """
    outcome: list[T] = []
    fatal: list[BaseException] = []
    left = False
    timer = anyio.CancelScope()
    scope = anyio.CancelScope()

    async def run() -> None:
        with scope:
            try:
                outcome.append(await work())
            except (KeyboardInterrupt, SystemExit) as error:
                if left:
                    driver.end_process(error)
                fatal.append(error)
        timer.cancel()

    try:
        driver.spawn(run)
        with timer:
            await driver.clock.sleep(seconds)
    finally:
        left = True
        scope.cancel()
    if fatal:
        raise fatal[0]
    return outcome[0] if outcome else None
