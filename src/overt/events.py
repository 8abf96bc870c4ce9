"""What a run's readers are told: one typed event a fact of the journal, and what a model streams in between.

`Runtime.events` and `Agent.stream` give them for the whole tree, in the order of the journal. The union is closed, so
that `match` over it with `assert_never` type-checks; a fact that has no class of its own here is a `Recorded`, and
nothing is left out.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from overt._frozen import Frozen
from overt.message import AssistantMessage, ToolCall, Usage
from overt.request import Request
from overt.result import ErrorInfo, Limit, Status, TaskResult, Verdict

__all__ = (
    "AnswerGiven",
    "Event",
    "HandleClosed",
    "HandleSettled",
    "HandleSpawned",
    "LimitReached",
    "ModelFailed",
    "Parked",
    "ReasoningDelta",
    "Recorded",
    "RequestCancelled",
    "RequestOpened",
    "ResultReady",
    "Resumed",
    "RetryAwaited",
    "Rewound",
    "TextDelta",
    "ToolDenied",
    "ToolFinished",
    "ToolStarted",
    "TurnFinished",
    "VerdictGiven",
    "WakeBegan",
)


class _Event(Frozen):
    position: int
    """In the journal, from 1. A delta and the result are not in it and have that of the last fact before them."""
    handle: str
    """Id of the handle it is about; `root` for the run."""
    at: datetime
    """When it was recorded (aware); of a delta and the result, when it came."""


class TextDelta(_Event):
    """A piece of a reply's text as the model says it.

    It counts for nothing until the `TurnFinished` that has the whole reply: of a call that fails the pieces stay said.
    """

    kind: Literal["text"] = "text"
    text: str


class ReasoningDelta(_Event):
    """A piece of a reply's reasoning, where the provider shows it."""

    kind: Literal["reasoning"] = "reasoning"
    text: str


class WakeBegan(_Event):
    """A handle was admitted to work on a prompt."""

    kind: Literal["wake"] = "wake"
    prompt: str
    """As given; what lay in the inbox is beside it in the transcript."""
    number: int
    """Which wake of the handle it is, from 1."""


class TurnFinished(_Event):
    """A model has replied."""

    kind: Literal["turn"] = "turn"
    turn: int
    """Which turn of the attempt it is, from 1."""
    attempt: int
    """Which attempt of the wake it is in, from 1."""
    message: AssistantMessage
    """The reply as it stands in the transcript, its calls with our ids."""
    usage: Usage | None = None
    """Tokens of this call; `None`: the provider reported nothing."""
    cost: Decimal | None = None
    """USD of this call; `None`: it could not be priced."""
    finish_reason: Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"]
    model: str
    """What the provider calls the model that replied; may be empty."""


class ModelFailed(_Event):
    """A model call failed. Text and reasoning that came of it before belong to no reply."""

    kind: Literal["model_failed"] = "model_failed"
    error: ErrorInfo
    usage: Usage | None = None
    """Tokens the provider charged all the same; `None`: it reported nothing."""
    cost: Decimal | None = None
    """USD of them; `None`: they could not be priced."""
    model: str
    """The model that was asked; may be empty."""


class RetryAwaited(_Event):
    """The model call that has just failed will be made again after a wait."""

    kind: Literal["retry"] = "retry"
    seconds: float
    number: int
    """Which retry it is since the model last replied, from 1."""


class ToolStarted(_Event):
    """A tool is about to be entered, or a `task` call has its child. After a replay or an answer it may come again."""

    kind: Literal["tool_started"] = "tool_started"
    call: ToolCall
    """Our id, and the arguments that run: validated, and those put in their place."""
    child: str | None = None
    """Id of the handle that does a `task` call's work."""
    reused: bool = False
    """A replayed `task` call found the child it had before; nothing is begun anew."""


class ToolFinished(_Event):
    """A call has its result, also one for which no tool was entered: an unknown tool, invalid arguments."""

    kind: Literal["tool_finished"] = "tool_finished"
    call_id: str
    name: str
    output: str
    """The whole of it; the model may be shown a part."""
    is_error: bool
    metadata: dict[str, JsonValue] = {}
    child: str | None = None
    """Id of the handle that did a `task` call's work."""
    reused: bool = False
    """It is the result of an earlier attempt; nothing ran again."""


class ToolDenied(_Event):
    """A call was denied by a guardrail, or declined by whoever was asked. Its tool is not entered."""

    kind: Literal["tool_denied"] = "tool_denied"
    call: ToolCall
    reason: str
    declined: bool
    """Whether somebody was asked and said no; else a rule did."""


class RequestOpened(_Event):
    """Something waits for an answer."""

    kind: Literal["request"] = "request"
    request: Request
    """What answering it repeats is only said while it is open."""
    call_id: str | None = None
    """The call that asks; `None` where the wake itself does."""


class AnswerGiven(_Event):
    """A request has its answer."""

    kind: Literal["answer"] = "answer"
    request_id: str
    ok: bool
    data: JsonValue = None
    reason: str | None = None
    by: str | None = None
    expired: bool = False
    """Nobody answered in time; the runtime did."""
    inline: bool = False
    """It came before the run had parked, so that nothing is repeated."""


class RequestCancelled(_Event):
    """A request will not be answered: what asked was stopped."""

    kind: Literal["request_cancelled"] = "request_cancelled"
    request_id: str


class LimitReached(_Event):
    """A cap is in the way: `on_limit` is asked about it, or a call stays open. A stop is a `HandleSettled`."""

    kind: Literal["limit"] = "limit"
    limit: Limit
    limit_at: str
    """Id of the handle whose cap it is."""
    cap: str | None = None
    """As text, exact: a decimal."""
    spent: str | None = None
    call_id: str | None = None
    """The call that stays open."""


class HandleSpawned(_Event):
    """A handle was added to the tree."""

    kind: Literal["spawned"] = "spawned"
    agent: str
    parent: str


class HandleSettled(_Event):
    """A handle's wake ended, or stopped at a limit."""

    kind: Literal["settled"] = "settled"
    status: Status
    limit: Limit | None = None
    """Set exactly when `status` is `incomplete`."""
    limit_at: str | None = None
    cap: str | None = None
    """The cap that was met, for people."""
    error: ErrorInfo | None = None
    reason: str | None = None
    """Why it was interrupted or closed, if that was said."""
    cut: bool = False
    """The host was cancelled, or its process told to stop: `recover` goes on with it."""


class Parked(_Event):
    """A wake suspended: every call of its batch is finished, asks, or waits for a suspended child."""

    kind: Literal["parked"] = "parked"


class Resumed(_Event):
    """A suspended or stopped wake goes on."""

    kind: Literal["resumed"] = "resumed"
    stopped: bool = False
    """Whether it had settled, and `recover` or `extend` goes on with it; else it had parked."""


class Rewound(_Event):
    """A wake went back to its checkpoint; what comes is a new attempt."""

    kind: Literal["rewound"] = "rewound"
    attempt: int
    """Which one, from 2."""


class HandleClosed(_Event):
    """A handle is closed; it can be read and nothing else."""

    kind: Literal["closed"] = "closed"
    reason: str | None = None


class VerdictGiven(_Event):
    """The completion gate has judged."""

    kind: Literal["verdict"] = "verdict"
    verdict: Verdict


class Recorded(_Event):
    """Any other fact, as the journal keeps it."""

    kind: Literal["recorded"] = "recorded"
    fact: str
    """The fact's name in the journal."""
    data: dict[str, JsonValue] = {}
    """Its other fields; those that have their default are left out."""


class ResultReady(_Event):
    """The result of what was streamed: the last event of a stream, and of nothing else."""

    kind: Literal["result"] = "result"
    result: TaskResult[Any]


Event = Annotated[
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
    | ResultReady,
    Field(discriminator="kind"),
]
"""Any of them, told apart by `kind`. Read JSON with `TypeAdapter(Event)`."""
