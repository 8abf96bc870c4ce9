"""What has happened between two attempts at a model."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ("RetryAwaited", "RetryDue")


class RetryAwaited(NamedTuple):
    """A model call failed and will be made again after a while."""

    handle: str
    effect: int
    wait: int
    """Microseconds from the time of this record."""


class RetryDue(NamedTuple):
    """The wait is over."""

    handle: str
    effect: int
