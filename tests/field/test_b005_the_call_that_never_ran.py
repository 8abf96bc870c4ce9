"""B005: the process dies between two calls of one batch; the second is not skipped, and the model sees both results."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from tests.durability.deaths import STORES, opened_twice
from tests.field.apart import Notebook, apart, dies_apart

from overt import Agent, Answer, Runtime, Status, ToolContext, tool
from overt.message import AssistantMessage
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import MockModel, call, say
from overt.testing.crashing import CrashingStore

pytestmark = pytest.mark.anyio


class World:
    def __init__(self) -> None:
        self.ran: list[int] = []
        self.requests: list[Any] = []
        self.first_done = anyio.Event()

    def build(self, *, wait: bool, asks: bool = False) -> Agent[None, str]:
        world = self

        @tool
        async def step(ctx: ToolContext, n: int) -> str:
            """Do a step."""
            if n == 2 and wait:
                await world.first_done.wait()
                await anyio.wait_all_tasks_blocked()
                await anyio.Event().wait()
            if asks and n == 2:
                await ctx.ask("go on?")
            world.ran.append(n)
            world.first_done.set()
            return f"step {n}"

        def script(request: Any) -> Any:
            world.requests.append(request)
            called: list[str] = []
            for m in request.messages:
                if isinstance(m, AssistantMessage):
                    called += [c.id for c in m.tool_calls]
            answered = [m.call_id for m in request.messages if m.role == "tool"]
            assert answered == called, "a batch with a missing result"
            return say("end") if called else [call("step", n=1), call("step", n=2)]

        return Agent("w", does="works", tools=[step], model=MockModel(script))


async def test_the_second_call_is_executed_before_the_next_model_call() -> None:
    world = World()
    store = MemoryStore()
    runtime = Runtime(world.build(wait=True), store=store, run_id="r")
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.run, "go")
        await world.first_done.wait()
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert world.ran == [1]
    runtime = await Runtime.open(world.build(wait=False), "r", store=store)
    result = await runtime.recover()
    assert result.status is Status.DONE
    assert world.ran == [1, 2], "the first is not repeated, the second is not skipped"
    assert [m.text for m in runtime.transcript(result.handle) if m.role == "tool"] == ["step 1", "step 2"]


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_wherever_the_process_dies(when: Literal["before", "after"], kind: str, quick: Path) -> None:
    whole = CrashingStore(MemoryStore())
    await World().build(wait=False).run("go", store=whole)
    for crash_at in range(2, whole.appends + 1):
        world = World()
        async with opened_twice(kind, quick / f"{crash_at}.db") as (first, second):
            store = CrashingStore(first, crash_at=crash_at, when=when)
            with pytest.raises(BaseException):  # noqa: B017, PT011  # the process is dead, whatever comes out
                await world.build(wait=False).run("go", store=store, run_id="r")
            runtime = await Runtime.open(world.build(wait=False), "r", store=second)
            result = await runtime.recover()
        assert result.status is Status.DONE, f"{when} append {crash_at}"
        assert set(world.ran) == {1, 2}


async def begin_and_die(folder: Path) -> None:
    """Be killed in the second call, before it has done anything and when the result of the first is stored."""
    store = SQLiteStore(folder / "runs.db")

    async def die() -> None:
        position = 0
        while not any("call_returned" in one.text for one in await store.read("r")):
            position = await store.wait("r", after=position)
        os.kill(os.getpid(), signal.SIGKILL)

    await FileWorld(folder, die).build().run("go", store=store, run_id="r")


async def go_on(folder: Path) -> list[str]:
    store = SQLiteStore(folder / "runs.db")
    runtime = await Runtime.open(FileWorld(folder).build(), "r", store=store)
    result = await runtime.recover()
    await store.close()
    return [m.text for m in runtime.transcript(result.handle) if m.role == "tool"]


class FileWorld:
    """What outlives processes of their own."""

    def __init__(self, folder: Path, in_second: Callable[[], Awaitable[None]] | None = None) -> None:
        self.ran = Notebook(folder / "ran")
        self.in_second = in_second

    def build(self) -> Agent[None, str]:
        @tool
        async def step(n: int) -> str:
            """Do a step."""
            if n == 2 and self.in_second is not None:
                await self.in_second()
            self.ran.write(n)
            return f"step {n}"

        model = MockModel([[call("step", n=1), call("step", n=2)], say("end")])
        return Agent("w", does="works", tools=[step], model=model)


async def test_a_process_killed_between_the_two(tmp_path: Path) -> None:
    await dies_apart(begin_and_die, tmp_path)
    ran = Notebook(tmp_path / "ran")
    assert ran.read() == ["1"]
    assert await apart(go_on, tmp_path) == ["step 1", "step 2"]
    assert ran.read() == ["1", "2"], "the first is not repeated, the second is not skipped"


async def test_a_siblings_answer_does_not_complete_the_batch() -> None:
    """A call of the same tool that was answered does not stand in for the other one."""
    world = World()
    store = MemoryStore()
    result, _ = await world.build(wait=False, asks=True).run("go", store=store, run_id="r")
    assert result.pending is not None
    runtime = await Runtime.open(world.build(wait=False, asks=True), "r", store=store)
    result = await runtime.resume(Answer(id=result.pending.id, ok=True))
    assert result.status is Status.DONE
    assert [m.text for m in runtime.transcript(result.handle) if m.role == "tool"] == ["step 1", "step 2"]
