"""A guardrail asks about a typed final answer, which was given through a tool."""

from __future__ import annotations

import pytest

from overt import Agent, Answer, Ask, ResumePolicy
from overt.testing import MockModel, call


@pytest.mark.parametrize(("policy", "turns"), [("rewind", 2), ("continue", 1)])
async def test_the_wake_goes_on_with_the_answer(policy: str, turns: int) -> None:
    agent = Agent("a", does="x", output_type=int, output_guardrails=[lambda event: Ask("May I?")])
    model = MockModel(lambda request: call(request.tools[0].name, value=3))
    result, runtime = await agent.run("go", model=model, resume_policy=ResumePolicy(policy))
    assert result.pending is not None
    result = await runtime.resume(Answer(id=result.pending.id, ok=True))
    assert (result.status, result.output, result.turns) == ("done", 3, turns)
