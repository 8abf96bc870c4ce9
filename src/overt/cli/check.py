"""`overt check STORE`: reads a whole store and says what is wrong with it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from overt.errors import OvertError, RunNotFound, UsageError
from overt.stores import Damage, PostgresStore, SQLiteStore, Store

__all__ = ("add_to", "run")

CLEAN, DAMAGED, MISUSED = 0, 1, 2
_POSTGRES = ("postgresql://", "postgres://")


def add_to(commands: Any) -> None:
    """Add the command `check` to a parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "check",
        help="read a whole store and say what is wrong with it",
        description="Reads every journal of a store, compares the lists of runs and open requests with them, and "
        "has SQLite check its file. Prints one line for each thing that is wrong, and a summary. Runs may be "
        "driven meanwhile. Exits with 0 where nothing is wrong, or all of it was repaired, 1 where something is or "
        "the store cannot be read, and 2 where the command is wrong. A file that is not there is not made.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "store", metavar="STORE", help="the path of an SQLite file, or postgresql://user@host/database"
    )
    parser.add_argument("--run", metavar="RUN_ID", help="check this run only, and not the file")
    parser.add_argument(
        "--repair-lists",
        action="store_true",
        help="write the lists anew, from the journals, of runs that nobody drives; journals are never changed",
    )
    parser.add_argument("--schema", help="the schema in a PostgreSQL database")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Check a store and return the exit code."""
    try:
        store = _opened(arguments.store, arguments.schema)
    except UsageError as error:
        return _refuse(str(error), MISUSED)
    try:
        found, runs = anyio.run(_checked, store, arguments.run, arguments.repair_lists)
    except RunNotFound as error:
        return _refuse(str(error), MISUSED)
    except OvertError as error:
        return _refuse(f"the store cannot be checked: {error}", DAMAGED)
    try:
        _tell(store, found, runs)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has gone (`| head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return CLEAN if all(one.repaired for one in found) else DAMAGED


def _opened(name: str, schema: str | None) -> Store:
    """Return the store; nothing is made where there is none.

    Raises:
        UsageError: There is no such file, or what it takes is missing.
    """
    if name.startswith(_POSTGRES):
        return PostgresStore(name) if schema is None else PostgresStore(name, schema=schema)
    if schema is not None:
        raise UsageError("--schema is for PostgreSQL")
    if "://" in name:
        raise UsageError(f"{name.partition('://')[0]}:// is no kind of store: give a path or postgresql://…")
    path = Path(name)
    if not path.is_file():
        raise UsageError(f"there is no file {name}")
    if not path.stat().st_size:
        raise UsageError(f"the file {name} is empty")  # opening it would make tables in it
    return SQLiteStore(path)


async def _checked(store: Store, run_id: str | None, repair: bool) -> tuple[Sequence[Damage], int | None]:
    """Return what is wrong, and how many runs there are where they can be listed."""
    try:
        found = await store.verify(run_id, repair_lists=repair)
        listed = all(one.run_id is not None for one in found)
        return found, len(await store.runs()) if listed and run_id is None else None
    finally:
        await store.close()


def _tell(store: Store, found: Sequence[Damage], runs: int | None) -> None:
    for one in found:
        print(str(one).replace("\n", "; "))
    repaired = sum(one.repaired for one in found)
    said = (
        "nothing is wrong" if not found else f"{len(found)} found" + (repaired > 0) * f", {repaired} repaired"
    )
    counted = "" if runs is None else f"{runs} run{'s' * (runs != 1)}, "
    print(f"{store!r}: {counted}{said}")


def _refuse(why: str, code: int) -> int:
    print(f"overt check: {why}", file=sys.stderr)
    return code
