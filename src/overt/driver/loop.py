"""The driver: one input at a time, durable before anything leaves, effects performed, their outcomes the next inputs.

A chain is a task that performs one effect after another: it hands in an outcome and takes one of the effects that
follow. So a run without parallel work needs no task but its caller's, and only what is parallel is spawned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from overt.clock import Clock
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.effects import (
    AskHost,
    CallModel,
    CallTool,
    Effect,
    Notify,
    Sleep,
)
from overt.core.tree import Tree
from overt.driver.alarm import Alarm
from overt.driver.audience import Audience
from overt.driver.buying import perform_sleep
from overt.driver.context import Host, current_host, pause_here, stop_if_cancelled
from overt.driver.crew import Crew
from overt.driver.gate import Gate
from overt.driver.holding import Holder
from overt.driver.metering import Watcher
from overt.driver.perform import perform_host, perform_model, perform_notify
from overt.driver.shown import Shown
from overt.driver.slot import Slot, store_error
from overt.driver.standing import has_cut, has_notices
from overt.driver.tenure import Tenure
from overt.driver.toolcall import perform_tool
from overt.driver.watches import Watch
from overt.errors import SpecDrift, StoreError, UsageError
from overt.journal.loading import Log
from overt.journal.store import Store
from overt.message import Model

__all__ = ("Driver",)

ENDS = frozenset({f.EffectLost, f.AnswerGiven, f.RequestCancelled})
"""Facts that end an effect somebody else performs."""

RESTS = frozenset({f.WakeSettled, f.WakeParked, f.WakeDropped, f.WakeGivenUp})
"""Facts after which a wake does not go on by itself."""

PATIENCE = 5.0
"""Seconds, beside `shutdown`, the store has to take what closes the journal off."""


class Driver(Holder):
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
        tenure = Tenure(store, clock, seconds=crew.claim, private=private)
        super().__init__(tenure, clock, first=first, tree=tree, log=log)
        self.crew = crew
        self.fatal: BaseException | None = None
        self.gate: Gate = Gate(crew.max_concurrent_turns)
        self.shown: dict[str, Shown] = {}
        """What the model of each handle has been shown."""
        self.pause: Callable[[], Awaitable[None]] = checkpoint
        """A cancellation point that lets others run."""
        self._group: TaskGroup | None = None
        self._spawned = False
        """Whether the group has had a task."""
        self._scopes: dict[int, anyio.CancelScope] = {}
        self._mine: set[int] = set()
        """Effects handed out here that are not closed."""
        self._at_work = 0
        """Effects handed to a chain and not through."""
        self.host: Host | None = None
        """The asyncio task that performs effects although it is not the driver's own."""
        self._verbs = 0
        """Verbs that count on the claim: they have taken it, and are not decided yet."""
        self._guests = 0
        """Verbs that wait while another one, or `async with`, owns the tasks."""
        self._alarm = Alarm()
        self.audience: Audience = Audience()
        """Hears what models say while they say it."""
        self.models: dict[str, Model] = {}
        """Models in place of the agent's own, by handle, until its wake has settled or parked."""
        if crew.watched:
            self.listeners.append(Watcher(self))

    @property
    def live(self) -> bool:
        """Whether this driver is at work."""
        return self._group is not None

    # ------------------------------------------------------------ store

    def _break(self, error: BaseException) -> None:
        """Accept nothing any more: the tree in memory may be ahead of the journal."""
        self._fail(error)
        self.tenure.stop()
        self._drop_everything()

    def end_process(self, error: BaseException) -> None:
        """Stop because something is to end the whole process; the host's verb raises it."""
        self.fatal = self.fatal or error
        self._drop_everything()

    def _drop_everything(self) -> None:
        for scope in list(self._scopes.values()):
            scope.cancel()
        self._look()

    # ------------------------------------------------------------ effects

    def _dispatch(self, slots: Sequence[Slot]) -> None:
        tree = self.tree
        if self.models:
            self._forget_models(slots)
        # Only these end an effect that somebody performs; looking for them is cheaper than at every effect, every time.
        if any(type(fact) in ENDS for slot in slots for fact in slot.facts):
            for id in [id for id in self._scopes if id not in tree.open]:
                self._scopes.pop(id).cancel()
            self._mine &= tree.open.keys()
        for slot in slots:
            for id in slot.effects:
                effect = tree.open.get(id)
                if effect is None:
                    continue
                self._mine.add(id)
                self._at_work += 1
                owner = slot.owner
                if owner.wants and owner.take is None and owner.error is None:
                    owner.take = effect
                else:
                    self._set_going(effect, owner)
        self._next = tree.next_effect
        if tree.has_wall or tree.expiring or self._alarm.wound:
            self._alarm.wind(self, working=self._at_work > 0)
        if self._watches:
            self._look()

    def _forget_models(self, slots: Sequence[Slot]) -> None:
        for slot in slots:
            for fact in slot.facts:
                if type(fact) in RESTS:
                    self.models.pop(getattr(fact, "handle", ""), None)

    def _look(self, *, stopped: bool = False) -> None:
        self._watches.wake(stopped=stopped or self._stopped())

    def _obey_anew(self) -> None:
        self._at_work += 1
        self.spawn(self._heed_at_work)

    async def _heed_at_work(self) -> None:
        try:
            await self._heed()
        finally:
            self._at_work -= 1
            self._look()

    async def _heed(self) -> None:
        try:
            await self.decided(_nothing)
            if self._may_release():
                await self.release()
        except (StoreError, SpecDrift):
            pass  # the mark is there for whoever takes the run next

    def _stopped(self) -> bool:
        return self._group is None or self.broken is not None or self.fatal is not None

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run something beside everything else."""
        if self._group is None:
            raise RuntimeError("the driver is not at work")
        self._spawned = True
        self._group.start_soon(work)

    def _set_going(self, effect: Effect, owner: Slot) -> None:
        # In the context of whoever led to it; another's step may have appended it.
        if self._group is not None:
            owner.context.run(self.spawn, partial(self._chain, effect))

    async def _chain(self, effect: Effect | None) -> None:
        """Perform an effect, and then one of those that follow, until there is none to take."""
        here = current_host()
        # The host's own task is the only one that others cancel as such.
        host = here if here is self.host else None
        before = 0 if host is None else host.cancelling()
        with anyio.CancelScope() as scope:
            while effect is not None:
                try:
                    slot = await self._perform_one(effect, scope, before, own=host is None)
                finally:
                    self._at_work -= 1
                effect = None if slot is None else slot.take
                if slot is not None and effect is not None and scope.cancel_called:
                    # This chain was cancelled between the append and here: the effect is somebody else's now.
                    self._set_going(effect, slot)
                    return
                if host is not None and host.cancelling() > before:
                    break
        if host is not None and host.cancelling() > before:
            # Code that swallowed the cancellation of the host's task does not keep the host.
            await stop_if_cancelled(before, self.host)
        if self._watches and not self._at_work:
            self._look()

    async def _perform_one(
        self, effect: Effect, scope: anyio.CancelScope, before: int, *, own: bool
    ) -> Slot | None:
        id = effect.id
        if self.broken is not None or self.fatal is not None or id not in self.tree.open:
            return None
        self._scopes[id] = scope
        try:
            outcome = await self._perform(effect, before)
        except (KeyboardInterrupt, SystemExit) as error:
            self.end_process(error)
            return None
        except BaseException as error:  # noqa: BLE001  # the store's, or a fault of ours
            if not isinstance(error, Exception):
                await stop_if_cancelled(before, self.host)
            self._break(error)
            return None
        finally:
            self._scopes.pop(id, None)
        try:
            return await self.step(outcome, wants=True, own=own)
        except StoreError:
            return None
        finally:
            self._mine.discard(id)

    def _perform(self, effect: Effect, before: int) -> Awaitable[i.Input]:
        if isinstance(effect, CallModel):
            return perform_model(self, effect, before)
        if isinstance(effect, CallTool):
            return perform_tool(self, effect, before)
        if isinstance(effect, AskHost):
            return perform_host(self, effect, before)
        if isinstance(effect, Notify):
            return perform_notify(self, effect, before)
        if isinstance(effect, Sleep):
            return perform_sleep(self, effect)
        from overt.driver.ruling import perform_rule  # loaded by the first run that has rules

        return perform_rule(self, effect, before)

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

    async def at_rest(self) -> None:
        """Wait until the run has begun, and nothing is at work on it here.

        Raises:
            StoreError: The store failed; this driver has stopped.
        """

        def rests() -> bool:
            return self.tree.entry is not None and self.resting

        while not rests() and self.broken is None:
            watch = self._watches.add(rests)
            try:
                await watch.event.wait()
            finally:
                self._watches.remove(watch)
        if self.broken is not None:
            self.raise_stopped()

    def _idle(self) -> bool:
        return not self.working

    @property
    def working(self) -> bool:
        """Whether something is being decided or performed here; what else the journal shows under way is not."""
        return self._group is not None and (self._at_work > 0 or self._pumping or bool(self._queue))

    @property
    def resting(self) -> bool:
        """Whether nothing is at work here, and no verb is about to be."""
        return not (self.working or self._verbs)

    def tells(self, below: str = "root") -> bool:
        """Whether `on_pending` is being told of something in a handle or below it."""
        return self.crew.on_pending is not None and has_notices(
            self.tree, mine=self._mine, before=self._next, below=below
        )

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
                    self._set_going(slot.take, slot)
                await self._until(watch)
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
                    await self._unbroken(partial(self._close_off, "the host was cancelled"))
                    raise
                except BaseException as raised:  # noqa: BLE001  # raised again below, outside the group that would wrap it
                    error = raised
                finally:
                    await self._finish(group, error)
            await self.tenure.let_go(self.tree.run_id)
            self._raise_outcome(error)
        except anyio.get_cancelled_exc_class():
            if self.fatal is None:
                raise
            # What is to end the process is not lost in the end of a task; a later verb would raise it.
            self._raise_outcome(None)
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
        self.pause = pause_here()
        self.tenure.hurry(None)
        self._at_work = 0
        self._keeping = False
        self._alarm.forget()

    async def _finish(self, group: TaskGroup, error: BaseException | None) -> None:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            self.fatal = self.fatal or error
        try:
            if self.fatal is not None:
                await self._unbroken(partial(self._close_off, type(self.fatal).__name__))
            elif self._at_work and self.tree.root.live and self.broken is None:
                await self._unbroken(partial(self._close_off, "the verb it ran beside returned"))
            elif self.tenure.held:
                await self._give_up()
        finally:
            self._stand_down(group)

    async def _give_up(self) -> None:
        with anyio.CancelScope(shield=True):
            try:
                await self.release()
            except StoreError as failed:
                self._break(failed)

    def _stand_down(self, group: TaskGroup) -> None:
        # Cancelling costs a turn of the event loop; a run without parallel work has nothing to cancel.
        if self._spawned:
            group.cancel_scope.cancel()
        self._spawned = False
        self._group = None
        self.host = None
        self._mine.clear()
        self.models.clear()
        self._alarm.forget()
        self._look(stopped=True)

    async def _close_off(self, why: str) -> None:
        """Write down that the work was cut off: the fact first, the scopes after it."""
        self.tenure.hurry(self.crew.shutdown + PATIENCE)
        try:
            # What is on its way into the store is there first; a run that is not even that leaves no trace.
            if (self.tenure.held or self._pumping) and self.broken is None:
                await self.step(i.Cancel(why))
            await self.release()
        except StoreError as error:
            if self.broken is None:
                self._break(error)

    def raise_stopped(self) -> None:
        """Raise what stopped the driver, if something did."""
        if self.fatal is not None:
            raise self.fatal
        if self.broken is not None:
            raise store_error(self.broken) if isinstance(self.broken, Exception) else self.broken

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
                await self._unbroken(partial(self._close_off, "the host left the runtime"))
            else:
                await self._give_up()
        finally:
            self._stand_down(group)
            # A task group would wrap what the host raised; only its own cancellation has to go through it.
            cancelled = isinstance(exc[1], anyio.get_cancelled_exc_class())
            await group.__aexit__(*(exc if cancelled else (None, None, None)))
        await self.tenure.let_go(self.tree.run_id)
        if exc[0] is None:
            self._raise_outcome(None)
        self.fatal = None


async def _nothing() -> None:
    """Taking the run is all there is to do."""
