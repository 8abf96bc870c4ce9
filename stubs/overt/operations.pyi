from collections.abc import AsyncIterator
from dataclasses import dataclass

from typing_extensions import TypeVar, Unpack

from overt import Agent, Clock, Drift, Event, Options, Store
from overt.errors import StoreError

_DepsT = TypeVar("_DepsT", default=None)
_OutputT = TypeVar("_OutputT", default=str)

@dataclass(frozen=True, kw_only=True)
class Stranded:
    run_id: str
    status: str
    drifts: tuple[Drift, ...] = ()
    error: StoreError | None = None

async def check(
    agent: Agent[_DepsT, _OutputT], store: Store, /, **options: Unpack[Options[_DepsT]]
) -> tuple[Stranded, ...]: ...
def follow(
    store: Store, run_id: str, *, after: int = 0, clock: Clock | None = None
) -> AsyncIterator[Event]: ...
