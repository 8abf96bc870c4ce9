"""A process that dies at any append of a run with every rule in it: nothing is asked, judged, done or bought anew."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.durability.crew import Counting, Outcome, World, facts_of
from tests.durability.policed_crew import MODES, RUN, Host, Mode, Report, again, check, look
from tests.durability.test_crash_everywhere import When, is_crash

from overt import Agent, Answer, Budget, ResumePolicy, Runtime, Suspend, TaskResult
from overt.core import facts as f
from overt.errors import RunNotFound
from overt.stores import MemoryStore, SQLiteStore, Store
from overt.testing import MockModel, Script, VirtualClock, call, say
from overt.testing.crashing import CrashingStore

pytestmark = pytest.mark.anyio
modes = pytest.mark.parametrize("mode", MODES)
OUTCOMES: tuple[Outcome, ...] = ("retry", "succeeded")
WHENS: tuple[When, ...] = ("before", "after")


async def calm(mode: Mode) -> tuple[list[f.Fact], int]:
    """The journal of the run nobody disturbed, and its number of appends."""
    world, store = World(), CrashingStore(MemoryStore())
    result, runtime = await driven(world, mode, "retry", store)
    facts = await facts_of(store)
    check(world, result, runtime, facts, facts)
    return facts, store.appends


async def driven(
    world: World, mode: Mode, outcome: Outcome, store: Store, *, rewinds: bool = False, streams: bool = False
) -> tuple[TaskResult[Report], Runtime[Report]]:
    """Drive the run in a process of its own."""
    return await Host(world, store, mode, outcome, rewinds, streams).run()


async def dies(run: Callable[[Store], Awaitable[object]], inner: Store, at: int, when: When) -> bool:
    """Run until the process dies at its n-th append; say whether it did."""
    store = CrashingStore(inner, crash_at=at, when=when)
    try:
        await run(store)
    except BaseException as error:
        if not is_crash(error):
            raise
    return store.crashed


def points(appends: int, loop: str) -> range:
    """Every append on one loop, and a third of them on the other."""
    return range(1, appends + 1) if loop == "asyncio" else range(1, appends + 1, 3)


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
@pytest.mark.parametrize("when", WHENS)
async def test_a_crash_at_every_append(mode: Mode, when: When, anyio_backend_name: str) -> None:
    quiet, appends = await calm(mode)
    assert appends >= 40
    doubted = 0
    for at in points(appends, anyio_backend_name):
        # Each loop has one half of the outcomes.
        outcome = OUTCOMES[(at + (when == "after") + (anyio_backend_name == "trio")) % 2]
        world, store = World(), MemoryStore()
        try:
            # What happens at once may come in fewer appends another time.
            assert await dies(partial(driven, world, mode, outcome), store, at, when) or at > appends - 4
            result, runtime = await driven(world, mode, outcome, store)
            facts = await facts_of(store)
            check(world, result, runtime, facts, quiet)
            same_work(facts, quiet, mode)
            await again(runtime, world)
        except BaseException as error:
            error.add_note(f"crashed {when} append {at} of {appends}, {outcome}")
            raise
        doubted += in_doubt(facts)
    assert doubted, "no crash left anything in doubt: this test has lost its subject"


@modes
async def test_one_crash_after_another(mode: Mode) -> None:
    """Each process dies a few appends after the one before it, so recoveries are cut off too.

    Some of them replay, and some are read along as a stream.
    """
    quiet, appends = await calm(mode)
    chance = random.Random(11)
    for _ in range(12):
        world, store, outcome = World(), MemoryStore(), chance.choice(OUTCOMES)
        deaths: list[str] = []
        try:
            for _ in range(chance.randint(2, 5)):
                at, when = chance.randint(1, appends), chance.choice(WHENS)
                rewinds, streams = chance.random() < 0.3, chance.random() < 0.5
                deaths.append(f"{when} {at}{' replaying' * rewinds}{' streamed' * streams}")
                run = partial(driven, world, mode, outcome, rewinds=rewinds, streams=streams)
                if not await dies(run, store, at, when):
                    break
            result, runtime = await driven(world, mode, outcome, store)
            check(world, result, runtime, await facts_of(store), quiet, replayed=True)
        except BaseException as error:
            error.add_note(f"crashed {deaths}, {outcome}")
            raise


async def test_a_sample_on_a_file(tmp_path: Path) -> None:
    mode: Mode = "rewind"
    quiet, appends = await calm(mode)
    died = 0
    for at in range(3, appends + 1, 9):
        path = tmp_path / f"{at}.db"
        first, second = SQLiteStore(path), SQLiteStore(path)
        world = World()
        # How much of what happens at once goes into one append is up to the store.
        died += await dies(partial(driven, world, mode, "retry"), first, at, "after" if at % 2 else "before")
        result, runtime = await driven(world, mode, "retry", second)
        check(world, result, runtime, await facts_of(second), quiet)
        await first.close()
        await second.close()
    assert died >= 5


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
async def test_nothing_is_bought_twice_for_a_question_about_tokens(
    policy: ResumePolicy, anyio_backend_name: str
) -> None:
    """A call that a crash cut off counts with its reservation: where the cap is met differs, and nothing else does."""
    world, store = World(), CrashingStore(MemoryStore())
    quiet = await capped(world, policy, store)
    assert (quiet.usage.turns, quiet.total_tokens, world.times("look it")) == (11, 1100, 2)
    asked = [x for x in await facts_of(store) if isinstance(x, f.WakeAsked)]
    assert {x.handle.count("/") for x in asked} == {1, 2, 3}, "it should ask on every level"
    for at in points(store.appends, anyio_backend_name):
        for when in WHENS:
            world, inner = World(), MemoryStore()
            assert await dies(partial(capped, world, policy), inner, at, when)
            result = await capped(world, policy, inner)
            facts = await facts_of(inner)
            where = f"crashed {when} append {at}"
            assert (result.text, result.usage.turns, result.total_tokens) == ("end", 11, 1100), where
            assert world.asked_model - 11 <= result.usage.unreported_calls <= 1, where
            ids = sorted(x.request for x in facts if isinstance(x, f.WakeAsked))
            assert sorted(x.request for x in facts if isinstance(x, f.AnswerGiven)) == ids, where
            raised = [x.caps.max_tokens for x in facts if isinstance(x, f.BudgetRaised)]
            assert raised == [100 * n for n in range(2, len(ids) + 2)], where
            assert not any(isinstance(x, f.Rewound) for x in facts), where
            assert len({key for _, _, key in world.effects}) == 2, where
