"""What the rows of a PostgreSQL store mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from overt._times import listed, listed_or_none, moment, moment_or_none
from overt.errors import JournalCorrupt
from overt.journal._checks import append_conflict
from overt.journal._postgres_session import Head, Row
from overt.journal.record import Record
from overt.journal.store import OpenRequest, Owner, RunInfo

__all__ = ("conflict_of", "free", "info_of", "owner_of", "request_of", "rows_of")


def rows_of(run_id: str, records: Sequence[Record]) -> list[tuple[str, int, int, str]]:
    """The rows of records."""
    return [(run_id, record.position, record.count, record.text) for record in records]


def free(head: Head) -> None:
    """Take the claim off a head."""
    head.owner_id = head.owner_host = head.owner_pid = head.owner_started = head.until = None


def owner_of(head: Head) -> Owner | None:
    """Who holds the claim on a run."""
    if head.owner_id is None:
        return None
    return Owner(
        id=head.owner_id,
        host=head.owner_host or "",
        pid=head.owner_pid or 0,
        started=head.owner_started or "",
    )


def info_of(head: Head) -> RunInfo:
    """What a head says of its run.

    Raises:
        JournalCorrupt: A time in it is none.
    """
    try:
        return _head_info(head)
    except OverflowError as error:
        raise JournalCorrupt(f"run {head.run_id!r}: its head is damaged ({error})") from error


def _head_info(head: Head) -> RunInfo:
    return RunInfo(
        run_id=head.run_id,
        position=head.position,
        epoch=head.epoch,
        owner=head.owner_id,
        holder=owner_of(head),
        until=moment_or_none(head.until),
        status=head.status,
        agent=head.agent,
        created=moment(head.created),
        updated=moment(head.updated),
        interrupt=head.interrupt,
    )


def request_of(row: Row) -> OpenRequest:
    """One row of the list of open requests."""
    run_id, request, kind, agent, asked_at, expires_at = cast(
        "tuple[str, str, str, str, int, int | None]", row
    )
    return OpenRequest(
        run_id=run_id,
        request=request,
        kind=kind,
        agent=agent,
        asked_at=listed(asked_at),
        expires_at=listed_or_none(expires_at),
    )


def conflict_of(head: Head, *, after: int | None, given: int) -> Exception:
    """Say why an append, a renewal or a release is refused."""
    return append_conflict(
        head.run_id,
        position=head.position,
        epoch=head.epoch,
        owner=head.owner_id,
        until=moment_or_none(head.until),
        after=after,
        given=given,
    )
