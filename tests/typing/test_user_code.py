"""A program as users write it: every type is what it says, and none of them has to be spelled out twice."""

from __future__ import annotations

from typing import assert_never, assert_type

from pydantic import BaseModel

from overt import (
    Agent,
    Answer,
    BeforeTool,
    Budget,
    Extend,
    Hooks,
    LimitInfo,
    Request,
    Runtime,
    Status,
    Stop,
    TaskResult,
    ToolContext,
    ToolOverride,
    require_approval,
    tool,
)
from overt.testing import MockModel, call


class Shop:
    """What the tools work on."""

    def __init__(self) -> None:
        self.refunded: list[str] = []


class Receipt(BaseModel):
    """What the cashier gives."""

    order: str
    amount: int


class Refusal(BaseModel):
    """What it gives instead."""

    reason: str


@tool
def add(x: int, y: int) -> int:
    """Add; knows no deps."""
    return x + y


@tool
def refund(ctx: ToolContext[Shop], order: str) -> str:
    """Pay an order back."""
    ctx.deps.refunded.append(order)
    return "refunded"


def on_limit(info: LimitInfo) -> Extend | Stop:
    """Give the run's own budget more, once."""
    return Extend(Budget(max_turns=12)) if info.at == "root" and info.cap < 12 else Stop()


async def note(event: BeforeTool) -> ToolOverride | None:
    """Look at every call."""
    assert_type(event.call.name, str)
    return None


counting = Agent("counting", does="Counts.", tools=[add])
cashier = Agent(
    "cashier",
    does="Pays back.",
    tools=[add, refund, counting.as_tool()],
    guardrails=[require_approval("refund", when=lambda given: given["order"] != "0")],
    hooks=Hooks(before_tool=note),
    deps_type=Shop,
    output_type=Receipt | Refusal,
)
assert_type(counting, Agent[None, str])
assert_type(cashier, Agent[Shop, Receipt | Refusal])


def shown(result: TaskResult[Receipt | Refusal]) -> str:
    """Say how it went."""
    status = result.status
    match status:
        case Status.DONE:
            output = result.unwrap()
            match output:
                case Receipt(amount=amount):
                    return str(amount)
                case Refusal(reason=reason):
                    return reason
                case _:
                    assert_never(output)
        case Status.PENDING:
            assert_type(result.pending, Request | None)
            return "asks"
        case Status.INCOMPLETE | Status.INTERRUPTED | Status.CLOSED | Status.TIMEOUT | Status.ERROR:
            return result.text
        case _:
            assert_never(status)


async def pay_back(shop: Shop, order: str, answer: Answer[bool]) -> TaskResult[Receipt | Refusal]:
    """Ask, answer and return what came of it."""
    result, runtime = await cashier.run(order, deps=shop, on_limit=on_limit)
    assert_type(result, TaskResult[Receipt | Refusal])
    assert_type(runtime, Runtime[Receipt | Refusal])
    if result.status is Status.PENDING:
        result = await runtime.resume(answer)
    assert_type(result.output, Receipt | Refusal | None)
    return result


async def test_a_tool_is_still_the_function_it_was_and_an_agent_can_be_called() -> None:
    assert_type(add(1, y=2), int)
    assert add(1, y=2) == 3
    result = await counting.as_tool()(
        "1 + 2?", model=MockModel([call("add", x=1, y=2), "3"]), on_limit=on_limit
    )
    assert_type(result, TaskResult[str])
    assert_type(result.unwrap(), str)
    assert result.unwrap() == "3"
