"""Stores that several processes can open, by name: `sqlite:PATH`, `postgres:DSN`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path

from overt.stores import SQLiteStore, Store

VARIABLE = "OVERT_TEST_POSTGRES"
"""Holds the DSN of a database that tests may write to."""


def open_store(url: str) -> Store:
    """Open a store for this process."""
    kind, _, rest = url.partition(":")
    if kind == "sqlite":
        return SQLiteStore(rest)
    if kind == "postgres":
        return _postgres()(rest)
    raise ValueError(f"no store {url!r}: sqlite:PATH or postgres:DSN")


def url_of(kind: str, folder: Path) -> str:
    """Name a store of this kind; `folder` is for one that is a file."""
    return f"postgres:{os.environ[VARIABLE]}" if kind == "postgres" else f"{kind}:{folder / 'runs.db'}"


def available() -> tuple[str, ...]:
    """The kinds several processes can open here."""
    try:
        _postgres()
    except (AttributeError, ImportError):
        return ("sqlite",)
    return ("sqlite", "postgres") if os.environ.get(VARIABLE) else ("sqlite",)


def _postgres() -> Callable[[str], Store]:
    found: Callable[[str], Store] = importlib.import_module("overt.stores").PostgresStore
    return found
