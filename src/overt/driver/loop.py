"""The driver: one input at a time, durable before anything leaves, effects performed, their outcomes the next inputs.

A chain is a task that performs one effect after another: it hands in an outcome and takes one of the effects that
follow. So a run without parallel work needs no task but its caller's, and only what is parallel is spawned.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup

from overt.clock import Clock, SystemClock
from overt.core import inputs as i
from overt.core.budget import next_deadline
from overt.core.decide import decide
from overt.core.desk import Refused
from overt.core.effects import Effect, Notify
from overt.core.tree import Tree
from overt.driver.context import cancellations, current_host, stop_if_cancelled
from overt.driver.crew import Crew
from overt.driver.gate import Gate
from overt.driver.loading import Log
from overt.driver.perform import perform
from overt.driver.slot import Slot, Watch, as_store_error, cut_off, run_status
from overt.driver.tenure import Tenure
from overt.errors import StoreError, UsageError
from overt.journal.codec import record
from overt.journal.record import Record
from overt.journal.store import Store

__all__ = ("Driver",)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PATIENCE = 5.0
"""Seconds, beside `shutdown`, the store has to take what closes the journal off."""


class Driver:
    """Drives one run in this process."""

    def __init__(
        self,
        crew: Crew,
        store: Store,
        clock: Clock,
        *,
        private: bool,
        first: i.Open | None,
        tree: Tree,
        log: Log,
    ) -> None:
        self.crew = crew
        self.clock = clock
        self.tenure = Tenure(store, clock, seconds=crew.claim, private=private)
        self.tree = tree
        self.log = log
        self.first = first
        """What opens the run, until it is stored."""
        self.broken: BaseException | None = None
        self.fatal: BaseException | None = None
        self.has_wall = False
        self.gate = Gate(crew.max_concurrent_turns)
        self.drift: str | None = None
        """The plan this process was given, until it is known to be the recorded one."""
        self._group: TaskGroup | None = None
        self._queue: deque[Slot] = deque()
        self._pumping = False
        self._scopes: dict[int, anyio.CancelScope] = {}
        self._watches: list[Watch] = []
        self.host: object = None
        """The asyncio task that performs effects although it is not the driver's own."""
        self._claiming = Gate(1)
        self._preparing = 0
        """Verbs that look at the run before they hand in what they want: the claim is not to go meanwhile."""
        self._guests = 0
        """Verbs that wait while another one, or `async with`, owns the tasks."""
        self._deadline: int | None = None
        self._timer_scope: anyio.CancelScope | None = None

    # ------------------------------------------------------------ inputs

    @property
    def live(self) -> bool:
        """Whether this driver is at work."""
        return self._group is not None

    def now(self) -> int:
        """The clock in microseconds since 1970."""
        if type(self.clock) is SystemClock:
            return time.time_ns() // 1000
        return (self.clock.now() - EPOCH) // timedelta(microseconds=1)

    async def step(self, *inputs: i.Input, wants: bool = False) -> Slot:
        """Work off inputs; when this returns, what they led to is durable.

        Inputs that arrive while an append is under way share the next one. Several inputs given at once share one
        append too; the first that is refused is raised, and those before it stand.

        Args:
            *inputs: In order.
            wants: Whether the caller performs an effect that follows; it is in the `take` of what is returned.

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
        if not self._pumping and (self._group is None or self.tenure.immediate):
            await self._work_off()
        else:
            last.done = anyio.Event()
            if not self._pumping:
                # Not in the caller's task: it would keep at it while others hand in more, and asyncio could cancel it
                # in the middle of an append.
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

    async def _work_off(self) -> None:
        self._pumping = True
        try:
            while self._queue:
                await self._pump()
        finally:
            self._pumping = False

    def _step_now(self, inp: i.Input, *, wants: bool) -> Slot:
        """Work off one input where an append never waits: nothing can come between."""
        if self.broken is not None:
            raise as_store_error(self.broken)
        slot = Slot(inp, wants=wants)
        tree = self.tree
        after = tree.seq
        try:
            first_effect = tree.next_effect
            facts = slot.facts = decide(tree, inp, self.now())
            slot.effects = range(first_effect, tree.next_effect)
            if facts:
                self.log.append((after + 1, tree.now, facts))
                self.tenure.append_now(
                    tree.run_id,
                    (record(after + 1, tree.now, facts),),
                    after=after,
                    status=run_status(tree),
                    release=self._lets_go(),
                )
        except (UsageError, Refused):
            raise
        except BaseException as error:
            self._break(error)
            raise as_store_error(error) from error
        if facts:
            self._dispatch((slot,))
        return slot

    async def _pump(self) -> None:
        """Decide what has come, append it, and set going what follows."""
        if self.broken is not None:
            self._refuse_all()
            return
        slots: list[Slot] = []
        records: list[Record] = []
        now = self.now()
        after = self.tree.seq
        try:
            while self._queue:
                slot = self._queue.popleft()
                slots.append(slot)
                first_effect = self.tree.next_effect
                try:
                    facts = slot.facts = decide(self.tree, slot.input, now)
                except (UsageError, Refused) as error:
                    slot.error = error
                    continue
                slot.effects = range(first_effect, self.tree.next_effect)
                if facts:
                    position = self.tree.seq - len(facts) + 1
                    records.append(record(position, self.tree.now, facts))
                    self.log.append((position, self.tree.now, facts))
            if records:
                await self._append(records, after)
        except BaseException as error:  # noqa: BLE001  # told to everybody who waits, and to the host
            self._break(error)
            for slot in slots:
                slot.error = slot.error or as_store_error(error)
                if slot.done is not None:
                    slot.done.set()
            self._refuse_all()
            return
        if records:
            self._dispatch(slots)
        for slot in slots:
            if slot.done is not None:
                slot.done.set()

    def _refuse_all(self) -> None:
        while self._queue:
            slot = self._queue.popleft()
            slot.error = as_store_error(self.broken or StoreError("the driver has stopped"))
            if slot.done is not None:
                slot.done.set()

    def _break(self, error: BaseException) -> None:
        """Accept nothing any more: the tree in memory may be ahead of the journal."""
        self.broken = self.broken or error
        self.tenure.epoch = None
        self._drop_everything()

    def end_process(self, error: BaseException) -> None:
        """Stop because something is to end the whole process; the host's verb raises it."""
        self.fatal = self.fatal or error
        self._drop_everything()

    def _drop_everything(self) -> None:
        for scope in list(self._scopes.values()):
            scope.cancel()
        self._look()

    # ------------------------------------------------------------ store

    async def _append(self, records: Sequence[Record], after: int) -> None:
        tree = self.tree
        release = self._lets_go()
        if self.first is not None:
            await self.tenure.create(self.first, records)
            self.first = None
            if not release:
                return
            records, after = (), tree.seq
        await self.tenure.append(tree.run_id, records, after=after, status=run_status(tree), release=release)

    async def acquire(self, *, force: bool = False) -> None:
        """Take the claim on the run, and catch up with what another process has done since.

        Raises:
            RunConflict: Another driver has it.
        """
        if self.broken is not None:
            raise as_store_error(self.broken)
        if self.first is not None or self.tenure.held:
            return
        async with self._claiming:
            if self.tenure.epoch is not None:
                return
            await self.tenure.take(self.tree, self.log, force=force)
            if self.drift is not None:
                drift, self.drift = self.drift, None
                with self.preparing():
                    await self.step(i.Drift(drift))

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Keep the claim until an input is handed in, although the run is at rest."""
        self._preparing += 1
        try:
            yield
        finally:
            self._preparing -= 1

    def _lets_go(self) -> bool:
        """Whether the claim goes with this append."""
        return not self._preparing and self.quiet()

    async def release(self) -> None:
        """Give the claim up, if it is held."""
        if self.broken is None:
            await self.tenure.give_up(self.tree.run_id)

    async def check_claim(self) -> None:
        """Make sure the run is still this driver's before something is entered that cannot be undone.

        Raises:
            StoreError: It is not, or nobody can tell; this driver stops.
        """
        try:
            await self.tenure.check(self.tree.run_id)
        except Exception as error:
            self._break(error)
            raise as_store_error(error) from error

    async def _keep_claim(self) -> None:
        try:
            await self.tenure.keep(self.tree)
        except Exception as error:  # noqa: BLE001  # a store that cannot be asked is as good as lost
            self._break(error)

    # ------------------------------------------------------------ effects

    def _dispatch(self, slots: Sequence[Slot]) -> None:
        tree = self.tree
        if self._scopes:
            for id in [id for id in self._scopes if id not in tree.open]:
                self._scopes.pop(id).cancel()
        for slot in slots:
            for id in slot.effects:
                effect = tree.open.get(id)
                if effect is None:
                    continue
                owner = slot.owner
                if owner.wants and owner.take is None and owner.error is None:
                    owner.take = effect
                else:
                    self._set_going(effect, owner)
        if self.has_wall:
            self._wind_timer()
        if self._watches:
            self._look()

    def _look(self, *, stopped: bool = False) -> None:
        stopped = stopped or self.broken is not None or self.fatal is not None
        for watch in self._watches:
            if stopped or watch.holds():
                watch.event.set()

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something beside everything else."""
        if self._group is None:
            raise RuntimeError("the driver is not at work")
        self._group.start_soon(work)

    def _set_going(self, effect: Effect, owner: Slot) -> None:
        # In the context of whoever led to it; another's step may have appended it.
        if self._group is not None:
            owner.context.run(self.spawn, partial(self._chain, effect))

    def cancellations(self) -> int:
        """Return how often asyncio was asked to cancel the host's task; 0 in the driver's own tasks.

        Those are cancelled by scopes only, which is told otherwise. What else cancels them is the doing of the code
        they run.
        """
        return cancellations(self.host)

    async def _chain(self, effect: Effect | None) -> None:
        """Perform an effect, and then one of those that follow, until there is none to take."""
        before = self.cancellations()
        with anyio.CancelScope() as scope:
            while effect is not None and self.broken is None and self.fatal is None:
                id = effect.id
                if id not in self.tree.open:
                    return
                self._scopes[id] = scope
                try:
                    outcome = await perform(self, effect)
                except (KeyboardInterrupt, SystemExit) as error:
                    self.end_process(error)
                    return
                except BaseException as error:  # noqa: BLE001  # the store's, or a fault of ours
                    if not isinstance(error, Exception):
                        await stop_if_cancelled(before, self.host)
                    self._break(error)
                    return
                finally:
                    self._scopes.pop(id, None)
                try:
                    slot = await self.step(outcome, wants=True)
                except StoreError:
                    return
                effect = slot.take
                if scope.cancel_called and effect is not None:
                    # This chain was cancelled between the append and here: the effect is somebody else's now.
                    self._set_going(effect, slot)
                    return
                if self.cancellations() > before:
                    break
        # Code that swallowed the cancellation of the host's task does not keep the host.
        await stop_if_cancelled(before, self.host)

    # ------------------------------------------------------------ time

    def _wind_timer(self) -> None:
        deadline = next_deadline(self.tree)
        if deadline == self._deadline:
            return
        self._deadline = deadline
        if self._timer_scope is not None:
            self._timer_scope.cancel()
            self._timer_scope = None
        if deadline is not None and self._group is not None:
            self._timer_scope = anyio.CancelScope()
            self._group.start_soon(self._timer, self._timer_scope, deadline)

    async def _timer(self, scope: anyio.CancelScope, deadline: int) -> None:
        with scope:
            await self.clock.sleep(max(deadline - self.now(), 0) / 1e6)
            self._deadline = None
            self._timer_scope = None
            try:
                await self.step(i.Tick())
            except StoreError:
                return
            # A clock that woke early, or one that was set back, has not reached it.
            self._wind_timer()

    # ------------------------------------------------------------ being driven

    async def until_holds(self, holds: Callable[[], bool], *, timeout: float | None = None) -> bool:
        """Wait until something is so, the driver is stopped, or `timeout` seconds are over; say whether it is so."""
        if holds() or self.broken is not None or self.fatal is not None or self._group is None:
            return holds()
        watch = Watch(holds)
        self._watches.append(watch)
        scope = anyio.CancelScope()

        async def timer(seconds: float) -> None:
            with scope:
                await self.clock.sleep(seconds)
            watch.event.set()

        try:
            if timeout is not None:
                self.spawn(partial(timer, timeout))
            await watch.event.wait()
        finally:
            self._watches.remove(watch)
            scope.cancel()
        return holds()

    def tells(self) -> bool:
        """Whether `on_pending` is still to be told of something."""
        return self.crew.on_pending is not None and any(
            isinstance(e, Notify) for e in self.tree.open.values()
        )

    def quiet(self) -> bool:
        """Whether nothing runs, waits for a slot, or has to be told."""
        return self.tree.root.live == 0 and not self.tells()

    def cut(self) -> bool:
        """Whether the journal holds work under way that this driver is not performing."""
        return not self._scopes and cut_off(self.tree)

    async def drive(
        self, work: Callable[[], Awaitable[Slot | None]], holds: Callable[[], bool], *, force: bool = False
    ) -> None:
        """Take the run, do `work` and perform what follows until `holds`, in the caller's own task as far as it goes.

        Raises:
            UsageError: `work` was misuse.
            RunConflict: Another driver has the run.
            StoreError: The store failed; the driver accepts nothing any more.
        """
        if self._group is not None:
            self._guests += 1
            try:
                await self.acquire(force=force)
                slot = await work()
                if slot is not None and slot.take is not None:
                    self._set_going(slot.take, slot)
                await self.until_holds(holds)
            finally:
                self._guests -= 1
                self._look()
            self.raise_stopped()
            return
        error: BaseException | None = None
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                self.host = current_host()
                try:
                    self._begin(group)
                    await self.acquire(force=force)
                    slot = await work()
                    if slot is not None and slot.take is not None:
                        await self._chain(slot.take)
                    await self.until_holds(holds)
                    await self.until_holds(lambda: self._guests == 0)
                except anyio.get_cancelled_exc_class():
                    await self._close_off("the host was cancelled")
                    raise
                except BaseException as raised:  # noqa: BLE001  # raised again below, outside the group that would wrap it
                    error = raised
                finally:
                    await self._finish(group, error)
            self._raise_outcome(error)
        finally:
            del error  # it knows this frame: a cycle that would keep the run

    def _raise_outcome(self, error: BaseException | None) -> None:
        """Raise what ends the host's verb, if something does."""
        fatal, self.fatal = self.fatal, None
        if fatal is not None:
            raise fatal
        if error is not None and (self.broken is None or isinstance(self.broken, Exception)):
            raise error
        self.raise_stopped()

    def _begin(self, group: TaskGroup) -> None:
        self.tenure.hurry(None)
        if not self.tenure.private:
            group.start_soon(self._keep_claim)
        if self.has_wall:
            self._deadline = None
            self._wind_timer()

    async def _finish(self, group: TaskGroup, error: BaseException | None) -> None:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            self.fatal = self.fatal or error
        if self.fatal is not None:
            await self._close_off(type(self.fatal).__name__)
        elif self.tree.root.live and self.tenure.held:
            await self._close_off(
                "the host left" if error is None else f"the host raised {type(error).__name__}"
            )
        elif self.tenure.held:
            await self._give_up()
        self._stand_down(group)

    async def _give_up(self) -> None:
        with anyio.CancelScope(shield=True):
            try:
                await self.release()
            except StoreError as failed:
                self.broken = self.broken or failed

    def _stand_down(self, group: TaskGroup) -> None:
        group.cancel_scope.cancel()
        self._group = None
        self.host = None
        self._deadline = None
        self._timer_scope = None
        self._look(stopped=True)

    async def _close_off(self, why: str) -> None:
        """Write down that the work was cut off: the fact first, the scopes after it."""
        self.tenure.hurry(self.crew.shutdown + PATIENCE)
        with anyio.CancelScope(shield=True):
            try:
                # A run that is not stored and not on its way there leaves no trace.
                begun = self.first is None or self.tree.run_id or self._queue
                if begun and self.broken is None:
                    await self.step(i.Cancel(why))
                await self.release()
            except StoreError as error:
                self.broken = self.broken or error

    def raise_stopped(self) -> None:
        """Raise what stopped the driver, if something did."""
        if self.fatal is not None:
            raise self.fatal
        if self.broken is not None:
            raise as_store_error(self.broken) if isinstance(self.broken, Exception) else self.broken

    async def enter(self) -> None:
        """Begin to work in the background, until `leave`."""
        if self._group is not None:
            raise UsageError("this runtime is at work already")
        group = anyio.create_task_group()
        await group.__aenter__()
        self._group = group
        self._begin(group)

    async def leave(self, *exc: Any) -> None:
        """Stop working in the background; what still runs is cut off and can be recovered."""
        group = self._group
        assert group is not None
        cancelled = isinstance(exc[1], anyio.get_cancelled_exc_class())
        try:
            if self.tree.root.live or self.fatal is not None:
                await self._close_off("the host left the runtime")
            else:
                await self._give_up()
        finally:
            self._stand_down(group)
            # Handed an error, the group would wrap it in an exception group.
            await group.__aexit__(*(exc if cancelled else (None, None, None)))
        if exc[0] is None:
            self._raise_outcome(None)
        self.fatal = None
