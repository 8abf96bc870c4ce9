"""Many processes drive many runs in one store, and are killed, stopped and robbed of their runs at any moment."""

from __future__ import annotations

import os
import random
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import anyio
from tests.durability.crew import World
from tests.places import store_at
from tests.torture.cases import Case
from tests.torture.fleet import Process, started
from tests.torture.worker import Job, Said

from overt.clock import SystemClock
from overt.errors import AlreadyAnswered, RunConflict, RunExists, UsageError

MOVED_ON = "did not stop at a limit"
"""What `extend` says of a run that another process has extended meanwhile."""

PAUSE = 0.004
"""Seconds a process takes at most where it comes to a place, so that what strikes it has something to hit."""


@dataclass(frozen=True, kw_only=True)
class Shift:
    """What one of the processes is to do: whatever of these runs nobody else does, until all are done."""

    cases: Sequence[Case]
    store: str
    folder: Path
    seed: int
    backend: str
    robs: float = 0.2
    """How often it takes a run from whoever has it."""


def world_of(folder: Path, case: Case) -> Path:
    """Where processes write down what they do for a run."""
    return folder / f"{case.run_id}.world"


def toil(shift: Shift, pipe: Connection) -> None:
    """Work a shift; the main function of the process."""
    warnings.simplefilter("error")
    anyio.run(_toil, shift, pipe, backend=shift.backend)


async def _toil(shift: Shift, pipe: Connection) -> None:
    chance = random.Random(f"{shift.seed} {os.getpid()}")
    left = list(shift.cases)
    while left:
        case = chance.choice(left)
        store = store_at(shift.store)
        world = World.read(world_of(shift.folder, case))
        world.at = lambda _: time.sleep(chance.uniform(0.0, PAUSE))
        host = case.host(world, store, clock=SystemClock(), force=chance.random() < shift.robs)
        try:
            await host.run()
            left.remove(case)
        except (RunConflict, RunExists, AlreadyAnswered):
            # Somebody else has it; which one is next is left to chance.
            await anyio.sleep(0.005)
        except UsageError as error:
            if MOVED_ON not in str(error):
                raise
        finally:
            await store.close()
    pipe.send(Said(kind="result", text="done"))


async def survived(
    cases: Sequence[Case], place: str, folder: Path, *, seed: int, crowd: int = 4
) -> Counter[str]:
    """Let a crowd of processes work on the runs while chance strikes them down; return how often it did what.

    Raises:
        AssertionError: Something was lost, or happened twice.
    """
    chance = random.Random(seed)
    struck: Counter[str] = Counter()

    def shift() -> Shift:
        backend = chance.choice(("asyncio", "trio"))
        return Shift(cases=cases, store=place, folder=folder, seed=seed, backend=backend)

    crew = [Process(shift(), toil) for _ in range(crowd)]
    try:
        while 0 not in (codes := [process.code for process in crew]):
            assert all(code in (None, -9) for code in codes), f"a process has failed by itself: {codes}"
            await anyio.sleep(chance.uniform(0.0, 0.05))
            at = chance.randrange(crowd)
            process = crew[at]
            if chance.random() < 0.5:
                process.stop()
                await anyio.sleep(chance.uniform(0.0, 0.1))
                process.resume()
                struck["stopped"] += 1
            else:
                process.kill()
                process.close()
                struck["killed"] += 1
                crew[at] = Process(shift(), toil)
    finally:
        for process in crew:
            process.close()
    store = store_at(place)
    try:
        for case in cases:
            world = world_of(folder, case)
            async with started(Job(case=case, store=place, world=world, real_time=True)) as (last,):
                said = await last.hear()
                assert said is not None, f"the last process failed at {case.run_id}"
                assert said.text == "done", f"{case.run_id}: {said}"
            try:
                await case.check(World.read(world), store, await case.calm(), replayed=False)
            except BaseException as error:
                error.add_note(f"run {case.run_id}")
                raise
    finally:
        await store.close()
    return struck
