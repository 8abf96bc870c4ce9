from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    Never,
    ParamSpec,
    Protocol,
    Self,
    overload,
    runtime_checkable,
)

from pydantic import AwareDatetime, BaseModel, JsonValue
from typing_extensions import TypedDict, TypeForm, TypeVar, Unpack

import overt
from overt.errors import DefinitionError as DefinitionError
from overt.errors import MissingDeps as MissingDeps
from overt.errors import NoModel as NoModel
from overt.errors import OvertError as OvertError
from overt.errors import RunStopped as RunStopped
from overt.errors import StoreError
from overt.errors import ToolError as ToolError
from overt.errors import UsageError as UsageError
from overt.events import Event as Event
from overt.stores import (
    Change,
    Claim,
    Damage,
    Interruption,
    OpenRequest,
    Owner,
    PendingRequest,
    Record,
    RunInfo,
)

DepsT = TypeVar("DepsT", default=None)
CtxT = TypeVar("CtxT", covariant=True, default=object)
ToolDepsT = TypeVar("ToolDepsT", contravariant=True)
AnyDepsT = TypeVar("AnyDepsT", contravariant=True, default=None)
OutputT = TypeVar("OutputT", default=str)
OutputT_co = TypeVar("OutputT_co", covariant=True, default=str)
OpenedT = TypeVar("OpenedT", default=str)
T = TypeVar("T")
DataT_co = TypeVar("DataT_co", covariant=True, default=JsonValue)
D = TypeVar("D")
P = ParamSpec("P")
R = TypeVar("R")
ReturnT = TypeVar("ReturnT", covariant=True)
DoubtDepsT = TypeVar("DoubtDepsT", covariant=True, default=object)
NeededT = TypeVar("NeededT", default=object)

# ---------------------------------------------------------------- results

class Status(StrEnum):
    DONE = "done"
    PENDING = "pending"
    INCOMPLETE = "incomplete"
    INTERRUPTED = "interrupted"
    CLOSED = "closed"
    TIMEOUT = "timeout"
    ERROR = "error"

class Limit(StrEnum):
    MAX_TURNS = "maxTurns"
    COMPLETION = "completion"
    MAX_TOKENS = "maxTokens"
    MAX_TOOL_CALLS = "maxToolCalls"
    MAX_WALL = "maxWall"
    MAX_COST = "maxCost"
    MAX_MODEL_CALLS = "maxModelCalls"

class State(StrEnum):
    IDLE = "idle"
    RUNNING = "running"
    SUSPENDED = "suspended"
    CLOSED = "closed"

class Usage(BaseModel):
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    turns: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    unreported_calls: int = 0
    def __add__(self, other: Usage) -> Usage: ...

class ErrorInfo(BaseModel):
    type: str
    message: str
    source: Literal["model", "tool", "wait_for", "guardrail", "completion", "hook", "store", "runtime"]
    retryable: bool = False
    status_code: int | None = None
    detail: str | None = None
    retry_after: float | None = None
    request_id: str | None = None

class ReplayedCall(BaseModel):
    handle: str
    tool: str
    arguments: dict[str, JsonValue]
    idempotency_key: str

class Replay(BaseModel):
    attempt: int
    turns_bought_again: int
    calls_rerun: tuple[ReplayedCall, ...] = ()
    calls_reused: tuple[ReplayedCall, ...] = ()
    unused_answers: tuple[str, ...] = ()
    unused_children: tuple[str, ...] = ()

class Unpriced(BaseModel):
    model: str
    calls: int
    reason: Literal["no_price", "no_usage"]

class Verdict(BaseModel):
    ok: bool
    reason: str
    number: int

class TaskResult(BaseModel, Generic[OutputT_co]):
    text: str
    partial: str
    status: Status
    output: OutputT_co | None = None
    limit: Limit | None = None
    limit_at: str | None = None
    pending: Request | None = None
    pendings: tuple[Request, ...] = ()
    turns: int
    total_tokens: int
    own_tokens: int
    usage: Usage
    own_usage: Usage
    cost: Decimal | None = None
    unpriced: tuple[Unpriced, ...] = ()
    priced: Decimal = Decimal(0)
    replay: Replay | None = None
    verdicts: tuple[Verdict, ...] = ()
    error: ErrorInfo | None = None
    handle: str
    run_id: str

    @property
    def is_error(self) -> bool: ...
    def raise_for_status(self) -> TaskResult[OutputT_co]: ...
    def unwrap(self) -> OutputT_co: ...

# ---------------------------------------------------------------- suspension

class Request(BaseModel):
    id: str
    kind: str
    prompt: str
    url: str | None = None
    data: dict[str, JsonValue] = {}
    answer_schema: dict[str, JsonValue] | None = None
    expires_at: AwareDatetime | None = None
    path: tuple[str, ...] = ()
    diverged: bool = False
    replays: tuple[ReplayedCall, ...] = ()
    turns_again: int = 0

class Answer(BaseModel, Generic[DataT_co]):
    id: str
    ok: bool
    data: DataT_co | None = None
    reason: str | None = None
    by: str | None = None
    at: datetime | None = None

WaitFor = Callable[[Request], Awaitable[Answer[Any] | None]]

def pending(
    *,
    kind: str,
    prompt: str,
    url: str | None = None,
    data: Mapping[str, object] | None = None,
    answer_type: TypeForm[object] | None = None,
    expires_at: datetime | None = None,
) -> ToolResult: ...

# ---------------------------------------------------------------- tools

class ToolCall(BaseModel):
    id: str
    name: str
    arguments: dict[str, JsonValue] = {}

@dataclass(frozen=True, init=False)
class ToolResult:
    output: str
    is_error: bool
    metadata: Mapping[str, JsonValue]
    pending: Request | None
    def __init__(
        self, output: str = "", *, is_error: bool = False, metadata: Mapping[str, object] | None = None
    ) -> None: ...

@dataclass(frozen=True, kw_only=True)
class ToolContext(Generic[CtxT]):
    deps: CtxT
    run_id: str
    handle: str
    agent: str
    call: ToolCall
    idempotency_key: str
    attempt: int = 1
    answers: tuple[Answer[Any], ...] = ()
    _channel: object

    @property
    def answer(self) -> Answer[Any] | None: ...
    @overload
    async def ask(
        self,
        prompt: str,
        *,
        answer_type: TypeForm[T],
        kind: str = "input",
        url: str | None = None,
        data: Mapping[str, object] | None = None,
        expires_at: datetime | None = None,
    ) -> Answer[T]: ...
    @overload
    async def ask(
        self,
        prompt: str,
        *,
        kind: str = "input",
        url: str | None = None,
        data: Mapping[str, object] | None = None,
        expires_at: datetime | None = None,
    ) -> Answer[JsonValue]: ...
    async def once(self, label: str, fn: Callable[[], Awaitable[T]]) -> T: ...

@dataclass(frozen=True, kw_only=True)
class Doubt(Generic[DoubtDepsT]):
    deps: DoubtDepsT
    run_id: str
    handle: str
    tool: str
    arguments: Mapping[str, JsonValue]
    idempotency_key: str
    once: str | None = None
    attempt: int = 1

@dataclass(frozen=True)
class Succeeded:
    output: object = None

@dataclass(frozen=True)
class Failed:
    output: object

@dataclass(frozen=True)
class Retry: ...

Resolution = Succeeded | Failed | Retry
Resolver = Callable[[Doubt[D]], Resolution | Awaitable[Resolution | None] | None]

class AnyTool(Protocol[AnyDepsT]):
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> dict[str, JsonValue]: ...
    def __takes_deps__(self, deps: AnyDepsT, /) -> None: ...

class Tool(Generic[ToolDepsT, P, ReturnT]):
    def __init__(
        self,
        fn: Callable[P, ReturnT],
        *,
        name: str | None = None,
        description: str | None = None,
        on_replay: Literal["rerun", "reuse"] = "rerun",
        timeout: float | None = None,
        resolve: Resolver[ToolDepsT] | None = None,
        _frame: FrameType | None = None,
    ) -> None: ...
    __wrapped__: Callable[P, ReturnT]
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ReturnT: ...
    def __takes_deps__(self, deps: ToolDepsT, /) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> dict[str, JsonValue]: ...
    @property
    def on_replay(self) -> Literal["rerun", "reuse"]: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def resolve(self) -> Resolver[ToolDepsT] | None: ...
    @property
    def spec(self) -> ToolSpec: ...
    @property
    def is_async(self) -> bool: ...
    @property
    def takes_context(self) -> bool: ...
    def canonical(self, raw: Mapping[str, object] | str) -> str: ...
    def bind(self, canonical: str) -> tuple[tuple[Any, ...], dict[str, Any]]: ...
    def as_result(self, value: object) -> ToolResult: ...

class ToolDecorator(Protocol[NeededT]):
    @overload
    def __call__(
        self: ToolDecorator[object], fn: Callable[Concatenate[ToolContext[D], P], R], /
    ) -> Tool[D, Concatenate[ToolContext[D], P], R]: ...
    @overload
    def __call__(
        self, fn: Callable[Concatenate[ToolContext[NeededT], P], R], /
    ) -> Tool[NeededT, Concatenate[ToolContext[NeededT], P], R]: ...
    @overload
    def __call__(
        self, fn: Callable[Concatenate[ToolContext[Never], P], R], /
    ) -> Tool[Never, Concatenate[ToolContext[Never], P], R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Tool[NeededT, P, R]: ...

@overload
def tool(
    fn: Callable[Concatenate[ToolContext[D], P], R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    on_replay: Literal["rerun", "reuse"] = "rerun",
    timeout: float | None = None,
    resolve: Resolver[D] | None = None,
) -> Tool[D, Concatenate[ToolContext[D], P], R]: ...
@overload
def tool(  # type: ignore[overload-overlap]  # where the deps do not fit, the next one is not meant
    fn: Callable[Concatenate[ToolContext[Never], P], R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    on_replay: Literal["rerun", "reuse"] = "rerun",
    timeout: float | None = None,
    resolve: Resolver[D],
) -> Tool[Never, Concatenate[ToolContext[Never], P], R]: ...
@overload
def tool(
    fn: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    on_replay: Literal["rerun", "reuse"] = "rerun",
    timeout: float | None = None,
    resolve: Resolver[NeededT] | None = None,
) -> Tool[NeededT, P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    on_replay: Literal["rerun", "reuse"] = "rerun",
    timeout: float | None = None,
    resolve: Resolver[NeededT] | None = None,
) -> ToolDecorator[NeededT]: ...

# ---------------------------------------------------------------- policy

class ResumePolicy(StrEnum):
    REWIND = "rewind"
    CONTINUE = "continue"

class Budget(BaseModel):
    max_turns: int = 6
    max_tokens: int | None = None
    max_tool_calls: int | None = None
    max_model_calls: int | None = None
    max_wall: float | None = None
    max_cost: Decimal | None = None
    max_children: int | None = None
    max_concurrent: int = 8
    max_depth: int = 3

class LimitInfo(BaseModel):
    limit: Limit
    at: str
    cap: Decimal
    spent: Decimal
    handle: str

class Stop: ...

class Extend:
    budget: Budget

    def __init__(self, budget: Budget) -> None: ...

class Suspend:
    prompt: str | None

    def __init__(self, prompt: str | None = None) -> None: ...

LimitDecision = Stop | Extend | Suspend

@dataclass(frozen=True)
class Allow: ...

@dataclass(frozen=True)
class Deny:
    reason: str

    def __post_init__(self) -> None: ...

@dataclass(frozen=True, init=False)
class Ask:
    prompt: str
    kind: str
    answer_type: TypeForm[object] | None
    expires_at: datetime | None

    def __init__(
        self,
        prompt: str,
        *,
        kind: str = "approval",
        answer_type: TypeForm[object] | None = None,
        expires_at: datetime | None = None,
    ) -> None: ...

Ruling = Allow | Deny | Ask

@dataclass(frozen=True, kw_only=True)
class GuardrailEvent:
    run_id: str
    handle: str
    agent: str
    call: ToolCall
    deps: object = None

@dataclass(frozen=True, kw_only=True)
class PromptEvent:
    run_id: str
    handle: str
    agent: str
    prompt: str
    deps: object = None

@dataclass(frozen=True, kw_only=True)
class OutputEvent:
    run_id: str
    handle: str
    agent: str
    text: str
    output: object
    deps: object = None

Guardrail = Callable[[GuardrailEvent], Ruling | Awaitable[Ruling]]
PromptGuardrail = Callable[[PromptEvent], Ruling | Awaitable[Ruling]]
OutputGuardrail = Callable[[OutputEvent], Ruling | Awaitable[Ruling]]

def require_approval(*tools: str, when: Callable[[Mapping[str, Any]], bool] | None = None) -> Guardrail: ...

@dataclass(frozen=True, kw_only=True)
class Attempt(Generic[OutputT]):
    text: str
    output: OutputT | None
    tool_calls: Sequence[tuple[ToolCall, ToolResult]]
    number: int
    run_id: str = ""
    handle: str = ""
    deps: object = None

class Completion:
    verify: Callable[[Attempt[Any]], tuple[bool, str] | Awaitable[tuple[bool, str]]]
    max_attempts: int

    def __init__(
        self,
        verify: Callable[[Attempt[Any]], tuple[bool, str] | Awaitable[tuple[bool, str]]],
        *,
        max_attempts: int,
    ) -> None: ...

class TodoItem(TypedDict):
    text: str
    status: Literal["open", "doing", "done"]

@overt.tool
async def todo(items: list[TodoItem]) -> str: ...
def all_todos_done(attempt: Attempt[Any]) -> tuple[bool, str]: ...
def output_is(output_type: TypeForm[object], /) -> Callable[[Attempt[Any]], tuple[bool, str]]: ...

# ---------------------------------------------------------------- models and transcript

class TextPart(BaseModel):
    kind: Literal["text"] = "text"
    text: str

class ImagePart(BaseModel):
    kind: Literal["image"] = "image"
    url: str | None = None
    data: str | None = None
    media_type: str | None = None

class FilePart(BaseModel):
    kind: Literal["file"] = "file"
    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    name: str | None = None

UserPart = TextPart | ImagePart | FilePart

class SystemMessage(BaseModel):
    role: Literal["system"] = "system"
    text: str

class UserMessage(BaseModel):
    role: Literal["user"] = "user"
    text: str
    parts: tuple[UserPart, ...] = ()

class AssistantMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    opaque: dict[str, JsonValue] | None = None

class ToolMessage(BaseModel):
    role: Literal["tool"] = "tool"
    text: str
    call_id: str
    name: str
    is_error: bool = False
    metadata: dict[str, JsonValue] = {}

Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage

class ModelSettings(BaseModel):
    temperature: float | None = None
    max_output_tokens: int | None = None
    tool_choice: Literal["auto", "required", "none"] | None = None
    parallel_tool_calls: bool | None = None
    stop: tuple[str, ...] = ()
    extra: dict[str, JsonValue] = {}
    def over(self, base: ModelSettings) -> ModelSettings: ...

@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    name: str
    description: str
    input_schema: Mapping[str, JsonValue]

@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    agent: str = ""
    handle: str = ""
    model: str = ""
    settings: ModelSettings = ...
    output_schema: Mapping[str, JsonValue] | None = None
    max_output_tokens: int | None = None
    deadline: datetime | None = None

class ModelResponse(BaseModel):
    message: AssistantMessage
    usage: Usage | None = None
    finish_reason: Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"] = "stop"
    raw_finish_reason: str | None = None
    model: str = ""
    invalid_arguments: dict[int, str] = {}

@dataclass(frozen=True, kw_only=True)
class ToolCallDelta:
    index: int = 0
    id: str | None = None
    name: str | None = None
    arguments: str | None = None

@dataclass(frozen=True, kw_only=True)
class ModelDelta:
    text: str | None = None
    reasoning: str | None = None
    tool_call: ToolCallDelta | None = None
    usage: Usage | None = None
    finish_reason: Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"] | None = (
        None
    )
    raw_finish_reason: str | None = None
    model: str | None = None
    opaque: Mapping[str, JsonValue] | None = None

# A model may also have `structured_output: bool`: whether it honours `ModelRequest.output_schema`.
@runtime_checkable
class Model(Protocol):
    @property
    def name(self) -> str: ...
    async def generate(self, request: ModelRequest) -> ModelResponse: ...

@runtime_checkable
class StreamingModel(Model, Protocol):
    def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]: ...

# ---------------------------------------------------------------- around a run

class RetryPolicy(BaseModel):
    max_retries: int = 2
    base: float = 0.5
    cap: float = 8.0
    jitter: float = 0.25
    max_retry_after: float = 60.0

    def wait(
        self, attempt: int, *, retry_after: float | None = None, chance: float = 0.0
    ) -> float | None: ...

class Price(BaseModel):
    input: Decimal
    output: Decimal
    cached: Decimal | None = None
    cache_write: Decimal | None = None
    reasoning: Decimal | None = None

    def of(self, usage: Usage) -> Decimal: ...

@dataclass(frozen=True, kw_only=True)
class PricedCall:
    provider: str
    model: str
    replied: str = ""
    usage: Usage
    at: datetime

class Prices(Protocol):
    def price(self, call: PricedCall) -> Decimal | None: ...

class PriceTable:
    def __init__(self, prices: Mapping[str, Price], *, otherwise: Prices | None = None) -> None: ...
    def price(self, call: PricedCall) -> Decimal | None: ...

class GenAIPrices:
    def __init__(self) -> None: ...
    def price(self, call: PricedCall) -> Decimal | None: ...

@dataclass(frozen=True, kw_only=True)
class BeforeLLM:
    handle: str
    turn: int
    model: str
    messages: tuple[Message, ...]
    tools: tuple[AnyTool[Any], ...]

@dataclass(frozen=True, kw_only=True)
class AfterLLM:
    handle: str
    turn: int
    model: str
    response: ModelResponse

@dataclass(frozen=True, kw_only=True)
class BeforeTool:
    handle: str
    turn: int
    call: ToolCall

@dataclass(frozen=True, kw_only=True)
class AfterTool:
    handle: str
    turn: int
    call: ToolCall
    result: ToolResult

@dataclass(frozen=True, kw_only=True)
class LLMOverride:
    messages: Sequence[Message] | None = None
    tools: Sequence[AnyTool[Any]] | None = None

@dataclass(frozen=True, kw_only=True)
class ToolOverride:
    result: ToolResult | None = None
    arguments: Mapping[str, object] | None = None

@dataclass(frozen=True, kw_only=True)
class Hooks:
    before_llm: Callable[[BeforeLLM], LLMOverride | Awaitable[LLMOverride | None] | None] | None = None
    after_llm: Callable[[AfterLLM], Awaitable[None] | None] | None = None
    before_tool: Callable[[BeforeTool], ToolOverride | Awaitable[ToolOverride | None] | None] | None = None
    after_tool: Callable[[AfterTool], ToolOverride | Awaitable[ToolOverride | None] | None] | None = None

    def __post_init__(self) -> None: ...
    def over(self, base: Hooks | None) -> Hooks: ...

def compactor(
    *, max_tokens: int, keep_tail: int = 8, summarize: Callable[[Sequence[Message]], str | Awaitable[str]]
) -> Callable[[BeforeLLM], Awaitable[LLMOverride | None]]: ...

class MetricEvent(BaseModel):
    event: Literal["llm", "tool", "run"]
    run_id: str
    handle: str
    agent: str
    model: str | None = None
    tool: str | None = None
    status: str
    seconds: float
    usage: Usage | None = None
    pending: bool = False

class Ledger(BaseModel):
    handle: str
    agent: str
    state: State
    status: str
    own: Usage
    total: Usage
    cost: Decimal | None = None
    unpriced: tuple[Unpriced, ...] = ()
    priced: Decimal = Decimal(0)
    children: tuple[Ledger, ...] = ()

    def walk(self) -> Iterator[tuple[int, Ledger]]: ...
    def to_mermaid(self) -> str: ...

@runtime_checkable
class Clock(Protocol):
    def now(self) -> datetime: ...
    def monotonic(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...

@runtime_checkable
class Store(Protocol):
    async def create(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        agent: str,
        owner: Owner,
        now: datetime,
        until: datetime,
    ) -> Claim: ...
    async def append(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        after: int,
        epoch: int,
        change: Change,
        release: bool = False,
    ) -> str | None: ...
    async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]: ...
    async def info(self, run_id: str) -> RunInfo: ...
    async def claim(
        self, run_id: str, *, owner: Owner, now: datetime, until: datetime, force: bool = False
    ) -> Claim: ...
    async def renew(self, run_id: str, *, epoch: int, until: datetime) -> str | None: ...
    async def release(self, run_id: str, *, epoch: int) -> None: ...
    async def runs(
        self,
        *,
        status: str | Collection[str] | None = None,
        agent: str | None = None,
        older_than: datetime | None = None,
        limit: int | None = None,
    ) -> Sequence[RunInfo]: ...
    async def open_requests(
        self,
        *,
        run_id: str | None = None,
        kind: str | None = None,
        agent: str | None = None,
        older_than: datetime | None = None,
        due: datetime | None = None,
        limit: int | None = None,
    ) -> Sequence[OpenRequest]: ...
    async def ask_interrupt(self, run_id: str, *, reason: str = "") -> None: ...
    async def delete(self, run_id: str, *, now: datetime, force: bool = False) -> None: ...
    async def wait(self, run_id: str, *, after: int, timeout: float | None = None) -> int: ...
    async def pendings(
        self,
        *,
        kind: str | None = None,
        agent: str | None = None,
        older_than: datetime | None = None,
        run_id: str | None = None,
        limit: int | None = None,
        on_error: Callable[[str, StoreError], None] | None = None,
    ) -> tuple[PendingRequest, ...]: ...
    async def expire_due(
        self, now: datetime, *, on_error: Callable[[str, StoreError], None] | None = None
    ) -> tuple[str, ...]: ...
    async def interrupt(
        self, run_id: str, *, reason: str | None = None, now: datetime | None = None
    ) -> Interruption: ...
    async def abandoned(
        self, now: datetime, *, agent: str | None = None, limit: int | None = None
    ) -> tuple[RunInfo, ...]: ...
    async def prune(
        self,
        older_than: datetime,
        *,
        status: str | Collection[str] = ("done", "interrupted"),
        agent: str | None = None,
        limit: int | None = None,
        now: datetime | None = None,
    ) -> tuple[str, ...]: ...
    async def export_run(self, run_id: str) -> str: ...
    async def import_run(self, lines: str | Iterable[str], *, now: datetime | None = None) -> str: ...
    async def verify(
        self, run_id: str | None = None, *, repair_lists: bool = False, now: datetime | None = None
    ) -> tuple[Damage, ...]: ...
    async def close(self) -> None: ...

class SystemClock:
    def now(self) -> datetime: ...
    def monotonic(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...

class RunStream(Generic[OutputT_co]):
    def __init__(
        self,
        runtime: Runtime[OutputT_co],
        *,
        work: Callable[[], Awaitable[TaskResult[OutputT_co]]],
        after: int | None = None,
    ) -> None: ...
    @property
    def runtime(self) -> Runtime[OutputT_co]: ...
    def __aiter__(self) -> AsyncIterator[Event]: ...
    async def __anext__(self) -> Event: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...
    async def result(self) -> TaskResult[OutputT_co]: ...

@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    kind: Literal["entry", "agent", "tool", "arguments", "onReplay", "outputType", "guardrails", "rename"]
    what: str
    how: str
    acceptable: bool
    handle: str | None = None
    agent: str | None = None
    tool: str | None = None
    call: str | None = None

@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    tools: Mapping[str, str] = ...
    agents: Mapping[str, str] = ...
    arguments: Callable[[str, dict[str, JsonValue]], Mapping[str, object]] | None = None
    questions: Callable[[Request], Request | None] | None = None
    def __post_init__(self) -> None: ...
    def tool(self, name: str) -> str: ...
    def agent(self, name: str) -> str: ...

class Options(TypedDict, Generic[DepsT], total=False):
    model: Model | str
    deps: DepsT
    store: Store
    run_id: str
    resume_policy: ResumePolicy
    history: Sequence[Message]
    budget: Budget
    guardrails: Sequence[Guardrail]
    input_guardrails: Sequence[PromptGuardrail]
    output_guardrails: Sequence[OutputGuardrail]
    guardrail_timeout: float
    wait_for: WaitFor
    on_pending: Callable[[Request], Awaitable[None]]
    verify_answer: Callable[[Request, Answer[Any]], bool | Awaitable[bool]]
    on_limit: Callable[[LimitInfo], LimitDecision | Awaitable[LimitDecision]]
    hooks: Hooks
    on_metric: Callable[[MetricEvent], None]
    clock: Clock
    inbox_cap: int
    max_concurrent_turns: int
    max_divergences: int
    shutdown: float
    claim: float
    max_result_chars: int
    redact: Sequence[str]
    retry: RetryPolicy
    prices: Prices
    upgrade: Upgrade
    on_drift: Literal["refuse", "accept"]

# ---------------------------------------------------------------- agents and runs

@dataclass(frozen=True, init=False)
class Agent(Generic[DepsT, OutputT]):
    name: str
    does: str
    tools: tuple[AnyTool[DepsT], ...]
    soul: str | Callable[[DepsT], str] | None
    soul_file: Path | None
    team: tuple[Agent[Any, Any], ...]
    budget: Budget | None
    model: Model | str | None
    settings: ModelSettings | None
    wait_for: WaitFor | None
    guardrails: tuple[Guardrail, ...]
    input_guardrails: tuple[PromptGuardrail, ...]
    output_guardrails: tuple[OutputGuardrail, ...]
    completion: Completion | None
    hooks: Hooks | None
    on_metric: Callable[[MetricEvent], None] | None
    on_spawn: Callable[[Handle], None] | None
    on_close: Callable[[Handle, str], None] | None
    output_type: TypeForm[OutputT]
    deps_type: type[DepsT] | None

    @overload
    def __init__(
        self: Agent[None, str],
        name: str,
        *,
        does: str,
        tools: Sequence[AnyTool[None]] = (),
        soul: str | Callable[[None], str] | None = None,
        soul_file: str | Path | None = None,
        team: Sequence[Agent[Any, Any]] = (),
        budget: Budget | None = None,
        model: Model | str | None = None,
        settings: ModelSettings | None = None,
        wait_for: WaitFor | None = None,
        guardrails: Sequence[Guardrail] = (),
        input_guardrails: Sequence[PromptGuardrail] = (),
        output_guardrails: Sequence[OutputGuardrail] = (),
        completion: Completion | None = None,
        hooks: Hooks | None = None,
        on_metric: Callable[[MetricEvent], None] | None = None,
        on_spawn: Callable[[Handle], None] | None = None,
        on_close: Callable[[Handle, str], None] | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[D, str],
        name: str,
        *,
        does: str,
        tools: Sequence[AnyTool[D]] = (),
        soul: str | Callable[[D], str] | None = None,
        soul_file: str | Path | None = None,
        team: Sequence[Agent[Any, Any]] = (),
        budget: Budget | None = None,
        model: Model | str | None = None,
        settings: ModelSettings | None = None,
        wait_for: WaitFor | None = None,
        guardrails: Sequence[Guardrail] = (),
        input_guardrails: Sequence[PromptGuardrail] = (),
        output_guardrails: Sequence[OutputGuardrail] = (),
        completion: Completion | None = None,
        hooks: Hooks | None = None,
        on_metric: Callable[[MetricEvent], None] | None = None,
        on_spawn: Callable[[Handle], None] | None = None,
        on_close: Callable[[Handle, str], None] | None = None,
        deps_type: TypeForm[D],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[None, T],
        name: str,
        *,
        does: str,
        tools: Sequence[AnyTool[None]] = (),
        soul: str | Callable[[None], str] | None = None,
        soul_file: str | Path | None = None,
        team: Sequence[Agent[Any, Any]] = (),
        budget: Budget | None = None,
        model: Model | str | None = None,
        settings: ModelSettings | None = None,
        wait_for: WaitFor | None = None,
        guardrails: Sequence[Guardrail] = (),
        input_guardrails: Sequence[PromptGuardrail] = (),
        output_guardrails: Sequence[OutputGuardrail] = (),
        completion: Completion | None = None,
        hooks: Hooks | None = None,
        on_metric: Callable[[MetricEvent], None] | None = None,
        on_spawn: Callable[[Handle], None] | None = None,
        on_close: Callable[[Handle, str], None] | None = None,
        output_type: TypeForm[T],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[D, T],
        name: str,
        *,
        does: str,
        tools: Sequence[AnyTool[D]] = (),
        soul: str | Callable[[D], str] | None = None,
        soul_file: str | Path | None = None,
        team: Sequence[Agent[Any, Any]] = (),
        budget: Budget | None = None,
        model: Model | str | None = None,
        settings: ModelSettings | None = None,
        wait_for: WaitFor | None = None,
        guardrails: Sequence[Guardrail] = (),
        input_guardrails: Sequence[PromptGuardrail] = (),
        output_guardrails: Sequence[OutputGuardrail] = (),
        completion: Completion | None = None,
        hooks: Hooks | None = None,
        on_metric: Callable[[MetricEvent], None] | None = None,
        on_spawn: Callable[[Handle], None] | None = None,
        on_close: Callable[[Handle, str], None] | None = None,
        output_type: TypeForm[T],
        deps_type: TypeForm[D],
    ) -> None: ...
    def __copy__(self) -> Self: ...
    def with_team(self, *team: Agent[Any, Any]) -> Agent[DepsT, OutputT]: ...
    def stream(self, prompt: str, **options: Unpack[Options[DepsT]]) -> RunStream[OutputT]: ...
    def loop(self, **options: Unpack[Options[DepsT]]) -> Loop[OutputT]: ...
    # An agent without deps is a tool for any agent.
    @overload
    def as_tool(
        self: Agent[None, OutputT], *, name: str | None = None, description: str | None = None
    ) -> AgentTool[object, OutputT]: ...
    @overload
    def as_tool(
        self, *, name: str | None = None, description: str | None = None
    ) -> AgentTool[DepsT, OutputT]: ...
    async def run(
        self, prompt: str, **options: Unpack[Options[DepsT]]
    ) -> tuple[TaskResult[OutputT], Runtime[OutputT]]: ...
    def run_sync(
        self, prompt: str, **options: Unpack[Options[DepsT]]
    ) -> tuple[TaskResult[OutputT], Runtime[OutputT]]: ...

class AgentTool(Generic[DepsT, OutputT]):
    def __init__(self, agent: Agent[Any, OutputT], *, name: str, description: str) -> None: ...
    async def __call__(self, prompt: str, **options: Unpack[Options[DepsT]]) -> TaskResult[OutputT]: ...
    def __takes_deps__(self, deps: DepsT, /) -> None: ...
    @property
    def agent(self) -> Agent[Any, OutputT]: ...
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> dict[str, JsonValue]: ...
    @property
    def spec(self) -> ToolSpec: ...
    def canonical(self, raw: Mapping[str, object] | str) -> str: ...

class Loop(Generic[OutputT_co]):
    def __init__(self, agent: Agent[DepsT, OutputT_co], **options: Unpack[Options[DepsT]]) -> None: ...
    @classmethod
    async def open(
        cls, agent: Agent[DepsT, OpenedT], run_id: str, /, **options: Unpack[Options[DepsT]]
    ) -> Loop[OpenedT]: ...
    @property
    def runtime(self) -> Runtime[OutputT_co]: ...
    @property
    def status(self) -> State: ...
    @property
    def turns(self) -> int: ...
    async def run(self, prompt: str, *, model: Model | str | None = None) -> TaskResult[OutputT_co]: ...
    def stream(self, prompt: str, *, model: Model | str | None = None) -> RunStream[OutputT_co]: ...
    async def resume(
        self, answer: Answer[Any] | Sequence[Answer[Any]], *, policy: ResumePolicy | None = None
    ) -> TaskResult[OutputT_co]: ...
    async def recover(
        self, *, policy: ResumePolicy | None = None, force: bool = False
    ) -> TaskResult[OutputT_co]: ...
    async def extend(
        self, budget: Budget, *, handle: Handle | str | None = None
    ) -> TaskResult[OutputT_co]: ...
    def result(self) -> TaskResult[OutputT_co]: ...
    def transcript(self) -> tuple[Message, ...]: ...
    async def close(self, *, force: bool = False, reason: str | None = None) -> None: ...

class InboxItem(BaseModel):
    sender: str = "external"
    channel: str = "external"
    text: str

class PostResult(BaseModel):
    ok: bool
    error: str | None = None

class HandleView(BaseModel):
    id: str
    agent: str
    state: State
    turns: int
    total_tokens: int
    own_tokens: int
    inbox: int
    pending_kind: str | None = None

class Handle:
    id: str
    agent: str

    def __init__(self, id: str, *, agent: str) -> None: ...

class Runtime(Generic[OutputT_co]):
    def __init__(self, agent: Agent[DepsT, OutputT_co], **options: Unpack[Options[DepsT]]) -> None: ...
    @classmethod
    async def open(
        cls, agent: Agent[DepsT, OpenedT], run_id: str, /, **options: Unpack[Options[DepsT]]
    ) -> Runtime[OpenedT]: ...
    @property
    def id(self) -> str: ...
    @property
    def root(self) -> Handle: ...
    @property
    def policy(self) -> ResumePolicy: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...
    async def run(self, prompt: str) -> TaskResult[OutputT_co]: ...
    async def resume(
        self, answer: Answer[Any] | Sequence[Answer[Any]], *, policy: ResumePolicy | None = None
    ) -> TaskResult[OutputT_co]: ...
    def resume_sync(
        self, answer: Answer[Any] | Sequence[Answer[Any]], *, policy: ResumePolicy | None = None
    ) -> TaskResult[OutputT_co]: ...
    async def recover(
        self, *, policy: ResumePolicy | None = None, force: bool = False
    ) -> TaskResult[OutputT_co]: ...
    async def extend(
        self, budget: Budget, *, handle: Handle | str | None = None
    ) -> TaskResult[OutputT_co]: ...
    def stream(
        self,
        prompt: str | None = None,
        *,
        answer: Answer[Any] | Sequence[Answer[Any]] | None = None,
        policy: ResumePolicy | None = None,
        after: int | None = None,
    ) -> RunStream[OutputT_co]: ...
    def follow(self, *, after: int = 0) -> RunStream[OutputT_co]: ...
    async def spawn(self, parent: Handle | str, agent: str, *, budget: Budget | None = None) -> Handle: ...
    async def post(self, handle: Handle | str, item: InboxItem) -> PostResult: ...
    async def wake(self, handle: Handle | str, prompt: str = "") -> PostResult: ...
    async def wait(self, handle: Handle | str, *, timeout: float | None = None) -> TaskResult[object]: ...
    async def run_turn(self, handle: Handle | str, prompt: str) -> TaskResult[object]: ...
    async def interrupt(self, handle: Handle | str | None = None) -> None: ...
    async def close(
        self, handle: Handle | str | None = None, *, force: bool = False, reason: str | None = None
    ) -> None: ...
    def result(self) -> TaskResult[OutputT_co]: ...
    def list(self) -> tuple[HandleView, ...]: ...
    def inspect(self, handle: Handle | str) -> HandleView: ...
    def handle(self, id: str) -> Handle: ...
    def usage_tokens(self, handle: Handle | str) -> int: ...
    def remaining(self, handle: Handle | str) -> Budget: ...
    def transcript(self, handle: Handle | str, *, uncommitted: bool = False) -> tuple[Message, ...]: ...
    def tool_result(self, handle: Handle | str, call_id: str) -> str: ...
    def pendings(self) -> tuple[Request, ...]: ...
    def transitions(self, handle: Handle | str) -> tuple[tuple[State, State], ...]: ...
    def trace(self) -> tuple[str, ...]: ...
    def ledger(self) -> Ledger: ...
    def events(self, *, after: int = 0) -> tuple[Event, ...]: ...
