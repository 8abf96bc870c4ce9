"""Agents with nothing to hide: what a run did, spent, awaited, was refused or repeated is read off its result."""

from overt.agent import Agent
from overt.clock import Clock, SystemClock
from overt.driver.events import Event
from overt.errors import DefinitionError, MissingDeps, NoModel, OvertError, RunStopped, ToolError, UsageError
from overt.handle import Handle
from overt.journal.store import Store
from overt.ledger import Ledger
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
from overt.runtime import Runtime
from overt.tool import AnyTool, Tool, ToolContext, ToolDecorator, ToolResult, pending, tool

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
