"""Facts as hosts read them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from overt._frozen import Frozen
from overt.core.facts import FACTS
from overt.core.suspension import when
from overt.driver.loading import Log
from overt.journal.codec import plain_fields

__all__ = ("Event", "event_views")

_KIND = {cls: kind for kind, cls in FACTS.items()}


class Event(Frozen):
    """A fact of the journal."""

    kind: str
    """The fact's name in the journal."""
    position: int
    """In the journal, from 1."""
    handle: str
    """Id of the handle it is about; `root` for the run."""
    at: datetime
    """When it was recorded (aware)."""
    data: dict[str, JsonValue] = {}
    """The fact's other fields, as the journal keeps them."""


def event_views(log: Log, after: int) -> Iterator[Event]:
    """Yield the facts past a position."""
    for position, at, facts in log:
        if position + len(facts) <= after:
            continue
        for offset, fact in enumerate(facts):
            if position + offset > after:
                data: dict[str, Any] = plain_fields(fact)
                handle = data.pop("handle", "root")
                yield Event(
                    kind=_KIND[type(fact)], position=position + offset, handle=handle, at=when(at), data=data
                )
