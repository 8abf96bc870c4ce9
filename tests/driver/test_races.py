"""Verbs, outcomes and appends that cross: nothing is lost, done twice, or starved."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from overt import Agent, Answer, Request, Runtime, ToolContext, pending, tool
from overt.errors import StoreError
from overt.journal.store import Store
from overt.message import ModelRequest
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say
from overt.testing.crashing import CrashingStore
from tests.driver.support import ENTRY, SlowStore, agent, calling, gather, results, settle, tasks


@tool
async def t() -> str:
    return "t"


@tool
async def asks(ctx: ToolContext, n: int = 0) -> object:
    return f"ok {n}" if ctx.answer else pending(kind="approval", prompt=f"{n}?")


def slow() -> Store:
    return CrashingStore(MemoryStore())


async def test_two_verbs_that_take_the_run_at_once() -> None:
    """The second claim must not void the first one's epoch under its append."""

    store: Any = SlowStore()
    runtime = Runtime(agent(t), model=calling("t"), store=store)
    await runtime.run("go")
    runtime = Runtime(agent(t), model=calling("t"), store=store, run_id="two")
    async with runtime:
        one = await runtime.spawn("root", "a")
        two = await runtime.spawn("root", "a")
        assert (await store.info("two")).owner is None
        await gather(lambda: runtime.wake(one, "go"), lambda: runtime.wake(two, "go"))
        assert (await runtime.wait(one)).status == "done"
        assert (await runtime.wait(two)).status == "done"
    assert (await store.info("two")).owner is None


async def test_an_answer_is_checked_while_the_run_comes_to_rest() -> None:
    """The claim must not go between the check of an answer and its delivery."""
    checking, go_on = anyio.Event(), anyio.Event()

    async def verify(request: Request, answer: Answer[Any]) -> bool:
        checking.set()
        await go_on.wait()
        return True

    released = anyio.Event()

    @tool
    async def holds() -> str:
        await released.wait()
        return "held"

    model = MockModel([[call("asks"), call("holds")], say("done")])
    runtime = Runtime(agent(asks, holds), model=model, store=slow(), verify_answer=verify)
    async with runtime:
        handle = await runtime.spawn("root", "a")
        await runtime.wake(handle, "go")
        while not runtime.pendings():
            await anyio.lowlevel.checkpoint()

        async def rest() -> None:
            await checking.wait()
            released.set()
            await runtime.wait(handle)
            await settle()
            go_on.set()

        answer = Answer(id=runtime.pendings()[0].id, ok=True)
        await gather(rest, lambda: runtime.resume(answer))
        assert (await runtime.wait(handle)).status == "done"


async def test_whoever_appends_for_others_is_not_kept_from_its_own_work() -> None:
    """While tools of one child keep the store busy for ever, the first chain gets on with its own effect."""
    store = slow()
    through = anyio.Event()
    rounds = [0]

    @tool
    async def busy(ctx: ToolContext) -> str:
        async def nothing() -> str:
            return "x"

        while not through.is_set():
            rounds[0] += 1
            await ctx.once(f"block {rounds[0]}", nothing)
            assert rounds[0] < 300, "starved"
        return "busy"

    @tool
    async def frees() -> str:
        through.set()
        return "freed"

    model = MockModel(
        {
            "a": [[call("busy"), call("busy"), call("task", agent="child", prompt="p")], say("done")],
            "child": [call("t"), call("t"), call("frees"), say("c")],
        }
    )
    boss = Agent("a", does="works", tools=[busy], team=[Agent("child", does="works", tools=[t, frees])])
    result, _ = await boss.run("go", model=model, store=store)
    assert result.status == "done"


@pytest.mark.parametrize("make", [MemoryStore, slow])
async def test_interrupted_while_its_outcome_is_being_stored(make: Any) -> None:
    """Either the outcome or the interrupt is first; the run ends once, and its next effects with it."""
    store = make()
    begun, release = anyio.Event(), anyio.Event()

    @tool
    async def waits() -> str:
        begun.set()
        await release.wait()
        return "late"

    runtime = Runtime(
        agent(waits, t), model=MockModel([call("waits"), [call("t"), call("t")], say("done")]), store=store
    )

    async def interrupts() -> None:
        await begun.wait()
        release.set()
        await runtime.interrupt(ENTRY)

    before = tasks()
    async with anyio.create_task_group() as group:
        group.start_soon(interrupts)
        result = await runtime.run("go")
    assert result.status == "interrupted"
    assert tasks() == before
    assert (await store.info(runtime.id)).owner is None
    if isinstance(store, CrashingStore):
        again = await Runtime.open(agent(waits, t), runtime.id, model=calling("t"), store=store)
        assert again.result() == result


async def test_an_interrupt_at_every_append() -> None:
    """Whatever is being stored at that moment, the interrupt is next and nothing runs after it."""
    for number in range(2, 9):
        store = CrashingStore(MemoryStore())
        gate = store.hold(number)

        @tool
        async def count() -> str:
            return "x"

        runtime = Runtime(
            agent(count),
            model=MockModel([[call("count"), call("count")], [call("count")], say("done")]),
            store=store,
        )

        async def interrupts(gate: Any = gate, runtime: Any = runtime) -> None:
            await gate.reached()
            async with anyio.create_task_group() as group:
                group.start_soon(runtime.interrupt, ENTRY)
                await settle()
                gate.release()

        async with anyio.create_task_group() as group:
            group.start_soon(interrupts)
            result = await runtime.run("go")
            group.cancel_scope.cancel()
        # The last append of all is past interrupting.
        assert result.status == ("interrupted" if store.appends > number or number < 5 else "done")
        assert runtime._driver.tree.open == {}
        assert (await store.info(runtime.id)).owner is None


async def test_many_waiters_hear_of_the_end() -> None:
    release, heard = anyio.Event(), []

    @tool
    async def waits() -> str:
        await release.wait()
        return "x"

    async with Runtime(agent(waits), model=calling("waits")) as runtime:
        handle = await runtime.spawn("root", "a")
        await runtime.wake(handle, "go")

        async def waiter() -> None:
            heard.append((await runtime.wait(handle)).status)

        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(waiter)
            await settle()
            release.set()
    assert heard == ["done"] * 10


async def test_a_verb_beside_run_is_seen_through() -> None:
    """run() ends only when the verbs that came to it meanwhile are through."""
    release = anyio.Event()

    async def reply(request: ModelRequest) -> Any:
        if request.handle == ENTRY:
            if request.messages[-1].role == "user":
                began.set()
                await spawned.wait()
            return say("first")
        await release.wait()
        return say("second")

    began, spawned, seen = anyio.Event(), anyio.Event(), []
    runtime = Runtime(agent(), model=MockModel(reply))

    async def beside() -> None:
        await began.wait()
        other = await runtime.spawn("root", "a")

        async def wakes() -> None:
            seen.append((await runtime.run_turn(other, "go")).status)

        async with anyio.create_task_group() as group:
            group.start_soon(wakes)
            await settle()
            release.set()
            await settle()
            spawned.set()

    async with anyio.create_task_group() as group:
        group.start_soon(beside)
        result = await runtime.run("go")
    assert result.text == "first"
    assert seen == ["done"]


@pytest.mark.parametrize("cap", [1, 2, 8])
async def test_no_more_model_calls_at_once_than_said_and_a_parent_starves_nobody(cap: int) -> None:
    inside, most = [0], [0]

    async def reply(request: ModelRequest) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        await settle()
        inside[0] -= 1
        if request.messages[-1].role == "tool" or request.agent == "low":
            return say("ok")
        below = {"a": "mid", "mid": "low"}[request.agent]
        return [call("task", agent=below, prompt=str(n)) for n in range(4)]

    low = Agent("low", does="works")
    mid = Agent("mid", does="works", team=[low])
    result, _ = await Agent("a", does="works", team=[mid]).run(
        "go", model=MockModel(reply), max_concurrent_turns=cap
    )
    assert result.status == "done"
    assert most[0] <= cap
    assert cap == 1 or most[0] > 1


async def test_a_failing_or_cancelled_call_gives_its_place_back() -> None:
    async def reply(request: ModelRequest) -> Any:
        if request.agent == "child":
            raise ValueError("no")
        return (
            say("done")
            if request.messages[-1].role == "tool"
            else [call("task", agent="child", prompt=str(n)) for n in range(20)]
        )

    boss = Agent("a", does="works", team=[Agent("child", does="works")])
    result, rt = await boss.run("go", model=MockModel(reply), max_concurrent_turns=2)
    assert result.status == "done"
    assert len(results(rt)) == 20
    assert rt._driver.gate._free == 2


async def test_a_store_that_fails_stops_the_run_and_says_so() -> None:
    before = tasks()
    store: Any = SlowStore(fails_at=3, error=OSError("disk on fire"))
    runtime = Runtime(agent(t), model=calling("t", "t", "t"), store=store)
    with pytest.raises(StoreError, match="disk on fire"):
        await runtime.run("go")
    assert tasks() == before
    for verb in (runtime.recover(), runtime.interrupt(), runtime.spawn("root", "a")):
        with pytest.raises(StoreError, match="disk on fire"):
            await verb
