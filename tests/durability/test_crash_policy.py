"""A process that dies anywhere in a run with every rule in it: nothing is asked, judged, done or bought anew."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.durability.crew import Counting, Outcome, World, facts_of
from tests.durability.deaths import EVERY, OUTCOMES, STEP, Life, When, chain, deaths, dies, opened_twice
from tests.durability.policed_crew import MODES, RUN, Host, Mode, Report, again, check, look

from overt import Agent, Answer, Budget, ResumePolicy, Runtime, Suspend, TaskResult
from overt.core import facts as f
from overt.errors import RunNotFound
from overt.stores import MemoryStore, Store
from overt.testing import MockModel, Script, VirtualClock, call, say
from overt.testing.crashing import CrashingStore

pytestmark = pytest.mark.anyio
modes = pytest.mark.parametrize("mode", MODES)


@dataclass
class Calm:
    """The run nobody disturbs."""

    facts: list[f.Fact]
    appends: int
    places: list[str]


async def calm(mode: Mode) -> Calm:
    world, store = World(), CrashingStore(MemoryStore())
    life = Life(world, store)
    result, runtime = await driven(world, mode, "retry", store)
    facts = await facts_of(store)
    check(world, result, runtime, facts, facts)
    return Calm(facts, store.appends, life.places)


async def driven(
    world: World, mode: Mode, outcome: Outcome, store: Store, *, rewinds: bool = False, streams: bool = False
) -> tuple[TaskResult[Report], Runtime[Report]]:
    """Drive the run in a process of its own."""
    return await Host(world, store, mode, outcome, rewinds, streams).run()


def in_doubt(facts: list[f.Fact]) -> bool:
    return any(isinstance(x, f.CallAsked) and x.question.kind == "in_doubt" for x in facts)


def same_work(facts: list[f.Fact], quiet: list[f.Fact], mode: Mode) -> None:
    """What was recorded is recorded once: a crash buys again only the call it cut off, and repeats nothing."""
    if mode == "rewind" and in_doubt(facts):
        return  # a doubt parks the run once more, and what is answered after it replays once more
    for kind in (f.ModelReplied, f.Judged, f.BudgetRaised, f.CallDenied, f.Rewound, f.Delegated):
        found, wanted = ([x for x in all if isinstance(x, kind)] for all in (facts, quiet))
        assert Counter(x.handle for x in found) == Counter(x.handle for x in wanted), kind
    # The hook is asked again where the call it changed was cut off.
    assert sum(isinstance(x, f.Overridden) for x in facts) - sum(
        isinstance(x, f.Overridden) for x in quiet
    ) in (0, 1)


@modes
@pytest.mark.parametrize("when", ["before", "after", "at"])
async def test_a_death_at_every_append_and_at_every_place(mode: Mode, when: When) -> None:
    quiet = await calm(mode)
    assert quiet.appends >= 40
    assert len(quiet.places) >= 100
    doubted = 0
    # Of the appends every second, of the places one in four, unless every one is wanted.
    step = 1 if EVERY else 4 if when == "at" else 2
    for death in deaths(quiet.appends, len(quiet.places), step=step):
        if death.when != when:
            continue
        outcome = OUTCOMES[(death.number // step + (when == "after")) % 2]
        world, store = World(), MemoryStore()
        try:
            died = await dies(partial(driven, world, mode, outcome), world, store, death)
            # What happens at once may come in fewer appends another time.
            assert died or (when != "at" and death.number > quiet.appends - 4)
            result, runtime = await driven(world, mode, outcome, store)
            facts = await facts_of(store)
            check(world, result, runtime, facts, quiet.facts)
            same_work(facts, quiet.facts, mode)
            await again(runtime, world)
        except BaseException as error:
            error.add_note(f"died {death} of {quiet.appends} appends, {len(quiet.places)} places, {outcome}")
            raise
        doubted += in_doubt(facts)
    assert doubted, "no death left anything in doubt: this test has lost its subject"


@modes
async def test_one_death_after_another(mode: Mode) -> None:
    """Each process dies a little after the one before it, so recoveries are cut off too.

    Some of them replay, and some are read along as a stream.
    """
    quiet = await calm(mode)
    every = list(deaths(quiet.appends, len(quiet.places)))
    chance = random.Random(11)
    for _ in range(12):
        world, store, outcome = World(), MemoryStore(), chance.choice(OUTCOMES)
        planned: list[str] = []
        try:
            for death in chain(chance, every):
                rewinds, streams = chance.random() < 0.3, chance.random() < 0.5
                planned.append(f"{death}{' replaying' * rewinds}{' streamed' * streams}")
                run = partial(driven, world, mode, outcome, rewinds=rewinds, streams=streams)
                if not await dies(run, world, store, death):
                    break
            result, runtime = await driven(world, mode, outcome, store)
            check(world, result, runtime, await facts_of(store), quiet.facts, replayed=True)
        except BaseException as error:
            error.add_note(f"died {planned}, {outcome}")
            raise


async def test_a_sample_on_a_file(quick: Path) -> None:
    mode: Mode = "rewind"
    quiet = await calm(mode)
    died = 0
    for death in deaths(quiet.appends, len(quiet.places), step=9 if EVERY else 18):
        async with opened_twice("sqlite", quick / f"{death}.db") as (first, second):
            world = World()
            died += await dies(partial(driven, world, mode, "retry"), world, first, death)
            result, runtime = await driven(world, mode, "retry", second)
            check(world, result, runtime, await facts_of(second), quiet.facts)
    assert died >= 10


# ------------------------------------------------------------------ a cap on tokens, which no crash leaves as it was

LEAF = Agent("leaf", does="Answers.", tools=[look], deps_type=World)
MID = Agent("mid", does="Passes on.", team=[LEAF], deps_type=World)
TOP = Agent("top", does="Leads.", team=[MID], deps_type=World)
PASSED: Script = {
    "top": [call("task", agent="mid", prompt="a"), call("task", agent="mid", prompt="b"), say("end")],
    "mid": [call("task", agent="leaf", prompt="c"), say("passed")],
    "leaf": [call("look", what="it"), say("seen")],
}


async def capped(world: World, policy: ResumePolicy, store: Store) -> TaskResult[str]:
    """Go on with more tokens whenever the run asks for them."""
    options: dict[str, Any] = {
        "store": store, "deps": world, "model": Counting(MockModel(PASSED), world), "resume_policy": policy,
        "on_limit": lambda info: Suspend(), "budget": Budget(max_tokens=100), "clock": VirtualClock(),
    }  # fmt: skip
    try:
        runtime = await Runtime.open(TOP, RUN, **options)
    except RunNotFound:
        runtime = Runtime(TOP, run_id=RUN, **options)
        result = await runtime.run("go")
    else:
        result = await runtime.recover()
    for _ in range(30):
        if result.pending is None:
            break
        assert result.pending.kind == "budget"
        assert (result.pending.replays, result.pending.turns_again) == ((), 0)
        result = await runtime.resume([Answer(id=r.id, ok=True, data=100) for r in result.pendings])
    assert result.replay is None or (result.replay.turns_bought_again, result.replay.calls_rerun) == (0, ())
    return result


@pytest.mark.parametrize("policy", [ResumePolicy.REWIND, ResumePolicy.CONTINUE])
async def test_nothing_is_bought_twice_for_a_question_about_tokens(policy: ResumePolicy) -> None:
    """A call that a crash cut off counts with its reservation: where the cap is met differs, and nothing else does."""
    world, store = World(), CrashingStore(MemoryStore())
    life = Life(world, store)
    quiet = await capped(world, policy, store)
    assert (quiet.usage.turns, quiet.total_tokens, world.times("look it")) == (11, 1100, 2)
    asked = [x for x in await facts_of(store) if isinstance(x, f.WakeAsked)]
    assert {x.handle.count("/") for x in asked} == {1, 2, 3}, "it should ask on every level"
    for death in deaths(store.appends, len(life.places), step=STEP):
        world, inner = World(), MemoryStore()
        assert await dies(partial(capped, world, policy), world, inner, death)
        result = await capped(world, policy, inner)
        facts = await facts_of(inner)
        where = f"died {death}"
        assert (result.text, result.usage.turns, result.total_tokens) == ("end", 11, 1100), where
        assert world.asked_model - 11 <= result.usage.unreported_calls <= 1, where
        ids = sorted(x.request for x in facts if isinstance(x, f.WakeAsked))
        assert sorted(x.request for x in facts if isinstance(x, f.AnswerGiven)) == ids, where
        raised = [x.caps.max_tokens for x in facts if isinstance(x, f.BudgetRaised)]
        assert raised == [100 * n for n in range(2, len(ids) + 2)], where
        assert not any(isinstance(x, f.Rewound) for x in facts), where
        assert len({key for _, _, key in world.effects}) == 2, where
