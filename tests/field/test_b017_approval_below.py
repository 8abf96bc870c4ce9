"""B017: an approval asked for below is resumed in another process; three levels behave the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.field.apart import Notebook, apart

from overt import Agent, Answer, Request, ResumePolicy, Runtime, ToolContext, ToolResult, pending, tool
from overt.stores import SQLiteStore
from overt.testing import MockModel, call, say

pytestmark = pytest.mark.anyio


class World:
    """What outlives the processes: what ran, and whom the model was asked for."""

    def __init__(self, folder: Path) -> None:
        self.ran = Notebook(folder / "ran")
        self.asked = Notebook(folder / "asked")

    def build(self, levels: int) -> Agent[None, str]:
        world = self

        def model(replies: list[Any]) -> MockModel:
            def script(request: Any) -> Any:
                world.asked.write(request.agent)
                return replies[sum(m.role == "assistant" for m in request.messages)]

            return MockModel(script)

        @tool
        def look() -> str:
            """Look."""
            world.ran.write("look")
            return "seen"

        @tool
        def deploy(ctx: ToolContext, what: str) -> ToolResult:
            """Deploy, if someone allows it."""
            if ctx.answer is None:
                return pending(kind="approval", prompt=f"deploy {what}?")
            world.ran.write(f"deploy {what}" if ctx.answer.ok else "denied")
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


async def start(folder: Path, levels: int, policy: ResumePolicy) -> str:
    """Run until someone is asked, and return the request as JSON."""
    store = SQLiteStore(folder / "runs.db")
    agent = World(folder).build(levels)
    result, _ = await agent.run("go", store=store, run_id="r", resume_policy=policy)
    await store.close()
    assert result.pending is not None
    return result.pending.model_dump_json()


async def resume(folder: Path, levels: int, id: str, ok: bool) -> tuple[str, str]:
    """Answer, check the tree, and return status and text."""
    store = SQLiteStore(folder / "runs.db")
    runtime = await Runtime.open(World(folder).build(levels), "r", store=store)
    result = await runtime.resume(Answer(id=id, ok=ok))
    await store.close()
    check_tree(runtime, levels)
    return result.status.value, result.text


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("ok", [True, False])
async def test_continue_carries_the_childs_history(levels: int, ok: bool, tmp_path: Path) -> None:
    world = World(tmp_path)
    told = await apart(start, tmp_path, levels, ResumePolicy.CONTINUE)
    request = Request.model_validate_json(told)
    assert request.path == ("root", *(f"a{n}.1" for n in range(1, levels + 1)))
    world.asked.clear()
    ended = await apart(resume, tmp_path, levels, request.id, ok)
    assert ended == ("done", "a1: the site is up")
    assert world.ran.read() == ["look", "deploy site" if ok else "denied"]
    assert world.asked.read() == [f"a{n}" for n in range(levels, 0, -1)], "each once, from the leaf up"


@pytest.mark.parametrize("levels", [2, 3])
async def test_rewind_finds_the_children_again_and_replays_their_own_wakes(
    levels: int, tmp_path: Path
) -> None:
    world = World(tmp_path)
    request = Request.model_validate_json(await apart(start, tmp_path, levels, ResumePolicy.REWIND))
    assert [c.tool for c in request.replays] == ["look"]
    assert request.turns_again == 2 + (levels - 1)
    world.asked.clear()
    ended = await apart(resume, tmp_path, levels, request.id, True)
    assert ended == ("done", "a1: the site is up")
    assert world.ran.read() == ["look", "look", "deploy site"]
    expected = [f"a{levels}"] * 3
    for level in range(levels - 1, 0, -1):
        expected += [f"a{level}"] * 2
    assert world.asked.read() == expected, "bottom up"


def check_tree(runtime: Runtime[str], levels: int) -> None:
    assert len(runtime.list()) == levels, "no child was made twice"
    handle = "root"
    for level in range(1, levels):
        handle += f"/a{level}.1"
        said = [m.text for m in runtime.transcript(handle) if m.role == "tool"]
        below = "the site is up" if level == levels - 1 else f"a{level + 1}: the site is up"
        assert said == [below], "the parent receives the child's final answer as the result of its call"
