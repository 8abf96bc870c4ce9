"""The seam between runs and storage: an append-only journal a run, one claim beside it, and lists made from both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from overt.errors import StoreError
from overt.journal.record import Record
from overt.journal.reports import Damage, Interruption, PendingRequest

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
    holder: Owner | None = field(default=None, compare=False)
    """That driver with its process, where the store says so: then a claim of a process that has ended is seen."""
    until: datetime | None = None
    status: str = ""
    """How the run stood when the last append wrote it down, for lists; the journal is the truth.

    `running`: something runs, or did when its driver died. `pending`: it waits for answers. `ready`: an expiry has
    answered for somebody, and what follows has not run. `cut_off`: its host was cancelled. `done`, `interrupted`,
    `closed`: the entry handle's result says so, and no other handle asks. `error`, `incomplete`: that result says so.
    `idle`: no handle has had work. Empty: it has only been begun, and its first step, such as the first model call, is
    not through.
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

    A store of your own derives from this class, or from `StoreWrapper`. It writes `close` and the methods up to
    `delete`; `wait` and the operations from `pendings` on come with the class. A class that only has the same methods
    is driven as well, but has no operations.
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
            StoreError: The records leave a gap, or the store cannot be written to.
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
            RunConflict: The position differs, or the epoch is not the latest, or the claim was released. A claim that
                ran out and was taken by nobody still holds.
            RunNotFound: No such run.
            JournalCorrupt: The journal holds facts behind its end.
            StoreError: The records do not follow on from `after` one by one, or the store cannot be written to;
                nothing was written.
        """
        ...

    async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]:
        """Return the records that end after position `after`, in order.

        Raises:
            RunNotFound: No such run.
            JournalCorrupt: Positions have gaps or overlap, or a row cannot be read.
            StoreError: The store cannot be read; the message says why.
        """
        ...

    async def info(self, run_id: str) -> RunInfo:
        """Return position and claim of a run.

        Raises:
            RunNotFound: No such run.
            StoreError: The store cannot be read; the message says why.
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
            StoreError: The store cannot be written to; the message says why.
        """
        ...

    async def renew(self, run_id: str, *, epoch: int, until: datetime) -> str | None:
        """Move the end of the claim.

        Returns:
            As `append`.

        Raises:
            RunConflict: The claim is no longer the one of `epoch`, or was released.
            RunNotFound: No such run.
            StoreError: The store cannot be written to; the message says why.
        """
        ...

    async def release(self, run_id: str, *, epoch: int) -> None:
        """Give the claim up. Nothing happens where it is no longer the one of `epoch`.

        Raises:
            StoreError: The store cannot be written to; the message says why.
        """
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

        Raises:
            UsageError: `limit` is no number from 0.
            StoreError: The store cannot be read; the message says why.
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

        Raises:
            UsageError: `limit` is no number from 0.
            StoreError: The store cannot be read; the message says why.
        """
        ...

    async def ask_interrupt(self, run_id: str, *, reason: str = "") -> None:
        """Leave a mark for whoever drives the run, or takes it next: it is to be interrupted. Durable on return.

        Raises:
            RunNotFound: No such run.
            StoreError: The store cannot be written to; the message says why.
        """
        ...

    async def delete(self, run_id: str, *, now: datetime, force: bool = False) -> None:
        """Remove a run for good: its journal, its requests, its claim.

        Raises:
            RunConflict: A living owner holds it until later than `now`, and not `force`.
            RunNotFound: No such run.
            StoreError: The store cannot be written to; the message says why.
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
            StoreError: The store cannot be read; the message says why.
        """
        import anyio  # declaring a store needs none of it

        position = (await self.info(run_id)).position
        with anyio.move_on_after(timeout):
            while position <= after:
                await anyio.sleep(POLL)
                position = (await self.info(run_id)).position
        return position

    # ------------------------------------------------------------ operations, made of the methods above

    async def pendings(
        self,
        *,
        kind: str | None = None,
        agent: str | None = None,
        older_than: datetime | None = None,
        run_id: str | None = None,
        limit: int | None = None,
        on_error: Callable[[str, StoreError], None] | None = None,
    ) -> tuple[PendingRequest, ...]:
        """Return open requests across runs by the time they were asked, oldest first: the approval queue.

        Reads the journals of the runs that have one, each once, and needs no agent. What has its answer by then is
        left out.

        Args:
            kind: Only those of this kind.
            agent: Only those this agent asks.
            older_than: Only those asked before this time.
            run_id: Only those of this run.
            limit: At most so many.
            on_error: Told the id of a run that cannot be read, and why; the others are returned. `None`: it is raised.

        Raises:
            JournalCorrupt: A run that asks is damaged; names run and position.
            UnsupportedSchema: A newer release wrote one.
            UsageError: `limit` is no number from 0.
            StoreError: The store cannot be read; the message says why.
        """
        from overt.journal.operations import pendings

        return await pendings(
            self,
            kind=kind,
            agent=agent,
            older_than=older_than,
            run_id=run_id,
            limit=limit,
            on_error=on_error,
        )

    async def expire_due(
        self, now: datetime, *, on_error: Callable[[str, StoreError], None] | None = None
    ) -> tuple[str, ...]:
        """Answer `ok=False, reason="expired"` for every request whose time is over, in runs that nobody drives.

        A run that is driven is left to its driver. What follows from the answers runs when the host goes on with the
        runs: `Runtime.open(…).recover()`. Until then those that may go on are listed as `ready`. Any number of
        processes may call this at once. Durable on return.

        Args:
            now: The time (aware). Time never goes back: in a run whose last fact is later, that one counts.
            on_error: Told the id of a run that cannot be read, and why. `None`: the first such error is raised, after
                all others have been seen to.

        Returns:
            Ids of the runs something expired in.

        Raises:
            JournalCorrupt: A run is damaged; names run and position.
            UnsupportedSchema: A newer release wrote one.
            UsageError: `now` has no time zone.
            StoreError: The store cannot be read or written to; the message says why.
        """
        from overt.journal.operations import expire_due

        return await expire_due(self, now, on_error=on_error)

    async def interrupt(
        self, run_id: str, *, reason: str | None = None, now: datetime | None = None
    ) -> Interruption:
        """Interrupt a run from anywhere, without its agents. See `Runtime.interrupt` for what that ends.

        A run that nobody drives is interrupted now, one whose driver died included. Of one that is driven the driver
        is asked: it obeys at its next step, or when it renews its claim. Durable on return, either way.

        Args:
            run_id: The run.
            reason: Kept in the journal and in the result; `None`: none.
            now: The time (aware), which says whether a claim has run out; `None`: the machine's.

        Raises:
            RunNotFound: No such run.
            JournalCorrupt: The journal is damaged. That it is to be interrupted is noted all the same.
            UnsupportedSchema: A newer release wrote it; noted all the same.
            UsageError: `now` has no time zone.
            StoreError: The store cannot be read or written to; the message says why.
        """
        from overt.journal.operations import interrupt

        return await interrupt(self, run_id, reason=reason, now=now)

    async def abandoned(
        self, now: datetime, *, agent: str | None = None, limit: int | None = None
    ) -> tuple[RunInfo, ...]:
        """List runs whose driver is gone in the middle of its work: `Runtime.open(…).recover()` goes on with one.

        A driver is gone when its claim has run out, or when its process has ended, where that can be seen. Runs whose
        host was cancelled are listed as `cut_off`, and are not among these.

        Args:
            now: The time (aware).
            agent: Only runs of this entry agent.
            limit: At most so many.

        Raises:
            UsageError: `now` has no time zone, or `limit` is no number from 0.
            StoreError: The store cannot be read; the message says why.
        """
        from overt.journal.operations import abandoned

        return await abandoned(self, now, agent=agent, limit=limit)

    async def prune(
        self,
        older_than: datetime,
        *,
        status: str | Collection[str] = ("done", "interrupted"),
        agent: str | None = None,
        limit: int | None = None,
        now: datetime | None = None,
    ) -> tuple[str, ...]:
        """Remove runs for good whose last append is before a time; never one that is driven.

        Args:
            older_than: The time (aware).
            status: Which runs, by `RunInfo.status`; others than those that have ended only where they are named.
            agent: Only runs of this entry agent.
            limit: At most so many.
            now: The time (aware), which says whether a claim has run out; `None`: the machine's.

        Returns:
            Ids of the runs that were removed.

        Raises:
            UsageError: A time has no time zone, or `limit` is no number from 0.
            StoreError: The store cannot be read or written to; the message says why.
        """
        from overt.journal.operations import prune

        return await prune(self, older_than, status=status, agent=agent, limit=limit, now=now)

    async def export_run(self, run_id: str) -> str:
        """Return a run as JSON lines: one that says what follows, then one a record, exactly as it is stored.

        Returns:
            Lines that `import_run` of any store reads. They hold all that is in the journal, in plain text.

        Raises:
            RunNotFound: No such run.
            JournalCorrupt: The journal is damaged.
            UnsupportedSchema: A newer release wrote it.
            StoreError: The store cannot be read; the message says why.
        """
        from overt.journal.transfer import export_run

        return await export_run(self, run_id)

    async def import_run(self, lines: str | Iterable[str], *, now: datetime | None = None) -> str:
        """Take over a run that was exported. All of it is checked before anything is written.

        It keeps its id: the ids of its requests and its idempotency keys are made of that, so a copy under another one
        would be another run. Nobody drives it; where it was at work when it was exported, `abandoned` lists it. Whoever
        goes on with both the copy and the original does everything twice, under the same keys. Durable on return.

        Args:
            lines: What `export_run` returned, or its lines.
            now: The time (aware), for the claim while it is written; `None`: the machine's.

        Returns:
            The run's id.

        Raises:
            RunExists: The store has a run of this id.
            UsageError: This is no exported run.
            JournalCorrupt: A line is damaged, or lines are missing; names the line.
            UnsupportedSchema: A newer release wrote it.
            StoreError: The store cannot be written to; the message says why.
        """
        from overt.journal.transfer import import_run

        return await import_run(self, lines, now=now)

    async def verify(
        self, run_id: str | None = None, *, repair_lists: bool = False, now: datetime | None = None
    ) -> tuple[Damage, ...]:
        """Read everything and return what is wrong: damaged journals, and lists that say otherwise than these.

        Of a store in a file or database that is looked over too, unless `run_id` is given. Runs may be driven
        meanwhile.

        Args:
            run_id: Only this run; `None`: all.
            repair_lists: Write the lists anew, from the journals, of runs that nobody drives. Journals are never
                changed.
            now: The time (aware), which says whether a claim has run out; `None`: the machine's.

        Raises:
            RunNotFound: No run `run_id`.
            UsageError: `now` has no time zone.
            StoreError: The store cannot be read at all.
        """
        from overt.journal.verifying import verify

        return await verify(self, run_id=run_id, repair_lists=repair_lists, now=now)

    async def _verify_file(self) -> Sequence[Damage]:
        """Return what is wrong with the file or database beside single runs; for stores to override."""
        return ()

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
        """`append`, done when it returns. It raises the same errors.

        Raises:
            RunConflict: As `append`.
            RunNotFound: As `append`.
            StoreError: As `append`.
        """
        ...
