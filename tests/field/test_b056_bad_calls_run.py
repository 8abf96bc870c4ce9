"""B056, in a run: a bad call beside a good one costs the good one nothing, and endless ones end."""

from __future__ import annotations

import pytest
from tests.driver.support import agent, results

from overt import Budget, Runtime, tool
from overt.testing import MockModel, call, raw_call, say


class Shop:
    def __init__(self) -> None:
        self.entered: list[int] = []

    def charge(self, amount: int) -> str:
        """Charge."""
        self.entered.append(amount)
        return f"charged {amount}"


@tool
async def now() -> str:
    return "now"


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (call("invented", x=1), "unknown tool: 'invented'. The tools: charge, now."),
        (call("task", agent="x", prompt="y"), "unknown tool: 'task'. The tools: charge, now."),
        (raw_call("", "{}"), "a call without a name. The tools: charge, now."),
        (raw_call("charge", '{"amount": 5, "no'), "it is cut off"),
        (raw_call("charge", "[5]"), "a JSON object, not an array"),
        (raw_call("charge", "null"), "a JSON object, not null"),
        (raw_call("charge", ""), "amount: missing"),
        (raw_call("charge", '{"amount": 1, "amount": 2}'), "amount"),
        (call("charge", amount="x"), "amount"),
        (call("charge", amount=1, extra=2), "extra"),
    ],
)
async def test_beside_a_valid_one(bad: object, problem: str) -> None:
    shop = Shop()
    model = MockModel([[call("charge", amount=7), bad, call("now")], say("done")])  # type: ignore[list-item]  # a part
    result, rt = await agent(tool(shop.charge), now).run("go", model=model)
    assert result.status == "done"
    first, (text, failed), last = results(rt)
    assert (first, last) == (("charged 7", False), ("now", False))
    assert failed
    assert problem in text
    assert shop.entered == [7]
    assert result.usage.tool_calls == 2


async def test_an_empty_string_for_a_tool_without_arguments_is_a_call() -> None:
    _, rt = await agent(now).run("go", model=MockModel([raw_call("now", ""), say("done")]))
    assert results(rt) == [("now", False)]


async def test_endless_ones_end_at_the_turn_cap() -> None:
    shop = Shop()
    runtime = Runtime(
        agent(tool(shop.charge), budget=Budget(max_turns=5)),
        model=MockModel(lambda request: raw_call("charge", "{")),
    )
    result = await runtime.run("go")
    assert (result.status, result.limit, result.turns) == ("incomplete", "maxTurns", 5)
    assert shop.entered == []
