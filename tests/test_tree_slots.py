"""Slots: who runs under a parent, who waits, who is next."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overt import Agent, Answer, Budget, ResumePolicy, Runtime, ToolContext, tool
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.effects import CallModel, CallTool
from overt.errors import UsageError
from overt.result import State
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say
from tests.core.sim import Sim, plan, task
from tests.core.sim import call as spec


@tool
async def ask(ctx: ToolContext[object], prompt: str) -> str:
    return f"answered {(await ctx.ask(prompt)).ok}"


WORKER = Agent("worker", does="works", tools=[ask])


class Stage:
    """A model that thinks until the test says so, handle by handle."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.gates: dict[str, anyio.Event] = {}
        self.news = anyio.Event()

    async def __call__(self, request: Any) -> Any:
        self.order.append(request.handle)
        self.news.set()
        await self.gates.setdefault(request.handle, anyio.Event()).wait()
        return say("done")

    async def until(self, count: int) -> list[str]:
        with anyio.fail_after(10):
            while len(self.order) < count:
                await self.news.wait()
                self.news = anyio.Event()
        await anyio.wait_all_tasks_blocked()
        return self.order

    def finish(self, handle: str) -> None:
        self.gates.setdefault(handle, anyio.Event()).set()


async def test_over_the_cap_wakes_queue_and_slots_are_handed_over_first_come_first_served() -> None:
    stage = Stage()
    async with Runtime(WORKER, model=MockModel(stage), budget=Budget(max_concurrent=2)) as rt:
        ids = [(await rt.spawn("root", "worker")).id for _ in range(6)]
        for n in (3, 0, 5, 1, 4, 2):
            assert (await rt.wake(ids[n], "go")).ok
        assert set(await stage.until(2)) == {ids[3], ids[0]}
        assert [v.state for v in rt.list()].count(State.RUNNING) == 2
        stage.finish(ids[0])
        assert (await stage.until(3))[2:] == [ids[5]]
        await rt.interrupt(ids[1])  # the first in the queue leaves it
        assert rt.inspect(ids[1]).state == "idle"
        stage.finish(ids[5])
        assert (await stage.until(4))[3:] == [ids[4]]
        await rt.close(ids[3], force=True)
        assert (await stage.until(5))[4:] == [ids[2]]
        for id in ids:
            stage.finish(id)
        with anyio.fail_after(10):
            assert [(await rt.wait(id)).status for id in ids] == [
                "done", "interrupted", "done", "closed", "done", "done",
            ]  # fmt: skip


async def test_a_suspended_child_holds_no_slot_and_queues_for_one_when_answered() -> None:
    stage = Stage()

    async def think(request: Any) -> Any:
        if request.handle.endswith("worker.1") and request.messages[-1].role == "user":
            return call("ask", prompt="ok?")
        return await stage(request)

    model = MockModel(think)
    options: dict[str, Any] = {"model": model, "budget": Budget(max_concurrent=1)}
    async with Runtime(WORKER, resume_policy=ResumePolicy.CONTINUE, **options) as rt:
        one, two, three = [(await rt.spawn("root", "worker")).id for _ in range(3)]
        assert (await rt.run_turn(one, "go")).status == "pending"
        await rt.wake(two, "go")
        assert await stage.until(1) == [two]
        await rt.wake(three, "go")
        answered: list[Any] = []

        async def answer() -> None:
            answered.append(await rt.resume(Answer(id=rt.pendings()[0].id, ok=True)))

        async with anyio.create_task_group() as group:
            group.start_soon(answer)
            await anyio.wait_all_tasks_blocked()
            assert rt.inspect(one).state == "suspended"
            stage.finish(two)
            assert await stage.until(2) == [two, three]
            assert rt.inspect(one).state == "suspended"
            stage.finish(three)
            assert await stage.until(3) == [two, three, one]
            stage.finish(one)
    assert [r.status for r in answered] == ["done"]


async def test_task_children_queue_too() -> None:
    stage = Stage()
    lead = Agent("lead", does="x", team=[WORKER], budget=Budget(max_concurrent=1))
    tasks = [call("task", agent="worker", prompt=str(n)) for n in range(3)]
    model = MockModel({"lead": [tasks, "ok"], "worker": stage})
    async with Runtime(lead, model=model) as rt, anyio.create_task_group() as group:
        group.start_soon(rt.run, "go")
        for n in (1, 2, 3):
            id = f"root/lead.1/worker.{n}"
            assert (await stage.until(n))[-1] == id
            stage.finish(id)
        with anyio.fail_after(10):
            assert (await rt.wait("root/lead.1")).output == "ok"


async def test_interrupting_a_parent_ends_those_that_wait_for_a_slot() -> None:
    stage = Stage()
    lead = Agent("lead", does="x", team=[WORKER], budget=Budget(max_concurrent=1))
    tasks = [call("task", agent="worker", prompt=str(n)) for n in range(3)]
    async with Runtime(lead, model=MockModel({"lead": [tasks, "ok"], "worker": stage})) as rt:
        handle = await rt.spawn("root", "lead")
        await rt.wake(handle, "go")
        await stage.until(1)
        await rt.interrupt(handle)
        assert (await rt.wait(handle)).status == "interrupted"
    assert stage.order == ["root/lead.1/worker.1"]
    assert {v.state for v in rt.list() if v.agent == "worker"} == {State.CLOSED}


async def test_those_that_wait_for_a_slot_outlast_a_cancelled_host() -> None:
    stage = Stage()
    store = MemoryStore()
    lead = Agent("lead", does="x", team=[WORKER], budget=Budget(max_concurrent=1))
    tasks = [call("task", agent="worker", prompt=str(n)) for n in range(3)]
    model = MockModel({"lead": [tasks, "ok"], "worker": stage})
    rt = Runtime(lead, model=model, store=store, run_id="r")
    async with anyio.create_task_group() as group:
        group.start_soon(rt.run, "go")
        await stage.until(1)
        group.cancel_scope.cancel()
    assert rt.result().status == "interrupted"
    assert (await store.info("r")).status == "cut_off"
    for n in (1, 2, 3):
        stage.finish(f"root/lead.1/worker.{n}")
    with anyio.fail_after(10):
        again = await Runtime.open(lead, "r", model=model, store=store)
        assert (await again.wait("root/lead.1/worker.3")).status == "interrupted"
        done = await again.recover()
    assert (done.output, done.total_tokens, done.usage.model_calls) == ("ok", 500, 6)
    assert [line.handle[-1] for line in again.ledger().children[0].children] == ["1", "2", "3"]


# ------------------------------------------------------------ on the rules


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_slots_are_never_overdrawn_and_queues_are_first_come_first_served(data: st.DataObject) -> None:
    cap = data.draw(st.integers(1, 3))
    sim = Sim(plan(root=f.Caps(max_concurrent=cap)), checked=False)
    handles = [f"root/a.{n}" for n in range(1, 6)]
    for _ in handles:
        sim.step(i.Spawn("root", "a"))
    queue: list[str] = []
    running: list[str] = []
    for _ in range(data.draw(st.integers(1, 25))):
        busy = {*queue, *running}
        idle = [h for h in handles if h not in busy and sim.node(h).state is not State.CLOSED]
        acts = (
            (["wake"] if idle else [])
            + (["finish"] if running else [])
            + (["interrupt", "close"] if busy else [])
        )
        if not acts:
            break
        act = data.draw(st.sampled_from(acts))
        if act == "wake":
            handle = data.draw(st.sampled_from(idle))
            sim.step(i.Wake(handle, "go"))
            queue.append(handle)
        elif act == "finish":
            handle = data.draw(st.sampled_from(running))
            sim.reply("done", handle=handle)
            running.remove(handle)
        else:
            handle = data.draw(st.sampled_from(sorted(busy)))
            sim.step(i.Interrupt(handle) if act == "interrupt" else i.Close(handle))
            (queue if handle in queue else running).remove(handle)
        while queue and len(running) < cap:
            running.append(queue.pop(0))
        assert [n.id for n in sim.tree.root.queue] == queue
        assert {e.handle for e in sim.effects(CallModel)} == set(running)


def test_interrupting_what_waits_to_be_reopened_leaves_it_stopped() -> None:
    sim = Sim(plan(root=f.Caps(max_concurrent=1, max_model_calls=1)))
    sim.begin(closes=False)
    sim.reply("", spec("t"))
    sim.ret("t")
    sim.step(i.Spawn("root", "a"))
    sim.step(i.Wake("root/a.2", "go"))
    assert [sim.result(f"root/a.{n}").limit for n in (1, 2)] == ["maxModelCalls"] * 2
    sim.step(i.Extend(f.Caps(max_model_calls=9)))
    assert sim.node("root/a.2").queued == "reopen"
    assert sim.result("root/a.2").status == "timeout"
    assert sim.result("root/a.2").limit is None
    sim.step(i.Interrupt("root/a.2"))
    assert sim.node("root/a.2").queued is None
    assert sim.result("root/a.2").limit == "maxModelCalls"
    sim.reply("done", handle="root/a.1")
    assert not sim.effects(CallModel)
    assert not sim.effects(CallTool)


@pytest.mark.parametrize("again", ["recover", "crash", "cancel"])
def test_what_waits_to_be_reopened_is_queued_once(again: str) -> None:
    sim = Sim(plan(root=f.Caps(max_concurrent=1)))
    for n in (1, 2):
        sim.step(i.Spawn("root", "a"))
        sim.step(i.Wake(f"root/a.{n}", "go"))
        sim.step(i.ModelLost(sim.effects(CallModel)[0].id, f.ErrorSpec("Boom", "no", "model", True)))
    sim.step(i.Recover())
    assert [n.id for n in sim.tree.root.queue] == ["root/a.1"]
    if again == "crash":
        sim.crash()
    elif again == "cancel":
        sim.step(i.Cancel("the host was cancelled"))
    sim.step(i.Recover())
    for n in (1, 2) if again == "cancel" else (2, 1):
        sim.reply("done", handle=f"root/a.{n}")
    assert [sim.result(f"root/a.{n}").status for n in (1, 2)] == ["done", "done"]


def test_a_stopped_wake_with_a_successor_in_the_queue_is_not_reopened() -> None:
    sim = Sim(plan(caps={"a": f.Caps(max_turns=1)}, root=f.Caps(max_concurrent=1)))
    sim.begin(closes=False)
    sim.reply("", spec("t"))
    assert sim.result().status == "incomplete"
    sim.step(i.Spawn("root", "b"))
    sim.step(i.Wake("root/b.2", "go"))
    sim.step(i.Wake("root/a.1", "next"))
    with pytest.raises(UsageError):
        sim.step(i.Extend(f.Caps(max_turns=5), "root/a.1"))
    sim.reply("done", handle="root/b.2")
    sim.reply("next done", handle="root/a.1")
    assert sim.result().text == "next done"


@pytest.mark.parametrize("how", ["interrupt", "close"])
def test_a_resumed_child_that_waits_for_a_slot_can_be_ended(how: str) -> None:
    sim = Sim(plan(caps={"a": f.Caps(max_concurrent=1)}), policy="continue")
    sim.begin(closes=False)
    sim.reply("", task("b", "p"), task("b", "q"))
    sim.reply("", spec("ask"), handle="root/a.1/b.1")
    sim.ask()
    assert sim.node("root/a.1/b.2").state is State.RUNNING
    sim.answer()
    assert sim.node("root/a.1/b.1").queued == "resume"
    sim.step(i.Interrupt("root/a.1/b.1") if how == "interrupt" else i.Close("root/a.1/b.1"))
    assert sim.node("root/a.1/b.1").state is State.CLOSED
    sim.reply("done", handle="root/a.1/b.2")
    sim.reply("done", handle="root/a.1")
    assert sim.result().status == "done"
