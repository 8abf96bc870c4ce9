"""One delegation: `total_tokens` is the whole tree's bill, `own_tokens` what the handle itself spent."""

from __future__ import annotations

from overt import Agent
from overt.testing import MockModel, call, say

explore = Agent(
    "explore",
    does="looks things up",
    model=MockModel([say("found it")], name="m-child", tokens=400),
)
coordinator = Agent(
    "coordinator",
    does="splits the work",
    team=[explore],
    model=MockModel(
        [call("task", agent="explore", prompt="find the file"), say("done: found it")],
        name="m-parent",
        tokens=100,
    ),
)


def main() -> None:
    result, runtime = coordinator.run_sync("find the file")
    print("status      ", result.status)
    print("total_tokens", result.total_tokens)
    print("own_tokens  ", result.own_tokens)
    for view in runtime.list():
        print(view.id, f"turns={view.turns}", f"total={view.total_tokens}", f"own={view.own_tokens}")


if __name__ == "__main__":
    main()
