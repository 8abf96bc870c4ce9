"""Journals in PostgreSQL, for processes of any number of machines."""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar, final

import anyio
import anyio.to_thread

from overt._times import micros, moment_or_none
from overt.errors import DefinitionError, JournalCorrupt, RunNotFound
from overt.journal._checks import (
    NOBODY,
    check_limit,
    check_records,
    claim_conflict,
    exists,
    not_found,
    statuses,
    used_after_close,
)
from overt.journal._postgres_rows import conflict_of, free, info_of, owner_of, request_of, rows_of
from overt.journal._postgres_schema import Statements
from overt.journal._postgres_session import Head, Row, Session
from overt.journal._rows import check_rows
from overt.journal._worker import Job, Worker
from overt.journal.record import Record
from overt.journal.reports import Damage
from overt.journal.store import Change, Claim, OpenRequest, Owner, RunInfo, Store

if TYPE_CHECKING:
    from overt.journal._postgres_listen import Listener

__all__ = ("PostgresStore",)

T = TypeVar("T")

_IDENTIFIER = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,56}")
"""With what is put before it, a name has at most the 63 characters of one in PostgreSQL."""


@final
class PostgresStore(Store):
    """Keeps journals in a PostgreSQL database (13 or later), for any number of processes and machines.

    Needs `pip install 'overt[postgres]'`. The server is connected to at first use, and the tables are made by the
    first run that is started; a user that may not make them finds those somebody else's first run made. Whatever a
    method wrote is committed with `synchronous_commit=on` when it returns. Appends that arrive while a commit is under
    way share the next one, so many runs cost little more than one.

    A store may be used from several event loops, asyncio's and trio's, and from several threads. It has a connection
    and a thread of its own, and a second of each once `wait` is called; a forked child connects anew by itself.

    A connection that is lost is made again, and what was to be written is written over the new one; if it is lost
    while a transaction is committed, the server is asked what became of it. Only where it cannot tell does an append
    raise `StoreError` saying that it may have happened: read the run again.

    It works through PgBouncer in transaction mode, but for notifications: `wait` then looks once a second.

    A call that is cancelled happens whole or not at all, and the caller cannot know which: a cancelled `append` may
    have happened.

    Args:
        dsn: `postgresql://user:password@host:port/database`, or `host=… dbname=…`; what it leaves out comes from the
            environment as with every PostgreSQL client (PGHOST, PGPASSWORD, a passfile). No message and no repr
            holds a password. Where it says nothing of timeouts, connecting takes at most 10 seconds.
        schema: Where the tables are; one database may hold several stores under different ones. Lower-case letters,
            digits and `_`.
        lock_timeout: Seconds to wait for another program's transaction that holds a run before `StoreError`.
        reconnect_timeout: Seconds to wait for a server that was there before and is restarted, before `StoreError`.
            Every run of the store waits meanwhile; keep it below `Options.claim`.

    Raises:
        DefinitionError: The package psycopg is missing, the DSN cannot be read, the schema is no such name, or a
            timeout is no number of seconds.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "overt",
        lock_timeout: float = 10.0,
        reconnect_timeout: float = 10.0,
    ) -> None:
        try:
            # Here, so that whoever keeps journals elsewhere never loads it.
            from overt.journal._postgres_words import parse
        except ImportError as error:
            raise DefinitionError(
                f"PostgresStore needs the package psycopg ({error}): pip install 'overt[postgres]'"
            ) from error
        if not _IDENTIFIER.fullmatch(schema):
            raise DefinitionError(
                f"PostgresStore: schema is up to 57 of a-z, 0-9, _, without a digit or pg_ in front, not {schema!r}"
            )
        for name, seconds in (("lock_timeout", lock_timeout), ("reconnect_timeout", reconnect_timeout)):
            if not 0 <= seconds <= 1_000_000:
                raise DefinitionError(f"{name} is seconds from 0 to 1,000,000, not {seconds!r}")
        self._conninfo, self._where = parse(dsn)
        self._schema: Final = schema
        self._lock_timeout: Final = lock_timeout
        self._patience: Final = reconnect_timeout
        self._statements: Final = Statements(schema)
        self._lock = threading.Lock()
        self._closed = False
        self._worker: Worker[Session] | None = None
        self._listener: Listener | None = None

    def __repr__(self) -> str:
        return f"PostgresStore({self._where!r}, schema={self._schema!r})"

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
            StoreError: The records leave a gap, or the server cannot be written to; the message says why.
        """
        last = check_records(run_id, records, after=0)
        rows = rows_of(run_id, records)
        end, at = micros(until), micros(now)

        def work(session: Session) -> int:
            if session.find(run_id) is not None:
                raise exists(run_id)
            epoch = session.deleted_epoch + 1
            session.create(
                Head(
                    run_id=run_id,
                    position=last,
                    epoch=epoch,
                    owner_id=owner.id,
                    owner_host=owner.host,
                    owner_pid=owner.pid,
                    owner_started=owner.started,
                    until=end,
                    status="",
                    agent=agent,
                    created=at,
                    updated=at,
                    interrupt=None,
                ),
                rows,
            )
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
            RunNotFound: No such run, or no tables; names the server.
            JournalCorrupt: The journal holds rows after its own end.
            StoreError: The records do not follow on from `after`, or the server cannot be written to; the message
                says why, and whether the append may have happened all the same.
        """
        last = check_records(run_id, records, after=after)
        rows = rows_of(run_id, records)
        at = micros(change.at)
        find = self._find

        def work(session: Session) -> str | None:
            head = find(session, run_id)
            if head.position != after or head.epoch != epoch or head.owner_id is None:
                raise conflict_of(head, after=after, given=epoch)
            head.position = last
            head.status = change.status
            head.updated = at
            if change.obeyed:
                head.interrupt = None
            if release:
                free(head)
            session.write(head, rows, asked=change.asked, settled=change.settled)
            return head.interrupt

        return await self._do(run_id, work, writes=True)

    async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]:
        """Return the records that end after position `after`, in order.

        Raises:
            RunNotFound: No such run, or no tables; names the server.
            JournalCorrupt: Positions have gaps or overlap, or the head differs from the last row. The message names
                run and position.
            StoreError: The server cannot be read; the message says why.
        """

        def work(session: Session) -> list[Record]:
            found = session.fetch(self._statements.journal, (run_id, after + 1, run_id))
            if not found:
                if session.fetch(self._statements.headless, (run_id, run_id))[0][0]:
                    raise JournalCorrupt(
                        f"run {run_id!r} has a journal from position 1 on, and its head is missing"
                    )
                raise self._not_found(run_id)
            rows = [row[1:] for row in found if row[1] is not None]
            return check_rows(run_id, found[0][0], rows, after)

        return await self._do(run_id, work, writes=False)

    async def info(self, run_id: str) -> RunInfo:
        """Return position and claim of a run.

        Raises:
            RunNotFound: No such run, or no tables; names the server.
            StoreError: The server cannot be read; the message says why.
        """

        def work(session: Session) -> RunInfo:
            found = session.fetch(self._statements.head, (run_id,))
            if not found:
                raise self._not_found(run_id)
            return info_of(Head.of(found[0]))

        return await self._do(run_id, work, writes=False)

    async def claim(
        self, run_id: str, *, owner: Owner, now: datetime, until: datetime, force: bool = False
    ) -> Claim:
        """Take the run for `owner`: a new epoch. Durable on return.

        Free and expired claims are taken, those of processes of this machine that have ended, and those of the same
        `owner.id`; `force` takes any.

        Raises:
            RunConflict: A living owner holds it until later than `now`; carries `owner` and `until`.
            RunNotFound: No such run, or no tables; names the server.
            StoreError: The server cannot be written to; the message says why.
        """
        end = micros(until)

        def work(session: Session) -> Claim:
            head = self._take(session, run_id, owner=owner, now=now, force=force)
            head.epoch += 1
            head.owner_id, head.owner_host = owner.id, owner.host
            head.owner_pid, head.owner_started = owner.pid, owner.started
            head.until = end
            session.write(head)
            return Claim(epoch=head.epoch, until=until, interrupt=head.interrupt)

        return await self._do(run_id, work, writes=True)

    async def renew(self, run_id: str, *, epoch: int, until: datetime) -> str | None:
        """Move the end of the claim. Durable on return.

        Returns:
            As `append`.

        Raises:
            RunConflict: The claim is no longer the one of `epoch`, or was released.
            RunNotFound: No such run, or no tables; names the server.
            StoreError: The server cannot be written to; the message says why.
        """
        end = micros(until)

        def work(session: Session) -> str | None:
            head = self._find(session, run_id)
            if head.epoch != epoch or head.owner_id is None:
                raise conflict_of(head, after=None, given=epoch)
            head.until = end
            session.write(head)
            return head.interrupt

        return await self._do(run_id, work, writes=True)

    async def release(self, run_id: str, *, epoch: int) -> None:
        """Give the claim up. Nothing happens where it is no longer the one of `epoch`. Durable on return.

        Raises:
            StoreError: The server cannot be written to; the message says why.
        """

        def work(session: Session) -> None:
            head = session.find(run_id)
            if head is not None and head.epoch == epoch:
                free(head)
                session.write(head)

        # Where there are no tables there is no claim either.
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
        """List runs by the time of their last append, oldest first; none where there are no tables.

        Raises:
            StoreError: The server cannot be read; the message says why.
        """
        check_limit(limit)
        wanted = statuses(status)
        tests: dict[bytes, object] = {}
        if wanted is not None:
            tests[b"status = ANY(%b::text[])"] = sorted(wanted)
        if agent is not None:
            tests[b"agent = %s"] = agent
        if older_than is not None:
            tests[b"updated < %s"] = micros(older_than)
        found = await self._list(self._statements.runs, tests, b"updated, run_id", limit)
        return [info_of(Head.of(row)) for row in found]

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
        """List open requests across runs by the time they were asked, oldest first; none where there are no tables.

        Raises:
            StoreError: The server cannot be read; the message says why.
        """
        check_limit(limit)
        tests: dict[bytes, object] = {b"run_id = %s": run_id, b"kind = %s": kind, b"agent = %s": agent}
        tests[b"asked_at < %s"] = None if older_than is None else micros(older_than)
        tests[b"expires_at <= %s"] = None if due is None else micros(due)
        tests = {test: value for test, value in tests.items() if value is not None}
        found = await self._list(self._statements.requests, tests, b"asked_at, request", limit)
        return [request_of(row) for row in found]

    async def ask_interrupt(self, run_id: str, *, reason: str = "") -> None:
        """Leave a mark for whoever drives the run, or takes it next: it is to be interrupted. Durable on return.

        Raises:
            RunNotFound: No such run, or no tables; names the server.
            StoreError: The server cannot be written to; the message says why.
        """

        def work(session: Session) -> None:
            head = self._find(session, run_id)
            head.interrupt = reason
            session.write(head)

        await self._do(run_id, work, writes=True)

    async def delete(self, run_id: str, *, now: datetime, force: bool = False) -> None:
        """Remove a run for good: its journal, its requests, its claim. Durable on return.

        Raises:
            RunConflict: A living owner holds it until later than `now`, and not `force`.
            RunNotFound: No such run, or no tables; names the server.
            StoreError: The server cannot be written to; the message says why.
        """

        def work(session: Session) -> None:
            session.delete(self._take(session, run_id, owner=NOBODY, now=now, force=force))

        await self._do(run_id, work, writes=True)

    async def wait(self, run_id: str, *, after: int, timeout: float | None = None) -> int:
        """Wait until the run has facts past position `after`, and return the position of its last fact.

        The server notifies of every append, of this process or another (`LISTEN`, over a connection of its own). A
        notification that is lost is made up for within a second.

        Raises:
            RunNotFound: No such run, or it was deleted meanwhile.
            StoreError: The server cannot be read, or the store is closed; the message says why.
        """
        with anyio.move_on_after(timeout):
            while True:
                listener = self._listening()
                waiter = listener.add(run_id, after)
                try:
                    # Looked at when nothing can be missed any more.
                    position = (await self.info(run_id)).position
                    if position > after:
                        return position
                    await waiter.event.wait()
                finally:
                    listener.remove(waiter)
                if waiter.error is not None:
                    raise waiter.error
        return (await self.info(run_id)).position

    async def close(self) -> None:
        """Finish what is under way, close the connections and end the threads. A second call does nothing.

        Cancelled, it closes all the same, without the caller waiting for it. A store that is merely let go of is
        closed when it is collected, and at the end of the program.
        """
        with self._lock:
            self._closed = True
            worker, self._worker = self._worker, None
            listener, self._listener = self._listener, None
        for thread in (listener, worker):
            if thread is not None:
                thread.stop()
        for thread in (listener, worker):
            if thread is not None:
                await anyio.to_thread.run_sync(thread.join, abandon_on_cancel=True)

    async def has_tables(self) -> bool:
        """Whether anything has ever been stored in this schema.

        Raises:
            StoreError: The server cannot be read; the message says why.
        """
        try:
            await self._do("*", lambda _: None, writes=False)
        except RunNotFound:
            return False
        return True

    async def _verify_file(self) -> Sequence[Damage]:
        def work(session: Session) -> list[Damage]:
            return [
                Damage(run_id=str(run_id), what=what)
                for statement, what in self._statements.orphans
                for (run_id,) in session.fetch(statement, ())
            ]

        try:
            return await self._do("*", work, writes=False)
        except RunNotFound:
            return ()

    async def _list(
        self, statement: bytes, tests: dict[bytes, object], order: bytes, limit: int | None
    ) -> list[Row]:
        where = b" WHERE " + b" AND ".join(tests) if tests else b""
        whole = b"%b%b ORDER BY %b LIMIT %%s" % (statement, where, order)
        try:
            return await self._do(
                "*", lambda session: session.fetch(whole, (*tests.values(), limit)), writes=False
            )
        except RunNotFound:
            return []

    def _not_found(self, run_id: str) -> RunNotFound:
        return not_found(run_id, f"PostgreSQL at {self._where}, schema {self._schema}")

    def _find(self, session: Session, run_id: str) -> Head:
        head = session.find(run_id)
        if head is None:
            raise self._not_found(run_id)
        return head

    def _take(self, session: Session, run_id: str, *, owner: Owner, now: datetime, force: bool) -> Head:
        """Return the head of a run that `owner` may take."""
        head = self._find(session, run_id)
        refused = claim_conflict(
            run_id,
            held_by=owner_of(head),
            held_until=moment_or_none(head.until),
            owner=owner,
            now=now,
            force=force,
        )
        if refused is not None:
            raise refused
        return head

    async def _do(self, run_id: str, work: Callable[[Session], T], *, writes: bool, makes: bool = False) -> T:
        return await self._current().do(Job(run_id, work, writes=writes, makes=makes))

    def _current(self) -> Worker[Session]:
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
                from overt.journal._postgres_db import PostgresDatabase

                database = PostgresDatabase(
                    self._conninfo,
                    self._where,
                    schema=self._schema,
                    lock_timeout=self._lock_timeout,
                    patience=self._patience,
                )
                self._worker = Worker(database, repr(self))
                weakref.finalize(self, self._worker.stop)
            current = self._worker
        assert current is not None
        return current

    def _listening(self) -> Listener:
        from overt.journal._postgres_listen import Listener

        self._current()
        with self._lock:
            if self._closed:
                raise used_after_close(repr(self))
            if self._listener is None or self._listener.pid != os.getpid():
                self._listener = Listener(
                    self._conninfo,
                    f"PostgreSQL at {self._where}, schema {self._schema}",
                    schema=self._schema,
                    store=repr(self),
                    patience=self._patience,
                )
                weakref.finalize(self, self._listener.stop)
            return self._listener
