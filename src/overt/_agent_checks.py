"""What is checked of an agent when it is declared."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast, get_origin

from typing_extensions import TypeIs

from overt.errors import DefinitionError
from overt.message import Model, ModelSettings
from overt.policy import Budget
from overt.tool import Tool

if TYPE_CHECKING:
    from overt.agent import Agent
    from overt.delegate import AgentTool

__all__ = (
    "agents_below",
    "check_agent",
    "check_callback",
    "check_hooks",
    "check_rules",
    "expect",
    "is_agent_tool",
    "listed",
    "shown",
    "tools_to_approve",
)


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
    _check_policy(where, agent)


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
        raise DefinitionError(f"{where}: {field} has to be {names}, not {shown(value)}")


def shown(value: object) -> str:
    """Return what a wrong value is, for a message: its type, or which class it is."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _check_tools(where: str, agent: Agent[Any, Any]) -> None:
    seen: set[str] = set()
    for tool in cast("tuple[object, ...]", agent.tools):
        name = tool.name if isinstance(tool, Tool) else _check_agent_tool(where, agent, tool)
        if name in seen:
            raise DefinitionError(f"{where}: tools has two tools named {name!r}")
        seen.add(name)
    if agent.team and "task" in seen:
        raise DefinitionError(
            f"{where}: tools has one named 'task', the name of the tool that delegates to its team"
        )
    if agent.output_type is not str and "final_result" in seen:
        raise DefinitionError(
            f"{where}: tools has one named 'final_result', the name of the tool that takes its typed output: "
            "give it another with name=…"
        )


def _check_agent_tool(where: str, agent: Agent[Any, Any], tool: object) -> str:
    from overt.agent import Agent  # it checks itself with this module

    if isinstance(tool, Agent):
        raise DefinitionError(
            f"{where}: tools has {tool!r}, which is no tool: put it in team=[…], or write .as_tool()"
        )
    if not is_agent_tool(tool):
        name = getattr(tool, "__name__", repr(tool))
        raise DefinitionError(f"{where}: tools has {name:.80}, which is no tool: declare it with @tool")
    needs = tool.agent.deps_type
    if not _fits(agent.deps_type, needs):
        raise DefinitionError(
            f"{where}: tool {tool.name!r} runs agent {tool.agent.name!r}, which needs deps of type {needs!r}, and "
            f"this agent has {_given(agent)}: one run has one deps"
        )
    return tool.name


def is_agent_tool(tool: object) -> TypeIs[AgentTool[Any, Any]]:
    """Say whether a tool is an agent; for type checkers with `Any` where `isinstance` leaves type arguments open."""
    from overt.delegate import AgentTool  # not for agents that have none

    return isinstance(tool, AgentTool)


def agents_below(agent: Agent[Any, Any]) -> tuple[Agent[Any, Any], ...]:
    """Return the agents an agent hands work to: its team, and those among its tools."""
    behind = (tool.agent for tool in agent.tools if not isinstance(tool, Tool) and is_agent_tool(tool))
    return (*agent.team, *behind)


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
            raise DefinitionError(
                f"{where}: team member {name!r} needs deps of type {needs!r}, and this agent has {_given(agent)}: "
                "one run has one deps"
            )


def _given(agent: Agent[Any, Any]) -> str:
    return "none" if agent.deps_type is None else repr(agent.deps_type)


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


# ------------------------------------------------------------------ policy


def _check_policy(where: str, agent: Agent[Any, Any]) -> None:
    check_rules(f"{where}: guardrails", agent.guardrails, on_calls=True)
    check_rules(f"{where}: input_guardrails", agent.input_guardrails)
    check_rules(f"{where}: output_guardrails", agent.output_guardrails)
    if agent.guardrails:
        callable_names = {tool.name for tool in agent.tools} | ({"task"} if agent.team else set[str]())
        for name in tools_to_approve(agent.guardrails):
            if name not in callable_names:
                raise DefinitionError(
                    f"{where}: guardrails has require_approval({name!r}), and {_without(name, callable_names)}"
                )
    if agent.completion is not None:
        from overt.completion import Completion

        expect(where, "completion", agent.completion, Completion, type(None))
        needed = getattr(agent.completion.verify, "needs_tool", None)
        if isinstance(needed, str) and needed not in {tool.name for tool in agent.tools}:
            raise DefinitionError(
                f"{where}: completion is {agent.completion!r}, which needs a tool {needed!r}: add it to tools"
            )
    check_hooks(f"{where}: hooks", agent.hooks)
    check_callback(f"{where}: on_metric", agent.on_metric)
    check_callback(f"{where}: on_spawn", agent.on_spawn)
    check_callback(f"{where}: on_close", agent.on_close, takes=2)


def _without(name: str, names: Iterable[str]) -> str:
    if name == "task":
        return "it has no team to delegate to: give it one, or leave the name out"
    known = ", ".join(sorted(names))
    return f"it has no tool of that name: {f'its tools are {known}' if known else 'it has no tools'}"


def check_rules(place: str, rules: Sequence[object], *, on_calls: bool = False) -> None:
    """Check the guardrails of one field.

    Args:
        place: Whose field it is, for messages.
        rules: What it was given.
        on_calls: Whether they are asked about calls of tools.

    Raises:
        DefinitionError: One of them cannot be asked.
    """
    if not rules:
        return
    from overt.guardrail import _RequireApproval, require_approval

    for index, rule in enumerate(rules):
        if rule is require_approval:
            raise DefinitionError(
                f"{place}: item {index} is require_approval itself: call it with names of tools"
            )
        if isinstance(rule, _RequireApproval) and not on_calls:
            raise DefinitionError(
                f"{place}: item {index} is {rule.__name__}, which is about calls: put it in guardrails=[…]"
            )
        _check_function(f"{place}: item {index}", rule, takes=1)


def tools_to_approve(rules: Iterable[object]) -> Iterator[str]:
    """Yield the names of tools that rules made by `require_approval` are about."""
    from overt.guardrail import _RequireApproval

    for rule in rules:
        if isinstance(rule, _RequireApproval):
            yield from rule.tools


def check_hooks(place: str, hooks: object) -> None:
    """Check a field that takes hooks.

    Raises:
        DefinitionError: It is something else.
    """
    if hooks is None:
        return
    from overt.hooks import Hooks

    if not isinstance(hooks, Hooks):
        raise DefinitionError(f"{place} has to be Hooks such as Hooks(before_tool=…), not {shown(hooks)}")


def check_callback(place: str, fn: object, *, takes: int = 1, waits: bool = False) -> None:
    """Check a function that is told or asked something.

    Args:
        place: Whose field it is, for messages.
        fn: What it was given; `None` for nothing.
        takes: How many arguments it is called with.
        waits: Whether it may be an `async def`.

    Raises:
        DefinitionError: It is no such function.
    """
    if fn is None:
        return
    _check_function(place, fn, takes=takes)
    entered = (fn, cast("Any", type(fn)).__call__)
    if not waits and any(inspect.iscoroutinefunction(one) for one in entered):
        raise DefinitionError(f"{place} has to be a plain function: nothing would await an async one")


def _check_function(place: str, fn: object, *, takes: int) -> None:
    if not callable(fn) or isinstance(fn, type):
        raise DefinitionError(f"{place} has to be a function, not {shown(fn)}")
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return  # some builtins do not say
    try:
        signature.bind(*(None,) * takes)
    except TypeError as error:
        arguments = "one argument" if takes == 1 else f"{takes} arguments"
        name = getattr(fn, "__name__", type(fn).__name__)
        raise DefinitionError(f"{place}: {name} has to take {arguments}: {error}") from None
