"""What one transaction reads and changes: the heads of its runs in memory, and the rows to be written behind them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Final, cast

from overt._times import micros
from overt.journal.store import OpenRequest

__all__ = ("Head", "Row", "Session")

Row = tuple[object, ...]
_Columns = tuple[
    str, int, int, str | None, str | None, int | None, str | None, int | None, str, str, int, int, str | None
]


@dataclass(slots=True)
class Head:
    """A row of `runs`; the fields in the order of its columns. Times are microseconds since 1970."""

    run_id: str
    position: int
    epoch: int
    owner_id: str | None
    owner_host: str | None
    owner_pid: int | None
    owner_started: str | None
    until: int | None
    status: str
    agent: str
    created: int
    updated: int
    interrupt: str | None
    written: int = 0
    """Which transaction wrote the row: a number made by chance for each."""

    @classmethod
    def of(cls, row: Row) -> Head:
        """The head in a row of `SELECT`."""
        return cls(*cast("_Columns", row))


_values = attrgetter(*(field.name for field in fields(Head)))


class Session:
    """What a job works on: `fetch` to read; in a transaction that writes, the heads of its runs besides.

    The rows of those runs are locked, so what a job finds in a head holds until the commit, and what it decides is
    written with what its neighbours decided: one statement a table, however many jobs there are.
    """

    def __init__(self, fetch: Callable[[bytes, Sequence[object]], list[Row]]) -> None:
        self.fetch: Final = fetch
        self.forget()

    def forget(self) -> None:
        """Drop everything: the transaction is over or undone."""
        self.heads: dict[str, Head] = {}
        self.deleted_epoch = 0
        """The highest epoch of a run that was deleted."""
        self.created: set[str] = set()
        self.changed: set[str] = set()
        self.deleted: dict[str, int] = {}
        """With the transaction that had written the row."""
        self.number = random.getrandbits(63)
        """Of this transaction."""
        self.rows: list[tuple[str, int, int, str]] = []
        self.requests: dict[tuple[str, str], OpenRequest | None] = {}

    def find(self, run_id: str) -> Head | None:
        """The head of a run the transaction was begun for; change it and call `write`."""
        return self.heads.get(run_id)

    def create(self, head: Head, rows: Iterable[tuple[str, int, int, str]]) -> None:
        """Add a run and its journal."""
        self.heads[head.run_id] = head
        self.created.add(head.run_id)
        self.rows.extend(rows)

    def write(
        self,
        head: Head,
        rows: Iterable[tuple[str, int, int, str]] = (),
        *,
        asked: Iterable[OpenRequest] = (),
        settled: Iterable[str] = (),
    ) -> None:
        """Write a changed head, and rows of its journal and its requests."""
        if head.run_id not in self.created:
            self.changed.add(head.run_id)
        self.rows.extend(rows)
        for request in asked:
            self.requests[head.run_id, request.request] = request
        for id in settled:
            self.requests[head.run_id, id] = None

    def delete(self, head: Head) -> None:
        """Remove a run, and all that was to be written of it."""
        run_id = head.run_id
        self.deleted_epoch = max(self.deleted_epoch, head.epoch)
        self.deleted[run_id] = head.written
        del self.heads[run_id]
        self.created.discard(run_id)
        self.changed.discard(run_id)
        self.rows = [row for row in self.rows if row[0] != run_id]
        self.requests = {key: request for key, request in self.requests.items() if key[0] != run_id}

    def asked(self) -> list[tuple[object, ...]]:
        """The rows of requests that are open now."""
        return [
            (
                run_id,
                request.request,
                request.kind,
                request.agent,
                micros(request.asked_at),
                None if request.expires_at is None else micros(request.expires_at),
            )
            for (run_id, _), request in self.requests.items()
            if request is not None
        ]

    def columns(self, runs: Iterable[str]) -> list[list[object]]:
        """The heads of `runs` by column, sorted by run so that transactions that meet lock in one order."""
        *columns, _ = zip(*(_values(self.heads[run_id]) for run_id in sorted(runs)), strict=True)
        return [*map(list, columns), [self.number] * len(columns[0])]

    def concerned(self) -> list[str]:
        """The runs this transaction changes."""
        return [*self.created, *self.changed, *self.deleted]

    def happened(self, found: Mapping[str, int]) -> bool | None:
        """Whether this transaction is in the store.

        Args:
            found: Of each run it changes and that is there, which transaction wrote its row.

        Returns:
            `None` where it cannot be told: others have changed all of those runs since.
        """
        if not self.concerned():
            return True
        if self.number in found.values():
            return True
        before = {run_id: self.heads[run_id].written for run_id in self.changed} | self.deleted
        if any(found.get(run_id) == number for run_id, number in before.items()):
            return False
        if self.created and not self.created & found.keys():
            return False
        # Whoever removed them.
        return True if not (self.created or self.changed or self.deleted.keys() & found.keys()) else None
