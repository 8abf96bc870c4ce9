"""What a resume replays: `stage`, then an approval that parks the run, then `commit`.

Run it with `--policy rewind` (the default), `--policy reuse` (rewind, with the tool declared `on_replay="reuse"`) or
`--policy continue`, and compare the side effects, turns and tokens.
"""

from __future__ import annotations

import argparse
from typing import Literal

from overt import Agent, Answer, ResumePolicy, ToolContext, ToolResult, pending, tool
from overt.testing import MockModel, call, say


def build(on_replay: Literal["rerun", "reuse"], invocations: list[str]) -> Agent[None, str]:
    @tool(on_replay=on_replay)
    def counter(step: str) -> str:
        """Do one step of the plan; the side effect that is counted."""
        invocations.append(step)
        return f"{step}: ok"

    @tool
    def approve(ctx: ToolContext, what: str) -> ToolResult:
        """Ask a person."""
        if ctx.answer is None:
            return pending(kind="approval", prompt=f"May I {what}?")
        return ToolResult("approved" if ctx.answer.ok else "declined")

    return Agent(
        "worker",
        does="stages, asks, commits",
        tools=[counter, approve],
        model=MockModel(
            [
                call("counter", step="stage"),
                call("approve", what="commit"),
                call("counter", step="commit"),
                say("committed"),
            ],
            name="m-sus",
            tokens=50,
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", choices=["rewind", "reuse", "continue"], default="rewind")
    chosen: str = parser.parse_args().policy
    policy = ResumePolicy.CONTINUE if chosen == "continue" else ResumePolicy.REWIND
    invocations: list[str] = []
    worker = build("reuse" if chosen == "reuse" else "rerun", invocations)

    result, runtime = worker.run_sync("ship it", resume_policy=policy)
    request = result.pending
    assert request is not None
    stored = len(runtime.transcript(result.handle))
    print("before: status", result.status)
    print("before: invocations", len(invocations), "turns", result.turns, "tokens", result.total_tokens)
    print("before: stored messages", stored)
    print(
        "before: answering runs again", [c.arguments["step"] for c in request.replays if c.tool == "counter"]
    )
    print("before: answering buys again", request.turns_again, "turns")

    result = runtime.resume_sync(Answer(id=request.id, ok=True, by="ada"))
    print("after:  status", result.status)
    print("after:  invocations", len(invocations), "turns", result.turns, "tokens", result.total_tokens)
    print("after:  in order", *invocations)


if __name__ == "__main__":
    main()
