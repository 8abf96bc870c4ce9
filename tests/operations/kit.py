"""What the tests of operations share: agents that ask, runs that are parked, cut off or under way, and damage."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio

from overt import Agent, Answer, Options, Runtime, TaskResult, ToolContext, tool
from overt.core import facts as f
from overt.errors import StoreError
from overt.events import Event
from overt.journal.codec import decode
from overt.journal.listing import open_requests_of, run_status
from overt.journal.loading import folded
from overt.journal.record import Record
from overt.journal.store import Change, Owner
from overt.stores import MemoryStore, Store, StoreWrapper
from overt.testing import MockModel, Script, VirtualClock, call, say
from overt.testing.crashing import Crashed

START = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
GONE = Owner(id="gone")


@tool
async def look(what: str) -> str:
    """Look something up."""
    return f"{what} is fine"


@tool
async def ask(ctx: ToolContext[Any], what: str, hours: float = 0, kind: str = "approval") -> str:
    """Ask, with a time to answer by."""
    until = START + hours * HOUR if hours else None
    answer = await ctx.ask(f"{what}?", kind=kind, expires_at=until)
    return f"{what}: {'yes' if answer.ok else answer.reason}"


def clerk(*script: Any, name: str = "clerk") -> Agent[None, str]:
    """An agent that looks something up, asks, and says how it went; or does what the script says."""
    steps: Script = list(script) or [call("look", what="tea"), call("ask", what="Buy tea"), say("bought")]
    return Agent(name, does="Buys.", tools=[look, ask], model=MockModel(steps))


def asking(**arguments: Any) -> Agent[None, str]:
    """An agent that asks at once."""
    return clerk(call("ask", **arguments), say("done"))


BUYER_ASKS: Script = {
    "chief": [call("look", what="prices"), call("task", agent="buyer", prompt="buy"), say("all done")],
    "buyer": [call("look", what="shelves"), call("ask", what="Buy", hours=1), say("bought")],
}


def chief() -> Agent[None, str]:
    """An agent whose buyer asks, for an hour."""
    buyer = Agent("buyer", does="Buys.", tools=[look, ask])
    return Agent("chief", does="Leads.", tools=[look], team=[buyer], model=MockModel(BUYER_ASKS))


def options(store: Store, run_id: str, clock: VirtualClock | None = None) -> Options[None]:
    return {"store": store, "run_id": run_id, "clock": clock or VirtualClock(START)}


async def park(store: Store, run_id: str, agent: Agent[None, str], **more: Any) -> TaskResult[str]:
    """Run it to its first question."""
    result, _ = await agent.run("go", **{**options(store, run_id), **more})
    assert result.status == "pending", result
    return result


async def answer(store: Store, run_id: str, agent: Agent[None, str], *, ok: bool = True) -> TaskResult[str]:
    """Answer the first request of a parked run."""
    runtime = await Runtime.open(agent, run_id, store=store, clock=VirtualClock(START))
    return await runtime.resume(Answer(id=runtime.pendings()[0].id, ok=ok, by="ann"))


async def facts_of(store: Store, run_id: str) -> list[f.Fact]:
    """The whole journal."""
    return [fact for rec in await store.read(run_id) for fact in decode(run_id, rec)[1]]


async def copy(
    store: Store, run_id: str, into: Store, *, change: Callable[[list[Record]], list[Record]] = list
) -> None:
    """Write a run into a store, changed, and nobody drives it; the lists follow the journal, where it can be read."""
    info = await store.info(run_id)
    records = change(list(await store.read(run_id)))
    status, listed = info.status, tuple(await store.open_requests(run_id=run_id))
    with suppress(StoreError):
        tree, _ = folded(run_id, records)
        status, listed = run_status(tree), tuple(open_requests_of(tree))
    claim = await into.create(
        run_id, records, agent=info.agent, owner=GONE, now=info.created, until=info.created + HOUR
    )
    new = Change(status=status, at=info.updated, asked=listed)
    await into.append(run_id, (), after=records[-1].last, epoch=claim.epoch, change=new, release=True)


async def damaged(store: Store, run_id: str, agent: Agent[None, str]) -> None:
    """A parked run whose third record is none."""
    whole = MemoryStore()
    await park(whole, run_id, agent)

    def spoil(records: list[Record]) -> list[Record]:
        third = records[2]
        return [*records[:2], Record(third.position, third.count, text="{"), *records[3:]]

    await copy(whole, run_id, store, change=spoil)


class Inside:
    """A run whose tool calls `meanwhile` while it is inside."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self.entered = 0

        @tool
        async def work() -> str:
            """Work."""
            self.entered += 1
            await meanwhile()
            return "worked"

        self.agent: Agent[None, str] = Agent(
            "worker",
            does="Works.",
            tools=[work, ask],
            model=MockModel([call("work"), call("ask", what="Go on"), say("done")]),
        )


class Mortal(StoreWrapper):
    """A store whose process dies when it is told to, and leaves its claims behind."""

    dead = False

    async def die(self) -> None:
        self.dead = True
        await self.renew("", epoch=0, until=START)

    async def append(self, run_id: str, records: Sequence[Record], **more: Any) -> str | None:
        self._check()
        return await super().append(run_id, records, **more)

    async def renew(self, run_id: str, **more: Any) -> str | None:
        self._check()
        return await super().renew(run_id, **more)

    async def release(self, run_id: str, **more: Any) -> None:
        self._check()
        await super().release(run_id, **more)

    def _check(self) -> None:
        if self.dead:
            raise Crashed("the process died")


class Reader:
    """Reads events in a task of its own."""

    def __init__(self, events: AsyncIterator[Event]) -> None:
        self.events = events
        self.seen: list[Event] = []
        self._news = anyio.Event()

    async def read(self) -> None:
        async for event in self.events:
            self.seen.append(event)
            self._news.set()
            self._news = anyio.Event()

    async def until(self, kind: str) -> None:
        """Wait until an event of a kind has come."""
        while not self.has(kind):
            await self._news.wait()

    def has(self, kind: str) -> bool:
        return any(event.kind == kind for event in self.seen)
