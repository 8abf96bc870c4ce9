"""Idempotency keys, `ctx.attempt` and `ctx.once`: the same call is the same in every attempt and process."""

from __future__ import annotations

from typing import Any

import pytest

from overt import Budget, Limit, ResumePolicy, Runtime, Status, ToolContext, tool
from overt.stores import MemoryStore
from overt.testing import call, say
from tests.suspend_kit import agent, approve, first, tools_said, yes

pytestmark = pytest.mark.anyio

seen: list[tuple[str, str, int]] = []
ran: list[Any] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    seen.clear()
    ran.clear()


@tool
def look(ctx: ToolContext, n: float = 1.0, note: str = "x") -> str:
    """Look."""
    seen.append((ctx.handle, ctx.idempotency_key, ctx.attempt))
    return "seen"


def keys() -> list[str]:
    return [key for _, key, _ in seen]


async def test_the_same_in_every_attempt_and_process() -> None:
    worker = agent(
        [[call("look"), call("look", n=2)], call("approve"), call("look"), say("end")], look, approve
    )
    store = MemoryStore()
    result, _ = await worker.run("go", store=store, run_id="r")
    one = keys()
    assert len(set(one)) == 2
    assert all(len(key) == 32 and int(key, 16) >= 0 for key in one)
    assert {attempt for _, _, attempt in seen} == {1}
    there = await Runtime.open(worker, "r", store=store)
    await there.resume(yes(result))
    two = keys()[2:]
    assert sorted(two[:2]) == sorted(one)
    assert two[2] not in one, "the same words again are another call"
    assert [attempt for _, _, attempt in seen[2:]] == [2, 2, 2]


async def test_equal_arguments_in_other_spellings_are_the_same_arguments() -> None:
    for spelled in ({"n": 1}, {"n": 1.0, "note": "x"}, {"note": "x"}, {}):
        await agent([call("look", **spelled), say("end")], look).run("go", run_id="r")
    assert len(set(keys())) == 1
    await agent([call("look", n=1.5), say("end")], look).run("go", run_id="r")
    assert len(set(keys())) == 2


async def test_different_for_every_other_call() -> None:
    twice = [call("look"), call("look")]
    child = agent([twice, say("child")], look, name="child")
    boss = agent(
        [[*twice, call("task", agent="child", prompt="p"), call("task", agent="child", prompt="p")], twice, say("end")],
        look, name="boss", team=[child],
    )  # fmt: skip
    for run_id in ("r1", "r2"):
        await boss.run("go", run_id=run_id)
    assert len(seen) == len(set(keys())) == 2 * (2 + 2 * 2 + 2)
    async with Runtime(boss, run_id="r3") as runtime:
        handle = await runtime.spawn(runtime.root, "child")
        before = len(seen)
        await runtime.run_turn(handle, "one")
        await runtime.run_turn(handle, "two")
        assert len(set(keys()[before:])) == 4, "another wake, another call"
        await runtime.close()


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_different_after_a_limit_stop_moved_the_checkpoint(policy: ResumePolicy) -> None:
    script = [call("look"), call("look"), call("look"), call("approve"), call("look"), say("end")]
    worker = agent(script, look, approve, budget=Budget(max_turns=2))
    result, runtime = await worker.run("go", resume_policy=policy)
    assert (result.status, result.limit) == (Status.INCOMPLETE, Limit.MAX_TURNS)
    result = await runtime.extend(Budget(max_turns=20))
    assert result.status is Status.PENDING
    kept = keys()
    assert len(kept) == len(set(kept)) == 3
    if policy is ResumePolicy.REWIND:
        # The stop is the checkpoint: the call it left open and what came after run again.
        assert [c.idempotency_key for c in first(result).replays] == kept[1:]
        assert first(result).turns_again == 2
    result = await runtime.resume(yes(result))
    assert result.status is Status.DONE
    again = keys()[3:]
    assert again[:-1] == (kept[1:] if policy is ResumePolicy.REWIND else [])
    assert again[-1] not in kept
    assert len(tools_said(runtime.transcript(result.handle))) == 5


# --------------------------------------------------------------- once


@pytest.mark.parametrize("policy", list(ResumePolicy))
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_once_runs_once_and_gives_what_it_gave(policy: ResumePolicy, elsewhere: bool) -> None:
    @tool
    async def pay(ctx: ToolContext, to: str) -> str:
        """Pay."""

        async def block() -> dict[str, list[int]]:
            ran.append(to)
            return {"receipt": [len(ran)]}

        receipt = await ctx.once("pay", block)
        receipt["receipt"].append(99)
        assert (await ctx.once("pay", block))["receipt"] in ([1], [2], [1, 99], [2, 99])
        answer = await ctx.ask(f"confirm {to}?")
        return f"{to} {receipt['receipt'][0]} {answer.ok}"

    worker = agent([[call("pay", to="a"), call("pay", to="b")], call("approve"), say("end")], pay, approve)
    store = MemoryStore()
    result, runtime = await worker.run("go", store=store, run_id="r", resume_policy=policy)
    while result.status is Status.PENDING:
        if elsewhere:
            runtime = await Runtime.open(worker, "r", store=store)
        result = await runtime.resume([yes(r) for r in result.pendings])
    assert sorted(ran) == ["a", "b"], "once for each key"
    said = tools_said(runtime.transcript(result.handle))
    assert sorted(said[0][2] + said[1][2]) == ["1", "2"]


async def test_two_labels_are_two_blocks_and_a_failed_block_stays_failed() -> None:
    @tool
    async def both(ctx: ToolContext) -> str:
        """Do both."""

        async def one() -> str:
            ran.append("one")
            return "1"

        async def two() -> str:
            ran.append("two")
            raise ValueError("no funds")

        first_value = await ctx.once("one", one)
        try:
            await ctx.once("two", two)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the recorded one
            failed = str(error)
        else:
            failed = ""
        await ctx.ask("ok?")
        return f"{first_value} {'no funds' in failed}"

    result, runtime = await agent([call("both"), say("end")], both).run("go")
    result = await runtime.resume(yes(result))
    assert ran == ["one", "two"]
    assert tools_said(runtime.transcript(result.handle)) == ["1 True"]
