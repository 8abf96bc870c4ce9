"""Hooks around model calls and tools, and metrics of both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from overt._frozen import Frozen
from overt.errors import DefinitionError
from overt.message import Message, ModelResponse, ToolCall, Usage
from overt.tool import AnyTool, ToolResult

__all__ = (
    "AfterLLM",
    "AfterTool",
    "BeforeLLM",
    "BeforeTool",
    "Hooks",
    "LLMOverride",
    "MetricEvent",
    "ToolOverride",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeLLM:
    """A model call that is about to be made.

    Attributes:
        handle: Id of the asking handle.
        turn: Which turn of the attempt it will be, from 1.
        model: The model's name.
        messages: The transcript without the agent's instructions, which are put before it at every turn. Copies: one
            that is changed in place counts only where it is given back.
        tools: The tools offered this turn, in order.
    """

    handle: str
    turn: int
    model: str
    messages: tuple[Message, ...]
    tools: tuple[AnyTool[Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterLLM:
    """A reply that has arrived; its calls have not been looked at yet.

    Attributes:
        handle: Id of the asking handle.
        turn: Which turn of the attempt it was, from 1.
        model: The model's name.
        response: The reply, as the model gave it.
    """

    handle: str
    turn: int
    model: str
    response: ModelResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeTool:
    """A call that no guardrail has seen yet; once for each call of an attempt.

    Attributes:
        handle: Id of the calling handle.
        turn: The turn whose reply made the call.
        call: The call with its validated arguments; a copy.
    """

    handle: str
    turn: int
    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterTool:
    """A tool that has returned or raised. A tool that asks has not: this comes after the entry that ends it.

    Attributes:
        handle: Id of the calling handle.
        turn: The turn whose reply made the call.
        call: The call, with the arguments that were run; a copy.
        result: What it returned; of an exception the error result the model will be told.
    """

    handle: str
    turn: int
    call: ToolCall
    result: ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMOverride:
    """What `before_llm` changes.

    Attributes:
        messages: The transcript from here on, in place of the one there is; `None` leaves it. It is recorded, every
            later turn goes on from it, and a wake that parks still rewinds to the full one. A call without its result,
            a result without its call, or no message at all ends the wake before anything is sent: `error`, source
            `hook`. One that was changed in place counts as another.
        tools: Which of the offered tools are offered in this one call; `None` leaves them.
    """

    messages: Sequence[Message] | None = None
    tools: Sequence[AnyTool[Any]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOverride:
    """What `before_tool` or `after_tool` changes.

    Attributes:
        result: From `before_tool`: given in the tool's place, which is not entered. From `after_tool`: recorded in
            place of what the tool returned. Marked in the metadata of the tool message. `None` changes nothing.
        arguments: From `before_tool`: run in place of the model's, validated and shown to every guardrail. `None`
            changes nothing.
    """

    result: ToolResult | None = None
    arguments: Mapping[str, object] | None = None


BeforeLLMHook: TypeAlias = Callable[[BeforeLLM], LLMOverride | Awaitable[LLMOverride | None] | None]
AfterLLMHook: TypeAlias = Callable[[AfterLLM], Awaitable[None] | None]
BeforeToolHook: TypeAlias = Callable[[BeforeTool], ToolOverride | Awaitable[ToolOverride | None] | None]
AfterToolHook: TypeAlias = Callable[[AfterTool], ToolOverride | Awaitable[ToolOverride | None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Functions called around model calls and tools, sync or async; `None` returned changes nothing.

    An agent's hooks replace the run's field by field. A hook that raises or returns something else ends the wake as
    `error`, source `hook`; what was bought or run before is recorded, and `recover` goes on from there. Plain functions
    run on the event loop: keep them short.

    What a hook changes is durable with the call it changes. A call that was cut off, by a crash or a cancellation, is
    made again by whoever goes on, and its hooks are called again; so are those of everything a replay repeats. What a
    hook does outside has to bear that.

    ```python
    from overt import Agent, BeforeTool, Hooks, ToolOverride, tool
    from overt.testing import MockModel, call, say

    @tool(description="Search.")
    def search(query: str, limit: int) -> str:
        return f"{limit} found"

    def at_most_ten(event: BeforeTool) -> ToolOverride:
        return ToolOverride(arguments={**event.call.arguments, "limit": 10})

    model = MockModel([call("search", query="tea", limit=500), say("Found.")])
    agent = Agent("agent", does="Searches.", tools=[search], hooks=Hooks(before_tool=at_most_ten), model=model)
    result, runtime = agent.run_sync("Search.")
    print(runtime.transcript(result.handle)[-2].text)
    #> 10 found
    ```

    Attributes:
        before_llm: Before each model call; may replace the transcript and narrow the tools.
        after_llm: After each reply.
        before_tool: Once for each call of an attempt, before the guardrails; may change arguments or give the result.
        after_tool: After a tool has returned or raised; may replace the result. Not for delegations.

    Raises:
        DefinitionError: One of them is no function.
    """

    before_llm: BeforeLLMHook | None = None
    after_llm: AfterLLMHook | None = None
    before_tool: BeforeToolHook | None = None
    after_tool: AfterToolHook | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            given = getattr(self, one.name)
            if given is not None and not callable(given):
                raise DefinitionError(f"Hooks: {one.name} has to be a function, not {type(given).__name__}")

    def over(self, base: Hooks | None) -> Hooks:
        """Return these hooks, with those of `base` where there is none."""
        if base is None:
            return self
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return Hooks(**{name: getattr(base, name) if fn is None else fn for name, fn in own.items()})


class MetricEvent(Frozen):
    """One model call, one entry of a tool, or one stretch of a wake, after it has ended.

    `on_metric` is told it in the process that performed it; it is not kept. What is in the journal can be read from
    `Runtime.ledger` and `Runtime.events` at any time.
    """

    event: Literal["llm", "tool", "run"]
    run_id: str
    handle: str
    agent: str
    model: str | None = None
    """Of an `llm` event, the model's name."""
    tool: str | None = None
    """Of a `tool` event, the tool's name."""
    status: str
    """`"ok"` or `"error"`; of a `run` event a `Status`. A tool that asks is `"pending"`, never an error."""
    seconds: float
    """By the run's clock. A model call that waits for its place among `max_concurrent_turns` has not begun."""
    usage: Usage | None = None
    """Of an `llm` event what the provider reported, `None` for nothing; of a `run` event the subtree's whole usage."""
    pending: bool = False
    """Whether it ended in a question."""
