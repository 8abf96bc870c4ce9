"""A lead sends one question a subject to its readers, all at once; one of them fails, and the tree has one bill.

    python examples/research_team.py
    python examples/research_team.py "Which was taxed last: tea or windows?"

OVERT_MODEL=openai:gpt-5-mini takes a real model. Put a search engine behind `search` and `read`, and it is yours.
"""

from __future__ import annotations

import os
import re
import sys

import anyio
from pydantic import BaseModel, Field

from overt import Agent, Budget, Model, ModelRequest, Runtime, ToolError, tool
from overt.testing import MockModel, Part, call, say

QUESTION = "Which was taxed first: tea, salt, windows or beards?"
SHELF = {
    "The salt march": "In 1930 a crowd walked to the sea, against the tax on salt.",
    "Letters from Boston": "The duty on tea of 1773 was paid in the harbour.",
    "Dark houses": "From 1696 on windows were taxed, and many were bricked up.",
}


class Finding(BaseModel):
    """What a reader has found out."""

    subject: str
    year: int | None = Field(
        description="The year in which it was taxed, as a text says it; null if none does."
    )
    title: str | None = Field(description="The title of that text; null if there is none.")


@tool
async def search(words: str) -> list[str]:
    """Find texts on the shelf.

    Args:
        words: One or two words; a text is found if it has any of them.

    Returns the titles of the texts, an empty list if there are none.
    """
    wanted = words.lower().split()
    return [title for title, text in SHELF.items() if any(word in text.lower() for word in wanted)]


@tool
async def read(title: str) -> str:
    """Read a text of the shelf, the whole of it.

    Args:
        title: Its title, as `search` gave it.
    """
    if title not in SHELF:
        raise ToolError(f"there is no text {title!r}; search gives the titles")
    return SHELF[title]


reader = Agent(
    "reader",
    does="Finds out when one subject was taxed, from the texts of the shelf. Give it one subject.",
    soul="Search the shelf for the subject, read what you find, and give the year and the title. Take years from the "
    "texts only, never from memory. If nothing is found, search again with other words, then say so.",
    tools=[search, read],
    output_type=Finding,
    # Each reader's own caps: one that finds nothing is stopped before it searches on at everybody's cost.
    budget=Budget(max_turns=5, max_tool_calls=3),
)
lead = Agent(
    "lead",
    does="Answers questions with the help of readers.",
    soul="Delegate with task to the agent reader: one call for each subject of the question, all of them in one reply. "
    "Then answer in one or two sentences from what they found. A reader that failed found nothing: say so, do not "
    "guess, and do not send another one.",
    team=[reader],
    # Three readers work at once; a fourth one begins when a place is free.
    budget=Budget(max_children=8, max_concurrent=3),
)


def read_up(request: ModelRequest) -> Part:
    """Be a reader: a script for an agent that is asked different things is a function of the request."""
    subject = next(message.text.split()[-1] for message in request.messages if message.role == "user")
    results = [message.text for message in request.messages if message.role == "tool"]
    if not results or results[-1] == "[]":
        return call("search", words=(subject, "barbers", "chins", "razors")[len(results)])
    for title, text in SHELF.items():
        if text == results[-1]:
            return call("final_result", subject=subject, year=int(re.findall(r"\d{4}", text)[0]), title=title)
    return call("read", title=results[-1].split('"')[1])


def model() -> Model | str:
    subjects = ("tea", "salt", "windows", "beards")
    fan_out = [call("task", agent="reader", prompt=f"When were taxed: {subject}") for subject in subjects]
    answer = say("Windows, in 1696; then tea, then salt. When beards were taxed could not be found out.")
    return os.environ.get("OVERT_MODEL") or MockModel({"lead": [fan_out, answer], "reader": read_up})


def told(runtime: Runtime[str], handle: str) -> list[str]:
    """What each delegation gave the lead: a child that fails is an error result to its parent, never an exception."""
    return [
        f"{'failed' if message.is_error else 'found'}: {message.text}"
        for message in runtime.transcript(handle, uncommitted=True)
        if message.role == "tool"
    ]


async def main() -> None:
    question = " ".join(sys.argv[1:]) or QUESTION
    # The run's budget caps the team as a whole: nothing is carved out, each may spend what is left on the way up.
    result, runtime = await lead.run(
        question, model=model(), budget=Budget(max_tokens=50_000), max_concurrent_turns=2
    )
    print(*told(runtime, result.handle), sep="\n")
    print(f"{result.status}: {result.text}")
    print(runtime.ledger())


if __name__ == "__main__":
    anyio.run(main)
