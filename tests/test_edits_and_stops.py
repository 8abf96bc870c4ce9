"""Arguments an approver changed are the ones that run, also where the wake had stopped at a limit before."""

from __future__ import annotations

import pytest

from overt import Agent, Answer, Ask, Budget, ResumePolicy, Runtime, tool
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say


@pytest.mark.parametrize("policy", list(ResumePolicy))
@pytest.mark.parametrize("reopened", [False, True])
async def test_what_was_approved_runs_after_a_rewind_to_a_limit_stop(
    policy: ResumePolicy, reopened: bool
) -> None:
    ran: list[str] = []

    @tool
    async def pay(to: str) -> str:
        ran.append(to)
        return f"paid {to}"

    agent = Agent(
        "a", does="x", tools=[pay], guardrails=[lambda event: Ask("Pay?")], budget=Budget(max_turns=1)
    )
    model = MockModel([call("pay", to="mallory"), say("done")])
    store = MemoryStore()
    _, runtime = await agent.run("go", model=model, store=store, resume_policy=policy)
    result = await runtime.extend(Budget(max_turns=9))
    assert result.pending is not None
    if reopened:
        runtime = await Runtime.open(agent, runtime.id, model=model, store=store)
    result = await runtime.resume(Answer(id=result.pending.id, ok=True, data={"arguments": {"to": "alice"}}))
    assert result.status == "done"
    assert ran == ["alice"]
