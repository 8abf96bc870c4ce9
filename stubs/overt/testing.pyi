from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import EllipsisType, TracebackType
from typing import Final, Literal, Never, Protocol, Self, TypeAlias, final

from pydantic import JsonValue

from overt import Clock, Model, ModelDelta, ModelRequest, ModelResponse, Store, Usage
from overt.errors import OvertError
from overt.stores import Change, Claim, OpenRequest, Owner, Record, RunInfo, StoreWrapper

@dataclass(frozen=True, kw_only=True)
class Part:
    text: str = ""
    tool: str | None = None
    arguments: Mapping[str, JsonValue] | None = None
    raw: str | None = None
    id: str | None = None
    tokens: int | None = None
    usage: Usage | EllipsisType | None = ...
    finish: Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"] | None = None
    fail_after: int | None = None

    def with_options(
        self,
        *,
        id: str | None = None,
        tokens: int | None = None,
        usage: Usage | EllipsisType | None = ...,
        finish: Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"] | None = None,
        fail_after: int | None = None,
    ) -> Part: ...

Reply: TypeAlias = Part | str | ModelResponse | BaseException | type[BaseException] | Sequence[Part | str]
Script: TypeAlias = (
    Sequence[Reply] | Mapping[str, "Script"] | Callable[[ModelRequest], Reply | Awaitable[Reply]]
)

def say(
    text: str,
    *,
    tokens: int | None = None,
    usage: Usage | EllipsisType | None = ...,
    finish: Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"] | None = None,
    fail_after: int | None = None,
) -> Part: ...
def call(tool: str, /, **arguments: object) -> Part: ...
def raw_call(
    tool: str,
    text: str,
    *,
    id: str | None = None,
    tokens: int | None = None,
    usage: Usage | EllipsisType | None = ...,
    finish: Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"] | None = None,
    fail_after: int | None = None,
) -> Part: ...

class MockModel:
    requests: list[ModelRequest]
    structured_output: bool
    def __init__(
        self,
        script: Script | None = None,
        *,
        prompts: Sequence[Script] | None = None,
        name: str = "mock",
        tokens: int = 100,
        think_time: float = 0.0,
        clock: Clock | None = None,
        record: bool = True,
        chunk: int = 8,
        structured_output: bool = False,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    async def generate(self, request: ModelRequest) -> ModelResponse: ...
    def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]: ...

class VirtualClock:
    def __init__(self, start: datetime = ...) -> None: ...
    def now(self) -> datetime: ...
    def monotonic(self) -> float: ...
    @property
    def sleepers(self) -> int: ...
    async def sleep(self, seconds: float) -> None: ...
    async def advance(self, seconds: float) -> None: ...
    def set_wall(self, to: datetime) -> None: ...
    async def wait_for_sleepers(self, count: int = 1) -> None: ...

class Crashed(BaseException): ...

@final
class Gate:
    def __init__(self) -> None: ...
    async def reached(self) -> None: ...
    def release(self) -> None: ...
    async def wait(self) -> None: ...

@final
class CrashingStore(StoreWrapper):
    def __init__(
        self, inner: Store, *, crash_at: int | None = None, when: Literal["before", "after"] = "before"
    ) -> None: ...
    @property
    def appends(self) -> int: ...
    @property
    def crashed(self) -> bool: ...
    @property
    def survivor(self) -> Store: ...
    def hold(self, n: int) -> Gate: ...
    def die(self) -> Never: ...
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
    async def close(self) -> None: ...

@final
class StoreCheck:
    name: Final[str]
    needs_reopen: Final[bool]
    def __init__(
        self, body: Callable[[Store, Callable[[], Store]], Awaitable[None]], *, needs_reopen: bool
    ) -> None: ...
    async def __call__(
        self, make_store: Callable[[], Store], *, reopen: Callable[[], Store] | None = None
    ) -> None: ...

STORE_CHECKS: Final[tuple[StoreCheck, ...]]
STORE_REOPEN_CHECKS: Final[tuple[StoreCheck, ...]]

async def store_conformance(
    make_store: Callable[[], Store], *, reopen: Callable[[Store], Store] | None = None
) -> None: ...

@dataclass(frozen=True, kw_only=True)
class CaseCall:
    tool: str = "look"
    arguments: str = '{"at":"A1"}'
    id: str | None = "call_a"

@dataclass(frozen=True, kw_only=True)
class ModelCase:
    name: str
    says: str
    text: str = ""
    calls: tuple[CaseCall, ...] = ()
    reasoning: str | None = None
    finish: Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"] = "stop"
    raw_finish: str | None = None
    usage: Usage | None = ...
    free: frozenset[Literal["text", "calls", "finish"]] = ...
    status: int = 200
    headers: Mapping[str, str] = ...
    body: str | None = None
    fails: bool = False

class ModelBench(Protocol):
    @property
    def not_applicable(self) -> Mapping[str, str]: ...
    def model(self, *cases: ModelCase, pieces: int | None = None) -> Model: ...
    def sent(self) -> Sequence[JsonValue]: ...
    def unclosed(self) -> int: ...

@final
class ModelCheck:
    name: Final[str]
    says: Final[str]
    cases: Final[tuple[str, ...]]
    needs: Final[Literal["stream", "schema", "call"] | None]
    def __init__(
        self,
        body: Callable[[ModelBench], Awaitable[None]],
        *,
        name: str,
        says: str,
        cases: Sequence[str],
        needs: Literal["stream", "schema", "call"] | None = None,
    ) -> None: ...
    def why_not(self, bench: ModelBench) -> str | None: ...
    async def __call__(self, make_bench: Callable[[], ModelBench]) -> None: ...

MODEL_CASES: Final[Mapping[str, ModelCase]]
MODEL_CHECKS: Final[tuple[ModelCheck, ...]]

async def model_conformance(make_bench: Callable[[], ModelBench]) -> Mapping[str, str]: ...

class CassetteError(OvertError): ...

@final
class Cassette:
    mode: Literal["record", "replay"]
    name: str
    provider: str
    structured_output: bool
    def __init__(
        self,
        path: str | Path,
        *,
        model: Model | str | None = None,
        mode: Literal["auto", "record", "replay"] = "auto",
        redact: Callable[[str], str] | None = None,
        allow_unused: bool = False,
    ) -> None: ...
    @property
    def unused(self) -> tuple[str, ...]: ...
    @property
    def missed(self) -> tuple[str, ...]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    async def generate(self, request: ModelRequest) -> ModelResponse: ...
    def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]: ...
