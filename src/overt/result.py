"""The one result type, and the closed vocabularies it speaks."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Generic, Literal, cast

from typing_extensions import TypeVar

from overt._frozen import Frozen
from overt.errors import RunStopped
from overt.message import Usage
from overt.request import ReplayedCall, Request

__all__ = ("ErrorInfo", "Limit", "Replay", "State", "Status", "TaskResult", "Unpriced", "Verdict")

OutputT_co = TypeVar("OutputT_co", covariant=True, default=str)


class Status(StrEnum):
    """How a wake stands. Closed: `match` over it with `assert_never` type-checks."""

    DONE = "done"
    """It has its final text."""
    PENDING = "pending"
    """It waits for an answer, in itself or below it: `resume` goes on with it."""
    INCOMPLETE = "incomplete"
    """It met a limit; `limit` says which, `limit_at` whose. `extend` goes on with it."""
    INTERRUPTED = "interrupted"
    """It was interrupted, or its host was cancelled or died. `recover` goes on with it unless a host interrupted it."""
    CLOSED = "closed"
    """It was closed while at work."""
    TIMEOUT = "timeout"
    """It runs on: only `wait(timeout=…)` says so."""
    ERROR = "error"
    """It failed; `error` says type, source and message. `recover` makes the failed call again."""


class Limit(StrEnum):
    """Which limit stopped a wake. Closed."""

    MAX_TURNS = "maxTurns"
    """Turns in one attempt of the wake."""
    COMPLETION = "completion"
    """Rounds of the completion gate, which has not been satisfied."""
    MAX_TOKENS = "maxTokens"
    """Tokens of a handle and everything below it."""
    MAX_TOOL_CALLS = "maxToolCalls"
    """Tool calls of a handle and everything below it."""
    MAX_WALL = "maxWall"
    """Seconds in which a handle or something below it runs."""
    MAX_COST = "maxCost"
    """USD spent by a handle and everything below it."""
    MAX_MODEL_CALLS = "maxModelCalls"
    """Attempts at the provider by a handle and everything below it."""


class State(StrEnum):
    """Where a handle is in its life."""

    IDLE = "idle"
    """No wake is under way; one may begin."""
    RUNNING = "running"
    """A wake is at work, and holds a slot."""
    SUSPENDED = "suspended"
    """A wake waits for an answer, to itself or below it; it holds no task, thread or slot."""
    CLOSED = "closed"
    """It can be read, and nothing else."""


class ErrorInfo(Frozen):
    """Why a wake failed, as a value."""

    type: str
    """Class name of the exception, or one of ours: `ReplayDiverged`, `EmptyReply`, `Refusal`, `ContentFilter`, …"""
    message: str
    """Short, without credentials."""
    source: Literal["model", "tool", "wait_for", "guardrail", "completion", "hook", "store", "runtime"]
    retryable: bool = False
    status_code: int | None = None
    detail: str | None = None
    """The provider's body, redacted and cut; of a 401 or 403 there is none."""
    retry_after: float | None = None
    """Seconds the provider asked to wait before the next attempt."""
    request_id: str | None = None
    """The provider's own id of the request."""


class Unpriced(Frozen):
    """Model calls that could not be priced."""

    model: str
    """What the provider or the host calls the model; empty where a call was cut off."""
    calls: int
    reason: Literal["no_price", "no_usage"]
    """`no_price`: the run has no prices, or none of this model. `no_usage`: the call ended without a reply, or the
    provider did not say what it used."""


class Replay(Frozen):
    """What a resume repeated."""

    attempt: int
    """Which attempt of the wake of the result's own handle this was, from 1."""
    turns_bought_again: int
    calls_rerun: tuple[ReplayedCall, ...] = ()
    """Finished `rerun` calls that were entered again."""
    calls_reused: tuple[ReplayedCall, ...] = ()
    """Finished `reuse` calls that were given their recorded result."""
    unused_answers: tuple[str, ...] = ()
    """Ids of requests that were answered and never asked again."""
    unused_children: tuple[str, ...] = ()
    """Ids of handles whose work no replayed `task` call claimed."""


class Verdict(Frozen):
    """One judgement of the completion gate."""

    ok: bool
    reason: str
    number: int
    """The gate's round, from 1."""


class TaskResult(Frozen, Generic[OutputT_co]):
    """What came of a wake: returned by `run`, `resume`, `recover`, `extend`, `wait` and every other door.

    ```python
    from typing import assert_never

    from overt import Status, TaskResult

    def tell(result: TaskResult[str]) -> str:
        match result.status:
            case Status.DONE:
                return result.text
            case Status.PENDING:
                return f"asks: {result.pendings[0].prompt}"
            case Status.INCOMPLETE:
                return f"stopped by {result.limit} of {result.limit_at}"
            case Status.ERROR | Status.INTERRUPTED | Status.CLOSED | Status.TIMEOUT:
                return f"{result.status} after {result.total_tokens} tokens: {result.text}"
            case _:
                assert_never(result.status)
    ```
    """

    text: str
    """The final text when done, else one sentence for people that contains the reason."""
    partial: str
    """The model's last text of this wake; never of an earlier one."""
    status: Status
    output: OutputT_co | None = None
    limit: Limit | None = None
    """Set exactly when `status` is `incomplete`."""
    limit_at: str | None = None
    """Id of the handle whose cap was binding; of several, the one nearest the root."""
    pending: Request | None = None
    """The first of `pendings`."""
    pendings: tuple[Request, ...] = ()
    """Every open request in this handle or below it, in call order."""
    turns: int
    """This handle's turns over its whole life. Does not roll up; `usage.turns` is the tree's."""
    total_tokens: int
    """Tokens of this handle and everything below it, over their whole lives, on every status."""
    own_tokens: int
    """Tokens of this handle alone."""
    usage: Usage
    """The subtree's usage."""
    own_usage: Usage
    cost: Decimal | None = None
    """USD of the subtree; `None` unless every model call could be priced: then `unpriced` says which could not."""
    unpriced: tuple[Unpriced, ...] = ()
    """Model calls of the subtree that could not be priced, by model and reason."""
    priced: Decimal = Decimal(0)
    """USD of those that could: `cost` where all of them could be, else the least it has cost."""
    replay: Replay | None = None
    """What the last resume repeated; `None` where nothing was resumed."""
    verdicts: tuple[Verdict, ...] = ()
    error: ErrorInfo | None = None
    handle: str
    run_id: str

    @property
    def is_error(self) -> bool:
        """True for every status but `done` and `pending`."""
        return self.status not in (Status.DONE, Status.PENDING)

    def raise_for_status(self) -> TaskResult[OutputT_co]:
        """Return this result when it is done.

        Raises:
            RunStopped: On every other status, `pending` included; carries this result.
        """
        if self.status is not Status.DONE:
            raise RunStopped(cast("TaskResult[object]", self))
        return self

    def unwrap(self) -> OutputT_co:
        """Return the output when done.

        Raises:
            RunStopped: On every other status; carries this result.
        """
        return cast("OutputT_co", self.raise_for_status().output)
