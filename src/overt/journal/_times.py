"""Times as stores keep them: microseconds since 1970, since a float of seconds would not keep them all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ("micros", "moment", "moment_or_none")

_ZERO = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    """Microseconds since 1970.

    Raises:
        TypeError: The time is naive.
    """
    return (at - _ZERO) // _MICROSECOND


def moment(at: int) -> datetime:
    """The time `micros` was given, in UTC."""
    return _ZERO + at * _MICROSECOND


def moment_or_none(at: int | None) -> datetime | None:
    """`moment`; `None` of `None`."""
    return None if at is None else moment(at)
