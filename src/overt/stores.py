"""Where journals are kept: in memory, or in one SQLite file for every process of a machine."""

from __future__ import annotations

from overt.journal.memory import MemoryStore
from overt.journal.sqlite import SQLiteStore
from overt.journal.store import Store

__all__ = ("MemoryStore", "SQLiteStore", "Store")
