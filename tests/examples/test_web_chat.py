"""The approval chat: what is said at least once, answers from another process, several runs at once."""

from __future__ import annotations

import io
import runpy
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from overt import Store
from overt.stores import MemoryStore
from overt.testing import Crashed, CrashingStore
from tests.demo.chat_server import Steps, chat_server
from tests.examples.test_programs import Play, no_model, play

__all__ = ("no_model", "play")  # fixtures

pytestmark = pytest.mark.anyio
STEPS: Steps = {"refund": [[("refund", {"order": "A-1001", "amount": 250})]]}
PROGRAM = Path(__file__).parents[2] / "examples" / "approve_by_chat.py"


class Room:
    """What is said in the room, until it closes; the service fails as often as it is told to."""

    def __init__(self, *lines: tuple[str, str], replies: int = 0, fails: int = 0) -> None:
        self.lines = lines
        self.replies = replies
        """How many messages there are before the room closes."""
        self.fails = fails
        self.said: list[str] = []
        self.full = anyio.Event()

    async def send(self, text: str) -> None:
        self.said.append(text)
        if len(self.said) >= self.replies:
            self.full.set()
        if self.fails:
            self.fails -= 1
            raise ConnectionError("the service is away")

    async def messages(self) -> AsyncIterator[tuple[str, str]]:
        for line in self.lines:
            yield line
        if self.replies:
            await self.full.wait()


class Dead(Room):
    """The process dies before the service has the message."""

    def __init__(self, store: CrashingStore) -> None:
        super().__init__()
        self.store = store

    async def send(self, text: str) -> None:
        self.store.die()


Bot = Callable[[Room, Store], Any]


@pytest.fixture
def bot(tmp_path: Path) -> Bot:
    program = runpy.run_path(str(PROGRAM))
    return lambda room, store: program["Bot"](room, store, program["Numbers"](str(tmp_path / "numbers")))


def question(number: int, order: str) -> str:
    return f"[{number}] Allow refund(amount=250.0, order='{order}')?"


async def test_a_question_is_said_once_where_that_worked_and_again_where_not(bot: Bot) -> None:
    store, room = MemoryStore(), Room(fails=1)
    await bot(room, store).start("A-1")
    await bot(room, store).start("A-2")
    assert room.said == [question(1, "A-1"), question(2, "A-2")]
    # The first message may not have come; the second is known to have.
    await bot(room, store).listen()
    assert room.said[2:] == [question(1, "A-1")]
    again = Room()
    await bot(again, store).listen()
    assert again.said == []


async def test_a_process_that_dies_while_it_asks_is_made_up_for(bot: Bot) -> None:
    store, room = CrashingStore(MemoryStore()), Room()
    with pytest.raises(Crashed):
        await bot(Dead(store), store).start("A-1")
    await bot(room, store.survivor).listen()
    assert room.said == [question(1, "A-1")]


async def test_two_runs_at_once_and_the_first_answer_counts(bot: Bot) -> None:
    store = MemoryStore()
    for order in ("A-1", "A-2"):
        await bot(Room(), store).start(order)
    lines = (("ada", "YES 1"), ("ben", "no 2 the parcel\nhas come"), ("eve", "no 1"), ("eve", "yes 2"))
    room = Room(*lines, replies=4)
    with anyio.fail_after(10):
        await bot(room, store).listen()
    assert [info.status for info in await store.runs()] == ["done", "done"]
    # Whoever was first: what the other one was told is what the run did.
    for number, run_id in ((1, "refund-A-1"), (2, "refund-A-2")):
        (late,) = [text for text in room.said if f"[{number}]" in text and "was faster" in text]
        assert ("refunded 250.00" in await store.export_run(run_id)) == late.endswith("was faster: yes")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    "text", ["", "yes", "yes one", "yes 1a", "maybe 1", "yes 9", "no 99999999999999999999", "yes 1\x00"]
)
async def test_garbage_gets_help_and_answers_nothing(bot: Bot, text: str) -> None:
    store, room = MemoryStore(), Room(("eve", text))
    await bot(room, store).start("A-1")
    await bot(room, store).listen()
    assert 'Say "yes 1", "no 1 and why", or "list".' in room.said[1]
    assert len(await store.pendings()) == 1


def test_the_conversation_of_the_program(play: Play) -> None:
    assert play("approve_by_chat").splitlines() == [
        *(f"bot: {question(number, f'A-100{number}')}" for number in (1, 2, 3)),
        "ada: yes 1",
        "bot: [1] done: Refunded 250.00 for A-1001.",
        "ben: yes 1",
        "bot: [1] ada was faster: yes",
        "ben: no 2 the parcel has come",
        "bot: [2] done: Declined: the parcel has come.",
        "ada: well?",
        'bot: Say "yes 1", "no 1 and why", or "list".',
        "ada: list",
        f"bot: {question(3, 'A-1003')}",
    ]


def test_two_processes_over_the_wire(play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with chat_server(STEPS) as server:
        monkeypatch.setenv("OVERT_MODEL", "openai:tiny")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert play("approve_by_chat", "start", "A-1001") == f"bot: {question(1, 'A-1001')}\n"
        monkeypatch.setattr(sys, "stdin", io.StringIO("yes 1\n"))
        assert play("approve_by_chat", "chat", "ada") == "bot: [1] done: Said over the wire.\n"
    assert len(server.bodies) == 2
