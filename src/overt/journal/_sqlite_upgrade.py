"""Bringing the tables of an older release up to date, in one transaction. Journals are not touched."""

from __future__ import annotations

import sqlite3

from overt.core.tree import Tree
from overt.errors import StoreError
from overt.journal._sqlite_lists import record
from overt.journal.listing import open_requests_of, run_status
from overt.journal.loading import Log, fold
from overt.journal.record import Record

__all__ = ("LISTS", "upgrade")

# Open requests only: a run that has ended has no row.
LISTS = (
    """
    CREATE TABLE requests (
        request TEXT NOT NULL,
        run_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        agent TEXT NOT NULL,
        asked_at INTEGER NOT NULL,
        expires_at INTEGER,
        PRIMARY KEY (run_id, request)
    )
    """,
    "CREATE TABLE meta (key TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL)",
    "CREATE INDEX runs_by_status ON runs (status)",
    "CREATE INDEX requests_by_time ON requests (asked_at, request)",
)

_TIMES = """
UPDATE runs SET updated = coalesce((
    SELECT CASE WHEN json_valid(text) THEN json_extract(text, '$.at') END
    FROM journal WHERE run_id = runs.run_id ORDER BY position DESC LIMIT 1
), created)
"""


def upgrade(connection: sqlite3.Connection) -> None:
    """Make version 2 of version 1: times, marks, and lists, which are read off the journals.

    A damaged journal has its requests in no list; reading it says what is wrong with it, before and after this.
    """
    connection.execute("ALTER TABLE runs ADD COLUMN updated INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE runs ADD COLUMN interrupt TEXT")
    for statement in LISTS:
        connection.execute(statement)
    connection.execute(_TIMES)
    # Version 1 had other words for runs that were cut off, or in which another handle than the entry asks.
    for (run_id,) in connection.execute("SELECT run_id FROM runs ORDER BY run_id").fetchall():
        tree = Tree()
        rows = connection.execute(
            "SELECT position, count, text FROM journal WHERE run_id = ? ORDER BY position", (run_id,)
        )
        try:
            for position, count, text in rows:
                fold(tree, Log(), Record(position, count, text=text), run_id)
        except (StoreError, sqlite3.Error, TypeError, ValueError):
            continue
        record(connection, run_id, open_requests_of(tree))
        connection.execute("UPDATE runs SET status = ? WHERE run_id = ?", (run_status(tree), run_id))
