"""B050: parallel tools overlap, keep each other's results, and answer in call order."""

from __future__ import annotations

import anyio
import pytest
from tests.driver.support import agent, calling, results, tasks

from overt import Agent, tool
from overt.testing import MockModel, call, say


async def test_quick_success_failure_and_slow_success() -> None:
    failed, ran = anyio.Event(), []

    @tool
    async def quick() -> str:
        ran.append("quick")
        return "q"

    @tool
    async def fails() -> str:
        ran.append("fails")
        failed.set()
        raise ValueError("no luck")

    @tool
    async def slow() -> str:
        ran.append("slow")
        await failed.wait()
        return "s"

    before = tasks()
    result, rt = await agent(quick, fails, slow).run("go", model=calling("quick", "fails", "slow"))
    assert result.status == "done"
    assert results(rt) == [("q", False), ("ValueError: no luck", True), ("s", False)]
    assert sorted(ran) == ["fails", "quick", "slow"]
    assert tasks() == before


@pytest.mark.parametrize("count", [2, 20])
async def test_they_really_overlap(count: int) -> None:
    """Each waits for all the others to have begun."""
    begun, all_in = [0], anyio.Event()

    @tool
    async def meets(n: int) -> str:
        begun[0] += 1
        if begun[0] == count:
            all_in.set()
        await all_in.wait()
        return str(n)

    model = MockModel([[call("meets", n=n) for n in range(count)], say("done")])
    _, rt = await agent(meets).run("go", model=model)
    assert results(rt) == [(str(n), False) for n in range(count)]


async def test_results_keep_call_order_whoever_is_first() -> None:
    """Each waits for the next one, so they finish last to first."""
    done = [anyio.Event() for _ in range(6)]
    done[5].set()

    @tool
    async def backwards(n: int) -> str:
        await done[n + 1].wait()
        done[n].set()
        return str(n)

    model = MockModel([[call("backwards", n=n) for n in range(5)], say("done")])
    _, rt = await agent(backwards).run("go", model=model)
    assert [text for text, _ in results(rt)] == list("01234")


async def test_delegations_overlap_with_tools_and_each_other() -> None:
    begun, all_in = [0], anyio.Event()

    @tool
    async def meets() -> str:
        begun[0] += 1
        if begun[0] == 3:
            all_in.set()
        await all_in.wait()
        return "met"

    child = Agent("child", does="meets", tools=[meets])
    boss = Agent("a", does="works", tools=[meets], team=[child])
    model = MockModel(
        {
            "a": [
                [
                    call("task", agent="child", prompt="x"),
                    call("meets"),
                    call("task", agent="child", prompt="x"),
                ],
                say("done"),
            ],
            "child": [call("meets"), say("child done")],
        }
    )
    _, rt = await boss.run("go", model=model)
    assert results(rt) == [("child done", False), ("met", False), ("child done", False)]


async def test_a_failing_child_costs_its_siblings_nothing() -> None:
    child = Agent("child", does="fails")
    other = Agent("other", does="works")
    boss = Agent("a", does="works", team=[child, other])
    model = MockModel(
        {
            "a": [
                [call("task", agent="child", prompt="x"), call("task", agent="other", prompt="x")],
                say("done"),
            ],
            "child": [RuntimeError("down")],
            "other": [say("fine")],
        }
    )
    result, rt = await boss.run("go", model=model)
    assert result.status == "done"
    (first, failed), second = results(rt)
    assert failed
    assert first.startswith("[error]")
    assert second == ("fine", False)
