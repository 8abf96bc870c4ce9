"""B004: three calls of one turn wait for an outside result; a result for the second moves nothing else."""

from __future__ import annotations

import pytest

from overt import Agent, Answer, ResumePolicy, Runtime, Status, ToolContext, ToolResult, pending, tool
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("policy", list(ResumePolicy))
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_the_others_stay_as_they_are(policy: ResumePolicy, elsewhere: bool) -> None:
    entered: list[int] = []

    @tool
    def fetch(ctx: ToolContext, n: int) -> ToolResult:
        """Fetch from outside."""
        entered.append(n)
        if ctx.answer is None:
            return pending(kind="result", prompt=f"job {n}?")
        return ToolResult(f"{n}: {ctx.answer.data}")

    def build() -> Agent[None, str]:
        model = MockModel([[call("fetch", n=n) for n in (1, 2, 3)], say("end")])
        return Agent("w", does="works", tools=[fetch], model=model)

    store = MemoryStore()
    result, runtime = await build().run("go", store=store, run_id="r", resume_policy=policy)
    one, two, three = result.pendings
    calls = result.usage.model_calls
    assert sorted(entered) == [1, 2, 3]
    result = await runtime.resume(Answer(id=two.id, ok=True, data="b"))
    assert result.status is Status.PENDING
    assert [r.id for r in result.pendings] == [one.id, three.id]
    assert sorted(entered) == [1, 2, 3]
    assert result.usage.model_calls == calls
    if elsewhere:
        runtime = await Runtime.open(build(), "r", store=store)
        assert [r.id for r in runtime.pendings()] == [one.id, three.id]
        assert (await runtime.recover()).status is Status.PENDING
        assert sorted(entered) == [1, 2, 3]
    result = await runtime.resume(
        [Answer(id=three.id, ok=True, data="c"), Answer(id=one.id, ok=True, data="a")]
    )
    assert result.status is Status.DONE
    assert sorted(entered) == [1, 1, 2, 2, 3, 3]
    assert [m.text for m in runtime.transcript(result.handle) if m.role == "tool"] == ["1: a", "2: b", "3: c"]
