"""The seam between runs and storage: an append-only journal a run, one claim beside it, and lists made from both."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from overt.journal.record import Record

__all__ = ("Change", "Claim", "ImmediateStore", "OpenRequest", "Owner", "RunInfo", "Store")

POLL = 0.1
"""Seconds between two looks of a store that is told of nothing."""


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
    interrupt: str | None = None
    """Why another process has asked for the run to be interrupted; `None` where none has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """One open request, as a store lists it without reading the journal."""

    run_id: str
    request: str
    """The request's id."""
    kind: str
    agent: str
    """Name of the agent whose handle asks."""
    asked_at: datetime
    expires_at: datetime | None = None
    """`None`: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an append changes in a store's lists. The journal is the truth; the lists are for finding runs in it."""

    status: str
    """The run's status as of these records."""
    at: datetime
    """Time of the append."""
    asked: tuple[OpenRequest, ...] = ()
    """Requests that are open now and were not before."""
    settled: tuple[str, ...] = ()
    """Ids of requests that are open no more."""
    obeyed: bool = False
    """Whether an interrupt that was asked for has been recorded; the mark goes."""


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
    """How the run stood when the last append wrote it down, for lists; the journal is the truth.

    `running`: something runs, or did when its driver died. `pending`: it waits for answers. `ready`: an expiry has
    answered for somebody, and what follows has not run. `cut_off`: its host was cancelled. `done`, `error`,
    `incomplete`, `interrupted`, `closed`: that of the entry handle's result. `idle`: no handle has had work. Empty: it
    has only been created.
    """
    agent: str = ""
    """Name of the entry agent."""
    created: datetime
    updated: datetime
    """Time of the last append."""
    interrupt: str | None = None
    """Why another process has asked for the run to be interrupted; `None` where none has, or it was done."""


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
        """Start a journal with `records`, claimed by `owner`.

        Its epoch is one more than the highest of any run that was deleted, so 1 where none was: a driver of a deleted
        run cannot append to a new run of the same id.

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
        change: Change,
        release: bool = False,
    ) -> str | None:
        """Append `records` in one atomic step; durable when this returns.

        Args:
            run_id: The run.
            records: In order; may be empty to change only the lists or release the claim.
            after: Position of the last fact the caller knows. Compared and set.
            epoch: Epoch of the caller's claim.
            change: What changes in the lists, in the same step.
            release: Give up the claim in the same step.

        Returns:
            Why another process has asked for the run to be interrupted; `None` where none has.

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

    async def renew(self, run_id: str, *, epoch: int, until: datetime) -> str | None:
        """Move the end of the claim.

        Returns:
            As `append`.

        Raises:
            RunConflict: The claim is no longer the one of `epoch`, or was released.
            RunNotFound: No such run.
        """
        ...

    async def release(self, run_id: str, *, epoch: int) -> None:
        """Give the claim up. Nothing happens where it is no longer the one of `epoch`."""
        ...

    async def runs(
        self,
        *,
        status: str | Collection[str] | None = None,
        agent: str | None = None,
        older_than: datetime | None = None,
        limit: int | None = None,
    ) -> Sequence[RunInfo]:
        """List runs by the time of their last append, oldest first.

        Args:
            status: Only runs of this status, or of one of these.
            agent: Only runs of this entry agent.
            older_than: Only runs whose last append is before this time.
            limit: At most so many.
        """
        ...

    async def open_requests(
        self,
        *,
        run_id: str | None = None,
        kind: str | None = None,
        agent: str | None = None,
        older_than: datetime | None = None,
        due: datetime | None = None,
        limit: int | None = None,
    ) -> Sequence[OpenRequest]:
        """List open requests across runs by the time they were asked, oldest first.

        Args:
            run_id: Only those of this run.
            kind: Only those of this kind.
            agent: Only those this agent asks.
            older_than: Only those asked before this time.
            due: Only those that expire at this time or before.
            limit: At most so many.
        """
        ...

    async def ask_interrupt(self, run_id: str, *, reason: str = "") -> None:
        """Leave a mark for whoever drives the run, or takes it next: it is to be interrupted. Durable on return.

        Raises:
            RunNotFound: No such run.
        """
        ...

    async def delete(self, run_id: str, *, now: datetime, force: bool = False) -> None:
        """Remove a run for good: its journal, its requests, its claim.

        Raises:
            RunConflict: A living owner holds it until later than `now`, and not `force`.
            RunNotFound: No such run.
        """
        ...

    async def wait(self, run_id: str, *, after: int, timeout: float | None = None) -> int:
        """Wait until the run has facts past position `after`, and return the position of its last fact.

        Args:
            run_id: The run.
            after: A position.
            timeout: Seconds after which the position is returned as it is; `None` waits for ever.

        Raises:
            RunNotFound: No such run, or it was deleted meanwhile.
        """
        import anyio  # declaring a store needs none of it

        position = (await self.info(run_id)).position
        with anyio.move_on_after(timeout):
            while position <= after:
                await anyio.sleep(POLL)
                position = (await self.info(run_id)).position
        return position

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
        change: Change,
        release: bool = False,
    ) -> str | None:
        """`append`, done when it returns. It raises the same errors."""
        ...
