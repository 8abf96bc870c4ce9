"""What a store's operations say of its runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from overt.request import Request

__all__ = ("Damage", "Interruption", "PendingRequest")


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """One open request, as an approval queue shows it. `pydantic.TypeAdapter(PendingRequest)` writes it as JSON."""

    run_id: str
    entry: str
    """Name of the run's entry agent: what opens the run to answer."""
    agent: str
    """Name of the agent whose handle asks."""
    asked_at: datetime
    request: Request
    """With what answering it repeats, as the run stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """What became of an interrupt that was asked for from outside of the run's driver."""

    run_id: str
    outcome: Literal["interrupted", "asked", "at_rest"]
    """`interrupted`: nobody drove the run, and it is done. `asked`: its driver lives, and obeys at its next step.
    `at_rest`: nobody drove it, and nothing in it worked or waited."""
    status: str
    """The run's status, as `RunInfo.status`; of one whose driver was asked, as it was then."""
    owner: str | None = None
    """Id of the driver that was asked."""
    until: datetime | None = None
    """When that driver's claim runs out if it does not renew it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One thing that is wrong with a store."""

    run_id: str | None
    """`None`: the file or database as such."""
    position: int | None = None
    """Where in the journal, as far as one place can be named; `what` may name it too."""
    what: str
    """What is wrong, for people."""
    repaired: bool = False
    """Whether it was put right now: lists can be, journals cannot."""

    def __str__(self) -> str:
        """One line."""
        where = "store" if self.run_id is None else f"run {self.run_id!r}"
        at = "" if self.position is None else f", position {self.position}"
        return f"{where}{at}: {self.what}{' (repaired)' if self.repaired else ''}"
