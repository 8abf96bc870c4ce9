"""`overt check`: what it prints, and what it exits with."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.operations.kit import chief, clerk, park

from overt.__main__ import main
from overt.cli import check as command
from overt.stores import MemoryStore, SQLiteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with two runs."""
    path = tmp_path / "runs.db"

    async def fill() -> None:
        store = SQLiteStore(path)
        await park(store, "first", clerk())
        await park(store, "second", chief())
        await store.close()

    anyio.run(fill)
    return path


def change(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as file:
        file.execute(statement)
    file.close()


Said = tuple[int, list[str], str]
Check = Callable[..., Said]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    def run(*arguments: object) -> Said:
        try:
            code = main(["check", *map(str, arguments)])
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err

    return run


def test_nothing_is_wrong(path: Path, check: Check) -> None:
    assert check(path) == (0, [f"SQLiteStore('{path}'): 2 runs, nothing is wrong"], "")


def test_one_line_for_each_thing_that_is(path: Path, check: Check) -> None:
    change(path, "UPDATE journal SET text = '{' WHERE run_id = 'first' AND position = 3")
    change(path, "UPDATE runs SET status = 'done' WHERE run_id = 'second'")
    code, lines, error = check(path)
    assert (code, error) == (1, "")
    assert lines == [
        "run 'first', position 3: the record is no journal record (ValueError)",
        "run 'second': it is listed as 'done', its journal says 'pending'",
        f"SQLiteStore('{path}'): 2 runs, 2 found",
    ]
    # What can be repaired is, and what cannot is there again.
    code, lines, _ = check(path, "--repair-lists")
    assert code == 1
    assert lines[1].endswith("(repaired)")
    assert lines[2].endswith("2 runs, 2 found, 1 repaired")
    assert len(check(path)[1]) == 2


def test_all_of_it_repaired(path: Path, check: Check) -> None:
    change(path, "UPDATE runs SET status = 'done' WHERE run_id = 'second'")
    assert check(path)[0] == 1
    assert check(path, "--repair-lists")[0] == 0
    assert check(path)[1][-1].endswith("2 runs, nothing is wrong")


def test_one_run(path: Path, check: Check) -> None:
    change(path, "UPDATE journal SET text = '{' WHERE run_id = 'first' AND position = 3")
    assert check(path, "--run", "second") == (0, [f"SQLiteStore('{path}'): nothing is wrong"], "")
    assert check(path, "--run", "first")[0] == 1
    code, lines, error = check(path, "--run", "third")
    assert (code, lines) == (2, [])
    assert "holds no run 'third'" in error


def test_a_file_that_cannot_be_read(path: Path, check: Check) -> None:
    path.write_text("nothing of the kind " * 100, encoding="utf-8")
    code, lines, error = check(path)
    assert (code, lines) == (1, [])
    assert error.startswith(f"overt check: the store cannot be checked: {path}: the file is not an SQLite")


def test_another_programs_file(tmp_path: Path, check: Check) -> None:
    path = tmp_path / "other.db"
    change(path, "CREATE TABLE other (x)")
    before = path.read_bytes()
    code, _, error = check(path)
    assert code == 1
    assert "another application" in error
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere.db"], "there is no file nowhere.db"),
        (["."], "there is no file ."),
        (["empty.db"], "the file empty.db is empty"),
        (["mysql://host/db"], "mysql:// is no kind of store"),
        (["empty.db", "--schema", "x"], "--schema is for PostgreSQL"),
        ([], "the following arguments are required: STORE"),
        (["nowhere.db", "--loud"], "unrecognized arguments: --loud"),
    ],
)
def test_misuse_makes_nothing(
    arguments: list[str], told: str, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.db").touch()
    code, lines, error = check(*arguments)
    assert (code, lines) == (2, [])
    assert told in error
    assert [(one.name, one.stat().st_size) for one in tmp_path.iterdir()] == [("empty.db", 0)]


def test_a_store_in_postgresql(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, dict[str, str]]] = []

    def postgres(dsn: str, **more: str) -> MemoryStore:
        made.append((dsn, more))
        return MemoryStore()

    monkeypatch.setattr(command, "PostgresStore", postgres)
    code, (line,), error = check("postgresql://me@host/db", "--schema", "runs")
    assert (code, error) == (0, "")
    assert made == [("postgresql://me@host/db", {"schema": "runs"})]
    assert line.endswith("0 runs, nothing is wrong")


def test_a_closed_output_is_no_traceback(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "overt", "check", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 0
