"""Who performs a run's effects: each agent's tools, model, instructions and interpreter, looked up by name."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from overt._output import OutputSpec
from overt._redaction import Redaction
from overt.completion import Completion
from overt.core.delegation import offers_delegates, offers_task
from overt.core.tree import Node
from overt.handle import Handle
from overt.hooks import Hooks, MetricEvent
from overt.message import Model, ModelSettings, SystemMessage, ToolSpec
from overt.policy import LimitDecision, LimitInfo, RetryPolicy
from overt.request import Answer, Request, WaitFor
from overt.tool import AnyTool, ToolResult
from overt.upgrade import Upgrade

if TYPE_CHECKING:
    from overt.doubt import Resolver
    from overt.prices import Prices

__all__ = ("AnyCallable", "Canonical", "Crew", "House", "Kit", "Member", "RunnableTool")

AnyCallable = Callable[..., Any]
NO_RETRY = RetryPolicy.model_construct(max_retries=0)
Rules = tuple[Callable[[Any], Any], ...]
"""Guardrails of one kind."""


class Canonical(Protocol):
    """What a model may call: a tool, `task`, or an agent that is a tool."""

    @property
    def name(self) -> str: ...
    @property
    def spec(self) -> ToolSpec: ...
    def canonical(self, raw: Mapping[str, object] | str) -> str: ...


class RunnableTool(Protocol):
    """What the driver needs of a tool."""

    @property
    def name(self) -> str: ...
    @property
    def spec(self) -> ToolSpec: ...
    @property
    def on_replay(self) -> str: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def is_async(self) -> bool: ...
    @property
    def takes_context(self) -> bool: ...
    @property
    def resolve(self) -> Resolver[Any] | None: ...
    @property
    def __wrapped__(self) -> AnyCallable: ...
    def canonical(self, raw: Mapping[str, object] | str) -> str: ...
    def bind(self, canonical: str) -> tuple[tuple[Any, ...], dict[str, Any]]: ...
    def as_result(self, value: object) -> ToolResult: ...


@dataclass(kw_only=True, slots=True)
class Kit:
    """What an agent works with in every run."""

    name: str
    tools: Mapping[str, RunnableTool]
    task: RunnableTool | None
    """The `task` tool, where there is a team."""
    settings: ModelSettings
    wait_for: WaitFor | None
    delegates: Mapping[str, Canonical] = field(default_factory=dict[str, Canonical])
    """Agents that are tools, by the tool's name."""
    output: OutputSpec | None = None
    completion: Completion | None = None
    guards: Rules = ()
    prompt_guards: Rules = ()
    output_guards: Rules = ()
    hooks: Hooks | None = None
    on_metric: Callable[[MetricEvent], None] | None = None
    on_spawn: Callable[[Handle], None] | None = None
    on_close: Callable[[Handle, str], None] | None = None
    specs: tuple[ToolSpec, ...] = field(init=False)
    specs_with_task: tuple[ToolSpec, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.specs = tuple(t.spec for t in self.tools.values())
        task = () if self.task is None else (self.task.spec,)
        self.specs_with_task = (*self.specs, *(d.spec for d in self.delegates.values()), *task)


@dataclass(kw_only=True, slots=True)
class House:
    """What the run adds to every agent's own rules."""

    guards: Rules = ()
    prompt_guards: Rules = ()
    output_guards: Rules = ()
    hooks: Hooks | None = None
    on_metric: Callable[[MetricEvent], None] | None = None


NOTHING = House()


class Member:
    """One agent of one run, ready to work."""

    __slots__ = (
        "_with_output",
        "at_once",
        "completion",
        "delegates",
        "guards",
        "hooks",
        "model",
        "on_close",
        "on_metric",
        "on_spawn",
        "output",
        "output_guards",
        "prompt_guards",
        "settings",
        "specs",
        "specs_with_task",
        "system",
        "task",
        "tools",
        "wait_for",
    )

    def __init__(
        self,
        *,
        kit: Kit,
        model: Model,
        system: Callable[[], SystemMessage | None],
        house: House = NOTHING,
    ) -> None:
        self.model: Model = model
        self.delegates: Mapping[str, Canonical] = kit.delegates
        self.output: OutputSpec | None = kit.output
        self.completion: Completion | None = kit.completion
        self.guards: Rules = (*house.guards, *kit.guards) if house.guards else kit.guards
        self.prompt_guards: Rules = (*house.prompt_guards, *kit.prompt_guards)
        self.output_guards: Rules = (*house.output_guards, *kit.output_guards)
        self.hooks: Hooks | None = house.hooks if kit.hooks is None else kit.hooks.over(house.hooks)
        self.on_metric: Callable[[MetricEvent], None] | None = (
            house.on_metric if kit.on_metric is None else kit.on_metric
        )
        self.on_spawn: Callable[[Handle], None] | None = kit.on_spawn
        self.on_close: Callable[[Handle, str], None] | None = kit.on_close
        before_tool = None if self.hooks is None else self.hooks.before_tool
        self.at_once: bool = (before_tool is None or not _waits(before_tool)) and not any(
            map(_waits, self.guards)
        )
        """Whether its checks are plain functions, which rule before the reply is recorded."""
        self.system: Callable[[], SystemMessage | None] = system
        self.tools: Mapping[str, RunnableTool] = kit.tools
        self.task: RunnableTool | None = kit.task
        self.settings: ModelSettings = kit.settings
        self.wait_for: WaitFor | None = kit.wait_for
        self.specs: tuple[ToolSpec, ...] = kit.specs
        self.specs_with_task: tuple[ToolSpec, ...] = kit.specs_with_task
        self._with_output: tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]] = ((), ())

    def with_output(self, specs: tuple[ToolSpec, ...], last: ToolSpec) -> tuple[ToolSpec, ...]:
        """Return what is offered and the tool that gives typed output.

        It is the same object as last time where the same is offered, so that an adapter converts it once.
        """
        if self._with_output[0] is not specs or not self._with_output[1]:
            self._with_output = specs, (*specs, last)
        return self._with_output[1]

    def tool(self, name: str) -> Canonical | None:
        """Return what a model calls by a name, `None` where there is nothing of it."""
        found: Canonical | None = self.tools.get(name)
        if found is None:
            found = self.delegates.get(name)
        if found is None and name == "task":
            found = self.task
        return found

    def offered(self, node: Node) -> Sequence[AnyTool[Any]]:
        """Return the tools a handle is offered where nothing narrows them, in order."""
        found: list[object] = [*self.tools.values()]
        if offers_delegates(node):
            found += self.delegates.values()
        if self.task is not None and offers_task(node):
            found.append(self.task)
        return cast("list[AnyTool[Any]]", found)

    def load(self, output: str | None, text: str) -> object:
        """Return a final answer as the declared type."""
        return text if output is None or self.output is None else self.output.load(output)


def _waits(fn: object) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004  # the method itself is looked at


@dataclass(kw_only=True, slots=True)
class Crew:
    """Everyone and everything a driver needs that is not in the journal."""

    members: Mapping[str, Member]
    deps: object
    wait_for: WaitFor | None
    on_pending: Callable[[Request], Awaitable[None]] | None
    verify_answer: Callable[[Request, Answer[Any]], bool | Awaitable[bool]] | None
    max_concurrent_turns: int
    shutdown: float
    claim: float
    on_limit: Callable[[LimitInfo], LimitDecision | Awaitable[LimitDecision]] | None = None
    guardrail_timeout: float = 30.0
    """Seconds."""
    watched: bool = False
    """Whether the host is told of handles, or of metrics, as they come."""
    retry: RetryPolicy = NO_RETRY
    prices: Prices | None = None
    redaction: Redaction | None = None
    """What is left out of results, questions and errors; `None` for nothing."""
    upgrade: Upgrade = field(default_factory=Upgrade)
    """What has changed in the code since runs were stored."""

    def redact(self, text: str) -> str:
        """Return a text as it may be recorded."""
        return text if self.redaction is None else self.redaction.text(text)

    def of(self, agent: str) -> Member | None:
        """Return an agent by the name the run has for it; also where nobody has taken the run since it changed."""
        member = self.members.get(agent)
        return self.members.get(self.upgrade.agent(agent)) if member is None else member
