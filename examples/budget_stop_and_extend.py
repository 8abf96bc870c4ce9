"""A run that stops at its budget with its work kept, and goes on when somebody raises it.

    python examples/budget_stop_and_extend.py

OVERT_MODEL=openai:gpt-5-mini takes a real model.
"""

from __future__ import annotations

import os

import anyio

from overt import Agent, Budget, Limit, Model, Runtime, Status, tool
from overt.testing import MockModel, call, say

PAGES = 4


@tool
async def read_page(number: int) -> str:
    """Read one page of the report.

    Args:
        number: Its number, from 1 to 4.
    """
    return f"page {number}: nothing unusual" if 1 <= number <= PAGES else f"there is no page {number}"


def model() -> Model | str:
    batch = [call("read_page", number=number + 1) for number in range(PAGES)]
    return os.environ.get("OVERT_MODEL") or MockModel([batch, say("Four pages, nothing unusual.")])


def auditor() -> Agent:
    return Agent(
        "auditor",
        does="Reads reports.",
        soul="Call read_page for pages 1, 2, 3 and 4, all in one reply. Then sum up what is unusual in one sentence.",
        tools=[read_page],
        model=model(),
    )


def bill(runtime: Runtime[str]) -> str:
    entry = runtime.result()
    left = runtime.remaining(entry.handle).max_tool_calls
    return f"{entry.usage.tool_calls} tool calls, {left} left, {entry.total_tokens} tokens"


async def main() -> None:
    # `budget` of a run caps the whole tree. Calls beyond it stay open: they were not entered.
    result, runtime = await auditor().run("Read the report.", budget=Budget(max_tool_calls=3))
    print(f"{result.status}, {result.limit} of {result.limit_at}: {bill(runtime)}")
    if result.status is Status.INCOMPLETE and result.limit is Limit.MAX_TOOL_CALLS:
        # Totals, not additions. Exactly the open calls are entered; nothing is bought again.
        result = await runtime.extend(Budget(max_tool_calls=10))
    print(f"{result.status}: {result.text}")
    print(bill(runtime))


if __name__ == "__main__":
    anyio.run(main)
