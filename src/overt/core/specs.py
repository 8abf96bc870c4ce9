"""The parts facts are made of: budgets, tokens, calls, questions, rulings, errors. Plain data only."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ("UNFINISHED", "CallSpec", "Caps", "ErrorSpec", "Question", "RulingSpec", "Said", "Tokens")

UNFINISHED = ("length", "refusal", "content_filter")
"""Finish reasons of replies that are no answer, whatever text they have."""


class Caps(NamedTuple):
    """A budget as declared: `None` where nothing was said. Money is a decimal text, wall time is in seconds."""

    max_turns: int | None = None
    max_tokens: int | None = None
    max_tool_calls: int | None = None
    max_model_calls: int | None = None
    max_wall: float | None = None
    max_cost: str | None = None
    max_children: int | None = None
    max_concurrent: int | None = None
    max_depth: int | None = None


class Tokens(NamedTuple):
    """Usage of one model call as the provider reported it."""

    input: int
    output: int
    cached: int = 0
    reasoning: int = 0
    total: int = 0
    written: int = 0
    """Part of `input` that was written into the provider's cache."""


class CallSpec(NamedTuple):
    """One call of a reply, as validated before anything is entered."""

    name: str
    raw: str
    """The arguments as the model wrote them, a JSON object's text; `{}` where it wrote none."""
    args: str | None = None
    """Canonical JSON of the validated arguments; `None` when equal to `raw`, or when `error` is set."""
    error: str | None = None
    """Why the call cannot be entered: unknown tool, invalid arguments."""
    ruling: RulingSpec | None = None
    """What the checks said of it; `None` where all of them allowed it, or none has been asked."""


class ErrorSpec(NamedTuple):
    """Why a wake failed."""

    type: str
    message: str
    source: str
    retryable: bool = False
    status_code: int | None = None
    detail: str | None = None
    retry_after: float | None = None
    """Seconds the provider asked to wait."""
    request_id: str | None = None


class Question(NamedTuple):
    """What a call asks: everything an answer is bound to, and when it expires."""

    kind: str
    prompt: str
    url: str | None = None
    data: str = "{}"
    """Canonical JSON object."""
    schema: str | None = None
    """Canonical JSON Schema."""
    expires_at: int | None = None
    """Microseconds since 1970; not part of what an answer is bound to."""


class Said(NamedTuple):
    """What one guardrail said."""

    name: str
    ruling: str
    """`allow`, `deny` or `ask`."""
    reason: str = ""


class RulingSpec(NamedTuple):
    """What the checks before a call, a prompt or a final answer came to."""

    ruling: str
    """`allow`, `deny`, `ask`, or `approved`: asked about, and an answer there is agrees."""
    reason: str = ""
    """Of a denial."""
    question: Question | None = None
    """What is asked, on the way to the rules; the fact that asks it keeps it, and the ruling is recorded without."""
    said: tuple[Said, ...] = ()
    """Every guardrail's own ruling, where not all of them allowed."""
    edit: str | None = None
    """Canonical arguments a hook put in place of the model's."""
    output: str | None = None
    """What a hook gave in the tool's place; the tool is not entered. Recorded empty: the result itself is in the fact
    that gives it to the call."""
    is_error: bool = False
    metadata: str | None = None
