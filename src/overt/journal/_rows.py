"""Whether the rows of a journal are whole."""

from __future__ import annotations

from collections.abc import Sequence

from overt.errors import JournalCorrupt
from overt.journal.record import Record

__all__ = ("check_rows",)


def check_rows(run_id: str, head: object, rows: Sequence[tuple[object, ...]], after: int) -> list[Record]:
    """Check the rows a store found, and return those that end after `after`.

    Args:
        run_id: The run.
        head: The position its head says it ends at.
        rows: Position, count and text of each, in order, from the one that holds fact `after + 1` on, or the last.
        after: A position.

    Raises:
        JournalCorrupt: They are not a whole journal.
    """
    records: list[Record] = []
    expected: int | None = 1 if after <= 0 else None
    last = 0
    for position, count, data in rows:
        if (
            not isinstance(position, int)
            or not isinstance(count, int)
            or count < 1
            or not isinstance(data, bytes | str)
        ):
            raise JournalCorrupt(
                f"run {run_id!r}: the row at position {position!r} is damaged (count {count!r})"
            )
        if expected is None:
            # The first row of a later part only has to reach as far as what comes after it.
            expected = position if position <= after + 1 else after + 1
        if position != expected:
            what = "is missing" if position > expected else "is there twice"
            raise JournalCorrupt(
                f"run {run_id!r}: position {min(position, expected)} {what} (a row is at {position})"
            )
        expected = position + count
        last = position + count - 1
        if last > after:
            try:
                records.append(Record(position, count, text=data if isinstance(data, str) else data.decode()))
            except UnicodeDecodeError as error:
                raise JournalCorrupt(
                    f"run {run_id!r}: the text at position {position} is no UTF-8: {error}"
                ) from None
    if head != last:
        raise JournalCorrupt(f"run {run_id!r}: the journal ends at position {last}, its head says {head!r}")
    return records
