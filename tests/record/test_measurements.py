"""The record's four measurements, with its prices: m-parent 100, m-child 400, m-loop 70, m-sus 50 tokens a call."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from overt import (
    Agent,
    Answer,
    Budget,
    Limit,
    ResumePolicy,
    Runtime,
    State,
    Status,
    ToolContext,
    ToolResult,
    pending,
    tool,
)
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say

pytestmark = pytest.mark.anyio


async def test_a_the_total_is_the_trees() -> None:
    child = Agent("explore", does="explores", model=MockModel([say("found")], name="m-child", tokens=400))
    parent = Agent(
        "coordinator",
        does="coordinates",
        team=[child],
        model=MockModel(
            [call("task", agent="explore", prompt="look"), say("all done")], name="m-parent", tokens=100
        ),
    )
    result, runtime = await parent.run("go")
    assert (result.status, result.text) == (Status.DONE, "all done")
    assert (result.total_tokens, result.own_tokens, result.turns) == (600, 200, 2)
    explore = runtime.inspect("root/coordinator.1/explore.1")
    assert (explore.total_tokens, explore.own_tokens, explore.turns) == (400, 400, 1)
    assert runtime.usage_tokens("root") == runtime.usage_tokens(result.handle) == 600
    assert result.total_tokens >= explore.total_tokens
    assert (result.usage.total_tokens, result.own_usage.total_tokens) == (600, 200)
    assert (result.usage.turns, result.own_usage.turns) == (3, 2)


async def test_b_the_limit_is_a_value() -> None:
    @tool
    def look(page: int) -> str:
        """Look."""
        return "nothing"

    looper = Agent(
        "looper",
        does="loops",
        tools=[look],
        budget=Budget(max_turns=3),
        model=MockModel([call("look", page=n) for n in range(9)], name="m-loop", tokens=70),
    )
    result, runtime = await looper.run("go")
    assert (result.status, result.limit) == (Status.INCOMPLETE, Limit.MAX_TURNS)
    assert result.limit == "maxTurns"
    assert result.limit_at == result.handle
    assert (result.turns, result.total_tokens, result.own_tokens) == (3, 210, 210)
    assert "maxTurns" in result.text
    assert result.is_error
    assert runtime.inspect(result.handle).state is State.IDLE


def plan_of_three(invocations: list[str], on_replay: Literal["rerun", "reuse"] = "rerun") -> Agent[None, str]:
    @tool(on_replay=on_replay)
    def counter(step: str) -> str:
        """Count."""
        invocations.append(step)
        return f"did {step}"

    @tool
    def approve(ctx: ToolContext) -> ToolResult:
        """Ask."""
        if ctx.answer is None:
            return pending(kind="approval", prompt="commit?")
        return ToolResult("approved" if ctx.answer.ok else "declined")

    script = [
        call("counter", step="stage"),
        call("approve"),
        call("counter", step="commit"),
        say("committed"),
    ]
    return Agent(
        "worker",
        does="works",
        tools=[counter, approve],
        model=MockModel(script, name="m-sus", tokens=50),
    )


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same runtime", "reopened"])
@pytest.mark.parametrize(
    ("policy", "on_replay", "order", "turns", "tokens"),
    [
        (ResumePolicy.REWIND, "rerun", ["stage", "stage", "commit"], 6, 300),
        (ResumePolicy.REWIND, "reuse", ["stage", "commit"], 6, 300),
        (ResumePolicy.CONTINUE, "rerun", ["stage", "commit"], 4, 200),
    ],
)
async def test_c_what_a_resume_replays(
    policy: ResumePolicy,
    on_replay: Literal["rerun", "reuse"],
    order: list[str],
    turns: int,
    tokens: int,
    elsewhere: bool,
) -> None:
    invocations: list[str] = []
    store = MemoryStore()
    options: dict[str, Any] = {"store": store, "run_id": "c"}
    worker = plan_of_three(invocations, on_replay)
    parked, runtime = await worker.run("go", resume_policy=policy, **options)
    assert parked.status is Status.PENDING
    assert parked.pending is not None
    assert (parked.turns, parked.total_tokens, invocations) == (2, 100, ["stage"])
    assert runtime.transcript(parked.handle) == ()

    if elsewhere:
        runtime = await Runtime.open(plan_of_three(invocations, on_replay), "c", store=store)
        assert runtime.result() == parked
    result = await runtime.resume(Answer(id=parked.pending.id, ok=True))
    assert (result.status, result.text) == (Status.DONE, "committed")
    assert invocations == order
    assert (result.turns, result.total_tokens, result.own_tokens) == (turns, tokens, tokens)
    roles = [m.role for m in runtime.transcript(result.handle)]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant", "tool", "assistant"]


async def test_c_the_default_is_rewind() -> None:
    invocations: list[str] = []
    parked, runtime = await plan_of_three(invocations).run("go")
    assert runtime.policy is ResumePolicy.REWIND
    assert parked.pending is not None
    await runtime.resume(Answer(id=parked.pending.id, ok=True))
    assert len(invocations) == 3


async def test_d_a_second_prompt_never_reports_less() -> None:
    model = MockModel(prompts=[[say("one")], [say("two")]], name="m-parent", tokens=100)
    runtime = Runtime(Agent("assistant", does="answers", model=model))
    handle = await runtime.spawn(runtime.root, "assistant")
    first = await runtime.run_turn(handle, "1")
    assert (first.text, first.total_tokens, first.own_tokens, first.turns) == ("one", 100, 100, 1)
    second = await runtime.run_turn(handle, "2")
    assert (second.text, second.total_tokens, second.own_tokens, second.turns) == ("two", 200, 200, 2)
    assert runtime.usage_tokens(handle) == 200
