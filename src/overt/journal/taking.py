"""Taking a run that nobody drives, for as long as it takes to record what needs no agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import anyio

from overt._times import micros
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.decide import decide
from overt.core.tree import Tree
from overt.errors import StoreError, UsageError
from overt.journal.codec import record
from overt.journal.listing import change_of
from overt.journal.loading import load
from overt.journal.owner import is_dead, owner_here
from overt.journal.record import Record
from overt.journal.store import Claim, RunInfo, Store

__all__ = ("LEASE", "Taken", "aware", "is_free", "leased", "taken")

LEASE = timedelta(seconds=30)
"""How long a run is kept from its drivers where this process stops in the middle."""


def aware(at: datetime | None, what: str) -> datetime:
    """Return a time that was given; the present where none was.

    Raises:
        UsageError: It has no time zone.
    """
    if at is None:
        return datetime.now(UTC)
    if at.tzinfo is None:
        raise UsageError(f"{what} has no time zone: give an aware datetime such as datetime.now(UTC)")
    return at


def is_free(info: RunInfo, now: datetime) -> bool:
    """Whether nobody drives the run: it has no claim, or one that ran out, or its driver is known to be dead."""
    if info.owner is None or info.until is None or info.until <= now:
        return True
    return info.holder is not None and is_dead(info.holder)


class Taken:
    """A run this process holds."""

    __slots__ = ("_after", "_now", "_obeyed", "_records", "_store", "epoch", "facts", "tree")

    def __init__(self, store: Store, claim: Claim, tree: Tree, now: datetime) -> None:
        self.epoch: int = claim.epoch
        self.tree: Tree = tree
        self.facts: list[f.Fact] = []
        """All that was decided."""
        self._store = store
        self._now = micros(now)
        self._after = tree.seq
        self._records: list[Record] = []
        self._obeyed = False

    def decide(self, inp: i.Input) -> list[f.Fact]:
        """Return what follows from an input; `record` stores it."""
        facts = decide(self.tree, inp, self._now)
        if facts:
            self._records.append(record(self.tree.seq - len(facts) + 1, self.tree.now, facts))
            self.facts += facts
        self._obeyed = self._obeyed or (isinstance(inp, i.Interrupt) and inp.asked)
        return facts

    async def record(self) -> None:
        """Store what was decided in one append, which gives the run up; nothing where nothing was.

        Raises:
            RunConflict: Another driver has taken the run by force, or this process stood still for too long.
        """
        if not self._records and not self._obeyed:
            return
        await self._store.append(
            self.tree.run_id,
            self._records,
            after=self._after,
            epoch=self.epoch,
            change=change_of(self.tree, self.facts, obeyed=self._obeyed),
            release=True,
        )


@asynccontextmanager
async def leased(store: Store, run_id: str, *, now: datetime) -> AsyncGenerator[Claim]:
    """Keep a run that nobody drives from its drivers until the end of the block.

    Whoever asked for an interrupt meanwhile was told that the run is driven. It is done when the block is through.

    Raises:
        RunConflict: A living driver has it.
        RunNotFound: The store has no such run.
    """
    owner = owner_here()
    claim: Claim | None = None
    until = now + min(LEASE, datetime.max.replace(tzinfo=UTC) - now)
    try:
        claim = await store.claim(run_id, owner=owner, now=now, until=until)
        yield claim
    except anyio.get_cancelled_exc_class():
        if claim is None:
            # It may have been taken all the same, and then it is ours to take again.
            with anyio.CancelScope(shield=True), suppress(StoreError):
                claim = await store.claim(run_id, owner=owner, now=now, until=until)
        raise
    finally:
        if claim is not None:
            with anyio.CancelScope(shield=True):
                await store.release(run_id, epoch=claim.epoch)
    if claim is not None and claim.interrupt is None:
        await _heed(store, run_id, now)


async def _heed(store: Store, run_id: str, now: datetime) -> None:
    """Interrupt a run that has the mark, unless somebody else drives it, who is told of it."""
    # A run that is gone, or cannot be read, has nobody to do it.
    with suppress(StoreError):
        if (await store.info(run_id)).interrupt is not None:
            async with taken(store, run_id, now=now) as run:
                await run.record()


@asynccontextmanager
async def taken(store: Store, run_id: str, *, now: datetime) -> AsyncGenerator[Taken]:
    """Take a run that nobody drives, read it, and give it up at the end of the block.

    Whoever takes a run first does what was asked of it: that its driver is lost is decided, and so is an interrupt that
    somebody left a mark for.

    Raises:
        RunConflict: A living driver has it.
        RunNotFound: The store has no such run.
        JournalCorrupt: Its journal is damaged.
        UnsupportedSchema: A newer release wrote it.
    """
    async with leased(store, run_id, now=now) as claim:
        tree, _ = await load(store, run_id)
        run = Taken(store, claim, tree, now)
        if tree.root.active:
            run.decide(i.TakeOver())
        if claim.interrupt is not None:
            run.decide(i.Interrupt("root", claim.interrupt or None, asked=True))
        yield run
