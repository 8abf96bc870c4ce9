"""A run that is interrupted from another process: by a mark in the store, which its driver obeys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint
from tests.postgres import Place

from overt import Agent, Answer, Options, Runtime, ToolContext, tool
from overt.errors import AlreadyAnswered
from overt.result import State
from overt.stores import MemoryStore, SQLiteStore, Store
from overt.testing import MockModel, VirtualClock, call, say

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "postgres":
        postgres: Place = request.getfixturevalue("postgres")
        return postgres.store()
    return MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "runs.db")


class Desk:
    """A run whose first tool calls `meanwhile` while it is inside."""

    def __init__(self, store: Store, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self.entered: list[str] = []

        @tool
        async def first() -> str:
            """Begin."""
            self.entered.append("first")
            await meanwhile()
            return "begun"

        @tool
        async def second() -> str:
            """Go on."""
            self.entered.append("second")
            return "gone on"

        @tool
        async def ask(ctx: ToolContext) -> str:
            """Ask."""
            self.entered.append("ask")
            return str((await ctx.ask("Go on?")).ok)

        agent = Agent("clerk", does="Works.", tools=[first, second, ask])
        self.agent = agent
        script = [call("first"), call("second"), say("done")]
        self.clock = VirtualClock()
        self.options: Options = {
            "model": MockModel(script),
            "store": store,
            "clock": self.clock,
            "run_id": "run",
        }


async def test_a_driver_obeys_at_its_next_step(store: Store) -> None:
    desk = Desk(store, lambda: store.ask_interrupt("run", reason="changed my mind"))
    runtime = Runtime(desk.agent, **desk.options)
    result = await runtime.run("go")
    assert result.status == "interrupted"
    assert "changed my mind" in result.text
    assert desk.entered == ["first"]
    assert result.total_tokens == 100
    info = await store.info("run")
    assert (info.status, info.interrupt, info.owner) == ("interrupted", None, None)
    assert runtime.inspect("root/clerk.1").state is State.CLOSED
    await store.close()


async def test_a_driver_obeys_while_a_tool_is_inside(store: Store) -> None:
    """It hears of it when it renews its claim."""
    inside = anyio.Event()

    async def for_ever() -> None:
        inside.set()
        await anyio.sleep_forever()

    desk = Desk(store, for_ever)
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            result, _ = await desk.agent.run("go", **desk.options)
            assert result.status == "interrupted"

        tasks.start_soon(run)
        await inside.wait()
        await store.ask_interrupt("run")
        await desk.clock.advance(10)
    assert (await store.info("run")).interrupt is None
    await store.close()


async def parked(store: Store) -> tuple[Desk, Runtime[str], str]:
    desk = Desk(store, checkpoint)
    desk.options["model"] = MockModel([call("ask"), say("done")])
    runtime = Runtime(desk.agent, **desk.options)
    result = await runtime.run("go")
    assert result.pending is not None
    return desk, runtime, result.pending.id


async def test_whoever_takes_a_parked_run_next_obeys_first(store: Store) -> None:
    desk, _, id = await parked(store)
    await store.ask_interrupt("run", reason="stop it")
    runtime = await Runtime.open(desk.agent, "run", **desk.options)
    with pytest.raises(AlreadyAnswered, match="cancelled"):
        await runtime.resume(Answer(id=id, ok=True))
    assert runtime.result().status == "interrupted"
    assert desk.entered == ["ask"]
    assert await store.open_requests() == []
    assert (await store.info("run")).interrupt is None
    await store.close()


async def test_recover_obeys_too(store: Store) -> None:
    desk, _, _ = await parked(store)
    await store.ask_interrupt("run", reason="stop it")
    runtime = await Runtime.open(desk.agent, "run", **desk.options)
    result = await runtime.recover()
    assert result.status == "interrupted"
    assert (await store.info("run")).interrupt is None
    await store.close()


async def test_a_run_that_has_ended_forgets_the_mark(store: Store) -> None:
    desk = Desk(store, checkpoint)
    loop = desk.agent.loop(**desk.options)
    first = await loop.run("go")
    assert first.status == "done"
    await store.ask_interrupt("run")
    second = await loop.run("again")
    assert second.status == "done"
    assert (await store.info("run")).interrupt is None
    await store.close()
