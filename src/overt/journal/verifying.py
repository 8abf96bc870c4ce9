"""Looking a whole store over: every journal read and folded, and the lists compared with what it says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from anyio.lowlevel import checkpoint

from overt.core.suspension import when
from overt.core.tree import Tree
from overt.errors import JournalCorrupt, RunConflict, RunNotFound, StoreError
from overt.journal.listing import open_requests_of, run_status
from overt.journal.loading import Log, fold
from overt.journal.record import Record
from overt.journal.reports import Damage
from overt.journal.store import Change, OpenRequest, RunInfo, Store
from overt.journal.taking import aware, leased

__all__ = ("verify",)

TRIES = 5
"""How often a run is looked at again that its driver moves on meanwhile."""


class _Seen(NamedTuple):
    """A run and its lists, of one moment."""

    tree: Tree
    records: Sequence[Record]
    info: RunInfo
    listed: dict[str, OpenRequest]
    entries: frozenset[str]
    """Every name the entry agent has had."""


async def verify(
    store: Store, *, run_id: str | None = None, repair_lists: bool = False, now: datetime | None = None
) -> tuple[Damage, ...]:
    """`Store.verify`."""
    at = aware(now, "now")
    found: list[Damage] = []
    if run_id is None:
        found += await store._verify_file()
        try:
            ids = [info.run_id for info in await store.runs()]
        except JournalCorrupt as error:
            return (*found, Damage(run_id=None, what=str(error)))
    else:
        await store.info(run_id)
        ids = [run_id]
    for id in ids:
        await checkpoint()  # a run at a time: reading one may never wait
        try:
            seen = await _look(store, id)
            if isinstance(seen, Damage):
                found.append(seen)
            elif seen is not None:
                wrong = list(_compared(seen))
                found += await _repair(store, id, wrong, now=at) if wrong and repair_lists else wrong
        except RunNotFound:
            continue  # removed meanwhile
    return tuple(found)


async def _look(store: Store, run_id: str) -> _Seen | Damage | None:
    """Return a run with its lists, or what is wrong with its journal; `None` where it never stands still.

    Raises:
        RunNotFound: It is not there any more.
    """
    for _ in range(TRIES):
        before = await store.info(run_id)
        try:
            records = await store.read(run_id)
        except RunNotFound:
            raise
        except StoreError as error:
            return Damage(run_id=run_id, what=_without(run_id, error))
        tree, entries = Tree(), set[str]()
        for record in records:
            try:
                fold(tree, Log(), record, run_id)
                entries.add(tree.agent)
            except StoreError as error:
                return Damage(run_id=run_id, position=record.position, what=_without(run_id, error))
        listed = await store.open_requests(run_id=run_id)
        after = await store.info(run_id)
        if (before.position, before.status) == (after.position, after.status):
            if after.position != tree.seq:
                what = f"the journal ends at position {tree.seq}, its head says {after.position}"
            elif not records:
                what = (
                    "it has no journal: an import that was cut off leaves this; import it again, or delete it"
                )
            elif tree.run_id != run_id:
                what = f"the journal is of run {tree.run_id!r}"
            else:
                return _Seen(tree, records, after, {one.request: one for one in listed}, frozenset(entries))
            return Damage(run_id=run_id, what=what)
    return None


def _without(run_id: str, error: StoreError) -> str:
    """What an error says, less the run it is listed under."""
    text = str(error)
    for start in (f"run {run_id}, position ", f"run {run_id!r}: "):
        text = text.removeprefix(start)
    place, _, rest = text.partition(": ")
    return rest if place.isdigit() else text


def _compared(seen: _Seen) -> Iterator[Damage]:
    """What the lists say otherwise than the journal."""
    tree, info = seen.tree, seen.info
    # Of a run that has only been created the lists say nothing yet.
    if info.status != run_status(tree) and (info.status or len(seen.records) > 1):
        yield Damage(
            run_id=tree.run_id, what=f"it is listed as {info.status!r}, its journal says {run_status(tree)!r}"
        )
    # A run keeps the name it is listed under when its entry agent is renamed; a copy of it has the later one.
    if info.agent not in seen.entries:
        yield Damage(
            run_id=tree.run_id,
            what=f"it is listed with entry agent {info.agent!r}, its journal says {tree.agent!r}",
        )
    wanted = {one.request: one for one in open_requests_of(tree)}
    for id, one in wanted.items():
        if id not in seen.listed:
            yield Damage(run_id=tree.run_id, what=f"open request {id} is not in the list")
        elif seen.listed[id] != one:
            yield Damage(
                run_id=tree.run_id, what=f"open request {id} is listed otherwise than the journal has it"
            )
    for id in seen.listed.keys() - wanted.keys():
        state = tree.requests.get(id)
        stands = "not in the journal" if state is None else state.status
        yield Damage(run_id=tree.run_id, what=f"request {id} is listed as open, and is {stands}")


async def _repair(store: Store, run_id: str, wrong: list[Damage], *, now: datetime) -> list[Damage]:
    """Write the lists of a run that nobody drives anew; return what was wrong, and whether it still is."""
    try:
        async with leased(store, run_id, now=now) as claim:
            seen = await _look(store, run_id)
            if not isinstance(seen, _Seen):
                return wrong
            tree = seen.tree
            wanted = {one.request: one for one in open_requests_of(tree)}
            await store.append(
                run_id,
                (),
                after=tree.seq,
                epoch=claim.epoch,
                change=Change(
                    status=run_status(tree),
                    at=when(tree.now),
                    asked=tuple(one for id, one in wanted.items() if seen.listed.get(id) != one),
                    settled=tuple(seen.listed.keys() - wanted.keys()),
                ),
                release=True,
            )
    except RunConflict:
        return wrong  # its driver writes them
    left = await _look(store, run_id)
    still = {one.what for one in _compared(left)} if isinstance(left, _Seen) else {one.what for one in wrong}
    return [replace(one, repaired=one.what not in still) for one in wrong]
