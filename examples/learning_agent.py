"""An agent that learns: what a review taught it is kept in a file, and the next run takes fewer turns.

    python examples/learning_agent.py [FOLDER]

A gate compares each answer with the books and says what is wrong with it. What the agent makes of that it may keep for
later runs, if a person agrees. On a FOLDER that has lessons the first answer is right, too.
OVERT_MODEL=openai:gpt-5-mini takes a real model.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import anyio
from pydantic import BaseModel, TypeAdapter

from overt import (
    Agent,
    Allow,
    Answer,
    Attempt,
    Budget,
    Completion,
    Deny,
    Doubt,
    GuardrailEvent,
    Model,
    ModelRequest,
    Resolution,
    ResumePolicy,
    Retry,
    Ruling,
    Succeeded,
    TaskResult,
    ToolContext,
    require_approval,
    tool,
)
from overt.testing import MockModel, Part, call, say

LESSON = "Totals in orders are in cents, and orders of state void do not count."
ORDERS = [("ada", 5000, "paid"), ("ada", 1250, "paid"), ("ada", 9900, "void"), ("ben", 700, "paid")]


class Lesson(BaseModel):
    key: str
    text: str
    run_id: str  # where it was learned: the journal of that run says how


class Memory:
    """Lessons in a file; the oldest go when there are too many."""

    def __init__(self, path: Path, *, keep: int = 20) -> None:
        self.path, self.keep = path, keep
        self.adapter = TypeAdapter(list[Lesson])

    def lessons(self) -> list[Lesson]:
        return self.adapter.validate_json(self.path.read_bytes()) if self.path.exists() else []

    def add(self, lesson: Lesson) -> None:
        """Keep a lesson, once for each key and once for each text."""
        known = self.lessons()
        if any(lesson.key == other.key or lesson.text == other.text for other in known):
            return
        new = self.path.with_suffix(".new")
        new.write_bytes(self.adapter.dump_json([*known, lesson][-self.keep :]))
        new.replace(self.path)  # the whole file or nothing


@dataclass
class Desk:
    memory: Memory
    books: Path


@tool
def query(ctx: ToolContext[Desk], sql: str) -> list[list[str | int | float | None]]:
    """Read from the books: the table orders(customer text, total integer, state text).

    Args:
        sql: One SELECT, in the dialect of SQLite.
    """
    books = sqlite3.connect(f"{ctx.deps.books.as_uri()}?mode=ro", uri=True)
    try:
        return [list(row) for row in books.execute(sql).fetchmany(100)]
    finally:
        books.close()


async def is_kept(doubt: Doubt[Desk]) -> Resolution:
    """The process died at it: the key says whether the lesson is in the file. Nobody has to be asked."""
    lessons = doubt.deps.memory.lessons()
    return Succeeded("kept") if any(one.key == doubt.idempotency_key for one in lessons) else Retry()


@tool(on_replay="reuse", resolve=is_kept)
async def remember(ctx: ToolContext[Desk], lesson: str) -> str:
    """Keep a lesson for all later runs: what you wish you had known at the beginning. A person has to agree.

    Args:
        lesson: One sentence about the data, true for every customer.
    """
    ctx.deps.memory.add(Lesson(key=ctx.idempotency_key, text=lesson, run_id=ctx.run_id))
    return "kept"


def one_sentence(event: GuardrailEvent) -> Ruling:
    """Deny what is no lesson: whatever is kept will be read as an instruction by every later run."""
    lesson = str(event.call.arguments.get("lesson", ""))
    fits = len(lesson) <= 200 and "\n" not in lesson and "://" not in lesson
    return Allow() if fits else Deny("a lesson is one sentence of at most 200 characters, without addresses")


def instructions(desk: Desk) -> str:
    """What the agent is told: made at its first turn, of the lessons there are then."""
    lessons = "".join(f"\n- {lesson.text}" for lesson in desk.memory.lessons())
    return (
        "You answer questions about orders, in euros with two decimals, in one sentence. Use query. When you were sent "
        "back and know why, call remember once, before you answer again.\n\n"
        f"What earlier runs have learned:{lessons or ' nothing yet.'}"
    )


def agrees_with_the_books(customer: str) -> Completion:
    def verify(attempt: Attempt[str]) -> tuple[bool, str]:
        spent = sum(total for name, total, state in ORDERS if name == customer and state == "paid")
        right = f"{spent / 100:.2f}" in attempt.text
        return right, "the books agree" if right else f"That is not what the books say. {LESSON}"

    return Completion(verify, max_attempts=3)


def script(request: ModelRequest) -> Part:
    """Be the analyst: it asks the right question if it was told how, by a lesson or by the gate."""
    system, asked, *feedback = [one.text for one in request.messages if one.role in ("system", "user")]
    customer, last = asked.split()[-1].rstrip("?"), request.messages[-1]
    if last.role == "user":
        right = "cents" in system or feedback
        what = "sum(total) / 100.0" if right else "sum(total)"
        only = " AND state = 'paid'" if right else ""
        return call("query", sql=f"SELECT {what} FROM orders WHERE customer = '{customer}'{only}")
    if feedback and last.text.startswith("[["):
        return call("remember", lesson=LESSON)
    results = [message.text for message in request.messages if message.text.startswith("[[")]
    return say(f"{customer} has spent {float(results[-1].strip('[]')):.2f} euros.")


def model() -> Model | str:
    return os.environ.get("OVERT_MODEL") or MockModel(script)


async def ask(customer: str, desk: Desk) -> TaskResult[str]:
    analyst = Agent(
        "analyst",
        does="Answers questions about orders.",
        soul=instructions,
        tools=[query, remember],
        guardrails=[one_sentence, require_approval("remember")],
        completion=agrees_with_the_books(customer),
        budget=Budget(max_turns=15),
        model=model(),
        deps_type=Desk,
    )
    result, runtime = await analyst.run(
        f"How much was spent by {customer}?", deps=desk, resume_policy=ResumePolicy.CONTINUE
    )
    while result.pending is not None:
        print(f"  {result.pending.prompt} yes")
        result = await runtime.resume(Answer(id=result.pending.id, ok=True, by="ada"))
    return result


async def work(folder: Path) -> None:
    desk = Desk(Memory(folder / "lessons.json"), folder / "books.db")
    with sqlite3.connect(desk.books) as books:
        books.execute("CREATE TABLE IF NOT EXISTS orders (customer TEXT, total INTEGER, state TEXT)")
        books.execute("DELETE FROM orders")
        books.executemany("INSERT INTO orders VALUES (?, ?, ?)", ORDERS)
    books.close()
    for customer in ("ada", "ben"):
        result = await ask(customer, desk)
        back = [verdict.ok for verdict in result.verdicts].count(False)
        print(f"{result.status}: {result.text}")
        print(f"  {result.turns} turns, {result.total_tokens} tokens, sent back {back} times")
    print(*(f"kept: {lesson.text}" for lesson in desk.memory.lessons()), sep="\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        anyio.run(work, Path(*sys.argv[1:] or [temporary]).resolve())


if __name__ == "__main__":
    main()
