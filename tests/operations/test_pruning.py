"""Retention: runs that have ended and are old go, and no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from overt import Agent, InboxItem, Loop, Runtime, UsageError
from overt.errors import RunNotFound
from overt.stores import RunInfo, Store, StoreWrapper
from overt.testing import VirtualClock, say
from tests.operations.kit import GONE, HOUR, START, Inside, answer, asking, clerk, damaged, options, park

pytestmark = pytest.mark.anyio

OLD = START + HOUR
NOW = START + 2 * HOUR


async def finish(store: Store, run_id: str, *, at: int = 0) -> None:
    """A run that is done, so many hours after the start."""
    clock = VirtualClock(START + at * HOUR)
    result, _ = await clerk(say("done")).run("go", **options(store, run_id, clock))
    assert result.status == "done"


async def ids(store: Store) -> set[str]:
    return {info.run_id for info in await store.runs()}


async def test_old_runs_that_have_ended_go(store: Store) -> None:
    await finish(store, "old")
    await finish(store, "young", at=1)
    await park(store, "parked", asking(what="Go"))
    await park(store, "stopped", asking(what="Go"))
    await store.interrupt("stopped", now=START)
    await clerk(RuntimeError("no line")).run("go", **options(store, "failed"))
    removed = await store.prune(OLD, now=NOW)
    assert sorted(removed) == ["old", "stopped"]
    assert await ids(store) == {"young", "parked", "failed"}
    with pytest.raises(RunNotFound):
        await store.read("old")
    assert await store.prune(OLD, now=NOW) == ()


async def test_others_go_where_they_are_named(store: Store) -> None:
    await finish(store, "old")
    await park(store, "parked", asking(what="Go"))
    assert await store.prune(OLD, status="pending", now=NOW) == ("parked",)
    assert await ids(store) == {"old"}
    assert await store.open_requests() == []
    assert await store.prune(OLD, status=(), now=NOW) == ()


async def test_what_was_cut_off_is_kept(store: Store) -> None:
    """A result calls it interrupted; it can be recovered."""
    scope = anyio.CancelScope()

    async def cancel() -> None:
        scope.cancel()
        await anyio.sleep_forever()

    with scope:
        await Inside(cancel).agent.run("go", **options(store, "run"))
    assert await store.prune(OLD, now=NOW) == ()
    assert await store.prune(OLD, status="cut_off", now=NOW) == ("run",)


async def test_a_run_is_kept_while_another_handle_asks(store: Store) -> None:
    """Its entry handle is done, and the run is not over."""
    agent = Agent("lead", does="Leads.", team=[asking(what="Go")], model=clerk(say("led")).model)
    runtime = Runtime(agent, **options(store, "run"))
    lead = await runtime.spawn("root", "lead")
    other = await runtime.spawn("root", "clerk")
    await runtime.post(other, InboxItem(sender="external", channel="x", text="ask"))
    await runtime.run_turn(other, "go")
    await runtime.run_turn(lead, "go")
    assert runtime.result().status == "done"
    assert (await store.info("run")).status == "pending"
    assert await store.prune(OLD, now=NOW) == ()
    assert await store.prune(OLD, status="pending", now=NOW) == ("run",)


async def test_only_of_one_agent_and_only_so_many(store: Store) -> None:
    for number in range(4):
        await finish(store, f"run-{number}")
    assert await store.prune(OLD, agent="other", now=NOW) == ()
    assert await store.prune(OLD, limit=0, now=NOW) == ()
    assert len(await store.prune(OLD, limit=3, now=NOW)) == 3
    assert len(await ids(store)) == 1
    with pytest.raises(UsageError, match="-1"):
        await store.prune(OLD, limit=-1)


async def test_those_that_are_kept_do_not_use_up_the_limit(store: Store) -> None:
    for name in ("a", "b", "c"):
        await finish(store, name)
    await store.claim("a", owner=GONE, now=NOW, until=NOW + HOUR)
    assert await store.prune(OLD, limit=1, now=NOW) == ("b",)
    assert await store.prune(OLD, limit=1, now=NOW) == ("c",)
    assert await ids(store) == {"a"}


async def test_never_one_that_is_driven(store: Store) -> None:
    loop = clerk(say("one"), say("two")).loop(**options(store, "run"))
    assert (await loop.run("go")).status == "done"
    claim = await store.claim("run", owner=GONE, now=NOW, until=NOW + HOUR)
    assert await store.prune(OLD, now=NOW) == ()
    await store.release("run", epoch=claim.epoch)
    assert await store.prune(OLD, now=NOW) == ("run",)


@pytest.mark.parametrize("then", ["pending", "done"])
async def test_a_run_that_went_on_meanwhile_is_kept(store: Store, then: str) -> None:
    """It was listed as done and old; by the time it is looked at it has had another prompt."""
    await clerk(say("one")).loop(**options(store, "run")).run("go")
    agent = asking(what="Go") if then == "pending" else clerk(say("two"))

    class Late(StoreWrapper):
        async def runs(self, **wanted: Any) -> Sequence[RunInfo]:
            found = await super().runs(**wanted)
            loop = await Loop.open(agent, "run", store=store, clock=VirtualClock(NOW))
            await loop.run("again")
            return found

    assert await Late(store).prune(OLD, now=NOW) == ()
    info = await store.info("run")
    assert (info.status, info.owner, info.updated) == (then, None, NOW)
    assert await store.verify() == ()


async def test_several_at_once(store: Store, opens: Callable[[], Store]) -> None:
    for number in range(6):
        await finish(store, f"run-{number}")
    others = [opens() for _ in range(3)]
    removed: list[str] = []

    async def prune(one: Store) -> None:
        removed.extend(await one.prune(OLD, now=NOW))

    async with anyio.create_task_group() as tasks:
        for one in others:
            tasks.start_soon(prune, one)
    assert sorted(removed) == [f"run-{number}" for number in range(6)]
    assert await ids(store) == set()
    for one in others:
        if one is not store:
            await one.close()


async def test_a_damaged_run_goes_too(store: Store) -> None:
    await damaged(store, "broken", clerk())
    assert await store.prune(OLD, status="pending", now=NOW) == ("broken",)


async def test_a_new_run_of_the_same_id(store: Store) -> None:
    await finish(store, "run")
    await store.prune(OLD, now=NOW)
    await park(store, "run", clerk())
    assert (await answer(store, "run", clerk())).status == "done"


async def test_a_time_without_a_zone_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="older_than has no time zone"):
        await store.prune(OLD.replace(tzinfo=None))
