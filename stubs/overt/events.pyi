from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from pydantic import BaseModel, JsonValue

from overt import (
    AssistantMessage,
    ErrorInfo,
    Limit,
    Request,
    Status,
    TaskResult,
    ToolCall,
    Usage,
    Verdict,
)

class _Event(BaseModel):
    position: int
    handle: str
    at: datetime

class TextDelta(_Event):
    kind: Literal["text"] = "text"
    text: str

class ReasoningDelta(_Event):
    kind: Literal["reasoning"] = "reasoning"
    text: str

class WakeBegan(_Event):
    kind: Literal["wake"] = "wake"
    prompt: str
    number: int

class TurnFinished(_Event):
    kind: Literal["turn"] = "turn"
    turn: int
    attempt: int
    message: AssistantMessage
    usage: Usage | None = None
    cost: Decimal | None = None
    finish_reason: Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"]
    model: str

class ModelFailed(_Event):
    kind: Literal["model_failed"] = "model_failed"
    error: ErrorInfo
    usage: Usage | None = None
    cost: Decimal | None = None
    model: str

class RetryAwaited(_Event):
    kind: Literal["retry"] = "retry"
    seconds: float
    number: int

class ToolStarted(_Event):
    kind: Literal["tool_started"] = "tool_started"
    call: ToolCall
    child: str | None = None
    reused: bool = False

class ToolFinished(_Event):
    kind: Literal["tool_finished"] = "tool_finished"
    call_id: str
    name: str
    output: str
    is_error: bool
    metadata: dict[str, JsonValue] = {}
    child: str | None = None
    reused: bool = False

class ToolDenied(_Event):
    kind: Literal["tool_denied"] = "tool_denied"
    call: ToolCall
    reason: str
    declined: bool

class RequestOpened(_Event):
    kind: Literal["request"] = "request"
    request: Request
    call_id: str | None = None

class AnswerGiven(_Event):
    kind: Literal["answer"] = "answer"
    request_id: str
    ok: bool
    data: JsonValue = None
    reason: str | None = None
    by: str | None = None
    expired: bool = False
    inline: bool = False

class RequestCancelled(_Event):
    kind: Literal["request_cancelled"] = "request_cancelled"
    request_id: str

class LimitReached(_Event):
    kind: Literal["limit"] = "limit"
    limit: Limit
    limit_at: str
    cap: str | None = None
    spent: str | None = None
    call_id: str | None = None

class HandleSpawned(_Event):
    kind: Literal["spawned"] = "spawned"
    agent: str
    parent: str

class HandleSettled(_Event):
    kind: Literal["settled"] = "settled"
    status: Status
    limit: Limit | None = None
    limit_at: str | None = None
    cap: str | None = None
    error: ErrorInfo | None = None
    reason: str | None = None
    cut: bool = False

class Parked(_Event):
    kind: Literal["parked"] = "parked"

class Resumed(_Event):
    kind: Literal["resumed"] = "resumed"
    stopped: bool = False

class Rewound(_Event):
    kind: Literal["rewound"] = "rewound"
    attempt: int

class HandleClosed(_Event):
    kind: Literal["closed"] = "closed"
    reason: str | None = None

class VerdictGiven(_Event):
    kind: Literal["verdict"] = "verdict"
    verdict: Verdict

class Recorded(_Event):
    kind: Literal["recorded"] = "recorded"
    fact: str
    data: dict[str, JsonValue] = {}

class ResultReady(_Event):
    kind: Literal["result"] = "result"
    result: TaskResult[Any]

Event = (
    TextDelta
    | ReasoningDelta
    | WakeBegan
    | TurnFinished
    | ModelFailed
    | RetryAwaited
    | ToolStarted
    | ToolFinished
    | ToolDenied
    | RequestOpened
    | AnswerGiven
    | RequestCancelled
    | LimitReached
    | HandleSpawned
    | HandleSettled
    | Parked
    | Resumed
    | Rewound
    | HandleClosed
    | VerdictGiven
    | Recorded
    | ResultReady
)
