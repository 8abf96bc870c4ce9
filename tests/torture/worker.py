"""What a process of its own does with a run: one job, told line by line to the process that started it."""

from __future__ import annotations

import os
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import anyio
from tests.durability.crew import Outcome, World
from tests.places import store_at
from tests.torture.cases import Case

from overt import TaskResult
from overt.clock import Clock, SystemClock
from overt.errors import AlreadyAnswered, OvertError, RunConflict
from overt.journal import owner as owners
from overt.journal.record import Record
from overt.journal.store import Change
from overt.journal.wrapper import StoreWrapper
from overt.stores import Store
from overt.testing import VirtualClock

Verb = Literal["run", "answer", "recover"]


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A point in the life of a process: the n-th time it comes to a place, or one side of its n-th append."""

    place: str
    """Of the world; `before append` and `after append` are those of the store."""
    number: int = 1

    def __str__(self) -> str:
        return f"{self.place} ({self.number})"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a process is to do, and where it is to stop or to die."""

    case: Case
    store: str
    """As `store_at` takes it."""
    world: Path
    verb: Verb = "run"
    """`run` starts the run or finds it and goes on until it is done; `answer` answers the first request; `recover`
    recovers once."""
    force: bool = False
    """Whether it takes the run from whoever has it."""
    outcome: Outcome = "retry"
    yes: str = "yes"
    """What `answer` says."""
    dies: Spot | None = None
    """Where it kills itself."""
    pauses: Sequence[Spot] = ()
    """Where it says so and waits."""
    waits: bool = False
    """Whether it waits, the run opened, until it may begin."""
    late: float = 0.0
    """Seconds by which its clock is ahead after a pause."""
    abroad: bool = False
    """Whether it is on another machine, as far as anybody can see."""
    real_time: bool = False
    """Whether it has the system's clock; else time stands still."""
    backend: str = "asyncio"


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a process has to say."""

    kind: Literal["at", "opened", "result", "error"]
    text: str = ""
    """The place; the status; the type of the error."""
    more: str = ""
    same: bool | None = None
    owner: str | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.text} {self.more}".strip()


class Life:
    """Where the process has come to, and what is to happen there."""

    def __init__(self, job: Job, pipe: Connection) -> None:
        self.job = job
        self.pipe = pipe
        self.clock: Clock = SystemClock() if job.real_time else VirtualClock()
        self.been: Counter[str] = Counter()

    def come(self, place: str) -> None:
        self.been[place] += 1
        here = Spot(place=place, number=self.been[place])
        if here == self.job.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if here in self.job.pauses:
            self.say(Said(kind="at", text=str(here)))
            self.hear()  # the whole process waits, as one that was stopped
            if self.job.late and isinstance(self.clock, VirtualClock):
                self.clock.set_wall(self.clock.now() + timedelta(seconds=self.job.late))

    def say(self, said: Said) -> None:
        self.pipe.send(said)

    def hear(self) -> str:
        return str(self.pipe.recv())


class Marked(StoreWrapper):
    """Tells where the process is with its appends."""

    def __init__(self, inner: Store, come: Callable[[str], None]) -> None:
        super().__init__(inner)
        self.come = come

    async def create(self, run_id: str, records: Sequence[Record], **options: Any) -> Any:
        self.come("before append")
        claim = await super().create(run_id, records, **options)
        self.come("after append")
        return claim

    async def append(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        after: int,
        epoch: int,
        change: Change,
        release: bool = False,
    ) -> str | None:
        self.come("before append")
        mark = await super().append(run_id, records, after=after, epoch=epoch, change=change, release=release)
        self.come("after append")
        return mark


def work(job: Job, pipe: Connection) -> None:
    """Do the job; the main function of the process."""
    warnings.simplefilter("error")
    if job.abroad:
        owners._host = lambda: "another machine"
    anyio.run(_work, job, pipe, backend=job.backend)


async def _work(job: Job, pipe: Connection) -> None:
    life = Life(job, pipe)
    world = World.read(job.world)
    world.at = life.come
    store = Marked(store_at(job.store), life.come)
    try:
        life.say(await _said(job, life, world, store))
        # A process that waits lives on, so that its claim is not void, and can be told to try again.
        while job.waits and life.hear() == "again":
            life.say(await _said(job, life, world, store))
    finally:
        await store.close()


async def _said(job: Job, life: Life, world: World, store: Store) -> Said:
    try:
        result = await _verb(job, life, world, store)
    except AlreadyAnswered as error:
        return Said(kind="error", text="AlreadyAnswered", more=str(error), same=error.same)
    except RunConflict as error:
        return Said(kind="error", text="RunConflict", more=str(error), owner=error.owner)
    except OvertError as error:
        return Said(kind="error", text=type(error).__name__, more=str(error))
    return Said(kind="result", text=result.status.value, more=result.text)


async def _verb(job: Job, life: Life, world: World, store: Store) -> TaskResult[Any]:
    host = job.case.host(world, store, outcome=job.outcome, clock=life.clock, yes=job.yes, force=job.force)
    if job.verb == "run":
        ended = await host.run()
        return ended[0] if isinstance(ended, tuple) else ended
    runtime: Any = await host.open()
    if job.waits:
        life.say(Said(kind="opened"))
        life.hear()
    if job.verb == "answer":
        result: TaskResult[Any] = await runtime.resume(host.answer(runtime.pendings()[0]))
    else:
        result = await runtime.recover(force=job.force)
    return result
