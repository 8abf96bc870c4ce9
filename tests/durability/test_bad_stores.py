"""Stores that cannot be used: a clear error, and no half-done run."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from overt import Agent, Runtime
from overt.errors import JournalCorrupt, RunExists, RunNotFound, StoreError, UsageError
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import MockModel, say

pytestmark = pytest.mark.anyio
AGENT = Agent("a", does="Works.")


async def refused(store: SQLiteStore, match: str) -> None:
    """A run on it is refused, the model is never asked, and the runtime says so again."""
    model = MockModel([say("end")])
    runtime = Runtime(AGENT, model=model, store=store, run_id="r")
    for _ in range(2):
        with pytest.raises(StoreError, match=match) as caught:
            await runtime.run("go")
        assert type(caught.value) is StoreError
    with pytest.raises(UsageError, match="not been started"):
        runtime.result()
    assert model.requests == []
    with pytest.raises(StoreError, match=match):
        await Runtime.open(AGENT, "r", model=model, store=store)
    await store.close()


async def test_a_directory(tmp_path: Path) -> None:
    await refused(SQLiteStore(tmp_path), "director")


async def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    await refused(SQLiteStore(tmp_path / "no" / "runs.db"), "no")


async def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.write_text("Dear diary, " * 500)
    await refused(SQLiteStore(path), "not a database")
    assert path.read_text().startswith("Dear diary")


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """A file and its folder that may not be written."""
    path.chmod(0o444)
    path.parent.chmod(0o555)
    yield
    path.parent.chmod(0o755)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write everything")
async def test_a_file_that_may_only_be_read(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    first = SQLiteStore(path)
    await AGENT.run("go", model=MockModel([say("end")]), store=first, run_id="other")
    await first.close()
    with read_only(path):
        await refused(SQLiteStore(path), "read")


async def test_a_file_that_somebody_holds(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    first = SQLiteStore(path)
    await AGENT.run("go", model=MockModel([say("end")]), store=first, run_id="other")
    await first.close()
    held = sqlite3.connect(path, isolation_level=None)
    held.execute("BEGIN EXCLUSIVE")
    store = SQLiteStore(path, busy_timeout=0.05)
    model = MockModel([say("end")])
    with pytest.raises(StoreError, match="lock"):
        await AGENT.run("go", model=model, store=store, run_id="r")
    assert model.requests == []
    held.execute("ROLLBACK")
    held.close()
    # A store that could not be used for a moment can be used again, and has no half of a run.
    with pytest.raises(RunNotFound):
        await Runtime.open(AGENT, "r", model=model, store=store)
    result, _ = await AGENT.run("go", model=model, store=store, run_id="r")
    assert result.text == "end"
    await store.close()


async def test_a_run_id_that_exists(tmp_path: Path) -> None:
    for store in (MemoryStore(), SQLiteStore(tmp_path / "runs.db")):
        await AGENT.run("go", model=MockModel([say("end")]), store=store, run_id="r")
        with pytest.raises(RunExists, match="'r'"):
            await AGENT.run("go", model=MockModel([say("end")]), store=store, run_id="r")
        await store.close()


async def test_a_store_that_was_closed() -> None:
    store = MemoryStore()
    await store.close()
    with pytest.raises(StoreError, match="close"):
        await AGENT.run("go", model=MockModel([say("end")]), store=store)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("UPDATE journal SET text = substr(text, 1, 20) WHERE position > 1", "no journal record"),
        ("DELETE FROM journal WHERE position = 2", "position"),
    ],
)
async def test_a_journal_that_was_tampered_with(change: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SQLiteStore(path)
    await AGENT.run("go", model=MockModel([say("end")]), store=store, run_id="run-9")
    await store.close()
    file = sqlite3.connect(path)
    assert file.execute(change).rowcount
    file.commit()
    file.close()
    store = SQLiteStore(path)
    with pytest.raises(JournalCorrupt, match=what) as caught:
        await Runtime.open(AGENT, "run-9", model=MockModel([say("end")]), store=store)
    assert "run-9" in str(caught.value)
    assert "position" in str(caught.value)
    await store.close()
