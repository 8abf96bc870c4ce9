"""Where runs are kept that several processes open, in words that go on a command line."""

from __future__ import annotations

from pathlib import Path

from overt.stores import PostgresStore, SQLiteStore

__all__ = ("place_of", "store_at")


def place_of(schema: str, dsn: str) -> str:
    """The word for a schema of a PostgreSQL server; that for a file is its path."""
    return f"postgres {schema} {dsn}"


def store_at(place: str) -> SQLiteStore | PostgresStore:
    """A new store, as another process opens it."""
    if place.startswith("postgres "):
        _, schema, dsn = place.split(" ", 2)
        return PostgresStore(dsn, schema=schema)
    return SQLiteStore(Path(place))
