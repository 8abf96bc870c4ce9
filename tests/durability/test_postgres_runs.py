"""Whole runs on a PostgreSQL server: a crash at every append, and a server that is restarted under them."""

from __future__ import annotations

from typing import Literal

import pytest
from tests.durability.crew import RUN, Host, World, check, facts_of
from tests.durability.deaths import is_crash
from tests.durability.test_crash_everywhere import calm
from tests.postgres import Place
from tools.postgres import Server

from overt import ResumePolicy
from overt.stores import MemoryStore
from overt.testing import CrashingStore, VirtualClock

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_a_crash_at_every_append(
    policy: ResumePolicy, when: Literal["before", "after"], postgres: Place
) -> None:
    undisturbed = await calm(policy)
    quiet, appends = undisturbed.facts, undisturbed.appends
    first, second = postgres.store(), postgres.store()
    # How many appends there are depends on what arrives while one is under way.
    # A policy and a side of the append have one loop; every second append is enough.
    for at in range(1 + (when == "after"), 2 * appends, 2):
        world, store = World(), CrashingStore(first, crash_at=at, when=when)
        try:
            await Host(world, store, policy).run()
        except BaseException as error:
            if not is_crash(error):
                raise
        result = await Host(world, second, policy).run()
        check(world, result, await facts_of(second), quiet)
        # The next one gets the same id, and a higher epoch.
        await second.delete(RUN, now=VirtualClock().now(), force=True)
        if not store.crashed:
            break
    else:
        raise AssertionError("there is no end to it")
    assert at > appends // 2
    await first.close()
    await second.close()


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_a_server_restarted_under_a_run_disturbs_nothing(policy: ResumePolicy, server: Server) -> None:
    calm_store, place = MemoryStore(), Place(server.dsn, "overt_runs")
    await Host(World(), calm_store, policy).run()
    store, world = place.store(reconnect_timeout=60), World()
    restarted: list[str] = []

    def at(spot: str) -> None:
        # The tool blocks its event loop; the store's thread finds its connection gone.
        if spot in ("before charge A1", "after book 12a yes", "asking lead") and spot not in restarted:
            restarted.append(spot)
            server.stop()
            server.start()

    world.at = at
    try:
        result = await Host(world, store, policy).run()
        check(world, result, await facts_of(store), await facts_of(calm_store))
        assert len(restarted) == 3
        assert world.doubts == []
    finally:
        await store.close()
        place.sql("SET client_min_messages = warning", f"DROP SCHEMA IF EXISTS {place.schema} CASCADE")
