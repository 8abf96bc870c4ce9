"""For tests of agents: a scripted model and a clock that a test moves."""

from __future__ import annotations

from overt.testing.clock import VirtualClock
from overt.testing.mock import MockModel, Part, Reply, Script, call, raw_call, say

__all__ = ("MockModel", "Part", "Reply", "Script", "VirtualClock", "call", "raw_call", "say")
