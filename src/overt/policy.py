"""Budgets, the resume policy, and the small values of the verbs."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum

from pydantic import Field

from overt._frozen import Frozen
from overt.result import State

__all__ = ("Budget", "HandleView", "InboxItem", "PostResult", "ResumePolicy")


class ResumePolicy(StrEnum):
    """What an answer to a parked run does with the work since the checkpoint."""

    REWIND = "rewind"
    """Replay the suspended wake from its checkpoint: every tool that ran in it runs again, every model call is bought
    again. Tools reachable in a suspendable wake must be idempotent."""
    CONTINUE = "continue"
    """Go on where the wake stopped: recorded replies and finished results are carried, only calls that asked are
    entered again."""


class Budget(Frozen):
    """Caps on what a handle and everything below it may spend. `None` is no cap.

    Nothing is carved out for a child: a handle may spend the least of what is left on it and on each of its
    ancestors, now. `max_tokens`, `max_tool_calls`, `max_model_calls`, `max_cost` and `max_wall` count over the life
    of the handle and its subtree, replays included.
    """

    max_turns: int = Field(default=6, ge=0)
    """Turns per attempt of a wake. Where the run's own budget says it, it caps every handle of the tree."""
    max_tokens: int | None = Field(default=None, ge=0)
    max_tool_calls: int | None = Field(default=None, ge=0)
    max_model_calls: int | None = Field(default=None, ge=0)
    """Attempts at the provider."""
    max_wall: float | None = Field(default=None, ge=0, le=1e10, allow_inf_nan=False)
    """Seconds in which the handle or something below it runs; parked and dead time do not count."""
    max_cost: Decimal | None = Field(default=None, ge=0, allow_inf_nan=False)
    """USD."""
    max_children: int | None = Field(default=None, ge=0)
    """Children over the life of the handle."""
    max_concurrent: int = Field(default=8, ge=1)
    """Children running at once; further ones queue, first come first served."""
    max_depth: int = Field(default=3, ge=1)
    """Deepest level at which a handle may be spawned; the entry handle has depth 1. Of several along the chain
    that are set, the least counts."""


class InboxItem(Frozen):
    """One message for a handle's inbox."""

    sender: str = "external"
    """A handle's id, or `"external"`."""
    channel: str = "external"
    """`"peer"`, `"timer"`, `"external"` or a word of the host's own."""
    text: str


class PostResult(Frozen):
    """Whether a post or a wake was taken."""

    ok: bool
    error: str | None = None


class HandleView(Frozen):
    """A handle as seen at one moment."""

    id: str
    agent: str
    state: State
    turns: int
    total_tokens: int
    own_tokens: int
    inbox: int
    """Items waiting in the inbox."""
    pending_kind: str | None = None
    """Kind of the first open request in or below the handle."""
