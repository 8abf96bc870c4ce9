"""For tests of agents and of stores: a scripted model, a clock that a test moves, a process that dies, and checks."""

from __future__ import annotations

from overt.testing._store_checks import StoreCheck
from overt.testing._store_conformance import STORE_CHECKS, STORE_REOPEN_CHECKS, store_conformance
from overt.testing.clock import VirtualClock
from overt.testing.crashing import Crashed, CrashingStore, Gate
from overt.testing.mock import MockModel, Part, Reply, Script, call, raw_call, say

__all__ = (
    "STORE_CHECKS",
    "STORE_REOPEN_CHECKS",
    "Crashed",
    "CrashingStore",
    "Gate",
    "MockModel",
    "Part",
    "Reply",
    "Script",
    "StoreCheck",
    "VirtualClock",
    "call",
    "raw_call",
    "say",
    "store_conformance",
)
