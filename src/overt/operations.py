"""What a host does from outside of its runs: look before an upgrade, and follow what another process drives.

What needs no agent is a method of the store: `Store.pendings`, `expire_due`, `interrupt`, `abandoned`, `prune`,
`export_run`, `import_run`, `verify`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, cast

from anyio.lowlevel import checkpoint
from typing_extensions import TypeVar, Unpack

from overt._frozen import trusted
from overt._planning import declared
from overt.agent import Agent
from overt.clock import Clock, SystemClock
from overt.core.tree import Tree
from overt.core.views import result_of
from overt.driver.crew import Crew, Member
from overt.driver.drift import drifts
from overt.driver.events import EventFold
from overt.errors import JournalCorrupt, RunNotFound, StoreError, UsageError
from overt.events import Event, ResultReady
from overt.journal.listing import UNFINISHED
from overt.journal.loading import Log, fold, load
from overt.journal.store import RunInfo, Store
from overt.journal.taking import is_free
from overt.message import ModelRequest, ModelResponse, SystemMessage
from overt.options import Options, check_run, check_store
from overt.upgrade import Drift, Upgrade

__all__ = ("Stranded", "check", "follow")

_DepsT = TypeVar("_DepsT", default=None)
_OutputT = TypeVar("_OutputT", default=str)

BREATH = 100
"""Events after which a reader that never has to wait lets others run."""
GLANCE = 0.1
"""Seconds between two looks at a run that has come to rest and is not given up yet."""


# --------------------------------------------------------------- before an upgrade


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranded:
    """A run that the code given to `check` could not carry on."""

    run_id: str
    status: str
    """As `RunInfo.status`."""
    drifts: tuple[Drift, ...] = ()
    """What does not fit, and how to go on; empty where the journal cannot be read."""
    error: StoreError | None = None
    """Why the journal cannot be read."""

    def __str__(self) -> str:
        """One line for each thing that is in the way, with the run."""
        return "\n".join(f"run {self.run_id}: {drift}" for drift in self.drifts) or str(self.error)


async def check(
    agent: Agent[_DepsT, _OutputT], store: Store, /, **options: Unpack[Options[_DepsT]]
) -> tuple[Stranded, ...]:
    """List the runs that would be stranded if this code were deployed.

    Every run of the store that was started with this entry agent and may still go on is read, and compared with the
    code as `Runtime.open` does. Nothing is claimed or changed, so that it may be called beside the release that drives
    them: before a deployment, in a test, or at the start of a process.

    Args:
        agent: The entry agent, as declared in the new code.
        store: Where the runs are.
        **options: Those `Runtime.open` will be given; guardrails of the run have to be among them. No model is asked,
            so `model` and `deps` may be left out. Runs of an entry agent that `upgrade` renames are among those
            looked at; with `on_drift="accept"` only what cannot be accepted is told.

    Returns:
        One for each run that does not fit or cannot be read; empty where all of them can go on.

    Raises:
        DefinitionError: An option is unknown or wrong, or the teams do not resolve.
        UsageError: `options` have another store.
        StoreError: The store cannot be read at all.
    """
    given = cast("dict[str, Any]", options)
    check_store(store)
    if given.get("store") not in (None, store):
        raise UsageError("check is given two stores: leave out store=…")
    entry = cast("Agent[Any, Any]", agent)
    check_run(entry, declared(entry).agents, {"model": _NoModel(), "deps": _NO_DEPS, **given})
    crew = _crew(entry)
    upgrade: Upgrade = given.get("upgrade") or Upgrade()
    accepts = given.get("on_drift") == "accept"
    found: list[Stranded] = []
    for info in await _unfinished(store, agent.name, upgrade):
        await checkpoint()  # a run at a time: reading one may never wait
        try:
            tree, _ = await load(store, info.run_id)
        except RunNotFound:
            continue  # removed meanwhile
        except StoreError as error:
            found.append(Stranded(run_id=info.run_id, status=info.status, error=error))
            continue
        wrong = tuple(
            drift
            for drift in drifts(tree, crew, entry.name, frozenset(given), upgrade)
            if not (accepts and drift.acceptable)
        )
        if wrong:
            found.append(Stranded(run_id=info.run_id, status=info.status, drifts=wrong))
    return tuple(found)


async def _unfinished(store: Store, entry: str, upgrade: Upgrade) -> list[RunInfo]:
    names = {entry, *(old for old in upgrade.agents if upgrade.agent(old) == entry)}
    return [info for name in sorted(names) for info in await store.runs(status=UNFINISHED, agent=name)]


class _NoModel:
    """Stands for a model where none is asked."""

    @property
    def name(self) -> str:
        return "none"

    async def generate(self, request: ModelRequest) -> ModelResponse:
        raise NotImplementedError


_NO_DEPS = object()


def _no_system() -> SystemMessage | None:
    return None


def _crew(entry: Agent[Any, Any]) -> Crew:
    """Everyone who would carry a run on; nobody is asked anything."""
    model = _NoModel()
    return Crew(
        members={
            name: Member(kit=kit, model=model, system=_no_system)
            for name, kit in declared(entry).kits.items()
        },
        deps=None,
        wait_for=None,
        on_pending=None,
        verify_answer=None,
        max_concurrent_turns=1,
        shutdown=0.0,
        claim=1.0,
    )


# --------------------------------------------------------------- following


def follow(store: Store, run_id: str, *, after: int = 0, clock: Clock | None = None) -> AsyncIterator[Event]:
    """Return what happens in a run, from its store alone: whoever drives it, in whatever process.

    The recorded events past `after` come first, then what is recorded, as soon as the store tells of it. When the run
    has come to rest and nobody drives it, `ResultReady` is the last one; what its result says of typed output is the
    JSON text, as no agent is known here. Of a run whose driver died it waits for whoever goes on with it. What models
    say before it is recorded is not in the journal: within one process `Runtime.follow` tells it.

    ```python
    import anyio

    from overt import Agent
    from overt.operations import follow
    from overt.stores import MemoryStore
    from overt.testing import MockModel

    async def main() -> None:
        store = MemoryStore()
        agent = Agent("agent", does="Answers.", model=MockModel(["Done."]))
        await agent.run("Go.", run_id="r-1", store=store)
        async for event in follow(store, "r-1", after=4):
            print(event.kind, event.handle)
        #> turn root/agent.1
        #> …
        #> result root/agent.1

    anyio.run(main)
    ```

    It drives nothing, so it may be left at any time, and read on elsewhere from the `position` of the last event.

    Args:
        store: Where the run is.
        run_id: The run.
        after: A position, from 0.
        clock: Says whether the claim of a driver has run out; `None`: the machine's.

    Raises:
        UsageError: `after` is no position.
        RunNotFound: No such run, or it was removed; raised to the reader, as the others are.
        JournalCorrupt: The journal is damaged.
        UnsupportedSchema: A newer release wrote it.
        StoreError: The store cannot be read.
    """
    if not _is_position(after):
        raise UsageError(f"after is a position in the journal, from 0, not {after!r}")
    return _Following(store, run_id, after, SystemClock() if clock is None else clock)


def _is_position(given: object) -> bool:
    return isinstance(given, int) and given >= 0


class _Following(AsyncIterator[Event]):
    """Not a generator: one that is left has nothing to be cleaned up."""

    def __init__(self, store: Store, run_id: str, after: int, clock: Clock) -> None:
        self._store = store
        self._run_id = run_id
        self._after = after
        self._clock = clock
        self._tree = Tree()
        self._fold = EventFold()
        self._ready: deque[Event] = deque()
        self._breath = 0
        self._over = False

    async def __anext__(self) -> Event:
        if self._breath >= BREATH:
            # Before an event is taken: what is cancelled here has lost none.
            self._breath = 0
            await checkpoint()
        while not self._ready:
            if self._over:
                raise StopAsyncIteration
            self._breath = 0
            await self._read_on()
        self._breath += 1
        return self._ready.popleft()

    async def _read_on(self) -> None:
        """Read what has been recorded since; where that is nothing, wait for it, or end."""
        tree = self._tree
        records = await self._store.read(self._run_id, after=tree.seq)
        for record in records:
            log = Log()
            fold(tree, log, record, self._run_id)
            for position, at, facts in log:
                for number, fact in enumerate(facts, position):
                    event = self._fold.feed(number, at, fact, tree=tree)
                    if number > self._after:
                        self._ready.append(event)
        if records:
            if tree.run_id != self._run_id:
                raise JournalCorrupt(f"run {self._run_id}, position 1: the journal is of run {tree.run_id!r}")
        elif tree.root.live or not tree.seq:
            await self._store.wait(self._run_id, after=tree.seq)
        elif await self._rests():
            self._end()
        else:
            await self._store.wait(self._run_id, after=tree.seq, timeout=GLANCE)

    async def _rests(self) -> bool:
        info = await self._store.info(self._run_id)
        return info.position == self._tree.seq and is_free(info, self._clock.now())

    def _end(self) -> None:
        self._over = True
        tree = self._tree
        if tree.entry is not None:
            result = result_of(tree, tree.entry, live=False)
            self._ready.append(
                trusted(
                    ResultReady,
                    kind="result",
                    position=tree.seq,
                    handle=result.handle,
                    at=self._clock.now(),
                    result=result,
                )
            )
