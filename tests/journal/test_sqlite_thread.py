"""What is special about the SQLite store: its thread, shared commits, forks."""

# Nothing else runs in the event loops of these tests, so they may block.
# ruff: noqa: ASYNC221, ASYNC240

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
import trio

from overt.errors import RunConflict, StoreError
from overt.journal.record import Record
from overt.journal.store import Owner
from overt.stores import SQLiteStore
from overt.testing._store_checks import now_is

pytestmark = pytest.mark.anyio

NOW = datetime(2024, 1, 1, tzinfo=UTC)
UNTIL = NOW + timedelta(seconds=30)
OWNER = Owner(id="me")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


async def start(store: SQLiteStore, run_id: str = "run", records: int = 3) -> None:
    await store.create(
        run_id,
        [Record(2 * n + 1, 2, text=f"text {n}") for n in range(records)],
        agent="a",
        owner=OWNER,
        now=NOW,
        until=UNTIL,
    )


def sql(path: Path, *statements: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        rows: list[tuple[object, ...]] = []
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        return rows
    finally:
        connection.close()


def test_event_loops_one_after_another(path: Path) -> None:
    store = SQLiteStore(path)

    async def step(after: int) -> None:
        if after == 0:
            await store.create("run", (), agent="a", owner=OWNER, now=NOW, until=UNTIL)
        await store.append(
            "run", [Record(after + 1, 1, text="x")], after=after, epoch=1, change=now_is("running")
        )

    asyncio.run(step(0))
    trio.run(step, 1)
    asyncio.run(step(2))

    async def finish() -> int:
        try:
            return len(await store.read("run"))
        finally:
            await store.close()

    assert trio.run(finish) == 3


def test_event_loops_at_the_same_time(path: Path) -> None:
    store = SQLiteStore(path)
    start_together = threading.Barrier(4)

    async def drive(name: str) -> None:
        start_together.wait()
        await store.create(name, (), agent="a", owner=OWNER, now=NOW, until=UNTIL)
        for n in range(25):
            await store.append(name, [Record(n + 1, 1, text="x")], after=n, epoch=1, change=now_is("running"))

    def on_asyncio(name: str) -> None:
        asyncio.run(drive(name))

    def on_trio(name: str) -> None:
        trio.run(drive, name)

    threads = [
        threading.Thread(target=on_trio if n % 2 else on_asyncio, args=(f"run {n}",), name=str(n))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def finish() -> list[int]:
        try:
            return [(await store.info(f"run {n}")).position for n in range(4)]
        finally:
            await store.close()

    assert asyncio.run(finish()) == [25] * 4


async def test_appends_that_wait_share_a_commit(path: Path) -> None:
    store = SQLiteStore(path)
    for n in range(100):
        await start(store, f"run {n}")
    wal = Path(f"{path}-wal")
    before = wal.stat().st_size

    async def append(n: int) -> None:
        await store.append(f"run {n}", [Record(7, 1, text="x")], after=6, epoch=1, change=now_is("running"))

    other = sqlite3.connect(path, isolation_level=None)
    # While another process writes, all hundred come to wait.
    other.execute("BEGIN IMMEDIATE")
    async with anyio.create_task_group() as tasks:
        for n in range(100):
            tasks.start_soon(append, n)
        await anyio.wait_all_tasks_blocked()
        other.execute("ROLLBACK")
    other.close()
    # Each commit writes at least two pages; the first append may have gone alone.
    assert wal.stat().st_size - before < 100 * 4096
    for n in range(100):
        assert (await store.info(f"run {n}")).position == 7
    await store.close()


async def test_what_was_cancelled_before_its_turn_does_not_happen(path: Path) -> None:
    store = SQLiteStore(path)
    await start(store, "first")
    await start(store)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def append(run_id: str) -> None:
        await store.append(run_id, [Record(7, 1, text="x")], after=6, epoch=1, change=now_is("running"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append, "first")
        # The thread now waits for the other program with at least the first append.
        await anyio.wait_all_tasks_blocked()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await append("run")
        assert scope.cancelled_caught
        other.execute("ROLLBACK")
    other.close()
    assert (await store.info("first")).position == 7
    assert (await store.info("run")).position == 6
    await store.close()


async def test_close_finishes_what_is_under_way(path: Path) -> None:
    store = SQLiteStore(path)
    await start(store)

    async def append() -> None:
        await store.append("run", [Record(7, 1, text="x")], after=6, epoch=1, change=now_is("running"))

    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(store.close)
        await anyio.wait_all_tasks_blocked()
        other.execute("ROLLBACK")
    other.close()
    assert sql(path, "SELECT position FROM runs") == [(7,)]
    with pytest.raises(StoreError, match="closed"):
        await store.info("run")


async def test_a_collected_store_closes_its_file(path: Path) -> None:
    store = SQLiteStore(path)
    await start(store)
    (thread,) = [one for one in threading.enumerate() if one.name == f"overt {path}"]
    del store
    gc.collect()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert not Path(f"{path}-wal").exists()


LEFT_OPEN = """
import asyncio, sys
from datetime import datetime, UTC
from overt.journal.record import Record
from overt.journal.store import Owner
from overt.stores import SQLiteStore
now = datetime(2024, 1, 1, tzinfo=UTC)
store = SQLiteStore(sys.argv[1])
asyncio.run(store.create("run", (), agent="a", owner=Owner(id="x"), now=now, until=now))
"""


async def test_a_program_may_end_without_closing(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LEFT_OPEN, str(path)],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not Path(f"{path}-wal").exists()


FORKED = """
import asyncio, os, sys
from datetime import datetime, UTC
from overt.journal.record import Record
from overt.journal.store import Owner
from overt.stores import SQLiteStore
from overt.testing._store_checks import now_is
now = datetime(2024, 1, 1, tzinfo=UTC)
store = SQLiteStore(sys.argv[1])
def append(n):
    asyncio.run(store.append("run", [Record(n, 1, text=str(n))], after=n - 1, epoch=1, change=now_is("running")))
asyncio.run(store.create("run", (), agent="a", owner=Owner(id="x"), now=now, until=now))
append(1)
child = os.fork()
if child == 0:
    append(2)
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
append(3)
asyncio.run(store.close())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_forked_child_opens_the_file_anew(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", FORKED, str(path)],
        capture_output=True,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    store = SQLiteStore(path)
    assert [one.text for one in await store.read("run")] == ["1", "2", "3"]
    await store.close()


async def test_errors_of_one_batch_are_different_objects(path: Path) -> None:
    store = SQLiteStore(path.parent / "no" / "runs.db")
    errors: list[StoreError] = []

    async def info() -> None:
        try:
            await start(store)
        except StoreError as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(info)
    assert len({id(error) for error in errors}) == 5
    assert not any(isinstance(error, RunConflict) for error in errors)
    await store.close()
