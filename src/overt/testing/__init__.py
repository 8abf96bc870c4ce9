"""For tests of agents, models and stores: a scripted model, recorded ones, a clock that a test moves, and checks."""

from __future__ import annotations

from overt.testing._model_cases import MODEL_CASES, CaseCall, ModelCase
from overt.testing._model_checks import ModelBench, ModelCheck
from overt.testing._model_conformance import MODEL_CHECKS, model_conformance
from overt.testing._store_checks import StoreCheck
from overt.testing._store_conformance import STORE_CHECKS, STORE_REOPEN_CHECKS, store_conformance
from overt.testing.cassette import Cassette, CassetteError
from overt.testing.clock import VirtualClock
from overt.testing.crashing import Crashed, CrashingStore, Gate
from overt.testing.mock import MockModel, Part, Reply, Script, call, raw_call, say

__all__ = (
    "MODEL_CASES",
    "MODEL_CHECKS",
    "STORE_CHECKS",
    "STORE_REOPEN_CHECKS",
    "CaseCall",
    "Cassette",
    "CassetteError",
    "Crashed",
    "CrashingStore",
    "Gate",
    "MockModel",
    "ModelBench",
    "ModelCase",
    "ModelCheck",
    "Part",
    "Reply",
    "Script",
    "StoreCheck",
    "VirtualClock",
    "call",
    "model_conformance",
    "raw_call",
    "say",
    "store_conformance",
)
