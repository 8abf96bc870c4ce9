"""Agents with nothing to hide: what a run did, spent, awaited, was refused or repeated is read off its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overt.agent import Agent
from overt.clock import Clock, SystemClock
from overt.errors import DefinitionError, MissingDeps, NoModel, OvertError, RunStopped, ToolError, UsageError
from overt.handle import Handle
from overt.journal.store import Store
from overt.message import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    Model,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    UserPart,
)
from overt.options import Options
from overt.policy import Budget, HandleView, InboxItem, PostResult, ResumePolicy
from overt.request import Answer, ReplayedCall, Request, WaitFor
from overt.result import ErrorInfo, Limit, Replay, State, Status, TaskResult, Verdict
from overt.tool import AnyTool, Tool, ToolContext, ToolDecorator, ToolResult, pending, tool

if TYPE_CHECKING:
    from overt.events import Event
    from overt.ledger import Ledger
    from overt.runtime import Runtime

__all__ = (
    "Agent",
    "Answer",
    "AnyTool",
    "AssistantMessage",
    "Budget",
    "Clock",
    "DefinitionError",
    "ErrorInfo",
    "Event",
    "FilePart",
    "Handle",
    "HandleView",
    "ImagePart",
    "InboxItem",
    "Ledger",
    "Limit",
    "Message",
    "MissingDeps",
    "Model",
    "ModelRequest",
    "ModelResponse",
    "ModelSettings",
    "NoModel",
    "Options",
    "OvertError",
    "PostResult",
    "Replay",
    "ReplayedCall",
    "Request",
    "ResumePolicy",
    "RunStopped",
    "Runtime",
    "State",
    "Status",
    "Store",
    "SystemClock",
    "SystemMessage",
    "TaskResult",
    "TextPart",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDecorator",
    "ToolError",
    "ToolMessage",
    "ToolResult",
    "ToolSpec",
    "Usage",
    "UsageError",
    "UserMessage",
    "UserPart",
    "Verdict",
    "WaitFor",
    "pending",
    "tool",
)

# What declares agents and tools is here at once; what runs them is loaded when it is first asked for.
_LATER = {"Event": "overt.events", "Ledger": "overt.ledger", "Runtime": "overt.runtime"}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(_LATER[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
