"""What is asked of a [`Store`][overt.stores.Store], as checks to run on any implementation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from overt.errors import RunConflict, RunExists, RunNotFound, StoreError
from overt.journal.owner import owner_here
from overt.journal.record import Record
from overt.journal.store import Owner, RunInfo, Store
from overt.testing._store_checks import (
    ALICE,
    BOB,
    NOW,
    UNTIL,
    StoreCheck,
    at_once,
    create_run,
    expect,
    expect_error,
    make_records,
    now_is,
    read_texts,
)
from overt.testing._store_lists import LIST_CHECKS, LIST_REOPEN_CHECKS

__all__ = ("STORE_CHECKS", "STORE_REOPEN_CHECKS", "StoreCheck", "store_conformance")


async def _creates_and_reads(store: Store, _: Callable[[], Store]) -> None:
    claim = await store.create(
        "run", make_records(1, "a", "b"), agent="poet", owner=ALICE, now=NOW, until=UNTIL
    )
    expect((claim.epoch, claim.until), (1, UNTIL), "claim of create")
    read = await store.read("run")
    expect([(one.position, one.count, one.text) for one in read], [(1, 1, "a"), (2, 1, "b")], "records")
    info = await store.info("run")
    expected = RunInfo(
        run_id="run",
        position=2,
        epoch=1,
        owner="alice",
        until=UNTIL,
        status="",
        agent="poet",
        created=NOW,
        updated=NOW,
    )
    expect(info, expected, "info after create")


async def _creates_without_records(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run")
    expect(list(await store.read("run")), [], "records of an empty journal")
    expect((await store.info("run")).position, 0, "position of an empty journal")
    await store.append("run", make_records(1, "a"), after=0, epoch=epoch, change=now_is("running"))
    expect(await read_texts(store, "run"), ["a"], "records")


async def _refuses_an_existing_run(store: Store, _: Callable[[], Store]) -> None:
    await create_run(store, "run", "a")
    await expect_error(RunExists, "second create", create_run(store, "run", "other", owner=BOB))
    expect(await read_texts(store, "run"), ["a"], "records after the refused create")
    expect((await store.info("run")).owner, "alice", "owner after the refused create")


async def _names_unknown_runs(store: Store, _: Callable[[], Store]) -> None:
    await create_run(store, "other", "a")
    await expect_error(RunNotFound, "read", store.read("run"))
    await expect_error(RunNotFound, "info", store.info("run"))
    await expect_error(RunNotFound, "claim", store.claim("run", owner=ALICE, now=NOW, until=UNTIL))
    await expect_error(RunNotFound, "renew", store.renew("run", epoch=1, until=UNTIL))
    await expect_error(
        RunNotFound,
        "append",
        store.append("run", make_records(1, "a"), after=0, epoch=1, change=now_is("running")),
    )
    await store.release("run", epoch=1)
    await expect_error(RunNotFound, "info after release of an unknown run", store.info("run"))


async def _keeps_runs_apart(store: Store, _: Callable[[], Store]) -> None:
    names = ["run", "Run", "run ", "rün", "ru\0n", "r%", "r_n", "'; --", "🏃", "x" * 500]
    for name in names:
        await create_run(store, name, name)
    for name in names:
        expect(await read_texts(store, name), [name], f"records of {name!r}")


async def _compares_the_position(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    await store.append("run", make_records(2, "b"), after=1, epoch=epoch, change=now_is("running"))
    for after in (0, 1, 3):
        call = store.append(
            "run", make_records(after + 1, "x"), after=after, epoch=epoch, change=now_is("failed")
        )
        conflict = await expect_error(RunConflict, f"append after {after}", call)
        expect(conflict.owner, None, "owner where only the position differs")
    await expect_error(
        RunConflict,
        "append of nothing",
        store.append("run", (), after=1, epoch=epoch, change=now_is("failed")),
    )
    expect(await read_texts(store, "run"), ["a", "b"], "records after refused appends")
    info = await store.info("run")
    expect((info.position, info.status), (2, "running"), "info after refused appends")


async def _refuses_gaps_and_overlaps(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    for positions in ((3,), (1,), (2, 4), (2, 2), (2, 1)):
        records = [Record(position, 1, text="x") for position in positions]
        call = store.append("run", records, after=1, epoch=epoch, change=now_is("failed"))
        await expect_error(StoreError, f"append of positions {positions}", call)
    empty = [Record(2, 0, text="x")]
    await expect_error(
        StoreError,
        "record of no facts",
        store.append("run", empty, after=1, epoch=epoch, change=now_is("failed")),
    )
    late = store.create("late", make_records(2, "x"), agent="", owner=ALICE, now=NOW, until=UNTIL)
    await expect_error(StoreError, "create at position 2", late)
    await expect_error(RunNotFound, "run of the refused create", store.info("late"))
    expect(await read_texts(store, "run"), ["a"], "records after refused appends")
    expect((await store.info("run")).position, 1, "position after refused appends")


async def _appends_all_or_nothing(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run")
    await store.append("run", make_records(1, "a", "b", "c"), after=0, epoch=epoch, change=now_is("running"))
    await expect_error(
        RunConflict,
        "stale append of three",
        store.append("run", make_records(3, "x", "y", "z"), after=2, epoch=epoch, change=now_is("running")),
    )
    broken = [*make_records(4, "d", "e"), Record(7, 1, text="g")]
    await expect_error(
        StoreError,
        "append with a gap",
        store.append("run", broken, after=3, epoch=epoch, change=now_is("running")),
    )
    expect(await read_texts(store, "run"), ["a", "b", "c"], "records after refused appends")


async def _reads_after_a_position(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "1")
    counted = [Record(2, 3, text="2-4"), Record(5, 1, text="5"), Record(6, 2, text="6-7")]
    await store.append("run", counted, after=1, epoch=epoch, change=now_is("running"))
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
        expect(await read_texts(store, "run", after=after), expected, f"records after {after}")
    expect((await store.info("run")).position, 7, "position")


async def _keeps_the_order(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run")
    for position in range(1, 121):
        record = Record(position, 1, text=f"{position:x}")
        await store.append("run", [record], after=position - 1, epoch=epoch, change=now_is("running"))
    read = await store.read("run")
    expect([one.position for one in read], list(range(1, 121)), "positions")
    expect([one.text for one in read], [f"{position:x}" for position in range(1, 121)], "texts")


async def _writes_the_status(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    await store.append("run", (), after=1, epoch=epoch, change=now_is("parked"))
    info = await store.info("run")
    expect(
        (info.position, info.status, info.owner), (1, "parked", "alice"), "info after an append of nothing"
    )


async def _fences_an_older_epoch(store: Store, _: Callable[[], Store]) -> None:
    first = await create_run(store, "run", "a")
    second = await store.claim("run", owner=BOB, now=NOW, until=UNTIL, force=True)
    expect(second.epoch, first + 1, "epoch of the second claim")
    call = store.append("run", make_records(2, "stale"), after=1, epoch=first, change=now_is("failed"))
    conflict = await expect_error(RunConflict, "append under the older epoch", call)
    expect((conflict.owner, conflict.until), ("bob", UNTIL), "who is said to hold the run")
    await expect_error(
        RunConflict, "renewal of the older epoch", store.renew("run", epoch=first, until=UNTIL)
    )
    await store.release("run", epoch=first)
    expect((await store.info("run")).owner, "bob", "owner after the older epoch was released")
    await store.append("run", make_records(2, "b"), after=1, epoch=second.epoch, change=now_is("running"))
    expect(await read_texts(store, "run"), ["a", "b"], "records")
    future = store.append(
        "run", make_records(3, "x"), after=2, epoch=second.epoch + 1, change=now_is("failed")
    )
    await expect_error(RunConflict, "append under an epoch that was never given", future)


async def _releases(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    await store.release("run", epoch=epoch)
    info = await store.info("run")
    expect((info.owner, info.until, info.epoch), (None, None, epoch), "info after release")
    call = store.append("run", make_records(2, "x"), after=1, epoch=epoch, change=now_is("failed"))
    await expect_error(RunConflict, "append under the released claim", call)
    await expect_error(
        RunConflict, "renewal of the released claim", store.renew("run", epoch=epoch, until=UNTIL)
    )
    await store.release("run", epoch=epoch)
    again = await store.claim("run", owner=BOB, now=NOW, until=UNTIL)
    expect(again.epoch, epoch + 1, "epoch after release")


async def _releases_with_an_append(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    stale = store.append(
        "run", make_records(1, "x"), after=0, epoch=epoch, change=now_is("failed"), release=True
    )
    await expect_error(RunConflict, "stale append that releases", stale)
    expect((await store.info("run")).owner, "alice", "owner after the refused append")
    await store.append("run", make_records(2, "b"), after=1, epoch=epoch, change=now_is("done"), release=True)
    info = await store.info("run")
    expect((info.position, info.status, info.owner, info.until), (2, "done", None, None), "info")
    call = store.append("run", make_records(3, "x"), after=2, epoch=epoch, change=now_is("failed"))
    await expect_error(RunConflict, "append under the released claim", call)


async def _holds_a_claim_until_it_expires(store: Store, _: Callable[[], Store]) -> None:
    await create_run(store, "run", "a")
    early = UNTIL - timedelta(microseconds=1)
    call = store.claim("run", owner=BOB, now=early, until=early + timedelta(seconds=30))
    conflict = await expect_error(RunConflict, "claim a microsecond too early", call)
    expect((conflict.owner, conflict.until), ("alice", UNTIL), "who is said to hold the run")
    expect((await store.info("run")).epoch, 1, "epoch after the refused claim")
    end = UNTIL + timedelta(seconds=30)
    claim = await store.claim("run", owner=BOB, now=UNTIL, until=end)
    expect((claim.epoch, claim.until), (2, end), "claim of an expired run")
    info = await store.info("run")
    expect((info.owner, info.until), ("bob", end), "info after the claim")


async def _takes_the_claim_of_the_same_owner(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    claim = await store.claim("run", owner=ALICE, now=NOW, until=UNTIL)
    expect(claim.epoch, epoch + 1, "epoch of the second claim of one owner")


async def _lets_an_expired_claim_go_on(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    info = await store.info("run")
    expect(info.until, UNTIL, "end of the claim")
    # The store has no clock: only a later claim fences.
    await store.append("run", make_records(2, "b"), after=1, epoch=epoch, change=now_is("running"))
    await store.renew("run", epoch=epoch, until=UNTIL + timedelta(days=1))
    expect(await read_texts(store, "run"), ["a", "b"], "records")


async def _renews(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    later = UNTIL + timedelta(seconds=30, microseconds=1)
    await store.renew("run", epoch=epoch, until=later)
    info = await store.info("run")
    expect((info.until, info.epoch, info.position), (later, epoch, 1), "info after renewal")
    call = store.claim("run", owner=BOB, now=UNTIL, until=later)
    await expect_error(RunConflict, "claim of a renewed run", call)


async def _compares_times_of_any_zone(store: Store, _: Callable[[], Store]) -> None:
    await create_run(store, "run", "a")
    zone = timezone(timedelta(hours=-9, minutes=-30))
    early = (UNTIL - timedelta(microseconds=1)).astimezone(zone)
    await expect_error(RunConflict, "claim too early", store.claim("run", owner=BOB, now=early, until=UNTIL))
    await store.claim("run", owner=BOB, now=UNTIL.astimezone(zone), until=UNTIL.astimezone(zone))
    found = (await store.info("run")).until
    expect(found, UNTIL, "end of the claim")
    expect(found is not None and found.utcoffset() is not None, True, "the end of the claim is aware")


async def _voids_the_claim_of_a_dead_process(store: Store, _: Callable[[], Store]) -> None:
    me = owner_here()
    await create_run(store, "living", "a", owner=me)
    await expect_error(
        RunConflict, "claim of a living process", store.claim("living", owner=BOB, now=NOW, until=UNTIL)
    )
    await create_run(store, "elsewhere", "a", owner=replace(me, host="elsewhere", started="0"))
    await expect_error(
        RunConflict, "claim of another machine", store.claim("elsewhere", owner=BOB, now=NOW, until=UNTIL)
    )
    if me.started:
        # No process of this number started then: it has ended, and its number was given out again.
        await create_run(store, "dead", "a", owner=replace(me, id="dead", started="0"))
        claim = await store.claim("dead", owner=BOB, now=NOW, until=UNTIL)
        expect(claim.epoch, 2, "epoch of the claim after a dead process")


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
    epoch = await create_run(store, "run", *texts)
    await store.append(
        "run", make_records(len(texts) + 1, *texts), after=len(texts), epoch=epoch, change=now_is("running")
    )
    read = await read_texts(store, "run")
    expect(len(read), 2 * len(texts), "number of records")
    for expected, found in zip([*texts, *texts], read, strict=True):
        expect(found, expected, "text")


async def _keeps_large_texts(store: Store, _: Callable[[], Store]) -> None:
    large = "0123456789é\0" * 840_000
    epoch = await create_run(store, "run", "small")
    await store.append("run", make_records(2, large, "end"), after=1, epoch=epoch, change=now_is("running"))
    read = await read_texts(store, "run")
    if read != ["small", large, "end"]:
        raise AssertionError("a text of 10 MB came back changed")


async def _lets_one_of_many_win(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")

    def append(text: str, position: int) -> Callable[[], Awaitable[object]]:
        records = make_records(position, text)
        return lambda: store.append("run", records, after=position - 1, epoch=epoch, change=now_is("running"))

    for position in (2, 3, 4):
        refused = await at_once([append(f"{position}-{n}", position) for n in range(20)])
        expect([type(one) for one in refused], [RunConflict] * 19, "errors of the losers")
        expect((await store.info("run")).position, position, "position")
    read = await read_texts(store, "run")
    expect(len(read), 4, "number of records")


async def _appends_many_runs_at_once(store: Store, _: Callable[[], Store]) -> None:
    names = [f"run-{n}" for n in range(30)]

    def drive(name: str) -> Callable[[], Awaitable[object]]:
        async def steps() -> None:
            epoch = await create_run(store, name, f"{name}: 1")
            for position in range(2, 7):
                records = make_records(position, f"{name}: {position}")
                await store.append(name, records, after=position - 1, epoch=epoch, change=now_is("running"))
                # A neighbour that is refused must not take these with it.
                stale = store.append(name, records, after=position - 1, epoch=epoch, change=now_is("failed"))
                await expect_error(RunConflict, "append twice", stale)

        return steps

    expect(await at_once([drive(name) for name in names]), [], "errors")
    for name in names:
        expect(await read_texts(store, name), [f"{name}: {n}" for n in range(1, 7)], f"records of {name}")


async def _lets_one_of_many_create(store: Store, _: Callable[[], Store]) -> None:
    def create(n: int) -> Callable[[], Awaitable[object]]:
        return lambda: create_run(store, "run", str(n), owner=Owner(id=f"owner-{n}"))

    refused = await at_once([create(n) for n in range(20)])
    expect([type(one) for one in refused], [RunExists] * 19, "errors of the losers")
    winner = await read_texts(store, "run")
    expect((await store.info("run")).owner, f"owner-{winner[0]}", "owner and records are of one create")


async def _lets_one_of_many_claim(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    await store.release("run", epoch=epoch)

    def claim(n: int) -> Callable[[], Awaitable[object]]:
        return lambda: store.claim("run", owner=Owner(id=f"owner-{n}"), now=NOW, until=UNTIL)

    refused = await at_once([claim(n) for n in range(20)])
    expect([type(one) for one in refused], [RunConflict] * 19, "errors of the losers")
    expect((await store.info("run")).epoch, epoch + 1, "epoch")


async def _is_whole_after_cancellation(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    last = 1
    for patience in range(12):
        records = make_records(last + 1, f"{patience}: first", f"{patience}: second")
        scope = anyio.CancelScope()

        async def append(
            records: list[Record] = records, scope: anyio.CancelScope = scope, after: int = last
        ) -> None:
            with scope:
                await store.append("run", records, after=after, epoch=epoch, change=now_is("running"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append)
            for _turn in range(patience):
                await checkpoint()
            scope.cancel()
        position = (await store.info("run")).position
        if position not in (last, last + 2):
            raise AssertionError(f"half an append is in the store: position {position} after {last}")
        read = await store.read("run", after=last)
        expect(
            [one.text for one in read], [one.text for one in records] if position > last else [], "records"
        )
        last = position
    await store.append(
        "run", make_records(last + 1, "end"), after=last, epoch=epoch, change=now_is("running")
    )
    expect((await read_texts(store, "run"))[-1], "end", "the store goes on after cancellations")


async def _refuses_use_after_close(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    await store.close()
    await expect_error(StoreError, "create after close", create_run(store, "other", "a"))
    call = store.append("run", make_records(2, "b"), after=1, epoch=epoch, change=now_is("running"))
    await expect_error(StoreError, "append after close", call)
    await expect_error(StoreError, "read after close", store.read("run"))
    await expect_error(StoreError, "info after close", store.info("run"))
    await expect_error(StoreError, "claim after close", store.claim("run", owner=BOB, now=NOW, until=UNTIL))
    await expect_error(StoreError, "renew after close", store.renew("run", epoch=epoch, until=UNTIL))
    await expect_error(StoreError, "release after close", store.release("run", epoch=epoch))
    await store.close()


async def _closes_unused(store: Store, _: Callable[[], Store]) -> None:
    await store.close()
    await expect_error(StoreError, "info after close", store.info("run"))


async def _survives_close(store: Store, reopen: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a", "\0é😀")
    await store.append("run", [Record(3, 4, text="c")], after=2, epoch=epoch, change=now_is("parked"))
    info = await store.info("run")
    await store.close()
    again = reopen()
    expect(await again.info("run"), info, "info after reopening")
    read = [(one.position, one.count, one.text) for one in await again.read("run")]
    expect(read, [(1, 1, "a"), (2, 1, "\0é😀"), (3, 4, "c")], "records after reopening")
    await again.append("run", make_records(7, "d"), after=6, epoch=epoch, change=now_is("running"))
    expect(await read_texts(again, "run", after=6), ["d"], "records appended after reopening")


async def _is_seen_by_a_second_store(store: Store, reopen: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    second = reopen()
    await expect_error(RunExists, "create in the second store", create_run(second, "run", "x"))
    expect(await read_texts(second, "run"), ["a"], "records in the second store")
    await store.append("run", make_records(2, "b"), after=1, epoch=epoch, change=now_is("running"))
    expect(await read_texts(second, "run"), ["a", "b"], "records in the second store")


async def _fences_a_second_store(store: Store, reopen: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    second = reopen()
    await expect_error(RunConflict, "claim while held", second.claim("run", owner=BOB, now=NOW, until=UNTIL))
    claim = await second.claim("run", owner=BOB, now=UNTIL, until=UNTIL + timedelta(seconds=30))
    call = store.append("run", make_records(2, "stale"), after=1, epoch=epoch, change=now_is("failed"))
    await expect_error(RunConflict, "append of the stalled driver", call)
    await second.append("run", make_records(2, "b"), after=1, epoch=claim.epoch, change=now_is("running"))
    expect(await read_texts(store, "run"), ["a", "b"], "records in the first store")


async def _lets_one_store_of_two_win(store: Store, reopen: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    second = reopen()

    def append(to: Store, position: int) -> Callable[[], Awaitable[object]]:
        records = make_records(position, "x")
        return lambda: to.append("run", records, after=position - 1, epoch=epoch, change=now_is("running"))

    for position in range(2, 12):
        refused = await at_once([append(store, position), append(second, position)])
        expect([type(one) for one in refused], [RunConflict], "errors of the loser")
    expect((await second.info("run")).position, 11, "position")


STORE_CHECKS: Final[tuple[StoreCheck, ...]] = (
    *(
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
    ),
    *LIST_CHECKS,
)
"""Asked of every store."""

STORE_REOPEN_CHECKS: Final[tuple[StoreCheck, ...]] = (
    *(
        StoreCheck(body, needs_reopen=True)
        for body in (
            _survives_close,
            _is_seen_by_a_second_store,
            _fences_a_second_store,
            _lets_one_store_of_two_win,
        )
    ),
    *LIST_REOPEN_CHECKS,
)
"""Asked of stores whose journals other processes open, too; they need `reopen`."""


async def store_conformance(
    make_store: Callable[[], Store], *, reopen: Callable[[Store], Store] | None = None
) -> None:
    """Check that a store does what is asked of every store, on the event loop this is awaited in.

    `STORE_CHECKS` and `STORE_REOPEN_CHECKS` are the single checks, for a test of each:

    ```python
    from pathlib import Path
    import pytest
    from overt.stores import SQLiteStore  # or your own
    from overt.testing import STORE_CHECKS, STORE_REOPEN_CHECKS, StoreCheck

    @pytest.mark.parametrize("check", (*STORE_CHECKS, *STORE_REOPEN_CHECKS), ids=str)
    async def test_my_store(check: StoreCheck, tmp_path: Path) -> None:
        path = tmp_path / "runs.db"
        await check(lambda: SQLiteStore(path), reopen=lambda: SQLiteStore(path))
    ```

    Nothing here needs pytest.

    Args:
        make_store: Makes a store without runs; called once for each check.
        reopen: Makes another store over the journals of the one it is given, as another process would, while that one
            is open or after it was closed. `None` for a store that outlives nothing: `STORE_REOPEN_CHECKS` are then
            left out.

    Raises:
        AssertionError: A check fails; says which, what was expected and what was found.
    """
    for check in STORE_CHECKS:
        await check(make_store)
    if reopen is None:
        return
    for check in STORE_REOPEN_CHECKS:
        made: list[Store] = []

        def make(made: list[Store] = made) -> Store:
            made.append(make_store())
            return made[0]

        def again(made: list[Store] = made) -> Store:
            return reopen(made[0])

        await check(make, reopen=again)
