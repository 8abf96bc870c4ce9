"""A conversation: prompt after prompt on one transcript, one of which has to wait for a person.

    python examples/chat_loop.py

OVERT_MODEL=openai:gpt-5-mini takes a real model.
"""

from __future__ import annotations

import os

import anyio

from overt import Agent, Answer, Loop, Model, ResumePolicy, TaskResult, require_approval, tool
from overt.errors import AwaitingAnswer
from overt.testing import MockModel, call, say

PROMPTS = ("I am Ada. Which rooms are free?", "Book the blue one for me.", "What is my name?")


@tool
async def free_rooms() -> list[str]:
    """List the rooms that are free today."""
    return ["blue", "green"]


@tool(on_replay="reuse")
async def book(room: str, name: str) -> str:
    """Book a room for somebody, today. Somebody of the house has to agree.

    Args:
        room: One of the free rooms.
        name: Whom it is for.
    """
    return f"{room} is booked for {name}"


def model() -> Model | str:
    return os.environ.get("OVERT_MODEL") or MockModel(
        prompts=[
            [call("free_rooms"), say("The blue and the green one, Ada.")],
            [call("book", room="blue", name="Ada"), say("The blue room is yours.")],
            [say("Ada.")],
        ]
    )


def host() -> Agent:
    return Agent(
        "host",
        does="Books rooms.",
        soul="You book rooms. Look with free_rooms, book with book, once for each wish. Answer in one sentence.",
        tools=[free_rooms, book],
        guardrails=[require_approval("book")],
        model=model(),
    )


async def answered(loop: Loop[str], result: TaskResult[str]) -> TaskResult[str]:
    """Agree to everything a prompt waits for."""
    while result.pending is not None:
        try:
            await loop.run("And now?")
        except AwaitingAnswer:  # nothing is lost: the loop takes its next prompt once it is answered
            print(f"  {result.pending.prompt} yes")
        result = await loop.resume([Answer(id=request.id, ok=True) for request in result.pendings])
    return result


async def main() -> None:
    # CONTINUE: a model that is asked again may word the booking otherwise than it was agreed to.
    loop = host().loop(resume_policy=ResumePolicy.CONTINUE)
    for prompt in PROMPTS:
        result = await answered(loop, await loop.run(prompt))
        print(f"> {prompt}\n{result.text} [{result.turns} turns, {result.total_tokens} tokens so far]")
    await loop.close()
    print(f"{len(loop.transcript())} messages, {loop.status}")


if __name__ == "__main__":
    anyio.run(main)
