"""Inputs on their way in: decided one at a time, durable before anything leaves."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import anyio

from overt.clock import Clock, SystemClock
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.decide import decide
from overt.core.desk import Refused
from overt.core.effects import Effect
from overt.core.tree import Tree
from overt.driver.audience import Listener, drop
from overt.driver.context import current_host
from overt.driver.slot import Slot, store_error
from overt.driver.tenure import Tenure
from overt.driver.watches import Watches
from overt.errors import StoreError, UsageError
from overt.journal.codec import record
from overt.journal.listing import change_of, run_status
from overt.journal.loading import Log, refold
from overt.journal.record import Record
from overt.journal.store import Change

__all__ = ("Intake",)


@lru_cache(maxsize=16)
def _private(status: str) -> Change:
    return Change(status=status, at=EPOCH)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Intake(ABC):
    """What every input of a run goes through; what follows from it is set going by the driver."""

    def __init__(self, tenure: Tenure, clock: Clock, *, first: i.Open | None, tree: Tree, log: Log) -> None:
        self.tenure: Tenure = tenure
        self.clock = clock
        self.tree: Tree = tree
        self.log: Log = log
        self.first: i.Open | None = first
        """What opens the run, until it is stored."""
        self.broken: BaseException | None = None
        self.listeners: list[Listener] = []
        """Told of every record once it is durable, before what follows from it is set going."""
        self._queue: deque[Slot] = deque()
        self._pumping = False
        self._appending: int | None = None
        """How many entries of the log are stored, while others are on their way."""
        self._watches = Watches()

    @property
    @abstractmethod
    def live(self) -> bool:
        """Whether this driver is at work."""

    @abstractmethod
    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something beside everything else."""

    @abstractmethod
    async def _append(self, records: Sequence[Record], after: int, change: Change) -> None: ...

    @abstractmethod
    def _dispatch(self, slots: Sequence[Slot]) -> None: ...

    @abstractmethod
    def _set_going(self, effect: Effect, owner: Slot) -> None: ...

    @abstractmethod
    def _break(self, error: BaseException) -> None: ...

    def _opened(self) -> None:
        """The run is stored."""
        self.first = None

    def _fail(self, error: BaseException) -> None:
        if self.broken is None:
            self.broken = error

    @abstractmethod
    def _look(self) -> None: ...

    @abstractmethod
    def _obey_anew(self) -> None:
        """Do what was asked beside everything else, of a run that was given up."""

    @abstractmethod
    def _may_release(self) -> bool: ...

    @property
    def durable(self) -> int:
        """How many entries of the log are in the store."""
        return len(self.log) if self._appending is None else self._appending

    def _tell(self, entries: Log) -> None:
        for position, at, facts in entries:
            for listener in tuple(self.listeners):
                try:
                    listener.record(position, at, facts)
                except Exception:  # noqa: BLE001  # logged; what is stored stands, and the run goes on
                    drop(self.listeners, listener)

    def now(self) -> int:
        """The clock in microseconds since 1970."""
        if type(self.clock) is SystemClock:
            return time.time_ns() // 1000
        return (self.clock.now() - EPOCH) // timedelta(microseconds=1)

    async def step(self, *inputs: i.Input, wants: bool = False, own: bool = False) -> Slot:
        """Work off inputs; when this returns, what they led to is durable.

        Inputs that arrive while an append is under way share the next one. Several inputs given at once share one
        append too; the first that is refused is raised, and those before it stand.

        Args:
            *inputs: In order.
            wants: Whether the caller performs an effect that follows; it is in the `take` of what is returned.
            own: Whether the caller's task is the driver's own, which nobody cancels but by scopes.

        Raises:
            UsageError: An input is misuse.
            Refused: An input is refused with a value.
            StoreError: The append failed: the driver accepts nothing any more.
        """
        if len(inputs) == 1 and not self._pumping and self.tenure.immediate and self.first is None:
            return self._step_now(inputs[0], wants=wants)
        last = Slot(inputs[-1], wants=wants)
        slots = [*(Slot(inp, wants=False, owner=last) for inp in inputs[:-1]), last]
        if self.first is not None and not self.tree.run_id and not self._queue:
            self._queue.append(Slot(self.first, wants=False))
        self._queue.extend(slots)
        if not self._pumping and (own or not self.live or self.tenure.immediate or current_host() is None):
            await self._lead()
        else:
            last.done = anyio.Event()
            if not self._pumping:
                # Not in the caller's task: asyncio could cancel it in the middle of an append.
                self._pumping = True
                self.spawn(self._work_off)
            try:
                await last.done.wait()
            except BaseException:
                # What was handed in stands; the caller performs nothing of it.
                last.wants = False
                if last.take is not None:
                    self._set_going(last.take, last)
                raise
        for slot in slots:
            if slot.error is not None:
                raise slot.error
        return last

    async def _lead(self) -> None:
        """Append for the caller; what others hand in meanwhile is not to keep it from its own work."""
        self._pumping = True
        try:
            await self._pump()
        finally:
            self._pumping = False
            self._look()
        if self._queue:
            if self.live:
                self._pumping = True
                self.spawn(self._work_off)
            else:
                await self._work_off()

    async def _work_off(self) -> None:
        self._pumping = True
        try:
            while self._queue:
                await self._pump()
        finally:
            self._pumping = False
            self._look()

    def _step_now(self, inp: i.Input, *, wants: bool) -> Slot:
        """Work off one input where an append never waits: nothing can come between."""
        if self.broken is not None:
            raise store_error(self.broken)
        slot = Slot(inp, wants=wants)
        tree = self.tree
        obeys = type(inp) is i.Interrupt and inp.asked
        after, durable = tree.seq, len(self.log)
        try:
            first = tree.next_effect
            facts = slot.facts = decide(tree, inp, self.now())
            slot.effects = range(first, tree.next_effect)
            if facts or obeys:
                records: tuple[Record, ...] = ()
                if facts:
                    self.log.append((after + 1, tree.now, facts))
                    records = (record(after + 1, tree.now, facts),)
                self.tenure.append_now(
                    tree.run_id,
                    records,
                    after=after,
                    change=self._change(facts, obeyed=obeys),
                    release=self._may_release(),
                )
        except (UsageError, Refused):
            raise
        except BaseException as error:
            self._break(error)
            self.tree = refold(self.log, durable)
            raise store_error(error) from error
        if facts:
            if self.listeners:
                self._tell(self.log[durable:])
            self._dispatch((slot,))
        if self.tenure.mark is not None:
            self._obey()
        return slot

    async def _pump(self) -> None:
        """Decide what has come, append it, and set going what follows."""
        if self.broken is not None:
            self._refuse_all()
            return
        slots: list[Slot] = []
        records: list[Record] = []
        obeys = False
        now = self.now()
        after, durable = self.tree.seq, len(self.log)
        self._appending = durable
        try:
            while self._queue:
                slot = self._queue.popleft()
                slots.append(slot)
                if type(slot.input) is i.Interrupt and slot.input.asked:
                    if not self.tenure.held:
                        # The run was given up with the append that brought the mark, and may be another driver's.
                        self._obey_anew()
                        continue
                    obeys = True
                first = self.tree.next_effect
                try:
                    facts = slot.facts = decide(self.tree, slot.input, now)
                except (UsageError, Refused) as error:
                    slot.error = error
                    continue
                slot.effects = range(first, self.tree.next_effect)
                if facts:
                    position = self.tree.seq - len(facts) + 1
                    records.append(record(position, self.tree.now, facts))
                    self.log.append((position, self.tree.now, facts))
                    self._watches.note()
            if records or obeys:
                decided = [fact for _, _, facts in self.log[durable:] for fact in facts]
                await self._append(records, after, self._change(decided, obeyed=obeys))
        except BaseException as error:  # noqa: BLE001  # told to everybody who waits, and to the host
            self._break(error)
            self.tree = refold(self.log, durable)
            for slot in slots:
                slot.error = slot.error or store_error(error)
                if slot.done is not None:
                    slot.done.set()
            self._refuse_all()
            return
        finally:
            self._appending = None
        if records:
            if self.listeners:
                self._tell(self.log[durable:])
            self._dispatch(slots)
        if self.tenure.mark is not None:
            self._obey()
        for slot in slots:
            if slot.done is not None:
                slot.done.set()

    def _change(self, facts: Sequence[f.Fact], *, obeyed: bool) -> Change:
        """What is to be changed in the store's lists; nobody looks into a private store."""
        tree = self.tree
        if not self.tenure.private:
            return change_of(tree, facts, obeyed=obeyed)
        return _private(run_status(tree))

    def obeying(self) -> i.Interrupt:
        """What is done because another process has asked for it."""
        mark, self.tenure.mark = self.tenure.mark, None
        return i.Interrupt("root", mark or None, asked=True)

    def _obey(self) -> None:
        """Do it as soon as what is being worked off is through."""
        if not self.live:
            return  # whoever takes the run next finds the mark
        self._queue.append(Slot(self.obeying(), wants=False))
        if not self._pumping:
            self._pumping = True
            self.spawn(self._work_off)

    def _refuse_all(self) -> None:
        while self._queue:
            slot = self._queue.popleft()
            slot.error = store_error(self.broken or StoreError("the driver has stopped"))
            if slot.done is not None:
                slot.done.set()
