"""Who may have a run whose process lives, was killed here, or was killed on another machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.durability.crew import World
from tests.places import store_at
from tests.torture.cases import Case, Host
from tests.torture.fleet import started
from tests.torture.worker import Job, Spot

from overt.errors import RunConflict
from overt.testing import VirtualClock

CLAIM = 30.0
"""Seconds a claim lasts unless it is renewed."""


async def claimed(case: Case, place: str, world: Path, spot: Spot, *, abroad: bool) -> None:
    """Try to recover a run while its process is held up there, then kill that process and go on with the run.

    Args:
        case: The tree.
        place: The store.
        world: Where the processes write down what they do.
        spot: Where the process is held up; it holds its claim there.
        abroad: Whether it seems to be on another machine, from where nobody can see its death.

    Raises:
        AssertionError: The claim was not what it should be, or something was lost or done twice.
    """
    calm = await case.calm()
    clock = VirtualClock()
    store = store_at(place)

    def next_host() -> Host:
        seen = World.read(world)
        return case.host(seen, store, clock=clock)

    try:
        job = Job(case=case, store=place, world=world, pauses=(spot,))
        async with started(replace(job, abroad=abroad)) as (first,):
            said = await first.hear()
            assert said is not None, "it failed before it could be held up"
            assert said.kind == "at", f"never came to {spot}: {said}"
            await _refused(next_host(), first.pid)
            first.kill()
            assert await first.ended() == -9
        if abroad:
            await clock.advance(CLAIM - 1)
            await _refused(next_host(), first.pid)
            await clock.advance(1)
        host = next_host()
        await host.run()
        await case.check(host.world, store, calm)
    finally:
        await store.close()


async def _refused(host: Host, pid: int) -> None:
    before = await host.store.info(host.run_id)
    runtime = await host.open()
    with pytest.raises(RunConflict) as conflict:
        await runtime.recover()
    assert (conflict.value.owner or "").startswith(f"{pid}-"), conflict.value.owner
    assert conflict.value.until is not None
    after = await host.store.info(host.run_id)
    assert (after.owner, after.epoch, after.until) == (before.owner, before.epoch, before.until), (
        before,
        after,
    )
