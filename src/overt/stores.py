"""Where journals are kept: in memory, in one SQLite file for every process of a machine, or in PostgreSQL.

`Store` is what a store of your own has to do, and what a host can do with the runs in any of them; the rest are the
values it takes and gives.
"""

from __future__ import annotations

from overt.journal.encrypted import EncryptedStore
from overt.journal.memory import MemoryStore
from overt.journal.postgres import PostgresStore
from overt.journal.record import Record
from overt.journal.reports import Damage, Interruption, PendingRequest
from overt.journal.sqlite import SQLiteStore
from overt.journal.store import Change, Claim, ImmediateStore, OpenRequest, Owner, RunInfo, Store
from overt.journal.wrapper import StoreWrapper

__all__ = (
    "Change",
    "Claim",
    "Damage",
    "EncryptedStore",
    "ImmediateStore",
    "Interruption",
    "MemoryStore",
    "OpenRequest",
    "Owner",
    "PendingRequest",
    "PostgresStore",
    "Record",
    "RunInfo",
    "SQLiteStore",
    "Store",
    "StoreWrapper",
)
