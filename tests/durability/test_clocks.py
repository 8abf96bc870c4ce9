"""Clocks that are set back, that jump, and expiry on time: by the run's clock, whatever stores the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.suspend_kit import agent, first, tools_said, yes

from overt import Agent, Answer, Budget, Request, ResumePolicy, Runtime, Status, ToolContext, tool
from overt.errors import RequestExpired
from overt.events import AnswerGiven
from overt.stores import MemoryStore, SQLiteStore, Store
from overt.testing import MockModel, VirtualClock, call, say

pytestmark = pytest.mark.anyio

START = datetime(2026, 1, 1, tzinfo=UTC)
DUE = START + timedelta(hours=1)
YEARS = timedelta(days=3652)
TICK = timedelta(microseconds=1)
POLICIES = pytest.mark.parametrize("policy", list(ResumePolicy))


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "runs.db")
    yield made
    await made.close()


@tool
async def ask(ctx: ToolContext, n: int = 1, hours: float | None = 1) -> str:
    """Ask with a deadline."""
    at = None if hours is None else START + timedelta(hours=hours)
    answer = await ctx.ask(f"{n}?", expires_at=at)
    return f"{n}: {'yes' if answer.ok else answer.reason}"


WORKER = agent([[call("ask", n=1), call("ask", n=2, hours=9)], say("end")], ask)


def times(runtime: Runtime[Any]) -> list[datetime]:
    return [event.at for event in runtime.events()]


async def opened(
    clock: VirtualClock, store: Store, worker: Agent[None, str] = WORKER, **options: Any
) -> Runtime[str]:
    return await Runtime.open(worker, "r", store=store, clock=clock, **options)


@POLICIES
async def test_a_clock_set_back_during_a_suspension(store: Store, policy: ResumePolicy) -> None:
    clock = VirtualClock(START)
    result, runtime = await WORKER.run("go", clock=clock, store=store, run_id="r", resume_policy=policy)
    one, two = result.pendings
    parked_at = times(runtime)[-1]
    clock.set_wall(START - YEARS)
    runtime = await opened(clock, store)
    assert [r.id for r in runtime.pendings()] == [one.id, two.id], "nothing expires by a clock that is behind"
    result = await runtime.resume(yes(two))
    assert [r.id for r in result.pendings] == [one.id]
    assert {at for at in times(runtime) if at >= parked_at} == {parked_at}, (
        "what is new has the time of the last fact"
    )
    (info,) = [await store.info("r")]
    assert info.owner is None, "the claim of that time is given up"
    clock.set_wall(DUE - TICK)
    runtime = await opened(clock, store)
    assert [r.id for r in runtime.pendings()] == [one.id]
    clock.set_wall(DUE)
    runtime = await opened(clock, store)
    assert runtime.pendings() == ()
    result = await runtime.recover()
    assert result.status is Status.DONE
    assert tools_said(runtime.transcript(result.handle)) == ["1: expired", "2: yes"]
    assert times(runtime) == sorted(times(runtime))


async def test_a_clock_set_back_does_not_put_off_what_the_run_has_seen_pass(store: Store) -> None:
    """The run's own time is the last fact's: what is due by that is due, whatever the clock says."""
    clock = VirtualClock(START)
    asks = agent([[call("ask", n=2, hours=None)], [call("ask", n=1, hours=0.5)], say("end")], ask)
    result, _ = await asks.run(
        "go", clock=clock, store=store, run_id="r", resume_policy=ResumePolicy.CONTINUE
    )
    await clock.advance(3600)
    runtime = await opened(clock, store, asks)
    clock.set_wall(START)
    reader = await opened(clock, store, asks)
    result = await reader.resume(yes(result))
    assert [r.prompt for r in result.pendings] == ["1?"], "by this clock there is half an hour left"
    clock.set_wall(DUE)
    await (await opened(clock, store, asks)).recover()
    clock.set_wall(START)
    runtime = await opened(clock, store, asks)
    assert runtime.result().status is Status.DONE
    assert tools_said(runtime.transcript(result.handle)) == ["2: yes", "1: expired"]


@POLICIES
async def test_a_clock_that_jumps_by_years_during_a_suspension(store: Store, policy: ResumePolicy) -> None:
    clock = VirtualClock(START)
    asks = agent([[call("ask", n=1), call("ask", n=2, hours=None)], say("end")], ask)
    options: dict[str, Any] = {"resume_policy": policy, "budget": Budget(max_wall=60)}
    result, _ = await asks.run("go", clock=clock, store=store, run_id="r", **options)
    one, two = result.pendings
    clock.set_wall(START + YEARS)
    runtime = await opened(clock, store, asks)
    assert [r.id for r in runtime.pendings()] == [two.id]
    with pytest.raises(RequestExpired):
        await runtime.resume(yes(one))
    result = await runtime.resume(yes(two))
    assert result.status is Status.DONE, "the years it was parked are no running time"
    assert tools_said(runtime.transcript(result.handle)) == ["1: expired", "2: yes"]
    given = [e for e in runtime.events() if isinstance(e, AnswerGiven)]
    assert [(e.request_id, e.expired, e.at) for e in given] == [
        (one.id, True, START + YEARS),
        (two.id, False, START + YEARS),
    ]


async def test_a_clock_that_jumps_while_a_tool_runs_loses_nobody_the_run(store: Store) -> None:
    clock = VirtualClock(START)

    @tool
    async def jump(by: int) -> str:
        """Jump."""
        clock.set_wall(clock.now() + by * YEARS)
        return "jumped"

    jumps = [call("jump", by=1), call("jump", by=-2), call("jump", by=3)]
    worker = Agent("w", does="works", tools=[jump], model=MockModel([*jumps, say("end")]))
    result, runtime = await worker.run("go", clock=clock, store=store, run_id="r")
    assert result.status is Status.DONE
    assert times(runtime) == sorted(times(runtime))
    assert times(runtime)[-1] == START + 2 * YEARS
    again = await Runtime.open(worker, "r", store=store, clock=VirtualClock(START - YEARS))
    assert again.result() == result


@POLICIES
@pytest.mark.parametrize("early", [False, True])
async def test_expiry_is_exact_to_the_microsecond(store: Store, policy: ResumePolicy, early: bool) -> None:
    clock = VirtualClock(START)
    result, runtime = await WORKER.run("go", clock=clock, store=store, run_id="r", resume_policy=policy)
    clock.set_wall(DUE - TICK if early else DUE)
    if early:
        assert len((await runtime.recover()).pendings) == 2
        result = await runtime.resume(yes(result))
        assert [r.prompt for r in result.pendings] == ["2?"]
        return
    with pytest.raises(RequestExpired):
        await runtime.resume(yes(result))
    (given,) = [e for e in runtime.events() if isinstance(e, AnswerGiven)]
    assert (given.expired, given.at) == (True, DUE)


# ------------------------------------------------------------------ while something else is at work


def family(clock: VirtualClock) -> Agent[None, str]:
    """A parent that works for three hours beside a child that asks for one."""

    @tool
    async def work() -> str:
        """Work."""
        await clock.sleep(3 * 3600)
        return "worked"

    child = agent([call("ask"), say("child is through")], ask, name="child")
    both = [call("task", agent="child", prompt="p"), call("work")]
    return agent([both, say("end")], work, name="boss", team=[child])


@POLICIES
async def test_a_childs_request_expires_on_time_while_its_parent_works(
    store: Store, policy: ResumePolicy
) -> None:
    clock = VirtualClock(START)
    runtime = Runtime(family(clock), clock=clock, store=store, run_id="r", resume_policy=policy)
    handle = "root/boss.1/child.1"
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group, runtime.follow() as seen:
            group.start_soon(runtime.run, "go")
            async for event in seen:
                if event.kind == "parked":
                    break
            # The timer is set, beside the tool's own sleep and what renews the claim.
            await clock.wait_for_sleepers(2)
            await clock.advance(3599.999999)
            assert [r.prompt for r in runtime.pendings()] == ["1?"]
            await clock.advance(0.000001)
            async for event in seen:
                if event.kind == "settled":
                    break
            assert (event.handle, event.at) == (handle, DUE), (
                "the child is through while its parent still works"
            )
            assert runtime.inspect("root/boss.1").state == "running"
            await clock.advance(2 * 3600)
            async for _ in seen:
                pass
    result = runtime.result()
    assert (result.status, result.turns) == (Status.DONE, 2), "the parent has not been replayed for it"
    assert tools_said(runtime.transcript(result.handle)) == ["child is through", "worked"]
    assert tools_said(runtime.transcript(handle)) == ["1: expired"]
    (given,) = [e for e in runtime.events() if isinstance(e, AnswerGiven)]
    assert (given.expired, given.at) == (True, DUE)


async def test_an_interpreter_that_takes_for_ever_is_not_waited_for_past_the_time(store: Store) -> None:
    clock = VirtualClock(START)
    asked: list[Request] = []

    async def host(request: Request) -> Answer[Any]:
        asked.append(request)
        await anyio.sleep_forever()
        raise AssertionError

    worker = agent([call("ask"), say("end")], ask)
    runtime = Runtime(worker, clock=clock, store=store, run_id="r", wait_for=host)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group, runtime.follow() as seen:
            group.start_soon(runtime.run, "go")
            async for event in seen:
                if event.kind == "request":
                    break
            while not asked:
                await anyio.lowlevel.checkpoint()
            await clock.wait_for_sleepers(1 if isinstance(store, MemoryStore) else 2)
            await clock.advance(3600)
            async for _ in seen:
                pass
    assert runtime.result().status is Status.DONE
    assert tools_said(runtime.transcript("root/w.1")) == ["1: expired"]


async def test_a_run_that_has_parked_whole_has_no_timer(store: Store) -> None:
    clock = VirtualClock(START)
    runtime = Runtime(WORKER, clock=clock, store=store, run_id="r")
    with anyio.fail_after(20):
        async with runtime:
            result = await runtime.run_turn(await runtime.spawn("root", "w"), "go")
            assert result.status is Status.PENDING
            while clock.sleepers:
                await clock.advance(60)  # the claim's keeper wakes once more, and finds that there is none
            assert len(runtime.pendings()) == 2
            await clock.advance(3600)
            assert len(runtime.pendings()) == 2, "nobody is at work"
    assert first(runtime.result()).prompt == "1?"
    assert [r.prompt for r in (await opened(clock, store)).pendings()] == ["2?"]
