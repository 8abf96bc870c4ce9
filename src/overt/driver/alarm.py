"""The timer of running-time budgets, and of questions that expire while something else is at work."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio

from overt.core import inputs as i
from overt.core.budget import next_deadline
from overt.core.tree import Tree
from overt.errors import StoreError

if TYPE_CHECKING:
    from overt.driver.loop import Driver

__all__ = ("Alarm",)


def _next(tree: Tree) -> int | None:
    """Return when there is something to do for time alone (microseconds); `None` for never.

    A run that has parked whole is nobody's work: what expires then is answered by whoever comes next.
    """
    times = [r.question.expires_at for r in tree.expiring.values()] if tree.root.live else []
    wall = next_deadline(tree) if tree.has_wall else None
    return min((at for at in (wall, *times) if at is not None), default=None)


class Alarm:
    """Hands in a `Tick` when the first running-time budget is spent, or the first question expires."""

    __slots__ = ("_deadline", "_scope")

    def __init__(self) -> None:
        self._deadline: int | None = None
        self._scope: anyio.CancelScope | None = None

    @property
    def wound(self) -> bool:
        """Whether it is set to some time."""
        return self._deadline is not None

    def forget(self) -> None:
        """Its task is gone, or will be."""
        self._deadline = None
        self._scope = None

    def wind(self, driver: Driver, *, working: bool) -> None:
        """Set it to what the tree says now."""
        # What nobody performs is over, whatever the journal shows as running: no budget of it runs out.
        deadline = _next(driver.tree) if working else None
        if deadline == self._deadline:
            return
        if self._scope is not None:
            self._scope.cancel()
        self.forget()
        self._deadline = deadline
        if deadline is not None and driver.live:
            self._scope = anyio.CancelScope()
            driver.spawn(partial(self._ring, driver, self._scope, deadline))

    async def _ring(self, driver: Driver, scope: anyio.CancelScope, deadline: int) -> None:
        with scope:
            await driver.clock.sleep(max(deadline - driver.now(), 0) / 1e6)
            self.forget()
            try:
                await driver.step(i.Tick(), own=True)
            except StoreError:
                return
            # A clock that woke early, or one that was set back, has not reached it.
            self.wind(driver, working=driver.working)
