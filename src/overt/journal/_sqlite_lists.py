"""What a SQLite file says of runs and open requests without reading journals."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from overt._times import listed, listed_or_none, micros, moment, moment_or_none
from overt.errors import JournalCorrupt
from overt.journal._checks import claim_conflict, not_found
from overt.journal.reports import Damage
from overt.journal.store import OpenRequest, Owner, RunInfo

__all__ = (
    "delete",
    "faults",
    "first_epoch",
    "held",
    "info",
    "record",
    "requests",
    "runs",
)

_INFO = (
    "SELECT run_id, position, epoch, until, status, agent, created, updated, interrupt, "
    "owner_id, owner_host, owner_pid, owner_started FROM runs"
)


def first_epoch(connection: sqlite3.Connection) -> int:
    """The epoch of a run that is created now."""
    found: int = connection.execute(
        "SELECT coalesce(max(value), 0) FROM meta WHERE key = 'deleted'"
    ).fetchone()[0]
    return found + 1


def info(connection: sqlite3.Connection, run_id: str, path: Path) -> RunInfo:
    """One run.

    Raises:
        RunNotFound: There is none of this id.
    """
    row = connection.execute(f"{_INFO} WHERE run_id = ?", (run_id,)).fetchone()
    if row is None:
        raise not_found(run_id, path)
    return _info(row)


def _info(row: tuple[Any, ...]) -> RunInfo:
    run_id, position, epoch, until, status, agent, created, updated, interrupt, *owner = row
    try:
        return RunInfo(
            run_id=run_id,
            position=position,
            epoch=epoch,
            owner=owner[0],
            holder=_owner(*owner),
            until=moment_or_none(until),
            status=status,
            agent=agent,
            created=moment(created),
            updated=moment(updated),
            interrupt=interrupt,
        )
    except (TypeError, OverflowError) as error:
        raise JournalCorrupt(f"run {run_id!r}: its head is damaged ({type(error).__name__})") from error


def _owner(id: str | None, host: str, pid: int, started: str) -> Owner | None:
    return None if id is None else Owner(id=id, host=host, pid=pid, started=started)


def held(
    connection: sqlite3.Connection, run_id: str, path: Path, *, owner: Owner, now: datetime, force: bool
) -> tuple[int, str | None]:
    """Return epoch and mark of a run that `owner` may take.

    Raises:
        RunConflict: A living owner holds it.
        RunNotFound: There is none of this id.
    """
    row = connection.execute(
        "SELECT epoch, until, owner_id, owner_host, owner_pid, owner_started, interrupt FROM runs WHERE run_id = ?",
        (run_id,),
    ).fetchone()
    if row is None:
        raise not_found(run_id, path)
    refused = claim_conflict(
        run_id,
        held_by=_owner(*row[2:6]),
        held_until=moment_or_none(row[1]),
        owner=owner,
        now=now,
        force=force,
    )
    if refused is not None:
        raise refused
    return row[0], row[6]


def delete(connection: sqlite3.Connection, run_id: str, epoch: int) -> None:
    """Remove a run, and remember its epoch for runs that are created later."""
    for table in ("requests", "journal", "runs"):
        connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
    connection.execute(
        "INSERT INTO meta VALUES ('deleted', ?1) ON CONFLICT (key) DO UPDATE SET value = max(value, ?1)",
        (epoch,),
    )


def record(
    connection: sqlite3.Connection, run_id: str, asked: Iterable[OpenRequest], settled: Sequence[str] = ()
) -> None:
    """Enter what has changed in the list of open requests."""
    for one in asked:
        expires = None if one.expires_at is None else micros(one.expires_at)
        connection.execute(
            "INSERT OR REPLACE INTO requests VALUES (?, ?, ?, ?, ?, ?)",
            (one.request, run_id, one.kind, one.agent, micros(one.asked_at), expires),
        )
    connection.executemany(
        "DELETE FROM requests WHERE request = ? AND run_id = ?", [(id, run_id) for id in settled]
    )


def runs(
    connection: sqlite3.Connection,
    *,
    status: Collection[str] | None,
    agent: str | None,
    older_than: datetime | None,
    limit: int | None,
) -> list[RunInfo]:
    """List runs by their last append."""
    where: list[str] = []
    given: list[str | int] = []
    if status is not None:
        where.append(f"status IN ({', '.join('?' * len(status))})")
        given += sorted(status)
    if agent is not None:
        where.append("agent = ?")
        given.append(agent)
    if older_than is not None:
        where.append("updated < ?")
        given.append(micros(older_than))
    rows = connection.execute(f"{_INFO}{_where(where)} ORDER BY updated, run_id{_limit(limit)}", given)
    return [_info(row) for row in rows]


def requests(
    connection: sqlite3.Connection,
    *,
    where: Mapping[str, str | None],
    times: Mapping[str, datetime | None],
    limit: int | None,
) -> list[OpenRequest]:
    """List open requests by the time they were asked."""
    given: dict[str, str | int] = {test: value for test, value in where.items() if value is not None}
    given |= {test: micros(at) for test, at in times.items() if at is not None}
    rows = connection.execute(
        f"SELECT run_id, request, kind, agent, asked_at, expires_at FROM requests{_where(given)} "
        f"ORDER BY asked_at, request{_limit(limit)}",
        tuple(given.values()),
    )
    return [
        OpenRequest(
            run_id=row[0],
            request=row[1],
            kind=row[2],
            agent=row[3],
            asked_at=listed(row[4]),
            expires_at=listed_or_none(row[5]),
        )
        for row in rows
    ]


def faults(connection: sqlite3.Connection) -> list[Damage]:
    """What is wrong with the file, and what is in it that belongs to no run."""
    found = [
        Damage(run_id=None, what=f"SQLite's integrity check: {text}")
        for (text,) in connection.execute("PRAGMA integrity_check")
        if text != "ok"
    ]
    for table, what in (
        ("journal", "there is a journal and no head of it"),
        ("requests", "open requests are listed and there is no such run"),
    ):
        found += [
            Damage(run_id=run_id, what=what)
            for (run_id,) in connection.execute(
                f"SELECT DISTINCT run_id FROM {table} WHERE run_id NOT IN (SELECT run_id FROM runs) ORDER BY run_id"
            )
        ]
    return found


def _where(tests: Collection[str]) -> str:
    return f" WHERE {' AND '.join(tests)}" if tests else ""


def _limit(limit: int | None) -> str:
    return "" if limit is None else f" LIMIT {limit:d}"
