"""Times as stores keep them: microseconds since 1970, since a float of seconds would not keep them all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ("listed", "listed_or_none", "micros", "moment", "moment_or_none")

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


def listed(at: object) -> datetime:
    """`moment` of what a list of requests says; 1970 where that is no time.

    The journal is the truth: such a row keeps no other from being read, and `verify` finds that it differs.
    """
    try:
        return moment(at) if isinstance(at, int) else _ZERO
    except OverflowError:
        return _ZERO


def listed_or_none(at: object) -> datetime | None:
    """`listed`; `None` of `None`."""
    return None if at is None else listed(at)


def moment_or_none(at: int | None) -> datetime | None:
    """`moment`; `None` of `None`."""
    return None if at is None else moment(at)
