"""Processes that are held up, lose their run to another one, and come back: they enter nothing more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.durability.crew import World, facts_of, notes
from tests.places import store_at
from tests.torture.cases import Calm, Case
from tests.torture.fleet import Process, started
from tests.torture.kills import check_missed
from tests.torture.worker import Job, Spot

LOSSES = ("AlreadyAnswered", "RunConflict", "RunExists", "UsageError")


def _endings(spot: Spot, calm: Calm) -> tuple[str, ...]:
    """How a process can end that has lost its run there."""
    if spot == Spot(place="before append"):
        return ("RunExists",)
    if spot == Spot(place="after append", number=calm.appends):
        return ("done",)  # there was nothing left to take
    if spot.place == "after append" or spot.place.startswith("answering "):
        # The append may have given the run up, and what comes next is the host's answer, or its leave to go on.
        return ("RunConflict", "AlreadyAnswered", "UsageError")
    return ("RunConflict", "UsageError") if spot.place == "extending" else ("RunConflict",)


async def lost(case: Case, place: str, world: Path, spot: Spot, *, late: float = 0.0) -> str:
    """Hold a process up there, let another take the run and go on to the end, and let the first come back.

    Args:
        case: The tree.
        place: The store.
        world: Where the processes write down what they do.
        spot: Where the first is held up.
        late: Seconds for which it was, by its clock.

    Returns:
        How the first has ended.

    Raises:
        AssertionError: It stored something, or, away for long, entered a tool; or something was lost or done twice.
    """
    calm = await case.calm()
    job = Job(case=case, store=place, world=world)
    async with started(replace(job, pauses=(spot,), late=late)) as (first,):
        said = await first.hear()
        assert said is not None, "it failed before it could be held up"
        if said.kind != "at":
            check_missed(spot, calm, said)
            return "missed"
        async with started(replace(job, force=True)) as (second,):
            said = await second.hear()
            assert said is not None, "the process that took the run has failed"
            assert said.text == "done", said
        store = store_at(place)
        try:
            facts = await facts_of(store, case.run_id)
            entered = _entered(world, first)
            first.go()
            said = await first.hear()
            assert said is not None, "it failed when it came back"
            assert said.text in _endings(spot, calm), said
            assert await facts_of(store, case.run_id) == facts, "it has written to a run that is not its own"
            if late:
                assert _entered(world, first) == entered, "it has entered a tool of a run that is not its own"
            await case.check(World.read(world), store, calm)
        finally:
            await store.close()
    return said.text


def _entered(world: Path, process: Process[Job]) -> int:
    return sum(note[:2] == [process.pid, "enters"] for note in notes(world))
