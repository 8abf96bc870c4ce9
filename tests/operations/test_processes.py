"""Operations beside real processes that drive a run in a file, and are killed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from overt import ResumePolicy, Runtime
from overt.errors import RunConflict
from overt.events import ResultReady
from overt.operations import follow
from overt.stores import SQLiteStore
from tests.durability.crew import LEAD, RUN, Host, World
from tests.operations.kit import Reader
from tests.operations.workers import Worker

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
]


@pytest.fixture
def anyio_backend() -> str:
    """The loop of the test itself plays no part; the processes take long enough to start."""
    return "asyncio"


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    """Processes that are ended with the test."""
    started: list[Worker] = []
    yield started
    for one in started:
        one.kill()


def now() -> datetime:
    return datetime.now(UTC)


def start(folder: Path, workers: list[Worker], verb: str, *pauses: str) -> Worker:
    worker = Worker(folder, verb, *pauses, policy=ResumePolicy.CONTINUE)
    workers.append(worker)
    return worker


async def parked(folder: Path, store: SQLiteStore) -> None:
    host = Host(World(path=folder / "world"), store, ResumePolicy.CONTINUE)
    result = await Runtime(LEAD, run_id=RUN, **host.options()).run("sell")
    assert result.status == "pending"


async def test_a_driver_that_is_killed(tmp_path: Path, workers: list[Worker]) -> None:
    """Alive it is left alone; dead, its run is seen at once, long before its claim runs out."""
    store = SQLiteStore(tmp_path / "runs.db")
    await parked(tmp_path, store)
    worker = start(tmp_path, workers, "answer", "heard worker")
    assert worker.hear() == "at heard worker"
    assert await store.abandoned(now()) == ()
    assert await store.expire_due(now()) == ()
    assert await store.prune(now(), status=("running", "")) == ()
    asked = await store.interrupt(RUN, reason="enough")
    assert (asked.outcome, asked.owner) == ("asked", (await store.info(RUN)).owner)
    worker.kill()
    (found,) = await store.abandoned(now())
    assert (found.run_id, found.interrupt) == (RUN, "enough")
    assert (await store.interrupt(RUN, reason="enough")).outcome == "interrupted"
    assert await store.abandoned(now()) == ()
    assert await store.verify() == ()
    await store.close()


async def test_a_driver_in_another_process_obeys(tmp_path: Path, workers: list[Worker]) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    await parked(tmp_path, store)
    worker = start(tmp_path, workers, "answer", "heard worker")
    assert worker.hear() == "at heard worker"
    host = Host(World.read(tmp_path / "world"), store, ResumePolicy.CONTINUE)
    runtime = await Runtime.open(LEAD, RUN, **host.options())
    with pytest.raises(RunConflict, match=r"await store\.interrupt\('run'\)"):
        await runtime.interrupt()
    assert (await store.interrupt(RUN, reason="enough")).outcome == "asked"
    worker.go()
    assert worker.hear() == "interrupted Interrupted: enough."
    info = await store.info(RUN)
    assert (info.status, info.interrupt, info.owner) == ("interrupted", None, None)
    await store.close()


async def test_followed_from_here(tmp_path: Path, workers: list[Worker]) -> None:
    """While the other process stands still in the middle, all it has recorded is here."""
    store = SQLiteStore(tmp_path / "runs.db")
    await parked(tmp_path, store)
    before = (await store.info(RUN)).position
    worker = start(tmp_path, workers, "answer", "after book 12a yes", "end")
    assert worker.hear() == "at after book 12a yes"
    reader = Reader(follow(store, RUN, after=before))
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader.read)
            await reader.until("tool_started")
            assert not reader.has("tool_finished")
            assert not reader.has("result")
            worker.go()
    assert worker.hear().startswith("incomplete ")
    *events, last = reader.seen
    assert isinstance(last, ResultReady)
    assert last.result.status == "incomplete"
    assert [event.position for event in events] == list(range(before + 1, last.position + 1))
    await store.close()
