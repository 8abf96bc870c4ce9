"""Holding a run in its store: the claim, its renewal, and appends under it."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import cast

import anyio

from overt.clock import Clock
from overt.core import facts as f
from overt.core.inputs import Open
from overt.core.tree import Tree
from overt.errors import RunConflict, StoreError
from overt.journal.codec import decode, encode
from overt.journal.loading import Log, fold
from overt.journal.owner import owner_here
from overt.journal.record import Record
from overt.journal.store import Change, Owner, Store

__all__ = ("Tenure",)

PAUSE = timedelta(seconds=1)
"""A driver that heard from its store longer ago than this may have been stopped, and its run taken, meanwhile."""
LOCAL = Owner(id="local")
"""Owner of runs in a store nobody else can reach."""


def _is_same(run_id: str, rec: Record, position: int, at: int, facts: Sequence[f.Fact]) -> bool:
    """Whether a record of the store is one that was read or written before."""
    if rec.position != position:
        return False
    if rec.payload is not None and cast("tuple[int, Sequence[f.Fact]]", rec.payload)[1] is facts:
        return True
    # Encoded, as what was decided here need not have the types of what was read.
    return encode(*decode(run_id, rec)) == encode(at, facts)


class Tenure:
    """What a driver has in the store: nothing, or the claim on its run."""

    def __init__(self, store: Store, clock: Clock, *, seconds: float, private: bool) -> None:
        self.store = store
        self.clock = clock
        self.private = private
        """Whether nobody else can reach the store."""
        self.seconds = seconds
        self.owner = LOCAL if private else None
        self.epoch: int | None = None
        self._left: int | None = None
        """Epoch under which this driver stopped, while the store may still hold the claim."""
        self._deadline: float = math.inf
        self._scope: anyio.CancelScope | None = None
        self.mark: str | None = None
        """Why another process has asked for the run to be interrupted, as far as the store has said."""
        self.until: datetime = datetime(1970, 1, 1, tzinfo=UTC)
        self.seen: datetime = self.until
        self._append_now: Callable[..., str | None] | None = getattr(
            store, "append_now", None
        )  # an ImmediateStore; isinstance would cost more than an append

    def hurry(self, seconds: float | None) -> None:
        """Give the store so long from now for what is under way and what comes; `None`: for ever."""
        self._deadline = math.inf if seconds is None else anyio.current_time() + seconds
        if self._scope is not None:
            self._scope.deadline = self._deadline

    @contextmanager
    def _patiently(self) -> Generator[anyio.CancelScope]:
        """Not heeding cancellation, until the store has had its time."""
        with anyio.CancelScope(shield=True, deadline=self._deadline) as scope:
            self._scope = scope
            try:
                yield scope
            finally:
                self._scope = None

    @property
    def immediate(self) -> bool:
        """Whether appends never wait."""
        return self._append_now is not None

    @property
    def held(self) -> bool:
        """Whether this driver holds the claim, as far as it knows."""
        return self.epoch is not None

    def _terms(self) -> tuple[Owner, datetime, datetime]:
        if self.owner is None:
            self.owner = owner_here()
        now = self.clock.now()
        return self.owner, now, now + timedelta(seconds=self.seconds)

    async def create(self, first: Open, records: Sequence[Record]) -> None:
        """Store a run that did not exist, and hold it.

        Raises:
            RunExists: The store has a run of this id.
        """
        owner, now, until = self._terms()
        create = partial(self.store.create, first.run_id, records, agent=first.agent, owner=owner, now=now)
        # A shield costs more than an immediate create, and protects nothing there.
        with nullcontext() if self.immediate else anyio.CancelScope(shield=True):
            claim = await create(until=until)
            self.epoch, self.until, self.seen = claim.epoch, claim.until, now

    async def append(
        self, run_id: str, records: Sequence[Record], *, after: int, change: Change, release: bool
    ) -> None:
        """Append under the claim; durable when this returns.

        An input can come while the append that gives the claim up is under way. Then the claim is taken anew, and the
        position tells whether another driver was there between.

        Raises:
            RunConflict: Another driver has the run, or moved it on.
        """
        if self.immediate and self.epoch is not None:
            self.append_now(run_id, records, after=after, change=change, release=release)
            return
        epoch = await self._retake(run_id, after) if self.epoch is None else self.epoch
        asked = self._before()
        if records or release or change.obeyed:
            with self._patiently() as scope:
                self.mark = await self.store.append(
                    run_id, records, after=after, epoch=epoch, change=change, release=release
                )
            if scope.cancelled_caught:
                raise StoreError(
                    f"run {run_id}: the store did not take an append in time; it may have happened"
                )
        if release:
            self.epoch = None
        else:
            self.seen = asked

    async def _retake(self, run_id: str, after: int) -> int:
        owner, now, until = self._terms()
        epoch = 0  # the scope swallows nothing, which type checkers cannot see
        with anyio.CancelScope(shield=True):
            claim = await self.store.claim(run_id, owner=owner, now=now, until=until, force=False)
            self.epoch, self.until, self.seen = claim.epoch, claim.until, now
            self.mark = claim.interrupt
            epoch = claim.epoch
            info = await self.store.info(run_id)
            if info.position != after:
                await self.give_up(run_id)
                raise RunConflict(f"run {run_id}: another driver has moved it on from position {after}")
        return epoch

    def append_now(
        self, run_id: str, records: Sequence[Record], *, after: int, change: Change, release: bool
    ) -> None:
        """`append`, where the store never waits."""
        assert self._append_now is not None
        if self.epoch is None:
            raise RunConflict(f"run {run_id}: this driver holds no claim")
        asked = self._before()
        self.mark = self._append_now(
            run_id, records, after=after, epoch=self.epoch, change=change, release=release
        )
        if release:
            self.epoch = None
        else:
            self.seen = asked

    def _before(self) -> datetime:
        """The time before the store is asked: the process may be stopped while the store is at it."""
        return self.seen if self.private else self.clock.now()

    async def take(self, tree: Tree, log: Log, *, force: bool) -> None:
        """Take the claim, and catch up with what another driver has done since.

        Raises:
            RunConflict: Another driver has the run, or it is another run of the same id.
        """
        owner, now, until = self._terms()
        with anyio.CancelScope(shield=True):
            claim = await self.store.claim(tree.run_id, owner=owner, now=now, until=until, force=force)
            self.epoch, self.until, self.seen = claim.epoch, claim.until, now
            self.mark = claim.interrupt
            try:
                position, at, facts = log[-1]
                # With the last record that is known: whether it is the same run can only be told by what is in it.
                known, *new = await self.store.read(tree.run_id, after=position - 1) or (None,)
                if known is None or not _is_same(tree.run_id, known, position, at, facts):
                    raise RunConflict(
                        f"run {tree.run_id} is not the one this process has read: it was removed and begun anew, or "
                        "put back to an earlier state; open it again"
                    )
                for rec in new:
                    fold(tree, log, rec, tree.run_id)
            except BaseException:
                await self.give_up(tree.run_id)
                raise

    async def give_up(self, run_id: str) -> None:
        """Let go of the claim, if it is held."""
        if self.epoch is not None:
            epoch, self.epoch = self.epoch, None
            with self._patiently():
                await self.store.release(run_id, epoch=epoch)

    async def is_marked(self, run_id: str) -> bool:
        """Say whether somebody has asked for the run to be interrupted, and it has not been."""
        mark: str | None = None
        with self._patiently():
            mark = (await self.store.info(run_id)).interrupt
        return mark is not None

    def stop(self) -> None:
        """Use the claim no more; `let_go` gives it back."""
        if self.epoch is not None:
            self._left, self.epoch = self.epoch, None

    async def let_go(self, run_id: str) -> None:
        """Give back the claim of a driver that has stopped, as far as the store allows: else it runs out."""
        if self._left is not None:
            epoch, self._left = self._left, None
            with self._patiently(), suppress(StoreError):
                await self.store.release(run_id, epoch=epoch)

    async def check(self, run_id: str) -> None:
        """Make sure that the claim is still ours, before something is entered that cannot be undone.

        The store is asked only after a pause since it was last heard: a process that was stopped and goes on finds here
        that another driver has the run.

        Raises:
            RunConflict: It has.
        """
        if self.private or self.clock.now() < min(self.until, self.seen + PAUSE):
            return
        info = await self.store.info(run_id)
        if info.epoch != self.epoch:
            raise RunConflict(
                f"run {run_id} was taken over by {info.owner}", owner=info.owner, until=info.until
            )
        await self.renew(run_id)

    async def renew(self, run_id: str) -> None:
        """Move the end of the claim on.

        Raises:
            RunConflict: Another driver has the run.
        """
        if self.epoch is not None:
            _, now, until = self._terms()
            self.mark = await self.store.renew(run_id, epoch=self.epoch, until=until)
            self.until, self.seen = until, now
