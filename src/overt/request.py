"""What a suspended wake waits for, and what a person or host sends back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Generic

from pydantic import AwareDatetime, Field, JsonValue
from typing_extensions import TypeVar

from overt._frozen import Frozen

__all__ = ("Answer", "ReplayedCall", "Request", "WaitFor")

DataT_co = TypeVar("DataT_co", covariant=True, default=JsonValue)


class ReplayedCall(Frozen):
    """A tool call that a resume repeats, repeated, or gave its recorded result."""

    handle: str
    tool: str
    arguments: dict[str, JsonValue]
    idempotency_key: str


class Request(Frozen):
    """What a suspended wake waits for. Plain JSON on the wire."""

    id: str
    """Derived from run, handle, wake, call and question: the same over replays, unique across runs."""
    kind: str
    """`"approval"`, `"input"`, `"authorization"`, `"budget"`, `"in_doubt"` or a word of the host's own."""
    prompt: str
    url: str | None = None
    data: dict[str, JsonValue] = {}
    """What the asker adds. Reserved keys: `call` (`{"tool", "arguments"}`, validated), `errors`, `limit`."""
    answer_schema: dict[str, JsonValue] | None = None
    """JSON Schema the answer's `data` has to fit when `ok` is true; `None` takes anything."""
    expires_at: AwareDatetime | None = None
    """From then on the runtime itself answers `ok=False, reason="expired"`. `None`: never."""
    path: tuple[str, ...] = ()
    """Segments of the asking handle's id, root first."""
    diverged: bool = False
    """A replay came to ask this although an earlier answer is still unused: read it afresh."""
    replays: tuple[ReplayedCall, ...] = ()
    """Finished calls that run again when this is answered. Computed when the request is read."""
    turns_again: int = 0
    """Turns that are bought again when this is answered. Computed when the request is read."""


class Answer(Frozen, Generic[DataT_co]):
    """What a person or host sends back. Plain JSON on the wire."""

    id: str
    """The request's id."""
    ok: bool = Field(strict=True)
    """Whether the asker may go on; what a refusal means is the tool's to decide."""
    data: DataT_co | None = None
    reason: str | None = None
    """`"declined"`, `"cancelled"`, `"expired"` or free text."""
    by: str | None = None
    """Who answered: a claim, until `verify_answer` has checked it."""
    at: datetime | None = None
    """When it was accepted; set by the runtime."""


# Quoted, since `Answer[Any]` would be built when this is imported.
WaitFor = Callable[[Request], "Awaitable[Answer[Any] | None]"]
"""Answers a request at once, inline; `None` parks the run instead.

The tool that asked is entered again from its first line with the answer, inline as much as after a restart: what
stands before the question runs once for every entry. An answer that arrives after the run has parked replays the wake
from its checkpoint under `ResumePolicy.REWIND`, the default, and that of each ancestor that waits for it: every
finished `rerun` tool of theirs runs again and every model call is bought again, so every tool reachable in a wake
that may be suspended must be idempotent. `@tool(on_replay="reuse")`, `ToolContext.once` and
`ToolContext.idempotency_key` are the ways to be so.
"""
