"""A process that dies at any append, or at any place outside: the next one goes on as if nothing had been."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.durability.crew import LEAD, RUN, Host, Outcome, World, check, facts_of
from tests.durability.deaths import OUTCOMES, STEP, STORES, Death, Life, chain, deaths, dies, opened_twice

from overt import Budget, ResumePolicy, Runtime
from overt.core import facts as f
from overt.stores import MemoryStore, Store
from overt.testing import CrashingStore

pytestmark = pytest.mark.anyio
policies = pytest.mark.parametrize("policy", list(ResumePolicy))


@dataclass
class Calm:
    """The run nobody disturbs."""

    facts: list[f.Fact]
    appends: int
    places: list[str]


async def calm(policy: ResumePolicy) -> Calm:
    world, store = World(), CrashingStore(MemoryStore())
    life = Life(world, store)
    result = await Host(world, store, policy).run()
    facts = await facts_of(store)
    check(world, result, facts, facts)
    return Calm(facts, store.appends, life.places)


async def died(host: Host, death: Death) -> bool:
    """Run `host` until it dies so."""

    async def run(store: Store) -> None:
        await Host(host.world, store, host.policy, host.outcome).run()

    return await dies(run, host.world, host.store, death)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("outcome", OUTCOMES)
@policies
async def test_a_death_at_every_append_and_at_every_place(
    policy: ResumePolicy, outcome: Outcome, store: str, quick: Path
) -> None:
    quiet = await calm(policy)
    assert quiet.appends >= 18
    assert len(quiet.places) >= 40
    doubted = 0
    step = 1 if store == "memory" else STEP
    for death in deaths(quiet.appends, len(quiet.places), step=step):
        async with opened_twice(store, quick / f"{death}.db") as (first, second):
            world = World()
            try:
                lived = not await died(Host(world, first, policy, outcome), death)
                # What happens at once may come in fewer appends another time, never in fewer places.
                assert not lived or (death.when != "at" and death.number > quiet.appends - 4)
                result = await Host(world, second, policy, outcome).run()
                check(world, result, await facts_of(second), quiet.facts)
            except BaseException as error:
                error.add_note(f"died {death} of {quiet.appends} appends, {len(quiet.places)} places")
                raise
        doubted += bool(world.doubts)
    assert doubted, "no death left anything in doubt: this test has lost its subject"


@policies
async def test_one_death_after_another(policy: ResumePolicy) -> None:
    """Each process dies a little after the one before it, so recoveries are cut off too."""
    quiet = await calm(policy)
    every = list(deaths(quiet.appends, len(quiet.places)))
    chance = random.Random(7)
    for _ in range(20):
        host = Host(World(), MemoryStore(), policy, chance.choice(OUTCOMES))
        planned = chain(chance, every)
        try:
            for death in planned:
                if not await died(host, death):
                    break
            result = await host.run()
            check(host.world, result, await facts_of(host.store), quiet.facts)
        except BaseException as error:
            error.add_note(f"died {[str(death) for death in planned]}")
            raise


async def test_what_lies_before_a_limit_stop_is_neither_repeated_nor_reported_unused() -> None:
    """A rewind goes back to the stop: the child and the tools before it are kept, and no approver is told otherwise."""
    host = Host(World(), MemoryStore(), ResumePolicy.REWIND)
    runtime = Runtime(LEAD, run_id=RUN, **host.options())
    result = await runtime.run("sell")
    assert result.pending is not None
    assert [c.tool for c in result.pending.replays] == ["look", "look"]
    assert result.pending.turns_again == 2
    result = await runtime.resume(host.answer(result.pending))
    assert result.status == "incomplete"
    result = await runtime.extend(Budget(max_turns=4))
    assert result.pending is not None
    assert result.pending.prompt == "Publish offer?"
    assert (result.pending.replays, result.pending.turns_again) == ((), 0)
    result = await runtime.resume(host.answer(result.pending))
    assert result.status == "done"
    assert result.replay is not None
    assert result.replay.calls_rerun == ()
    assert result.replay.unused_children == ()
