"""B017: an approval asked for below is resumed after every object was rebuilt; three levels behave the same."""

from __future__ import annotations

from typing import Any

import pytest

from overt import Agent, Answer, ResumePolicy, Runtime, Status, ToolContext, ToolResult, pending, tool
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say

pytestmark = pytest.mark.anyio


class World:
    """What outlives the processes: what ran, and whom the model was asked for."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.asked: list[str] = []

    def build(self, levels: int) -> Agent[None, str]:
        world = self

        def model(replies: list[Any]) -> MockModel:
            def script(request: Any) -> Any:
                world.asked.append(request.agent)
                return replies[sum(m.role == "assistant" for m in request.messages)]

            return MockModel(script)

        @tool
        def look() -> str:
            """Look."""
            world.ran.append("look")
            return "seen"

        @tool
        def deploy(ctx: ToolContext, what: str) -> ToolResult:
            """Deploy, if someone allows it."""
            if ctx.answer is None:
                return pending(kind="approval", prompt=f"deploy {what}?")
            world.ran.append(f"deploy {what}" if ctx.answer.ok else "denied")
            return ToolResult("deployed" if ctx.answer.ok else "denied")

        below = Agent(
            f"a{levels}",
            does="deploys",
            tools=[look, deploy],
            model=model([call("look"), call("deploy", what="site"), say("the site is up")]),
        )
        for level in range(levels - 1, 0, -1):
            replies = [call("task", agent=below.name, prompt="deploy"), say(f"a{level}: the site is up")]
            below = Agent(f"a{level}", does="delegates", team=[below], model=model(replies))
        return below


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("ok", [True, False])
async def test_continue_carries_the_childs_history(levels: int, ok: bool) -> None:
    world = World()
    store = MemoryStore()
    result, _ = await world.build(levels).run(
        "go", store=store, run_id="r", resume_policy=ResumePolicy.CONTINUE
    )
    assert result.pending is not None
    assert result.pending.path == ("root", *(f"a{n}.1" for n in range(1, levels + 1)))
    world.asked.clear()
    runtime = await Runtime.open(world.build(levels), "r", store=store)
    result = await runtime.resume(Answer(id=result.pending.id, ok=ok))
    assert (result.status, result.text) == (Status.DONE, "a1: the site is up")
    assert world.ran == ["look", "deploy site" if ok else "denied"]
    assert world.asked == [f"a{n}" for n in range(levels, 0, -1)], "each once, from the leaf up"
    check_tree(runtime, levels)


@pytest.mark.parametrize("levels", [2, 3])
async def test_rewind_finds_the_children_again_and_replays_their_own_wakes(levels: int) -> None:
    world = World()
    store = MemoryStore()
    result, _ = await world.build(levels).run("go", store=store, run_id="r")
    assert result.pending is not None
    assert [c.tool for c in result.pending.replays] == ["look"]
    assert result.pending.turns_again == 2 + (levels - 1)
    world.asked.clear()
    runtime = await Runtime.open(world.build(levels), "r", store=store)
    result = await runtime.resume(Answer(id=result.pending.id, ok=True))
    assert (result.status, result.text) == (Status.DONE, "a1: the site is up")
    assert world.ran == ["look", "look", "deploy site"]
    expected = [f"a{levels}"] * 3
    for level in range(levels - 1, 0, -1):
        expected += [f"a{level}"] * 2
    assert world.asked == expected, "bottom up"
    check_tree(runtime, levels)


def check_tree(runtime: Runtime[str], levels: int) -> None:
    assert len(runtime.list()) == levels, "no child was made twice"
    handle = "root"
    for level in range(1, levels):
        handle += f"/a{level}.1"
        said = [m.text for m in runtime.transcript(handle) if m.role == "tool"]
        below = "the site is up" if level == levels - 1 else f"a{level + 1}: the site is up"
        assert said == [below], "the parent receives the child's final answer as the result of its call"
