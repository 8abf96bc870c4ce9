"""B038: a cap that is spent inside a child ends the parent promptly with a result that says where."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from overt import Agent, Budget
from overt.testing import MockModel, call, say


@pytest.mark.parametrize("whose", ["root", "child"])
@pytest.mark.parametrize("cap", ["max_tokens", "max_model_calls"])
async def test_in_the_childs_second_call(whose: str, cap: str) -> None:
    limit = {"max_tokens": "maxTokens", "max_model_calls": "maxModelCalls"}[cap]
    amount = {"max_tokens": {"root": 250, "child": 150}, "max_model_calls": {"root": 3, "child": 2}}[cap][
        whose
    ]
    spent = Budget.model_validate({cap: amount})
    child = Agent("child", does="x", budget=spent if whose == "child" else None)
    lead = Agent("lead", does="x", team=[child])
    model = MockModel(
        {
            "lead": [call("task", agent="child", prompt="p"), "went on"],
            "child": [[say("one"), call("nope")], [say("two"), call("nope")], "three"],
        }
    )
    options: dict[str, Any] = {"budget": spent} if whose == "root" else {}
    with anyio.fail_after(10):
        result, rt = await lead.run("go", model=model, **options)
    stopped = await rt.wait("root/lead.1/child.1")
    assert (stopped.status, stopped.limit, stopped.partial) == ("incomplete", limit, "two")
    message = next(m for m in rt.transcript(result.handle) if m.role == "tool")
    assert message.metadata["handle"] == "root/lead.1/child.1"
    assert message.metadata["limit"] == limit
    settled = [e for e in rt.events() if e.kind == "settled" and e.handle == result.handle]
    assert len(settled) == 1
    if whose == "child":
        assert result.output == "went on"
        assert stopped.limit_at == "root/lead.1/child.1"
    else:
        # The pool is the tree's: nobody may spend past it, the parent included.
        assert (result.status, result.limit, result.limit_at) == ("incomplete", limit, "root")
        assert result.total_tokens == 300
