"""Runs whose driver is gone in the middle of its work."""

from __future__ import annotations

import os
from datetime import timedelta

import anyio
import pytest

from overt import Request, Runtime, UsageError
from overt.journal.owner import owner_here
from overt.journal.store import Owner
from overt.stores import MemoryStore, RunInfo, Store
from overt.testing import VirtualClock, say
from overt.testing.crashing import Crashed, CrashingStore
from tests.operations.kit import GONE, HOUR, START, Inside, Mortal, clerk, copy, options, park

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)


async def under_way(store: Store, run_id: str) -> int:
    """A run in the middle of its work; return its position."""
    whole = MemoryStore()
    await park(whole, run_id, clerk())
    await copy(whole, run_id, store, change=lambda records: records[:3])
    return (await store.info(run_id)).position


def names(found: tuple[RunInfo, ...]) -> list[str]:
    return [info.run_id for info in found]


async def test_by_the_time_of_the_claim(store: Store) -> None:
    await under_way(store, "run")
    await store.claim("run", owner=GONE, now=START, until=START + HOUR)
    assert await store.abandoned(START) == ()
    assert await store.abandoned(START + HOUR - SECOND) == ()
    assert names(await store.abandoned(START + HOUR)) == ["run"]


async def test_by_the_death_of_the_process(store: Store) -> None:
    await under_way(store, "run")
    here = owner_here()
    await store.claim("run", owner=here, now=START, until=START + HOUR)
    assert await store.abandoned(START) == ()
    if here.host:  # where a dead process is seen at all
        dead = Owner(id="dead", host=here.host, pid=os.getpid(), started="1")
        await store.claim("run", owner=dead, now=START, until=START + HOUR, force=True)
        assert names(await store.abandoned(START)) == ["run"]


async def test_recover_goes_on_with_one(store: Store) -> None:
    """Its process died right after the run was created, before the lists said anything of it."""
    dying = CrashingStore(store, crash_at=1, when="after")
    try:
        await clerk(say("done")).run("go", **options(dying, "run"))
    except* Crashed:
        pass
    (found,) = await store.abandoned(START)
    assert (found.run_id, found.status, found.agent) == ("run", "", "clerk")
    runtime = await Runtime.open(clerk(say("done")), "run", store=store, clock=VirtualClock(START))
    assert (await runtime.recover()).status == "done"
    assert await store.abandoned(START) == ()


async def test_not_those_that_rest(store: Store) -> None:
    await park(store, "parked", clerk())
    await clerk(say("done")).run("go", **options(store, "done"))
    scope = anyio.CancelScope()

    async def cancel() -> None:
        scope.cancel()
        await anyio.sleep_forever()

    with scope:
        await Inside(cancel).agent.run("go", **options(store, "cut off"))
    assert await store.abandoned(START + HOUR) == ()
    assert [info.run_id for info in await store.runs(status="cut_off")] == ["cut off"]


async def test_not_one_that_is_driven(store: Store) -> None:
    found: list[tuple[RunInfo, ...]] = []

    async def meanwhile() -> None:
        found.append(await store.abandoned(START))

    await Inside(meanwhile).agent.run("go", **options(store, "run"))
    assert found == [()]


async def test_one_that_parked_and_had_not_told_of_it(store: Store) -> None:
    """Its driver dies while `on_pending` is told: nobody may ever hear of the request, unless somebody recovers it."""
    told: list[str] = []

    async def dies(_: Request) -> None:
        await dying.die()

    async def tells(request: Request) -> None:
        told.append(request.prompt)

    dying = Mortal(store)
    given = options(dying, "run")
    given["on_pending"] = dies
    try:
        await clerk().run("go", **given)
    except* Crashed:
        pass
    assert (await store.info("run")).status == "pending"
    assert names(await store.abandoned(START + HOUR)) == ["run"]
    runtime = await Runtime.open(
        clerk(), "run", store=store, clock=VirtualClock(START + HOUR), on_pending=tells
    )
    assert (await runtime.recover()).status == "pending"
    assert told == ["Buy tea?"]
    assert await store.abandoned(START + HOUR) == ()


async def test_only_of_one_agent_and_only_so_many(store: Store) -> None:
    for name in ("a", "b", "c"):
        await under_way(store, name)
    assert await store.abandoned(START, agent="other") == ()
    assert len(await store.abandoned(START, agent="clerk", limit=2)) == 2
    assert await store.abandoned(START, limit=0) == ()
    with pytest.raises(UsageError, match="-1"):
        await store.abandoned(START, limit=-1)
    with pytest.raises(UsageError, match="time zone"):
        await store.abandoned(START.replace(tzinfo=None))
