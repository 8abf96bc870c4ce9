"""A file damaged anywhere gives an error that names run or file, or the journal as it was; never another one."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.durability.crew import Host, World

from overt import Agent, Answer, ResumePolicy, Runtime, ToolContext, tool
from overt.errors import JournalCorrupt, StoreError
from overt.journal.codec import decode
from overt.journal.loading import load
from overt.journal.record import Record
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import MockModel, VirtualClock, call, say

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """What is read of a file does not depend on the event loop, and there are thousands of files to read."""
    return "asyncio"


@tool
async def pay(ctx: ToolContext, order: str, cents: int) -> str:
    """Pay an order."""
    answer = await ctx.ask(f"Pay {cents} for {order}?", kind="approval")
    return f"paid {cents} for {order}: {answer.ok}"


CLERK = Agent("clerk", does="Pays.", tools=[pay])
RUNS = ("first", "second", "third")


def script() -> MockModel:
    return MockModel([call("pay", order="A-1", cents=4200), say("paid, all of it")])


async def write(path: Path) -> dict[str, list[str]]:
    """Three parked runs in one file; returns their journals."""
    store = SQLiteStore(path)
    for run_id in RUNS:
        await CLERK.run("Pay A-1.", model=script(), store=store, run_id=run_id, clock=VirtualClock())
    journals = {run_id: [rec.text for rec in await store.read(run_id)] for run_id in RUNS}
    await store.close()
    file = sqlite3.connect(path)
    # All of it in one file, so that what is damaged is the file and not the log beside it.
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file.execute("PRAGMA journal_mode = DELETE")
    file.close()
    return journals


async def read(path: Path) -> dict[str, list[str] | StoreError]:
    """What each run gives: its journal, folded, or an error."""
    store = SQLiteStore(path)
    found: dict[str, list[str] | StoreError] = {}
    for run_id in RUNS:
        try:
            await load(store, run_id)
            found[run_id] = [rec.text for rec in await store.read(run_id)]
        except StoreError as error:
            found[run_id] = error
    await store.close()
    return found


def check(path: Path, found: dict[str, list[str] | StoreError], journals: dict[str, list[str]]) -> int:
    """Return how many runs were refused; none may have come back changed."""
    refused = 0
    for run_id, outcome in found.items():
        if isinstance(outcome, StoreError):
            refused += 1
            assert run_id in str(outcome) or str(path) in str(outcome), outcome
        else:
            assert outcome == journals[run_id]
    return refused


async def test_a_file_that_was_cut_off_anywhere(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    journals = await write(whole)
    content = whole.read_bytes()
    path = tmp_path / "cut.db"
    refused = 0
    cuts = {
        *range(0, len(content), 331),
        *(page + by for page in range(0, len(content), 4096) for by in (-1, 0, 1)),
    }
    for at in sorted(cut for cut in cuts if 0 < cut < len(content)):
        path.write_bytes(content[:at])
        refused += check(path, await read(path), journals) > 0
    assert refused > len(cuts) // 2


async def test_a_file_with_a_flipped_byte_anywhere(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    journals = await write(whole)
    content = whole.read_bytes()
    path = tmp_path / "flipped.db"
    chance = random.Random(11)
    refused = 0
    places = [at for at in range(len(content)) if content[at]]
    for at in chance.sample(places, 700):
        damaged = bytearray(content)
        damaged[at] ^= 1 << chance.randrange(8)
        path.write_bytes(bytes(damaged))
        refused += check(path, await read(path), journals) > 0
    assert refused > 350


def flips(text: str) -> Sequence[str]:
    """The text with one letter or digit changed, at each place of it."""
    return [
        text[:at] + chr(ord(letter) ^ 1) + text[at + 1 :]
        for at, letter in enumerate(text)
        if letter.isascii() and letter.isalnum()
    ]


async def test_a_record_with_one_letter_changed_anywhere() -> None:
    store = MemoryStore()
    await Host(World(), store, ResumePolicy.REWIND).run()
    records = await store.read("run")
    tried = 0
    for rec in (*records[:3], *records[-2:]):
        whole = decode("run", Record(rec.position, rec.count, text=rec.text))
        for text in flips(rec.text):
            said = ""
            try:
                assert decode("run", Record(rec.position, rec.count, text=text)) == whole, text
            except StoreError as error:
                said = str(error)
            assert not said or said.startswith(f"run run, position {rec.position}: ")
            tried += bool(said)
    assert tried > 500


async def test_damage_to_one_run_leaves_the_others_usable(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await write(path)
    with sqlite3.connect(path) as file:
        file.execute("UPDATE journal SET text = replace(text, '4200', '9900') WHERE run_id = 'second'")
    file.close()
    store = SQLiteStore(path)
    with pytest.raises(JournalCorrupt, match=r"run second, position \d+: .*checksum"):
        await Runtime.open(CLERK, "second", model=script(), store=store)
    for run_id in ("first", "third"):
        runtime = await Runtime.open(CLERK, run_id, model=script(), store=store, clock=VirtualClock())
        (asked,) = runtime.pendings()
        result = await runtime.resume(Answer(id=asked.id, ok=True))
        assert (result.status, result.text) == ("done", "paid, all of it")
    await store.close()


async def test_a_run_whose_head_is_gone_is_damaged_and_not_unknown(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await write(path)
    with sqlite3.connect(path) as file:
        file.execute("DELETE FROM runs WHERE run_id = 'second'")
    file.close()
    store = SQLiteStore(path)
    with pytest.raises(JournalCorrupt, match=r"run 'second'.* head"):
        await store.read("second")
    await store.close()
