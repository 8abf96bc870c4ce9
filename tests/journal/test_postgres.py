"""What is special about the PostgreSQL store: its tables, what it refuses, and its errors."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import anyio
import psycopg
import pytest
from tests.journal.test_postgres_thread import blocked, hold
from tests.postgres import Place
from tools.postgres import Server

from overt import Agent, Runtime
from overt.errors import JournalCorrupt, RunNotFound, StoreError, UnsupportedSchema
from overt.journal import _postgres_db, _postgres_schema
from overt.journal.record import Record
from overt.stores import Change, OpenRequest, Owner, PostgresStore

pytestmark = pytest.mark.anyio

NOW = datetime(2024, 1, 1, tzinfo=UTC)
UNTIL = NOW + timedelta(seconds=30)
OWNER = Owner(id="me")
RUNNING = Change(status="running", at=NOW)


async def start(store: PostgresStore, run_id: str = "run", records: int = 3) -> None:
    made = [Record(2 * n + 1, 2, text=f"text {n}") for n in range(records)]
    await store.create(run_id, made, agent="a", owner=OWNER, now=NOW, until=UNTIL)


async def append(store: PostgresStore, run_id: str = "run", *, after: int = 6, text: str = "x") -> None:
    await store.append(run_id, [Record(after + 1, 1, text=text)], after=after, epoch=1, change=RUNNING)


async def filled(place: Place) -> None:
    store = place.store()
    await start(store)
    await store.close()


# The tables


async def test_nothing_is_made_before_the_first_run(postgres: Place) -> None:
    store = postgres.store()
    await store.close()
    store = postgres.store()
    assert await store.runs() == []
    assert await store.open_requests() == []
    await store.release("run", epoch=1)
    assert postgres.sql(f"SELECT to_regnamespace('{postgres.schema}')") == [(None,)]
    await start(store)
    assert (await store.info("run")).position == 6
    await store.close()


async def test_the_tables_are_as_documented(postgres: Place) -> None:
    await filled(postgres)
    assert postgres.sql("SELECT * FROM meta") == [("overt", 1, 0)]
    assert postgres.sql("SELECT until FROM runs") == [(1_704_067_230_000_000,)]
    assert postgres.sql("SELECT position, count, text FROM journal ORDER BY position") == [
        (1, 2, "text 0"),
        (3, 2, "text 1"),
        (5, 2, "text 2"),
    ]


async def test_nul_is_escaped_only_where_it_is(postgres: Place) -> None:
    store = postgres.store()
    request = OpenRequest(run_id="r\0", request="q\0", kind="k\1", agent="ä\0", asked_at=NOW)
    await store.create(
        "r\0", [Record(1, 1, text="a\0\1b")], agent="ä\0", owner=Owner(id="o\0"), now=NOW, until=UNTIL
    )
    change = Change(status="s\0", at=NOW, asked=(request,))
    json = '{"key": "\\u0000"}'
    await store.append("r\0", [Record(2, 1, text=json)], after=1, epoch=1, change=change)
    assert postgres.sql("SELECT run_id FROM runs") == [("r\1\1",)]
    assert postgres.sql("SELECT text FROM journal ORDER BY position") == [("a\1\1\1\2b",), (json,)]
    assert await store.open_requests(run_id="r\0", kind="k\1", agent="ä\0") == [request]
    (info,) = await store.runs(status="s\0", agent="ä\0")
    assert (info.run_id, info.owner) == ("r\0", "o\0")
    assert [one.text for one in await store.read("r\0")] == ["a\0\1b", json]
    await store.close()


async def test_stores_of_two_schemas_know_nothing_of_each_other(postgres: Place) -> None:
    other = Place(postgres.dsn, f"{postgres.schema}_2")
    try:
        one, two = postgres.store(), other.store()
        await start(one)
        with pytest.raises(RunNotFound, match=other.schema):
            await two.info("run")
        await start(two, records=1)
        assert ((await one.info("run")).position, (await two.info("run")).position) == (6, 2)
        await one.close()
        await two.close()
    finally:
        other.sql(f"DROP SCHEMA {other.schema} CASCADE")


async def test_many_stores_make_the_tables_at_once(postgres: Place) -> None:
    stores = [postgres.store() for _ in range(8)]
    async with anyio.create_task_group() as tasks:
        for n, store in enumerate(stores):
            tasks.start_soon(start, store, f"run {n}")
    assert postgres.sql("SELECT count(*) FROM runs") == [(8,)]
    for store in stores:
        await store.close()


READS: dict[str, Callable[[PostgresStore], Awaitable[object]]] = {
    "read": lambda store: store.read("run"),
    "info": lambda store: store.info("run"),
    "claim": lambda store: store.claim("run", owner=OWNER, now=NOW, until=UNTIL),
    "append": lambda store: append(store, after=0),
    "renew": lambda store: store.renew("run", epoch=1, until=UNTIL),
    "ask_interrupt": lambda store: store.ask_interrupt("run"),
    "delete": lambda store: store.delete("run", now=NOW),
    "wait": lambda store: store.wait("run", after=0),
    "open": lambda store: Runtime.open(Agent("a", does="d", model="x:y"), "run", store=store),
}


@pytest.mark.parametrize("name", READS)
async def test_missing_tables_and_missing_runs_name_the_server(postgres: Place, name: str) -> None:
    store = postgres.store()
    for _ in range(2):
        with pytest.raises(RunNotFound, match=f"schema {postgres.schema}: no run has been stored there"):
            await READS[name](store)
    assert postgres.sql(f"SELECT to_regnamespace('{postgres.schema}')") == [(None,)]
    await start(store, "other")
    with pytest.raises(RunNotFound, match=f"schema {postgres.schema} holds no run 'run'"):
        await READS[name](store)
    await store.close()


# What it refuses


async def refused(store: PostgresStore, *words: str, kind: type[StoreError] = StoreError) -> None:
    """Both reading and writing raise `kind` with all `words` and no password, again and again."""
    for _ in range(2):
        for call in (lambda: store.info("run"), lambda: start(store)):
            with pytest.raises(StoreError) as caught:
                await call()
            assert type(caught.value) is kind, caught.value
            for word in words:
                assert word in str(caught.value)
            assert "password=" not in str(caught.value)
    await store.close()


async def test_tables_of_another_application(postgres: Place) -> None:
    for table in (
        "runs (theirs int)",
        "meta (key text, value text)",
        "meta (application text, schema_version int)",
    ):
        postgres.sql(f"CREATE SCHEMA {postgres.schema}", f"CREATE TABLE {table}")
        await refused(postgres.store(), "another application", "Choose another schema")
        assert len(postgres.sql(f"SELECT * FROM pg_tables WHERE schemaname = '{postgres.schema}'")) == 1
        postgres.sql(f"DROP SCHEMA {postgres.schema} CASCADE")


async def test_newer_tables(postgres: Place) -> None:
    await filled(postgres)
    postgres.sql("UPDATE meta SET schema_version = 2")
    await refused(postgres.store(), "newer release", "schema 2", "Upgrade overt", kind=UnsupportedSchema)


async def test_tables_that_are_upgraded_while_the_store_is_open(postgres: Place) -> None:
    store = postgres.store()
    await start(store)
    postgres.sql("UPDATE meta SET schema_version = 2")
    with pytest.raises(UnsupportedSchema, match="newer release"):
        await append(store)
    assert postgres.sql("SELECT position FROM runs") == [(6,)]
    await store.close()


async def test_an_upgrade_happens_once_and_whole(postgres: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(postgres)
    second = ("ALTER TABLE {schema}.runs ADD COLUMN note text", "CREATE TABLE {schema}.broken (")
    with monkeypatch.context() as patch:
        patch.setattr(_postgres_schema, "_MIGRATIONS", (*_postgres_schema._MIGRATIONS, second))
        for module in (_postgres_db, _postgres_schema):
            patch.setattr(module, "SCHEMA_VERSION", 2)
        await refused(postgres.store(), "syntax error")
        assert postgres.sql("SELECT * FROM meta") == [("overt", 1, 0)]
        patch.setattr(_postgres_schema, "_MIGRATIONS", (*_postgres_schema._MIGRATIONS[:1], second[:1]))
        stores = [postgres.store() for _ in range(4)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(append, stores[0])
            for store in stores[1:]:
                tasks.start_soon(store.read, "run")
        for store in stores:
            await store.close()
        assert postgres.sql("SELECT * FROM meta") == [("overt", 2, 0)]
        assert postgres.sql("SELECT position, note FROM runs") == [(7, None)]
    await refused(postgres.store(), "newer release", kind=UnsupportedSchema)


async def test_an_upgrade_waits_for_transactions_of_an_older_release(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(postgres)
    second = ("CREATE TABLE {schema}.more (x int)",)
    monkeypatch.setattr(_postgres_schema, "_MIGRATIONS", (*_postgres_schema._MIGRATIONS, second))
    for module in (_postgres_db, _postgres_schema):
        monkeypatch.setattr(module, "SCHEMA_VERSION", 2)
    store = postgres.store()
    with hold(postgres, "run") as older:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.read, "run")
            await blocked(postgres)
            assert postgres.sql("SELECT schema_version FROM meta") == [(1,)]
            older.execute("COMMIT")
    assert postgres.sql("SELECT schema_version FROM meta") == [(2,)]
    await store.close()


async def test_tables_that_are_dropped_while_the_store_is_open(postgres: Place) -> None:
    store = postgres.store()
    await start(store)
    postgres.sql(f"DROP SCHEMA {postgres.schema} CASCADE")
    with pytest.raises(StoreError, match="a table is gone: was it dropped"):
        await append(store)
    with pytest.raises(StoreError, match="a table is gone: was it dropped"):
        await store.info("run")
    await store.close()


@contextmanager
def roles(server: Server, *statements: str) -> Iterator[None]:
    """Execute statements as the superuser, and drop whatever they may have made."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        try:
            for statement in statements:
                connection.execute(statement.encode())
            yield
        finally:
            connection.execute("DROP DATABASE IF EXISTS theirs WITH (FORCE)")
            connection.execute("DROP SCHEMA IF EXISTS overt CASCADE")
            connection.execute("DROP TABLESPACE IF EXISTS small")
            connection.execute("DROP ROLE IF EXISTS bot")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"password": "wr0ng"}, ("refuses the user or the password", 'for user "postgres"')),
        ({"password": ""}, ("asks for a password", "no password supplied")),
        ({"dbname": "nowhere"}, ("does not exist", "create it first", '"nowhere"')),
        ({"host": "/nowhere"}, ("nothing listens there", "socket", "/nowhere")),
        ({"host": "localhost", "port": "1"}, ("nothing listens there", "port 1")),
        ({"host": "nowhere.invalid"}, ("name is not known", "nowhere.invalid")),
    ],
)
async def test_a_server_that_lets_nobody_in(
    server: Server, change: dict[str, str], words: tuple[str, ...]
) -> None:
    dsn = psycopg.conninfo.make_conninfo(server.dsn, **change)
    await refused(PostgresStore(dsn), "PostgreSQL at ", *words)


async def test_a_read_only_server(server: Server) -> None:
    with roles(
        server, "CREATE DATABASE theirs", "ALTER DATABASE theirs SET default_transaction_read_only = on"
    ):
        dsn = psycopg.conninfo.make_conninfo(server.dsn, dbname="theirs")
        store = PostgresStore(dsn)
        with pytest.raises(StoreError, match=r"the server is read-only.*primary"):
            await start(store)
        await store.close()
        await filled(Place(f"{dsn} options='-c default_transaction_read_only=off'", "overt"))
        store = PostgresStore(dsn)
        assert (await store.info("run")).position == 6
        with pytest.raises(StoreError, match=r"the server is read-only.*primary"):
            await append(store)
        await store.close()


async def test_a_user_without_rights(server: Server) -> None:
    with roles(server, "CREATE ROLE bot LOGIN PASSWORD 'x'"):
        dsn = psycopg.conninfo.make_conninfo(server.dsn, user="bot", password="x")
        store = PostgresStore(dsn)
        with pytest.raises(StoreError, match="lacks the right: grant"):
            await start(store)
        await store.close()
        # Somebody else makes the tables; then rights on them are enough.
        await filled(Place(server.dsn, "overt"))
        await refused(PostgresStore(dsn), "lacks the right", "permission denied")
        with roles_of_bot(server):
            store = PostgresStore(dsn)
            await append(store)
            await start(store, "another")
            await store.delete("another", now=NOW, force=True)
            assert [one.run_id for one in await store.runs()] == ["run"]
            await store.close()


@contextmanager
def roles_of_bot(server: Server) -> Iterator[None]:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("GRANT USAGE ON SCHEMA overt TO bot")
        connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA overt TO bot")
        yield


async def test_a_database_that_cannot_hold_all_text(server: Server) -> None:
    with roles(server, "CREATE DATABASE theirs ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"):
        dsn = psycopg.conninfo.make_conninfo(server.dsn, dbname="theirs")
        await refused(PostgresStore(dsn), "keeps text as LATIN1", "ENCODING 'UTF8'")


async def test_a_run_held_by_another_transaction(postgres: Place) -> None:
    store = postgres.store(lock_timeout=0.05)
    await start(store)
    await start(store, "other")
    errors: list[StoreError] = []

    async def held() -> None:
        with pytest.raises(StoreError) as caught:
            await append(store)
        errors.append(caught.value)

    with postgres.connect() as other, other.transaction():
        other.execute("SELECT * FROM runs WHERE run_id = 'run' FOR UPDATE")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(held)
            tasks.start_soon(append, store, "other")
    (error,) = errors
    assert "another transaction held the run longer than the lock timeout" in str(error)
    assert "lock_timeout" in str(error)
    assert (await store.info("other")).position == 7
    await append(store)
    await store.close()


async def test_a_commit_is_synchronous_whatever_the_role_was_told(server: Server) -> None:
    with roles(
        server,
        "CREATE DATABASE theirs",
        "ALTER DATABASE theirs SET synchronous_commit = off",
    ):
        place = Place(psycopg.conninfo.make_conninfo(server.dsn, dbname="theirs"), "overt")
        store = place.store()
        await start(store)
        place.sql(
            "CREATE TABLE seen (value text)",
            """
            CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO overt.seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$
            """,
            "CREATE TRIGGER see BEFORE INSERT ON journal FOR EACH ROW EXECUTE FUNCTION overt.see()",
        )
        await append(store)
        assert place.sql("SELECT * FROM seen") == [("on",)]
        await store.close()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A folder on a file system of 4 MB."""
    folder = Path("/tmp") / f"overt-small-{os.getpid()}"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m,mode=777", "tmpfs", str(folder)],
        check=False,
        capture_output=True,
    )
    try:
        if mounted.returncode:
            pytest.skip("a small file system cannot be mounted here")
        yield folder
    finally:
        if not mounted.returncode:
            subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


async def test_a_full_disk_is_said_and_survived(server: Server, small_disk: Path) -> None:
    place = Place(server.dsn, "overt")
    server.give(small_disk)
    with roles(server, f"CREATE TABLESPACE small LOCATION '{small_disk}'"):
        store = place.store()
        await start(store)
        await start(store, "small")
        place.sql(
            "ALTER TABLE journal SET TABLESPACE small", "ALTER TABLE journal ALTER text SET STORAGE EXTERNAL"
        )
        await large(store)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(large, store)
            tasks.start_soon(append, store, "small")
        assert (await store.info("run")).position == 6
        assert (await store.info("small")).position == 7
        place.sql("ALTER TABLE journal SET TABLESPACE pg_default")
        await append(store, text="x" * 8_000_000)
        assert len(await store.read("run")) == 4
        await store.close()


async def large(store: PostgresStore) -> None:
    with pytest.raises(StoreError, match="disk is full: free space there"):
        await append(store, text="x" * 8_000_000)


async def test_text_that_is_no_unicode_is_refused_alone(postgres: Place) -> None:
    store = postgres.store()
    await start(store)
    for n in range(8):
        await start(store, f"neighbour {n}")
    errors: list[StoreError] = []

    async def broken(run_id: str, text: str) -> None:
        with pytest.raises(StoreError) as caught:
            await append(store, run_id, text=text)
        errors.append(caught.value)

    async with anyio.create_task_group() as tasks:
        for n in range(8):
            tasks.start_soon(append, store, f"neighbour {n}")
            if n == 4:
                tasks.start_soon(broken, "run", "\ud800")
                tasks.start_soon(broken, "\ud800", "x")
    assert [str(error).count("surrogate pair") for error in errors] == [1, 1]
    assert (await store.info("run")).position == 6
    for n in range(8):
        assert (await store.info(f"neighbour {n}")).position == 7
    await store.close()


async def test_a_text_too_big_for_the_server_is_refused_alone(postgres: Place) -> None:
    store = postgres.store()
    await start(store)
    # What an INSERT says of a text of more than a gigabyte, without the gigabyte.
    postgres.sql(
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'too big' USING ERRCODE = '54000'; END $$
        """,
        f"CREATE TRIGGER refuse BEFORE INSERT ON journal FOR EACH ROW WHEN (length(NEW.text) > 9) "
        f"EXECUTE FUNCTION {postgres.schema}.refuse()",
    )
    with pytest.raises(StoreError, match="run 'run': a value is too big for PostgreSQL"):
        await append(store, text="0123456789")
    await append(store)
    await store.close()


# Damage


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("DELETE FROM journal WHERE position = 1", "position 1 is missing"),
        ("DELETE FROM journal WHERE position = 3", "position 3 is missing"),
        ("DELETE FROM journal WHERE position = 5", "ends at position 4, its head says 6"),
        ("DELETE FROM journal", "ends at position 0, its head says 6"),
        ("UPDATE journal SET count = 3 WHERE position = 3", "position 5 is there twice"),
        ("UPDATE journal SET count = 1 WHERE position = 3", "position 4 is missing"),
        ("UPDATE journal SET count = 0 WHERE position = 3", "position 3 is damaged"),
        ("INSERT INTO journal VALUES ('run', 7, 1, 'x')", "ends at position 7, its head says 6"),
        ("UPDATE runs SET position = 4", "ends at position 6, its head says 4"),
        ("UPDATE runs SET position = 8", "ends at position 6, its head says 8"),
        ("DELETE FROM runs", "its head is missing"),
    ],
)
async def test_damage_is_named(postgres: Place, damage: str, words: str) -> None:
    await filled(postgres)
    postgres.sql(damage)
    store = postgres.store()
    with pytest.raises(JournalCorrupt, match="run 'run'") as caught:
        await store.read("run")
    assert words in str(caught.value)
    await start(store, "other")
    assert len(await store.read("other")) == 3
    await store.close()


@pytest.mark.parametrize("after", [1, 2, 4, 6, 9])
async def test_damage_is_named_when_a_later_part_is_read(postgres: Place, after: int) -> None:
    await filled(postgres)
    postgres.sql("DELETE FROM journal WHERE position = 5")
    store = postgres.store()
    with pytest.raises(JournalCorrupt, match="ends at position 4, its head says 6"):
        await store.read("run", after=after)
    await store.close()


async def test_a_row_after_the_end_is_never_appended_over(postgres: Place) -> None:
    await filled(postgres)
    postgres.sql("INSERT INTO journal VALUES ('run', 7, 1, 'theirs')")
    store = postgres.store()
    await start(store, "other")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append, store, "other")
        with pytest.raises(JournalCorrupt, match="run 'run': the journal holds rows where it should end"):
            await append(store)
    assert [(one.run_id, one.position) for one in await store.runs()] == [("other", 7), ("run", 6)]
    assert postgres.sql("SELECT text FROM journal WHERE run_id = 'run' AND position = 7") == [("theirs",)]
    await store.close()


async def test_naive_times_are_refused_before_anything_happens(postgres: Place) -> None:
    store = postgres.store()
    with pytest.raises(TypeError):
        await store.create("run", (), agent="a", owner=OWNER, now=NOW, until=datetime(2024, 1, 1))
    with pytest.raises(RunNotFound):
        await store.info("run")
    await store.close()


async def test_microseconds_of_far_times_are_kept(postgres: Place) -> None:
    store = postgres.store()
    await start(store)
    for moment in (
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=14))),
    ):
        await store.renew("run", epoch=1, until=moment)
        assert (await store.info("run")).until == moment
    await store.close()
