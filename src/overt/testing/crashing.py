"""A store whose process dies at a chosen append, and gates to hold appends back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final, Literal, Never, final

import anyio

from overt.journal.record import Record
from overt.journal.store import Change, Claim, OpenRequest, Owner, RunInfo, Store
from overt.journal.wrapper import StoreWrapper

__all__ = ("Crashed", "CrashingStore", "Gate")


class Crashed(BaseException):
    """The process is dead, as far as this store is concerned.

    Derives from `BaseException`, so that no `except Exception` carries on as a killed process could not.
    """


@final
class Gate:
    """Holds one append back, see [`CrashingStore.hold`][overt.testing.CrashingStore.hold]."""

    __slots__ = ("_open", "_reached")

    def __init__(self) -> None:
        self._reached = anyio.Event()
        self._open = anyio.Event()

    async def reached(self) -> None:
        """Wait until the append has come and is held."""
        await self._reached.wait()

    def release(self) -> None:
        """Let the append go on; before it has come, let it pass unheld."""
        self._open.set()

    async def wait(self) -> None:
        """Come to the gate and wait until it is released; the store's part."""
        self._reached.set()
        await self._open.wait()


@final
class CrashingStore(StoreWrapper):
    """Passes everything to `inner` until the process "dies" at one append, before or after it is written.

    From then on every method raises `Crashed`, so nothing the code under test does in its last moments is stored. The
    claims taken through this store become void at the same moment, as those of a dead process are, so the next
    process takes its runs at once.

    ```python
    import anyio

    from overt import Agent, Runtime
    from overt.stores import MemoryStore
    from overt.testing import Crashed, CrashingStore, MockModel

    agent = Agent("agent", does="Answers.", model=MockModel(["Done."]))
    store = CrashingStore(MemoryStore(), crash_at=2, when="before")

    async def main() -> None:
        try:
            await agent.run("Go.", run_id="r-1", store=store)
        except* Crashed:
            runtime = await Runtime.open(agent, "r-1", store=store.survivor)
            print(runtime.result().status, (await runtime.recover()).status)
            #> interrupted done

    anyio.run(main)
    ```

    Args:
        inner: Where everything is kept.
        crash_at: Which append dies, counted from 1 over all runs; a `create` is one, an append without records too.
            `None` for none.
        when: Whether that append is lost (`"before"`) or written (`"after"`).

    Raises:
        ValueError: `crash_at` is below 1.
    """

    def __init__(
        self, inner: Store, *, crash_at: int | None = None, when: Literal["before", "after"] = "before"
    ) -> None:
        if crash_at is not None and crash_at < 1:
            raise ValueError("appends are counted from 1")
        super().__init__(inner)
        self._crash_at: Final = crash_at
        self._cause = f"the process died at append {crash_at}"
        self._when: Final = when
        self._appends = 0
        self._crashed = False
        self._claims: dict[str, int] = {}
        self._gates: dict[int, Gate] = {}

    @property
    def appends(self) -> int:
        """How many appends have begun, creates and the one that crashed included."""
        return self._appends

    @property
    def crashed(self) -> bool:
        """Whether the process is dead."""
        return self._crashed

    @property
    def survivor(self) -> Store:
        """The inner store: what the next process finds."""
        return self.inner

    def hold(self, n: int) -> Gate:
        """Hold the `n`-th append back, before it is written, until the gate is released.

        Raises:
            ValueError: That append has begun already, or is held already.
        """
        if n <= self._appends or n in self._gates:
            raise ValueError(f"append {n} has begun already or is held already")
        gate = self._gates[n] = Gate()
        return gate

    def die(self) -> Never:
        """Let the process die here rather than at an append: in a tool, a model, a hook.

        An append that is under way may still be written. The claims become void with the next call this store gets,
        which the code under test makes on its way out. What else runs in that process goes on until it is cancelled or
        comes to the store; let it look at `crashed` where that matters.

        Raises:
            Crashed: Always.
        """
        if not self._crashed:
            self._crashed = True
            self._cause = "the process died between its appends"
        raise Crashed(self._cause)

    async def create(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        agent: str,
        owner: Owner,
        now: datetime,
        until: datetime,
    ) -> Claim:
        """`create` of the inner store, unless the process dies at it.

        Raises:
            Crashed: The process is dead.
        """
        crashes = await self._begin()
        claim = await self.inner.create(run_id, records, agent=agent, owner=owner, now=now, until=until)
        self._claims[run_id] = claim.epoch
        await self._end(crashes)
        return claim

    async def append(
        self,
        run_id: str,
        records: Sequence[Record],
        *,
        after: int,
        epoch: int,
        change: Change,
        release: bool = False,
    ) -> str | None:
        """`append` of the inner store, unless the process dies at it.

        Raises:
            Crashed: The process is dead.
        """
        crashes = await self._begin()
        mark = await self.inner.append(
            run_id, records, after=after, epoch=epoch, change=change, release=release
        )
        await self._end(crashes)
        return mark

    async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]:
        """`read` of the inner store.

        Raises:
            Crashed: The process is dead.
        """
        await self._check()
        return await self.inner.read(run_id, after=after)

    async def info(self, run_id: str) -> RunInfo:
        """`info` of the inner store.

        Raises:
            Crashed: The process is dead.
        """
        await self._check()
        return await self.inner.info(run_id)

    async def claim(
        self, run_id: str, *, owner: Owner, now: datetime, until: datetime, force: bool = False
    ) -> Claim:
        """`claim` of the inner store.

        Raises:
            Crashed: The process is dead.
        """
        await self._check()
        claim = await self.inner.claim(run_id, owner=owner, now=now, until=until, force=force)
        self._claims[run_id] = claim.epoch
        if self._crashed:
            # It died while the claim was under way.
            await self._die()
        return claim

    async def renew(self, run_id: str, *, epoch: int, until: datetime) -> str | None:
        """`renew` of the inner store.

        Raises:
            Crashed: The process is dead.
        """
        await self._check()
        return await self.inner.renew(run_id, epoch=epoch, until=until)

    async def release(self, run_id: str, *, epoch: int) -> None:
        """`release` of the inner store.

        Raises:
            Crashed: The process is dead.
        """
        await self._check()
        await self.inner.release(run_id, epoch=epoch)

    async def runs(
        self,
        *,
        status: str | Collection[str] | None = None,
        agent: str | None = None,
        older_than: datetime | None = None,
        limit: int | None = None,
    ) -> Sequence[RunInfo]:
        """`runs` of the inner store.

        Raises:
            Crashed: The process is dead.
        """
        await self._check()
        return await super().runs(status=status, agent=agent, older_than=older_than, limit=limit)

    async def open_requests(
        self,
        *,
        run_id: str | None = None,
        kind: str | None = None,
        agent: str | None = None,
        older_than: datetime | None = None,
        due: datetime | None = None,
        limit: int | None = None,
    ) -> Sequence[OpenRequest]:
        """`open_requests` of the inner store.

        Raises:
            Crashed: The process is dead.
        """
        await self._check()
        return await super().open_requests(
            run_id=run_id, kind=kind, agent=agent, older_than=older_than, due=due, limit=limit
        )

    async def ask_interrupt(self, run_id: str, *, reason: str = "") -> None:
        """`ask_interrupt` of the inner store.

        Raises:
            Crashed: The process is dead.
        """
        await self._check()
        await super().ask_interrupt(run_id, reason=reason)

    async def delete(self, run_id: str, *, now: datetime, force: bool = False) -> None:
        """`delete` of the inner store.

        Raises:
            Crashed: The process is dead.
        """
        await self._check()
        await super().delete(run_id, now=now, force=force)

    async def wait(self, run_id: str, *, after: int, timeout: float | None = None) -> int:
        """`wait` of the inner store.

        Raises:
            Crashed: The process is dead.
        """
        await self._check()
        return await super().wait(run_id, after=after, timeout=timeout)

    async def close(self) -> None:
        """Nothing: the inner store stays open for the next process.

        Raises:
            Crashed: The process is dead.
        """
        await self._check()

    async def _begin(self) -> bool:
        """Count an append and wait at its gate; return whether the process dies after it."""
        await self._check()
        self._appends += 1
        number = self._appends
        gate = self._gates.get(number)
        if gate is not None:
            await gate.wait()
            await self._check()
        if number != self._crash_at:
            return False
        if self._when == "before":
            await self._die()
        return True

    async def _end(self, crashes: bool) -> None:
        if crashes or self._crashed:
            await self._die()

    async def _die(self) -> Never:
        self._crashed = True
        with anyio.CancelScope(shield=True):
            while self._claims:
                run_id, epoch = self._claims.popitem()
                await self.inner.release(run_id, epoch=epoch)
        raise Crashed(self._cause)

    async def _check(self) -> None:
        if self._crashed:
            await self._die()
