"""B007 and B008: calls of one tool that pause together have their own ids, and each call gets its own answer."""

from __future__ import annotations

from itertools import permutations

import pytest

from overt import Agent, Answer, ResumePolicy, Runtime, Status, ToolContext, ToolResult, pending, tool
from overt.stores import MemoryStore
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


@BOTH
@pytest.mark.parametrize("order", list(permutations((0, 1))))
async def test_one_at_a_time_with_a_new_process_between(policy: ResumePolicy, order: tuple[int, int]) -> None:
    paid: list[int] = []
    store = MemoryStore()
    result, _ = await build([1, 2], paid).run("go", store=store, run_id="r", resume_policy=policy)
    requests = result.pendings
    heard: list[MockModel] = []
    for step, index in enumerate(order):
        model = MockModel([[call("refund", order=n) for n in (1, 2)], say("end")])
        heard.append(model)
        runtime = await Runtime.open(build([1, 2], paid, model), "r", store=store)
        result = await runtime.resume(Answer(id=requests[index].id, ok=True))
        if step == 0:
            assert result.status is Status.PENDING
            assert [r.id for r in result.pendings] == [requests[order[1]].id]
            assert model.requests == []
            assert paid == []
    assert result.status is Status.DONE
    assert sorted(paid) == [1, 2]
    last = heard[1].requests[-1]
    assert [m.text for m in last.messages if m.role == "tool"] == ["1 refunded", "2 refunded"]
    assert len(heard[1].requests) == (2 if policy is ResumePolicy.REWIND else 1)
