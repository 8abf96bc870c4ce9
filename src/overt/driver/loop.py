"""The driver: one input at a time, durable before anything leaves, effects performed, their outcomes the next inputs.

A chain is a task that performs one effect after another: it hands in an outcome and takes one of the effects that
follow. So a run without parallel work needs no task but its caller's, and only what is parallel is spawned.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from overt.clock import Clock, SystemClock
from overt.core import inputs as i
from overt.core.decide import decide
from overt.core.desk import Refused
from overt.core.effects import AskHost, CallModel, CallTool, Effect
from overt.core.tree import Tree
from overt.driver.alarm import Alarm
from overt.driver.context import cancellations, pause_here
from overt.driver.crew import Crew
from overt.driver.gate import Gate
from overt.driver.loading import Log, refold
from overt.driver.perform import perform_host, perform_model, perform_notify
from overt.driver.shown import Shown
from overt.driver.slot import Slot, store_error
from overt.driver.standing import has_cut, has_notices
from overt.driver.tenure import Tenure, run_status
from overt.driver.toolcall import perform_tool
from overt.driver.watches import Watch, Watches
from overt.errors import StoreError, UsageError
from overt.journal.codec import record
from overt.journal.record import Record
from overt.journal.store import Store

__all__ = ("Driver",)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
        self.tenure: Tenure = Tenure(store, clock, seconds=crew.claim, private=private)
        self.tree: Tree = tree
        self.log = log
        self.first = first
        """What opens the run, until it is stored."""
        self.broken: BaseException | None = None
        self.fatal: BaseException | None = None
        self.gate: Gate = Gate(crew.max_concurrent_turns)
        self.shown: dict[str, Shown] = {}
        """What the model of each handle has been shown."""
        self.drift: str | None = None
        """The plan this process was given, until it is known to be the recorded one."""
        self.pause: Callable[[], Awaitable[None]] = checkpoint
        """A cancellation point that lets others run."""
        self._group: TaskGroup | None = None
        self._spawned = False
        """Whether the group has had a task."""
        self._queue: deque[Slot] = deque()
        self._pumping = False
        self._next = self.tree.next_effect
        self._scopes: dict[int, anyio.CancelScope] = {}
        self._mine: set[int] = set()
        """Effects handed out here that are not closed."""
        self._watches = Watches()
        self._at_work = 0
        """Effects handed to a chain and not through."""
        self._claim = anyio.Lock(fast_acquire=True)
        """Held while the claim is taken or given up."""
        self._verbs = 0
        """Verbs that count on the claim: they have taken it, and are not decided yet."""
        self._guests = 0
        """Verbs that wait while another one, or `async with`, owns the tasks."""
        self._alarm = Alarm(self)

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
        slots = [Slot(inp, wants=False) for inp in inputs]
        last = slots[-1]
        last.wants = wants
        if self.first is not None and not self.tree.run_id and not self._queue:
            self._queue.append(Slot(self.first, wants=False))
        self._queue.extend(slots)
        if self._pumping:
            last.done = anyio.Event()
            with anyio.CancelScope(shield=True):
                await last.done.wait()
        else:
            self._pumping = True
            try:
                while self._queue:
                    await self._pump()
            finally:
                self._pumping = False
                self._look()
        for slot in slots:
            if slot.error is not None:
                raise slot.error
        return last

    def _step_now(self, inp: i.Input, *, wants: bool) -> Slot:
        """Work off one input where an append never waits: nothing can come between."""
        if self.broken is not None:
            raise store_error(self.broken)
        slot = Slot(inp, wants=wants)
        tree = self.tree
        after, durable = tree.seq, len(self.log)
        try:
            facts = slot.facts = decide(tree, inp, self.now())
            if facts:
                self.log.append((after + 1, tree.now, facts))
                self.tenure.append_now(
                    tree.run_id,
                    (record(after + 1, tree.now, facts),),
                    after=after,
                    status=run_status(tree),
                    release=self._may_release(),
                )
        except (UsageError, Refused):
            raise
        except BaseException as error:
            self._break(error)
            self.tree = refold(self.log, durable)
            raise store_error(error) from error
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
        after, durable = self.tree.seq, len(self.log)
        try:
            while self._queue:
                slot = self._queue.popleft()
                slots.append(slot)
                try:
                    facts = slot.facts = decide(self.tree, slot.input, now)
                except (UsageError, Refused) as error:
                    slot.error = error
                    continue
                if facts:
                    position = self.tree.seq - len(facts) + 1
                    records.append(record(position, self.tree.now, facts))
                    self.log.append((position, self.tree.now, facts))
                    self._watches.note()
            if records:
                await self._append(records, after)
        except BaseException as error:
            self._break(error)
            self.tree = refold(self.log, durable)
            for slot in slots:
                slot.error = slot.error or store_error(error)
                if slot.done is not None:
                    slot.done.set()
            self._refuse_all()
            if not isinstance(error, Exception):
                raise
            return
        if records:
            self._dispatch(slots)
        for slot in slots:
            if slot.done is not None:
                slot.done.set()

    def _refuse_all(self) -> None:
        while self._queue:
            slot = self._queue.popleft()
            slot.error = store_error(self.broken or StoreError("the driver has stopped"))
            if slot.done is not None:
                slot.done.set()

    def _break(self, error: BaseException) -> None:
        self.broken = error
        self.tenure.stop()
        for scope in list(self._scopes.values()):
            scope.cancel()
        self._look()

    # ------------------------------------------------------------ store

    async def _append(self, records: Sequence[Record], after: int) -> None:
        tree = self.tree
        release = self._may_release()
        if self.first is not None:
            await self.tenure.create(self.first, records)
            self.first = None
            if not release:
                return
            records, after = (), tree.seq
        append = partial(self.tenure.append, tree.run_id, records, after=after, status=run_status(tree))
        if not release:
            await append(release=False)
            return
        async with self._claim:
            await append(release=self._may_release())

    async def acquire(self, *, force: bool = False) -> None:
        """Take the claim on the run, and catch up with what another process has done since.

        Raises:
            RunConflict: Another driver has it.
        """
        if self.broken is not None:
            raise store_error(self.broken)
        async with self._claim:
            if self.first is not None or self.tenure.held:
                return
            await self.tenure.take(self.tree, self.log, force=force)
            self._next = self.tree.next_effect
            if self.tree.root.active:
                await self.step(i.TakeOver())
            if self.drift is not None:
                drift, self.drift = self.drift, None
                await self.step(i.Drift(drift))

    async def release(self) -> None:
        """Give the claim up, if it is held."""
        async with self._claim:
            if self.broken is None:
                await self.tenure.give_up(self.tree.run_id)

    async def check_claim(self) -> None:
        """Make sure the run is still this driver's before something is entered that cannot be undone.

        Raises:
            StoreError: It is not, or nobody can tell; this driver stops.
        """
        try:
            await self.tenure.check(self.tree.run_id)
        except StoreError as error:
            self._break(error)
            raise

    async def _keep_claim(self) -> None:
        """Renew the claim for as long as the driver works."""
        while True:
            await self.clock.sleep(self.tenure.seconds / 3)
            try:
                if self.broken is None:
                    await self.tenure.renew(self.tree.run_id)
            except StoreError as error:
                self._break(error)
                return

    # ------------------------------------------------------------ effects

    def _dispatch(self, slots: Sequence[Slot]) -> None:
        tree = self.tree
        if self._scopes:
            for id in [id for id in self._scopes if id not in tree.open]:
                self._scopes.pop(id).cancel()
        self._mine &= tree.open.keys()
        takers = iter([slot for slot in slots if slot.wants])
        for id in range(self._next, tree.next_effect):
            effect = tree.open.get(id)
            if effect is None:
                continue
            self._mine.add(id)
            self._at_work += 1
            taker = next(takers, None)
            if taker is not None:
                taker.take = effect
            else:
                self.spawn(partial(self._chain, effect))
        self._next = tree.next_effect
        if tree.has_wall:
            self._alarm.wind(working=self._at_work > 0)
        if self._watches:
            self._look()

    def _look(self, *, stopped: bool = False) -> None:
        self._watches.wake(stopped=stopped or self._stopped())

    def _stopped(self) -> bool:
        return self._group is None or self.broken is not None or self.fatal is not None

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something beside everything else."""
        if self._group is None:
            raise RuntimeError("the driver is not at work")
        self._spawned = True
        self._group.start_soon(work)

    async def _chain(self, effect: Effect | None) -> None:
        """Perform an effect, and then one of those that follow, until there is none to take."""
        before = cancellations()
        with anyio.CancelScope() as scope:
            while effect is not None:
                try:
                    effect = await self._perform_one(effect, scope, before)
                finally:
                    self._at_work -= 1
                if scope.cancel_called and effect is not None:
                    # This chain was cancelled between the append and here: the effect is somebody else's now.
                    self.spawn(partial(self._chain, effect))
                    return
        if self._watches and not self._at_work:
            self._look()

    async def _perform_one(self, effect: Effect, scope: anyio.CancelScope, before: int) -> Effect | None:
        id = effect.id
        if self.broken is not None or self.fatal is not None or id not in self.tree.open:
            return None
        self._scopes[id] = scope
        try:
            outcome = await self._perform(effect, before)
        except (KeyboardInterrupt, SystemExit) as error:
            self.fatal = error
            self._look()
            return None
        except StoreError as error:
            self._break(error)
            return None
        finally:
            self._scopes.pop(id, None)
        try:
            return (await self.step(outcome, wants=True)).take
        except StoreError:
            return None

    def _perform(self, effect: Effect, before: int) -> Awaitable[i.Input]:
        if isinstance(effect, CallModel):
            return perform_model(self, effect, before)
        if isinstance(effect, CallTool):
            return perform_tool(self, effect, before)
        if isinstance(effect, AskHost):
            return perform_host(self, effect, before)
        return perform_notify(self, effect, before)

    # ------------------------------------------------------------ being driven

    async def until_holds(self, holds: Callable[[], bool], *, timeout: float | None = None) -> bool:
        """Wait until something is so, or cannot become so, or `timeout` seconds are over; say whether it is so.

        It cannot when the driver is stopped, or nothing is being performed.
        """
        return await self._until(self._watches.add(holds, self._idle), timeout=timeout)

    async def _until(self, watch: Watch, *, timeout: float | None = None) -> bool:
        scope = anyio.CancelScope()

        async def timer(seconds: float) -> None:
            with scope:
                await self.clock.sleep(seconds)
            watch.event.set()

        try:
            # What an append under way has decided is not so before it is durable.
            if self._pumping or not (watch.look() or watch.over() or self._stopped()):
                if timeout is not None:
                    self.spawn(partial(timer, timeout))
                await watch.event.wait()
        finally:
            self._watches.remove(watch)
            scope.cancel()
        return watch.look()

    def _idle(self) -> bool:
        return not self.working

    @property
    def working(self) -> bool:
        """Whether something is being decided or performed here; what else the journal shows under way is not."""
        return self._group is not None and (self._at_work > 0 or self._pumping or bool(self._queue))

    def tells(self) -> bool:
        """Whether `on_pending` is still to be told of something."""
        return self.crew.on_pending is not None and has_notices(self.tree)

    def quiet(self) -> bool:
        """Whether nothing runs, waits for a slot, or has to be told."""
        return self.tree.root.live == 0 and not self.tells()

    def _may_release(self) -> bool:
        return self._verbs == 0 and self.quiet()

    def cut(self) -> bool:
        """Whether the journal holds work under way that this driver is not performing."""
        return has_cut(self.tree, mine=self._mine, before=self._next)

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
                slot = await self.decided(work, force=force)
                if self.tenure.held and self._may_release():
                    await self.release()
                watch = self._watches.add(holds, self._idle)
                if slot is not None and slot.take is not None:
                    self.spawn(partial(self._chain, slot.take))
                await self._until(watch)
            finally:
                self._guests -= 1
                self._look()
            self.raise_stopped()
            return
        error: BaseException | None = None
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                self._begin(group)
                slot = await self.decided(work, force=force)
                watch = self._watches.add(holds, self._idle)
                try:
                    if slot is not None and slot.take is not None:
                        await self._chain(slot.take)
                except BaseException:
                    self._watches.remove(watch)
                    raise
                await self._until(watch)
                # The tasks are this verb's, and work that was set going beside it is not cut off.
                await self._until(self._watches.add(lambda: self._guests == 0 and self._at_work == 0))
            except anyio.get_cancelled_exc_class():
                await self._close_off("the host was cancelled")
                raise
            except BaseException as raised:  # noqa: BLE001  # raised again below, outside the group that would wrap it
                error = raised
            finally:
                await self._finish(group, error)
        await self.tenure.let_go(self.tree.run_id)
        if error is not None:
            raise error
        self.raise_stopped()

    async def decided(
        self, work: Callable[[], Awaitable[Slot | None]], *, force: bool = False
    ) -> Slot | None:
        """Take the claim and do `work` under it, whatever else comes to rest meanwhile."""
        self._verbs += 1
        try:
            await self.acquire(force=force)
            return await work()
        finally:
            self._verbs -= 1

    def _begin(self, group: TaskGroup) -> None:
        self._at_work = 0
        self.pause = pause_here()
        if not self.tenure.private:
            self.spawn(self._keep_claim)
        self._alarm.forget()

    async def _finish(self, group: TaskGroup, error: BaseException | None) -> None:
        fatal = self.fatal or (error if isinstance(error, (KeyboardInterrupt, SystemExit)) else None)
        if fatal is not None:
            await self._close_off(type(fatal).__name__)
        elif self._at_work and self.tree.root.live and self.broken is None:
            await self._close_off("the verb it ran beside returned")
        elif self.tenure.held:
            with anyio.CancelScope(shield=True):
                try:
                    await self.release()
                except StoreError as failed:
                    self.broken = self.broken or failed
        self._stand_down(group)

    def _stand_down(self, group: TaskGroup) -> None:
        # Cancelling costs a turn of the event loop; a run without parallel work has nothing to cancel.
        if self._spawned:
            group.cancel_scope.cancel()
        self._spawned = False
        self._group = None
        self._mine.clear()
        self._alarm.forget()
        self._look(stopped=True)

    async def _close_off(self, why: str) -> None:
        """Write down that the work was cut off: the fact first, the scopes after it."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(self.crew.shutdown + 5, shield=True):
            try:
                if self.tenure.held and self.broken is None:
                    await self.step(i.Cancel(why))
                await self.release()
            except StoreError as error:
                self.broken = error

    def raise_stopped(self) -> None:
        """Raise what stopped the driver, if something did."""
        if self.fatal is not None:
            fatal, self.fatal = self.fatal, None
            raise fatal
        if self.broken is not None:
            raise store_error(self.broken)

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
        try:
            if self.tree.root.live or self.fatal is not None:
                await self._close_off("the host left the runtime")
            else:
                with anyio.CancelScope(shield=True):
                    try:
                        await self.release()
                    except StoreError as error:
                        self.broken = self.broken or error
        finally:
            self._stand_down(group)
            # A task group would wrap what the host raised; only its own cancellation has to go through it.
            cancelled = isinstance(exc[1], anyio.get_cancelled_exc_class())
            await group.__aexit__(*(exc if cancelled else (None, None, None)))
        await self.tenure.let_go(self.tree.run_id)
        if exc[0] is None:
            self.raise_stopped()
