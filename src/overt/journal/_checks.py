"""What every store refuses, in the same words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from overt.errors import RunConflict, RunExists, RunNotFound, StoreError, UsageError
from overt.journal.owner import is_dead
from overt.journal.record import Record
from overt.journal.store import Owner

__all__ = (
    "NOBODY",
    "append_conflict",
    "check_limit",
    "check_records",
    "claim_conflict",
    "exists",
    "not_found",
    "statuses",
    "used_after_close",
)

NOBODY = Owner(id="")
"""Takes a run only to remove it."""


def check_records(run_id: str, records: Sequence[Record], *, after: int) -> int:
    """Return the position of the last fact once `records` follow `after`.

    Raises:
        StoreError: There is a gap or an overlap.
    """
    last = after
    for record in records:
        if record.position != last + 1 or record.count < 1:
            raise StoreError(
                f"run {run_id!r}: a record at position {record.position} with {record.count} facts cannot follow "
                f"position {last}; nothing was written"
            )
        last += record.count
    return last


def append_conflict(
    run_id: str,
    *,
    position: int,
    epoch: int,
    owner: str | None,
    until: datetime | None,
    after: int | None,
    given: int,
) -> RunConflict:
    """Say why an append (`after` is a position) or a renewal (`after` is `None`) under epoch `given` is refused."""
    if epoch != given:
        held = "nobody drives it now" if owner is None else f"{owner!r} drives it until {until}"
        return RunConflict(
            f"run {run_id!r} was taken over: its claim has epoch {epoch}, this driver's had {given}; {held}",
            owner=owner,
            until=until,
        )
    if owner is None:
        return RunConflict(f"run {run_id!r}: the claim of epoch {given} was released; claim the run again")
    return RunConflict(
        f"run {run_id!r} is at position {position}, not at {after}: read it again before appending"
    )


def claim_conflict(
    run_id: str,
    *,
    held_by: Owner | None,
    held_until: datetime | None,
    owner: Owner,
    now: datetime,
    force: bool,
) -> RunConflict | None:
    """Say why `owner` may not take the run, or `None` if it may."""
    if held_by is None or held_until is None or force:
        return None
    if held_until <= now or held_by.id == owner.id or is_dead(held_by):
        return None
    return RunConflict(
        f"run {run_id!r} is driven by {held_by.id!r} until {held_until}", owner=held_by.id, until=held_until
    )


def check_limit(limit: int | None) -> None:
    """Refuse a `limit` that is no number of rows.

    Raises:
        UsageError: It is negative.
    """
    if limit is not None and limit < 0:
        raise UsageError(f"limit is a number from 0, or None, not {limit!r}")


def statuses(status: str | Collection[str] | None) -> frozenset[str] | None:
    """Return the statuses asked for; `None` for all."""
    if status is None:
        return None
    return frozenset((status,) if isinstance(status, str) else status)


def exists(run_id: str) -> RunExists:
    """The error of `create` for a run the store has."""
    return RunExists(f"run {run_id!r} exists already: open it to go on, or start a run under another id")


def not_found(run_id: str, where: object = "the store") -> RunNotFound:
    """The error of every method for a run the store does not have."""
    return RunNotFound(f"{where} holds no run {run_id!r}")


def used_after_close(store: str) -> StoreError:
    """The error of every method but `close` after `close`."""
    return StoreError(f"{store} is closed: make a new one to go on")
