from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Protocol, final, runtime_checkable

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

@dataclass(frozen=True, kw_only=True)
class RunInfo:
    run_id: str
    position: int
    epoch: int
    owner: str | None = None
    until: datetime | None = None
    status: str = ""
    agent: str = ""

@runtime_checkable
class ImmediateStore(Store, Protocol):
    def append_now(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        after: int,
        epoch: int,
        status: str,
        release: bool = False,
    ) -> None: ...

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
        status: str,
        release: bool = False,
    ) -> None: ...
    def append_now(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        after: int,
        epoch: int,
        status: str,
        release: bool = False,
    ) -> None: ...
    async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]: ...
    async def info(self, run_id: str) -> RunInfo: ...
    async def claim(
        self, run_id: str, *, owner: Owner, now: datetime, until: datetime, force: bool = False
    ) -> Claim: ...
    async def renew(self, run_id: str, *, epoch: int, until: datetime) -> None: ...
    async def release(self, run_id: str, *, epoch: int) -> None: ...
    async def close(self) -> None: ...

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
        status: str,
        release: bool = False,
    ) -> None: ...
    async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]: ...
    async def info(self, run_id: str) -> RunInfo: ...
    async def claim(
        self, run_id: str, *, owner: Owner, now: datetime, until: datetime, force: bool = False
    ) -> Claim: ...
    async def renew(self, run_id: str, *, epoch: int, until: datetime) -> None: ...
    async def release(self, run_id: str, *, epoch: int) -> None: ...
    async def close(self) -> None: ...
