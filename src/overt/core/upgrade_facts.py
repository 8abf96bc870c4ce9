"""What is recorded when a run is taken by code that has changed since. The rules of `overt.core.facts` hold here."""

from __future__ import annotations

from typing import NamedTuple

from overt.core.specs import Question

__all__ = ("AgentRenamed", "ArgumentsUpgraded", "DriftAccepted", "QuestionUpgraded", "ToolRenamed")


class AgentRenamed(NamedTuple):
    """Handles of an agent are those of another name from here on; keys of calls that delegated to it stay."""

    old: str
    new: str


class ToolRenamed(NamedTuple):
    """The calls of a handle's wake to one tool are calls to another from here on; their keys stay."""

    handle: str
    old: str
    new: str


class ArgumentsUpgraded(NamedTuple):
    """The calls of a handle's wake that have these arguments have others from here on; their keys and answers stay."""

    handle: str
    tool: str
    """The name it has now."""
    before: str
    """Canonical JSON of the arguments, as it was up to now."""
    after: str
    """As the tool has it that there is now."""


class QuestionUpgraded(NamedTuple):
    """An answered question is taken to be the one that is asked now, so that its answer counts."""

    handle: str
    request: str
    question: Question


class DriftAccepted(NamedTuple):
    """The host goes on although code and run do not fit each other here."""

    handle: str
    what: str
    """For people; it is also what a call or a wake is told that cannot go on."""
    drift: str
    """Which kind it is: `agent`, `tool`, `arguments`, `onReplay` or `outputType`."""
    tool: str | None = None
    call: str | None = None
