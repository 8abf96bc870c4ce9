"""A process that dies at any append, before or after it is written: the next one goes on as if nothing had been."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

import pytest
from tests.durability.crew import LEAD, RUN, Host, Outcome, World, check, facts_of

from overt import Budget, ResumePolicy, Runtime
from overt.core import facts as f
from overt.errors import StoreError
from overt.stores import MemoryStore, SQLiteStore
from overt.testing.crashing import Crashed, CrashingStore

pytestmark = pytest.mark.anyio
When = Literal["before", "after"]


async def calm(policy: ResumePolicy) -> tuple[World, list[f.Fact], int]:
    """The run nobody disturbs: its world, its journal, and its number of appends."""
    world, store = World(), CrashingStore(MemoryStore())
    result = await Host(world, store, policy).run()
    facts = await facts_of(store)
    check(world, result, facts, facts)
    return world, facts, store.appends


async def crash(host: Host, at: int, when: When) -> None:
    """Run until the process dies at its n-th append."""
    store = CrashingStore(host.store, crash_at=at, when=when)
    try:
        await Host(host.world, store, host.policy, host.outcome).run()
    except BaseException as error:
        if not is_crash(error):
            raise
    else:
        raise AssertionError("it lived")
    assert store.crashed


def is_crash(error: BaseException | None) -> bool:
    """Whether it is the store's crash, as it comes out of a task, of a group of them, or of a stopped driver."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_crash(inner) for inner in error.exceptions)
    return isinstance(error, Crashed) or (isinstance(error, StoreError) and is_crash(error.__cause__))


@pytest.mark.parametrize("outcome", ["retry", "succeeded"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_a_crash_at_every_append(policy: ResumePolicy, when: When, outcome: Outcome) -> None:
    _, quiet, appends = await calm(policy)
    assert appends >= 16
    doubted = 0
    for at in range(1, appends + 1):
        host = Host(World(), MemoryStore(), policy, outcome)
        try:
            await crash(host, at, when)
            result = await host.run()
            check(host.world, result, await facts_of(host.store), quiet)
        except BaseException as error:
            error.add_note(f"crashed {when} append {at} of {appends}")
            raise
        doubted += bool(host.world.doubts)
    assert doubted, "no crash left anything in doubt: this test has lost its subject"


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_one_crash_after_another(policy: ResumePolicy) -> None:
    """Each process dies a few appends after the one before it, so recoveries are cut off too."""
    _, quiet, appends = await calm(policy)
    chance = random.Random(7)
    for _ in range(20):
        host = Host(World(), MemoryStore(), policy, chance.choice(("retry", "succeeded")))
        crashes: list[str] = []
        try:
            for _ in range(chance.randint(2, 5)):
                at = chance.randint(1, appends)
                when: When = chance.choice(("before", "after"))
                crashes.append(f"{when} {at}")
                store = CrashingStore(host.store, crash_at=at, when=when)
                try:
                    await Host(host.world, store, policy, host.outcome).run()
                except BaseException as error:
                    if not is_crash(error):
                        raise
                else:
                    break
            result = await host.run()
            check(host.world, result, await facts_of(host.store), quiet)
        except BaseException as error:
            error.add_note(f"crashed {crashes}")
            raise


async def test_a_sample_on_a_file(tmp_path: Path) -> None:
    policy = ResumePolicy.REWIND
    _, quiet, appends = await calm(policy)
    for at in range(2, appends + 1, 4):
        path = tmp_path / f"{at}.db"
        first, second = SQLiteStore(path), SQLiteStore(path)
        world = World()
        await crash(Host(world, first, policy), at, "after" if at % 8 else "before")
        result = await Host(world, second, policy).run()
        check(world, result, await facts_of(second), quiet)
        await first.close()
        await second.close()


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
