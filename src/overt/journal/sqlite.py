"""Journals in one SQLite file, for every process of one machine."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar, final

import anyio.to_thread

from overt._times import micros
from overt.errors import DefinitionError, JournalCorrupt, RunNotFound
from overt.journal import _sqlite_lists as sqlite_lists
from overt.journal._checks import (
    NOBODY,
    append_conflict,
    check_limit,
    check_records,
    exists,
    not_found,
    statuses,
    used_after_close,
)
from overt.journal._rows import check_rows
from overt.journal._sqlite_file import Database
from overt.journal._worker import Job, Worker
from overt.journal.record import Record
from overt.journal.reports import Damage
from overt.journal.store import Change, Claim, OpenRequest, Owner, RunInfo, Store

__all__ = ("SQLiteStore",)

T = TypeVar("T")

_FREE = "owner_id = NULL, owner_host = NULL, owner_pid = NULL, owner_started = NULL, until = NULL"
_APPEND = """
UPDATE runs SET position = ?, status = ?, updated = ?{more}
WHERE run_id = ? AND position = ? AND epoch = ? AND owner_id IS NOT NULL
RETURNING interrupt
"""
_APPENDS = {
    (release, obeyed): _APPEND.format(
        more=(f", {_FREE}" if release else "") + (", interrupt = NULL" if obeyed else "")
    )
    for release in (False, True)
    for obeyed in (False, True)
}


@final
class SQLiteStore(Store):
    """Keeps journals in one SQLite file on a local disk, shared by any number of processes of one machine.

    The file is opened at first use, and made by the first run that is started in it; where it is missing every other
    method raises `RunNotFound`, which names it. It is kept in write-ahead-log mode with
    `synchronous=FULL`: what a method wrote when it returns survives the death of the process and of the machine.
    Appends that arrive while a commit is under way share the next one, so many runs cost little more than one.

    A store may be used from several event loops, asyncio's and trio's, and from several threads. It has one thread
    of its own, which waits for other processes' locks; a forked child opens the file anew by itself.

    A call that is cancelled happens whole or not at all, and the caller cannot know which: a cancelled `append` may
    have happened.

    ```python
    import anyio

    from overt import Agent
    from overt.stores import SQLiteStore
    from overt.testing import MockModel

    agent = Agent("agent", does="Answers.", model=MockModel(["Done."]))

    async def main() -> None:
        store = SQLiteStore("runs.db")
        await agent.run("Go.", run_id="r-1", store=store)
        print([(run.run_id, run.status) for run in await store.runs()])
        #> [('r-1', 'done')]
        await store.close()

    anyio.run(main)
    ```

    Args:
        path: The file. Its folder must exist. SQLite keeps two more files beside it, `-wal` and `-shm`, while it is
            open; copy a file with `VACUUM INTO` or when no process has it open.
        busy_timeout: Seconds to wait for another process's lock before `StoreError`.

    Raises:
        DefinitionError: The path is empty, `:memory:` or holds NUL, or the timeout is negative.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout: float = 10.0) -> None:
        name = os.fspath(path)
        if name in ("", ":memory:") or "\0" in name:
            raise DefinitionError(
                f"SQLiteStore needs the path of a file, not {name!r}; for none there is MemoryStore"
            )
        if not 0 <= busy_timeout <= 1_000_000:
            raise DefinitionError(f"busy_timeout is seconds from 0 to 1,000,000, not {busy_timeout!r}")
        self._path: Final = Path(name).absolute()
        self._busy_timeout: Final = busy_timeout
        self._lock = threading.Lock()
        self._closed = False
        self._worker: Worker[sqlite3.Connection] | None = None

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self._path)!r})"

    @property
    def path(self) -> Path:
        """The file, absolute."""
        return self._path

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
        """Start a journal with `records`, claimed by `owner`. Durable on return.

        Raises:
            RunExists: The store has this run already; nothing was written.
            StoreError: The records leave a gap, or the file cannot be written; the message says why.
        """
        last = check_records(run_id, records, after=0)
        rows = _rows(run_id, records)
        claimed = (owner.id, owner.host, owner.pid, owner.started, micros(until))

        def work(connection: sqlite3.Connection) -> int:
            epoch = sqlite_lists.first_epoch(connection)
            row = (run_id, last, epoch, *claimed, "", agent, micros(now), micros(now), None)
            try:
                connection.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            except sqlite3.IntegrityError:
                raise exists(run_id) from None
            _insert(connection, run_id, rows)
            return epoch

        return Claim(epoch=await self._do(run_id, work, writes=True, makes=True), until=until)

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
        """Append `records` in one atomic step; durable when this returns. When cancelled it may have happened.

        The records' texts are written by the calling task, before it waits.

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
            RunNotFound: No such run, or no such file; names the file.
            JournalCorrupt: The journal holds rows after its own end.
            StoreError: The records do not follow on from `after`, or the file cannot be written; the message says
                why, and whether the append may have happened all the same.
        """
        last = check_records(run_id, records, after=after)
        rows = _rows(run_id, records)
        statement = _APPENDS[release, change.obeyed]
        at = micros(change.at)
        path = self._path

        def work(connection: sqlite3.Connection) -> str | None:
            found = connection.execute(statement, (last, change.status, at, run_id, after, epoch)).fetchall()
            if not found:
                raise _conflict(connection, run_id, path, after=after, given=epoch)
            _insert(connection, run_id, rows)
            if change.asked or change.settled:
                sqlite_lists.record(connection, run_id, change.asked, change.settled)
            interrupt: str | None = found[0][0]
            return interrupt

        return await self._do(run_id, work, writes=True)

    async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]:
        """Return the records that end after position `after`, in order.

        Raises:
            RunNotFound: No such run, or no such file; names the file.
            JournalCorrupt: Positions have gaps or overlap, the head differs from the last row, or a row cannot be
                read. The message names run and position.
            StoreError: The file cannot be read; the message says why.
        """
        path = self._path

        def work(connection: sqlite3.Connection) -> list[Record]:
            # Head and rows must be of one moment, and other processes append.
            connection.execute("BEGIN")
            head, rows = _journal(connection, run_id, path, after)
            connection.execute("COMMIT")
            return check_rows(run_id, head, rows, after)

        return await self._do(run_id, work, writes=False)

    async def info(self, run_id: str) -> RunInfo:
        """Return position and claim of a run.

        Raises:
            RunNotFound: No such run, or no such file; names the file.
            StoreError: The file cannot be read; the message says why.
        """
        return await self._do(
            run_id, lambda connection: sqlite_lists.info(connection, run_id, self._path), writes=False
        )

    async def claim(
        self, run_id: str, *, owner: Owner, now: datetime, until: datetime, force: bool = False
    ) -> Claim:
        """Take the run for `owner`: a new epoch. Durable on return.

        Free and expired claims are taken, those of processes of this machine that have ended, and those of the same
        `owner.id`; `force` takes any.

        Raises:
            RunConflict: A living owner holds it until later than `now`; carries `owner` and `until`.
            RunNotFound: No such run, or no such file; names the file.
            StoreError: The file cannot be written; the message says why.
        """
        end = micros(until)
        path = self._path

        def work(connection: sqlite3.Connection) -> Claim:
            before, interrupt = sqlite_lists.held(connection, run_id, path, owner=owner, now=now, force=force)
            epoch = before + 1
            connection.execute(
                "UPDATE runs SET epoch = ?, owner_id = ?, owner_host = ?, owner_pid = ?, owner_started = ?, until = ? "
                "WHERE run_id = ?",
                (epoch, owner.id, owner.host, owner.pid, owner.started, end, run_id),
            )
            return Claim(epoch=epoch, until=until, interrupt=interrupt)

        return await self._do(run_id, work, writes=True)

    async def renew(self, run_id: str, *, epoch: int, until: datetime) -> str | None:
        """Move the end of the claim. Durable on return.

        Raises:
            RunConflict: The claim is no longer the one of `epoch`, or was released.
            RunNotFound: No such run, or no such file; names the file.
            StoreError: The file cannot be written; the message says why.
        """
        end = micros(until)
        path = self._path

        def work(connection: sqlite3.Connection) -> str | None:
            found = connection.execute(
                "UPDATE runs SET until = ? WHERE run_id = ? AND epoch = ? AND owner_id IS NOT NULL RETURNING interrupt",
                (end, run_id, epoch),
            ).fetchall()
            if not found:
                raise _conflict(connection, run_id, path, after=None, given=epoch)
            interrupt: str | None = found[0][0]
            return interrupt

        return await self._do(run_id, work, writes=True)

    async def release(self, run_id: str, *, epoch: int) -> None:
        """Give the claim up. Nothing happens where it is no longer the one of `epoch`. Durable on return.

        Raises:
            StoreError: The file cannot be written; the message says why.
        """

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(f"UPDATE runs SET {_FREE} WHERE run_id = ? AND epoch = ?", (run_id, epoch))

        # Where there is no file there is no claim either.
        with suppress(RunNotFound):
            await self._do(run_id, work, writes=True)

    async def runs(
        self,
        *,
        status: str | Collection[str] | None = None,
        agent: str | None = None,
        older_than: datetime | None = None,
        limit: int | None = None,
    ) -> Sequence[RunInfo]:
        """List runs by the time of their last append, oldest first; none where there is no file.

        Raises:
            StoreError: The file cannot be read; the message says why.
        """
        check_limit(limit)
        wanted = statuses(status)
        try:
            return await self._do(
                "*",
                lambda connection: sqlite_lists.runs(
                    connection, status=wanted, agent=agent, older_than=older_than, limit=limit
                ),
                writes=False,
            )
        except RunNotFound:
            return []

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
        """List open requests across runs by the time they were asked, oldest first; none where there is no file.

        Raises:
            StoreError: The file cannot be read; the message says why.
        """
        check_limit(limit)
        where = {"run_id = ?": run_id, "kind = ?": kind, "agent = ?": agent}
        times = {"asked_at < ?": older_than, "expires_at <= ?": due}
        try:
            return await self._do(
                "*",
                lambda connection: sqlite_lists.requests(connection, where=where, times=times, limit=limit),
                writes=False,
            )
        except RunNotFound:
            return []

    async def ask_interrupt(self, run_id: str, *, reason: str = "") -> None:
        """Leave a mark for whoever drives the run, or takes it next: it is to be interrupted. Durable on return.

        Raises:
            RunNotFound: No such run, or no such file; names the file.
            StoreError: The file cannot be written; the message says why.
        """
        path = self._path

        def work(connection: sqlite3.Connection) -> None:
            done = connection.execute("UPDATE runs SET interrupt = ? WHERE run_id = ?", (reason, run_id))
            if done.rowcount != 1:
                raise not_found(run_id, path)

        await self._do(run_id, work, writes=True)

    async def delete(self, run_id: str, *, now: datetime, force: bool = False) -> None:
        """Remove a run for good: its journal, its requests, its claim. Durable on return.

        The space is used again by later runs; `VACUUM` gives it back to the disk.

        Raises:
            RunConflict: A living owner holds it until later than `now`, and not `force`.
            RunNotFound: No such run, or no such file; names the file.
            StoreError: The file cannot be written; the message says why.
        """
        path = self._path

        def work(connection: sqlite3.Connection) -> None:
            epoch, _ = sqlite_lists.held(connection, run_id, path, owner=NOBODY, now=now, force=force)
            sqlite_lists.delete(connection, run_id, epoch)

        await self._do(run_id, work, writes=True)

    async def _verify_file(self) -> Sequence[Damage]:
        try:
            return await self._do("*", sqlite_lists.faults, writes=False)
        except RunNotFound:
            return ()
        except JournalCorrupt as error:
            return (Damage(run_id=None, what=str(error)),)

    async def close(self) -> None:
        """Finish what is under way, close the file and end the thread. A second call does nothing.

        Cancelled, it closes all the same, without the caller waiting for it. A store that is merely let go of is
        closed when it is collected, and at the end of the program.
        """
        with self._lock:
            self._closed = True
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()
            await anyio.to_thread.run_sync(worker.join, abandon_on_cancel=True)

    async def _do(
        self, run_id: str, work: Callable[[sqlite3.Connection], T], *, writes: bool, makes: bool = False
    ) -> T:
        return await self._current().do(Job(run_id, work, writes=writes, makes=makes))

    def _current(self) -> Worker[sqlite3.Connection]:
        worker = self._worker
        if worker is not None and worker.pid == os.getpid():
            return worker
        if worker is not None:
            # In a forked child the lock may be held by a thread that is not there.
            self._lock = threading.Lock()
        with self._lock:
            if self._closed:
                raise used_after_close(repr(self))
            if self._worker is worker:
                self._worker = Worker(Database(self._path, self._busy_timeout), repr(self))
                weakref.finalize(self, self._worker.stop)
            current = self._worker
        assert current is not None
        return current


def _rows(run_id: str, records: Sequence[Record]) -> list[tuple[str, int, int, str]]:
    return [(run_id, record.position, record.count, record.text) for record in records]


def _insert(connection: sqlite3.Connection, run_id: str, rows: Sequence[tuple[str, int, int, str]]) -> None:
    try:
        connection.executemany("INSERT INTO journal VALUES (?, ?, ?, ?)", rows)
    except sqlite3.IntegrityError:
        raise JournalCorrupt(
            f"run {run_id!r}: the journal holds rows at or after position {rows[0][1]}, where it should end"
        ) from None


def _conflict(
    connection: sqlite3.Connection, run_id: str, path: Path, *, after: int | None, given: int
) -> Exception:
    info = sqlite_lists.info(connection, run_id, path)
    return append_conflict(
        run_id,
        position=info.position,
        epoch=info.epoch,
        owner=info.owner,
        until=info.until,
        after=after,
        given=given,
    )


def _journal(
    connection: sqlite3.Connection, run_id: str, path: Path, after: int
) -> tuple[object, list[tuple[object, ...]]]:
    """Return the head's position and the rows from the one that holds fact `after + 1`, or the last one, on."""
    head = connection.execute("SELECT position FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if head is None:
        if (
            connection.execute("SELECT 1 FROM journal WHERE run_id = ? LIMIT 1", (run_id,)).fetchone()
            is not None
        ):
            raise JournalCorrupt(
                f"{path}: run {run_id!r} has a journal from position 1 on, and its head is missing"
            )
        raise not_found(run_id, path)
    # As bytes, so that a text that is no UTF-8 is found here and can be named.
    cursor = connection.execute(
        "SELECT position, count, CAST(text AS BLOB) FROM journal WHERE run_id = ?1 AND position >= coalesce("
        "(SELECT max(position) FROM journal WHERE run_id = ?1 AND position <= ?2 + 1), 0) ORDER BY position",
        (run_id, after),
    )
    return head[0], cursor.fetchall()
