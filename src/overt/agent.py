"""Agents: frozen declarations of who does what with which tools, team and budget."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, overload

from typing_extensions import TypeForm, TypeVar, Unpack

from overt._agent_checks import agents_below, check_agent, expect, listed
from overt._text import clean
from overt.errors import DefinitionError, UsageError
from overt.message import Model, ModelSettings
from overt.options import Options
from overt.policy import Budget
from overt.request import WaitFor
from overt.result import TaskResult
from overt.tool import AnyTool

if TYPE_CHECKING:
    # None of these is needed to declare an agent that has none of them.
    from overt.completion import Completion
    from overt.delegate import AgentTool
    from overt.guardrail import Guardrail, OutputGuardrail, PromptGuardrail
    from overt.handle import Handle
    from overt.hooks import Hooks, MetricEvent
    from overt.loop import Loop
    from overt.runtime import Runtime
    from overt.stream import RunStream

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

    ```python
    from overt import Agent, tool
    from overt.testing import MockModel, call, say

    @tool(description="Say how many of an item are on the shelf.")
    def stock(item: str) -> int:
        return 7

    model = MockModel([call("stock", item="kettle"), say("Seven are left.")])
    clerk = Agent("clerk", does="Answers questions about stock.", tools=[stock], model=model)
    result, runtime = clerk.run_sync("How many kettles are left?")
    print(result.status, result.text, result.turns, result.total_tokens)
    #> done Seven are left. 2 200
    ```

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
        guardrails: Rules on its own calls, asked together with the run's.
        input_guardrails: Rules on what it is given as prompt.
        output_guardrails: Rules on its final answer.
        completion: Judges whether it is done when it says so; `None` takes its word.
        hooks: Functions around its model calls and tools; each replaces the run's.
        on_metric: Told of its model calls, tools and stretches in place of the run's; `None` leaves that to the run's.
        on_spawn: Told of each handle made for it.
        on_close: Told of each of its handles that is closed, and why.
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
    guardrails: tuple[Guardrail, ...]
    input_guardrails: tuple[PromptGuardrail, ...]
    output_guardrails: tuple[OutputGuardrail, ...]
    completion: Completion | None
    hooks: Hooks | None
    on_metric: Callable[[MetricEvent], None] | None
    on_spawn: Callable[[Handle], None] | None
    on_close: Callable[[Handle, str], None] | None
    output_type: TypeForm[OutputT]
    deps_type: type[DepsT] | None
    _output: object
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
        guardrails: Sequence[Guardrail] = (),
        input_guardrails: Sequence[PromptGuardrail] = (),
        output_guardrails: Sequence[OutputGuardrail] = (),
        completion: Completion | None = None,
        hooks: Hooks | None = None,
        on_metric: Callable[[MetricEvent], None] | None = None,
        on_spawn: Callable[[Handle], None] | None = None,
        on_close: Callable[[Handle, str], None] | None = None,
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
        guardrails: Sequence[Guardrail] = (),
        input_guardrails: Sequence[PromptGuardrail] = (),
        output_guardrails: Sequence[OutputGuardrail] = (),
        completion: Completion | None = None,
        hooks: Hooks | None = None,
        on_metric: Callable[[MetricEvent], None] | None = None,
        on_spawn: Callable[[Handle], None] | None = None,
        on_close: Callable[[Handle, str], None] | None = None,
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
        guardrails: Sequence[Guardrail] = (),
        input_guardrails: Sequence[PromptGuardrail] = (),
        output_guardrails: Sequence[OutputGuardrail] = (),
        completion: Completion | None = None,
        hooks: Hooks | None = None,
        on_metric: Callable[[MetricEvent], None] | None = None,
        on_spawn: Callable[[Handle], None] | None = None,
        on_close: Callable[[Handle, str], None] | None = None,
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
        guardrails: Sequence[Guardrail] = (),
        input_guardrails: Sequence[PromptGuardrail] = (),
        output_guardrails: Sequence[OutputGuardrail] = (),
        completion: Completion | None = None,
        hooks: Hooks | None = None,
        on_metric: Callable[[MetricEvent], None] | None = None,
        on_spawn: Callable[[Handle], None] | None = None,
        on_close: Callable[[Handle, str], None] | None = None,
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
        guardrails: Sequence[Guardrail] = (),
        input_guardrails: Sequence[PromptGuardrail] = (),
        output_guardrails: Sequence[OutputGuardrail] = (),
        completion: Completion | None = None,
        hooks: Hooks | None = None,
        on_metric: Callable[[MetricEvent], None] | None = None,
        on_spawn: Callable[[Handle], None] | None = None,
        on_close: Callable[[Handle, str], None] | None = None,
        output_type: TypeForm[Any] = str,
        deps_type: TypeForm[Any] | None = None,
    ) -> None:
        """Declare an agent.

        Args:
            name: Unique among the agents of a run: up to 128 characters, no `/` and no line breaks.
            does: What it is for, in a sentence; not empty.
            tools: What it may call: functions declared with `@tool`, and agents made tools with `as_tool`.
            soul: Its instructions, or a function that makes them of the deps, called at its first turn. Not together
                with `soul_file`.
            soul_file: File with its instructions in UTF-8, which has to exist now and is read at its first turn.
            team: Agents it may delegate to, with the tool `task`. Their deps have to accept this agent's.
            budget: Caps on each of its handles; `None` takes the defaults of `Budget`.
            model: A `Model`, a string such as `"openai:gpt-5-mini"`, or `None` for the run's.
            settings: How its model is to answer; `None` leaves everything to the provider.
            wait_for: Answers requests of its handles, and of those below them, at once. See `WaitFor` for what that
                asks of tools.
            guardrails: Rules on its own calls: each allows, denies or asks. See `Guardrail` and `require_approval`.
            input_guardrails: Rules on what it is given as prompt, before its first model call.
            output_guardrails: Rules on its final answer, before it becomes the result.
            completion: Judges whether it is done when it says so; `None` takes its word.
            hooks: Functions around its model calls and tools; those that are set replace the run's.
            on_metric: Told of each model call, tool and stretch of its handles in place of the run's.
            on_spawn: Told of each handle made for it, after it is recorded.
            on_close: Told of each of its handles that is closed, with the reason, after it is recorded.
            output_type: Type of the output: a pydantic model, dataclass, `TypedDict`, union or anything else with a
                JSON schema. A model gives it by its provider's structured output, or else by a tool `final_result`;
                what does not fit is told to the model, and costs a turn.
            deps_type: Type of the deps; a run without `deps` is then refused. Left out: it needs none.

        Raises:
            DefinitionError: A field is wrong; names the agent and the field.
        """
        set_ = partial(object.__setattr__, self)
        set_("name", name)
        set_("does", does)
        set_("tools", listed(name, "tools", tools))
        set_("soul", soul)
        set_("soul_file", None if soul_file is None else Path(soul_file))
        set_("team", listed(name, "team", team))
        set_("budget", budget)
        set_("model", model)
        set_("settings", settings)
        set_("wait_for", wait_for)
        set_("guardrails", listed(name, "guardrails", guardrails))
        set_("input_guardrails", listed(name, "input_guardrails", input_guardrails))
        set_("output_guardrails", listed(name, "output_guardrails", output_guardrails))
        set_("completion", completion)
        set_("hooks", hooks)
        set_("on_metric", on_metric)
        set_("on_spawn", on_spawn)
        set_("on_close", on_close)
        set_("output_type", output_type)
        set_("deps_type", deps_type)
        set_("_output", None)
        set_("_rewired", False)
        set_("_declared", None)
        check_agent(self)
        if output_type is not str:
            from overt._output import OutputSpec  # not for agents that answer in text

            set_("_output", OutputSpec(output_type, where=f"agent {name!r}"))

    def __copy__(self) -> Self:
        return self

    def __repr__(self) -> str:
        return f"<Agent {self.name}>"

    def with_team(self, *team: Agent[Any, Any]) -> Agent[DepsT, OutputT]:
        """Return this agent with another team.

        Wherever an agent of its name occurs in the teams reached from the new one, or behind a tool there, the new one
        is meant, so that teams may be cyclic:

        ```python
        from overt import Agent

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
        check_agent(new)
        return new

    @overload
    def as_tool(
        self: Agent[None, OutputT], *, name: str | None = None, description: str | None = None
    ) -> AgentTool[object, OutputT]: ...
    @overload
    def as_tool(
        self, *, name: str | None = None, description: str | None = None
    ) -> AgentTool[DepsT, OutputT]: ...
    def as_tool(self, *, name: str | None = None, description: str | None = None) -> AgentTool[Any, OutputT]:
        """Return this agent as a tool with one parameter, `prompt`, for the `tools` of another.

        A call of it in a run is a delegation, as by `task`: a child with its own transcript in the same run, under the
        same budgets, guardrails and requests. Called as a function it runs on its own; see `AgentTool.__call__`.

        ```python
        from overt import Agent
        from overt.testing import MockModel, call, say

        finder = Agent("finder", does="Finds facts.", model=MockModel([say("Tea is hot.", tokens=400)]))
        script = [call("finder", prompt="Find one."), say("Tea is hot, they say.")]
        writer = Agent("writer", does="Writes.", tools=[finder.as_tool()], model=MockModel(script))
        result, _ = writer.run_sync("Write.")
        print(result.text, result.own_tokens, result.total_tokens)
        #> Tea is hot, they say. 200 600
        ```

        Args:
            name: What a model calls it by; `None` takes the agent's name, accents dropped and blanks as underscores.
            description: What a model is told about it; `None` takes `does`.

        Raises:
            DefinitionError: The name is none for a tool, or the agent's cannot be made one.
        """
        from overt.delegate import agent_tool  # not for agents that are no tools

        return agent_tool(self, name=name, description=description)

    async def run(
        self, prompt: str, **options: Unpack[Options[DepsT]]
    ) -> tuple[TaskResult[OutputT], Runtime[OutputT]]:
        """Run once, and return the result and the runtime, which answers, extends and shows the run.

        It is `rt = Runtime(agent, …); await rt.run(prompt)`: who wants to read a cancelled run does that.

        Args:
            prompt: What to do.
            **options: See `Options`.

        Raises:
            DefinitionError: An option is unknown or wrong, or the teams do not resolve.
            MissingDeps: An agent of the team declares `deps_type`, and there are no `deps`.
            NoModel: Neither an agent nor the run says which model to use.
            UsageError: `prompt` is no text.
            RunExists: The store has a run of this id; nothing happened.
            RunConflict: Another driver has taken the run by force meanwhile.
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
            UsageError: An event loop is running in this thread: await `agent.run` instead; or as `run`.
            DefinitionError: As `run`.
            MissingDeps: As `run`.
            NoModel: As `run`.
            RunExists: As `run`.
            RunConflict: As `run`.
            StoreError: As `run`.
        """
        if in_event_loop():
            raise UsageError(
                "run_sync starts an event loop and cannot do so inside a running one: await agent.run(…)"
            )
        import anyio  # not while agents are only declared

        return anyio.run(partial(self.run, prompt, **options))

    def stream(self, prompt: str, **options: Unpack[Options[DepsT]]) -> RunStream[OutputT]:
        """`run`, as a stream of what happens in the whole tree meanwhile; the last event has the result.

        Nothing runs before the first event is asked for. See `RunStream`.

        Args:
            prompt: What to do.
            **options: See `Options`.

        Raises:
            DefinitionError: An option is unknown or wrong, or the teams do not resolve.
            MissingDeps: An agent of the team declares `deps_type`, and there are no `deps`.
            NoModel: Neither an agent nor the run says which model to use.
            UsageError: `prompt` is no text. What the run itself raises is raised to the reader.
        """
        from overt.runtime import Runtime

        return Runtime(self, **options).stream(prompt)

    def loop(self, **options: Unpack[Options[DepsT]]) -> Loop[OutputT]:
        """Return a conversation: one handle that is given prompt after prompt. See `Loop`.

        ```python
        import anyio

        from overt import Agent
        from overt.testing import MockModel

        async def main() -> None:
            friend = Agent("friend", does="Talks.", model=MockModel(prompts=[["Hello."], ["Still here."]]))
            loop = friend.loop()
            for prompt in ("Hi!", "And now?"):
                result = await loop.run(prompt)
                print(result.text, result.total_tokens)
            #> Hello. 100
            #> Still here. 200
            await loop.close()

        anyio.run(main)
        ```

        Args:
            **options: See `Options`; `history` is what the transcript begins with.

        Raises:
            DefinitionError: An option is unknown or wrong, or the teams do not resolve.
            MissingDeps: An agent of the team declares `deps_type`, and there are no `deps`.
            NoModel: Neither an agent nor the run says which model to use.
        """
        from overt.loop import Loop

        return Loop(self, **options)


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
    expect(where, "what soul returned", soul, str)
    return clean(soul)


# ------------------------------------------------------------------ teams by name


def resolve_team(agent: Agent[Any, Any]) -> dict[str, Agent[Any, Any]]:
    """Return every agent a run of `agent` may come to, by teams and as tools, by name, the entry agent first.

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
            waiting.extend(agents_below(meant))
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
            waiting.extend(agents_below(found))


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
