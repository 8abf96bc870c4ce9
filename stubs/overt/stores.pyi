from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Final, Literal, Protocol, final, runtime_checkable

from overt import Request
from overt import Store as Store

class Record:
    position: int
    count: int
    payload: object
    def __init__(
        self,
        position: int,
        count: int,
        *,
        text: str | None = None,
        payload: object = None,
        encode: Callable[[object], str] | None = None,
    ) -> None: ...
    @property
    def text(self) -> str: ...
    @property
    def last(self) -> int: ...

@dataclass(frozen=True, kw_only=True)
class Owner:
    id: str
    host: str = ""
    pid: int = 0
    started: str = ""

@dataclass(frozen=True, kw_only=True)
class Claim:
    epoch: int
    until: datetime
    interrupt: str | None = None

@dataclass(frozen=True, kw_only=True)
class RunInfo:
    run_id: str
    position: int
    epoch: int
    owner: str | None = None
    holder: Owner | None = None
    until: datetime | None = None
    status: str = ""
    agent: str = ""
    created: datetime
    updated: datetime
    interrupt: str | None = None

@runtime_checkable
class ImmediateStore(Store, Protocol):
    def append_now(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        after: int,
        epoch: int,
        change: Change,
        release: bool = False,
    ) -> str | None: ...

@final
class MemoryStore(ImmediateStore):
    def __init__(self) -> None: ...
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
    def append_now(
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
class PostgresStore(Store):
    def __init__(
        self, dsn: str, *, schema: str = "overt", lock_timeout: float = 10.0, reconnect_timeout: float = 10.0
    ) -> None: ...
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
    async def has_tables(self) -> bool: ...

@final
class SQLiteStore(Store):
    def __init__(self, path: str | PathLike[str], *, busy_timeout: float = 10.0) -> None: ...
    @property
    def path(self) -> Path: ...
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
    async def close(self) -> None: ...

@dataclass(frozen=True, kw_only=True)
class OpenRequest:
    run_id: str
    request: str
    kind: str
    agent: str
    asked_at: datetime
    expires_at: datetime | None = None

@dataclass(frozen=True, kw_only=True)
class Change:
    status: str
    at: datetime
    asked: tuple[OpenRequest, ...] = ()
    settled: tuple[str, ...] = ()
    obeyed: bool = False

class StoreWrapper(Store):
    inner: Final[Store]
    def __init__(self, inner: Store) -> None: ...
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

class EncryptedStore(StoreWrapper):
    def __init__(
        self,
        inner: Store,
        key: str | bytes,
        *,
        old_keys: Iterable[str | bytes] = (),
        allow_plain: bool = False,
    ) -> None: ...
    @staticmethod
    def generate_key() -> str: ...
    @property
    def key_id(self) -> str: ...
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

@dataclass(frozen=True, kw_only=True)
class PendingRequest:
    run_id: str
    entry: str
    agent: str
    asked_at: datetime
    request: Request

@dataclass(frozen=True, kw_only=True)
class Interruption:
    run_id: str
    outcome: Literal["interrupted", "asked", "at_rest"]
    status: str
    owner: str | None = None
    until: datetime | None = None

@dataclass(frozen=True, kw_only=True)
class Damage:
    run_id: str | None
    position: int | None = None
    what: str
    repaired: bool = False
