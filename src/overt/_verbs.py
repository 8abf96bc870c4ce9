"""The verbs with which a host moves the handles of a run itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from typing_extensions import TypeVar

from overt._given import prompt_given
from overt._reading import Reading, id_of
from overt._text import clean
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.desk import Refused
from overt.driver.caps import caps_of
from overt.errors import RunConflict, UsageError
from overt.handle import Handle
from overt.policy import Budget, InboxItem, PostResult
from overt.result import TaskResult

__all__ = ("Verbs",)

OutputT_co = TypeVar("OutputT_co", covariant=True, default=str)


class Verbs(Reading[OutputT_co]):
    """The part of a `Runtime` that moves single handles."""

    async def spawn(self, parent: Handle | str, agent: str, *, budget: Budget | None = None) -> Handle:
        """Add a child; it does nothing until it is woken.

        Args:
            parent: The parent; below the root any agent of the run may be spawned, elsewhere the parent's team.
            agent: The agent's name.
            budget: Caps in place of the agent's own; `None` takes those.

        Raises:
            SpawnRefused: Not in the team, too deep, or too many children; `limit` says which.
            HandleClosed: The parent is closed.
            UnknownHandle: The run has no such handle.
            RunConflict: Another driver has the run.
            SpecDrift: As `resume`.
            StoreError: The store failed; what was appended before stays valid.
        """
        parent_id = id_of(parent)
        facts = await self._verb(i.Spawn(parent_id, agent, None if budget is None else caps_of(budget)), None)
        (spawned,) = (fact for fact in facts if isinstance(fact, f.HandleSpawned))
        return Handle(spawned.handle, agent=agent)

    async def post(self, handle: Handle | str, item: InboxItem) -> PostResult:
        """Put an item into a handle's inbox; it is drained by the next wake and wakes nobody.

        Returns:
            `ok=False` with the reason when the inbox is full or the handle is closed.

        Raises:
            UnknownHandle: The run has no such handle.
            RunConflict: Another driver has the run.
            SpecDrift: As `resume`.
            StoreError: The store failed; what was appended before stays valid.
        """
        return await self._answered(
            i.Post(id_of(handle), clean(item.sender), clean(item.channel), clean(item.text)), None
        )

    async def wake(self, handle: Handle | str, prompt: str = "") -> PostResult:
        """Give a handle work: the prompt, and what lies in its inbox.

        Inside `async with runtime` this returns as soon as the wake is admitted or queued; outside, when it has settled
        or suspended.

        Returns:
            `ok=False` with the reason when the handle is at work already.

        Raises:
            AwaitingAnswer: The handle is suspended.
            HandleClosed: It is closed.
            UnknownHandle: The run has no such handle.
            UsageError: `prompt` is no text.
            RunConflict: Another driver has the run.
            SpecDrift: As `resume`.
            StoreError: The store failed; what was appended before stays valid.
        """
        id = id_of(handle)
        return await self._answered(
            i.Wake(id, prompt_given(prompt)), None if self._driver.live else self._settled(id)[0]
        )

    async def wait(self, handle: Handle | str, *, timeout: float | None = None) -> TaskResult[object]:
        """Wait until a handle's wake has settled or suspended, and return its result.

        Args:
            handle: The handle.
            timeout: Seconds; then the result has status `timeout` and the handle runs on. `None` waits for ever.

        Raises:
            UsageError: `timeout` is negative or no number.
            UnknownHandle: The run has no such handle.
            StoreError: The store failed, so that nothing goes on.
        """
        if timeout is not None and not timeout >= 0:
            raise UsageError(f"wait: timeout is a number of seconds from 0, or None, not {timeout!r}")
        node = self._node(handle)
        settled, found = self._settled(node.id)
        await self._driver.until_holds(settled, timeout=timeout)
        self._driver.raise_stopped()
        return found[0] if found else self._result(node)

    async def run_turn(self, handle: Handle | str, prompt: str) -> TaskResult[object]:
        """`wake`, then `wait`.

        Raises:
            UsageError: The handle is at work already, or `prompt` is no text.
            AwaitingAnswer: The handle is suspended.
            HandleClosed: It is closed.
            UnknownHandle: The run has no such handle.
            RunConflict: Another driver has the run.
            SpecDrift: As `resume`.
            StoreError: The store failed; what was appended before stays valid.
        """
        taken = await self.wake(handle, prompt)
        if not taken.ok:
            raise UsageError(f"run_turn: {taken.error}")
        return await self.wait(handle)

    async def interrupt(self, handle: Handle | str | None = None) -> None:
        """End the wake of a handle and of everything below it; status `interrupted`.

        Model calls in flight end and count as unreported; open requests are cancelled; a parent that waits for the
        handle gets an error result. Nothing happens to a handle that does not work.

        A call that is in doubt is not asked about, since its wake has ended; the text of the result names it.

        When the entry handle's wake is the one `run` began, the whole tree is closed with it: it can be read, but not
        woken again.

        A run that another process drives is interrupted by `store.interrupt(run_id)`, which asks its driver.

        Args:
            handle: The handle; `None`: the entry handle.

        Raises:
            UnknownHandle: The run has no such handle.
            UsageError: The run was never started.
            RunConflict: Another driver has the run.
            SpecDrift: As `resume`.
            StoreError: The store failed; what was appended before stays valid.
        """
        node = self._entry() if handle is None else self._node(handle)
        try:
            await self._verb(i.Interrupt(node.id), None)
        except RunConflict as conflict:
            raise RunConflict(
                f"{conflict}; `await store.interrupt({self.id!r})` asks whoever drives it",
                owner=conflict.owner,
                until=conflict.until,
            ) from conflict

    async def close(
        self, handle: Handle | str | None = None, *, force: bool = False, reason: str | None = None
    ) -> None:
        """Close a handle and everything below it, leaves first. It stays readable.

        Wakes that still run get `shutdown` seconds to settle, then they are interrupted.

        Args:
            handle: The handle; `None`: the whole tree.
            force: Do not wait.
            reason: Kept with the handle, and in the result of a wake that was ended by this.

        Raises:
            UnknownHandle: The run has no such handle.
            RunConflict: Another driver has the run.
            SpecDrift: As `resume`.
            StoreError: The store failed; what was appended before stays valid.
        """
        driver = self._driver
        if self._unstored():
            return
        node = driver.tree.root if handle is None else self._node(handle)
        if driver.live and node.live and not force:
            await driver.until_holds(lambda: node.live == 0, timeout=driver.crew.shutdown)
        await self._verb(i.Close(node.id, None if reason is None else clean(reason)), None)

    async def _verb(self, inp: i.Input, holds: Callable[[], bool] | None) -> Sequence[f.Fact]:
        driver = self._driver
        live = driver.live
        facts: list[f.Fact] = []

        async def work() -> Any:
            slot = await driver.step(inp, wants=True)
            facts.extend(slot.facts)
            return slot

        await driver.drive(work, holds or (_at_once if live else driver.quiet))
        return facts

    async def _answered(self, inp: i.Input, holds: Callable[[], bool] | None) -> PostResult:
        try:
            await self._verb(inp, holds)
        except Refused as refused:
            return PostResult(ok=False, error=refused.why)
        return PostResult(ok=True)

    async def _ended(
        self, work: Callable[[], Awaitable[Any]], handle: str, *, force: bool = False
    ) -> TaskResult[Any]:
        settled, found = self._settled(handle)
        await self._driver.drive(work, settled, force=force)
        return found[0] if found else self._result(self._node(handle))


def _at_once() -> bool:
    return True
