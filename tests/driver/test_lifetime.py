"""What a run leaves behind: no task, no thread that is waited for, no cycle that keeps it alive."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from overt import Agent, Answer, Runtime, ToolContext, pending, tool
from overt.message import ModelRequest
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import MockModel, call, say
from tests.driver.support import agent, calling, results, tasks


@tool
async def t() -> str:
    await anyio.lowlevel.checkpoint()
    return "t"


@tool
def in_thread() -> str:
    return "thread"


@tool
async def asks(ctx: ToolContext) -> object:
    return "ok" if ctx.answer else pending(kind="approval", prompt="?")


@tool
async def fails() -> str:
    raise ValueError("no")


async def refuses(request: ModelRequest) -> Any:
    raise RuntimeError("down")


@pytest.mark.parametrize(
    "model",
    [
        calling("t", "t"),
        calling("in_thread", "t"),
        calling("fails", "t"),
        calling("asks"),
        MockModel(refuses),
    ],
    ids=["tools", "thread", "failing", "parked", "model error"],
)
async def test_a_runtime_nobody_holds_is_gone_without_a_collector(model: MockModel) -> None:
    gc.collect()
    gc.disable()
    try:
        runtime = Runtime(agent(t, in_thread, fails, asks), model=model)
        await runtime.run("go")
        gone, driver = weakref.ref(runtime), weakref.ref(runtime._driver)
        del runtime
        await anyio.lowlevel.checkpoint()
        # CPython counts references; other interpreters free when they like.
        if sys.implementation.name == "cpython":
            assert gone() is None
            assert driver() is None
    finally:
        gc.enable()


async def test_after_an_error_too() -> None:
    runtime = Runtime(agent(t), model=calling("t"))
    await runtime.run("go")
    driver = weakref.ref(runtime._driver)
    gc.disable()
    try:
        with pytest.raises(Exception, match="has been started"):
            await runtime.run("again")
        del runtime
        await anyio.lowlevel.checkpoint()
        assert driver() is None
    finally:
        gc.enable()


@pytest.mark.filterwarnings("error::ResourceWarning")
async def test_no_task_and_no_warning_is_left(tmp_path: Any) -> None:
    before = tasks()
    store = SQLiteStore(tmp_path / "runs.db")
    for model in (calling("t", "in_thread"), calling("asks"), calling("fails", "t")):
        result, rt = await agent(t, in_thread, fails, asks).run("go", model=model, store=store)
        assert tasks() == before
        if result.pending is not None:
            result = await rt.resume(Answer(id=result.pending.id, ok=True))
        assert result.status == "done"
        assert tasks() == before
    await store.close()
    gc.collect()


async def test_a_parked_run_holds_no_task_and_no_claim() -> None:
    store, before = MemoryStore(), tasks()
    result, _ = await agent(asks).run("go", model=calling("asks"), store=store)
    assert result.status == "pending"
    assert tasks() == before
    assert (await store.info(result.run_id)).owner is None


async def test_a_thousand_runs_of_one_agent_at_once(anyio_backend_name: str) -> None:
    many = 1000 if anyio_backend_name == "asyncio" else 300
    child = Agent("child", does="works", tools=[t])
    boss = Agent("a", does="works", tools=[t], team=[child])
    model = MockModel(
        {
            "a": [[call("t"), call("task", agent="child", prompt="p")], say("done")],
            "child": [call("t"), say("c")],
        },
        record=False,
    )
    ids, before = set(), tasks()

    async def one() -> None:
        result, rt = await boss.run("go", model=model)
        assert result.total_tokens == 400
        assert results(rt) == [("t", False), ("c", False)]
        ids.add(rt.id)

    async with anyio.create_task_group() as group:
        for _ in range(many):
            group.start_soon(one)
    assert len(ids) == many
    assert tasks() == before


def test_one_agent_and_model_in_many_event_loops() -> None:
    model, made = calling("t", "in_thread"), agent(t, in_thread)
    for _ in range(2):
        assert made.run_sync("go", model=model)[0].status == "done"
    for backend in ("asyncio", "trio", "asyncio"):

        async def main() -> str:
            return (await made.run("go", model=model))[0].status

        assert anyio.run(main, backend=backend) == "done"
    seen: list[str] = []
    threads = [
        threading.Thread(target=lambda: seen.append(made.run_sync("go", model=model)[0].status))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen == ["done"] * 8


@pytest.mark.parametrize("second", ["asyncio", "trio"])
@pytest.mark.parametrize("first", ["asyncio", "trio"])
def test_one_runtime_in_one_event_loop_after_another(first: str, second: str) -> None:
    """Crowded, so that the gate is used: nothing of the first loop may be left in it."""
    child = Agent("child", does="asks", tools=[asks])
    boss = Agent("a", does="works", team=[child])
    model = MockModel(
        {
            "a": [[call("task", agent="child", prompt=str(n)) for n in range(4)], say("done")],
            "child": [call("asks"), say("c")],
        },
        think_time=0.0001,
    )
    runtime = Runtime(boss, model=model, max_concurrent_turns=1)

    async def begin() -> Any:
        return await runtime.run("go")

    result = anyio.run(begin, backend=first)
    assert len(result.pendings) == 4

    async def go_on() -> Any:
        return await runtime.resume([Answer(id=r.id, ok=True) for r in result.pendings])

    assert anyio.run(go_on, backend=second).status == "done"


def test_resume_sync_goes_on_where_run_sync_stopped() -> None:
    result, rt = agent(asks).run_sync("go", model=calling("asks"))
    assert result.pending is not None
    assert rt.resume_sync(Answer(id=result.pending.id, ok=True)).status == "done"


async def test_the_sync_doors_refuse_inside_a_loop() -> None:
    result, rt = await agent(asks).run("go", model=calling("asks"))
    assert result.pending is not None
    with pytest.raises(Exception, match="await resume"):
        rt.resume_sync(Answer(id=result.pending.id, ok=True))
    assert rt.result().status == "pending"
