"""What is special about the SQLite store: its file and its errors."""

# Nothing else runs in the event loops of these tests, so they may block.
# ruff: noqa: ASYNC221, ASYNC240

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import anyio
import pytest

from overt import Agent, Runtime
from overt.errors import DefinitionError, JournalCorrupt, RunNotFound, StoreError, UnsupportedSchema
from overt.journal._sqlite_file import Database
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


async def filled(path: Path) -> None:
    store = SQLiteStore(path)
    await start(store)
    await store.close()


def sql(path: Path, *statements: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        rows: list[tuple[object, ...]] = []
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        return rows
    finally:
        connection.close()


# The file


async def test_nothing_is_opened_before_the_first_use(path: Path) -> None:
    store = SQLiteStore(path)
    assert store.path == path
    await store.close()
    assert not path.exists()


async def test_the_file_is_as_documented(path: Path) -> None:
    await filled(path)
    assert sql(path, "PRAGMA journal_mode") == [("wal",)]
    assert sql(path, "PRAGMA application_id") == [(0x6F767274,)]
    assert sql(path, "PRAGMA user_version") == [(2,)]
    assert sql(path, "SELECT until FROM runs") == [(1_704_067_230_000_000,)]
    assert sql(path, "SELECT position, count, text FROM journal ORDER BY position") == [
        (1, 2, "text 0"),
        (3, 2, "text 1"),
        (5, 2, "text 2"),
    ]


async def test_a_relative_path_stays_what_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    store = SQLiteStore(path.name)
    monkeypatch.chdir("/")
    await start(store)
    await store.close()
    assert path.exists()


@pytest.mark.parametrize("name", ["", ":memory:", "a\0b"])
async def test_a_path_must_be_a_file(name: str) -> None:
    with pytest.raises(DefinitionError, match="MemoryStore"):
        SQLiteStore(name)


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf")])
async def test_the_timeout_is_a_number_of_seconds(path: Path, timeout: float) -> None:
    with pytest.raises(DefinitionError, match="busy_timeout"):
        SQLiteStore(path, busy_timeout=timeout)


async def refused(path: Path, *words: str, kind: type[StoreError] = StoreError) -> None:
    """Both reading and writing raise `kind` with the path and all `words`, again and again."""
    store = SQLiteStore(path, busy_timeout=0.05)
    for _ in range(2):
        for call in (lambda: store.info("run"), lambda: start(store)):
            with pytest.raises(StoreError) as caught:
                await call()
            assert type(caught.value) is kind
            for word in (str(path), *words):
                assert word in str(caught.value)
    await store.close()


async def test_a_directory(tmp_path: Path) -> None:
    await refused(tmp_path, "directory", "name a file in it")


async def test_a_missing_folder(tmp_path: Path) -> None:
    path = tmp_path / "no" / "runs.db"
    store = SQLiteStore(path)
    for _ in range(2):
        with pytest.raises(StoreError, match="does not exist: create it") as caught:
            await start(store)
        assert str(path) in str(caught.value)
        with pytest.raises(RunNotFound, match="nor does its folder") as missing:
            await store.info("run")
        assert str(path) in str(missing.value)
    await store.close()
    assert not path.parent.exists()


READS: dict[str, Callable[[SQLiteStore], Awaitable[object]]] = {
    "read": lambda store: store.read("run"),
    "info": lambda store: store.info("run"),
    "claim": lambda store: store.claim("run", owner=OWNER, now=NOW, until=UNTIL),
    "append": lambda store: store.append(
        "run", [Record(1, 1, text="x")], after=0, epoch=1, change=now_is("")
    ),
    "renew": lambda store: store.renew("run", epoch=1, until=UNTIL),
    "open": lambda store: Runtime.open(Agent("a", does="d", model="x:y"), "run", store=store),
}


@pytest.mark.parametrize("name", READS)
async def test_a_missing_file_is_named_and_not_made(path: Path, name: str) -> None:
    store = SQLiteStore(path)
    for _ in range(2):
        with pytest.raises(RunNotFound) as caught:
            await READS[name](store)
        assert f"{path} does not exist" in str(caught.value)
    assert list(path.parent.iterdir()) == []
    await start(store)  # only a new run makes it
    assert (await store.info("run")).position == 6
    await store.close()


@pytest.mark.parametrize("name", READS)
async def test_a_missing_run_names_the_file(path: Path, name: str) -> None:
    store = SQLiteStore(path)
    await start(store, "other")
    with pytest.raises(RunNotFound) as caught:
        await READS[name](store)
    assert str(caught.value) == f"{path} holds no run 'run'"
    await store.close()


async def test_nothing_to_release_where_there_is_no_file(path: Path) -> None:
    store = SQLiteStore(path)
    await store.release("run", epoch=1)
    await store.close()
    assert not path.exists()


async def test_what_arrives_with_a_new_run_finds_the_file_it_makes(path: Path) -> None:
    store = SQLiteStore(path)
    found: list[str] = []

    async def claim() -> None:
        try:
            await store.claim("other", owner=OWNER, now=NOW, until=UNTIL)
        except RunNotFound as error:
            found.append(str(error))

    async with anyio.create_task_group() as group:
        group.start_soon(claim)
        group.start_soon(start, store)
        group.start_soon(claim)
    assert len(found) == 2
    assert (await store.info("run")).position == 6
    await store.close()


async def test_a_file_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    await refused(tmp_path / "file" / "runs.db", "is a file, not a folder")


@pytest.mark.parametrize("content", [b"x", b"garbage " * 1000, b"SQLite format 3\0" + b"\xff" * 5000])
async def test_not_a_database(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    await refused(path, "not an SQLite database")
    assert path.read_bytes() == content


async def test_an_empty_file_is_taken(path: Path) -> None:
    path.write_bytes(b"")
    await filled(path)
    assert sql(path, "SELECT count(*) FROM journal") == [(3,)]


async def test_a_database_of_another_application(path: Path) -> None:
    sql(path, "CREATE TABLE runs (theirs)")
    content = path.read_bytes()
    await refused(path, "another application", "Choose another path")
    assert path.read_bytes() == content


async def test_a_database_marked_by_another_application(path: Path) -> None:
    sql(path, "PRAGMA application_id = 42")
    await refused(path, "another application", "0x2a")


async def test_a_newer_schema(path: Path) -> None:
    await filled(path)
    sql(path, "PRAGMA user_version = 3")
    await refused(path, "newer release", "Upgrade", kind=UnsupportedSchema)


async def test_locked_by_another_program(path: Path) -> None:
    await filled(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store = SQLiteStore(path, busy_timeout=0.05)
    assert (await store.info("run")).position == 6
    with pytest.raises(StoreError, match=r"another program held the lock.*busy_timeout.*database is locked"):
        await store.append("run", [Record(7, 1, text="x")], after=6, epoch=1, change=now_is("running"))
    other.execute("ROLLBACK")
    other.close()
    await store.append("run", [Record(7, 1, text="x")], after=6, epoch=1, change=now_is("running"))
    await store.close()


async def test_locked_whole_by_another_program_while_opening(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    await refused(path, "another program held the lock", "busy_timeout")
    other.close()
    await filled(path)


@pytest.fixture
def as_nobody(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], None]:
    """Give up root's right to write anywhere, until the end of the test."""
    if not hasattr(os, "geteuid"):
        pytest.skip("needs POSIX permissions")

    def drop() -> None:
        if os.geteuid() == 0:
            os.seteuid(65534)

    return drop


@pytest.mark.parametrize("what", ["file", "folder", "both", "closed"])
async def test_read_only(what: str, as_nobody: Callable[[], None]) -> None:
    # pytest's own folders are closed to other users.
    folder = Path("/tmp") / f"overt-read-only-{os.getpid()}"
    folder.mkdir()
    path = folder / "runs.db"
    uid = os.geteuid()
    try:
        await filled(path)
        path.chmod(0o444 if what != "folder" else 0o666)
        folder.chmod({"file": 0o777, "closed": 0o400}.get(what, 0o555))
        as_nobody()
        store = SQLiteStore(path)
        with pytest.raises(StoreError) as caught:
            await store.append("run", [Record(7, 1, text="x")], after=6, epoch=1, change=now_is("running"))
        assert str(path) in str(caught.value)
        assert "read-only" in str(caught.value)
        await store.close()
    finally:
        if os.geteuid() != uid:
            os.seteuid(uid)
        folder.chmod(0o755)
        shutil.rmtree(folder)


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be removed there")
async def test_a_file_removed_while_open(path: Path) -> None:
    store = SQLiteStore(path)
    await start(store)
    path.unlink()
    with pytest.raises(StoreError, match="removed or replaced"):
        await store.append("run", [Record(7, 1, text="x")], after=6, epoch=1, change=now_is("running"))
    await store.close()


async def test_text_that_is_no_unicode_is_refused_alone(path: Path) -> None:
    store = SQLiteStore(path)
    await start(store)
    for n in range(8):
        await start(store, f"neighbour {n}")
    errors: list[StoreError] = []

    async def broken() -> None:
        try:
            await store.append(
                "run", [Record(7, 1, text="\ud800")], after=6, epoch=1, change=now_is("running")
            )
        except StoreError as error:
            errors.append(error)

    async def whole(name: str) -> None:
        await store.append(name, [Record(7, 1, text="whole")], after=6, epoch=1, change=now_is("running"))

    async with anyio.create_task_group() as tasks:
        for n in range(8):
            tasks.start_soon(whole, f"neighbour {n}")
            if n == 4:
                tasks.start_soon(broken)
    assert [str(error).count("surrogate pair") for error in errors] == [1]
    assert (await store.info("run")).position == 6
    for n in range(8):
        assert (await store.info(f"neighbour {n}")).position == 7
    await store.close()


FULL_DISK = """
import asyncio, resource, sys
from datetime import datetime, UTC
from overt.errors import StoreError
from overt.journal.record import Record
from overt.journal.store import Owner
from overt.stores import SQLiteStore
from overt.testing._store_checks import now_is
now = datetime(2024, 1, 1, tzinfo=UTC)
path = sys.argv[1]

async def main():
    store = SQLiteStore(path)
    for run_id in ("run", "small"):
        await store.create(run_id, (), agent="a", owner=Owner(id="x"), now=now, until=now)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
    large = Record(1, 1, text="x" * 1_000_000)
    for _ in range(2):
        try:
            await store.append("run", [large], after=0, epoch=1, change=now_is("running"))
        except StoreError as error:
            assert path in str(error) and ("disk" in str(error)), error
        else:
            raise AssertionError("more was written than there is room for")
    await store.append("small", [Record(1, 1, text="x")], after=0, epoch=1, change=now_is("running"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (await store.info("run")).position == 0
    await store.append("run", [large], after=0, epoch=1, change=now_is("running"))
    assert len(await store.read("run")) == len(await store.read("small")) == 1
    await store.close()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of file sizes")
async def test_a_full_disk_is_said_and_survived(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FULL_DISK, str(path)],
        capture_output=True,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sql(path, "PRAGMA integrity_check") == [("ok",)]


async def test_a_failed_commit_fails_all_who_shared_it_and_is_undone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(path)
    for n in range(5):
        await start(store, f"run {n}")

    def fail(database: Database) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error

    monkeypatch.setattr(Database, "commit", fail)
    errors: list[StoreError] = []

    async def append(n: int) -> None:
        try:
            await store.append(
                f"run {n}", [Record(7, 1, text="x")], after=6, epoch=1, change=now_is("running")
            )
        except StoreError as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        for n in range(5):
            tasks.start_soon(append, n)
    assert len({id(error) for error in errors}) == 5
    for error in errors:
        assert str(path) in str(error)
        assert "input/output error" in str(error)
        assert "unknown" in str(error)
    monkeypatch.undo()
    for n in range(5):
        assert (await store.info(f"run {n}")).position == 6
        await append(n)
        assert len(await store.read(f"run {n}")) == 4
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
        ("UPDATE journal SET count = 'two' WHERE position = 3", "position 3 is damaged"),
        ("UPDATE journal SET text = CAST(x'41ff42' AS TEXT) WHERE position = 3", "position 3 is no UTF-8"),
        ("UPDATE journal SET position = 'x' WHERE position = 5", "position 'x' is damaged"),
        ("INSERT INTO journal VALUES ('run', 7, 1, 'x')", "ends at position 7, its head says 6"),
        ("UPDATE runs SET position = 4", "ends at position 6, its head says 4"),
        ("UPDATE runs SET position = 8", "ends at position 6, its head says 8"),
        ("UPDATE runs SET position = 'x'", "its head says 'x'"),
    ],
)
async def test_damage_is_named(path: Path, damage: str, words: str) -> None:
    await filled(path)
    sql(path, damage)
    store = SQLiteStore(path)
    with pytest.raises(JournalCorrupt, match="run 'run'") as caught:
        await store.read("run")
    assert words in str(caught.value)
    await start(store, "other")
    assert len(await store.read("other")) == 3
    await store.close()


@pytest.mark.parametrize("after", [1, 2, 4, 6, 9])
async def test_damage_is_named_when_a_later_part_is_read(path: Path, after: int) -> None:
    await filled(path)
    sql(path, "DELETE FROM journal WHERE position = 5")
    store = SQLiteStore(path)
    with pytest.raises(JournalCorrupt, match="ends at position 4, its head says 6"):
        await store.read("run", after=after)
    await store.close()


async def test_a_row_after_the_end_is_never_appended_over(path: Path) -> None:
    await filled(path)
    sql(path, "INSERT INTO journal VALUES ('run', 7, 1, 'theirs')")
    store = SQLiteStore(path)
    with pytest.raises(JournalCorrupt, match="at or after position 7"):
        await store.append("run", [Record(7, 1, text="ours")], after=6, epoch=1, change=now_is("running"))
    assert (await store.info("run")).position == 6
    await store.close()


async def test_a_truncated_file(path: Path) -> None:
    store = SQLiteStore(path)
    await store.create(
        "run",
        [Record(n, 1, text="x" * 3000) for n in range(1, 60)],
        agent="a",
        owner=OWNER,
        now=NOW,
        until=UNTIL,
    )
    await store.close()
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    store = SQLiteStore(path)
    with pytest.raises(JournalCorrupt, match="run 'run'") as caught:
        await store.read("run")
    assert str(path) in str(caught.value)
    await store.close()


async def test_naive_times_are_refused_before_anything_happens(path: Path) -> None:
    store = SQLiteStore(path)
    with pytest.raises(TypeError):
        await store.create("run", (), agent="a", owner=OWNER, now=NOW, until=datetime(2024, 1, 1))
    with pytest.raises(RunNotFound):
        await store.info("run")
    await store.close()


async def test_microseconds_of_far_times_are_kept(path: Path) -> None:
    store = SQLiteStore(path)
    await start(store)
    for moment in (
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=14))),
    ):
        await store.renew("run", epoch=1, until=moment)
        assert (await store.info("run")).until == moment
    await store.close()
