"""The completion gate beside limits that ask, hooks that fail, and processes that lack what others had."""

from __future__ import annotations

from typing import Any

import pytest

from overt import (
    Agent,
    Attempt,
    Budget,
    Completion,
    Extend,
    Hooks,
    ResumePolicy,
    Runtime,
    Suspend,
    require_approval,
    tool,
)
from overt.errors import UsageError
from overt.stores import MemoryStore
from overt.testing import MockModel, VirtualClock, call
from tests.suspend_kit import approve, first, yes
from tests.test_budget_wall import driven

W = "root/w.1"
both = pytest.mark.parametrize("policy", list(ResumePolicy))


@tool
async def t(n: int) -> str:
    return str(n)


def second_round(attempt: Attempt[Any]) -> tuple[bool, str]:
    return attempt.number == 2, "more"


@both
async def test_a_budget_answered_in_the_second_round_keeps_the_first(policy: ResumePolicy) -> None:
    seen: list[tuple[int, int]] = []

    def judge(attempt: Attempt[Any]) -> tuple[bool, str]:
        seen.append((attempt.number, len(attempt.tool_calls)))
        return second_round(attempt)

    model = MockModel(prompts=[[call("t", n=1), "a"], [call("t", n=2), "b"]])
    gate = Completion(judge, max_attempts=3)
    agent = Agent("w", does="x", tools=[t], model=model, completion=gate, budget=Budget(max_tool_calls=1))
    result, rt = await agent.run("go", on_limit=lambda info: Suspend(), resume_policy=policy)
    assert (result.status, [v.reason for v in result.verdicts]) == ("pending", ["more"])
    result = await rt.resume(yes(result, 5))
    assert (result.status, result.text, len(model.requests)) == ("done", "b", 4)
    assert seen == [(1, 1), (2, 2)]
    assert [v.ok for v in result.verdicts] == [False, True]


@pytest.mark.parametrize("says", ["extend", "suspend"])
async def test_turns_spent_by_the_gate_are_asked_about(says: str) -> None:
    """Also where the answer is a typed one, whose call has the feedback as its result; and in another process."""
    model = MockModel([call("final_result", value=1), call("final_result", value=2)])
    agent = Agent(
        "w", does="x", model=model, output_type=int, completion=Completion(second_round, max_attempts=3),
        budget=Budget(max_turns=1),
    )  # fmt: skip
    store = MemoryStore()
    decision = Extend(Budget(max_turns=2)) if says == "extend" else Suspend()
    result, _ = await agent.run("go", on_limit=lambda info: decision, store=store, run_id="r")
    if says == "suspend":
        assert result.status == "pending"
        rt = await Runtime.open(agent, "r", store=store)
        result = await rt.resume(yes(rt.result(), 1))
    assert (result.output, result.turns, len(model.requests)) == (2, 2, 2)


async def test_the_time_of_a_verifier_is_running_time_and_ends_it() -> None:
    clock = VirtualClock()
    asked: list[int] = []

    async def slow(attempt: Attempt[Any]) -> tuple[bool, str]:
        asked.append(attempt.number)
        await clock.sleep(20)
        return True, "good"

    model = MockModel(["a"])
    gate = Completion(slow, max_attempts=2)
    agent = Agent("w", does="x", model=model, completion=gate, budget=Budget(max_wall=10))
    rt = Runtime(agent, clock=clock)
    result = await driven(clock, rt.run("go"), 10, 1)
    assert (result.status, result.limit, result.verdicts) == ("incomplete", "maxWall", ())
    result = await driven(clock, rt.extend(Budget(max_wall=100)), 20, 1)
    assert (result.status, asked, len(model.requests)) == ("done", [1, 1], 1)


async def test_a_process_that_lacks_the_gate_goes_on_without() -> None:
    def agent(gate: Completion | None) -> Agent[None, str]:
        model = MockModel(prompts=[["a"], [call("approve"), "b"]])
        return Agent("w", does="x", model=model, tools=[approve], completion=gate)

    store = MemoryStore()
    options: dict[str, Any] = {"store": store, "run_id": "r", "resume_policy": ResumePolicy.CONTINUE}
    await agent(Completion(lambda attempt: (False, "no"), max_attempts=2)).run("go", **options)
    rt = await Runtime.open(agent(None), "r", store=store)
    result = await rt.resume(yes(rt.result()))
    assert (result.status, [v.reason for v in result.verdicts]) == ("done", ["no"])


@both
async def test_approved_calls_that_wait_for_a_budget_are_not_asked_about_again(policy: ResumePolicy) -> None:
    model = MockModel([[call("t", n=1), call("t", n=2)], "a"])
    agent = Agent(
        "w", does="x", tools=[t], model=model, budget=Budget(max_tool_calls=1), guardrails=[require_approval("t")]
    )  # fmt: skip
    result, rt = await agent.run("go", on_limit=lambda info: Suspend(), resume_policy=policy)
    assert [request.kind for request in result.pendings] == ["approval", "approval"]
    result = await rt.resume([yes(request) for request in result.pendings])
    assert (result.status, first(result).kind) == ("pending", "budget")
    bought = len(model.requests)
    result = await rt.resume(yes(result, 1))
    assert (result.status, len(model.requests)) == ("done", bought + 1)


async def test_a_hook_that_fails_beside_a_call_past_its_cap() -> None:
    """The failure is told first, the cap once the wake goes on."""
    left = [RuntimeError("no")]

    def after(event: Any) -> None:
        if left:
            raise left.pop()

    model = MockModel([[call("t", n=1), call("t", n=2)], "a"])
    agent = Agent(
        "w", does="x", tools=[t], model=model, budget=Budget(max_tool_calls=1), hooks=Hooks(after_tool=after)
    )  # fmt: skip
    result, rt = await agent.run("go")
    assert (result.status, result.limit) == ("error", None)
    assert (await rt.recover()).limit == "maxToolCalls"
    result = await rt.extend(Budget(max_tool_calls=5))
    assert (result.status, result.usage.tool_calls, len(model.requests)) == ("done", 2, 2)


@both
async def test_a_hook_that_fails_beside_a_question(policy: ResumePolicy) -> None:
    """Nobody is asked for a wake that has failed; whoever goes on has the question again."""
    left = [RuntimeError("no")]
    ran: list[int] = []

    def after(event: Any) -> None:
        if event.call.name == "u" and left:
            raise left.pop()

    @tool(on_replay="reuse")
    async def u(n: int) -> str:
        ran.append(n)
        return str(n)

    model = MockModel([[call("u", n=1), call("approve")], "done"])
    agent = Agent("w", does="x", tools=[u, approve], model=model, hooks=Hooks(after_tool=after))
    result, rt = await agent.run("go", resume_policy=policy)
    assert (result.status, result.pendings) == ("error", ())
    result = await rt.recover()
    assert (result.status, len(model.requests)) == ("pending", 1)
    result = await rt.resume(yes(result))
    assert (result.status, ran) == ("done", [1])


async def test_a_gate_that_gave_up_is_asked_once_more_without_a_cap_to_raise() -> None:
    rounds: list[int] = []

    def third(attempt: Attempt[Any]) -> tuple[bool, str]:
        rounds.append(attempt.number)
        return len(rounds) == 3, "once more"

    gated = Agent("a", does="x", completion=Completion(third, max_attempts=2), model=MockModel(["draft"]))
    result, runtime = await gated.run("go")
    assert (result.status, result.limit) == ("incomplete", "completion")
    result = await runtime.extend(Budget())
    assert (result.status, result.turns, rounds) == ("done", 3, [1, 2, 3])


async def test_a_cap_is_not_raised_by_nothing() -> None:
    capped = Agent(
        "a", does="x", budget=Budget(max_turns=1), tools=[t], model=MockModel([call("t", n=1)] * 3)
    )
    result, runtime = await capped.run("go")
    before = len(runtime.events())
    with pytest.raises(UsageError, match="sets no cap"):
        await runtime.extend(Budget())
    assert (runtime.result(), len(runtime.events())) == (result, before)
