"""Stores that several processes can open, in words: a path, or `postgres SCHEMA DSN`."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from overt.stores import SQLiteStore, Store

VARIABLE = "OVERT_TEST_POSTGRES"
"""Holds the DSN of a database that tests may write to."""


def open_store(place: str) -> Store:
    """Open a store for this process."""
    if place.startswith("postgres "):
        _, schema, dsn = place.split(" ", 2)
        found: Store = _stores().PostgresStore(dsn, schema=schema)
        return found
    return SQLiteStore(place)


def place_of(kind: str, folder: Path, *, schema: str = "overt") -> str:
    """Name a store of this kind; `folder` is for one that is a file, `schema` for one in a database."""
    return f"postgres {schema} {os.environ[VARIABLE]}" if kind == "postgres" else str(folder / "runs.db")


def available() -> tuple[str, ...]:
    """The kinds several processes can open here."""
    ready = os.environ.get(VARIABLE) and hasattr(_stores(), "PostgresStore")
    return ("sqlite", "postgres") if ready else ("sqlite",)


def _stores() -> Any:
    return importlib.import_module("overt.stores")
