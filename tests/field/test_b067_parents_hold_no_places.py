"""B067: parents that wait for children hold no place a child needs."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from overt import Agent, Budget, Runtime
from overt.testing import MockModel, call, say


class Counting:
    def __init__(self, *, hang_at: int | None = None) -> None:
        self.now = self.most = self.total = 0
        self.hang_at = hang_at
        self.hanging = anyio.Event()

    async def __call__(self, request: Any) -> Any:
        self.now += 1
        self.total += 1
        self.most = max(self.most, self.now)
        try:
            if self.hang_at is not None and self.total >= self.hang_at:
                self.hanging.set()
                await anyio.sleep_forever()
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
        finally:
            self.now -= 1
        if request.agent == "leaf" or len(request.messages) > 1:
            return say(f"{request.agent} done")
        below, count = {"top": ("parent", 3), "parent": ("leaf", 2)}[request.agent]
        return [call("task", agent=below, prompt=str(n)) for n in range(count)]


def tree(**budget: Any) -> Agent[None, str]:
    caps = Budget(**budget)
    leaf = Agent("leaf", does="x", budget=caps)
    parent = Agent("parent", does="x", team=[leaf], budget=caps)
    return Agent("top", does="x", team=[parent], budget=caps)


@pytest.mark.parametrize("slots", [1, 2, 8])
@pytest.mark.parametrize("turns", [1, 2])
async def test_it_completes_and_no_more_calls_overlap(turns: int, slots: int) -> None:
    model = Counting()
    with anyio.fail_after(20):
        agent = tree(max_concurrent=slots)
        result, rt = await agent.run("go", model=MockModel(model), max_concurrent_turns=turns)
    assert result.output == "top done"
    assert model.most <= turns
    assert result.usage.model_calls == 2 + 3 * 2 + 6
    assert len(rt.list()) == 1 + 3 + 6


async def test_cancelling_the_root_frees_every_place() -> None:
    model = Counting(hang_at=4)
    agent = tree(max_concurrent=2)
    async with Runtime(agent, model=MockModel(model), max_concurrent_turns=2) as rt:
        handle = await rt.spawn("root", "top")
        await rt.wake(handle, "go")
        with anyio.fail_after(10):
            await model.hanging.wait()
            await anyio.wait_all_tasks_blocked()
        await rt.interrupt("root")
        await anyio.wait_all_tasks_blocked()
        assert model.now == 0
        assert rt.inspect(handle).state == "idle"
        assert {v.state for v in rt.list() if v.id != handle.id} == {"closed"}
        model.hang_at = None
        with anyio.fail_after(10):
            assert (await rt.run_turn(handle, "again")).output == "top done"
    assert model.most == 2
