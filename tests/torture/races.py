"""Many processes answer one run, or recover it, at once: one of them does, the others are told before they begin."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from anyio import create_task_group
from tests.durability.crew import Host, World, notes
from tests.places import store_at
from tests.torture.cases import Case
from tests.torture.fleet import Process, started
from tests.torture.worker import Job, Said

from overt.core import facts as f
from overt.journal.codec import decode
from overt.stores import Store

LOSSES = ("AlreadyAnswered", "RunConflict")


async def parked(case: Case, place: str, world: Path) -> int:
    """Start a run and leave it where it waits for its first answer; return its position.

    Raises:
        AssertionError: It does not wait for one.
    """
    store = store_at(place)
    try:
        host = case.host(World(path=world), store)
        assert isinstance(host, Host), "only this tree has one question at a time"
        assert (await host.start()).status == "pending"
        return (await store.info(case.run_id)).position
    finally:
        await store.close()


async def raced(
    case: Case, place: str, world: Path, *, seed: int, same: int = 2, others: int = 2, recovering: int = 2
) -> str:
    """Let processes give the same answer, others each another one, and others recover, all at once; say who won.

    Args:
        case: Of the tree `crew`.
        place: The store.
        world: Where the processes write down what they do.
        seed: Of the order in which they are let go.
        same: How many give one answer.
        others: How many give each another one.
        recovering: How many recover.

    Raises:
        AssertionError: Not exactly one answer was taken, or one that lost did something.
    """
    before = await parked(case, place, world)
    words = ["yes"] * same + [f"yes {n}" for n in range(others)]
    jobs = [
        Job(case=case, store=place, world=world, verb="answer", yes=yes, waits=True, real_time=True)
        for yes in words
    ] + [
        Job(case=case, store=place, world=world, verb="recover", waits=True, real_time=True)
        for _ in range(recovering)
    ]
    async with started(*jobs) as processes:
        answering, rest = processes[: len(words)], processes[len(words) :]
        found = await _go(processes, seed)
        for process in rest:
            assert found[process].text in ("RunConflict", "pending", "incomplete"), found[process]
        winners = _winners(answering, found)
        first = "an answer" if winners else "recover"
        if not winners:
            # Whoever recovered held the run for that moment, and everybody with an answer was told so.
            for process in answering:
                assert found[process].text == "RunConflict", found[process]
                owner = found[process].owner or "0"
                assert int(owner.partition("-")[0]) in {one.pid for one in rest}, found[process]
                process.go("again")
            found = await _go(answering, seed)
            winners = _winners(answering, found)
        (winner,) = winners
        assert found[winner].text == "incomplete", found[winner]
        for process in answering:
            said = found[process]
            if process is not winner:
                assert said.text in LOSSES, said
                assert said.same in (None, process.job.yes == winner.job.yes), said
    store = store_at(place)
    try:
        await _check(case, store, world, before, winner)
    finally:
        await store.close()
    return first


def _winners(answering: Sequence[Process[Job]], found: dict[Process[Job], Said]) -> list[Process[Job]]:
    return [process for process in answering if found[process].kind == "result"]


async def _go(processes: Sequence[Process[Job]], seed: int) -> dict[Process[Job], Said]:
    """Let all of them go at once when each has opened the run, and hear how each has ended."""
    found: dict[Process[Job], Said] = {}
    for process in processes:
        said = await process.hear()
        assert said is not None, "a process failed before the race"
        assert said.kind == "opened", said

    async def hear(process: Process[Job]) -> None:
        said = await process.hear()
        assert said is not None, "a process failed in the race"
        found[process] = said

    order = list(processes)
    random.Random(seed).shuffle(order)
    for process in order:
        process.go()
    async with create_task_group() as group:
        for process in order:
            group.start_soon(hear, process)
    return found


async def _check(case: Case, store: Store, world: Path, before: int, winner: Process[Job]) -> None:
    later = [x for rec in await store.read(case.run_id, after=before) for x in decode(case.run_id, rec)[1]]
    (given,) = [x for x in later if isinstance(x, f.AnswerGiven)]
    assert given.data == json.dumps(winner.job.yes)
    assert sum(isinstance(x, f.ResumeBegun) for x in later) == 1
    entered = [x for x in later if isinstance(x, (f.CallEntered, f.OnceEntered))]
    here = [note for note in notes(world) if note[0] == winner.pid]
    others = {note[0] for note in notes(world)} - {winner.pid}
    assert len(others) == 1, "a process that lost did something"  # this one, which parked the run
    done = [note[3] for note in here if note[1] == "effect"]
    assert done.count(f"book 12a {winner.job.yes}") == 1, done
    assert len(done) <= len(entered)
    assert World.read(world).times("charge A1") == 1
    assert World.read(world).times("hold 12a") == 1
