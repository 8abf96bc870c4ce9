"""Stores that look on, and stores that fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from overt.core import facts as f
from overt.errors import StoreError
from overt.journal.codec import decode
from overt.journal.record import Record
from overt.journal.store import Claim, Store
from overt.journal.wrapper import StoreWrapper

Look = Callable[[list[f.Fact]], Awaitable[None]]


async def nothing(_: list[f.Fact]) -> None:
    """Look away."""


class Watched(StoreWrapper):
    """Passes everything on and calls `before` and `after` each append, with the facts of it."""

    def __init__(self, inner: Store, *, before: Look = nothing, after: Look = nothing) -> None:
        super().__init__(inner)
        self.before = before
        self.after = after
        self.durable: list[f.Fact] = []
        """What has been appended through here."""

    async def create(self, run_id: str, records: Sequence[Record], **options: Any) -> Claim:
        facts = _facts(run_id, records)
        await self.before(facts)
        claim = await self.inner.create(run_id, records, **options)
        self.durable += facts
        await self.after(facts)
        return claim

    async def append(self, run_id: str, records: Sequence[Record], **options: Any) -> str | None:
        facts = _facts(run_id, records)
        await self.before(facts)
        mark = await self.inner.append(run_id, records, **options)
        self.durable += facts
        await self.after(facts)
        return mark

    async def close(self) -> None:
        """Nothing: the inner store stays open."""


def _facts(run_id: str, records: Sequence[Record]) -> list[f.Fact]:
    return [x for rec in records for x in decode(run_id, Record(rec.position, rec.count, text=rec.text))[1]]


def failing(inner: Store, at: int) -> Watched:
    """A store whose n-th append fails, and no other."""
    count = 0

    async def before(_: list[f.Fact]) -> None:
        nonlocal count
        count += 1
        if count == at:
            raise StoreError("the disk is full")

    return Watched(inner, before=before)
