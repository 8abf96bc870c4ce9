"""What a host does with the runs of a store as a whole, from the primitives every store has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from functools import partial
from typing import Generic, TypeVar

from anyio.lowlevel import checkpoint

from overt._text import clean
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.suspension import when
from overt.core.tree import Tree
from overt.core.views import request_view
from overt.errors import RunConflict, RunNotFound, StoreError
from overt.journal._checks import check_limit, statuses
from overt.journal.listing import run_status
from overt.journal.loading import load
from overt.journal.reports import Interruption, PendingRequest
from overt.journal.store import OpenRequest, RunInfo, Store
from overt.journal.taking import aware, is_free, leased, taken

__all__ = ("OnError", "abandoned", "expire_due", "interrupt", "pendings", "prune")

OnError = Callable[[str, StoreError], None]
"""Told of a run that cannot be read, and why."""

RowT = TypeVar("RowT", OpenRequest, RunInfo)

PAGE = 500
"""Rows that are asked for at once, where nobody knows how many are needed."""


# --------------------------------------------------------------- the approval queue


async def pendings(
    store: Store,
    *,
    kind: str | None = None,
    agent: str | None = None,
    older_than: datetime | None = None,
    run_id: str | None = None,
    limit: int | None = None,
    on_error: OnError | None = None,
) -> tuple[PendingRequest, ...]:
    """`Store.pendings`."""
    check_limit(limit)
    fetch = partial(store.open_requests, run_id=run_id, kind=kind, agent=agent, older_than=older_than)
    runs: dict[str, dict[str, PendingRequest]] = {}
    found: list[PendingRequest] = []
    if limit == 0:
        return ()
    pages = _Pages(fetch, lambda one: (one.run_id, one.request), first=limit)
    while rows := await pages.next():
        for row in rows:
            if row.run_id not in runs:
                tree = await _read(store, row.run_id, on_error)
                # What is kept is small; a whole run is not.
                runs[row.run_id] = {} if tree is None else _open_in(tree)
            if row.request in runs[row.run_id]:
                found.append(runs[row.run_id][row.request])
                if len(found) == limit:
                    return tuple(found)
    return tuple(found)


def _open_in(tree: Tree) -> dict[str, PendingRequest]:
    return {
        state.id: PendingRequest(
            run_id=tree.run_id,
            entry=tree.agent,
            agent=tree.nodes[state.handle].agent,
            asked_at=when(state.asked_at),
            # Whoever answers from outside of the run's driver does so when all of it has parked.
            request=request_view(tree, state, parked=True),
        )
        for state in tree.requests.values()
        if state.status == "open"
    }


async def _read(store: Store, run_id: str, on_error: OnError | None) -> Tree | None:
    """Return a run; `None` where it cannot be read and somebody was told, or where it is gone."""
    await checkpoint()  # a run at a time: reading one may never wait
    try:
        tree, _ = await load(store, run_id)
    except RunNotFound:
        return None
    except StoreError as error:
        if on_error is None:
            error.add_note(f"It happened while run {run_id!r} was read.")
            raise
        on_error(run_id, error)
        return None
    return tree


class _Pages(Generic[RowT]):
    """Rows of a list in order, each once, page by page.

    Rows that vanish meanwhile keep no others from being found: each page is asked for from the beginning.
    """

    def __init__(
        self,
        fetch: Callable[..., Awaitable[Sequence[RowT]]],
        key: Callable[[RowT], object],
        *,
        first: int | None = None,
    ) -> None:
        self._fetch: Callable[..., Awaitable[Sequence[RowT]]] = fetch
        self._key: Callable[[RowT], object] = key
        self._seen: set[object] = set()
        self._wanted = PAGE if first is None else first
        self._more = True

    async def next(self) -> list[RowT]:
        """Return the next ones; none where there are no more."""
        fresh: list[RowT] = []
        while self._more and not fresh:
            page = await self._fetch(limit=self._wanted)
            fresh = [row for row in page if self._key(row) not in self._seen]
            self._seen.update(map(self._key, fresh))
            self._more = len(page) == self._wanted
            self._wanted += max(PAGE, len(self._seen))
        return fresh


# --------------------------------------------------------------- answers by the clock


async def expire_due(store: Store, now: datetime, *, on_error: OnError | None = None) -> tuple[str, ...]:
    """`Store.expire_due`."""
    at = aware(now, "now")
    rows = await store.open_requests(due=at)
    expired: list[str] = []
    failed: StoreError | None = None
    for run_id in dict.fromkeys(row.run_id for row in rows):
        await checkpoint()
        try:
            async with taken(store, run_id, now=at) as run:
                answered = run.decide(i.Expire(drive=False))
                await run.record()
        except (RunConflict, RunNotFound):
            continue  # its driver answers, or another process has done it just now
        except StoreError as error:
            if on_error is not None:
                on_error(run_id, error)
            elif failed is None:
                failed = error
                error.add_note(f"It happened while run {run_id!r} was read.")
            continue
        if any(isinstance(fact, f.AnswerGiven) for fact in answered):
            expired.append(run_id)
    if failed is not None:
        raise failed
    return tuple(expired)


# --------------------------------------------------------------- one run


async def interrupt(
    store: Store, run_id: str, *, reason: str | None = None, now: datetime | None = None
) -> Interruption:
    """`Store.interrupt`."""
    at = aware(now, "now")
    # First the mark: where this process ends before it is through, whoever takes the run next goes on with it.
    await store.ask_interrupt(run_id, reason="" if reason is None else clean(reason))
    try:
        async with taken(store, run_id, now=at) as run:
            await run.record()
    except RunConflict as conflict:
        info = await store.info(run_id)
        return Interruption(
            run_id=run_id, outcome="asked", status=info.status, owner=conflict.owner, until=conflict.until
        )
    ended = any(not isinstance(fact, f.DriverLost) for fact in run.facts)
    return Interruption(
        run_id=run_id, outcome="interrupted" if ended else "at_rest", status=run_status(run.tree)
    )


# --------------------------------------------------------------- many runs


async def abandoned(
    store: Store, now: datetime, *, agent: str | None = None, limit: int | None = None
) -> tuple[RunInfo, ...]:
    """`Store.abandoned`."""
    check_limit(limit)
    at = aware(now, "now")
    found: list[RunInfo] = []
    if limit == 0:
        return ()
    fetch = partial(store.runs, status=("", "running", "pending"), agent=agent)
    pages = _Pages(fetch, lambda one: one.run_id)
    while rows := await pages.next():
        # A parked run has no claim, unless its driver died before it had told `on_pending` and given the claim up.
        found += [
            info
            for info in rows
            if is_free(info, at) and (info.status != "pending" or info.owner is not None)
        ]
        if limit is not None and len(found) >= limit:
            break
    return tuple(found[:limit])


async def prune(
    store: Store,
    older_than: datetime,
    *,
    status: str | Collection[str] = ("done", "interrupted"),
    agent: str | None = None,
    limit: int | None = None,
    now: datetime | None = None,
) -> tuple[str, ...]:
    """`Store.prune`."""
    check_limit(limit)
    before, at = aware(older_than, "older_than"), aware(now, "now")
    wanted = statuses(status) or frozenset()
    removed: list[str] = []
    if limit == 0 or not wanted:
        return ()
    fetch = partial(store.runs, status=wanted, agent=agent, older_than=before)
    pages = _Pages(fetch, lambda one: one.run_id, first=limit)
    while rows := await pages.next():
        for info in rows:
            if await _remove(store, info, now=at):
                removed.append(info.run_id)
                if len(removed) == limit:
                    return tuple(removed)
    return tuple(removed)


async def _remove(store: Store, info: RunInfo, *, now: datetime) -> bool:
    """Remove a run if it is still as it was listed and nobody drives it; say whether it is gone."""
    run_id = info.run_id
    try:
        async with leased(store, run_id, now=now) as claim:
            found = await store.info(run_id)
            if (found.epoch, found.position, found.status) != (claim.epoch, info.position, info.status):
                return False
            # No driver comes between: the claim is held.
            await store.delete(run_id, now=now, force=True)
    except (RunConflict, RunNotFound):
        return False
    return True
