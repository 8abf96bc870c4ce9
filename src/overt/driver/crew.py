"""Who performs a run's effects: each agent's tools, model, instructions and interpreter, looked up by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from overt.message import Model, ModelSettings, SystemMessage, ToolSpec
from overt.request import Answer, Request, WaitFor
from overt.tool import ToolResult

__all__ = ("AnyCallable", "Crew", "Kit", "Member", "RunnableTool")

AnyCallable = Callable[..., Any]


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
    specs: tuple[ToolSpec, ...] = field(init=False)
    specs_with_task: tuple[ToolSpec, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.specs = tuple(t.spec for t in self.tools.values())
        self.specs_with_task = self.specs if self.task is None else (*self.specs, self.task.spec)


class Member:
    """One agent of one run, ready to work."""

    __slots__ = ("model", "settings", "specs", "specs_with_task", "system", "task", "tools", "wait_for")

    def __init__(self, *, kit: Kit, model: Model, system: Callable[[], SystemMessage | None]) -> None:
        self.model: Model = model
        self.system: Callable[[], SystemMessage | None] = system
        self.tools: Mapping[str, RunnableTool] = kit.tools
        self.task: RunnableTool | None = kit.task
        self.settings: ModelSettings = kit.settings
        self.wait_for: WaitFor | None = kit.wait_for
        self.specs: tuple[ToolSpec, ...] = kit.specs
        self.specs_with_task: tuple[ToolSpec, ...] = kit.specs_with_task


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
