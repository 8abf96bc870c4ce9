"""The life of a handle as one table: it guards `apply`, feeds the tests of every pair, and draws the diagram.

`Move` is what a fact does to a handle's state, `TRANSITIONS` says where each leads. A pair that is not in the table
cannot come about: the rules refuse the input before its first fact.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType

from overt.result import State

__all__ = ("TRANSITIONS", "VERBS", "Move", "Reaction", "diagram")


class Move(StrEnum):
    """What a fact does to the state of a handle."""

    ADMIT = "admit"
    PARK = "park"
    RESUME = "resume"
    SETTLE = "settle"
    REOPEN = "reopen"
    CLOSE = "close"


TRANSITIONS = MappingProxyType(
    {
        (State.IDLE, Move.ADMIT): State.RUNNING,
        (State.IDLE, Move.REOPEN): State.RUNNING,
        (State.IDLE, Move.CLOSE): State.CLOSED,
        (State.RUNNING, Move.PARK): State.SUSPENDED,
        (State.RUNNING, Move.SETTLE): State.IDLE,
        (State.SUSPENDED, Move.RESUME): State.RUNNING,
        (State.SUSPENDED, Move.SETTLE): State.IDLE,
    }
)
"""Every legal move; `close` on a handle that works settles its wake first."""


class Reaction(StrEnum):
    """What a verb of the host meets in a state."""

    TAKEN = "taken"
    IGNORED = "ignored"
    REFUSED = "refused"
    """A value that says no (`PostResult`)."""
    RAISES = "raises"


VERBS = MappingProxyType(
    {
        (State.IDLE, "spawn"): Reaction.TAKEN,
        (State.RUNNING, "spawn"): Reaction.TAKEN,
        (State.SUSPENDED, "spawn"): Reaction.TAKEN,
        (State.CLOSED, "spawn"): Reaction.RAISES,
        (State.IDLE, "post"): Reaction.TAKEN,
        (State.RUNNING, "post"): Reaction.TAKEN,
        (State.SUSPENDED, "post"): Reaction.TAKEN,
        (State.CLOSED, "post"): Reaction.REFUSED,
        (State.IDLE, "wake"): Reaction.TAKEN,
        (State.RUNNING, "wake"): Reaction.REFUSED,
        (State.SUSPENDED, "wake"): Reaction.RAISES,
        (State.CLOSED, "wake"): Reaction.RAISES,
        (State.IDLE, "interrupt"): Reaction.IGNORED,
        (State.RUNNING, "interrupt"): Reaction.TAKEN,
        (State.SUSPENDED, "interrupt"): Reaction.TAKEN,
        (State.CLOSED, "interrupt"): Reaction.IGNORED,
        (State.IDLE, "close"): Reaction.TAKEN,
        (State.RUNNING, "close"): Reaction.TAKEN,
        (State.SUSPENDED, "close"): Reaction.TAKEN,
        (State.CLOSED, "close"): Reaction.IGNORED,
    }
)
"""What each verb does to a handle in each state."""


def diagram() -> str:
    """Return the table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> idle: spawn"]
    lines += [f"    {source} --> {target}: {move}" for (source, move), target in TRANSITIONS.items()]
    lines.append("    closed --> [*]")
    return "\n".join(lines)
