"""What is special about the PostgreSQL store: its threads, shared commits, forks, and waiting for facts."""

# Nothing else runs in the event loops of these tests, so they may block.

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import anyio
import anyio.to_thread
import psycopg
import pytest
import trio
from tests.postgres import Place

from overt.errors import RunConflict, RunNotFound, StoreError
from overt.journal import _postgres_listen
from overt.journal._postgres_db import PostgresDatabase
from overt.journal.record import Record
from overt.stores import Change, Owner, PostgresStore

pytestmark = pytest.mark.anyio

NOW = datetime(2024, 1, 1, tzinfo=UTC)
UNTIL = NOW + timedelta(seconds=30)
OWNER = Owner(id="me")
RUNNING = Change(status="running", at=NOW)


async def start(store: PostgresStore, run_id: str = "run") -> None:
    await store.create(run_id, (), agent="a", owner=OWNER, now=NOW, until=UNTIL)


async def append(store: PostgresStore, run_id: str = "run", *, after: int = 0) -> None:
    await store.append(run_id, [Record(after + 1, 1, text="x")], after=after, epoch=1, change=RUNNING)


def hold(place: Place, run_id: str) -> psycopg.Connection[tuple[object, ...]]:
    """Hold a run, as another transaction does, until COMMIT; the store's thread waits for it."""
    other = place.connect()
    other.execute("BEGIN")
    other.execute("SELECT * FROM runs WHERE run_id = %s FOR UPDATE", (run_id,))
    return other


# Threads and event loops


def test_event_loops_one_after_another(postgres: Place) -> None:
    store = postgres.store()

    async def step(after: int) -> None:
        if after == 0:
            await start(store)
        await append(store, after=after)

    asyncio.run(step(0))
    trio.run(step, 1)
    asyncio.run(step(2))

    async def finish() -> int:
        try:
            return len(await store.read("run"))
        finally:
            await store.close()

    assert trio.run(finish) == 3


def test_event_loops_at_the_same_time(postgres: Place) -> None:
    store = postgres.store()
    start_together = threading.Barrier(4)

    async def drive(name: str) -> None:
        start_together.wait()
        await start(store, name)
        for n in range(25):
            await append(store, name, after=n)

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


async def test_appends_that_wait_share_a_commit(postgres: Place) -> None:
    store = postgres.store()
    for n in range(100):
        await start(store, f"run {n}")
    with hold(postgres, "run 0") as other:
        async with anyio.create_task_group() as tasks:
            for n in range(100):
                tasks.start_soon(append, store, f"run {n}")
            await anyio.wait_all_tasks_blocked()
            other.execute("COMMIT")
    # The first append may have gone alone.
    ((commits,),) = postgres.sql("SELECT count(DISTINCT xmin::text) FROM journal")
    assert commits in (1, 2)
    await store.close()


async def test_what_was_cancelled_before_its_turn_does_not_happen(postgres: Place) -> None:
    store = postgres.store()
    await start(store, "first")
    await start(store)
    with hold(postgres, "first") as other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append, store, "first")
            # The thread now waits for the other transaction with at least the first append.
            await anyio.wait_all_tasks_blocked()
            with anyio.CancelScope() as scope:
                scope.cancel()
                await append(store)
            assert scope.cancelled_caught
            other.execute("COMMIT")
    assert (await store.info("first")).position == 1
    assert (await store.info("run")).position == 0
    await store.close()


async def test_close_finishes_what_is_under_way(postgres: Place) -> None:
    store = postgres.store()
    await start(store)
    with hold(postgres, "run") as other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append, store)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(store.close)
            await anyio.wait_all_tasks_blocked()
            other.execute("COMMIT")
    assert postgres.sql("SELECT position FROM runs") == [(1,)]
    with pytest.raises(StoreError, match="closed"):
        await store.info("run")
    with pytest.raises(StoreError, match="closed"):
        await store.wait("run", after=1)


async def test_a_collected_store_closes_its_connections(postgres: Place) -> None:
    before = set(threading.enumerate())
    store = postgres.store()
    await start(store)
    assert await store.wait("run", after=0, timeout=0) == 0
    threads = set(threading.enumerate()) - before
    assert len(threads) == 2
    del store
    gc.collect()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()


LEFT_OPEN = """
import asyncio, sys
from datetime import datetime, UTC
from overt.stores import Owner, PostgresStore
now = datetime(2024, 1, 1, tzinfo=UTC)
store = PostgresStore(sys.argv[1], schema=sys.argv[2])

async def main():
    await store.create("run", (), agent="a", owner=Owner(id="x"), now=now, until=now)
    await store.wait("run", after=0, timeout=0)

asyncio.run(main())
"""

FORKED = """
import asyncio, os, sys
from datetime import datetime, UTC
from overt.journal.record import Record
from overt.stores import Change, Owner, PostgresStore
now = datetime(2024, 1, 1, tzinfo=UTC)
store = PostgresStore(sys.argv[1], schema=sys.argv[2])

async def append(n):
    change = Change(status="running", at=now)
    await store.append("run", [Record(n, 1, text=str(n))], after=n - 1, epoch=1, change=change)
    assert await store.wait("run", after=n - 1) == n
    assert await store.wait("run", after=n, timeout=0) == n

asyncio.run(store.create("run", (), agent="a", owner=Owner(id="x"), now=now, until=now))
asyncio.run(append(1))
child = os.fork()
if child == 0:
    asyncio.run(append(2))
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
asyncio.run(append(3))
asyncio.run(store.close())
"""


def run(script: str, place: Place) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-W",
            "ignore::DeprecationWarning",
            "-c",
            script,
            place.dsn,
            place.schema,
        ],
        capture_output=True,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_program_may_end_without_closing(postgres: Place) -> None:
    run(LEFT_OPEN, postgres)
    assert postgres.sql("SELECT run_id FROM runs") == [("run",)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_connects_anew(postgres: Place) -> None:
    run(FORKED, postgres)
    assert postgres.sql("SELECT text FROM journal ORDER BY position") == [("1",), ("2",), ("3",)]


async def test_errors_of_one_batch_are_different_objects(postgres_dsn: str) -> None:
    store = PostgresStore(f"{postgres_dsn} dbname=nowhere")
    errors: list[StoreError] = []

    async def fail() -> None:
        with pytest.raises(StoreError) as caught:
            await start(store)
        errors.append(caught.value)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(fail)
    assert len({id(error) for error in errors}) == 5
    await store.close()


async def test_stores_that_meet_in_two_runs_both_go_on(postgres: Place) -> None:
    """The batches of two stores hold the same runs; each takes them in the same order."""
    stores = [postgres.store(), postgres.store()]
    names = [f"run {n}" for n in range(20)]
    for name in names:
        await start(stores[0], name)
    won: list[str] = []

    async def attempt(store: PostgresStore, name: str, after: int) -> None:
        try:
            await append(store, name, after=after)
        except RunConflict:
            return
        won.append(name)

    for after in range(5):
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(attempt, stores[0], name, after)
            for name in reversed(names):
                tasks.start_soon(attempt, stores[1], name, after)
        assert sorted(won) == sorted(names)
        won.clear()
    for store in stores:
        await store.close()


@asynccontextmanager
async def slow_creation(place: Place, store: PostgresStore) -> AsyncIterator[list[int | str]]:
    """Create `run`, and hold that up between the look whether it is there and the insert; its epoch or its error."""
    place.sql(
        """
        CREATE FUNCTION wait_for_test() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NEW; END $$
        """,
        "CREATE TRIGGER wait_for_test BEFORE INSERT ON runs FOR EACH ROW WHEN (NEW.agent = 'slow') "
        f"EXECUTE FUNCTION {place.schema}.wait_for_test()",
    )
    ended: list[int | str] = []

    async def create() -> None:
        try:
            claim = await store.create("run", (), agent="slow", owner=OWNER, now=NOW, until=UNTIL)
            ended.append(claim.epoch)
        except StoreError as error:
            ended.append(type(error).__name__)

    with place.connect() as other:
        other.execute("SELECT pg_advisory_lock(42)")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(create)
            await blocked(place)
            yield ended
            other.execute("SELECT pg_advisory_unlock(42)")


async def test_of_two_stores_that_create_a_run_one_is_told_that_it_exists(postgres: Place) -> None:
    store, other = postgres.store(), postgres.store()
    await start(other, "first")
    async with slow_creation(postgres, store) as ended:
        await start(other)
    assert ended == ["RunExists"]
    await store.close()
    await other.close()


async def test_a_run_that_is_deleted_meanwhile_has_a_lower_epoch_than_the_new_one(postgres: Place) -> None:
    store, other = postgres.store(), postgres.store()
    await start(other, "first")
    async with anyio.create_task_group() as tasks, slow_creation(postgres, store) as ended:
        await start(other)

        async def delete() -> None:
            await other.delete("run", now=UNTIL)

        tasks.start_soon(delete)
        await anyio.wait_all_tasks_blocked()
    assert ended in ([2], ["RunExists"])
    await store.close()
    await other.close()


async def test_a_deadlock_with_another_program_is_tried_again(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watch(monkeypatch)
    store = postgres.store()
    for name in "abc":
        await start(store, name)
    with hold(postgres, "c") as first, hold(postgres, "b") as other:
        # The store's, which waits longer, is the one that is undone.
        other.execute("SET deadlock_timeout = '1h'")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append, store, "c")
            await blocked(postgres)
            tasks.start_soon(append, store, "a")
            tasks.start_soon(append, store, "b")
            await anyio.wait_all_tasks_blocked()
            first.execute("COMMIT")
            # Now it has a and waits for b, in one transaction.
            await blocked(postgres)
            await anyio.to_thread.run_sync(other.execute, "SELECT * FROM runs WHERE run_id = 'a' FOR UPDATE")
            other.execute("COMMIT")
    assert {type(error) for error in seen} == {psycopg.errors.DeadlockDetected}
    assert [(one.run_id, one.position) for one in await store.runs()] == [("a", 1), ("b", 1), ("c", 1)]
    await store.close()


def watch(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Return what goes wrong with transactions from now on."""
    seen: list[Exception] = []
    recover = PostgresDatabase.recover

    def recover_and_tell(database: PostgresDatabase, error: Exception) -> object:
        seen.append(error)
        return recover(database, error)

    monkeypatch.setattr(PostgresDatabase, "recover", recover_and_tell)
    return seen


async def blocked(place: Place) -> None:
    """Return when a session waits for a lock."""
    while not place.sql("SELECT 1 FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110 - only the server knows
        await anyio.sleep(0.01)


# Waiting


async def waits(store: PostgresStore, after: int, heard: list[int], run_id: str = "run") -> None:
    heard.append(await store.wait(run_id, after=after))


@asynccontextmanager
async def listening(place: Place, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresStore]:
    """A store that hears of appends and does not look by itself."""
    store, other = place.store(), place.store()
    monkeypatch.setattr(_postgres_listen, "_LOOK", 86_400.0)
    await start(other, "first")
    heard: list[int] = []
    async with anyio.create_task_group() as tasks:
        # The first look comes after LISTEN.
        tasks.start_soon(waits, store, 0, heard, "first")
        await anyio.wait_all_tasks_blocked()
        await append(other, "first")
    await other.close()
    yield store
    await store.close()


async def test_appends_elsewhere_are_notified(postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    there = postgres.store()
    await start(there)
    heard: list[int] = []
    async with listening(postgres, monkeypatch) as here, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(waits, here, 0, heard)
        tasks.start_soon(waits, here, 1, heard)
        await anyio.wait_all_tasks_blocked()
        await append(there)
        await append(there, after=1)
    assert len(heard) == 4
    assert heard[-1] == 2
    await there.close()


async def test_the_end_of_a_run_is_notified(postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    there = postgres.store()
    await start(there)

    async def ends() -> None:
        with pytest.raises(RunNotFound, match="holds no run 'run'"):
            await here.wait("run", after=0)

    async with listening(postgres, monkeypatch) as here, anyio.create_task_group() as tasks:
        tasks.start_soon(ends)
        await anyio.wait_all_tasks_blocked()
        await there.delete("run", now=UNTIL)
    await there.close()


async def test_a_notification_that_was_lost_is_made_up_for(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As through a pool, which passes none on.
    monkeypatch.setattr(_postgres_listen, "channel", lambda schema: "elsewhere")
    here, there = postgres.store(), postgres.store()
    await start(there)
    await here.wait("run", after=0, timeout=0)
    heard: list[int] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waits, here, 0, heard)
        await anyio.wait_all_tasks_blocked()
        await append(there)
    assert heard == [1]
    await here.close()
    await there.close()


async def test_many_tasks_of_both_loops_wait_on_one_connection(postgres: Place) -> None:
    store, there = postgres.store(), postgres.store()
    for n in range(20):
        await start(there, f"run {n}")
    heard: list[int] = []

    async def wait_for_all() -> None:
        async with anyio.create_task_group() as tasks:
            for n in range(20):
                tasks.start_soon(waits, store, 0, heard, f"run {n}")

    async def elsewhere(backend: str) -> None:
        await anyio.to_thread.run_sync(lambda: anyio.run(wait_for_all, backend=backend))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(elsewhere, "asyncio")
        tasks.start_soon(elsewhere, "trio")
        tasks.start_soon(wait_for_all)
        await anyio.wait_all_tasks_blocked()
        for n in range(20):
            await append(there, f"run {n}")
    assert heard == [1] * 60
    names = [one.name for one in threading.enumerate()]
    assert sum(name.startswith("overt listening") and postgres.schema in name for name in names) == 1
    await store.close()
    await there.close()


async def test_waiting_goes_on_when_its_connection_is_lost(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = postgres.store()
    await start(there)
    heard: list[int] = []
    async with listening(postgres, monkeypatch) as here, anyio.create_task_group() as tasks:
        tasks.start_soon(waits, here, 0, heard)
        await anyio.wait_all_tasks_blocked()
        postgres.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND application_name = 'overt'"
        )
        await append(there)
    assert heard == [1]
    await there.close()


async def test_close_ends_waiting(postgres: Place) -> None:
    store = postgres.store()
    await start(store)

    async def ends() -> None:
        with pytest.raises(StoreError, match=r"PostgresStore\(.*closed"):
            await store.wait("run", after=0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ends)
        tasks.start_soon(ends)
        await anyio.wait_all_tasks_blocked()
        await store.close()
