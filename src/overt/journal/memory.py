"""Journals that live as long as the process."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime
from typing import Final, final

from overt.journal._checks import (
    append_conflict,
    check_records,
    claim_conflict,
    exists,
    not_found,
    used_after_close,
)
from overt.journal.record import Record
from overt.journal.store import Claim, Owner, RunInfo

__all__ = ("MemoryStore",)


class _Run:
    __slots__ = ("agent", "epoch", "owner", "position", "records", "status", "until")

    def __init__(
        self, records: Sequence[Record], position: int, *, agent: str, owner: Owner, until: datetime
    ) -> None:
        self.records: Final = list(records)
        self.position = position
        self.agent: Final = agent
        self.epoch = 1
        self.owner: Owner | None = owner
        self.until: datetime | None = until
        self.status = ""


@final
class MemoryStore:
    """Keeps journals in memory: the default of a runtime, and the store for tests.

    Records are kept as they are and never encoded. Nothing outlives the process. One store may serve any number of
    runtimes, in several threads too; no method ever waits for anything, so none is a cancellation point.
    """

    __slots__ = ("__weakref__", "_closed", "_lock", "_runs")

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()
        self._closed = False

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
        """Start a journal with `records`, claimed by `owner`. Epoch 1.

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
            self._runs[run_id] = _Run(records, last, agent=agent, owner=owner, until=until)
        return Claim(epoch=1, until=until)

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
        """`append_now`, for callers that take any store."""
        self.append_now(run_id, records, after=after, epoch=epoch, status=status, release=release)

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
        """Append `records` in one step, in time that does not depend on the length of the journal.

        Args:
            run_id: The run.
            records: In order; may be empty to change only `status` or release the claim.
            after: Position of the last fact the caller knows. Compared and set.
            epoch: Epoch of the caller's claim.
            status: The run's status as of these records, for lists.
            release: Give up the claim in the same step.

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
            run.status = status
            if release:
                run.owner = run.until = None

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
            run = self._find(run_id)
            return RunInfo(
                run_id=run_id,
                position=run.position,
                epoch=run.epoch,
                owner=None if run.owner is None else run.owner.id,
                until=run.until,
                status=run.status,
                agent=run.agent,
            )

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
            return Claim(epoch=run.epoch, until=until)

    async def renew(self, run_id: str, *, epoch: int, until: datetime) -> None:
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

    async def close(self) -> None:
        """Forget every journal. Each later call but `close` raises `StoreError`."""
        with self._lock:
            self._closed = True
            self._runs.clear()

    def _find(self, run_id: str) -> _Run:
        run = self._runs.get(run_id)
        if run is None:
            raise used_after_close("MemoryStore") if self._closed else not_found(run_id)
        return run


def _last(record: Record) -> int:
    return record.position + record.count - 1


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
