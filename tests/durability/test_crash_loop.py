"""A conversation whose process dies anywhere: the next one goes on with its prompt, and with those that follow."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.durability.crew import Counting, World
from tests.durability.deaths import Life, deaths, dies

from overt import (
    Agent,
    Answer,
    Attempt,
    Completion,
    Loop,
    ResumePolicy,
    TaskResult,
    ToolContext,
    require_approval,
    tool,
)
from overt.errors import RunNotFound
from overt.stores import MemoryStore, Store
from overt.testing import MockModel, VirtualClock, call, say
from overt.testing.crashing import CrashingStore

pytestmark = pytest.mark.anyio
PROMPTS = ("one", "two", "three")
# What the gate says to "second" is a prompt of its own.
MODEL = MockModel(
    prompts=[
        [call("pay", amount=1), say("first, done")],
        [call("pay", amount=9), say("second")],
        [say("second, done")],
        [call("pay", amount=9), say("third, done")],
    ]
)


@tool(on_replay="reuse")
async def pay(ctx: ToolContext[World], amount: int) -> str:
    """Pay."""
    ctx.deps.do(ctx, f"pay {amount}")
    return f"paid {amount}"


def says_done(attempt: Attempt[str]) -> tuple[bool, str]:
    return "done" in attempt.text, "say when you are done"


CLERK = Agent(
    "clerk",
    does="Pays.",
    tools=[pay],
    guardrails=[require_approval("pay", when=lambda given: given["amount"] == 9)],
    completion=Completion(says_done, max_attempts=2),
    deps_type=World,
)


async def talk(world: World, policy: ResumePolicy, store: Store) -> tuple[TaskResult[str], Loop[str]]:
    """Begin the conversation or find it, and go on to its end."""
    options: dict[str, Any] = {
        "store": store, "deps": world, "model": Counting(MODEL, world), "resume_policy": policy,
        "clock": VirtualClock(),
    }  # fmt: skip
    try:
        loop = await Loop.open(CLERK, "talk", **options)
    except RunNotFound:
        loop = CLERK.loop(run_id="talk", **options)
        result = await loop.run(PROMPTS[0])
    else:
        result = await loop.recover()
    for _ in range(20):
        if result.pending is not None:
            data = {"outcome": "retry"} if result.pending.kind == "in_doubt" else None
            result = await loop.resume(Answer(id=result.pending.id, ok=True, data=data))
            continue
        assert result.status == "done", result.text
        given = sum(message.role == "user" and message.text in PROMPTS for message in loop.transcript())
        if given == len(PROMPTS):
            return result, loop
        result = await loop.run(PROMPTS[given])
    raise AssertionError("the loop goes round in circles")


def seen(result: TaskResult[str], loop: Loop[str]) -> tuple[object, ...]:
    shown = [(m.role, m.text) for m in loop.transcript()]
    return result.text, result.turns, result.total_tokens, result.verdicts, shown


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_a_death_at_every_append_and_at_every_place_of_a_loop(policy: ResumePolicy) -> None:
    world, store = World(), CrashingStore(MemoryStore())
    life = Life(world, store)
    quiet = seen(*await talk(world, policy, store))
    turns = 9 if policy is ResumePolicy.REWIND else 7
    assert quiet[:3] == ("third, done", turns, 100 * turns)
    assert store.appends >= 20
    for death in deaths(store.appends, len(life.places)):
        world, inner = World(), MemoryStore()
        try:
            assert await dies(partial(talk, world, policy), world, inner, death)
            assert seen(*await talk(world, policy, inner)) == quiet
            assert len({key for _, _, key in world.effects}) == 3, (
                "each prompt's payment has a key of its own"
            )
        except BaseException as error:
            error.add_note(f"died {death} of {store.appends} appends, {len(life.places)} places")
            raise
