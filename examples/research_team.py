"""A lead sends three questions to a team at once and gets one bill.

    python examples/research_team.py

OVERT_MODEL=openai:gpt-5-mini takes a real model.
"""

from __future__ import annotations

import os

import anyio

from overt import Agent, Budget, Model, tool
from overt.testing import MockModel, call, say

SHELF = {
    "tea": "Tea was taxed in 1773.",
    "salt": "Salt was taxed in 1930.",
    "windows": "Windows were taxed in 1696.",
}
QUESTIONS = {subject: f"When was {subject} taxed?" for subject in SHELF}


@tool
async def read(subject: str) -> str:
    """Read what the shelf has on a subject: tea, salt or windows."""
    return SHELF.get(subject, "nothing")


def model() -> Model | str:
    fan_out = [call("task", agent="reader", prompt=question) for question in QUESTIONS.values()]
    return os.environ.get("OVERT_MODEL") or MockModel(
        {
            "lead": [fan_out, say("Windows came first, then tea, then salt.")],
            # A script for an agent that is asked different things is a function of the request.
            "reader": lambda request: (
                say(request.messages[-1].text)
                if request.messages[-1].role == "tool"
                else call("read", subject=request.messages[-1].text.split()[2])
            ),
        }
    )


reader = Agent(
    "reader", does="Answers one question from the shelf.", soul="Call read once, then answer.", tools=[read]
)
lead = Agent(
    "lead",
    does="Answers with the help of readers.",
    soul="In one reply, call task three times with agent reader and the prompts "
    + ", ".join(map(repr, QUESTIONS.values()))
    + ". Then say in one sentence what came first.",
    team=[reader],
)


async def main() -> None:
    # One bill for the tree: nothing is carved out, each may spend what is left on the way to the root.
    result, runtime = await lead.run(
        "Which was taxed first: tea, salt or windows?", model=model(), budget=Budget(max_tokens=50_000)
    )
    print(f"{result.status}: {result.text}")
    print(runtime.ledger())


if __name__ == "__main__":
    anyio.run(main)
