"""Holding a run while it is driven: taking it, appending under the claim, renewing it, giving it up."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio

from overt.clock import Clock
from overt.core import inputs as i
from overt.core.tree import Tree
from overt.driver.context import to_its_end
from overt.driver.gate import Gate
from overt.driver.intake import Intake
from overt.driver.slot import store_error
from overt.driver.tenure import Tenure
from overt.journal.loading import Log
from overt.journal.record import Record
from overt.journal.store import Change

__all__ = ("Holder",)


class Holder(Intake):
    """What a driver does in the store."""

    def __init__(self, tenure: Tenure, clock: Clock, *, first: i.Open | None, tree: Tree, log: Log) -> None:
        super().__init__(tenure, clock, first=first, tree=tree, log=log)
        self.fits: Callable[[Tree], i.Drift | None] | None = None
        """Says how the code of this process differs; raises where it cannot carry on what is open."""
        self.drift: i.Drift | None = None
        """What is recorded of that when the run is taken."""
        self._moved: bool = False
        """Whether another process has moved the run on, and the code of this one is to be looked at again."""
        self.catching_up: bool = False
        """Whether listeners are told of what another process has done."""
        self._keeping: bool = False
        """Whether a task renews the claim."""
        self._claim = Gate(1)
        """Held while the claim is taken, renewed or given up."""
        self._next = self.tree.next_effect
        """The first effect that is decided and not handed out."""

    async def _append(self, records: Sequence[Record], after: int, change: Change) -> None:
        tree = self.tree
        release = self._may_release()
        if self.first is not None:
            await self.tenure.create(self.first, records)
            self._opened()
            self._keep()
            if not release:
                return
            records, after = (), tree.seq
        append = partial(self.tenure.append, tree.run_id, records, after=after, change=change)
        if not release:
            await append(release=False)
            return
        # What has been decided is not given up while the claim is; giving up takes no longer than the store is given.
        with anyio.CancelScope(shield=True):
            async with self._claim:
                await append(release=self._may_release())
        if self.tenure.held:
            # An input came while the claim was given up, and took it anew.
            self._keep()

    async def acquire(self, *, force: bool = False) -> None:
        """Take the claim on the run, and catch up with what another process has done since.

        Raises:
            RunConflict: Another driver has it.
            SpecDrift: What another process has done with the run does not fit the code of this one.
        """
        if self.broken is not None:
            raise store_error(self.broken)
        async with self._claim:
            if self.first is not None or self.tenure.held:
                return
            known = len(self.log)
            try:
                await self._unbroken(partial(self.tenure.take, self.tree, self.log, force=force))
            finally:
                self._moved = self._moved or len(self.log) != known
            if self.listeners:
                self.catching_up = True
                self._tell(self.log[known:])
                self.catching_up = False
            if self._moved:
                # Whoever moved it on may have had other agents, and other rules for them.
                await self._check_fit()
            self._keep()
            self._next = self.tree.next_effect
            if self.tree.root.active:
                await self.step(i.TakeOver())
            if self.drift is not None:
                drift, self.drift = self.drift, None
                await self.step(drift)
            if self.tenure.mark is not None:
                await self.step(self.obeying())

    async def _check_fit(self) -> None:
        try:
            if self.fits is not None:
                self.drift = self.fits(self.tree)
            self._moved = False
        except BaseException:
            await self.tenure.give_up(self.tree.run_id)
            raise

    async def release(self) -> None:
        """Give the claim up, if it is held; then do what somebody has asked for meanwhile."""
        run_id = self.tree.run_id
        async with self._claim:
            if self.broken is not None or not self.tenure.held:
                return
            await self._unbroken(partial(self.tenure.give_up, run_id))
        # Whoever asked before was told that this driver obeys; whoever asks from now on finds the run free.
        if not self.tenure.private and await self.tenure.is_marked(run_id):
            await self._heed()

    @abstractmethod
    async def _heed(self) -> None:
        """Take the run again and do what was asked, unless somebody else has."""

    async def check_claim(self) -> None:
        """Make sure the run is still this driver's before something is entered that cannot be undone.

        Raises:
            StoreError: It is not, or nobody can tell; this driver stops.
        """
        try:
            await self.tenure.check(self.tree.run_id)
        except Exception as error:
            self._break(error)
            raise store_error(error) from error

    async def _unbroken(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do work in the store to its end; where that never waits, nothing can come between."""
        await (work() if self.tenure.immediate else to_its_end(work))

    async def _keep_claim(self) -> None:
        """Renew the claim for as long as it is held; a parked run has none, and no task that wakes for it."""
        try:
            while True:
                await self.clock.sleep(self.tenure.seconds / 3)
                # Not while it is given up: the store may have let go of it before this driver hears so.
                async with self._claim:
                    if self.broken is not None or not self.tenure.held:
                        return
                    await self.tenure.renew(self.tree.run_id)
                if self.tenure.mark is not None:
                    self._obey()
        except Exception as error:  # noqa: BLE001  # a store that cannot be asked is as good as lost
            self._break(error)
        finally:
            self._keeping = False

    def _keep(self) -> None:
        if self.live and not self.tenure.private and not self._keeping:
            self._keeping = True
            self.spawn(self._keep_claim)
