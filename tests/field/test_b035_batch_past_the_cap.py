"""B035: a batch larger than what is left never runs past the cap, and the rest is accounted for."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from overt import Agent, Budget, Runtime, ToolMessage, tool
from overt.stores import MemoryStore
from overt.testing import MockModel, call


@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize("where", ["own", "root"])
async def test_six_with_four_used_and_five_more(kind: str, where: str) -> None:
    ran: list[int] = []

    @tool(name="work")
    async def slow(n: int) -> str:
        ran.append(n)
        await anyio.lowlevel.checkpoint()
        return f"ran {n}"

    @tool(name="work")
    def threaded(n: int) -> str:
        ran.append(n)
        return f"ran {n}"

    cap = Budget(max_tool_calls=6)
    chosen = slow if kind == "async" else threaded
    agent = Agent("a", does="x", tools=[chosen], budget=cap if where == "own" else None)
    options: dict[str, Any] = {
        "model": MockModel(
            [[call("work", n=n) for n in range(4)], [call("work", n=n) for n in range(4, 9)], "done"]
        ),
        "store": MemoryStore(),
    }
    root: dict[str, Any] = {"budget": cap} if where == "root" else {}
    result, rt = await agent.run("go", run_id="r", **options, **root)
    assert sorted(ran) == [0, 1, 2, 3, 4, 5]
    assert (result.status, result.limit) == ("incomplete", "maxToolCalls")
    assert result.limit_at == ("root/a.1" if where == "own" else "root")
    texts = [m.text for m in rt.transcript(result.handle) if isinstance(m, ToolMessage)]
    assert texts == [f"ran {n}" for n in range(6)] + ["not run (maxToolCalls)"] * 3
    again = await Runtime.open(agent, "r", **options)
    done = await again.extend(Budget(max_tool_calls=9))
    assert done.output == "done"
    assert sorted(ran) == list(range(9))
    texts = [m.text for m in again.transcript(result.handle) if isinstance(m, ToolMessage)]
    assert texts == [f"ran {n}" for n in range(9)]
