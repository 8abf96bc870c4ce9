"""What is asked of a [`Store`][overt.stores.Store], as checks to run on any implementation.

With pytest and anyio's plugin, on asyncio and trio:

```python
import pytest
from overt.testing.store_conformance import CHECKS, REOPEN_CHECKS, StoreCheck


@pytest.mark.anyio
@pytest.mark.parametrize("check", (*CHECKS, *REOPEN_CHECKS), ids=str)
async def test_my_store(check: StoreCheck, tmp_path):
    path = tmp_path / "runs.db"
    await check(lambda: MyStore(path), reopen=lambda: MyStore(path))
```

A store that outlives nothing runs `CHECKS` alone and needs no `reopen`. Nothing here needs pytest: a check that fails
raises `AssertionError` with what was expected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Final, TypeVar, final

import anyio
from anyio.lowlevel import checkpoint

from overt.errors import RunConflict, RunExists, RunNotFound, StoreError
from overt.journal.owner import owner_here
from overt.journal.record import Record
from overt.journal.store import Owner, RunInfo, Store

__all__ = ("CHECKS", "REOPEN_CHECKS", "StoreCheck")

E = TypeVar("E", bound=BaseException)

_NOW = datetime(2024, 2, 29, 23, 59, 59, 123457, tzinfo=UTC)
_UNTIL = _NOW + timedelta(seconds=30)
_ALICE = Owner(id="alice")
_BOB = Owner(id="bob")

_Body = Callable[[Store, Callable[[], Store]], Awaitable[None]]


@final
class StoreCheck:
    """One thing asked of a store. `str` of it is its name; calling it checks one fresh store.

    Attributes:
        name: What is asked, as an identifier.
        needs_reopen: Whether it opens the same journals a second time.
    """

    __slots__ = ("_body", "name", "needs_reopen")

    def __init__(self, body: _Body, *, needs_reopen: bool) -> None:
        self.name: Final = body.__name__.strip("_") if hasattr(body, "__name__") else repr(body)
        self.needs_reopen: Final = needs_reopen
        self._body: Final = body

    def __repr__(self) -> str:
        return self.name

    async def __call__(self, make_store: Callable[[], Store], *, reopen: Callable[[], Store] | None = None) -> None:
        """Check a store and close it.

        Args:
            make_store: Makes a store without runs; called once.
            reopen: Makes another store over the same journals, as another process would, while the first is open or
                after it was closed. Needed by `REOPEN_CHECKS` only.

        Raises:
            AssertionError: The store does not do what is asked.
            TypeError: The check needs `reopen`, and none was given.
        """
        opened: list[Store] = []

        def again() -> Store:
            if reopen is None:
                raise TypeError(f"the check {self.name!r} needs reopen=")
            opened.append(reopen())
            return opened[-1]

        if self.needs_reopen and reopen is None:
            raise TypeError(f"the check {self.name!r} needs reopen=")
        store = make_store()
        opened.append(store)
        try:
            await self._body(store, again)
        finally:
            with anyio.CancelScope(shield=True):
                for one in reversed(opened):
                    await one.close()


def _expect(actual: object, expected: object, what: str) -> None:
    if actual != expected:
        raise AssertionError(f"{what}: expected {expected!r}, found {actual!r}")


async def _refused(kind: type[E], what: str, call: Awaitable[object]) -> E:
    try:
        await call
    except kind as error:
        return error
    raise AssertionError(f"{what}: expected {kind.__name__}, but it was done")


def _records(first: int, *texts: str) -> list[Record]:
    return [Record(first + place, 1, text=text) for place, text in enumerate(texts)]


async def _create(store: Store, run_id: str, *texts: str, owner: Owner = _ALICE) -> int:
    records = _records(1, *texts)
    claim = await store.create(run_id, records, agent="agent", owner=owner, now=_NOW, until=_UNTIL)
    return claim.epoch


async def _texts(store: Store, run_id: str, *, after: int = 0) -> list[str]:
    return [record.text for record in await store.read(run_id, after=after)]


async def _together(calls: Sequence[Callable[[], Awaitable[object]]]) -> list[StoreError]:
    """Await all calls at once and return the errors of the refused ones."""
    refused: list[StoreError] = []

    async def one(call: Callable[[], Awaitable[object]]) -> None:
        try:
            await call()
        except StoreError as error:
            refused.append(error)

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(one, call)
    return refused


async def _creates_and_reads(store: Store, _: Callable[[], Store]) -> None:
    claim = await store.create("run", _records(1, "a", "b"), agent="poet", owner=_ALICE, now=_NOW, until=_UNTIL)
    _expect((claim.epoch, claim.until), (1, _UNTIL), "claim of create")
    read = await store.read("run")
    _expect([(one.position, one.count, one.text) for one in read], [(1, 1, "a"), (2, 1, "b")], "records")
    info = await store.info("run")
    expected = RunInfo(run_id="run", position=2, epoch=1, owner="alice", until=_UNTIL, status="", agent="poet")
    _expect(info, expected, "info after create")


async def _creates_without_records(store: Store, _: Callable[[], Store]) -> None:
    epoch = await _create(store, "run")
    _expect(list(await store.read("run")), [], "records of an empty journal")
    _expect((await store.info("run")).position, 0, "position of an empty journal")
    await store.append("run", _records(1, "a"), after=0, epoch=epoch, status="running")
    _expect(await _texts(store, "run"), ["a"], "records")


async def _refuses_an_existing_run(store: Store, _: Callable[[], Store]) -> None:
    await _create(store, "run", "a")
    await _refused(RunExists, "second create", _create(store, "run", "other", owner=_BOB))
    _expect(await _texts(store, "run"), ["a"], "records after the refused create")
    _expect((await store.info("run")).owner, "alice", "owner after the refused create")


async def _names_unknown_runs(store: Store, _: Callable[[], Store]) -> None:
    await _create(store, "other", "a")
    await _refused(RunNotFound, "read", store.read("run"))
    await _refused(RunNotFound, "info", store.info("run"))
    await _refused(RunNotFound, "claim", store.claim("run", owner=_ALICE, now=_NOW, until=_UNTIL))
    await _refused(RunNotFound, "renew", store.renew("run", epoch=1, until=_UNTIL))
    await _refused(RunNotFound, "append", store.append("run", _records(1, "a"), after=0, epoch=1, status="running"))
    await store.release("run", epoch=1)
    await _refused(RunNotFound, "info after release of an unknown run", store.info("run"))


async def _keeps_runs_apart(store: Store, _: Callable[[], Store]) -> None:
    names = ["run", "Run", "run ", "rün", "ru\0n", "r%", "r_n", "'; --", "🏃", "x" * 500]
    for name in names:
        await _create(store, name, name)
    for name in names:
        _expect(await _texts(store, name), [name], f"records of {name!r}")


async def _compares_the_position(store: Store, _: Callable[[], Store]) -> None:
    epoch = await _create(store, "run", "a")
    await store.append("run", _records(2, "b"), after=1, epoch=epoch, status="running")
    for after in (0, 1, 3):
        call = store.append("run", _records(after + 1, "x"), after=after, epoch=epoch, status="failed")
        conflict = await _refused(RunConflict, f"append after {after}", call)
        _expect(conflict.owner, None, "owner where only the position differs")
    await _refused(RunConflict, "append of nothing", store.append("run", (), after=1, epoch=epoch, status="failed"))
    _expect(await _texts(store, "run"), ["a", "b"], "records after refused appends")
    info = await store.info("run")
    _expect((info.position, info.status), (2, "running"), "info after refused appends")


async def _refuses_gaps_and_overlaps(store: Store, _: Callable[[], Store]) -> None:
    epoch = await _create(store, "run", "a")
    for positions in ((3,), (1,), (2, 4), (2, 2), (2, 1)):
        records = [Record(position, 1, text="x") for position in positions]
        call = store.append("run", records, after=1, epoch=epoch, status="failed")
        await _refused(StoreError, f"append of positions {positions}", call)
    empty = [Record(2, 0, text="x")]
    await _refused(StoreError, "record of no facts", store.append("run", empty, after=1, epoch=epoch, status="failed"))
    late = store.create("late", _records(2, "x"), agent="", owner=_ALICE, now=_NOW, until=_UNTIL)
    await _refused(StoreError, "create at position 2", late)
    await _refused(RunNotFound, "run of the refused create", store.info("late"))
    _expect(await _texts(store, "run"), ["a"], "records after refused appends")
    _expect((await store.info("run")).position, 1, "position after refused appends")


async def _appends_all_or_nothing(store: Store, _: Callable[[], Store]) -> None:
    epoch = await _create(store, "run")
    await store.append("run", _records(1, "a", "b", "c"), after=0, epoch=epoch, status="running")
    await _refused(
        RunConflict,
        "stale append of three",
        store.append("run", _records(3, "x", "y", "z"), after=2, epoch=epoch, status="running"),
    )
    broken = [*_records(4, "d", "e"), Record(7, 1, text="g")]
    await _refused(StoreError, "append with a gap", store.append("run", broken, after=3, epoch=epoch, status="running"))
    _expect(await _texts(store, "run"), ["a", "b", "c"], "records after refused appends")


async def _reads_after_a_position(store: Store, _: Callable[[], Store]) -> None:
    epoch = await _create(store, "run", "1")
    counted = [Record(2, 3, text="2-4"), Record(5, 1, text="5"), Record(6, 2, text="6-7")]
    await store.append("run", counted, after=1, epoch=epoch, status="running")
    for after, expected in (
        (0, ["1", "2-4", "5", "6-7"]),
        (1, ["2-4", "5", "6-7"]),
        (2, ["2-4", "5", "6-7"]),
        (3, ["2-4", "5", "6-7"]),
        (4, ["5", "6-7"]),
        (5, ["6-7"]),
        (6, ["6-7"]),
        (7, []),
        (8, []),
    ):
        _expect(await _texts(store, "run", after=after), expected, f"records after {after}")
    _expect((await store.info("run")).position, 7, "position")


async def _keeps_the_order(store: Store, _: Callable[[], Store]) -> None:
    epoch = await _create(store, "run")
    for position in range(1, 121):
        record = Record(position, 1, text=f"{position:x}")
        await store.append("run", [record], after=position - 1, epoch=epoch, status="running")
    read = await store.read("run")
    _expect([one.position for one in read], list(range(1, 121)), "positions")
    _expect([one.text for one in read], [f"{position:x}" for position in range(1, 121)], "texts")


async def _writes_the_status(store: Store, _: Callable[[], Store]) -> None:
    epoch = await _create(store, "run", "a")
    await store.append("run", (), after=1, epoch=epoch, status="parked")
    info = await store.info("run")
    _expect((info.position, info.status, info.owner), (1, "parked", "alice"), "info after an append of nothing")


async def _fences_an_older_epoch(store: Store, _: Callable[[], Store]) -> None:
    first = await _create(store, "run", "a")
    second = await store.claim("run", owner=_BOB, now=_NOW, until=_UNTIL, force=True)
    _expect(second.epoch, first + 1, "epoch of the second claim")
    call = store.append("run", _records(2, "stale"), after=1, epoch=first, status="failed")
    conflict = await _refused(RunConflict, "append under the older epoch", call)
    _expect((conflict.owner, conflict.until), ("bob", _UNTIL), "who is said to hold the run")
    await _refused(RunConflict, "renewal of the older epoch", store.renew("run", epoch=first, until=_UNTIL))
    await store.release("run", epoch=first)
    _expect((await store.info("run")).owner, "bob", "owner after the older epoch was released")
    await store.append("run", _records(2, "b"), after=1, epoch=second.epoch, status="running")
    _expect(await _texts(store, "run"), ["a", "b"], "records")
    future = store.append("run", _records(3, "x"), after=2, epoch=second.epoch + 1, status="failed")
    await _refused(RunConflict, "append under an epoch that was never given", future)


async def _releases(store: Store, _: Callable[[], Store]) -> None:
    epoch = await _create(store, "run", "a")
    await store.release("run", epoch=epoch)
    info = await store.info("run")
    _expect((info.owner, info.until, info.epoch), (None, None, epoch), "info after release")
    call = store.append("run", _records(2, "x"), after=1, epoch=epoch, status="failed")
    await _refused(RunConflict, "append under the released claim", call)
    await _refused(RunConflict, "renewal of the released claim", store.renew("run", epoch=epoch, until=_UNTIL))
    await store.release("run", epoch=epoch)
    again = await store.claim("run", owner=_BOB, now=_NOW, until=_UNTIL)
    _expect(again.epoch, epoch + 1, "epoch after release")


async def _releases_with_an_append(store: Store, _: Callable[[], Store]) -> None:
    epoch = await _create(store, "run", "a")
    stale = store.append("run", _records(1, "x"), after=0, epoch=epoch, status="failed", release=True)
    await _refused(RunConflict, "stale append that releases", stale)
    _expect((await store.info("run")).owner, "alice", "owner after the refused append")
    await store.append("run", _records(2, "b"), after=1, epoch=epoch, status="done", release=True)
    info = await store.info("run")
    _expect((info.position, info.status, info.owner, info.until), (2, "done", None, None), "info")
    call = store.append("run", _records(3, "x"), after=2, epoch=epoch, status="failed")
    await _refused(RunConflict, "append under the released claim", call)


async def _holds_a_claim_until_it_expires(store: Store, _: Callable[[], Store]) -> None:
    await _create(store, "run", "a")
    early = _UNTIL - timedelta(microseconds=1)
    call = store.claim("run", owner=_BOB, now=early, until=early + timedelta(seconds=30))
    conflict = await _refused(RunConflict, "claim a microsecond too early", call)
    _expect((conflict.owner, conflict.until), ("alice", _UNTIL), "who is said to hold the run")
    _expect((await store.info("run")).epoch, 1, "epoch after the refused claim")
    end = _UNTIL + timedelta(seconds=30)
    claim = await store.claim("run", owner=_BOB, now=_UNTIL, until=end)
    _expect((claim.epoch, claim.until), (2, end), "claim of an expired run")
    info = await store.info("run")
    _expect((info.owner, info.until), ("bob", end), "info after the claim")


async def _takes_the_claim_of_the_same_owner(store: Store, _: Callable[[], Store]) -> None:
    epoch = await _create(store, "run", "a")
    claim = await store.claim("run", owner=_ALICE, now=_NOW, until=_UNTIL)
    _expect(claim.epoch, epoch + 1, "epoch of the second claim of one owner")


async def _lets_an_expired_claim_go_on(store: Store, _: Callable[[], Store]) -> None:
    epoch = await _create(store, "run", "a")
    info = await store.info("run")
    _expect(info.until, _UNTIL, "end of the claim")
    # The store has no clock: only a later claim fences.
    await store.append("run", _records(2, "b"), after=1, epoch=epoch, status="running")
    await store.renew("run", epoch=epoch, until=_UNTIL + timedelta(days=1))
    _expect(await _texts(store, "run"), ["a", "b"], "records")


async def _renews(store: Store, _: Callable[[], Store]) -> None:
    epoch = await _create(store, "run", "a")
    later = _UNTIL + timedelta(seconds=30, microseconds=1)
    await store.renew("run", epoch=epoch, until=later)
    info = await store.info("run")
    _expect((info.until, info.epoch, info.position), (later, epoch, 1), "info after renewal")
    call = store.claim("run", owner=_BOB, now=_UNTIL, until=later)
    await _refused(RunConflict, "claim of a renewed run", call)


async def _compares_times_of_any_zone(store: Store, _: Callable[[], Store]) -> None:
    await _create(store, "run", "a")
    zone = timezone(timedelta(hours=-9, minutes=-30))
    early = (_UNTIL - timedelta(microseconds=1)).astimezone(zone)
    await _refused(RunConflict, "claim too early", store.claim("run", owner=_BOB, now=early, until=_UNTIL))
    await store.claim("run", owner=_BOB, now=_UNTIL.astimezone(zone), until=_UNTIL.astimezone(zone))
    found = (await store.info("run")).until
    _expect(found, _UNTIL, "end of the claim")
    _expect(found is not None and found.utcoffset() is not None, True, "the end of the claim is aware")


async def _voids_the_claim_of_a_dead_process(store: Store, _: Callable[[], Store]) -> None:
    me = owner_here()
    await _create(store, "living", "a", owner=me)
    await _refused(RunConflict, "claim of a living process", store.claim("living", owner=_BOB, now=_NOW, until=_UNTIL))
    await _create(store, "elsewhere", "a", owner=replace(me, host="elsewhere", started="0"))
    await _refused(
        RunConflict, "claim of another machine", store.claim("elsewhere", owner=_BOB, now=_NOW, until=_UNTIL)
    )
    if me.started:
        # No process of this number started then: it has ended, and its number was given out again.
        await _create(store, "dead", "a", owner=replace(me, id="dead", started="0"))
        claim = await store.claim("dead", owner=_BOB, now=_NOW, until=_UNTIL)
        _expect(claim.epoch, 2, "epoch of the claim after a dead process")


async def _keeps_every_text(store: Store, _: Callable[[], Store]) -> None:
    texts = [
        "",
        "\0",
        "a\0b\0",
        " \t\r\n\x0b\x85\u2028\u2029 ",
        "\ufeffmark",
        "'\"\\%_;--",
        "e\u0301 \xe9",
        "\u202eright to left\u202c שלום",
        "👩‍👩‍👧 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
        "\ud7ff\ue000\ufffd\ufffe\uffff\U00010000\U0010ffff",
        "".join(map(chr, range(256))),
        '{"key": "\\u0000\\ud83d\\ude00"}',
        "0012",
        "1e5",
        "NULL",
    ]
    epoch = await _create(store, "run", *texts)
    await store.append("run", _records(len(texts) + 1, *texts), after=len(texts), epoch=epoch, status="running")
    read = await _texts(store, "run")
    _expect(len(read), 2 * len(texts), "number of records")
    for expected, found in zip([*texts, *texts], read, strict=True):
        _expect(found, expected, "text")


async def _keeps_large_texts(store: Store, _: Callable[[], Store]) -> None:
    large = "0123456789é\0" * 840_000
    epoch = await _create(store, "run", "small")
    await store.append("run", _records(2, large, "end"), after=1, epoch=epoch, status="running")
    read = await _texts(store, "run")
    if read != ["small", large, "end"]:
        raise AssertionError("a text of 10 MB came back changed")


async def _lets_one_of_many_win(store: Store, _: Callable[[], Store]) -> None:
    epoch = await _create(store, "run", "a")

    def append(text: str, position: int) -> Callable[[], Awaitable[object]]:
        records = _records(position, text)
        return lambda: store.append("run", records, after=position - 1, epoch=epoch, status="running")

    for position in (2, 3, 4):
        refused = await _together([append(f"{position}-{n}", position) for n in range(20)])
        _expect([type(one) for one in refused], [RunConflict] * 19, "errors of the losers")
        _expect((await store.info("run")).position, position, "position")
    read = await _texts(store, "run")
    _expect(len(read), 4, "number of records")


async def _appends_many_runs_at_once(store: Store, _: Callable[[], Store]) -> None:
    names = [f"run-{n}" for n in range(30)]

    def drive(name: str) -> Callable[[], Awaitable[object]]:
        async def steps() -> None:
            epoch = await _create(store, name, f"{name}: 1")
            for position in range(2, 7):
                records = _records(position, f"{name}: {position}")
                await store.append(name, records, after=position - 1, epoch=epoch, status="running")
                # A neighbour that is refused must not take these with it.
                stale = store.append(name, records, after=position - 1, epoch=epoch, status="failed")
                await _refused(RunConflict, "append twice", stale)

        return steps

    _expect(await _together([drive(name) for name in names]), [], "errors")
    for name in names:
        _expect(await _texts(store, name), [f"{name}: {n}" for n in range(1, 7)], f"records of {name}")


async def _lets_one_of_many_create(store: Store, _: Callable[[], Store]) -> None:
    def create(n: int) -> Callable[[], Awaitable[object]]:
        return lambda: _create(store, "run", str(n), owner=Owner(id=f"owner-{n}"))

    refused = await _together([create(n) for n in range(20)])
    _expect([type(one) for one in refused], [RunExists] * 19, "errors of the losers")
    winner = await _texts(store, "run")
    _expect((await store.info("run")).owner, f"owner-{winner[0]}", "owner and records are of one create")


async def _lets_one_of_many_claim(store: Store, _: Callable[[], Store]) -> None:
    epoch = await _create(store, "run", "a")
    await store.release("run", epoch=epoch)

    def claim(n: int) -> Callable[[], Awaitable[object]]:
        return lambda: store.claim("run", owner=Owner(id=f"owner-{n}"), now=_NOW, until=_UNTIL)

    refused = await _together([claim(n) for n in range(20)])
    _expect([type(one) for one in refused], [RunConflict] * 19, "errors of the losers")
    _expect((await store.info("run")).epoch, epoch + 1, "epoch")


async def _is_whole_after_cancellation(store: Store, _: Callable[[], Store]) -> None:
    epoch = await _create(store, "run", "a")
    last = 1
    for patience in range(12):
        records = _records(last + 1, f"{patience}: first", f"{patience}: second")
        scope = anyio.CancelScope()

        async def append(records: list[Record] = records, scope: anyio.CancelScope = scope, after: int = last) -> None:
            with scope:
                await store.append("run", records, after=after, epoch=epoch, status="running")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append)
            for _turn in range(patience):
                await checkpoint()
            scope.cancel()
        position = (await store.info("run")).position
        if position not in (last, last + 2):
            raise AssertionError(f"half an append is in the store: position {position} after {last}")
        read = await store.read("run", after=last)
        _expect([one.text for one in read], [one.text for one in records] if position > last else [], "records")
        last = position
    await store.append("run", _records(last + 1, "end"), after=last, epoch=epoch, status="running")
    _expect((await _texts(store, "run"))[-1], "end", "the store goes on after cancellations")


async def _refuses_use_after_close(store: Store, _: Callable[[], Store]) -> None:
    epoch = await _create(store, "run", "a")
    await store.close()
    await _refused(StoreError, "create after close", _create(store, "other", "a"))
    call = store.append("run", _records(2, "b"), after=1, epoch=epoch, status="running")
    await _refused(StoreError, "append after close", call)
    await _refused(StoreError, "read after close", store.read("run"))
    await _refused(StoreError, "info after close", store.info("run"))
    await _refused(StoreError, "claim after close", store.claim("run", owner=_BOB, now=_NOW, until=_UNTIL))
    await _refused(StoreError, "renew after close", store.renew("run", epoch=epoch, until=_UNTIL))
    await _refused(StoreError, "release after close", store.release("run", epoch=epoch))
    await store.close()


async def _closes_unused(store: Store, _: Callable[[], Store]) -> None:
    await store.close()
    await _refused(StoreError, "info after close", store.info("run"))


async def _survives_close(store: Store, reopen: Callable[[], Store]) -> None:
    epoch = await _create(store, "run", "a", "\0é😀")
    await store.append("run", [Record(3, 4, text="c")], after=2, epoch=epoch, status="parked")
    info = await store.info("run")
    await store.close()
    again = reopen()
    _expect(await again.info("run"), info, "info after reopening")
    read = [(one.position, one.count, one.text) for one in await again.read("run")]
    _expect(read, [(1, 1, "a"), (2, 1, "\0é😀"), (3, 4, "c")], "records after reopening")
    await again.append("run", _records(7, "d"), after=6, epoch=epoch, status="running")
    _expect(await _texts(again, "run", after=6), ["d"], "records appended after reopening")


async def _is_seen_by_a_second_store(store: Store, reopen: Callable[[], Store]) -> None:
    epoch = await _create(store, "run", "a")
    second = reopen()
    await _refused(RunExists, "create in the second store", _create(second, "run", "x"))
    _expect(await _texts(second, "run"), ["a"], "records in the second store")
    await store.append("run", _records(2, "b"), after=1, epoch=epoch, status="running")
    _expect(await _texts(second, "run"), ["a", "b"], "records in the second store")


async def _fences_a_second_store(store: Store, reopen: Callable[[], Store]) -> None:
    epoch = await _create(store, "run", "a")
    second = reopen()
    await _refused(RunConflict, "claim while held", second.claim("run", owner=_BOB, now=_NOW, until=_UNTIL))
    claim = await second.claim("run", owner=_BOB, now=_UNTIL, until=_UNTIL + timedelta(seconds=30))
    call = store.append("run", _records(2, "stale"), after=1, epoch=epoch, status="failed")
    await _refused(RunConflict, "append of the stalled driver", call)
    await second.append("run", _records(2, "b"), after=1, epoch=claim.epoch, status="running")
    _expect(await _texts(store, "run"), ["a", "b"], "records in the first store")


async def _lets_one_store_of_two_win(store: Store, reopen: Callable[[], Store]) -> None:
    epoch = await _create(store, "run", "a")
    second = reopen()

    def append(to: Store, position: int) -> Callable[[], Awaitable[object]]:
        records = _records(position, "x")
        return lambda: to.append("run", records, after=position - 1, epoch=epoch, status="running")

    for position in range(2, 12):
        refused = await _together([append(store, position), append(second, position)])
        _expect([type(one) for one in refused], [RunConflict], "errors of the loser")
    _expect((await second.info("run")).position, 11, "position")


CHECKS: Final[tuple[StoreCheck, ...]] = tuple(
    StoreCheck(body, needs_reopen=False)
    for body in (
        _creates_and_reads,
        _creates_without_records,
        _refuses_an_existing_run,
        _names_unknown_runs,
        _keeps_runs_apart,
        _compares_the_position,
        _refuses_gaps_and_overlaps,
        _appends_all_or_nothing,
        _reads_after_a_position,
        _keeps_the_order,
        _writes_the_status,
        _fences_an_older_epoch,
        _releases,
        _releases_with_an_append,
        _holds_a_claim_until_it_expires,
        _takes_the_claim_of_the_same_owner,
        _lets_an_expired_claim_go_on,
        _renews,
        _compares_times_of_any_zone,
        _voids_the_claim_of_a_dead_process,
        _keeps_every_text,
        _keeps_large_texts,
        _lets_one_of_many_win,
        _appends_many_runs_at_once,
        _lets_one_of_many_create,
        _lets_one_of_many_claim,
        _is_whole_after_cancellation,
        _refuses_use_after_close,
        _closes_unused,
    )
)
"""Asked of every store."""

REOPEN_CHECKS: Final[tuple[StoreCheck, ...]] = tuple(
    StoreCheck(body, needs_reopen=True)
    for body in (_survives_close, _is_seen_by_a_second_store, _fences_a_second_store, _lets_one_store_of_two_win)
)
"""Asked of stores whose journals other processes open, too; they need `reopen`."""
