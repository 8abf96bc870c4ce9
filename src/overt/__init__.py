"""Agents with nothing to hide: what a run did, spent, awaited, was refused or repeated is read off its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overt.agent import Agent
from overt.clock import Clock, SystemClock
from overt.context import ToolContext
from overt.errors import DefinitionError, MissingDeps, NoModel, OvertError, RunStopped, ToolError, UsageError
from overt.handle import Handle
from overt.journal.store import Store
from overt.message import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    Model,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    StreamingModel,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolCallDelta,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    UserPart,
)
from overt.options import Options
from overt.policy import (
    Budget,
    Extend,
    HandleView,
    InboxItem,
    LimitDecision,
    LimitInfo,
    PostResult,
    ResumePolicy,
    RetryPolicy,
    Stop,
    Suspend,
)
from overt.request import Answer, ReplayedCall, Request, WaitFor
from overt.result import ErrorInfo, Limit, Replay, State, Status, TaskResult, Unpriced, Verdict
from overt.tool import AnyTool, Tool, ToolDecorator, ToolResult, pending, tool

if TYPE_CHECKING:
    from overt.compaction import compactor
    from overt.completion import Attempt, Completion
    from overt.delegate import AgentTool
    from overt.doubt import Doubt, Failed, Resolution, Resolver, Retry, Succeeded
    from overt.events import Event
    from overt.guardrail import (
        Allow,
        Ask,
        Deny,
        Guardrail,
        GuardrailEvent,
        OutputEvent,
        OutputGuardrail,
        PromptEvent,
        PromptGuardrail,
        Ruling,
        require_approval,
    )
    from overt.hooks import (
        AfterLLM,
        AfterTool,
        BeforeLLM,
        BeforeTool,
        Hooks,
        LLMOverride,
        MetricEvent,
        ToolOverride,
    )
    from overt.ledger import Ledger
    from overt.loop import Loop
    from overt.prices import GenAIPrices, Price, PricedCall, Prices, PriceTable
    from overt.runtime import Runtime
    from overt.stream import RunStream
    from overt.upgrade import Drift, Upgrade
    from overt.verifiers import TodoItem, all_todos_done, output_is, todo

__all__ = (
    "AfterLLM",
    "AfterTool",
    "Agent",
    "AgentTool",
    "Allow",
    "Answer",
    "AnyTool",
    "Ask",
    "AssistantMessage",
    "Attempt",
    "BeforeLLM",
    "BeforeTool",
    "Budget",
    "Clock",
    "Completion",
    "DefinitionError",
    "Deny",
    "Doubt",
    "Drift",
    "ErrorInfo",
    "Event",
    "Extend",
    "Failed",
    "FilePart",
    "GenAIPrices",
    "Guardrail",
    "GuardrailEvent",
    "Handle",
    "HandleView",
    "Hooks",
    "ImagePart",
    "InboxItem",
    "LLMOverride",
    "Ledger",
    "Limit",
    "LimitDecision",
    "LimitInfo",
    "Loop",
    "Message",
    "MetricEvent",
    "MissingDeps",
    "Model",
    "ModelDelta",
    "ModelRequest",
    "ModelResponse",
    "ModelSettings",
    "NoModel",
    "Options",
    "OutputEvent",
    "OutputGuardrail",
    "OvertError",
    "PostResult",
    "Price",
    "PriceTable",
    "PricedCall",
    "Prices",
    "PromptEvent",
    "PromptGuardrail",
    "Replay",
    "ReplayedCall",
    "Request",
    "Resolution",
    "Resolver",
    "ResumePolicy",
    "Retry",
    "RetryPolicy",
    "Ruling",
    "RunStopped",
    "RunStream",
    "Runtime",
    "State",
    "Status",
    "Stop",
    "Store",
    "StreamingModel",
    "Succeeded",
    "Suspend",
    "SystemClock",
    "SystemMessage",
    "TaskResult",
    "TextPart",
    "TodoItem",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolContext",
    "ToolDecorator",
    "ToolError",
    "ToolMessage",
    "ToolOverride",
    "ToolResult",
    "ToolSpec",
    "Unpriced",
    "Upgrade",
    "Usage",
    "UsageError",
    "UserMessage",
    "UserPart",
    "Verdict",
    "WaitFor",
    "all_todos_done",
    "compactor",
    "output_is",
    "pending",
    "require_approval",
    "todo",
    "tool",
)

# What declares agents and tools is here at once; what runs them is loaded when it is first asked for.
_LATER = {
    "AfterLLM": "overt.hooks",
    "AfterTool": "overt.hooks",
    "AgentTool": "overt.delegate",
    "Allow": "overt.guardrail",
    "Ask": "overt.guardrail",
    "Attempt": "overt.completion",
    "BeforeLLM": "overt.hooks",
    "BeforeTool": "overt.hooks",
    "Completion": "overt.completion",
    "Deny": "overt.guardrail",
    "Doubt": "overt.doubt",
    "Drift": "overt.upgrade",
    "Event": "overt.events",
    "Failed": "overt.doubt",
    "GenAIPrices": "overt.prices",
    "Guardrail": "overt.guardrail",
    "GuardrailEvent": "overt.guardrail",
    "Hooks": "overt.hooks",
    "LLMOverride": "overt.hooks",
    "Ledger": "overt.ledger",
    "Loop": "overt.loop",
    "MetricEvent": "overt.hooks",
    "OutputEvent": "overt.guardrail",
    "OutputGuardrail": "overt.guardrail",
    "Price": "overt.prices",
    "PriceTable": "overt.prices",
    "PricedCall": "overt.prices",
    "Prices": "overt.prices",
    "PromptEvent": "overt.guardrail",
    "PromptGuardrail": "overt.guardrail",
    "Resolution": "overt.doubt",
    "Resolver": "overt.doubt",
    "Retry": "overt.doubt",
    "Ruling": "overt.guardrail",
    "RunStream": "overt.stream",
    "Runtime": "overt.runtime",
    "Succeeded": "overt.doubt",
    "TodoItem": "overt.verifiers",
    "ToolOverride": "overt.hooks",
    "Upgrade": "overt.upgrade",
    "all_todos_done": "overt.verifiers",
    "compactor": "overt.compaction",
    "output_is": "overt.verifiers",
    "require_approval": "overt.guardrail",
    "todo": "overt.verifiers",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(_LATER[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
