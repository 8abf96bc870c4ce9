"""Connections that are lost and servers that are restarted, before, during and after appends."""

# The server is stopped and started while nothing else has to go on.

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta

import anyio
import anyio.to_thread
import psycopg
import pytest
from tests.journal.test_postgres_thread import append, blocked, hold, start, watch
from tests.postgres import Place
from tools.postgres import Server

from overt.errors import StoreError
from overt.journal._postgres_db import PostgresDatabase
from overt.stores import Owner, PostgresStore

pytestmark = pytest.mark.anyio

NOW = datetime(2024, 1, 1, tzinfo=UTC)
UNTIL = NOW + timedelta(seconds=30)

SESSIONS = "FROM pg_stat_activity WHERE application_name = 'overt' AND pid <> pg_backend_pid()"
KILL = f"SELECT pg_terminate_backend(pid) {SESSIONS}"


@pytest.fixture
def place(server: Server) -> Iterator[Place]:
    """Tables on a server this test may stop."""
    place = Place(server.dsn, "overt_lost")
    yield place
    place.sql("SET client_min_messages = warning", f"DROP SCHEMA IF EXISTS {place.schema} CASCADE")


# The connection is lost


async def test_a_connection_lost_before_an_append_is_made_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.store()
    await start(store)
    seen = watch(monkeypatch)
    for after in range(3):
        assert place.sql(KILL) == [(True,)]
        await append(store, after=after)
    assert place.sql(KILL) == [(True,)]
    assert (await store.info("run")).position == 3
    assert len(await store.read("run")) == 3
    assert [error for error in seen if not isinstance(error, psycopg.OperationalError)] == []
    assert len(seen) >= 4
    await store.close()


async def test_a_connection_lost_while_it_waits_for_a_run(place: Place) -> None:
    store = place.store()
    for n in range(5):
        await start(store, f"run {n}")
    with hold(place, "run 3") as other:
        async with anyio.create_task_group() as tasks:
            for n in range(5):
                tasks.start_soon(append, store, f"run {n}")
            await blocked(place)
            assert place.sql(KILL) == [(True,)]
            await blocked(place)
            other.execute("COMMIT")
    assert [(one.run_id, one.position) for one in await store.runs()] == [(f"run {n}", 1) for n in range(5)]
    assert place.sql("SELECT count(*) FROM journal") == [(5,)]
    await store.close()


def commits_wait(place: Place) -> psycopg.Connection[tuple[object, ...]]:
    """Let every commit that adds to a journal wait for an advisory lock, and hold it; before it is committed."""
    place.sql(
        """
        CREATE FUNCTION wait_for_test() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NULL; END $$
        """,
        "CREATE CONSTRAINT TRIGGER wait_for_test AFTER INSERT ON journal DEFERRABLE INITIALLY DEFERRED "
        f"FOR EACH ROW EXECUTE FUNCTION {place.schema}.wait_for_test()",
    )
    other = place.connect()
    other.execute("SELECT pg_advisory_lock(42)")
    return other


async def test_a_connection_lost_before_the_commit_is_done(place: Place) -> None:
    store = place.store()
    await start(store)
    with commits_wait(place) as other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append, store)
            tasks.start_soon(start, store, "new")
            await blocked(place)
            # In the middle of COMMIT; the server undoes it, says so when asked, and it is all done once more.
            assert place.sql(KILL) == [(True,)]
            await blocked(place)
            other.execute("SELECT pg_advisory_unlock(42)")
    assert place.sql("SELECT run_id, position FROM journal") == [("run", 1)]
    assert [(one.run_id, one.epoch) for one in await store.runs()] == [("new", 1), ("run", 1)]
    await store.close()


@pytest.fixture
def no_standby(server: Server) -> Iterator[None]:
    """Commits wait for a standby that is not there: they are done, and nobody is told."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        connection.execute("SELECT pg_reload_conf()")
        yield
        connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
        connection.execute("SELECT pg_reload_conf()")


async def waits_for_standby(place: Place) -> None:
    while not place.sql(f"SELECT pid {SESSIONS} AND wait_event = 'SyncRep'"):  # noqa: ASYNC110 - only the server knows
        await anyio.sleep(0.01)


OPERATIONS: dict[str, Callable[[PostgresStore], Coroutine[None, None, object]]] = {
    "append": append,
    "create": lambda store: start(store, "new"),
    "claim": lambda store: store.claim("run", owner=Owner(id="you"), now=UNTIL, until=UNTIL),
    "delete": lambda store: store.delete("run", now=UNTIL),
}


@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_connection_lost_after_the_commit_is_done(
    place: Place, name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.store()
    await start(store)
    seen = watch(monkeypatch)
    request.getfixturevalue("no_standby")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(OPERATIONS[name], store)
        await waits_for_standby(place)
        assert place.sql(KILL) == [(True,)]
    # The server says that it is done, so it is not done again.
    assert seen == []
    assert (
        place.sql("SELECT run_id, position, epoch FROM runs ORDER BY run_id")
        == {
            "append": [("run", 1, 1)],
            "create": [("new", 0, 1), ("run", 0, 1)],
            "claim": [("run", 0, 2)],
            "delete": [],
        }[name]
    )
    await store.close()


@pytest.mark.parametrize(
    ("meanwhile", "position"),
    [
        # Nothing of it is there, as on a standby that took over and had not got it: it is done once more.
        ("UPDATE runs SET position = 0, written = before", 1),
        # Somebody else has changed the run since; it cannot be told what was before.
        ("UPDATE runs SET written = 1", None),
    ],
)
async def test_the_tables_are_believed_and_not_the_number_of_the_transaction(
    place: Place,
    meanwhile: str,
    position: int | None,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = place.store()
    await start(store)
    place.sql("ALTER TABLE runs ADD COLUMN before bigint", "UPDATE runs SET before = written")
    happened = PostgresDatabase._happened

    def later(database: PostgresDatabase) -> bool | None:
        place.sql("SET synchronous_commit = local", "DELETE FROM journal", meanwhile)
        place.sql("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        return happened(database)

    monkeypatch.setattr(PostgresDatabase, "_happened", later)
    request.getfixturevalue("no_standby")
    failed: list[str] = []

    async def attempt() -> None:
        try:
            await append(store)
        except StoreError as error:
            failed.append(str(error))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(attempt)
        await waits_for_standby(place)
        place.sql(KILL)
    if position is None:
        assert "whether it was written is unknown, read the run again" in failed[0]
    else:
        assert failed == []
        assert place.sql("SELECT runs.position, text FROM runs JOIN journal USING (run_id)") == [
            (position, "x")
        ]
    await store.close()


async def test_a_server_that_is_gone_at_the_commit_leaves_a_doubt(server: Server, place: Place) -> None:
    store = place.store(reconnect_timeout=0)
    await start(store)
    errors: list[str] = []

    async def fails() -> None:
        with pytest.raises(StoreError) as caught:
            await append(store)
        errors.append(str(caught.value))

    try:
        with commits_wait(place):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fails)
                await blocked(place)
                server.stop()
        (error,) = errors
        assert "lost at the commit; whether it was written is unknown, read the run again" in error
        with pytest.raises(StoreError, match="nothing listens there"):
            await append(store)
    finally:
        server.start()
    assert (await store.info("run")).position == 0
    await append(store)
    await store.close()


# The server is restarted


async def test_a_server_restarted_between_two_appends(server: Server, place: Place) -> None:
    store = place.store()
    await start(store)
    for after in range(2):
        server.stop()
        server.start()
        await append(store, after=after)
    assert len(await store.read("run")) == 2
    await store.close()


async def test_an_append_waits_for_a_server_that_is_away(server: Server, place: Place) -> None:
    store = place.store(reconnect_timeout=60)
    await start(store)
    server.stop()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append, store)
        await anyio.wait_all_tasks_blocked()
        server.start()
    assert len(await store.read("run")) == 1
    await store.close()


async def test_a_server_restarted_again_and_again_under_appends(server: Server, place: Place) -> None:
    store = place.store(reconnect_timeout=30)
    for n in range(8):
        await start(store, f"run {n}")
    done = [0] * 8
    stopped = threading.Event()

    async def drive(n: int) -> None:
        while not stopped.is_set():
            await append(store, f"run {n}", after=done[n])
            done[n] += 1

    def restart() -> None:
        for _ in range(3):
            server.stop()
            server.start()
        stopped.set()

    async with anyio.create_task_group() as tasks:
        for n in range(8):
            tasks.start_soon(drive, n)
        await anyio.to_thread.run_sync(restart)
    assert all(done)
    for n in range(8):
        assert [one.position for one in await store.read(f"run {n}")] == list(range(1, done[n] + 1))
    await store.close()
