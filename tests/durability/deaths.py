"""Processes that die inside this one: at an append, or at a place outside the journal."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import pytest
from tests.durability.crew import Outcome, World, go_on

from overt.errors import StoreError
from overt.stores import MemoryStore, SQLiteStore, Store
from overt.testing import Crashed, CrashingStore

When = Literal["before", "after", "at"]
OUTCOMES: tuple[Outcome, ...] = ("retry", "succeeded")
STORES = ("memory", "sqlite")
SHARED_MEMORY = Path("/dev/shm")


class Life:
    """One process on the world: once it is dead, nothing of it reaches the world or the store.

    What runs beside the task that dies is still under way in this process; it learns of its death where it would next
    do something.
    """

    def __init__(self, world: World, store: CrashingStore, *, place: int | None = None) -> None:
        self.store = store
        self.place = place
        self.places: list[str] = []
        """Where it has been, in order."""
        world.at = self.come

    def come(self, place: str) -> None:
        """Note where the process is, and let it die there if it is to."""
        if self.store.crashed:
            raise Crashed("a dead process does nothing")
        self.places.append(place)
        if len(self.places) == self.place:
            self.store.die()

    def occurrences(self) -> list[tuple[str, int]]:
        """Each place it came to, and for how many times by then."""
        seen: Counter[str] = Counter()
        found: list[tuple[str, int]] = []
        for place in self.places:
            seen[place] += 1
            found.append((place, seen[place]))
        return found


class Death(NamedTuple):
    """When a process dies: before or after its n-th append, or at the n-th place it comes to."""

    when: When
    number: int

    def __str__(self) -> str:
        return f"{self.when}-{self.number}"


EVERY = bool(os.environ.get("OVERT_EVERY_DEATH"))
"""Whether no death is left out, whatever it takes."""


STEP = 1 if EVERY else 4
"""How far apart the deaths are where a part of them is enough."""


def deaths(appends: int, places: int, *, step: int = 1) -> Iterator[Death]:
    """Every death of a run of so many appends and places, or each `step`-th of a kind."""
    kinds: tuple[tuple[When, int], ...] = (("before", appends), ("after", appends), ("at", places))
    for when, last in kinds:
        for number in range(1, last + 1, step):
            yield Death(when, number)


def chain(chance: random.Random, every: Sequence[Death]) -> list[Death]:
    """A death anywhere, and some that follow soon, in the middle of recoveries."""
    kinds: tuple[When, ...] = ("before", "after", "at")
    soon = [Death(chance.choice(kinds), chance.randint(1, 12)) for _ in range(chance.randint(1, 5))]
    return [chance.choice(every), *soon]


async def dies(run: Callable[[Store], Awaitable[object]], world: World, inner: Store, death: Death) -> bool:
    """Run in a process that is to die; say whether it did. The process after it lives."""
    if death.when == "at":
        store = CrashingStore(inner)
        Life(world, store, place=death.number)
    else:
        store = CrashingStore(inner, crash_at=death.number, when=death.when)
        Life(world, store)
    try:
        await run(store)
    except BaseException as error:
        if not is_crash(error):
            raise
        assert store.crashed
    else:
        assert not store.crashed, "a dead process came to an end as if nothing had been"
    world.at = go_on
    return store.crashed


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a process dies here, not the machine, so no disk need be waited for."""
    if not SHARED_MEMORY.is_dir():
        yield tmp_path
        return
    with TemporaryDirectory(dir=SHARED_MEMORY, prefix="overt-") as folder:
        yield Path(folder)


@asynccontextmanager
async def opened_twice(kind: str, path: Path) -> AsyncIterator[tuple[Store, Store]]:
    """One store, as two processes open it."""
    if kind == "memory":
        store = MemoryStore()
        yield store, store
        return
    first, second = SQLiteStore(path), SQLiteStore(path)
    try:
        yield first, second
    finally:
        await first.close()
        await second.close()


def is_crash(error: BaseException | None) -> bool:
    """Whether it is the death of the process, as it comes out of a task, of a group, or of a stopped driver."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_crash(inner) for inner in error.exceptions)
    return isinstance(error, Crashed) or (isinstance(error, StoreError) and is_crash(error.__cause__))
