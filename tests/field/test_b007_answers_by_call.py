"""B007: calls of one tool that pause together have their own ids, and each call gets its own answer."""

from __future__ import annotations

import pytest

from overt import Agent, Answer, ResumePolicy, Status, ToolContext, ToolResult, pending, tool
from overt.testing import MockModel, call, say

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("policy", list(ResumePolicy))


def build(orders: list[int], paid: list[int], model: MockModel | None = None) -> Agent[None, str]:
    @tool
    def refund(ctx: ToolContext, order: int) -> ToolResult:
        """Refund an order, if someone allows it."""
        if ctx.answer is None:
            return pending(kind="approval", prompt="refund?")
        if not ctx.answer.ok:
            return ToolResult(f"{order} denied", is_error=True)
        paid.append(order)
        return ToolResult(f"{order} refunded")

    model = model or MockModel([[call("refund", order=n) for n in orders], say("end")])
    return Agent("w", does="works", tools=[refund], model=model)


@BOTH
async def test_three_decisions_in_reverse_in_one_resume(policy: ResumePolicy) -> None:
    paid: list[int] = []
    result, runtime = await build([1, 2, 3], paid).run("go", resume_policy=policy)
    requests = result.pendings
    assert len({r.id for r in requests}) == 3
    shown = [r.data["call"] for r in requests]
    assert shown == [{"tool": "refund", "arguments": {"order": n}} for n in (1, 2, 3)]
    decisions = [Answer(id=r.id, ok=ok) for r, ok in zip(requests, (True, False, True), strict=True)]
    result = await runtime.resume(decisions[::-1])
    assert result.status is Status.DONE
    assert sorted(paid) == [1, 3]
    said = [(m.text, m.is_error) for m in runtime.transcript(result.handle) if m.role == "tool"]
    assert said == [("1 refunded", False), ("2 denied", True), ("3 refunded", False)]


@BOTH
async def test_three_calls_with_the_same_arguments_are_three_questions(policy: ResumePolicy) -> None:
    paid: list[int] = []
    result, runtime = await build([7, 7, 7], paid).run("go", resume_policy=policy)
    requests = result.pendings
    assert len({r.id for r in requests}) == 3
    oks = (False, True, False)
    result = await runtime.resume([Answer(id=r.id, ok=ok) for r, ok in zip(requests, oks, strict=True)])
    assert paid == [7]
    said = [m.text for m in runtime.transcript(result.handle) if m.role == "tool"]
    assert said == ["7 denied", "7 refunded", "7 denied"]
