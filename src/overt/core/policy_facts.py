"""Facts about guardrails, limits that ask, the completion gate, typed output and hooks. The rules of `facts` hold."""

from __future__ import annotations

from typing import NamedTuple

from overt.core.specs import ErrorSpec, Question, RulingSpec

__all__ = (
    "CallDenied",
    "ChecksAsked",
    "ChecksDone",
    "Judged",
    "LimitAsked",
    "LimitDecided",
    "ModelSkipped",
    "OutputRefused",
    "Overridden",
    "TextCheckAsked",
    "TextChecked",
    "VerifyAsked",
    "WakeAsked",
)


class ChecksAsked(NamedTuple):
    """Hook and guardrails are to be asked about calls, before any of them is entered."""

    handle: str
    effect: int
    calls: tuple[str, ...]


class ChecksDone(NamedTuple):
    """Hook and guardrails have been asked; one ruling a call, in the order of the question."""

    handle: str
    effect: int
    rulings: tuple[RulingSpec, ...]


class CallDenied(NamedTuple):
    """A call was denied by a guardrail, or declined by whoever was asked: it is not entered."""

    handle: str
    call: str
    reason: str
    declined: bool = False


class TextCheckAsked(NamedTuple):
    """Guardrails are to be asked about the prompt of a wake, or its final answer."""

    handle: str
    effect: int
    what: str
    """`prompt` or `output`."""


class TextChecked(NamedTuple):
    """Guardrails have been asked about a prompt or a final answer."""

    handle: str
    effect: int
    what: str
    ruling: RulingSpec


class WakeAsked(NamedTuple):
    """The wake itself asks, not a call of it: about its prompt, its final answer, or a cap that is spent."""

    handle: str
    request: str
    about: str
    """`prompt`, `output` or `budget`."""
    question: Question
    diverged: bool = False
    limit: str | None = None
    at: str | None = None
    """Id of the handle whose cap is spent."""


class LimitAsked(NamedTuple):
    """`on_limit` is to be asked about a cap that is spent."""

    handle: str
    effect: int
    limit: str
    at: str
    cap: str
    spent: str


class LimitDecided(NamedTuple):
    """`on_limit` has been asked."""

    handle: str
    effect: int
    decision: str
    """`stop`, `extend` or `suspend`."""


class VerifyAsked(NamedTuple):
    """The completion gate is to judge the work of the attempt."""

    handle: str
    effect: int
    number: int
    """The gate's round, from 1."""


class Judged(NamedTuple):
    """The completion gate has judged; a failing verdict's reason is in the transcript."""

    handle: str
    effect: int
    number: int
    ok: bool
    reason: str


class OutputRefused(NamedTuple):
    """A final answer does not fit the output type; the model is told why."""

    handle: str
    reason: str


class Overridden(NamedTuple):
    """A hook changed what the model call is sent."""

    handle: str
    effect: int
    messages: str | None = None
    """JSON array: the transcript from here on, as indices into the one before and as messages."""
    tools: tuple[str, ...] | None = None
    """Names of the tools offered in this one call."""


class ModelSkipped(NamedTuple):
    """A model call came to nothing before anything was sent."""

    handle: str
    effect: int
    error: ErrorSpec
