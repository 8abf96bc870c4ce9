"""What type checkers see of events. Checked, never run: each mistake carries the code it must be reported with."""

from __future__ import annotations

from datetime import datetime
from typing import Any, assert_never, assert_type

from pydantic import JsonValue, TypeAdapter

from overt import (
    AssistantMessage,
    ErrorInfo,
    Event,
    Request,
    Runtime,
    Status,
    TaskResult,
    ToolCall,
    Usage,
    Verdict,
)
from overt.events import (
    AnswerGiven,
    HandleClosed,
    HandleSettled,
    HandleSpawned,
    LimitReached,
    ModelFailed,
    Parked,
    ReasoningDelta,
    Recorded,
    RequestCancelled,
    RequestOpened,
    ResultReady,
    Resumed,
    RetryAwaited,
    Rewound,
    TextDelta,
    ToolDenied,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    VerdictGiven,
    WakeBegan,
)


def every_event(event: Event) -> object:
    assert_type(event.position, int)
    assert_type(event.handle, str)
    assert_type(event.at, datetime)
    match event:
        case TextDelta() | ReasoningDelta():
            return assert_type(event.text, str)
        case WakeBegan() | Parked() | Resumed() | Rewound():
            return event.kind
        case TurnFinished():
            assert_type(event.usage, Usage | None)
            return assert_type(event.message, AssistantMessage)
        case ModelFailed():
            return assert_type(event.error, ErrorInfo)
        case RetryAwaited():
            return assert_type(event.seconds, float)
        case ToolStarted() | ToolDenied():
            return assert_type(event.call, ToolCall)
        case ToolFinished():
            return assert_type(event.metadata, dict[str, JsonValue])
        case RequestOpened():
            return assert_type(event.request, Request)
        case AnswerGiven() | RequestCancelled():
            return assert_type(event.request_id, str)
        case LimitReached() | HandleSpawned() | HandleClosed():
            return event.handle
        case HandleSettled():
            return assert_type(event.status, Status)
        case VerdictGiven():
            return assert_type(event.verdict, Verdict)
        case Recorded():
            return assert_type(event.data, dict[str, JsonValue])
        case ResultReady():
            return assert_type(event.result, TaskResult[Any])
        case _:
            assert_never(event)


def by_kind(event: Event) -> str:
    if event.kind == "tool_finished":
        return assert_type(event, ToolFinished).output
    if event.kind == "text" or event.kind == "reasoning":
        return event.text
    print(event.text)  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
    return event.kind


def one_is_missing(event: Event) -> str:
    match event:
        case ResultReady():
            return event.kind
        case _:
            assert_never(event)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def reading(runtime: Runtime[str], adapter: TypeAdapter[Event]) -> None:
    for event in runtime.events(after=3):
        assert_type(event, Event)
        event.position = 4  # type: ignore[misc]
    assert_type(adapter.validate_json("{}"), Event)
