"""What is asked of a store beside its journals: lists of runs and requests, marks, removal, and waiting."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import anyio

from overt.errors import RunConflict, RunNotFound, UsageError
from overt.journal.store import OpenRequest, Store
from overt.testing._store_checks import (
    ALICE,
    BOB,
    NOW,
    UNTIL,
    StoreCheck,
    create_run,
    expect,
    expect_error,
    make_records,
    now_is,
    read_texts,
)

__all__ = ("LIST_CHECKS", "LIST_REOPEN_CHECKS")

SECOND = timedelta(seconds=1)
OPERATIONS = (
    "pendings", "expire_due", "interrupt", "abandoned", "prune", "export_run", "import_run", "verify",
)  # fmt: skip


def _asked(
    run_id: str, id: str, *, second: int = 0, kind: str = "approval", agent: str = "clerk"
) -> OpenRequest:
    at = NOW + second * SECOND
    return OpenRequest(run_id=run_id, request=id, kind=kind, agent=agent, asked_at=at)


async def _lists_runs(store: Store, _: Callable[[], Store]) -> None:
    expect(list(await store.runs()), [], "runs of an empty store")
    for second, name in enumerate(("c", "a", "b")):
        owner = ALICE if name != "b" else BOB
        claim = await store.create(
            name,
            make_records(1, "x"),
            agent="poet" if name == "b" else "clerk",
            owner=owner,
            now=NOW,
            until=UNTIL,
        )
        change = now_is("done" if name == "a" else "pending", at=NOW + second * SECOND)
        await store.append(
            name, make_records(2, "y"), after=1, epoch=claim.epoch, change=change, release=True
        )
    listed = await store.runs()
    expect([one.run_id for one in listed], ["c", "a", "b"], "runs by their last append")
    expect(listed[1], await store.info("a"), "a run as listed, and by itself")
    expect((listed[1].created, listed[1].updated), (NOW, NOW + SECOND), "times of a run")
    expect([one.run_id for one in await store.runs(status="pending")], ["c", "b"], "runs of one status")
    expect([one.run_id for one in await store.runs(status=("done", "pending"))], ["c", "a", "b"], "of two")
    expect(list(await store.runs(status=())), [], "runs of no status")
    expect([one.run_id for one in await store.runs(agent="poet")], ["b"], "runs of one agent")
    older = await store.runs(older_than=NOW + SECOND)
    expect([one.run_id for one in older], ["c"], "runs last changed before a time")
    expect([one.run_id for one in await store.runs(limit=2)], ["c", "a"], "two runs")
    expect(list(await store.runs(limit=0)), [], "no runs")
    await expect_error(UsageError, "a negative limit", store.runs(limit=-1))


async def _says_who_holds_a_run(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    # It may not say so; what it says has to be so.
    expect((await store.info("run")).holder in (None, ALICE), True, "holder after create")
    claim = await store.claim("run", owner=BOB, now=UNTIL, until=UNTIL + SECOND)
    expect(claim.epoch > epoch, True, "epoch of a later claim")
    expect((await store.info("run")).holder in (None, BOB), True, "holder after a claim")
    await store.release("run", epoch=claim.epoch)
    expect((await store.info("run")).holder, None, "holder of a run nobody drives")


async def _has_the_operations(store: Store, _: Callable[[], Store]) -> None:
    missing = [name for name in (*OPERATIONS, "wait") if not callable(getattr(store, name, None))]
    if missing:
        raise AssertionError(
            f"it has no {', '.join(missing)}: derive from overt.stores.Store, which has them"
        )
    await create_run(store, "run", "no record of a run")
    expect(await store.pendings(), (), "requests where no run has one")
    expect(await store.expire_due(UNTIL), (), "runs in which something expired")
    expect([one.run_id for one in await store.abandoned(UNTIL)], ["run"], "runs whose driver is gone")
    expect([one.run_id for one in await store.verify()], ["run"], "damaged runs")
    expect(await store.prune(UNTIL, status=(), now=UNTIL), (), "runs of no status that were removed")
    expect(await store.prune(UNTIL, status="", now=UNTIL), ("run",), "runs that were removed")


async def _lists_open_requests(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    other = await create_run(store, "other", "a")
    late = OpenRequest(
        run_id="run",
        request="late",
        kind="input",
        agent="poet",
        asked_at=NOW + SECOND,
        expires_at=NOW + 9 * SECOND,
    )
    asked = (late, _asked("run", "first"))
    await store.append(
        "run", make_records(2, "b"), after=1, epoch=epoch, change=now_is("pending", asked=asked)
    )
    mine = (_asked("other", "mine", second=2),)
    await store.append("other", (), after=1, epoch=other, change=now_is("pending", asked=mine))
    found = await store.open_requests()
    expect(list(found), [asked[1], late, *mine], "open requests, oldest first")
    expect([one.request for one in await store.open_requests(run_id="run")], ["first", "late"], "of one run")
    expect([one.request for one in await store.open_requests(kind="input")], ["late"], "of one kind")
    expect(
        [one.request for one in await store.open_requests(agent="clerk")], ["first", "mine"], "of one agent"
    )
    older = await store.open_requests(older_than=NOW + SECOND)
    expect([one.request for one in older], ["first"], "asked before a time")
    due = [len(await store.open_requests(due=NOW + second * SECOND)) for second in (8, 9, 10)]
    expect(due, [0, 1, 1], "requests that have expired at a time")
    expect([one.request for one in await store.open_requests(limit=1)], ["first"], "one request")
    await expect_error(UsageError, "a negative limit", store.open_requests(limit=-1))
    change = now_is("pending", asked=(_asked("run", "next", second=3),), settled=("first", "never asked"))
    await store.append("run", (), after=2, epoch=epoch, change=change, release=True)
    left = await store.open_requests(run_id="run")
    expect([one.request for one in left], ["late", "next"], "requests after one was settled")


async def _lists_nothing_that_was_refused(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    change = now_is("pending", asked=(_asked("run", "id"),))
    stale = store.append("run", make_records(1, "x"), after=0, epoch=epoch, change=change)
    await expect_error(RunConflict, "append at a wrong position", stale)
    expect(list(await store.open_requests()), [], "requests of a refused append")
    expect((await store.info("run")).updated, NOW, "time after a refused append")


async def _carries_the_mark(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    said = await store.append("run", make_records(2, "b"), after=1, epoch=epoch, change=now_is("running"))
    expect(said, None, "mark of an append where nobody asked")
    expect((await store.info("run")).interrupt, None, "mark where nobody asked")
    await store.ask_interrupt("run")
    expect(await store.renew("run", epoch=epoch, until=UNTIL + SECOND), "", "mark of a renewal")
    await store.ask_interrupt("run", reason="changed my mind")
    said = await store.append("run", make_records(3, "c"), after=2, epoch=epoch, change=now_is("running"))
    expect(said, "changed my mind", "mark of an append")
    await store.release("run", epoch=epoch)
    claim = await store.claim("run", owner=BOB, now=NOW, until=UNTIL)
    expect(claim.interrupt, "changed my mind", "mark of a claim")
    obeyed = now_is("interrupted")
    said = await store.append(
        "run",
        make_records(4, "d"),
        after=3,
        epoch=claim.epoch,
        change=type(obeyed)(status=obeyed.status, at=obeyed.at, obeyed=True),
    )
    expect(said, None, "mark once it was obeyed")
    expect((await store.info("run")).interrupt, None, "mark once it was obeyed")
    await expect_error(RunNotFound, "mark of an unknown run", store.ask_interrupt("unknown"))


async def _removes_a_run(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    await create_run(store, "other", "a")
    change = now_is("pending", asked=(_asked("run", "id"),))
    await store.append("run", (), after=1, epoch=epoch, change=change)
    conflict = await expect_error(RunConflict, "delete of a driven run", store.delete("run", now=NOW))
    expect(conflict.owner, "alice", "owner of the conflict")
    expect(await read_texts(store, "run"), ["a"], "records after the refused delete")
    await store.delete("run", now=UNTIL)
    await expect_error(RunNotFound, "read", store.read("run"))
    await expect_error(RunNotFound, "second delete", store.delete("run", now=UNTIL))
    expect(list(await store.open_requests()), [], "requests of a deleted run")
    expect([one.run_id for one in await store.runs()], ["other"], "runs")
    await store.delete("other", now=NOW, force=True)
    expect(list(await store.runs()), [], "runs after a forced delete")


async def _keeps_old_drivers_off_a_new_run(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    await store.delete("run", now=UNTIL)
    claim = await store.create("run", make_records(1, "new"), agent="agent", owner=BOB, now=NOW, until=UNTIL)
    if claim.epoch <= epoch:
        raise AssertionError(f"the epoch of a new run is {claim.epoch}, a deleted one of its id had {epoch}")
    stale = store.append("run", make_records(2, "stale"), after=1, epoch=epoch, change=now_is("running"))
    await expect_error(RunConflict, "append of the deleted run's driver", stale)
    expect(await read_texts(store, "run"), ["new"], "records of the new run")


async def _waits_for_facts(store: Store, _: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    expect(await store.wait("run", after=0), 1, "position where there is one already")
    expect(await store.wait("run", after=1, timeout=0), 1, "position where time is over")
    found: list[int] = []

    async def waits() -> None:
        found.append(await store.wait("run", after=1))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waits)
        tasks.start_soon(waits)
        await anyio.wait_all_tasks_blocked()
        await store.append("run", (), after=1, epoch=epoch, change=now_is("pending"))
        await store.append("run", make_records(2, "b", "c"), after=1, epoch=epoch, change=now_is("running"))
    expect(found, [3, 3], "positions of two who waited")
    await expect_error(RunNotFound, "wait for an unknown run", store.wait("unknown", after=0))


async def _shows_lists_to_others(store: Store, again: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    change = now_is("pending", asked=(_asked("run", "id"),))
    await store.append("run", make_records(2, "b"), after=1, epoch=epoch, change=change)
    await store.ask_interrupt("run", reason="why")
    other = again()
    expect(list(await other.open_requests()), list(change.asked), "requests elsewhere")
    expect(await other.info("run"), await store.info("run"), "the run elsewhere")


async def _wakes_those_who_wait_elsewhere(store: Store, again: Callable[[], Store]) -> None:
    epoch = await create_run(store, "run", "a")
    other, found = again(), list[int]()

    async def waits() -> None:
        found.append(await other.wait("run", after=1))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waits)
        await store.append("run", make_records(2, "b"), after=1, epoch=epoch, change=now_is("running"))
    expect(found, [2], "position elsewhere")


LIST_CHECKS = tuple(
    StoreCheck(body, needs_reopen=False)
    for body in (
        _lists_runs,
        _says_who_holds_a_run,
        _has_the_operations,
        _lists_open_requests,
        _lists_nothing_that_was_refused,
        _carries_the_mark,
        _removes_a_run,
        _keeps_old_drivers_off_a_new_run,
        _waits_for_facts,
    )
)

LIST_REOPEN_CHECKS = tuple(
    StoreCheck(body, needs_reopen=True) for body in (_shows_lists_to_others, _wakes_those_who_wait_elsewhere)
)
