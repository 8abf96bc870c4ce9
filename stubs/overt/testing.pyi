from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import EllipsisType
from typing import Final, Literal, Never, TypeAlias, final

from pydantic import JsonValue

from overt import Clock, Model, ModelDelta, ModelRequest, ModelResponse, Store, Usage
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
async def model_conformance(make_model: Callable[[], Model]) -> None: ...
