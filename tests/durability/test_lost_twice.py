"""A tool whose loss was accepted, that came back and was used again, and is gone again, is drift again."""

from __future__ import annotations

import pytest

from overt import Agent, Answer, ResumePolicy, Runtime, ToolContext, tool
from overt.errors import SpecDrift
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_an_answer_is_not_lost_to_a_tool_that_is_gone_again(policy: ResumePolicy) -> None:
    @tool
    async def refund(ctx: ToolContext, euros: int) -> str:
        """Pay back."""
        return str((await ctx.ask(f"Refund {euros}?")).ok)

    @tool
    async def other(ctx: ToolContext) -> str:
        """Something else."""
        return str((await ctx.ask("Other?")).ok)

    model = MockModel([call("refund", euros=1), call("other"), call("refund", euros=2), say("fin")])
    full = Agent("c", does="x", tools=[refund, other], model=model)
    bare = Agent("c", does="x", tools=[other], model=model)
    store = MemoryStore()
    await full.run("go", store=store, run_id="r", resume_policy=policy)
    runtime = await Runtime.open(bare, "r", store=store, on_drift="accept")
    result = await runtime.recover()
    assert result.pending is not None
    assert result.pending.prompt == "Other?"
    runtime = await Runtime.open(full, "r", store=store)
    result = await runtime.resume(Answer(id=result.pending.id, ok=True))
    assert result.pending is not None
    assert result.pending.prompt.startswith("Refund")
    with pytest.raises(SpecDrift, match="refund"):
        await Runtime.open(bare, "r", store=store)
