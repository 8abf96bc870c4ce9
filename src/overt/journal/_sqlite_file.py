"""One SQLite file: opened, checked, and every error of it said in words. Used from one thread only."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from overt.errors import JournalCorrupt, RunNotFound, StoreError, UnsupportedSchema
from overt.journal._sqlite_upgrade import LISTS, upgrade

__all__ = ("APPLICATION_ID", "SCHEMA_VERSION", "Database", "explain")

APPLICATION_ID = 0x6F767274
"""`ovrt`: tells a file of this package from another program's."""

SCHEMA_VERSION = 2
"""Kept in `PRAGMA user_version`. History: 1, the first; 2, lists of open requests, times and marks of runs."""

# Both tables keep their rowid: with it a commit of a hundred runs writes half the pages.
_SCHEMA = (
    """
    CREATE TABLE runs (
        run_id TEXT NOT NULL PRIMARY KEY,
        position INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        owner_id TEXT,
        owner_host TEXT,
        owner_pid INTEGER,
        owner_started TEXT,
        until INTEGER,
        status TEXT NOT NULL,
        agent TEXT NOT NULL,
        created INTEGER NOT NULL,
        updated INTEGER NOT NULL DEFAULT 0,
        interrupt TEXT
    )
    """,
    """
    CREATE TABLE journal (
        run_id TEXT NOT NULL,
        position INTEGER NOT NULL,
        count INTEGER NOT NULL,
        text TEXT NOT NULL,
        PRIMARY KEY (run_id, position)
    )
    """,
    *LISTS,
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

_SMALLEST = 512
"""Bytes of the smallest page SQLite has."""

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


class Database:
    """The connection of one store, opened at first use and again after an error that may have broken it.

    Args:
        path: Absolute path of the file.
        busy_timeout: Seconds to wait for another process's lock, for opening and for each transaction.
    """

    def __init__(self, path: Path, busy_timeout: float) -> None:
        self.path = path
        self.busy_timeout = busy_timeout
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def connection(self, *, make: bool) -> sqlite3.Connection:
        """Return the connection, open.

        Args:
            make: Whether the file is made where it is missing.

        Raises:
            RunNotFound: It is missing and not to be made.
            StoreError: The path cannot be used, or the file there was removed or replaced since it was opened.
            sqlite3.Error: Anything SQLite says; `explain` puts it in words.
        """
        if self._connection is not None:
            if _identity(self.path) == self._identity:
                return self._connection
            # SQLite would go on writing into a file that no path leads to.
            self.close()
            raise StoreError(
                f"{self.path}: the file was removed or replaced while the store had it open; what the store wrote is "
                "in the old file. The next call opens what is there now"
            )
        if not make:
            # Whoever reads from the wrong folder is to hear so, and to find no new file there afterwards.
            _check_file(self.path)
        _check_path(self.path)
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=self.busy_timeout)
        try:
            self._prepare(connection)
            self._identity = _identity(self.path)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def begin(self, runs: Sequence[str], *, make: bool) -> sqlite3.Connection:
        """Start a transaction that writes, waiting for other writers up to the busy timeout."""
        connection = self.connection(make=make)
        connection.execute("BEGIN IMMEDIATE")
        return connection

    def commit(self) -> None:
        """Make what was written durable."""
        assert self._connection is not None
        self._connection.execute("COMMIT")

    def committed(self) -> None:
        """Nothing is left to do."""

    def explain(self, error: Exception, *, run_id: str, committing: bool) -> StoreError:
        """Return `error` in words, with the path."""
        return explain(error, self.path, run_id=run_id, committing=committing)

    def recover(self, error: Exception) -> None:
        """Undo the open transaction after `error`; drop the connection unless the error was harmless to it."""
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()
            return
        if isinstance(error, sqlite3.Error) and _code(error) not in (*_BUSY, sqlite3.SQLITE_CONSTRAINT):
            self.close()

    def close(self) -> None:
        """Close the connection; an open transaction is undone."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        mode = self._settle(connection)
        if mode != "wal":
            raise StoreError(
                f"{self.path}: SQLite cannot keep a write-ahead log there (journal mode {mode!r}); put the file "
                "on a local disk"
            )
        connection.execute("PRAGMA synchronous = FULL")
        # Without it fsync on macOS leaves the data in the drive's cache. It does nothing elsewhere.
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute(f"PRAGMA busy_timeout = {int(self.busy_timeout * 1000)}")

    def _settle(self, connection: sqlite3.Connection) -> str:
        """Check or make the tables and return the journal mode, trying again while others are at it too."""
        deadline = time.monotonic() + self.busy_timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            connection.execute(f"PRAGMA busy_timeout = {int(left * 1000)}")
            try:
                self._check_or_create(connection)
                # Changing the journal mode needs the file alone and does not wait for it.
                return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
            except sqlite3.OperationalError as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if _code(error) not in _BUSY or left == 0.0:
                    raise
                time.sleep(min(left, random.uniform(0.001, 0.02)))

    def _check_or_create(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN")
        version = self._check(connection)
        connection.execute("COMMIT")
        if version != SCHEMA_VERSION:
            connection.execute("BEGIN IMMEDIATE")
            # Another process may have made or changed the tables since.
            version = self._check(connection)
            if version is None:
                for statement in _SCHEMA:
                    connection.execute(statement)
            elif version < SCHEMA_VERSION:
                upgrade(connection)
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            connection.execute("COMMIT")

    def _check(self, connection: sqlite3.Connection) -> int | None:
        """Return the version of the tables; `None` where there are none.

        Raises:
            UnsupportedSchema: A newer release wrote it.
            StoreError: It is not ours.
        """
        tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application: int = connection.execute("PRAGMA application_id").fetchone()[0]
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if tables == application == version == 0:
            return None
        if application != APPLICATION_ID:
            raise StoreError(
                f"{self.path}: this is a database of another application (application_id {application:#x}, {tables} "
                "tables); nothing was changed. Choose another path"
            )
        if version > SCHEMA_VERSION:
            raise UnsupportedSchema(
                f"{self.path}: a newer release of overt wrote this file (schema {version}, this release knows "
                f"{SCHEMA_VERSION}); nothing was changed. Upgrade overt"
            )
        return version


def explain(error: Exception, path: Path, *, run_id: str, committing: bool = False) -> StoreError:
    """Return `error` as a `StoreError` that names the file and says what to do.

    Args:
        error: What the operation raised.
        path: The store's file.
        run_id: The run the operation was about.
        committing: Whether the commit itself failed, so that nobody knows what reached the disk.
    """
    if isinstance(error, StoreError):
        return error
    if isinstance(error, UnicodeEncodeError):
        return StoreError(
            f"{path}: run {run_id!r}: text with half of a surrogate pair cannot be stored ({error})"
        )
    if isinstance(error, PermissionError):
        return StoreError(f"{path}: the file cannot be reached; {_permission(path)} ({error})")
    code = _code(error)
    if isinstance(error, OverflowError) or code == sqlite3.SQLITE_TOOBIG:
        return StoreError(f"{path}: run {run_id!r}: a value is too big for SQLite ({error})")
    if code == sqlite3.SQLITE_CORRUPT:
        what = "" if run_id == "*" else f", and run {run_id!r} cannot be read or written at any position"
        return JournalCorrupt(
            f"{path}: the file is damaged{what} ({error}). "
            "Restore it from a backup, or try `sqlite3 FILE .recover`"
        )
    doubt = "; whether the last append was written is unknown, read the run again" if committing else ""
    return StoreError(f"{path}: {_advice(code, path)} ({error}){doubt}")


def _advice(code: int, path: Path) -> str:
    match code:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
            return (
                "another program held the lock longer than the busy timeout: end its transaction, or give the store a "
                "longer busy_timeout"
            )
        case sqlite3.SQLITE_NOTADB:
            return "the file is not an SQLite database: choose another path, or move the file away"
        case sqlite3.SQLITE_READONLY:
            return _permission(path)
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return f"the file cannot be opened; {_permission(path)}"
        case sqlite3.SQLITE_FULL:
            return "the disk is full: free space and try again"
        case sqlite3.SQLITE_IOERR:
            return "the disk reported an input/output error: check the disk or the file system"
        case _:
            return "SQLite could not do it"


def _permission(path: Path) -> str:
    if os.access(path, os.F_OK) and not os.access(path, os.W_OK):
        return "the file is read-only for this user: make it writable"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return (
            f"the folder {path.parent} is read-only for this user, and SQLite keeps files beside its own: make it "
            "writable"
        )
    return "something forbids writing to the file or beside it: check its owner, its -wal and -shm files and the mount"


def _check_file(path: Path) -> None:
    try:
        path.stat()
    except FileNotFoundError:
        what = (
            "does not exist" if path.parent.exists() else f"does not exist, nor does its folder {path.parent}"
        )
        raise RunNotFound(f"{path} {what}: no run has been stored there; is it the right path?") from None
    except NotADirectoryError:
        return  # said below


def _check_path(path: Path) -> None:
    if path.is_dir():
        raise StoreError(f"{path}: this is a directory: name a file in it")
    if not path.parent.exists():
        raise StoreError(f"{path}: the folder {path.parent} does not exist: create it first")
    if not path.parent.is_dir():
        raise StoreError(f"{path}: {path.parent} is a file, not a folder: choose another path")
    # SQLite takes a file shorter than its smallest page for an empty one and writes over it. With a journal beside
    # it, it is what a crash left of the first write, and SQLite mends it. Only the size is asked for: opening and
    # closing the file here would drop the locks other connections of this process hold on it.
    if path.exists() and 0 < path.stat().st_size < _SMALLEST and not Path(f"{path}-journal").exists():
        raise StoreError(
            f"{path}: the file is not an SQLite database: choose another path, or move the file away"
        )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _code(error: BaseException) -> int:
    """Return the primary result code, or -1 where the error is not SQLite's own."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1
