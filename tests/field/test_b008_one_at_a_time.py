"""B008: two waiting calls of one tool are answered one at a time, in either order, a new process for each answer."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from tests.field.apart import Notebook, apart

from overt import Agent, Answer, ResumePolicy, Runtime, ToolContext, ToolResult, pending, tool
from overt.message import ModelRequest
from overt.stores import SQLiteStore
from overt.testing import MockModel, Reply, call, say

pytestmark = pytest.mark.anyio


def build(folder: Path) -> Agent[None, str]:
    @tool
    def refund(ctx: ToolContext, order: int) -> ToolResult:
        """Refund an order, if someone allows it."""
        if ctx.answer is None:
            return pending(kind="approval", prompt="refund?")
        Notebook(folder / "paid").write(order)
        return ToolResult(f"{order} refunded")

    def script(request: ModelRequest) -> Reply:
        results = [m.text for m in request.messages if m.role == "tool"]
        Notebook(folder / "asked").write(", ".join(results))
        return say("end") if results else [call("refund", order=n) for n in (1, 2)]

    return Agent("w", does="works", tools=[refund], model=MockModel(script))


async def start(folder: Path, policy: ResumePolicy) -> list[str]:
    store = SQLiteStore(folder / "runs.db")
    result, _ = await build(folder).run("go", store=store, run_id="r", resume_policy=policy)
    await store.close()
    return [request.id for request in result.pendings]


async def allow(folder: Path, id: str) -> tuple[str, list[str]]:
    """Answer one, and return the status and what is still open."""
    store = SQLiteStore(folder / "runs.db")
    runtime = await Runtime.open(build(folder), "r", store=store)
    result = await runtime.resume(Answer(id=id, ok=True))
    await store.close()
    return result.status.value, [request.id for request in result.pendings]


@pytest.mark.parametrize("policy", list(ResumePolicy))
@pytest.mark.parametrize("order", list(permutations((0, 1))))
async def test_one_at_a_time_with_a_new_process_between(
    policy: ResumePolicy, order: tuple[int, int], tmp_path: Path
) -> None:
    paid, asked = Notebook(tmp_path / "paid"), Notebook(tmp_path / "asked")
    requests = await apart(start, tmp_path, policy)
    first, second = (requests[index] for index in order)
    asked.clear()
    assert await apart(allow, tmp_path, first) == ("pending", [second])
    assert paid.read() == []
    assert asked.read() == []
    assert await apart(allow, tmp_path, second) == ("done", [])
    assert sorted(paid.read()) == ["1", "2"]
    # The second time, a rewound wake is bought from its start.
    again = [""] if policy is ResumePolicy.REWIND else []
    assert asked.read() == [*again, "1 refunded, 2 refunded"]
