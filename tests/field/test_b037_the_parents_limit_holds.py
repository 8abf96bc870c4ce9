"""B037: a child is held by the least of its own cap and what its parent has left, and the stop says whose it was."""

from __future__ import annotations

from typing import Any

import pytest

from overt import Agent, Budget, ToolMessage
from overt.testing import MockModel, call


@pytest.mark.parametrize(
    ("parent", "child", "childs_calls", "told"),
    [
        (3, None, 2, ("root/lead.1", "maxModelCalls")),
        (3, 10, 2, ("root/lead.1", "maxModelCalls")),
        (9, 2, 2, ("root/lead.1/loops.1", "maxModelCalls")),
        (3, 2, 2, ("root/lead.1", "maxModelCalls")),
    ],
    ids=["child has none", "child has more", "child has less", "both at once"],
)
async def test_the_smaller_one_holds(parent: int, child: int | None, childs_calls: int, told: Any) -> None:
    loops = Agent("loops", does="x", budget=Budget(max_model_calls=child, max_turns=50))
    lead = Agent("lead", does="x", team=[loops], budget=Budget(max_model_calls=parent))
    model = MockModel({"lead": [call("task", agent="loops", prompt="p"), "ok"], "loops": [call("nope")] * 50})
    result, rt = await lead.run("go", model=model)
    assert [r.agent for r in model.requests].count("loops") == childs_calls
    (message,) = [m for m in rt.transcript("root/lead.1") if isinstance(m, ToolMessage)]
    assert message.metadata["status"] == "incomplete"
    assert message.metadata["limit"] == told[1]
    stopped = await rt.wait("root/lead.1/loops.1")
    assert (stopped.limit_at, stopped.limit) == told
    assert rt.remaining("root/lead.1/loops.1").max_model_calls == 0
    if told[0] == "root/lead.1":
        assert (result.status, result.limit_at) == ("incomplete", "root/lead.1")
        assert "root/lead.1" in message.text
    else:
        assert result.output == "ok"


async def test_what_the_child_may_spend_shrinks_with_what_its_parent_spends() -> None:
    child = Agent("child", does="x", budget=Budget(max_tokens=1_000))
    lead = Agent("lead", does="x", team=[child], budget=Budget(max_tokens=500))
    model = MockModel(
        {"lead": [call("nope"), call("task", agent="child", prompt="p"), "ok"], "child": ["fine"]}
    )
    result, rt = await lead.run("go", model=model)
    assert result.output == "ok"
    assert [r.max_output_tokens for r in model.requests if r.agent == "child"] == [300]
    assert rt.remaining("root/lead.1/child.1").max_tokens == 100
