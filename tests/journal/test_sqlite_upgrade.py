"""Files of older releases are brought up to date when they are opened."""

from __future__ import annotations

import shutil
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from overt import Agent, Answer, Runtime, ToolContext, tool
from overt.stores import SQLiteStore
from overt.testing import MockModel, VirtualClock, call, say

pytestmark = pytest.mark.anyio

V1 = Path(__file__).parent.parent / "golden" / "store_v1.db"
"""Written by the first release: two runs parked at a question, one of which expires, and one that is done."""


@tool
async def pay(ctx: ToolContext, order: str) -> str:
    """Pay."""
    expires = datetime(2030, 1, 1, tzinfo=UTC) if order == "A1" else None
    answer = await ctx.ask(f"Pay {order}?", kind="approval", expires_at=expires)
    return f"paid {answer.ok}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copy(V1, tmp_path / "runs.db"))


async def test_lists_are_made_from_the_journals(path: Path) -> None:
    store = SQLiteStore(path)
    listed = {info.run_id: (info.status, info.updated.second) for info in await store.runs()}
    assert listed == {"first": ("pending", 0), "second": ("pending", 5), "finished": ("done", 10)}
    first, second = await store.open_requests()
    assert (first.run_id, first.kind, first.agent) == ("first", "approval", "clerk")
    assert first.expires_at == datetime(2030, 1, 1, tzinfo=UTC)
    assert second.run_id == "second"
    assert second.expires_at is None
    await store.close()


async def test_a_parked_run_goes_on(path: Path) -> None:
    agent = Agent("clerk", does="Pays.", tools=[pay])
    model = MockModel([call("pay", order="B2"), say("ok")])
    store = SQLiteStore(path)
    runtime = await Runtime.open(agent, "second", store=store, model=model, clock=VirtualClock())
    (asked,) = runtime.pendings()
    result = await runtime.resume(Answer(id=asked.id, ok=True))
    assert (result.status, result.text) == ("done", "ok")
    assert [one.run_id for one in await store.open_requests()] == ["first"]
    await store.close()


async def test_a_damaged_journal_keeps_nobody_from_the_others(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute("UPDATE journal SET text = '{' WHERE run_id = 'first'")
    file.close()
    store = SQLiteStore(path)
    assert [one.run_id for one in await store.open_requests()] == ["second"]
    assert len(await store.runs()) == 3
    await store.close()


async def test_two_stores_may_open_it_at_once(path: Path) -> None:
    one, two = SQLiteStore(path), SQLiteStore(path)
    assert len(await one.runs()) == len(await two.runs()) == 3
    assert sqlite3.connect(path).execute("PRAGMA user_version").fetchone() == (2,)
    await one.close()
    await two.close()
