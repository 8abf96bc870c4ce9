from collections.abc import Sequence
from datetime import datetime

from overt import Answer, Drift, TaskResult, Usage

class OvertError(Exception): ...
class UsageError(OvertError): ...
class DefinitionError(UsageError): ...
class NoModel(UsageError): ...
class MissingDeps(UsageError): ...
class UnknownHandle(UsageError): ...
class HandleClosed(UsageError): ...

class SpawnRefused(UsageError):
    limit: str
    def __init__(self, message: str, *, limit: str) -> None: ...

class AwaitingAnswer(UsageError):
    request_ids: tuple[str, ...]
    def __init__(self, message: str, *, request_ids: Sequence[str] = ()) -> None: ...

class UnknownRequest(UsageError):
    open: tuple[str, ...]
    def __init__(self, message: str, *, open: Sequence[str] = ()) -> None: ...

class AlreadyAnswered(UsageError):
    answer: Answer[object]
    same: bool
    def __init__(self, message: str, *, answer: Answer[object], same: bool) -> None: ...

class RequestExpired(UsageError):
    expires_at: datetime
    def __init__(self, message: str, *, expires_at: datetime) -> None: ...

class InvalidAnswer(UsageError):
    places: tuple[str, ...]
    def __init__(self, message: str, *, places: Sequence[str] = ()) -> None: ...

class SpecDrift(UsageError):
    drifts: tuple[Drift, ...]
    def __init__(self, message: str, *, drifts: Sequence[Drift] = ()) -> None: ...

class RunStopped(OvertError):
    result: TaskResult[object]
    def __init__(self, result: TaskResult[object]) -> None: ...

class StoreError(OvertError): ...
class RunNotFound(StoreError): ...
class RunExists(StoreError): ...

class RunConflict(StoreError):
    owner: str | None
    until: datetime | None
    def __init__(self, message: str, *, owner: str | None = None, until: datetime | None = None) -> None: ...

class JournalCorrupt(StoreError): ...
class UnsupportedSchema(StoreError): ...

class ModelError(OvertError):
    type: str
    status_code: int | None
    retryable: bool
    detail: str | None
    retry_after: float | None
    request_id: str | None
    usage: Usage | None
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
    ) -> None: ...

class ToolError(OvertError): ...
