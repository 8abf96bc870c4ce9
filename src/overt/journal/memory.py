"""Journals that live as long as the process."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final, final

import anyio

from overt.journal._checks import (
    NOBODY,
    append_conflict,
    check_limit,
    check_records,
    claim_conflict,
    exists,
    not_found,
    statuses,
    used_after_close,
)
from overt.journal._waiting import Waiters
from overt.journal.record import Record
from overt.journal.store import Change, Claim, ImmediateStore, OpenRequest, Owner, RunInfo

__all__ = ("MemoryStore",)


class _Run:
    __slots__ = (
        "agent",
        "created",
        "epoch",
        "interrupt",
        "owner",
        "position",
        "records",
        "requests",
        "status",
        "until",
        "updated",
    )

    def __init__(
        self,
        records: Sequence[Record],
        position: int,
        *,
        agent: str,
        epoch: int,
        owner: Owner,
        now: datetime,
        until: datetime,
    ) -> None:
        self.records: Final = list(records)
        self.position = position
        self.agent: Final = agent
        self.epoch = epoch
        self.created: Final = now
        self.updated = now
        self.requests: dict[str, OpenRequest] | None = None
        self.interrupt: str | None = None
        self.owner: Owner | None = owner
        self.until: datetime | None = until
        self.status = ""


@final
class MemoryStore(ImmediateStore):
    """Keeps journals in memory: the default of a runtime, and the store for tests.

    Records are kept as they are and never encoded. Nothing outlives the process. One store may serve any number of
    runtimes, in several threads too; no method ever waits for anything, so none is a cancellation point.
    """

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._deleted = 0
        """The highest epoch of a run that was deleted."""
        self._waiters = Waiters()

    def __repr__(self) -> str:
        return f"<MemoryStore of {len(self._runs)} runs{', closed' if self._closed else ''}>"

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

        Raises:
            RunExists: The store has this run already; nothing was written.
            StoreError: The records leave a gap, or the store is closed.
        """
        last = check_records(run_id, records, after=0)
        with self._lock:
            if self._closed:
                raise used_after_close("MemoryStore")
            if run_id in self._runs:
                raise exists(run_id)
            epoch = self._deleted + 1
            self._runs[run_id] = _Run(
                records, last, agent=agent, epoch=epoch, owner=owner, now=now, until=until
            )
        return Claim(epoch=epoch, until=until)

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
        """`append_now`, for callers that take any store."""
        return self.append_now(run_id, records, after=after, epoch=epoch, change=change, release=release)

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
        """Append `records` in one step, in time that does not depend on the length of the journal.

        Args:
            run_id: The run.
            records: In order; may be empty to change only the lists or release the claim.
            after: Position of the last fact the caller knows. Compared and set.
            epoch: Epoch of the caller's claim.
            change: What changes in the lists, in the same step.
            release: Give up the claim in the same step.

        Returns:
            Why an interrupt was asked for; `None` where none was.

        Raises:
            RunConflict: The position differs, or the epoch is not the latest, or the claim was released.
            RunNotFound: No such run.
            StoreError: The records do not follow on from `after`, or the store is closed.
        """
        last = check_records(run_id, records, after=after)
        with self._lock:
            run = self._find(run_id)
            if run.position != after or run.epoch != epoch or run.owner is None:
                raise _conflict(run_id, run, after=after, given=epoch)
            run.records.extend(records)
            run.position = last
            run.status = change.status
            run.updated = change.at
            if change.asked or change.settled:
                _list(run, change)
            if change.obeyed:
                run.interrupt = None
            if release:
                run.owner = run.until = None
            if self._waiters:
                self._waiters.wake(run_id)
            return run.interrupt

    async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]:
        """Return the records that end after position `after`, in order; the very objects that were appended.

        Raises:
            RunNotFound: No such run.
            StoreError: The store is closed.
        """
        with self._lock:
            records = self._find(run_id).records
            return records[bisect_right(records, after, key=_last) :]

    async def info(self, run_id: str) -> RunInfo:
        """Return position and claim of a run.

        Raises:
            RunNotFound: No such run.
            StoreError: The store is closed.
        """
        with self._lock:
            return _info(run_id, self._find(run_id))

    async def claim(
        self, run_id: str, *, owner: Owner, now: datetime, until: datetime, force: bool = False
    ) -> Claim:
        """Take the run for `owner`: a new epoch. Free, expired and dead owners' claims are taken; `force` takes any.

        Raises:
            RunConflict: A living owner holds it until later than `now`; carries `owner` and `until`.
            RunNotFound: No such run.
            StoreError: The store is closed.
        """
        with self._lock:
            run = self._find(run_id)
            refused = claim_conflict(
                run_id, held_by=run.owner, held_until=run.until, owner=owner, now=now, force=force
            )
            if refused is not None:
                raise refused
            run.epoch += 1
            run.owner = owner
            run.until = until
            return Claim(epoch=run.epoch, until=until, interrupt=run.interrupt)

    async def renew(self, run_id: str, *, epoch: int, until: datetime) -> str | None:
        """Move the end of the claim.

        Raises:
            RunConflict: The claim is no longer the one of `epoch`, or was released.
            RunNotFound: No such run.
            StoreError: The store is closed.
        """
        with self._lock:
            run = self._find(run_id)
            if run.epoch != epoch or run.owner is None:
                raise _conflict(run_id, run, after=None, given=epoch)
            run.until = until
            return run.interrupt

    async def release(self, run_id: str, *, epoch: int) -> None:
        """Give the claim up. Nothing happens where it is no longer the one of `epoch`.

        Raises:
            StoreError: The store is closed.
        """
        with self._lock:
            if self._closed:
                raise used_after_close("MemoryStore")
            run = self._runs.get(run_id)
            if run is not None and run.epoch == epoch:
                run.owner = run.until = None

    async def runs(
        self,
        *,
        status: str | Collection[str] | None = None,
        agent: str | None = None,
        older_than: datetime | None = None,
        limit: int | None = None,
    ) -> Sequence[RunInfo]:
        """List runs by the time of their last append, oldest first.

        Raises:
            StoreError: The store is closed.
        """
        check_limit(limit)
        wanted = statuses(status)
        with self._lock:
            if self._closed:
                raise used_after_close("MemoryStore")
            found = [
                _info(run_id, run)
                for run_id, run in self._runs.items()
                if (wanted is None or run.status in wanted)
                and agent in (None, run.agent)
                and (older_than is None or run.updated < older_than)
            ]
        return sorted(found, key=lambda info: (info.updated, info.run_id))[:limit]

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

        Raises:
            StoreError: The store is closed.
        """
        check_limit(limit)
        with self._lock:
            if self._closed:
                raise used_after_close("MemoryStore")
            found = [
                request
                for id, run in self._runs.items()
                if run_id in (None, id)
                for request in (run.requests or {}).values()
                if kind in (None, request.kind)
                and agent in (None, request.agent)
                and (older_than is None or request.asked_at < older_than)
                and (due is None or (request.expires_at is not None and request.expires_at <= due))
            ]
        return sorted(found, key=lambda one: (one.asked_at, one.request))[:limit]

    async def ask_interrupt(self, run_id: str, *, reason: str = "") -> None:
        """Leave a mark for whoever drives the run, or takes it next: it is to be interrupted.

        Raises:
            RunNotFound: No such run.
            StoreError: The store is closed.
        """
        with self._lock:
            self._find(run_id).interrupt = reason

    async def delete(self, run_id: str, *, now: datetime, force: bool = False) -> None:
        """Remove a run for good.

        Raises:
            RunConflict: A living owner holds it until later than `now`, and not `force`.
            RunNotFound: No such run.
            StoreError: The store is closed.
        """
        with self._lock:
            run = self._find(run_id)
            refused = claim_conflict(
                run_id, held_by=run.owner, held_until=run.until, owner=NOBODY, now=now, force=force
            )
            if refused is not None:
                raise refused
            self._deleted = max(self._deleted, run.epoch)
            del self._runs[run_id]
            self._waiters.wake(run_id)

    async def wait(self, run_id: str, *, after: int, timeout: float | None = None) -> int:
        """Wait until the run has facts past position `after`, and return the position of its last fact.

        Raises:
            RunNotFound: No such run, or it was deleted meanwhile.
            StoreError: The store is closed.
        """
        with anyio.move_on_after(timeout):
            while True:
                with self._lock:
                    position = self._find(run_id).position
                    if position > after:
                        return position
                    waiter = self._waiters.add(run_id)
                try:
                    await waiter.event.wait()
                finally:
                    with self._lock:
                        self._waiters.remove(run_id, waiter)
        return (await self.info(run_id)).position

    async def close(self) -> None:
        """Forget every journal. Each later call but `close` raises `StoreError`."""
        with self._lock:
            self._closed = True
            self._runs.clear()
            self._waiters.wake_all()

    def _find(self, run_id: str) -> _Run:
        run = self._runs.get(run_id)
        if run is None:
            raise used_after_close("MemoryStore") if self._closed else not_found(run_id)
        return run


def _last(record: Record) -> int:
    return record.position + record.count - 1


def _info(run_id: str, run: _Run) -> RunInfo:
    return RunInfo(
        run_id=run_id,
        position=run.position,
        epoch=run.epoch,
        owner=None if run.owner is None else run.owner.id,
        holder=run.owner,
        until=run.until,
        status=run.status,
        agent=run.agent,
        created=run.created,
        updated=run.updated,
        interrupt=run.interrupt,
    )


def _list(run: _Run, change: Change) -> None:
    requests = run.requests = run.requests or {}
    for request in change.asked:
        requests[request.request] = request
    for id in change.settled:
        requests.pop(id, None)


def _conflict(run_id: str, run: _Run, *, after: int | None, given: int) -> Exception:
    return append_conflict(
        run_id,
        position=run.position,
        epoch=run.epoch,
        owner=None if run.owner is None else run.owner.id,
        until=run.until,
        after=after,
        given=given,
    )
