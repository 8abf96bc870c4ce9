"""A model that never stops calling tools: the stop says which limit, as a value to branch on."""

from __future__ import annotations

from overt import Agent, Budget, Limit, Status, tool
from overt.testing import MockModel, call


@tool
def look(page: int) -> str:
    """Look at a page."""
    return f"page {page}: nothing here"


searcher = Agent(
    "searcher",
    does="searches without end",
    tools=[look],
    budget=Budget(max_turns=3),
    model=MockModel([call("look", page=page) for page in range(1, 10)], name="m-loop", tokens=70),
)


def main() -> None:
    result, _ = searcher.run_sync("search")
    print("status      ", result.status)
    print("limit       ", result.limit)
    print("limit_at    ", result.limit_at)
    print("turns       ", result.turns)
    print("total_tokens", result.total_tokens)
    if result.status is Status.INCOMPLETE and result.limit is Limit.MAX_TURNS:
        print("more turns would help: runtime.extend(Budget(max_turns=…))")


if __name__ == "__main__":
    main()
