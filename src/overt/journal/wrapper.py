"""A store that passes everything on to another one: what stores that add something derive from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from overt.journal.record import Record
from overt.journal.reports import Damage
from overt.journal.store import Change, Claim, OpenRequest, Owner, RunInfo, Store

__all__ = ("StoreWrapper",)


class StoreWrapper(Store):
    """Passes every call on to `inner`, with its errors. Derive from it and override what is to be different.

    Operations such as `pendings` and `export_run` are made of the calls of this store, so they see what it shows.
    `close` closes `inner`.
    """

    def __init__(self, inner: Store) -> None:
        self.inner: Final[Store] = inner

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    async def create(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        agent: str,
        owner: Owner,
        now: datetime,
        until: datetime,
    ) -> Claim:
        """`create` of the inner store."""
        return await self.inner.create(run_id, records, agent=agent, owner=owner, now=now, until=until)

    async def append(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        after: int,
        epoch: int,
        change: Change,
        release: bool = False,
    ) -> str | None:
        """`append` of the inner store."""
        return await self.inner.append(
            run_id, records, after=after, epoch=epoch, change=change, release=release
        )

    async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]:
        """`read` of the inner store."""
        return await self.inner.read(run_id, after=after)

    async def info(self, run_id: str) -> RunInfo:
        """`info` of the inner store."""
        return await self.inner.info(run_id)

    async def claim(
        self, run_id: str, *, owner: Owner, now: datetime, until: datetime, force: bool = False
    ) -> Claim:
        """`claim` of the inner store."""
        return await self.inner.claim(run_id, owner=owner, now=now, until=until, force=force)

    async def renew(self, run_id: str, *, epoch: int, until: datetime) -> str | None:
        """`renew` of the inner store."""
        return await self.inner.renew(run_id, epoch=epoch, until=until)

    async def release(self, run_id: str, *, epoch: int) -> None:
        """`release` of the inner store."""
        await self.inner.release(run_id, epoch=epoch)

    async def runs(
        self,
        *,
        status: str | Collection[str] | None = None,
        agent: str | None = None,
        older_than: datetime | None = None,
        limit: int | None = None,
    ) -> Sequence[RunInfo]:
        """`runs` of the inner store."""
        return await self.inner.runs(status=status, agent=agent, older_than=older_than, limit=limit)

    async def open_requests(
        self,
        *,
        run_id: str | None = None,
        kind: str | None = None,
        agent: str | None = None,
        older_than: datetime | None = None,
        due: datetime | None = None,
        limit: int | None = None,
    ) -> Sequence[OpenRequest]:
        """`open_requests` of the inner store."""
        return await self.inner.open_requests(
            run_id=run_id, kind=kind, agent=agent, older_than=older_than, due=due, limit=limit
        )

    async def ask_interrupt(self, run_id: str, *, reason: str = "") -> None:
        """`ask_interrupt` of the inner store."""
        await self.inner.ask_interrupt(run_id, reason=reason)

    async def delete(self, run_id: str, *, now: datetime, force: bool = False) -> None:
        """`delete` of the inner store."""
        await self.inner.delete(run_id, now=now, force=force)

    async def wait(self, run_id: str, *, after: int, timeout: float | None = None) -> int:
        """`wait` of the inner store."""
        return await self.inner.wait(run_id, after=after, timeout=timeout)

    async def _verify_file(self) -> Sequence[Damage]:
        return await self.inner._verify_file()

    async def close(self) -> None:
        """`close` of the inner store."""
        await self.inner.close()
