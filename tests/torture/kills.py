"""Processes that are killed at each place they come to and on both sides of each append, and those that follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.durability.crew import Outcome, World
from tests.places import store_at
from tests.torture.cases import Calm, Case
from tests.torture.fleet import started
from tests.torture.worker import Job, Said, Spot


def spots(calm: Calm) -> Iterator[Spot]:
    """Every point at which a process can die that means something to the journal or to the world."""
    for side in ("before append", "after append"):
        for number in range(1, calm.appends + 1):
            yield Spot(place=side, number=number)
    for place, number in calm.places:
        yield Spot(place=place, number=number)


def check_missed(spot: Spot, calm: Calm, said: Said) -> None:
    """Check a process that came to its end and never to this spot.

    Raises:
        AssertionError: It should have. What happens at once may come in fewer appends another time, not in fewer
            places.
    """
    assert said.text == "done", said
    assert spot.place.endswith(" append"), f"never came to {spot}"
    assert spot.number > calm.appends - 4, f"never came to {spot}"


async def killed(
    case: Case, place: str, world: Path, spot: Spot, outcome: Outcome, *, backend: str = "asyncio"
) -> str:
    """Kill a process there and let another go on; say how the first has ended.

    Raises:
        AssertionError: Something was lost, or happened twice.
    """
    calm = await case.calm()
    job = Job(case=case, store=place, world=world, outcome=outcome, backend=backend)
    async with started(replace(job, dies=spot)) as (first,):
        said = await first.hear()
        if said is None:
            assert await first.ended() == -9, "it failed, and was not killed"
    if said is not None:
        check_missed(spot, calm, said)
    async with started(job) as (second,):
        said_next = await second.hear()
        assert said_next is not None, "the process that was to go on has failed"
        assert said_next.text == "done", said_next
    store = store_at(place)
    try:
        await case.check(World.read(world), store, calm)
    finally:
        await store.close()
    return "killed" if said is None else "lived"
