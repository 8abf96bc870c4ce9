"""B015: what a person looked at is what runs: defaults, coercion and a model that answers otherwise change nothing."""

from __future__ import annotations

from typing import Any

import pytest

from overt import Agent, Answer, ResumePolicy, Runtime, Status, ToolContext, tool
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say

pytestmark = pytest.mark.anyio


def build(ran: list[dict[str, Any]], *, again: dict[str, Any] | None = None) -> Agent[None, str]:
    """A gated tool with a dangerous default; the model of a later process may call it otherwise."""

    @tool
    async def delete(
        ctx: ToolContext, count: int, everywhere: bool = True, only: list[str] | None = None
    ) -> str:
        """Delete."""
        answer = await ctx.ask("delete?", kind="approval")
        if not answer.ok:
            return "left alone"
        ran.append({"count": count, "everywhere": everywhere, "only": only})
        assert ctx.call.arguments == ran[-1]
        return "deleted"

    arguments: dict[str, Any] = {"count": "3"} if again is None else again
    model = MockModel([call("delete", **arguments), say("end")])
    return Agent("w", does="works", tools=[delete], model=model)


SHOWN = {"count": 3, "everywhere": True, "only": None}


@pytest.mark.parametrize("policy", list(ResumePolicy))
@pytest.mark.parametrize("again", [None, {"count": 3}, {"count": 3.0, "everywhere": True, "only": None}])
async def test_exactly_what_was_shown_runs(policy: ResumePolicy, again: dict[str, Any] | None) -> None:
    ran: list[dict[str, Any]] = []
    store = MemoryStore()
    result, _ = await build(ran).run("go", store=store, run_id="r", resume_policy=policy)
    assert result.pending is not None
    assert result.pending.data["call"] == {"tool": "delete", "arguments": SHOWN}
    assert ran == []
    runtime = await Runtime.open(build(ran, again=again), "r", store=store)
    assert runtime.pendings()[0].data == result.pending.data
    result = await runtime.resume(Answer(id=result.pending.id, ok=True))
    assert result.status is Status.DONE
    assert ran == [SHOWN]


@pytest.mark.parametrize(
    "again", [{"count": 4}, {"count": 3, "everywhere": False}, {"count": 3, "only": ["a"]}]
)
async def test_a_difference_is_asked_again_never_run(again: dict[str, Any]) -> None:
    ran: list[dict[str, Any]] = []
    store = MemoryStore()
    result, _ = await build(ran).run("go", store=store, run_id="r")
    assert result.pending is not None
    runtime = await Runtime.open(build(ran, again=again), "r", store=store)
    result = await runtime.resume(Answer(id=result.pending.id, ok=True))
    assert ran == []
    assert result.status is Status.PENDING
    assert result.pending is not None
    assert result.pending.diverged
    assert result.pending.data["call"] != {"tool": "delete", "arguments": SHOWN}
    result = await runtime.resume(Answer(id=result.pending.id, ok=False))
    assert result.status is Status.DONE
    assert ran == []


async def test_continue_runs_the_approved_call_whatever_the_model_would_say_now() -> None:
    ran: list[dict[str, Any]] = []
    store = MemoryStore()
    result, _ = await build(ran).run("go", store=store, run_id="r")
    assert result.pending is not None
    runtime = await Runtime.open(build(ran, again={"count": 99}), "r", store=store)
    result = await runtime.resume(Answer(id=result.pending.id, ok=True), policy=ResumePolicy.CONTINUE)
    assert result.status is Status.DONE
    assert ran == [SHOWN]
