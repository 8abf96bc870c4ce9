"""What `make torture` tries, one trial after another."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from tests.durability.crew import Outcome, World
from tests.durability.deaths import OUTCOMES, Death, chain, deaths, dies
from tests.torture.cases import Case
from tests.torture.chaos import survived
from tests.torture.claims import claimed
from tests.torture.fencing import lost
from tests.torture.kills import killed, spots
from tests.torture.races import raced

from overt.stores import MemoryStore, Store

CASES = (
    Case(tree="crew", mode="rewind"),
    Case(tree="crew", mode="continue"),
    Case(tree="policed", mode="rewind"),
    Case(tree="policed", mode="continue"),
    Case(tree="policed", mode="inline"),
)


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Where a kind of torture takes place, and how much of it."""

    place: str
    folder: Path
    cases: Sequence[Case]
    seed: int
    rounds: int
    token: str
    """Tells the runs of this invocation from those of another in the same store."""

    def run(self, case: Case, number: object) -> Case:
        """A run of its own for a trial."""
        return replace(case, run_id=f"{self.token}-{case}-{number}")

    def world(self, case: Case) -> Path:
        return self.folder / f"{case.run_id}.world"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One thing to try; what it returns is counted."""

    name: str
    seed: int
    act: Callable[[], Awaitable[object]]


Plan = Callable[[Ground], AsyncIterator[Trial]]


async def _deaths(ground: Ground) -> AsyncIterator[Trial]:
    """Die in this process at each point, and one time after another."""
    for case in ground.cases:
        calm = await case.calm()
        every = list(deaths(calm.appends, len(calm.places)))
        for number, death in enumerate(every):
            outcome = OUTCOMES[(number + ground.seed) % 2]
            act = partial(_died, case, [death], outcome)
            yield Trial(name=f"{case} {death} {outcome}", seed=ground.seed, act=act)
        for seed in range(ground.seed, ground.seed + 50 * ground.rounds):
            chance = random.Random(seed)
            planned, outcome = chain(chance, every), chance.choice(OUTCOMES)
            name = f"{case} {', '.join(map(str, planned))} {outcome}"
            yield Trial(name=name, seed=seed, act=partial(_died, case, planned, outcome))


async def _died(case: Case, planned: Sequence[Death], outcome: Outcome) -> str:
    calm = await case.calm()
    world, store = World(), MemoryStore()

    async def run(store: Store) -> None:
        await case.host(world, store, outcome=outcome).run()

    times = 0
    for death in planned:
        if not await dies(run, world, store, death):
            break
        times += 1
    else:
        await run(store)
    await case.check(world, store, calm, replayed=len(planned) > 1)
    return f"died {times} times" if len(planned) > 1 else "died" if times else "lived"


async def _kills(ground: Ground) -> AsyncIterator[Trial]:
    """Kill a process at each point."""
    for case in ground.cases:
        calm = await case.calm()
        step = 1 if case.tree == "crew" else max(1, 8 // ground.rounds)
        for number, spot in list(enumerate(spots(calm)))[ground.seed % step :: step]:
            run = ground.run(case, number)
            outcome = OUTCOMES[(number // step + ground.seed) % 2]
            # Each of the four: outcome and event loop.
            backend = ("asyncio", "trio")[(number // step // 2 + ground.seed // 2) % 2]
            act = partial(killed, run, ground.place, ground.world(run), spot, outcome, backend=backend)
            yield Trial(name=f"{case} {spot} {outcome} {backend}", seed=ground.seed, act=act)


async def _races(ground: Ground) -> AsyncIterator[Trial]:
    """Let processes race for one run."""
    for case in ground.cases:
        if case.tree != "crew":
            continue
        for seed in range(ground.seed, ground.seed + 15 * ground.rounds):
            run = ground.run(case, f"race-{seed}")
            act = partial(raced, run, ground.place, ground.world(run), seed=seed)
            yield Trial(name=f"{case}", seed=seed, act=act)


async def _fencing(ground: Ground) -> AsyncIterator[Trial]:
    """Rob a process of its run at each point."""
    for case in ground.cases:
        calm = await case.calm()
        step = max(1, (3 if case.tree == "crew" else 20) // ground.rounds)
        for number, spot in list(enumerate(spots(calm)))[ground.seed % step :: step]:
            run, late = ground.run(case, f"lost-{number}"), 2.0 * ((number // step + ground.seed) % 2)
            act = partial(lost, run, ground.place, ground.world(run), spot, late=late)
            yield Trial(name=f"{case} {spot} late {late:g}", seed=ground.seed, act=act)


async def _claims(ground: Ground) -> AsyncIterator[Trial]:
    """Try for the run of a process that lives, and of one that was killed here or elsewhere."""
    for case in ground.cases:
        calm = await case.calm()
        step = max(1, (3 if case.tree == "crew" else 20) // ground.rounds)
        held = [spot for spot in spots(calm) if spot.place.startswith(HELD)]
        for number, spot in list(enumerate(held))[ground.seed % step :: step]:
            for abroad in (False, True):
                run = ground.run(case, f"claim-{number}-{abroad}")
                act = partial(claimed, run, ground.place, ground.world(run), spot, abroad=abroad)
                name = f"{case} {spot} {'abroad' if abroad else 'here'}"
                yield Trial(name=name, seed=ground.seed, act=act)


HELD = (
    "entering",
    "before look",
    "after look",
    "before charge",
    "asking",
    "hearing",
    "heard",
    "judging",
    "judged",
)
"""Places where a process certainly holds its claim."""


async def _chaos(ground: Ground) -> AsyncIterator[Trial]:
    """Strike a crowd down at any moment."""
    for seed in range(ground.seed, ground.seed + 6 * ground.rounds):
        chance = random.Random(seed)
        cases = [ground.run(chance.choice(ground.cases), f"chaos-{seed}-{n}") for n in range(6)]
        act = partial(survived, cases, ground.place, ground.folder, seed=seed)
        yield Trial(name=", ".join(sorted(str(case) for case in cases)), seed=seed, act=act)


IN_PROCESS: Mapping[str, Plan] = MappingProxyType({"deaths": _deaths})
"""Kinds of torture in one process, on the memory store."""
PROCESSES: Mapping[str, Plan] = MappingProxyType(
    {"kills": _kills, "races": _races, "fencing": _fencing, "claims": _claims, "chaos": _chaos}
)
"""Kinds that need processes, and a store that several of them can open."""
