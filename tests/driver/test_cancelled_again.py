"""A host task that is cancelled more than once, or while the claim is taken or given up: asyncio alone does that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from overt import Agent, Answer, Runtime, ToolContext, ToolResult, pending, tool
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say
from tests.driver.support import kinds, settle, tasks


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Slow:
    """A store that waits in its calls, and says in which it is."""

    def __init__(self) -> None:
        self.inner = MemoryStore()
        self.calls: list[str] = []
        self.at: str | None = None
        self.inside = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        if name == "append_now":
            raise AttributeError(name)
        method = getattr(self.inner, name)

        async def slowly(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            if name == self.at:
                self.inside.set()
            # What has been sent is done, whoever still waits for it: as in another thread, or over a network.
            result = await method(*args, **kwargs)
            await settle()
            return result

        return slowly


@tool
async def asks(ctx: ToolContext) -> ToolResult:
    return ToolResult("answered") if ctx.answer else pending(kind="approval", prompt="ok?")


def worker(*tools: Any) -> Agent[None, str]:
    return Agent("a", does="works", tools=list(tools), model=MockModel([call(tools[0].name), say("done")]))


async def cancelled(run: Callable[[], Awaitable[Any]], reached: asyncio.Event, *, times: int) -> None:
    async def host() -> None:
        await run()

    task = asyncio.create_task(host())
    await reached.wait()
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task


async def is_free(store: Slow, runtime: Runtime[Any]) -> None:
    """Nothing is left over here, and whoever wants the run can have it."""
    assert not runtime._driver.live
    assert tasks() == 2  # this test, and pytest's
    info = await store.inner.info(runtime.id)
    assert info.owner is None


@pytest.mark.parametrize("times", [1, 2, 5, 25])
async def test_again_and_again_while_the_journal_is_closed_off(times: int) -> None:
    store, inside, go_on = Slow(), asyncio.Event(), asyncio.Event()

    @tool
    async def waits() -> str:
        inside.set()
        await go_on.wait()
        return "waited"

    runtime = Runtime(worker(waits), store=store)
    await cancelled(lambda: runtime.run("go"), inside, times=times)
    await is_free(store, runtime)
    assert runtime.result().status == "interrupted"
    assert kinds(runtime).count("settled") == 1
    go_on.set()
    other = await Runtime.open(worker(waits), runtime.id, store=store)
    assert (await other.recover()).text == "done"
    assert (await runtime.recover()).text == "done"


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("at", ["claim", "release"])
async def test_while_the_claim_is_taken_or_given_up(at: str, times: int) -> None:
    store = Slow()
    runtime = Runtime(worker(asks), store=store)
    (request,) = (await runtime.run("go")).pendings
    store.at = at
    # Nothing to do: the claim is taken, and given up again.
    await cancelled(runtime.recover, store.inside, times=times)
    await is_free(store, runtime)
    other = await Runtime.open(worker(asks), runtime.id, store=store)
    assert (await other.resume(Answer(id=request.id, ok=True))).text == "done"


@pytest.mark.parametrize("times", [1, 2, 25])
async def test_while_a_background_runtime_is_left(times: int) -> None:
    store, inside, go_on = Slow(), asyncio.Event(), asyncio.Event()

    @tool
    async def waits() -> str:
        inside.set()
        await go_on.wait()
        return "waited"

    runtime = Runtime(worker(waits), store=store)

    async def in_background() -> None:
        async with runtime:
            await runtime.run("go")

    await cancelled(in_background, inside, times=times)
    await is_free(store, runtime)
    go_on.set()
    assert (await runtime.recover()).text == "done"
