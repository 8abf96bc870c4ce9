"""The seam between runs and storage: an append-only journal a run, and one claim beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from overt.journal.record import Record

__all__ = ("Claim", "ImmediateStore", "Owner", "RunInfo", "Store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who wants to drive a run. `pid` and `started` let another process of the same machine see that it is dead."""

    id: str
    """Unique for this driver in this process."""
    host: str = ""
    """Machine (boot id), or empty where death cannot be seen from outside."""
    pid: int = 0
    started: str = ""
    """Start time of the process as the operating system tells it; guards against a reused pid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to append to a run. A later claim has a higher epoch; appends under a lower one are refused."""

    epoch: int
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What a store says of a run without reading its journal."""

    run_id: str
    position: int
    """Position of the last fact; 0 for none."""
    epoch: int
    owner: str | None = None
    """Id of the driver that holds the claim, or `None`."""
    until: datetime | None = None
    status: str = ""
    """The status the last append wrote down, for lists; the journal is the truth."""
    agent: str = ""


@runtime_checkable
class Store(Protocol):
    """Keeps journals. `overt.testing.store_conformance` says in code what is asked of one.

    Every method may raise `StoreError`; none leaves half of a change. All times are aware and come from the
    caller's clock, so a store needs none. A call that is cancelled happens whole or not at all, and the caller
    cannot know which: read again before going on.
    """

    async def create(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        agent: str,
        owner: Owner,
        now: datetime,
        until: datetime,
    ) -> Claim:
        """Start a journal with `records`, claimed by `owner`. Epoch 1.

        Raises:
            RunExists: The store has this run already; nothing was written.
        """
        ...

    async def append(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        after: int,
        epoch: int,
        status: str,
        release: bool = False,
    ) -> None:
        """Append `records` in one atomic step; durable when this returns.

        Args:
            run_id: The run.
            records: In order; may be empty to change only `status` or release the claim.
            after: Position of the last fact the caller knows. Compared and set.
            epoch: Epoch of the caller's claim.
            status: The run's status as of these records, for lists.
            release: Give up the claim in the same step.

        Raises:
            RunConflict: The position differs, or the epoch is not the latest, or the claim was released. A claim
                that ran out and was taken by nobody still holds.
            RunNotFound: No such run.
            StoreError: The records do not follow on from `after` one by one; nothing was written.
        """
        ...

    async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]:
        """Return the records that end after position `after`, in order.

        Raises:
            RunNotFound: No such run.
            JournalCorrupt: Positions have gaps or overlap, or a row cannot be read.
        """
        ...

    async def info(self, run_id: str) -> RunInfo:
        """Return position and claim of a run.

        Raises:
            RunNotFound: No such run.
        """
        ...

    async def claim(
        self, run_id: str, *, owner: Owner, now: datetime, until: datetime, force: bool = False
    ) -> Claim:
        """Take the run for `owner`: a new epoch. Free, expired and dead owners' claims are taken; `force` takes any.

        A claim the same `owner.id` holds is taken too, so a claim that was cancelled can be asked for again.

        Raises:
            RunConflict: A living owner holds it until later than `now`; carries `owner` and `until`.
            RunNotFound: No such run.
        """
        ...

    async def renew(self, run_id: str, *, epoch: int, until: datetime) -> None:
        """Move the end of the claim.

        Raises:
            RunConflict: The claim is no longer the one of `epoch`, or was released.
            RunNotFound: No such run.
        """
        ...

    async def release(self, run_id: str, *, epoch: int) -> None:
        """Give the claim up. Nothing happens where it is no longer the one of `epoch`."""
        ...

    async def close(self) -> None:
        """Finish what is under way, then let go of files and threads.

        Every later call of another method raises `StoreError`; closing again does nothing.
        """
        ...


@runtime_checkable
class ImmediateStore(Store, Protocol):
    """A store that appends without waiting for anything, so a caller need not shield the append."""

    def append_now(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        after: int,
        epoch: int,
        status: str,
        release: bool = False,
    ) -> None:
        """`append`, done when it returns. It raises the same errors."""
        ...
