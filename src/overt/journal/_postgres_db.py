"""One connection to PostgreSQL: made and made again, its tables checked, one transaction for the jobs that wait.

Used from one thread only. Nothing of a session outlives a transaction, so the connection may lead through a pool that
gives each transaction another session.
"""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, cast

import psycopg
from psycopg.abc import Buffer
from psycopg.pq import TransactionStatus
from psycopg.types.string import StrBinaryDumper, TextLoader

from overt.errors import RunNotFound, StoreError, UnsupportedSchema
from overt.journal import _postgres_schema as sql
from overt.journal._postgres_schema import SCHEMA_VERSION, Statements, migrations
from overt.journal._postgres_session import Head, Row, Session
from overt.journal._postgres_words import NotConnected, explain, is_final, is_lost
from overt.journal._worker import Next

__all__ = ("PostgresDatabase", "connect")

_OLDEST = 130000
"""PostgreSQL 13, where the fate of a transaction can be asked for by its 64-bit id."""

_NAMESPACE = 0x6F767274
"""`ovrt`: the first half of the key of our advisory lock."""


class PostgresDatabase:
    """The connection of one store, made at first use and again when it was lost.

    Args:
        conninfo: What to connect with, with every secret.
        where: The server in messages, without any.
        schema: The schema of the tables.
        lock_timeout: Seconds to wait for another transaction that holds a run.
        patience: Seconds to wait for a server to come back that was there before.
    """

    def __init__(
        self, conninfo: str, where: str, *, schema: str, lock_timeout: float, patience: float
    ) -> None:
        self.name: Final = f"PostgreSQL at {where}, schema {schema}"
        self.schema: Final = schema
        self.statements: Final = Statements(schema)
        self._conninfo: Final = conninfo
        self._lock_timeout: Final = f"{max(1, round(lock_timeout * 1000))}ms"
        self._patience: Final = patience
        self._connection: psycopg.Connection[Row] | None = None
        self._session: Final = Session(self._fetch)
        self._known = False
        """Whether it could be connected to when it was last tried."""
        self._checked = False
        """Whether the tables were found over the present connection."""
        self._xid = ""
        self._in_doubt = False
        self._news: list[str] = []

    # Connection

    def connection(self, *, make: bool) -> Session:
        """Return the session, connected to tables that are there.

        Raises:
            RunNotFound: There are no tables, and they are not to be made.
            UnsupportedSchema: A newer release made them.
            StoreError: They are not ours, or the server cannot be used.
            psycopg.Error: Anything PostgreSQL says; `explain` puts it in words.
        """
        if self._connection is None:
            self._connect()
        if not self._checked:
            self._check(make=make)
            self._checked = True
        return self._session

    def close(self) -> None:
        """Close the connection; an open transaction is undone."""
        connection, self._connection = self._connection, None
        self._checked = False
        if connection is not None:
            connection.close()

    def explain(self, error: Exception, *, run_id: str, committing: bool) -> StoreError:
        """Return `error` in words, with the server and without its secrets."""
        return explain(error, self.name, run_id=run_id, committing=committing)

    def _connect(self) -> psycopg.Connection[Row]:
        deadline = time.monotonic() + (self._patience if self._known else 0)
        while True:
            try:
                connection = connect(self._conninfo)
            except NotConnected as error:
                # A server that is restarted refuses for a moment.
                if is_final(error) or time.monotonic() >= deadline:
                    self._known = False
                    raise
                time.sleep(random.uniform(0.05, 0.15))
                continue
            self._connection = connection
            self._known = True
            return connection

    def _fetch(self, statement: bytes, values: Sequence[object] = ()) -> list[Row]:
        assert self._connection is not None
        return self._connection.execute(statement, values).fetchall()

    # Tables

    def _check(self, *, make: bool) -> None:
        version = self._version()
        if version is None and not make:
            raise RunNotFound(
                f"{self.name}: no run has been stored there; is it the right database and schema?"
            )
        if version != SCHEMA_VERSION:
            self._migrate()

    def _version(self) -> int | None:
        """Return the version of the tables; `None` where there are none."""
        assert self._connection is not None
        release = self._connection.info.server_version
        if release < _OLDEST:
            raise StoreError(
                f"{self.name}: the server is PostgreSQL {release // 10000}; 13 or later is needed"
            )
        encoding = self._connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreError(
                f"{self.name}: the database keeps text as {encoding}, which cannot hold all of it: create one with "
                "ENCODING 'UTF8'"
            )
        foreign = StoreError(
            f"{self.name}: the schema holds tables of another application; nothing was changed. Choose another schema"
        )
        tables = {table for (table,) in self._fetch(self.statements.find)} - {None}
        if not tables:
            return None
        try:
            ((application, version),) = self._fetch(self.statements.version)
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, ValueError):
            raise foreign from None
        if application != "overt" or not isinstance(version, int):
            raise foreign
        self._refuse_newer(version)
        return version

    def _refuse_newer(self, version: int) -> None:
        if version > SCHEMA_VERSION:
            raise UnsupportedSchema(
                f"{self.name}: a newer release of overt made these tables (schema {version}, this release knows "
                f"{SCHEMA_VERSION}); nothing was changed. Upgrade overt"
            )

    def _migrate(self) -> None:
        """Make the tables, or change those of an older release, in one transaction; other stores wait meanwhile."""
        assert self._connection is not None
        execute = self._connection.execute
        execute(sql.BEGIN)
        execute(sql.SETTINGS, ("0",))
        execute(sql.ALONE, (_NAMESPACE, zlib.crc32(self.schema.encode()) - (1 << 31)))
        # Another store may have been faster.
        version = self._version()
        if not self._fetch(self.statements.find):
            execute(self.statements.make_schema)
        if version is not None:
            execute(self.statements.lock_out)
        for statement in migrations(self.schema, since=version or 0):
            execute(statement)
        execute(self.statements.set_version)
        execute(sql.COMMIT)

    # Transactions

    def begin(self, runs: Sequence[str], *, make: bool) -> Session:
        """Start a transaction that writes: lock the heads of `runs`, in the order of their ids, and read them."""
        self._in_doubt = False
        session = self.connection(make=make)
        session.forget()
        connection = self._connection
        assert connection is not None
        with _pipeline(connection):
            connection.execute(sql.BEGIN)
            connection.execute(sql.SETTINGS, (self._lock_timeout,))
            heads = connection.execute(self.statements.lock, (sorted(set(runs)),))
            meta = connection.execute(self.statements.meta_kept if make else self.statements.meta)
            session.heads = {head.run_id: head for head in map(Head.of, heads)}
            version, deleted, xid = cast("tuple[int, int, str]", meta.fetchone())
        self._refuse_newer(version)
        session.deleted_epoch = deleted
        self._xid = xid
        return session

    def commit(self) -> None:
        """Write what the jobs decided and commit it, in one go.

        A connection that is lost on the way leaves a doubt; the tables are looked at before it is handed on.
        """
        try:
            self._write()
        except psycopg.Error as error:
            if not (is_lost(error) and self._in_doubt):
                raise
            happened = self._happened()
            self._in_doubt = happened is None
            if not happened:
                raise
        session = self._session
        self._news = [
            *(
                sql.news(run_id, session.heads[run_id].position)
                for run_id in session.created | session.changed
            ),
            *(sql.news(run_id, None) for run_id in session.deleted),
        ]
        session.forget()

    def committed(self) -> None:
        """Notify those who wait for the runs that were changed. What is lost of it they find out by themselves."""
        news, self._news = self._news, []
        if news and self._connection is not None:
            try:
                self._connection.execute(sql.NOTIFY, (sql.channel(self.schema), news))
            except psycopg.Error as error:
                self.recover(error)

    def recover(self, error: Exception) -> Next | None:
        """Undo the open transaction after `error`, and drop the connection if it is lost."""
        self._session.forget()
        in_doubt, self._in_doubt = self._in_doubt, False
        connection = self._connection
        if connection is None:
            return None
        if is_lost(error) or connection.closed:
            self.close()
            return None if in_doubt else Next.AGAIN
        try:
            if connection.info.transaction_status is not TransactionStatus.IDLE:
                connection.execute(sql.ROLLBACK)
        except psycopg.Error:
            self.close()
        if isinstance(error, UnicodeEncodeError | OverflowError):
            return Next.APART
        if not isinstance(error, psycopg.Error):
            return None
        state = error.sqlstate or ""
        if state == "23505" and error.diag.constraint_name == "runs_pkey":
            # Another store was faster with a run of this id; the next try finds it.
            return Next.AGAIN
        if state[:2] == "40":
            # Whoever was in the way must get its turn before we are in its way again.
            time.sleep(random.uniform(0.01, 0.05))
            return Next.AGAIN
        if state[:2] in ("22", "23", "53", "54") or state == "55P03" or isinstance(error, psycopg.DataError):
            return Next.APART
        if state == "25006":
            # Where the server leads to has changed hands; the next call looks for the primary anew.
            self.close()
        return None

    def _write(self) -> None:
        session, statements, connection = self._session, self.statements, self._connection
        assert connection is not None
        execute = connection.execute
        with _pipeline(connection):
            if session.deleted:
                # First, since it waits for those who create runs, and they for a run that is being deleted.
                execute(statements.raise_deleted, (session.deleted_epoch,))
                for statement in statements.delete_runs:
                    execute(statement, (sorted(session.deleted),))
            if session.created:
                execute(statements.insert_runs, session.columns(session.created))
            if session.changed:
                execute(statements.update_runs, session.columns(session.changed))
            if session.rows:
                execute(statements.insert_journal, _columns(session.rows))
            settled = [key for key, request in session.requests.items() if request is None]
            if settled:
                execute(statements.delete_requests, _columns(settled))
            asked = session.asked()
            if asked:
                execute(statements.insert_requests, _columns(asked))
            # From here on, a lost connection says nothing of whether all this happened.
            self._in_doubt = True
            end = execute(sql.COMMIT)
        self._in_doubt = False
        if end.statusmessage != "COMMIT":
            raise StoreError(
                f"{self.name}: the server undid the transaction ({end.statusmessage}); try again"
            )

    def _happened(self) -> bool | None:
        """Connect again and see whether the transaction was committed over the connection that was lost.

        Returns:
            `None` where it cannot be told.
        """
        session = self._session
        deadline = time.monotonic() + self._patience
        while True:
            self.close()
            try:
                self._connect()
                # The session that lost us may not have noticed, and still be at it.
                if self._fate() != "in progress":
                    found = self._fetch(self.statements.written, (session.concerned(),))
                    return session.happened(dict(cast("list[tuple[str, int]]", found)))
            except psycopg.Error as error:
                if isinstance(error, NotConnected) or not is_lost(error):
                    return None
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.05)

    def _fate(self) -> object:
        try:
            return self._fetch(sql.FATE, (self._xid,))[0][0]
        except psycopg.errors.InvalidParameterValue:
            # The server has crashed, and nothing of a transaction of this number was on its disk.
            return None


def connect(conninfo: str) -> psycopg.Connection[Row]:
    """Connect, for transactions that are begun and ended by hand, and for text that may hold NUL.

    No statement is prepared for later, since a pool would lose it.

    Raises:
        NotConnected: The server cannot be reached, or does not let us in.
    """
    try:
        connection = psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.OperationalError as error:
        raise NotConnected(str(error)) from error
    connection.adapters.register_dumper(str, _Dumper)
    connection.adapters.register_loader("text", _Loader)
    return connection


def _pipeline(connection: psycopg.Connection[Row]) -> AbstractContextManager[object]:
    """Send statements without waiting for each; one after the other where the system's libpq is older than 14."""
    return connection.pipeline() if psycopg.capabilities.has_pipeline() else nullcontext()


def _columns(rows: Iterable[tuple[object, ...]]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]


# PostgreSQL's text holds every character but NUL. JSON has none, so the texts of journals are stored as they are;
# whatever else has one, an id or the text of a host's own codec, is stored with it escaped. The order is kept.


class _Dumper(StrBinaryDumper):
    def dump(self, obj: str) -> Buffer | None:
        if "\0" in obj or "\1" in obj:
            obj = obj.replace("\1", "\1\2").replace("\0", "\1\1")
        return super().dump(obj)


class _Loader(TextLoader):
    def load(self, data: Buffer) -> bytes | str:
        text = super().load(data)
        if isinstance(text, str) and "\1" in text:
            return text.replace("\1\1", "\0").replace("\1\2", "\1")
        return text
