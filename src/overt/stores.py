"""Where journals are kept: in memory, or in one SQLite file for every process of a machine.

`Store` is what a store of your own has to do, and what a host can do with the runs in any of them; the rest are the
values it takes and gives.
"""

from __future__ import annotations

from overt.journal.memory import MemoryStore
from overt.journal.record import Record
from overt.journal.reports import Damage, Interruption, PendingRequest
from overt.journal.sqlite import SQLiteStore
from overt.journal.store import Change, Claim, ImmediateStore, OpenRequest, Owner, RunInfo, Store
from overt.journal.wrapper import StoreWrapper

__all__ = (
    "Change",
    "Claim",
    "Damage",
    "ImmediateStore",
    "Interruption",
    "MemoryStore",
    "OpenRequest",
    "Owner",
    "PendingRequest",
    "Record",
    "RunInfo",
    "SQLiteStore",
    "Store",
    "StoreWrapper",
)
