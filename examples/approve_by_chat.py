"""Refunds that are approved in a chat: a question is a message, and "yes 1" is an answer.

    python examples/approve_by_chat.py                 # a conversation, played from a script
    python examples/approve_by_chat.py start A-1001    # ask, in this process, and end
    python examples/approve_by_chat.py chat ada        # say yes or no, in another one

Several runs wait at once; each question has a short number that every process knows. A message may come twice, as in
any chat: the number says that it is the same question. OVERT_MODEL=openai:gpt-5-mini takes a real model.
"""

from __future__ import annotations

import os
import re
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from typing import Protocol

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

import overt
from overt import Agent, Answer, Request, ResumePolicy, Runtime, Store, require_approval, tool
from overt.errors import AlreadyAnswered, OvertError, RunConflict
from overt.stores import SQLiteStore
from overt.testing import MockModel, Reply, call, say

FILE = "chat.db"
HELP = 'Say "yes 1", "no 1 and why", or "list".'


@tool(on_replay="reuse")
async def refund(ctx: overt.ToolContext, order: str, amount: float) -> str:
    """Pay money back."""
    return f"refunded {amount:.2f} for {order}"  # here the bank would be called, with ctx.idempotency_key


def script(request: overt.ModelRequest) -> Reply:
    last = request.messages[-1].text.splitlines()[-1]
    if request.messages[-1].role == "tool":
        return say(f"{last[0].upper()}{last[1:]}.")
    return call("refund", order=last.split()[-1], amount=250.0)


clerk = Agent(
    "clerk",
    does="Refunds orders.",
    soul="Refund the order with refund: 250.00. Then say what came of it.",
    tools=[refund],
    guardrails=[require_approval("refund")],
    model=os.environ.get("OVERT_MODEL") or MockModel(script),
)


class Chat(Protocol):
    """What a chat service has to do. Yours calls its own interface here."""

    async def send(self, text: str) -> None:
        """Show a message in the room; done when the service has it."""
        ...

    def messages(self) -> AsyncIterator[tuple[str, str]]:
        """What people say: who it is, as the service knows them, and the text."""
        ...


class Terminal:
    """A room with one person in it, who types."""

    def __init__(self, who: str) -> None:
        self.who = who

    async def send(self, text: str) -> None:
        print(f"bot: {text}", flush=True)

    async def messages(self) -> AsyncIterator[tuple[str, str]]:
        while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            yield self.who, line


class Played:
    """A room in which people say what a script has, each when the last one has had a reply."""

    def __init__(self, *lines: tuple[str, str]) -> None:
        self.lines = lines
        self.replied = anyio.Event()

    async def send(self, text: str) -> None:
        print(f"bot: {text}")
        self.replied.set()

    async def messages(self) -> AsyncIterator[tuple[str, str]]:
        for who, text in self.lines:
            self.replied = anyio.Event()
            print(f"{who}: {text}")
            yield who, text
            await self.replied.wait()


class Numbers:
    """A short number for each question, the same in every process; kept beside the runs."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._do("CREATE TABLE IF NOT EXISTS numbers (number INTEGER PRIMARY KEY, request UNIQUE, run, said)")

    def _do(self, sql: str, *values: object) -> tuple[str, ...] | None:
        with closing(sqlite3.connect(self.path)) as file, file:
            row: tuple[str, ...] | None = file.execute(sql, values).fetchone()
            return row

    def of(self, request: str, run_id: str) -> tuple[int, bool]:
        """The number of a question, and whether it was said in the room."""
        self._do("INSERT OR IGNORE INTO numbers (request, run) VALUES (?, ?)", request, run_id)
        row = self._do("SELECT number, coalesce(said, 0) FROM numbers WHERE request = ?", request)
        assert row is not None
        return int(row[0]), bool(row[1])

    def said(self, number: int) -> None:
        self._do("UPDATE numbers SET said = 1 WHERE number = ?", number)

    def question(self, number: int) -> tuple[str, ...] | None:
        """Request and run of a number; `None`: there is no such question."""
        return self._do("SELECT request, run FROM numbers WHERE number = ?", number)


class Bot:
    """Tells a room what runs ask, and the runs what the room says."""

    def __init__(self, chat: Chat, store: Store, numbers: Numbers) -> None:
        self.chat, self.store, self.numbers = chat, store, numbers

    def options(self, run_id: str) -> overt.Options[None]:
        # A real model seldom repeats itself word for word, so an answer carries the work on.
        policy = ResumePolicy.CONTINUE
        tell = partial(self.ask, run_id)
        return {"store": self.store, "run_id": run_id, "on_pending": tell, "resume_policy": policy}

    async def ask(self, run_id: str, request: Request, *, again: bool = False) -> None:
        """Say a question in the room: at least once, and not again where that is known to have worked."""
        number, said = self.numbers.of(request.id, run_id)
        if again or not said:
            await self.chat.send(f"[{number}] {request.prompt}")
            self.numbers.said(number)  # a process that dies before this says it twice, under one number

    async def start(self, order: str) -> None:
        await clerk.run(f"Refund {order}", **self.options(f"refund-{order}"))

    async def listen(self) -> None:
        """Ask what is open, then take answers until the room closes. Runs go on side by side."""
        await self.ask_all()
        async with anyio.create_task_group() as tasks:
            async for who, text in self.chat.messages():
                await self.hear(who, text.strip(), tasks)

    async def ask_all(self, *, again: bool = False) -> None:
        for pending in await self.store.pendings():
            await self.ask(pending.run_id, pending.request, again=again)

    async def hear(self, who: str, text: str, tasks: TaskGroup) -> None:
        if text.lower() == "list":
            await self.ask_all(again=True)
            return
        said = re.fullmatch(r"(yes|no) (\d{1,9})(?: (.+))?", text, re.IGNORECASE | re.DOTALL)
        question = self.numbers.question(int(said[2])) if said else None
        if said is None or question is None:
            await self.chat.send(HELP if said is None else f"There is no question {said[2]}. {HELP}")
            return
        ok = said[1].lower() == "yes"
        reason = None if ok else said[3] or "declined"
        tasks.start_soon(
            self.answer, said[2], question[1], Answer(id=question[0], ok=ok, reason=reason, by=who)
        )

    async def answer(self, number: str, run_id: str, answer: Answer) -> None:
        """Give a run its answer, and go on with it to its end or its next question."""
        try:
            runtime = await Runtime.open(clerk, run_id, **self.options(run_id))
            result = await runtime.resume(answer)
            await self.chat.send(f"[{number}] {result.status}: {result.text}")
        except (AlreadyAnswered, RunConflict):
            # While a run is at work only its driver takes answers; what was answered before is in the journal.
            events = (await Runtime.open(clerk, run_id, **self.options(run_id))).events()
            given = next((e for e in events if e.kind == "answer" and e.request_id == answer.id), None)
            said = "that run is at work: say it again in a moment"
            if given is not None:
                said = f"{given.by} was faster: {'yes' if given.ok else f'no, {given.reason}'}"
            await self.chat.send(f"[{number}] {said}")
        except OvertError as error:  # expired, refused by `verify_answer`, removed meanwhile
            await self.chat.send(f"[{number}] {error}")


async def process(chat: Chat, *orders: str) -> None:
    """Be a process: one that starts runs and ends when they have asked, or one that takes answers."""
    store = SQLiteStore(FILE)
    bot = Bot(chat, store, Numbers(f"{FILE}-numbers"))
    for order in orders:
        await bot.start(order)
    if not orders:
        await bot.listen()
    await store.close()


async def play() -> None:
    """Be two processes and several people: the first process ends when its runs have asked."""
    await process(Played(), "A-1001", "A-1002", "A-1003")
    said = [
        ("ada", "yes 1"),
        ("ben", "yes 1"),
        ("ben", "no 2 the parcel has come"),
        ("ada", "well?"),
        ("ada", "list"),
    ]
    await process(Played(*said))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["start", *orders] if orders:
            anyio.run(process, Terminal("nobody"), *orders)
        case ["chat", who]:
            anyio.run(process, Terminal(who))
        case []:
            anyio.run(play)
        case _:
            sys.exit(__doc__)
