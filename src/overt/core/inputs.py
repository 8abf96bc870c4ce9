"""What the core is told, one at a time: verbs of the host, outcomes of effects, and the clock."""

from __future__ import annotations

from typing import NamedTuple

from overt.core.specs import CallSpec, Caps, ErrorSpec, Question, RulingSpec, Tokens
from overt.core.upgrade_facts import AgentRenamed, ArgumentsUpgraded, DriftAccepted, ToolRenamed

__all__ = (
    "AnswerSpec",
    "Cancel",
    "ChecksRuled",
    "Close",
    "Deliver",
    "Drift",
    "Expire",
    "Extend",
    "HostDone",
    "Input",
    "Interrupt",
    "LimitRuled",
    "ModelDone",
    "ModelLost",
    "ModelUnsent",
    "NotifyDone",
    "OnceBegin",
    "OnceEnd",
    "Open",
    "Override",
    "Post",
    "QuestionFits",
    "Recover",
    "Slept",
    "Spawn",
    "TakeOver",
    "TextRuled",
    "Tick",
    "ToolAsked",
    "ToolDone",
    "ToolLost",
    "VerifyDone",
    "Wake",
)


class Open(NamedTuple):
    """Begin the run."""

    run_id: str
    agent: str
    policy: str
    plan: str


class TakeOver(NamedTuple):
    """A driver has taken the run; whoever had it before does nothing any more."""


class Drift(NamedTuple):
    """The run was opened with this plan, and with what the host says of the code it was recorded with."""

    plan: str
    renamed: tuple[AgentRenamed | ToolRenamed, ...] = ()
    upgraded: tuple[ArgumentsUpgraded, ...] = ()
    accepted: tuple[DriftAccepted, ...] = ()


class Spawn(NamedTuple):
    """Add a child."""

    parent: str
    agent: str
    caps: Caps | None = None
    history: str | None = None
    anywhere: bool = False
    """The host may spawn any agent of the plan; a parent only its team."""


class Post(NamedTuple):
    """Put an item into an inbox."""

    handle: str
    sender: str
    channel: str
    text: str


class Wake(NamedTuple):
    """Give a handle work."""

    handle: str
    prompt: str
    closes: bool = False


class Interrupt(NamedTuple):
    """End the wakes of a handle and of everything below it."""

    handle: str
    reason: str | None = None
    asked: bool = False
    """Whether another process has asked for it, by a mark in the store."""


class Close(NamedTuple):
    """Close a handle and everything below it, leaves first."""

    handle: str
    reason: str | None = None


class Cancel(NamedTuple):
    """The host's task was cancelled, or the process is going down: close the journal off."""

    why: str


class AnswerSpec(NamedTuple):
    """One answer of a host, its data checked against the request's schema."""

    request: str
    ok: bool
    data: str | None = None
    reason: str | None = None
    by: str | None = None
    args: str | None = None
    """Canonical arguments in place of those a guardrail asked about."""


class Deliver(NamedTuple):
    """Answers to open requests; all apply or none."""

    answers: tuple[AnswerSpec, ...]
    policy: str | None = None
    """`None`: the run's."""


class Expire(NamedTuple):
    """Answer what has expired by now. With `drive` false, what may go on stays where it is until `Recover`."""

    drive: bool = True


class Extend(NamedTuple):
    """Raise caps and go on with the wake they stopped."""

    caps: Caps
    handle: str | None = None


class Recover(NamedTuple):
    """Go on with what was cut off, and with what failed when `failed` says so."""

    policy: str | None = None
    failed: bool = True
    verb: str = "recover"


class ModelDone(NamedTuple):
    """A model replied."""

    effect: int
    text: str = ""
    calls: tuple[CallSpec, ...] = ()
    tokens: Tokens | None = None
    cost: str | None = None
    finish: str = "stop"
    model: str = ""
    reasoning: str | None = None
    opaque: str | None = None
    ruled: bool = False
    """Whether the rulings are in the calls already."""
    output: str | None = None
    """Canonical JSON of the typed output, where the reply is one."""
    refused: str | None = None
    """Why a reply without calls is no typed output."""
    error: ErrorSpec | None = None
    """What a hook raised over the reply."""
    charge: str | None = None
    """USD to take for it where its cost is not known; `None`: what it had reserved."""


class ModelUnsent(NamedTuple):
    """A model call came to nothing before anything was sent."""

    effect: int
    error: ErrorSpec


class Override(NamedTuple):
    """A hook changes what a model call is sent."""

    effect: int
    messages: str | None = None
    tools: tuple[str, ...] | None = None


class ModelLost(NamedTuple):
    """A model call failed."""

    effect: int
    error: ErrorSpec
    wait: int | None = None
    """Microseconds until it may be made again; `None`: it is not."""
    tokens: Tokens | None = None
    cost: str | None = None
    model: str = ""
    charge: str | None = None
    """As in `ModelDone`."""


class Slept(NamedTuple):
    """The wait before another attempt is over."""

    effect: int


class ToolDone(NamedTuple):
    """A tool returned or raised."""

    effect: int
    output: str
    is_error: bool = False
    metadata: str | None = None
    error: ErrorSpec | None = None
    """What a hook raised over the result."""


class ToolAsked(NamedTuple):
    """A tool asks a question that has no answer yet."""

    effect: int
    question: Question
    slot: int
    error: ErrorSpec | None = None
    """Why nobody can tell whether there is one: the host's upgrade of recorded questions raised."""


class QuestionFits(NamedTuple):
    """A tool asks what the host says an answered question is by now."""

    effect: int
    request: str
    question: Question


class ToolLost(NamedTuple):
    """A tool was entered and left without an outcome."""

    effect: int
    why: str
    timed_out: bool = False
    text: str = ""
    """What a tool that may be repeated gives its model."""


class OnceBegin(NamedTuple):
    """A tool is about to run a `once` block."""

    effect: int
    label: str


class OnceEnd(NamedTuple):
    """A `once` block has ended."""

    effect: int
    label: str
    value: str | None = None
    error: str | None = None


class HostDone(NamedTuple):
    """Whoever was to answer at once did, passed (`answer` is `None`) or raised (`error` says what)."""

    effect: int
    answer: AnswerSpec | None = None
    error: str | None = None


class NotifyDone(NamedTuple):
    """`on_pending` returned or raised."""

    effect: int
    error: str | None = None


class ChecksRuled(NamedTuple):
    """Hook and guardrails have been asked about calls."""

    effect: int
    rulings: tuple[RulingSpec, ...] = ()
    error: ErrorSpec | None = None
    """What a hook raised."""


class TextRuled(NamedTuple):
    """Guardrails have been asked about a prompt or a final answer."""

    effect: int
    ruling: RulingSpec


class LimitRuled(NamedTuple):
    """`on_limit` has decided, or raised."""

    effect: int
    decision: str = "stop"
    caps: Caps | None = None
    prompt: str | None = None
    error: ErrorSpec | None = None


class VerifyDone(NamedTuple):
    """The completion gate has judged, or its verifier raised."""

    effect: int
    ok: bool = False
    reason: str = ""
    error: ErrorSpec | None = None


class Tick(NamedTuple):
    """Time has passed: wall budgets are looked at, and what has expired is answered."""


Input = (
    Open
    | TakeOver
    | Drift
    | Spawn
    | Post
    | Wake
    | Interrupt
    | Close
    | Cancel
    | Deliver
    | Expire
    | Extend
    | Recover
    | ModelDone
    | ModelLost
    | ToolDone
    | ToolAsked
    | QuestionFits
    | ToolLost
    | OnceBegin
    | OnceEnd
    | HostDone
    | NotifyDone
    | Tick
    | ModelUnsent
    | Override
    | ChecksRuled
    | TextRuled
    | LimitRuled
    | VerifyDone
    | Slept
)
