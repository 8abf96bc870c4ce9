"""Every exception overt raises, as a tree.

```text
OvertError
├── UsageError                what the caller did cannot be done; nothing has changed but for RequestExpired
│   ├── DefinitionError       an agent, tool or option is declared wrongly
│   ├── NoModel  MissingDeps
│   ├── UnknownHandle  HandleClosed  SpawnRefused  AwaitingAnswer
│   ├── UnknownRequest  AlreadyAnswered  RequestExpired  InvalidAnswer
│   └── SpecDrift             the code no longer fits the stored run
├── RunStopped                raised by `TaskResult.raise_for_status`; carries the result
├── StoreError                a journal could not be read or written
│   ├── RunNotFound  RunExists  RunConflict
│   └── JournalCorrupt  UnsupportedSchema
├── ModelError                a provider failed; becomes a result, never escapes a run
└── ToolError                 raise it in a tool to fail with exactly this text
```

What happens *inside* a run is a [`TaskResult`][overt.TaskResult], not an exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overt.message import Usage
    from overt.request import Answer
    from overt.result import TaskResult
    from overt.upgrade import Drift

__all__ = (
    "AlreadyAnswered",
    "AwaitingAnswer",
    "DefinitionError",
    "HandleClosed",
    "InvalidAnswer",
    "JournalCorrupt",
    "MissingDeps",
    "ModelError",
    "NoModel",
    "OvertError",
    "RequestExpired",
    "RunConflict",
    "RunExists",
    "RunNotFound",
    "RunStopped",
    "SpawnRefused",
    "SpecDrift",
    "StoreError",
    "ToolError",
    "UnknownHandle",
    "UnknownRequest",
    "UnsupportedSchema",
    "UsageError",
)


class OvertError(Exception):
    """Base of every exception of this package."""


class UsageError(OvertError):
    """The caller asked for something that cannot be done. Nothing was changed and nothing was stored.

    One exception: where the answer comes too late, the expiry itself is stored, and `RequestExpired` says so.
    """


class DefinitionError(UsageError):
    """An agent, a tool or an option is declared wrongly; the message names it and the field."""


class NoModel(UsageError):
    """Neither the agent nor the run says which model to use."""


class MissingDeps(UsageError):
    """The agent is declared with `deps_type`, and the run was given no `deps`."""


class UnknownHandle(UsageError):
    """No handle of this run has the id that was given."""


class HandleClosed(UsageError):
    """The handle is closed: it can be read, but not woken, resumed or extended."""


class SpawnRefused(UsageError):
    """A child may not be spawned here.

    Attributes:
        limit: Which cap refuses it: `"maxDepth"`, `"maxChildren"` or `"team"`.
    """

    def __init__(self, message: str, *, limit: str) -> None:
        super().__init__(message)
        self.limit: str = limit


class AwaitingAnswer(UsageError):
    """The handle is suspended: it goes on by an answer, an expiry, `interrupt` or `close`, not by a prompt.

    Attributes:
        request_ids: Ids of the open requests in or below the handle.
    """

    def __init__(self, message: str, *, request_ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.request_ids: tuple[str, ...] = tuple(request_ids)


class UnknownRequest(UsageError):
    """No request of this run has the id in the answer.

    Attributes:
        open: Ids of the requests that are open now.
    """

    def __init__(self, message: str, *, open: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.open: tuple[str, ...] = tuple(open)


class AlreadyAnswered(UsageError):
    """The request has its answer; a second one changes nothing.

    Attributes:
        answer: The answer that was recorded.
        same: Whether the answer now given says the same as the recorded one.
    """

    def __init__(self, message: str, *, answer: Answer[object], same: bool) -> None:
        super().__init__(message)
        self.answer: Answer[object] = answer
        self.same: bool = same


class RequestExpired(UsageError):
    """The answer came after `expires_at`; the runtime has answered `ok=False, reason="expired"` itself, durably.

    Attributes:
        expires_at: When the request expired (aware).
    """

    def __init__(self, message: str, *, expires_at: datetime) -> None:
        super().__init__(message)
        self.expires_at: datetime = expires_at


class InvalidAnswer(UsageError):
    """The answer's data does not fit the request's `answer_schema`, or `verify_answer` refused it or raised.

    Attributes:
        places: One `"$.path: what is wrong"` for every place found.
    """

    def __init__(self, message: str, *, places: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.places: tuple[str, ...] = tuple(places)


class SpecDrift(UsageError):
    """The agent given to `Runtime.open` cannot carry on the stored run; says what changed, and how to go on.

    Attributes:
        drifts: Every place where the two do not fit.
    """

    def __init__(self, message: str, *, drifts: Sequence[Drift] = ()) -> None:
        super().__init__(message)
        self.drifts: tuple[Drift, ...] = tuple(drifts)


class RunStopped(OvertError):
    """A run ended other than `done`; raised by `raise_for_status` and `unwrap`.

    Attributes:
        result: The result, whole: status, limit, usage, pending requests.
    """

    def __init__(self, result: TaskResult[object]) -> None:
        super().__init__(f"[{result.status.value}] {result.text}")
        self.result: TaskResult[object] = result


class StoreError(OvertError):
    """The store could not read or write. What was appended before stays valid."""


class RunNotFound(StoreError):
    """The store holds no run of this id, or its file does not exist; of an SQLite store the message names the file."""


class RunExists(StoreError):
    """The store already holds a run of this id: `Runtime.open` goes on with it, another `run_id` starts anew."""


class RunConflict(StoreError):
    """Another driver has this run, or moved it on since it was read.

    Attributes:
        owner: Who holds the claim, or `None` if only the position differs.
        until: When that claim runs out (aware), or `None`.
    """

    def __init__(self, message: str, *, owner: str | None = None, until: datetime | None = None) -> None:
        super().__init__(message)
        self.owner: str | None = owner
        self.until: datetime | None = until


class JournalCorrupt(StoreError):
    """A journal is damaged; the message names run and position. Nothing is guessed."""


class UnsupportedSchema(StoreError):
    """A journal was written by a newer release than this one."""


class ModelError(OvertError):
    """A provider failed. Raised by models; a run turns it into `ErrorInfo`.

    Attributes:
        status_code: HTTP status, or `None` where there was no answer.
        type: Short name for `ErrorInfo.type`; the class name by default.
        retryable: Whether the same request may succeed later.
        detail: The provider's body, already without credentials, or `None`.
        retry_after: Seconds the provider asks to wait before the next attempt, or `None` where it does not say.
        request_id: The provider's own id of the request, for its support, or `None`.
        usage: What the provider reports to have charged for the failed attempt, or `None` where that is not known.

    Where the status is 401 or 403 the run keeps only type, status and request id: message and detail may hold
    credentials.
    """

    def __init__(
        self,
        message: str,
        *,
        type: str = "ModelError",
        status_code: int | None = None,
        retryable: bool = False,
        detail: str | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.type: str = type
        self.status_code: int | None = status_code
        self.retryable: bool = retryable
        self.detail: str | None = detail
        self.retry_after: float | None = retry_after
        self.request_id: str | None = request_id
        self.usage: Usage | None = usage


class ToolError(OvertError):
    """Raise this in a tool to hand the model exactly this text as an error result."""
