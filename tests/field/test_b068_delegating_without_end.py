"""B068: agents that may delegate to themselves or to each other stop at a depth, and one budget counts all levels."""

from __future__ import annotations

from typing import Any

import pytest

from overt import Agent, Budget, ToolMessage
from overt.testing import MockModel, call


def alone() -> Agent[None, str]:
    agent = Agent("a", does="delegates to itself")
    return agent.with_team(agent)


def pair() -> Agent[None, str]:
    b = Agent("b", does="delegates to a")
    a = Agent("a", does="delegates to b", team=[b])
    return a.with_team(b.with_team(a))


def always(request: Any) -> Any:
    other = {"a": "b", "b": "a"}[request.agent]
    team = request.tools[0].description if request.tools else ""
    return call("task", agent=other if f"- {other}:" in team else request.agent, prompt="deeper")


@pytest.mark.parametrize("make", [alone, pair], ids=["itself", "each other"])
async def test_depth_stops_it_as_a_refusal_the_model_sees(make: Any) -> None:
    """An agent that stops once it is refused: one handle a level, three levels."""

    def sensible(request: Any) -> Any:
        return "refused, so I did it myself" if len(request.messages) > 1 else always(request)

    model = MockModel(sensible)
    result, rt = await make().run("go", model=model)
    assert result.status == "done"
    ids = [v.id for v in rt.list()]
    assert [id.count("/") for id in ids] == [1, 2, 3]
    assert [bool(r.tools) for r in model.requests[:3]] == [True, True, False]
    (refusal,) = [m for m in rt.transcript(ids[-1]) if isinstance(m, ToolMessage)]
    assert refusal.is_error
    assert result.total_tokens == 600
    assert result.usage.turns == 6


@pytest.mark.parametrize("make", [alone, pair], ids=["itself", "each other"])
async def test_without_sense_turns_and_depth_still_bound_it(make: Any) -> None:
    result, rt = await make().run("go", model=MockModel(always))
    assert (result.status, result.limit) == ("incomplete", "maxTurns")
    assert max(v.id.count("/") for v in rt.list()) == 3
    # Five delegations a handle, its sixth reply is past the cap: 1 + 5 + 25 handles of six turns.
    assert len(rt.list()) == 31
    assert result.usage.turns == 31 * 6


@pytest.mark.parametrize("make", [alone, pair], ids=["itself", "each other"])
async def test_one_budget_counts_all_levels(make: Any) -> None:
    model = MockModel(always)
    result, rt = await make().run("go", model=model, budget=Budget(max_model_calls=10, max_depth=50))
    assert (result.limit, result.limit_at) == ("maxModelCalls", "root")
    assert len(model.requests) == 10
    assert result.usage.model_calls == 10
    assert all(v.state == "closed" for v in rt.list()[1:])
