"""Expiry is an answer: at `open`, `resume` and `recover`, by the run's clock, which never goes back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from overt import Answer, Request, ResumePolicy, Runtime, Status, ToolContext, tool
from overt.errors import AlreadyAnswered, RequestExpired
from overt.stores import MemoryStore
from overt.testing import VirtualClock, call, say
from tests.suspend_kit import agent, first, tools_said, yes

pytestmark = pytest.mark.anyio

START = datetime(2026, 1, 1, tzinfo=UTC)
DUE = START + timedelta(hours=1)
BOTH = pytest.mark.parametrize("policy", list(ResumePolicy))


@tool
async def ask(ctx: ToolContext, n: int = 1, hours: float = 1) -> str:
    """Ask with a deadline."""
    answer = await ctx.ask(f"{n}?", expires_at=START + timedelta(hours=hours))
    return f"{n}: {'yes' if answer.ok else answer.reason}"


WORKER = agent([call("ask"), say("end")], ask)


async def parked(
    worker: Any = WORKER, **options: Any
) -> tuple[Request, Runtime[str], VirtualClock, MemoryStore]:
    clock, store = VirtualClock(START), MemoryStore()
    result, runtime = await worker.run("go", clock=clock, store=store, run_id="r", **options)
    return first(result), runtime, clock, store


@BOTH
@pytest.mark.parametrize("late", [0.0, 0.001, 86_400.0 * 365])
async def test_an_answer_at_or_after_the_time_is_refused_and_recover_goes_on(
    policy: ResumePolicy, late: float
) -> None:
    request, runtime, clock, _ = await parked(resume_policy=policy)
    assert request.expires_at == DUE
    await clock.advance(3600 + late)
    with pytest.raises(RequestExpired) as caught:
        await runtime.resume(yes(request))
    assert caught.value.expires_at == DUE
    assert runtime.pendings() == (), "the runtime has answered it"
    result = await runtime.recover()
    assert result.status is Status.DONE
    assert tools_said(runtime.transcript(result.handle)) == ["1: expired"]
    with pytest.raises((RequestExpired, AlreadyAnswered)):
        await runtime.resume(yes(request))


async def test_an_answer_before_the_time_counts() -> None:
    request, runtime, clock, _ = await parked()
    await clock.advance(3599.999)
    result = await runtime.resume(yes(request))
    await clock.advance(3600)
    assert (await runtime.recover()).status is Status.DONE
    assert tools_said(runtime.transcript(result.handle)) == ["1: yes"]


async def test_open_answers_what_is_due_and_runs_nothing() -> None:
    request, _, clock, store = await parked()
    early = await Runtime.open(WORKER, "r", store=store, clock=clock)
    assert [r.id for r in early.pendings()] == [request.id]
    await clock.advance(3600)
    runtime = await Runtime.open(WORKER, "r", store=store, clock=clock)
    assert runtime.pendings() == ()
    assert runtime.result().turns == 1
    assert any("expired" in line for line in runtime.trace())
    with pytest.raises(RequestExpired):
        await runtime.resume(yes(request))
    result = await runtime.recover()
    assert result.status is Status.DONE
    assert tools_said(runtime.transcript(result.handle)) == ["1: expired"]


async def test_recover_answers_what_is_due() -> None:
    _, runtime, clock, _ = await parked()
    result = await runtime.recover()
    assert result.status is Status.PENDING
    await clock.advance(3600)
    result = await runtime.recover()
    assert (result.status, result.turns) == (Status.DONE, 3), "expiry is an answer, and this run rewinds"


async def test_a_clock_set_back_does_not_bring_a_request_back() -> None:
    worker = agent([[call("ask", n=1), call("ask", n=2, hours=9)], say("end")], ask)
    request, runtime, clock, store = await parked(worker)
    other = runtime.pendings()[1]
    await clock.advance(7200)
    with pytest.raises(RequestExpired):
        await runtime.resume(yes(request))
    clock.set_wall(START)
    with pytest.raises(RequestExpired):
        await runtime.resume(yes(request))
    reopened = await Runtime.open(worker, "r", store=store, clock=clock)
    result = await reopened.resume(yes(other))
    assert result.status is Status.DONE
    assert tools_said(reopened.transcript(result.handle)) == ["1: expired", "2: yes"]
    times = [line.split()[1:3] for line in reopened.trace()]
    assert times == sorted(times), "time never goes back"


async def test_one_of_two_expires_and_the_other_still_waits() -> None:
    worker = agent([[call("ask", n=1), call("ask", n=2, hours=9)], say("end")], ask)
    _, runtime, clock, _ = await parked(worker)
    other = runtime.pendings()[1]
    await clock.advance(7200)
    result = await runtime.recover()
    assert result.status is Status.PENDING
    assert [r.id for r in result.pendings] == [other.id]
    result = await runtime.resume(yes(other))
    assert tools_said(runtime.transcript(result.handle)) == ["1: expired", "2: yes"]


async def test_what_expired_in_another_branch_goes_on_with_the_answer() -> None:
    one = agent([call("ask", n=1), say("one is through")], ask, name="one")
    two = agent([call("ask", n=2, hours=9), say("two is through")], ask, name="two")
    both = [call("task", agent="one", prompt="p"), call("task", agent="two", prompt="p")]
    boss = agent([both, say("end")], name="boss", team=[one, two])
    _, runtime, clock, _ = await parked(boss)
    other = next(r for r in runtime.pendings() if r.prompt == "2?")
    await clock.advance(7200)
    result = await runtime.resume(yes(other))
    assert result.status is Status.DONE
    assert tools_said(runtime.transcript(result.handle)) == ["one is through", "two is through"]


async def test_a_list_with_an_expired_one_applies_not_at_all() -> None:
    worker = agent([[call("ask", n=1), call("ask", n=2, hours=9)], say("end")], ask)
    one, runtime, clock, _ = await parked(worker)
    two = runtime.pendings()[1]
    await clock.advance(7200)
    with pytest.raises(RequestExpired):
        await runtime.resume([yes(two), yes(one)])
    assert [r.id for r in runtime.pendings()] == [two.id]


async def test_an_interpreter_that_answers_too_late() -> None:
    clock = VirtualClock(START)

    async def host(request: Request) -> Answer[Any]:
        await clock.advance(7200)
        return yes(request)

    result, runtime = await WORKER.run("go", clock=clock, wait_for=host)
    assert result.status is Status.DONE
    assert tools_said(runtime.transcript(result.handle)) == ["1: expired"]


async def test_an_expired_child_goes_on_and_its_parent_with_it() -> None:
    child = agent([call("ask"), say("child is through")], ask, name="child")
    boss = agent([call("task", agent="child", prompt="p"), say("end")], name="boss", team=[child])
    _, runtime, clock, _ = await parked(boss)
    await clock.advance(3600)
    result = await runtime.recover()
    assert result.status is Status.DONE
    assert tools_said(runtime.transcript("root/boss.1/child.1")) == ["1: expired"]
