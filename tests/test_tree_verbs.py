"""The verbs of a host: spawn, wake, wait, run_turn, and what they give while others act."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from overt import Agent, Answer, Budget, InboxItem, ResumePolicy, Runtime, ToolContext, tool
from overt.errors import (
    AwaitingAnswer,
    HandleClosed,
    ModelError,
    SpawnRefused,
    StoreError,
    UnknownHandle,
    UsageError,
)
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import MockModel, VirtualClock, call, say
from overt.testing.crashing import Crashed, CrashingStore


@tool
async def ask(ctx: ToolContext[object], prompt: str) -> str:
    return f"answered {(await ctx.ask(prompt)).ok}"


LEAF = Agent("leaf", does="answers")
WORKER = Agent("worker", does="works", tools=[ask], team=[LEAF])


def echo(request: Any) -> Any:
    return say(f"did {request.messages[-1].text}")


class Gate:
    """A model whose replies wait until they are let through, by the prompt."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self.open: dict[str, anyio.Event] = {}
        self.news = anyio.Event()

    def let(self, prompt: str) -> None:
        self.open.setdefault(prompt, anyio.Event()).set()

    async def reply(self, request: Any) -> Any:
        prompt = request.messages[-1].text
        self.entered.append(prompt)
        self.news.set()
        await self.open.setdefault(prompt, anyio.Event()).wait()
        return say(f"did {prompt}")

    async def until(self, *prompts: str) -> None:
        with anyio.fail_after(10):
            while not set(prompts) <= set(self.entered):
                await self.news.wait()
                self.news = anyio.Event()


# ------------------------------------------------------------ spawn


async def test_handles_are_named_by_their_place() -> None:
    async with Runtime(WORKER, model=MockModel(echo)) as rt:
        one = await rt.spawn("root", "worker")
        two = await rt.spawn(rt.root, "leaf")
        below = await rt.spawn(one, "leaf")
    assert [h.id for h in (one, two, below)] == ["root/worker.1", "root/leaf.2", "root/worker.1/leaf.1"]
    assert [v.id for v in rt.list()] == [one.id, two.id, below.id]
    assert rt.handle(below.id) == below
    assert rt.inspect(below).state == "idle"
    assert rt.transitions(below) == ()


@pytest.mark.parametrize(
    ("parent", "agent", "limit"),
    [
        ("root/worker.1/leaf.1", "leaf", "team"),
        ("root/worker.1", "nobody", "team"),
        ("root", "nobody", "team"),
    ],
)
async def test_spawn_outside_the_team_is_refused_with_the_team(parent: str, agent: str, limit: str) -> None:
    async with Runtime(WORKER, model=MockModel(echo)) as rt:
        await rt.spawn("root", "worker")
        await rt.spawn("root/worker.1", "leaf")
        with pytest.raises(SpawnRefused, match="the team: ") as caught:
            await rt.spawn(parent, agent)
    assert caught.value.limit == limit
    assert len(rt.list()) == 2


async def test_spawn_refuses_past_the_depth_and_the_number_of_children() -> None:
    deep = Agent("deep", does="nests", budget=Budget(max_children=1))
    deep = deep.with_team(deep)
    async with Runtime(deep, model=MockModel(echo)) as rt:
        handle = await rt.spawn("root", "deep")
        second = await rt.spawn(handle, "deep")
        third = await rt.spawn(second, "deep")
        with pytest.raises(SpawnRefused) as depth:
            await rt.spawn(third, "deep")
        with pytest.raises(SpawnRefused) as children:
            await rt.spawn(handle, "deep")
        await rt.close(second)
        with pytest.raises(SpawnRefused):
            await rt.spawn(handle, "deep")
    assert (depth.value.limit, children.value.limit) == ("maxDepth", "maxChildren")


async def test_handles_spawned_at_once_are_told_apart(tmp_path: Path) -> None:
    found: list[str] = []
    async with Runtime(WORKER, model=MockModel(echo), store=SQLiteStore(tmp_path / "s.db")) as rt:

        async def spawn(agent: str) -> None:
            handle = await rt.spawn("root", agent)
            assert handle.agent == agent
            found.append(handle.id)

        for _ in range(2):  # the second time the run exists, and the claim on it has been given up
            async with anyio.create_task_group() as group:
                for n in range(6):
                    group.start_soon(spawn, ("worker", "leaf")[n % 2])
    assert len(set(found)) == 12
    assert sorted(found) == sorted(v.id for v in rt.list())


async def test_a_budget_given_to_spawn_replaces_the_agents() -> None:
    async with Runtime(WORKER, model=MockModel([call("nope"), say("x")])) as rt:
        handle = await rt.spawn("root", "worker", budget=Budget(max_turns=1, max_tokens=5000))
        assert (rt.remaining(handle).max_turns, rt.remaining(handle).max_tokens) == (1, 5000)
        result = await rt.run_turn(handle, "go")
    assert (result.status, result.limit, result.limit_at) == ("incomplete", "maxTurns", handle.id)


# ------------------------------------------------------------ wake and wait


async def test_waiters_get_the_result_of_the_wake_they_waited_for() -> None:
    gate = Gate()
    found: dict[str, Any] = {}
    async with Runtime(WORKER, model=MockModel(gate.reply)) as rt:
        handle = await rt.spawn("root", "worker")

        async def wait(name: str) -> None:
            found[name] = await rt.wait(handle)

        async def again() -> None:
            await rt.wait(handle)
            assert (await rt.wake(handle, "second")).ok

        await rt.wake(handle, "first")
        async with anyio.create_task_group() as group:
            group.start_soon(again)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(wait, "first")
            await anyio.wait_all_tasks_blocked()
            gate.let("first")
            await gate.until("second")
            group.start_soon(wait, "second")
            gate.let("second")
    assert {n: r.text for n, r in found.items()} == {"first": "did first", "second": "did second"}
    assert {n: r.turns for n, r in found.items()} == {"first": 1, "second": 2}


async def test_a_waiter_in_a_queue_never_gets_the_result_before() -> None:
    gate = Gate()
    gate.let("one")
    async with Runtime(WORKER, model=MockModel(gate.reply), budget=Budget(max_concurrent=1)) as rt:
        a = await rt.spawn("root", "worker")
        b = await rt.spawn("root", "worker")
        assert (await rt.run_turn(a, "one")).text == "did one"
        await rt.wake(b, "blocks")
        assert (await rt.wake(a, "two")).ok
        assert rt.result().status == "timeout"
        found: list[Any] = []

        async def wait() -> None:
            found.append(await rt.wait(a))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert not found
            gate.let("blocks")
            gate.let("two")
    assert [r.text for r in found] == ["did two"]


async def test_a_waiter_gets_its_wake_also_when_the_next_begins_in_the_same_append() -> None:
    gate = Gate()
    store = CrashingStore(MemoryStore())
    async with Runtime(WORKER, model=MockModel(gate.reply), store=store) as rt:
        handle, other = await rt.spawn("root", "worker"), await rt.spawn("root", "leaf")
        await rt.wake(handle, "first")
        await gate.until("first")
        found: list[Any] = []

        async def wait() -> None:
            found.append(await rt.wait(handle))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            held = store.hold(store.appends + 1)
            group.start_soon(rt.post, other, InboxItem(text="keeps the store busy"))
            await held.reached()
            gate.let("first")
            await anyio.wait_all_tasks_blocked()
            group.start_soon(rt.wake, handle, "second")
            await anyio.wait_all_tasks_blocked()
            assert not found
            held.release()
            await gate.until("second")
            gate.let("second")
        assert [r.text for r in found] == ["did first"]
        assert (await rt.wait(handle)).text == "did second"


async def test_nobody_is_told_of_what_is_not_durable() -> None:
    gate = Gate()
    store = CrashingStore(MemoryStore())
    async with Runtime(WORKER, model=MockModel(gate.reply), store=store) as rt:
        handle = await rt.spawn("root", "worker")
        await rt.wake(handle, "go")
        await gate.until("go")
        found: list[Any] = []

        async def wait() -> None:
            found.append(await rt.wait(handle))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            held = store.hold(store.appends + 1)
            gate.let("go")
            await held.reached()
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert not found
            held.release()
    assert [r.text for r in found] == ["did go"] * 2


async def test_outside_a_context_work_set_going_beside_a_run_is_not_cut_off() -> None:
    gate = Gate()
    rt: Runtime[Any]

    @tool
    async def start() -> str:
        await rt.wake(await rt.spawn("root", "leaf"), "beside")
        return "started"

    def lead(request: Any) -> Any:
        return call("ask", prompt="?") if len(request.messages) > 1 else call("start")

    agent = Agent("lead", does="x", tools=[start, ask], team=[LEAF])
    rt = Runtime(agent, model=MockModel({"lead": lead, "leaf": gate.reply}))
    found: list[Any] = []

    async def host() -> None:
        found.append(await rt.run("go"))

    async with anyio.create_task_group() as group:
        group.start_soon(host)
        await gate.until("beside")
        await anyio.wait_all_tasks_blocked()
        assert rt.result().status == "pending"
        assert not found
        gate.let("beside")
    assert [r.status for r in found] == ["pending"]
    assert (await rt.wait("root/leaf.2")).text == "did beside"


@pytest.mark.parametrize("verb", ["recover", "extend"])
async def test_several_handles_go_on_at_once_and_all_of_them_are_waited_for(verb: str) -> None:
    down = {f"root/worker.{n}" for n in (1, 2, 3)}

    async def think(request: Any) -> Any:
        if verb == "recover" and request.handle in down:
            down.discard(request.handle)
            raise ModelError("HTTP 503")
        turn = sum(m.role == "assistant" for m in request.messages)
        for _ in range(int(request.handle[-1]) * 5):
            await anyio.lowlevel.checkpoint()
        return [call("nope"), call("nope"), say("done")][turn]

    rt = Runtime(
        WORKER, model=MockModel(think), budget=Budget(max_model_calls=1 if verb == "extend" else None)
    )
    handles = [await rt.spawn("root", "worker") for _ in range(3)]
    for handle in handles:
        await rt.wake(handle, "go")
    status = {"recover": "error", "extend": "incomplete"}[verb]
    assert [(await rt.wait(h)).status for h in handles] == [status] * 3
    result = await (
        rt.recover() if verb == "recover" else rt.extend(Budget(max_model_calls=99), handle="root")
    )
    assert result.status == "done"
    assert [(await rt.wait(h)).status for h in handles] == ["done"] * 3


async def test_a_runtime_runs_once() -> None:
    rt = Runtime(WORKER, model=MockModel(echo))
    with pytest.raises(UsageError, match="not been started"):
        rt.result()
    await rt.run("x")
    with pytest.raises(UsageError, match="has been started"):
        await rt.run("y")


async def test_wait_with_a_timeout_lets_the_child_run_on() -> None:
    clock = VirtualClock()
    model = MockModel([say("done")], think_time=60, clock=clock)
    async with Runtime(WORKER, model=model, clock=clock) as rt:
        handle = await rt.spawn("root", "worker")
        await rt.wake(handle, "go")
        found: list[Any] = []

        async def wait(seconds: float | None) -> None:
            found.append(await rt.wait(handle, timeout=seconds))

        async with anyio.create_task_group() as group:
            group.start_soon(wait, 5)
            group.start_soon(wait, None)
            await clock.wait_for_sleepers(2)
            await clock.advance(6)
            assert [r.status for r in found] == ["timeout"]
            assert rt.inspect(handle).state == "running"
            await clock.advance(60)
    assert [r.status for r in found] == ["timeout", "done"]
    assert found[0].limit is None
    assert found[0].output is None


async def test_wait_on_a_handle_at_rest_returns_at_once() -> None:
    async with Runtime(WORKER, model=MockModel(echo)) as rt:
        handle = await rt.spawn("root", "worker")
        with anyio.fail_after(5):
            assert (await rt.wait(handle)).output is None
            await rt.run_turn(handle, "x")
            assert (await rt.wait(handle)).text == "did x"
            await rt.close(handle)
            assert (await rt.wait(handle)).text == "did x"


async def test_a_handle_at_work_takes_no_second_prompt() -> None:
    gate = Gate()
    async with Runtime(WORKER, model=MockModel(gate.reply), budget=Budget(max_concurrent=1)) as rt:
        a = await rt.spawn("root", "worker")
        b = await rt.spawn("root", "worker")
        assert (await rt.wake(a, "one")).ok
        refused = await rt.wake(a, "two")
        assert not refused.ok
        assert "running" in (refused.error or "")
        with pytest.raises(UsageError, match="run_turn"):
            await rt.run_turn(a, "two")
        assert (await rt.wake(b, "queued")).ok
        refused = await rt.wake(b, "again")
        assert not refused.ok
        assert "slot" in (refused.error or "")
        await rt.close(force=True)


async def test_a_suspended_handle_takes_answers_and_posts_but_no_prompt() -> None:
    model = MockModel([call("ask", prompt="ok?"), say("done")])
    async with Runtime(WORKER, model=model, resume_policy=ResumePolicy.CONTINUE) as rt:
        handle = await rt.spawn("root", "worker")
        result = await rt.run_turn(handle, "go")
        assert result.status == "pending"
        for verb in (rt.wake, rt.run_turn):
            with pytest.raises(AwaitingAnswer) as caught:
                await verb(handle, "more")
            assert caught.value.request_ids == (result.pendings[0].id,)
        assert (await rt.post(handle, InboxItem(text="hello"))).ok
        assert rt.inspect(handle).pending_kind == "input"
        done = await rt.resume(Answer(id=result.pendings[0].id, ok=True))
    assert done.status == "done"
    assert rt.inspect(handle).inbox == 1


async def test_a_closed_handle_can_be_read_and_nothing_else() -> None:
    async with Runtime(WORKER, model=MockModel(echo)) as rt:
        handle = await rt.spawn("root", "worker")
        result = await rt.run_turn(handle, "x")
        await rt.close(handle, reason="enough")
        for verb in (rt.wake, rt.run_turn):
            with pytest.raises(HandleClosed):
                await verb(handle, "more")
        with pytest.raises(HandleClosed):
            await rt.spawn(handle, "leaf")
        refused = await rt.post(handle, InboxItem(text="late"))
        assert not refused.ok
        assert "closed" in (refused.error or "")
        await rt.close(handle)
        await rt.interrupt(handle)
        assert rt.inspect(handle).state == "closed"
        assert await rt.wait(handle) == result
        assert [m.text for m in rt.transcript(handle)] == ["x", "did x"]


async def test_an_unknown_handle_is_named() -> None:
    async with Runtime(WORKER, model=MockModel(echo)) as rt:
        await rt.spawn("root", "worker")
        for read in (rt.inspect, rt.usage_tokens, rt.remaining, rt.transcript, rt.transitions, rt.handle):
            with pytest.raises(UnknownHandle, match=r"root/zz\.1"):
                read("root/zz.1")
        for verb in (rt.wait, rt.interrupt, rt.close, rt.wake):
            with pytest.raises(UnknownHandle, match=r"root/zz\.1"):
                await verb("root/zz.1")
        with pytest.raises(UnknownHandle, match="root has no agent"):
            await rt.wake("root", "x")


async def test_outside_a_context_a_verb_returns_when_its_work_is_through() -> None:
    rt = Runtime(WORKER, model=MockModel(echo))
    handle = await rt.spawn("root", "worker")
    assert (await rt.wake(handle, "x")).ok
    assert rt.inspect(handle).state == "idle"
    assert (await rt.wait(handle)).text == "did x"
    assert (await rt.run_turn(handle, "y")).text == "did y"
    await rt.close()
    assert rt.transitions(handle)[-1] == ("idle", "closed")


async def test_transitions_are_kept_in_order() -> None:
    async with Runtime(WORKER, model=MockModel([call("ask", prompt="?"), say("x")])) as rt:
        handle = await rt.spawn("root", "worker")
        result = await rt.run_turn(handle, "go")
        await rt.resume(Answer(id=result.pendings[0].id, ok=True))
        await rt.close()
    assert rt.transitions(handle) == (
        ("idle", "running"),
        ("running", "suspended"),
        ("suspended", "running"),
        ("running", "idle"),
        ("idle", "closed"),
    )


async def test_what_the_host_raises_within_a_context_leaves_it_as_it_is() -> None:
    rt = Runtime(WORKER, model=MockModel(Gate().reply))

    async def host() -> None:
        async with rt:
            await rt.wake(await rt.spawn("root", "worker"), "hangs")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await host()
    assert rt.result().status == "interrupted"


async def test_a_cancelled_host_leaves_a_context_and_the_work_can_be_recovered() -> None:
    gate = Gate()
    rt = Runtime(WORKER, model=MockModel(gate.reply))
    with anyio.CancelScope() as scope:
        async with rt:
            await rt.wake(await rt.spawn("root", "worker"), "slow")
            await gate.until("slow")
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert rt.result().status == "interrupted"
    gate.let("slow")
    assert (await rt.recover()).text == "did slow"


# ------------------------------------------------------------ a run that nobody performs


async def cut_off(store: MemoryStore) -> None:
    """Leave a run behind whose process died within a model call."""
    model = MockModel([call("task", agent="leaf", prompt="p"), say("x")])
    rt = Runtime(WORKER, model=model, store=CrashingStore(store, crash_at=2, when="after"), run_id="r")
    with pytest.raises((Crashed, BaseExceptionGroup, StoreError)):
        await rt.run("go")


async def test_verbs_of_a_reopened_run_do_not_wait_for_the_dead() -> None:
    store = MemoryStore()
    await cut_off(store)
    rt = await Runtime.open(WORKER, "r", model=MockModel(echo), store=store)
    assert rt.result().status == "interrupted"
    with anyio.fail_after(5):
        other = await rt.spawn("root", "leaf")
        assert (await rt.post("root/worker.1", InboxItem(text="hello"))).ok
        assert (await rt.run_turn(other, "x")).text == "did x"
        assert (await rt.wait("root/worker.1")).status == "interrupted"
        await rt.interrupt("root/worker.1")
        assert rt.result().status == "interrupted"
        await rt.close()
    assert {v.state for v in rt.list()} == {"closed"}
