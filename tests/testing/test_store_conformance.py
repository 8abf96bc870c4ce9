"""The conformance checks find what is wrong with a store."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import cast

import anyio.lowlevel
import pytest

from overt.errors import RunConflict, RunExists, StoreError
from overt.journal.record import Record
from overt.journal.store import Change, Claim, Owner, RunInfo
from overt.journal.wrapper import StoreWrapper
from overt.stores import MemoryStore, SQLiteStore, Store
from overt.testing import STORE_CHECKS, STORE_REOPEN_CHECKS, store_conformance
from overt.testing._store_lists import OPERATIONS

pytestmark = pytest.mark.anyio


class Sound(StoreWrapper):
    """Passes everything on; each store below breaks one thing of it."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())


class ReloadsStaleWrites(Sound):
    """Appends at the end whatever position the caller knew."""

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
        end = (await self.info(run_id)).position
        moved = [Record(one.position - after + end, one.count, text=one.text) for one in records]
        return await self.inner.append(run_id, moved, after=end, epoch=epoch, change=change, release=release)


class IgnoresEpochs(Sound):
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
        latest = (await self.info(run_id)).epoch
        return await self.inner.append(
            run_id, records, after=after, epoch=latest, change=change, release=release
        )


class AppendsOneByOne(Sound):
    """Writes each record by itself, with a cancellation point between."""

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
        if not records:
            return await self.inner.append(
                run_id, (), after=after, epoch=epoch, change=change, release=release
            )
        mark: str | None = None
        for place, one in enumerate(records, start=1):
            end = place == len(records)
            mark = await self.inner.append(
                run_id, [one], after=after, epoch=epoch, change=change, release=release and end
            )
            after += one.count
            await anyio.lowlevel.checkpoint()
        return mark


class ForgetsToRelease(Sound):
    async def release(self, run_id: str, *, epoch: int) -> None:
        pass


class ReleasesAnyEpoch(Sound):
    async def release(self, run_id: str, *, epoch: int) -> None:
        try:
            latest = (await self.info(run_id)).epoch
        except StoreError:
            latest = epoch
        await self.inner.release(run_id, epoch=latest)


class BreaksEveryClaim(Sound):
    async def claim(
        self, run_id: str, *, owner: Owner, now: datetime, until: datetime, force: bool = False
    ) -> Claim:
        return await self.inner.claim(run_id, owner=owner, now=now, until=until, force=True)


class RoundsTimes(Sound):
    """Keeps milliseconds."""

    async def renew(self, run_id: str, *, epoch: int, until: datetime) -> str | None:
        short = until - timedelta(microseconds=until.microsecond % 1000)
        return await self.inner.renew(run_id, epoch=epoch, until=short)


class SeesNoDeath(Sound):
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
        return await self.inner.create(
            run_id, records, agent=agent, owner=replace(owner, host=""), now=now, until=until
        )


class CutsAtNul(Sound):
    async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]:
        records = await self.inner.read(run_id, after=after)
        return [Record(one.position, one.count, text=one.text.split("\0")[0]) for one in records]


class ReadsByBeginning(Sound):
    """Leaves out a record that begins before `after` and ends after it."""

    async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]:
        return [one for one in await self.inner.read(run_id, after=after) if one.position > after]


class ReadsBackwards(Sound):
    async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]:
        return list(reversed(await self.inner.read(run_id, after=after)))


class CreatesAgain(Sound):
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
        try:
            return await self.inner.create(run_id, records, agent=agent, owner=owner, now=now, until=until)
        except RunExists:
            return Claim(epoch=1, until=until)


class RenewsForAnyone(Sound):
    async def renew(self, run_id: str, *, epoch: int, until: datetime) -> str | None:
        try:
            return await self.inner.renew(run_id, epoch=epoch, until=until)
        except RunConflict:
            return None


class KeepsSettledRequests(Sound):
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
        kept = replace(change, settled=())
        return await self.inner.append(
            run_id, records, after=after, epoch=epoch, change=kept, release=release
        )


class ListsByName(Sound):
    async def runs(
        self,
        *,
        status: str | Collection[str] | None = None,
        agent: str | None = None,
        older_than: datetime | None = None,
        limit: int | None = None,
    ) -> Sequence[RunInfo]:
        found = await self.inner.runs(status=status, agent=agent, older_than=older_than)
        return sorted(found, key=lambda info: info.run_id)[:limit]


class DropsTheMark(Sound):
    async def claim(
        self, run_id: str, *, owner: Owner, now: datetime, until: datetime, force: bool = False
    ) -> Claim:
        claim = await self.inner.claim(run_id, owner=owner, now=now, until=until, force=force)
        return replace(claim, interrupt=None)


class DeletesWhatIsDriven(Sound):
    async def delete(self, run_id: str, *, now: datetime, force: bool = False) -> None:
        await self.inner.delete(run_id, now=now, force=True)


class NamesAnotherHolder(Sound):
    async def info(self, run_id: str) -> RunInfo:
        return replace(await self.inner.info(run_id), holder=Owner(id="somebody"))


class NeverCloses(Sound):
    async def close(self) -> None:
        pass


async def failures(make: type[Sound]) -> list[str]:
    failed: list[str] = []
    for check in STORE_CHECKS:
        try:
            await check(make)
        except AssertionError as error:
            failed.append(f"{check.name}: {error}")
    return failed


async def test_a_sound_store_passes() -> None:
    assert await failures(Sound) == []


@pytest.mark.parametrize(
    "broken",
    [
        ReloadsStaleWrites,
        IgnoresEpochs,
        AppendsOneByOne,
        ForgetsToRelease,
        ReleasesAnyEpoch,
        BreaksEveryClaim,
        RoundsTimes,
        SeesNoDeath,
        CutsAtNul,
        ReadsByBeginning,
        ReadsBackwards,
        CreatesAgain,
        RenewsForAnyone,
        NeverCloses,
        KeepsSettledRequests,
        ListsByName,
        DropsTheMark,
        DeletesWhatIsDriven,
        NamesAnotherHolder,
    ],
)
async def test_a_broken_store_is_found(broken: type[Sound]) -> None:
    assert await failures(broken) != []


async def test_a_store_that_does_not_derive_is_told_to() -> None:
    """A class that only has the methods that store; what derives from `Store` has the others."""

    class Alone:
        def __init__(self) -> None:
            self.inner = MemoryStore()

        def __getattr__(self, name: str) -> object:
            if name in OPERATIONS:
                raise AttributeError(name)
            return getattr(self.inner, name)

    def make() -> Store:
        return cast("Store", Alone())

    (check,) = (one for one in STORE_CHECKS if one.name == "has_the_operations")
    with pytest.raises(AssertionError, match=r"no pendings, .*: derive from overt\.stores\.Store"):
        await check(make)


async def test_the_whole_kit_names_the_check_that_fails() -> None:
    await store_conformance(Sound)
    with pytest.raises(AssertionError, match=r"^releases"):
        await store_conformance(ForgetsToRelease)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # both loops: tests/journal/test_conformance.py
async def test_the_whole_kit_opens_the_journals_again(tmp_path: Path) -> None:
    numbers = itertools.count()
    reopened: list[Path] = []

    def make() -> Store:
        return SQLiteStore(tmp_path / f"{next(numbers)}.db")

    def reopen(store: Store) -> Store:
        assert isinstance(store, SQLiteStore)
        reopened.append(store.path)
        return SQLiteStore(store.path)

    await store_conformance(make, reopen=reopen)
    assert len(set(reopened)) == len(STORE_REOPEN_CHECKS)
    assert next(numbers) == len(STORE_CHECKS) + len(STORE_REOPEN_CHECKS)


async def test_reopening_something_else_is_found() -> None:
    with pytest.raises(AssertionError):
        await store_conformance(Sound, reopen=lambda _: Sound())
