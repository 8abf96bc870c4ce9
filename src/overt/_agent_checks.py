"""What is checked of an agent when it is declared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast, get_origin

from overt.errors import DefinitionError
from overt.message import Model, ModelSettings
from overt.policy import Budget
from overt.tool import Tool

if TYPE_CHECKING:
    from overt.agent import Agent

__all__ = ("check_agent", "expect", "listed")


def check_agent(agent: Agent[Any, Any]) -> None:
    """Check everything about an agent that can be known when it is declared.

    Raises:
        DefinitionError: A field is wrong; names the agent and the field.
    """
    name = agent.name
    expect(f"agent {name!r:.160}", "name", name, str)
    if not name.strip():
        raise DefinitionError(f"agent {name!r}: name is empty")
    if name != name.strip() or "/" in name or not name.isprintable() or len(name) > 128:
        raise DefinitionError(
            f"agent {name!r:.160}: name has up to 128 printable characters, no '/', and no blank at either end: "
            "it is part of handle ids"
        )
    where = f"agent {name!r}"
    expect(where, "does", agent.does, str)
    if not agent.does.strip():
        raise DefinitionError(f"{where}: does is empty: say in a sentence what it is for")
    _check_tools(where, agent)
    _check_team(where, agent)
    if agent.soul is not None and agent.soul_file is not None:
        raise DefinitionError(f"{where}: soul and soul_file are both given")
    if not (agent.soul is None or callable(agent.soul) or isinstance(cast("object", agent.soul), str)):
        raise DefinitionError(f"{where}: soul has to be a str or a function of the deps")
    if agent.soul_file is not None and not agent.soul_file.is_file():
        raise DefinitionError(f"{where}: soul_file {str(agent.soul_file)!r} is not there")
    expect(where, "budget", agent.budget, Budget, type(None))
    expect(where, "settings", agent.settings, ModelSettings, type(None))
    expect(where, "model", agent.model, Model, str, type(None))
    if isinstance(agent.model, str) and not agent.model.strip():
        raise DefinitionError(f"{where}: model is empty")
    if agent.wait_for is not None and not callable(agent.wait_for):
        raise DefinitionError(f"{where}: wait_for has to be an async function of the request")
    if agent.output_type is not str:
        raise DefinitionError(f"{where}: output_type other than str comes with a later release")


def listed(name: str, field: str, given: Sequence[object]) -> tuple[object, ...]:
    """Return the items of a field that takes a list.

    Raises:
        DefinitionError: It is no list.
    """
    try:
        return tuple(given)
    except TypeError:
        raise DefinitionError(
            f"agent {name!r}: {field} has to be a list, not {type(given).__name__}: write {field}=[…]"
        ) from None


def expect(where: str, field: str, value: object, *kinds: type) -> None:
    """Check the type of a field.

    Raises:
        DefinitionError: It is another.
    """
    if not isinstance(value, kinds):
        names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        raise DefinitionError(f"{where}: {field} has to be {names}, not {type(value).__name__}")


def _check_tools(where: str, agent: Agent[Any, Any]) -> None:
    seen: set[str] = set()
    for tool in cast("tuple[object, ...]", agent.tools):
        if not isinstance(tool, Tool):
            shown = getattr(tool, "__name__", repr(tool))
            raise DefinitionError(f"{where}: tools has {shown:.80}, which is no tool: declare it with @tool")
        if tool.name in seen:
            raise DefinitionError(f"{where}: tools has two tools named {tool.name!r}")
        seen.add(tool.name)
    if agent.team and "task" in seen:
        raise DefinitionError(
            f"{where}: tools has one named 'task', the name of the tool that delegates to its team"
        )


def _check_team(where: str, agent: Agent[Any, Any]) -> None:
    from overt.agent import Agent  # it checks itself with this module

    seen: set[str] = set()
    for member in cast("tuple[object, ...]", agent.team):
        if not isinstance(member, Agent):
            raise DefinitionError(f"{where}: team has {member!r:.80}, which is no Agent")
        name, needs = member.name, cast("object", member.deps_type)
        if name in seen:
            raise DefinitionError(f"{where}: team has two agents named {name!r}")
        seen.add(name)
        if not _fits(agent.deps_type, needs):
            given = "none" if agent.deps_type is None else repr(agent.deps_type)
            raise DefinitionError(
                f"{where}: team member {name!r} needs deps of type {needs!r}, and this agent has {given}: "
                "one run has one deps"
            )


def _fits(given: object, needs: object) -> bool:
    """Whether deps of the one type will do where the other is asked for; where that cannot be known, yes."""
    if needs is None or needs == given:
        return True
    if given is None:
        return False
    left, right = get_origin(given) or given, get_origin(needs) or needs
    if not isinstance(left, type) or not isinstance(right, type):
        return True
    try:
        return issubclass(left, right)
    except TypeError:
        return True  # a Protocol that cannot be checked at run time
