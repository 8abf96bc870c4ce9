"""Code that changes under parked runs: what a host says of the change, and what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, cast

from pydantic import JsonValue

from overt.errors import DefinitionError
from overt.request import Request

__all__ = ("Drift", "Upgrade")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One place where the code of this process does not fit a stored run.

    Attributes:
        kind: What does not fit: `entry` the entry agent; `agent` and `tool` are gone; `arguments` a tool refuses what
            is recorded; `onReplay` changed; `outputType` refuses an answer that is still looked at; `guardrails` of
            the run were not given again; `rename` a name is to be one that the run uses for something else.
        what: What has changed, for people.
        how: How to go on, for people.
        acceptable: Whether `on_drift="accept"` goes on in spite of it.
        handle: Id of the handle whose work it is in the way of; `None` where it is the run's.
        agent: Name of the agent.
        tool: Name of the tool.
        call: Id of the call, for `arguments`.
    """

    kind: Literal["entry", "agent", "tool", "arguments", "onReplay", "outputType", "guardrails", "rename"]
    what: str
    how: str
    acceptable: bool
    handle: str | None = None
    agent: str | None = None
    tool: str | None = None
    call: str | None = None

    def __str__(self) -> str:
        return f"{self.what}; {self.how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """What has changed in the code since runs were stored, so that they are carried on with it.

    It is the same for every run and may stay for as long as old runs may come: what a run does not have is left alone.
    It is applied when a run is taken to go on with it, and recorded with it, before anything runs. Calls keep their
    idempotency keys and their answers.

    Attributes:
        tools: Old name to new name, of tools, in whichever agent; what the agent still has is not renamed. An agent
            that is a tool has the name it is called by here, and its own in `agents`.
        agents: Old name to new name, of agents. Ids of handles stay.
        arguments: Given the present name of a tool and recorded arguments that its schema refuses; returns those to
            take for them. It stays the same call, also where a replay makes it anew in the new form. Called again
            whenever the run is opened: a function of what it is given and nothing else. One that raises is reported
            as a drift.
        questions: Given a question that has been answered and is not what the tool asks now; returns it as the tool
            would ask it now, such as `request.model_copy(update=…)`, `None` for no change. If kind, prompt, url and
            data are then the same and the answer's data fits what is asked now, the answer counts; otherwise the
            question is asked anew. `data["call"]` is the runtime's and is brought up to date by it. One that raises
            fails the wake, source `hook`; `recover` goes on with it.

    Raises:
        DefinitionError: A name is empty or leads in a circle, or one of the functions is none.
    """

    tools: Mapping[str, str] = field(default_factory=dict[str, str])
    agents: Mapping[str, str] = field(default_factory=dict[str, str])
    arguments: Callable[[str, dict[str, JsonValue]], Mapping[str, object]] | None = None
    questions: Callable[[Request], Request | None] | None = None

    def __post_init__(self) -> None:
        for name in ("tools", "agents"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        for name in ("arguments", "questions"):
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise DefinitionError(f"Upgrade: {name} has to be a function, not {type(given).__name__}")

    def tool(self, name: str) -> str:
        """Return what a tool is called by now: the end of the chain its name begins."""
        return _last(self.tools, name)

    def agent(self, name: str) -> str:
        """Return what an agent is called by now."""
        return _last(self.agents, name)


def _names(place: str, given: object) -> Mapping[str, str]:
    if not isinstance(given, Mapping):
        raise DefinitionError(f"Upgrade: {place} maps old names to new ones, which {given!r:.80} does not")
    for pair in cast("Mapping[object, object]", given).items():
        for name in pair:
            if not isinstance(name, str) or not name.strip():
                raise DefinitionError(f"Upgrade: {place} has {name!r:.80}, which is no name")
    names = dict(cast("Mapping[str, str]", given))
    for old in names:
        seen = {old}
        name = names[old]
        while name in names:
            if name in seen:
                raise DefinitionError(
                    f"Upgrade: {place} leads from {name!r} back to {name!r}: leave out what is not so any more"
                )
            seen.add(name)
            name = names[name]
    return MappingProxyType(names)


def _last(names: Mapping[str, str], name: str) -> str:
    while name in names:
        name = names[name]
    return name
