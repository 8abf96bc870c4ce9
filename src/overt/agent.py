"""Agents: frozen declarations of who does what with which tools, team and budget."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, cast, get_origin, overload

from typing_extensions import TypeForm, TypeVar, Unpack

from overt._text import clean
from overt.errors import DefinitionError, UsageError
from overt.message import Model, ModelSettings
from overt.options import Options
from overt.policy import Budget
from overt.request import WaitFor
from overt.result import TaskResult
from overt.tool import AnyTool, Tool

if TYPE_CHECKING:
    from overt.runtime import Runtime

__all__ = ("Agent", "in_event_loop", "instructions", "resolve_team")

DepsT = TypeVar("DepsT", default=None)
OutputT = TypeVar("OutputT", default=str)
D = TypeVar("D")
T = TypeVar("T")


@dataclass(frozen=True, init=False, eq=False, repr=False, slots=True, weakref_slot=True)
class Agent(Generic[DepsT, OutputT]):
    """A declaration: immutable, and usable in any number of runs, event loops and threads.

    `Agent[DepsT, OutputT]`: what its tools are given as `ctx.deps`, and what a finished run's `output` is.

    Where a tool may ask, tools run more than once: see `Runtime.resume` for what is repeated, and `ToolContext.once`
    and `@tool(on_replay="reuse")` for what is not.

    Attributes:
        name: Unique among the agents of a run; part of handle ids.
        does: What it is for, in a sentence: what a parent that may delegate to it is told.
        tools: What it may call, in the order the model is told of them.
        soul: Its instructions, or a function that makes them of the deps; `None` for none. It is called once a
            `Runtime`, at the agent's first turn; if it raises, the wake ends with an error of source `runtime`.
        soul_file: File with its instructions, read once a `Runtime`, at the agent's first turn; `None` for none.
        team: Agents it may delegate to.
        budget: Caps on each of its handles; `None` takes the defaults of `Budget`.
        model: Its model; `None` takes the run's.
        settings: How its model is to answer; `None` leaves everything to the provider.
        wait_for: Answers requests of its handles, and of those below them, at once; `None` leaves that to others.
        output_type: Type of the output.
        deps_type: Type of the deps; `None` if it needs none.
    """

    name: str
    does: str
    tools: tuple[AnyTool[DepsT], ...]
    soul: str | Callable[[DepsT], str] | None
    soul_file: Path | None
    team: tuple[Agent[Any, Any], ...]
    budget: Budget | None
    model: Model | str | None
    settings: ModelSettings | None
    wait_for: WaitFor | None
    output_type: TypeForm[OutputT]
    deps_type: type[DepsT] | None
    _rewired: bool
    _declared: object

    @overload
    def __init__(
        self: Agent[None, str],
        name: str,
        *,
        does: str,
        tools: Sequence[AnyTool[None]] = (),
        soul: str | Callable[[None], str] | None = None,
        soul_file: str | Path | None = None,
        team: Sequence[Agent[Any, Any]] = (),
        budget: Budget | None = None,
        model: Model | str | None = None,
        settings: ModelSettings | None = None,
        wait_for: WaitFor | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[D, str],
        name: str,
        *,
        does: str,
        tools: Sequence[AnyTool[D]] = (),
        soul: str | Callable[[D], str] | None = None,
        soul_file: str | Path | None = None,
        team: Sequence[Agent[Any, Any]] = (),
        budget: Budget | None = None,
        model: Model | str | None = None,
        settings: ModelSettings | None = None,
        wait_for: WaitFor | None = None,
        deps_type: TypeForm[D],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[None, T],
        name: str,
        *,
        does: str,
        tools: Sequence[AnyTool[None]] = (),
        soul: str | Callable[[None], str] | None = None,
        soul_file: str | Path | None = None,
        team: Sequence[Agent[Any, Any]] = (),
        budget: Budget | None = None,
        model: Model | str | None = None,
        settings: ModelSettings | None = None,
        wait_for: WaitFor | None = None,
        output_type: TypeForm[T],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[D, T],
        name: str,
        *,
        does: str,
        tools: Sequence[AnyTool[D]] = (),
        soul: str | Callable[[D], str] | None = None,
        soul_file: str | Path | None = None,
        team: Sequence[Agent[Any, Any]] = (),
        budget: Budget | None = None,
        model: Model | str | None = None,
        settings: ModelSettings | None = None,
        wait_for: WaitFor | None = None,
        output_type: TypeForm[T],
        deps_type: TypeForm[D],
    ) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        does: str,
        tools: Sequence[AnyTool[Any]] = (),
        soul: str | Callable[[Any], str] | None = None,
        soul_file: str | Path | None = None,
        team: Sequence[Agent[Any, Any]] = (),
        budget: Budget | None = None,
        model: Model | str | None = None,
        settings: ModelSettings | None = None,
        wait_for: WaitFor | None = None,
        output_type: TypeForm[Any] = str,
        deps_type: TypeForm[Any] | None = None,
    ) -> None:
        """Declare an agent.

        Args:
            name: Unique among the agents of a run: up to 128 characters, no `/` and no line breaks.
            does: What it is for, in a sentence; not empty.
            tools: What it may call.
            soul: Its instructions, or a function that makes them of the deps, called at its first turn. Not together
                with `soul_file`.
            soul_file: File with its instructions in UTF-8, which has to exist now and is read at its first turn.
            team: Agents it may delegate to, with the tool `task`. Their deps have to accept this agent's.
            budget: Caps on each of its handles; `None` takes the defaults of `Budget`.
            model: A `Model`, a string such as `"openai:gpt-5-mini"`, or `None` for the run's.
            settings: How its model is to answer; `None` leaves everything to the provider.
            wait_for: Answers requests of its handles, and of those below them, at once. See `WaitFor` for what that
                asks of tools.
            output_type: Type of the output; only `str` so far.
            deps_type: Type of the deps; a run without `deps` is then refused. Left out: it needs none.

        Raises:
            DefinitionError: A field is wrong; names the agent and the field.
        """
        set_ = partial(object.__setattr__, self)
        set_("name", name)
        set_("does", does)
        set_("tools", _listed(name, "tools", tools))
        set_("soul", soul)
        set_("soul_file", None if soul_file is None else Path(soul_file))
        set_("team", _listed(name, "team", team))
        set_("budget", budget)
        set_("model", model)
        set_("settings", settings)
        set_("wait_for", wait_for)
        set_("output_type", output_type)
        set_("deps_type", deps_type)
        set_("_rewired", False)
        set_("_declared", None)
        _check(self)

    def __copy__(self) -> Self:
        return self

    def __repr__(self) -> str:
        return f"<Agent {self.name}>"

    def with_team(self, *team: Agent[Any, Any]) -> Agent[DepsT, OutputT]:
        """Return this agent with another team.

        Wherever an agent of its name occurs in the teams reached from the new one, the new one is meant, so that teams
        may be cyclic:

        ```python
        writer = Agent("writer", does="Writes.")
        critic = Agent("critic", does="Criticises.", team=[writer])
        writer = writer.with_team(critic)  # the critic's writer is this one
        ```

        Raises:
            DefinitionError: As at construction.
        """
        new: Agent[DepsT, OutputT] = object.__new__(type(self))
        for field in fields(self):
            object.__setattr__(new, field.name, getattr(self, field.name))
        object.__setattr__(new, "team", team)
        object.__setattr__(new, "_rewired", True)
        object.__setattr__(new, "_declared", None)
        _check(new)
        return new

    async def run(
        self, prompt: str, **options: Unpack[Options[DepsT]]
    ) -> tuple[TaskResult[OutputT], Runtime[OutputT]]:
        """Run once, and return the result and the runtime, which answers, extends and shows the run.

        It is `rt = Runtime(agent, …); await rt.run(prompt)`: who wants to read a cancelled run does that.

        Args:
            prompt: What to do.
            **options: See `Options`.

        Raises:
            NoModel: Neither agent nor run says which model to use.
            MissingDeps: An agent of the team declares `deps_type`, and there are no `deps`.
            DefinitionError: The teams do not resolve, or an option is wrong.
            StoreError: The store could not be read or written.
        """
        from overt.runtime import Runtime  # the runtime is built of agents

        runtime = Runtime(self, **options)
        return await runtime.run(prompt), runtime

    def run_sync(
        self, prompt: str, **options: Unpack[Options[DepsT]]
    ) -> tuple[TaskResult[OutputT], Runtime[OutputT]]:
        """`run` for code without an event loop: starts one, and ends it.

        Raises:
            UsageError: An event loop is running in this thread: await `agent.run` instead.
            NoModel: As `run`; so are the others.
        """
        if in_event_loop():
            raise UsageError(
                "run_sync starts an event loop and cannot do so inside a running one: await agent.run(…)"
            )
        import anyio  # not while agents are only declared

        return anyio.run(partial(self.run, prompt, **options))


def in_event_loop() -> bool:
    """Say whether an event loop is running in this thread."""
    # Nobody is in a loop of a package that has not been imported.
    if "asyncio" in sys.modules:
        from asyncio import get_running_loop

        try:
            get_running_loop()
        except RuntimeError:
            pass
        else:
            return True
    trio = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_run())


def instructions(agent: Agent[Any, Any], deps: object) -> str | None:
    """Return an agent's instructions as of now, `None` for none.

    Raises:
        DefinitionError: The file is gone or no UTF-8, or the function returned no text.
        Exception: Whatever the agent's own function raises.
    """
    where = f"agent {agent.name!r}"
    if agent.soul_file is not None:
        try:
            return clean(agent.soul_file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise DefinitionError(
                f"{where}: soul_file {str(agent.soul_file)!r} cannot be read: {error}"
            ) from error
    soul = agent.soul(deps) if callable(agent.soul) else agent.soul
    if soul is None:
        return None
    _expect(where, "what soul returned", soul, str)
    return clean(soul)


# ------------------------------------------------------------------ checks at construction


def _check(agent: Agent[Any, Any]) -> None:
    name = agent.name
    _expect(f"agent {name!r:.160}", "name", name, str)
    if not name.strip():
        raise DefinitionError(f"agent {name!r}: name is empty")
    if name != name.strip() or "/" in name or not name.isprintable() or len(name) > 128:
        raise DefinitionError(
            f"agent {name!r:.160}: name has up to 128 printable characters, no '/', and no blank at either end: "
            "it is part of handle ids"
        )
    where = f"agent {name!r}"
    _expect(where, "does", agent.does, str)
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
    _expect(where, "budget", agent.budget, Budget, type(None))
    _expect(where, "settings", agent.settings, ModelSettings, type(None))
    _expect(where, "model", agent.model, Model, str, type(None))
    if isinstance(agent.model, str) and not agent.model.strip():
        raise DefinitionError(f"{where}: model is empty")
    if agent.wait_for is not None and not callable(agent.wait_for):
        raise DefinitionError(f"{where}: wait_for has to be an async function of the request")
    if agent.output_type is not str:
        raise DefinitionError(f"{where}: output_type other than str comes with a later release")


def _listed(name: str, field: str, given: Sequence[object]) -> tuple[object, ...]:
    try:
        return tuple(given)
    except TypeError:
        raise DefinitionError(
            f"agent {name!r}: {field} has to be a list, not {type(given).__name__}: write {field}=[…]"
        ) from None


def _expect(where: str, field: str, value: object, *kinds: type) -> None:
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


# ------------------------------------------------------------------ teams by name


def resolve_team(agent: Agent[Any, Any]) -> dict[str, Agent[Any, Any]]:
    """Return every agent a run of `agent` may come to, by name, the entry agent first.

    Raises:
        DefinitionError: Two different agents have one name, and neither is the other made anew by `with_team`.
    """
    named: dict[str, list[Agent[Any, Any]]] = {}
    for found in _reached(agent):
        named.setdefault(found.name, []).append(found)
    resolved: dict[str, Agent[Any, Any]] = {}
    waiting = [agent]
    while waiting:
        meant = _meant(named[waiting.pop(0).name])
        if meant.name not in resolved:
            resolved[meant.name] = meant
            waiting.extend(meant.team)
    return resolved


def _reached(agent: Agent[Any, Any]) -> Iterator[Agent[Any, Any]]:
    """Each agent object below and including this one, once; finite, since objects only know older ones."""
    seen: set[int] = set()
    waiting = [agent]
    while waiting:
        found = waiting.pop(0)
        if id(found) not in seen:
            seen.add(id(found))
            yield found
            waiting.extend(found.team)


def _meant(candidates: Sequence[Agent[Any, Any]]) -> Agent[Any, Any]:
    if len(candidates) == 1:
        return candidates[0]
    for candidate in candidates:
        if candidate._rewired:
            below = {id(found) for found in _reached(candidate)}
            if all(id(other) in below for other in candidates):
                return candidate
    raise DefinitionError(
        f"agent {candidates[0].name!r}: the teams of this run have {len(candidates)} different agents of this name"
    )
