"""What has happened in a run, in the past tense.

Rules of this module: facts hold plain data only (text, numbers, booleans, tuples of the same), because they are the
journal's public format. What can be derived is not stored. A new field has a default. From the first release on every
change comes with a higher schema, an upcast (`overt.journal.upcasts`) and golden journals.

Times are not in the facts: all facts of one input share the record's time (microseconds since 1970, UTC).
"""

from __future__ import annotations

import re
from typing import NamedTuple, get_args

from overt.core.policy_facts import (
    CallDenied,
    ChecksAsked,
    ChecksDone,
    Judged,
    LimitAsked,
    LimitDecided,
    ModelSkipped,
    OutputRefused,
    Overridden,
    TextCheckAsked,
    TextChecked,
    VerifyAsked,
    WakeAsked,
)
from overt.core.retry_facts import RetryAwaited, RetryDue
from overt.core.specs import UNFINISHED, CallSpec, Caps, ErrorSpec, Question, RulingSpec, Said, Tokens
from overt.core.upgrade_facts import (
    AgentRenamed,
    ArgumentsUpgraded,
    DriftAccepted,
    QuestionUpgraded,
    ToolRenamed,
)

__all__ = (
    "FACTS",
    "UNFINISHED",
    "AgentRenamed",
    "AnswerGiven",
    "ArgumentsUpgraded",
    "BudgetRaised",
    "CallAsked",
    "CallDenied",
    "CallEntered",
    "CallRefused",
    "CallReturned",
    "CallReused",
    "CallSpec",
    "Caps",
    "ChecksAsked",
    "ChecksDone",
    "ChildReturned",
    "Delegated",
    "Diverged",
    "DriftAccepted",
    "DriverLost",
    "EffectLost",
    "ErrorSpec",
    "Fact",
    "HandleClosed",
    "HandleSpawned",
    "HistorySeeded",
    "HostAsked",
    "HostPassed",
    "ItemPosted",
    "Judged",
    "LimitAsked",
    "LimitDecided",
    "ModelAwaited",
    "ModelCalled",
    "ModelFailed",
    "ModelReplied",
    "ModelSkipped",
    "Notified",
    "NotifyAsked",
    "OnceDone",
    "OnceEntered",
    "OutputRefused",
    "Overridden",
    "PlanChanged",
    "Question",
    "QuestionUpgraded",
    "Reattached",
    "ReopenQueued",
    "RequestCancelled",
    "ResumeBegun",
    "ResumeQueued",
    "Resumed",
    "RetryAwaited",
    "RetryDue",
    "RewindAsked",
    "Rewound",
    "RulingSpec",
    "RunOpened",
    "Said",
    "TextCheckAsked",
    "TextChecked",
    "Tokens",
    "ToolRenamed",
    "VerifyAsked",
    "WakeAsked",
    "WakeDropped",
    "WakeGivenUp",
    "WakeParked",
    "WakeQueued",
    "WakeReopened",
    "WakeSettled",
    "WakeStarted",
)


class RunOpened(NamedTuple):
    """The run exists, with its policy and the plan of the agents it may use."""

    run_id: str
    agent: str
    policy: str
    plan: str
    """Canonical JSON of the plan."""


class PlanChanged(NamedTuple):
    """The run was opened with agents that differ from the recorded plan."""

    plan: str


class HandleSpawned(NamedTuple):
    """A handle was added to the tree."""

    handle: str
    parent: str
    agent: str
    caps: Caps | None = None
    """Caps in place of the agent's own."""


class HistorySeeded(NamedTuple):
    """A handle's transcript was seeded by the host."""

    handle: str
    messages: str
    """JSON array of messages."""


class ItemPosted(NamedTuple):
    """An item lies in a handle's inbox."""

    handle: str
    sender: str
    channel: str
    text: str


class WakeQueued(NamedTuple):
    """A wake waits for a slot of its parent."""

    handle: str
    prompt: str
    closes: bool = False


class WakeStarted(NamedTuple):
    """A wake was admitted; the inbox was drained into it."""

    handle: str
    prompt: str
    closes: bool = False
    """Whether the whole tree closes when this wake is done or interrupted."""


class ModelAwaited(NamedTuple):
    """A model call waits until reservations in flight are settled."""

    handle: str


class ModelCalled(NamedTuple):
    """A model call was issued; the finished batch before it is in the transcript."""

    handle: str
    effect: int
    reserve: int = 0
    """Tokens reserved along the ancestors."""
    left: int | None = None
    """Tokens left when it was admitted, the clamp of its output limit; `None` without a cap."""
    money: str | None = None
    """USD reserved along the ancestors; `None` where nothing caps it."""


class ModelReplied(NamedTuple):
    """A model call returned."""

    handle: str
    effect: int
    text: str = ""
    calls: tuple[CallSpec, ...] = ()
    tokens: Tokens | None = None
    """`None`: the provider reported nothing."""
    cost: str | None = None
    finish: str = "stop"
    model: str = ""
    """What the provider calls the model, or the name it was asked under."""
    reasoning: str | None = None
    opaque: str | None = None
    ruled: bool = False
    """Whether the checks have been asked about its calls already."""
    output: str | None = None
    """Canonical JSON of the typed output, where the reply is one."""
    charge: str | None = None
    """USD the call takes from the money pool where its cost is not known; `None`: what it had reserved."""


class ModelFailed(NamedTuple):
    """A model call failed."""

    handle: str
    effect: int
    error: ErrorSpec
    tokens: Tokens | None = None
    """What the provider charged all the same; `None`: it reported nothing."""
    cost: str | None = None
    model: str = ""
    charge: str | None = None
    """As in `ModelReplied`."""


class EffectLost(NamedTuple):
    """An effect ended without an outcome: cancelled, timed out, or its process died."""

    handle: str
    effect: int
    why: str
    asked: bool = False
    """The tool was left at a question that is not asked; nothing of it is in doubt."""


class CallEntered(NamedTuple):
    """A tool is about to be entered."""

    handle: str
    call: str
    effect: int


class CallReturned(NamedTuple):
    """A call has its result. `effect` is 0 where no tool was entered for it."""

    handle: str
    call: str
    effect: int = 0
    output: str = ""
    is_error: bool = False
    metadata: str | None = None
    """JSON object."""
    error: ErrorSpec | None = None
    """Why the wake fails once the rest of its batch is through: a hook that saw the result has failed."""
    given: bool = False
    """The output is what an answer gave in the tool's place: it stands there, and not a second time here."""


class CallReused(NamedTuple):
    """A call was given the result it has had since an earlier attempt."""

    handle: str
    call: str


class CallRefused(NamedTuple):
    """A call does not fit a budget and stays open."""

    handle: str
    call: str
    limit: str
    at: str


class CallAsked(NamedTuple):
    """A call asks; its request is open. `effect` is 0 where the runtime asks by itself."""

    handle: str
    call: str
    request: str
    question: Question
    slot: int
    """Which question of this entry it is, from 0."""
    effect: int = 0
    diverged: bool = False
    once: str | None = None
    """For kind `in_doubt`: the label of the `once` block that is in doubt, if it is one."""
    guard: bool = False
    """Whether a guardrail asks, and not the tool."""


class Diverged(NamedTuple):
    """A replayed wake wants something an earlier attempt did not, while an earlier answer or child is unclaimed."""

    handle: str
    wanted: str
    unclaimed: str
    question: bool = True
    """Whether it is a question, which is asked; a delegation is not started."""


class HostAsked(NamedTuple):
    """A `wait_for` was asked for an inline answer, or the tool in doubt what became of its call."""

    handle: str
    request: str
    effect: int
    by: str
    """Id of the handle whose agent carries it, or `root` for the run's; `resolve` where it is the tool's own lookup."""


class HostPassed(NamedTuple):
    """A `wait_for` gave no answer, or a tool's own lookup: the next is asked, or the request is parked."""

    handle: str
    effect: int
    error: str | None = None


class NotifyAsked(NamedTuple):
    """`on_pending` is to be told of a request."""

    handle: str
    request: str
    effect: int


class Notified(NamedTuple):
    """`on_pending` was told."""

    handle: str
    effect: int
    error: str | None = None


class AnswerGiven(NamedTuple):
    """A request has its answer."""

    handle: str
    request: str
    ok: bool
    data: str | None = None
    """JSON text."""
    reason: str | None = None
    by: str | None = None
    policy: str | None = None
    """The policy for what this answer sets going; `None` for an inline answer, which repeats nothing."""
    effect: int = 0
    args: str | None = None
    """Canonical arguments the answer puts in place of those that were shown."""


class RequestCancelled(NamedTuple):
    """A request will never be answered."""

    handle: str
    request: str


class WakeParked(NamedTuple):
    """A wake suspended: every call of its batch is finished, asks, or waits for a suspended child."""

    handle: str


class ResumeBegun(NamedTuple):
    """`resume`, `recover` or `extend` began; what it repeats is counted from here."""

    verb: str
    dead: bool = False
    """Whether nothing ran between the last record and this one."""


class DriverLost(NamedTuple):
    """A driver took the run over while something ran: nothing did between the last record and this one."""


class Rewound(NamedTuple):
    """A wake went back to its checkpoint: a new attempt."""

    handle: str


class ResumeQueued(NamedTuple):
    """A wake that may go on waits for a slot."""

    handle: str


class Resumed(NamedTuple):
    """A suspended wake goes on."""

    handle: str


class RewindAsked(NamedTuple):
    """`recover` was told to replay this wake from its checkpoint."""

    handle: str


class WakeDropped(NamedTuple):
    """A wake that still waited for a slot will not start; one that had stopped before stays as it stopped."""

    handle: str
    status: str


class ReopenQueued(NamedTuple):
    """A stopped wake that goes on waits for a slot."""

    handle: str


class WakeReopened(NamedTuple):
    """A stopped wake goes on, by `recover` or `extend`."""

    handle: str


class Delegated(NamedTuple):
    """A `task` call has its child."""

    handle: str
    call: str
    child: str


class Reattached(NamedTuple):
    """A replayed `task` call found the child it had before."""

    handle: str
    call: str
    child: str


class ChildReturned(NamedTuple):
    """A `task` call has its child's result."""

    handle: str
    call: str
    child: str


class OnceEntered(NamedTuple):
    """A `once` block is about to run."""

    handle: str
    call: str
    label: str


class OnceDone(NamedTuple):
    """A `once` block has its outcome: a value, or the text of its error."""

    handle: str
    call: str
    label: str
    value: str | None = None
    error: str | None = None


class BudgetRaised(NamedTuple):
    """Caps of a handle were raised; only those set here."""

    handle: str
    caps: Caps


class WakeSettled(NamedTuple):
    """A wake ended."""

    handle: str
    status: str
    limit: str | None = None
    at: str | None = None
    cap: str | None = None
    error: ErrorSpec | None = None
    cut: bool = False
    """Whether the host was cancelled: `recover` goes on with it."""
    drop: bool = False
    """Whether the last reply is at fault, so that going on buys another one."""
    reason: str | None = None


class WakeGivenUp(NamedTuple):
    """A wake that was cut off will not go on: it was interrupted for good."""

    handle: str
    reason: str | None = None


class HandleClosed(NamedTuple):
    """A handle is closed; it can be read and nothing else."""

    handle: str
    reason: str | None = None


Fact = (
    RunOpened
    | PlanChanged
    | HandleSpawned
    | HistorySeeded
    | ItemPosted
    | WakeQueued
    | WakeStarted
    | ModelAwaited
    | ModelCalled
    | ModelReplied
    | ModelFailed
    | EffectLost
    | CallEntered
    | CallReturned
    | CallReused
    | CallRefused
    | CallAsked
    | Diverged
    | HostAsked
    | HostPassed
    | NotifyAsked
    | Notified
    | AnswerGiven
    | RequestCancelled
    | WakeParked
    | ResumeBegun
    | DriverLost
    | Rewound
    | ResumeQueued
    | Resumed
    | RewindAsked
    | WakeDropped
    | ReopenQueued
    | WakeReopened
    | Delegated
    | Reattached
    | ChildReturned
    | OnceEntered
    | OnceDone
    | BudgetRaised
    | WakeSettled
    | HandleClosed
    | WakeGivenUp
    | ChecksAsked
    | ChecksDone
    | CallDenied
    | TextCheckAsked
    | TextChecked
    | WakeAsked
    | LimitAsked
    | LimitDecided
    | VerifyAsked
    | Judged
    | OutputRefused
    | Overridden
    | ModelSkipped
    | AgentRenamed
    | ToolRenamed
    | ArgumentsUpgraded
    | QuestionUpgraded
    | DriftAccepted
    | RetryAwaited
    | RetryDue
)

FACTS: dict[str, type[Fact]] = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower(): cls for cls in get_args(Fact)
}
"""Every fact by its name in the journal: the class name in snake case."""
