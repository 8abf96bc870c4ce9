"""`max_wall`: seconds in which a handle or something below it runs, and nothing else."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from overt import (
    Agent,
    Answer,
    Budget,
    Extend,
    LimitInfo,
    ResumePolicy,
    Runtime,
    TaskResult,
    ToolContext,
    tool,
)
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.budget import remaining
from overt.errors import StoreError
from overt.stores import MemoryStore
from overt.testing import MockModel, VirtualClock, call, say
from overt.testing.crashing import Crashed, CrashingStore
from tests.core.sim import Sim, plan, task
from tests.core.sim import call as spec


@tool
async def ask(ctx: ToolContext[object]) -> str:
    return f"answered {(await ctx.ask('ok?')).ok}"


async def driven(clock: VirtualClock, work: Any, *seconds: float) -> Any:
    """Run `work` while the clock moves on by these steps."""
    found: list[Any] = []

    async def host() -> None:
        found.append(await work)

    async with anyio.create_task_group() as group:
        group.start_soon(host)
        for step in seconds:
            await clock.advance(step)
    return found[0]


def thinker(clock: VirtualClock, seconds: float, *script: Any) -> MockModel:
    return MockModel(list(script), think_time=seconds, clock=clock)


async def test_it_ends_a_model_call_in_flight() -> None:
    clock = VirtualClock()
    agent = Agent("a", does="x", tools=[ask], budget=Budget(max_wall=25))
    rt = Runtime(agent, model=thinker(clock, 10, call("nope"), call("nope"), "done"), clock=clock)
    result = await driven(clock, rt.run("go"), 24, 2)
    assert isinstance(result, TaskResult)
    assert (result.status, result.limit, result.limit_at) == ("incomplete", "maxWall", "root/a.1")
    assert (result.turns, result.total_tokens, result.usage.unreported_calls) == (2, 200, 1)
    assert clock.sleepers == 0
    assert rt.remaining("root/a.1").max_wall == 0
    assert len(rt.transcript("root/a.1")) == 5
    done = await driven(clock, rt.extend(Budget(max_wall=40)), 20)
    assert (done.status, done.turns) == ("done", 3)
    assert rt.remaining("root/a.1").max_wall == 5


async def test_it_ends_a_tool_in_flight_and_extend_enters_it_again() -> None:
    clock = VirtualClock()
    entered: list[str] = []

    @tool
    async def slow(ctx: ToolContext[object]) -> str:
        entered.append(ctx.idempotency_key)
        await clock.sleep(60)
        return "slept"

    @tool
    async def quick() -> str:
        entered.append("quick")
        return "was quick"

    agent = Agent("a", does="x", tools=[slow, quick], budget=Budget(max_wall=10))
    rt = Runtime(agent, model=MockModel([[call("quick"), call("slow")], "done"]), clock=clock)
    result = await driven(clock, rt.run("go"), 11)
    assert (result.status, result.limit) == ("incomplete", "maxWall")
    assert [m.text for m in rt.transcript("root/a.1") if m.role == "tool"] == [
        "was quick",
        "not run (maxWall)",
    ]
    done = await driven(clock, rt.extend(Budget(max_wall=100)), 61)
    assert done.output == "done"
    assert entered.count("quick") == 1
    assert len(entered) == 3
    assert len(set(entered)) == 2
    assert done.usage.tool_calls == 2


@pytest.mark.parametrize("where", ["root", "lead", "child"])
async def test_the_cap_of_an_ancestor_counts_its_whole_subtree(where: str) -> None:
    clock = VirtualClock()
    caps: dict[str, Any] = {
        name: Budget(max_wall=15) if name == where else None for name in ("lead", "child")
    }
    child = Agent("child", does="x", budget=caps["child"])
    lead = Agent("lead", does="x", team=[child], budget=caps["lead"])
    script: dict[str, Any] = {
        "lead": [[call("task", agent="child", prompt="p")] * 2, "ok"],
        "child": [call("nope")] * 3,
    }
    model = MockModel(script, think_time=6, clock=clock)
    options: dict[str, Any] = {"budget": Budget(max_wall=15)} if where == "root" else {}
    rt = Runtime(lead, model=model, clock=clock, **options)
    result = await driven(clock, rt.run("go"), *[6] * 10)
    if where == "child":
        assert result.output == "ok"
        metadata = [m.metadata for m in rt.transcript("root/lead.1") if m.role == "tool"]
        assert [m["limit"] for m in metadata] == ["maxWall", "maxWall"]
    else:
        # Two children at once take no more of it than one.
        assert (result.limit, result.limit_at) == ("maxWall", {"root": "root", "lead": "root/lead.1"}[where])
        assert result.usage.turns == 3
        assert {v.state for v in rt.list() if v.agent == "child"} == {"closed"}


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_parked_time_is_not_counted(policy: ResumePolicy) -> None:
    clock = VirtualClock()
    agent = Agent("a", does="x", tools=[ask], budget=Budget(max_wall=35))
    options: dict[str, Any] = {"model": thinker(clock, 10, call("ask"), "done"), "clock": clock}
    rt = Runtime(agent, resume_policy=policy, **options)
    result = await driven(clock, rt.run("go"), 10)
    assert result.status == "pending"
    assert rt.remaining("root/a.1").max_wall == 25
    await clock.advance(90 * 24 * 3600)
    assert rt.remaining("root/a.1").max_wall == 25
    done = await driven(clock, rt.resume(Answer(id=result.pending.id, ok=True)), 10, 10)
    assert done.status == "done"
    assert rt.remaining("root/a.1").max_wall == (5 if policy is ResumePolicy.REWIND else 15)


async def test_time_between_wakes_is_not_counted() -> None:
    clock = VirtualClock()
    agent = Agent("a", does="x", budget=Budget(max_wall=25))
    async with Runtime(agent, model=thinker(clock, 10, "done"), clock=clock) as rt:
        handle = await rt.spawn("root", "a")
        for left in (15, 5):
            assert (await driven(clock, rt.run_turn(handle, "go"), 10)).status == "done"
            await clock.advance(1000)
            assert rt.remaining(handle).max_wall == left
        assert (await driven(clock, rt.run_turn(handle, "go"), 5)).limit == "maxWall"


async def test_a_cap_given_to_spawn_ends_a_call_in_flight_too() -> None:
    clock = VirtualClock()
    store = MemoryStore()
    agent = Agent("a", does="x")
    options: dict[str, Any] = {"model": thinker(clock, 100, "done"), "clock": clock, "store": store}
    async with Runtime(agent, run_id="r", **options) as rt:
        handle = await rt.spawn("root", "a", budget=Budget(max_wall=5))
        result = await driven(clock, rt.run_turn(handle, "go"), 6, 100)
    assert (result.status, result.limit) == ("incomplete", "maxWall")
    assert clock.monotonic() == 106
    again = await Runtime.open(agent, "r", **options)
    result = await driven(clock, again.extend(Budget(max_wall=9)), 5, 100)
    assert (result.status, result.limit) == ("incomplete", "maxWall")
    assert again.remaining(handle).max_wall == 0


async def test_a_stopped_and_a_cancelled_run_are_told_apart() -> None:
    clock = VirtualClock()
    agent = Agent("a", does="x", budget=Budget(max_wall=25))
    model = thinker(clock, 10, [say("one"), call("nope")], [say("two"), call("nope")], "done")
    stopped = await driven(clock, Runtime(agent, model=model, clock=clock).run("go"), 26)
    rt = Runtime(agent, model=model, clock=clock)
    async with anyio.create_task_group() as group:
        group.start_soon(rt.run, "go")
        await clock.advance(21)
        group.cancel_scope.cancel()
    cancelled = rt.result()
    assert (stopped.status, stopped.limit) == ("incomplete", "maxWall")
    assert (cancelled.status, cancelled.limit) == ("interrupted", None)
    for result in (stopped, cancelled):
        assert (result.turns, result.total_tokens, result.partial) == (2, 200, "two")
        assert result.usage.model_calls == 3


# ------------------------------------------------------------ dead time, on the rules


def crashed(**caps: Any) -> Sim:
    """A run of which 2 ms have passed when its process dies, and 100 s more before anybody looks."""
    sim = Sim(plan(root=f.Caps(max_wall=1.0), caps=caps))
    sim.begin(closes=False)
    sim.reply("", spec("ask"), task("b", "p"))
    sim.ask(expires_at=sim.now + 500_000)
    sim.crash()
    sim.now += 100_000_000
    return sim


def wall_of(sim: Sim, handle: str = "root") -> float:
    left = remaining(sim.tree, sim.node(handle), sim.tree.now).max_wall
    assert left is not None
    return 1.0 - left


BEFORE_RECOVER: dict[str, list[i.Input]] = {
    "nothing": [],
    "an expiry": [i.Expire(drive=False)],
    "other agents": [i.Drift(plan(root=f.Caps(max_wall=1.0), inbox_cap=3).dump())],
    "a post": [i.Post("root/a.1", "external", "external", "hello")],
    "a spawn": [i.Spawn("root", "c")],
}


@pytest.mark.parametrize("first", BEFORE_RECOVER)
def test_dead_time_is_not_counted_whatever_is_done_before_recover(first: str) -> None:
    sim = crashed()
    before = wall_of(sim)
    assert before == pytest.approx(0.002)
    sim.step(i.TakeOver())
    for inp in BEFORE_RECOVER[first]:
        sim.step(inp)
    sim.now += 50_000_000
    sim.step(i.TakeOver())
    sim.step(i.Recover())
    assert wall_of(sim) == pytest.approx(before, abs=0.01)
    sim.step(i.Tick())
    assert sim.result().limit is None


@pytest.mark.parametrize("changed", [False, True])
async def test_a_run_whose_process_died_has_all_the_time_it_had_left(changed: bool) -> None:
    clock = VirtualClock()
    store = MemoryStore()
    agent = Agent("a", does="x", budget=Budget(max_wall=35))
    model = thinker(clock, 10, call("nope"), call("nope"), "done")
    rt = Runtime(agent, model=model, clock=clock, store=CrashingStore(store, crash_at=3), run_id="r")
    with pytest.raises((Crashed, BaseExceptionGroup, StoreError)):
        await driven(clock, rt.run("go"), 10, 10)
    await clock.advance(24 * 3600)
    if changed:
        agent = Agent("a", does="x", budget=Budget(max_wall=35), tools=[ask])
    again = await Runtime.open(agent, "r", model=model, clock=clock, store=store)
    # The last record is that of the first reply.
    assert again.remaining("root/a.1").max_wall == 25
    done = await driven(clock, again.recover(), 10, 10)
    assert (done.status, done.turns) == ("done", 3)
    assert again.remaining("root/a.1").max_wall == 5


def test_a_rewind_from_a_limit_stop_draws_what_it_enters_again() -> None:
    sim = Sim(plan(caps={"a": f.Caps(max_wall=1.0)}))
    sim.begin(closes=False)
    sim.reply("", spec("ask"))
    sim.now += 2_000_000
    sim.step(i.Tick())
    assert sim.result().limit == "maxWall"
    sim.step(i.Extend(f.Caps(max_wall=10.0)))
    assert sim.node("root/a.1").own.tool_calls == 1
    sim.ask()
    sim.answer()
    assert sim.effects(type(sim.tool("ask")))
    assert sim.node("root/a.1").own.tool_calls == 2


async def test_it_ends_nothing_while_on_limit_is_asked_about_it() -> None:
    clock = VirtualClock()
    asked: list[LimitInfo] = []

    async def on_limit(info: LimitInfo) -> Extend:
        asked.append(info)
        await clock.sleep(5)
        return Extend(Budget(max_wall=100))

    agent = Agent("a", does="x", budget=Budget(max_wall=10))
    loop = agent.loop(model=thinker(clock, 12, "done"), clock=clock, on_limit=on_limit)
    first = await driven(clock, loop.run("go"), 11)
    assert (first.status, first.limit, asked) == ("incomplete", "maxWall", [])
    second = await driven(clock, loop.run("again"), 3, 3, 13)
    assert (second.status, len(asked)) == ("done", 1)
    assert clock.sleepers == 0
