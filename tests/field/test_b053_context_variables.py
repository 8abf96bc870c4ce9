"""B053: tools and sub-agents see the caller's context variables, and what one sets stays its own."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.driver.support import agent, calling, results

from overt import Agent, Runtime, ToolContext, tool
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say
from overt.testing.crashing import CrashingStore

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


@tool
def seen_in_thread() -> str:
    return tenant.get()


@tool
async def seen() -> str:
    await anyio.lowlevel.checkpoint()
    return tenant.get()


@pytest.fixture(autouse=True)
def caller() -> None:
    tenant.set("nobody")


async def test_sync_async_and_parallel_tools_see_the_callers_value() -> None:
    tenant.set("acme")
    _, rt = await agent(seen, seen_in_thread).run("go", model=calling("seen", "seen_in_thread", "seen"))
    assert [text for text, _ in results(rt)] == ["acme"] * 3


async def test_two_sub_agents_down() -> None:
    low = Agent("low", does="looks", tools=[seen, seen_in_thread])
    mid = Agent("mid", does="passes on", team=[low])
    top = Agent("top", does="passes on", team=[mid])
    model = MockModel(
        {
            "top": [call("task", agent="mid", prompt="p"), say("done")],
            "mid": [call("task", agent="low", prompt="p"), say("done")],
            "low": [[call("seen"), call("seen_in_thread")], say("done")],
        }
    )
    tenant.set("acme")
    result, rt = await top.run("go", model=model)
    assert result.text == "done"
    assert [text for text, _ in results(rt, "root/top.1/mid.1/low.1")] == ["acme", "acme"]


def test_from_a_sync_entry_point() -> None:
    tenant.set("acme")
    _, rt = agent(seen, seen_in_thread).run_sync("go", model=calling("seen", "seen_in_thread"))
    assert [text for text, _ in results(rt)] == ["acme", "acme"]


async def test_a_value_set_in_a_tool_reaches_neither_sibling_nor_next_tool_nor_caller() -> None:
    has_set, sibling_done = anyio.Event(), anyio.Event()

    @tool
    async def sets() -> str:
        tenant.set("thief")
        has_set.set()
        await sibling_done.wait()
        return tenant.get()

    @tool
    def sets_in_thread() -> str:
        tenant.set("thief")
        return tenant.get()

    @tool
    async def sibling() -> str:
        await has_set.wait()
        sibling_done.set()
        return tenant.get()

    model = MockModel(
        [[call("sets"), call("sibling")], call("seen"), call("sets_in_thread"), call("seen"), say("done")]
    )
    tenant.set("acme")
    _, rt = await agent(sets, sets_in_thread, sibling, seen).run("go", model=model)
    assert [text for text, _ in results(rt)] == ["thief", "acme", "acme", "thief", "acme"]
    assert tenant.get() == "acme"


async def test_models_interpreters_and_watchers_keep_theirs_to_themselves() -> None:
    from overt import Answer, Request, pending

    @tool
    async def asks(ctx: ToolContext) -> object:
        return tenant.get() if ctx.answer else pending(kind="approval", prompt="?")

    async def wait_for(request: Request) -> Answer[object]:
        tenant.set("interpreter")
        return Answer(id=request.id, ok=True)

    def reply(request: object) -> object:
        tenant.set("model")
        return replies.pop(0)

    replies = [call("seen"), call("asks"), call("seen"), say("done")]
    tenant.set("acme")
    _, rt = await agent(seen, asks).run("go", model=MockModel(reply), wait_for=wait_for)  # type: ignore[arg-type]  # a list of parts
    assert [text for text, _ in results(rt)] == ["acme"] * 3
    assert tenant.get() == "acme"


async def test_a_tool_inside_once_starts_nobody_else_in_its_own_context() -> None:
    """While one tool's `once` is being stored, what others led to is stored with it, and must not inherit from it."""
    store = CrashingStore(MemoryStore())
    go_on = anyio.Event()

    @tool
    async def sets(ctx: ToolContext) -> str:
        tenant.set("thief")

        async def nothing() -> str:
            return "x"

        gate = store.hold(store.appends + 1)
        held.append(gate)
        go_on.set()
        return await ctx.once("o", nothing)

    @tool
    async def starts_two() -> str:
        await go_on.wait()
        await held[0].reached()
        return "now"

    held: list[Any] = []
    child = Agent("child", does="looks", tools=[seen, starts_two])
    parent = Agent("a", does="works", tools=[sets], team=[child])
    model = MockModel(
        {
            "a": [[call("sets"), call("task", agent="child", prompt="p")], say("done")],
            "child": [call("starts_two"), [call("seen"), call("seen")], say("done")],
        }
    )
    tenant.set("acme")
    runtime = Runtime(parent, model=model, store=store)

    async def release() -> None:
        await go_on.wait()
        await held[0].reached()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        held[0].release()

    async with anyio.create_task_group() as group:
        group.start_soon(release)
        await runtime.run("go")
    assert [text for text, _ in results(runtime, "root/a.1/child.1")] == ["now", "acme", "acme"]
