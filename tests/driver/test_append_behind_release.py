"""An outcome that comes while the claim is being given up is recorded, whoever is cancelled meanwhile."""

from __future__ import annotations

from typing import Any

import anyio

from overt import Agent, Answer, Request, Runtime, ToolContext, ToolResult, pending, tool
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say
from tests.driver.support import settle


class Slow:
    """A store that takes its time, and says when it is giving a claim up."""

    def __init__(self) -> None:
        self.inner = MemoryStore()
        self.releasing = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        if name == "append_now":
            raise AttributeError(name)
        method = getattr(self.inner, name)

        async def slowly(*args: Any, **kwargs: Any) -> Any:
            result = await method(*args, **kwargs)
            if name == "release":
                self.releasing.set()
            await settle()
            return result

        return slowly


@tool
async def asks(ctx: ToolContext) -> ToolResult:
    return ToolResult("answered") if ctx.answer else pending(kind="approval", prompt="ok?")


async def test_who_is_told_returns_while_the_host_that_was_cancelled_gives_the_claim_up() -> None:
    store = Slow()
    model = MockModel([[call("asks"), call("asks")], say("done")])
    agent = Agent("a", does="asks", tools=[asks], model=model)
    scope, host = anyio.CancelScope(), anyio.get_current_task().id

    async def on_pending(_: Request) -> None:
        if anyio.get_current_task().id == host or scope.cancel_called:
            return
        scope.cancel()
        with anyio.CancelScope(shield=True):
            await store.releasing.wait()

    runtime = Runtime(agent, store=store, on_pending=on_pending)
    with scope:
        await runtime.run("go")
    assert scope.cancelled_caught
    result = await runtime.recover()
    assert result.status == "pending"
    answers = [Answer[None](id=request.id, ok=True) for request in result.pendings]
    assert (await runtime.resume(answers)).text == "done"
    info = await store.inner.info(runtime.id)
    assert info.owner is None
