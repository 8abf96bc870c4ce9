"""One driver a run: who has the claim, how long, who gets it next, and what becomes of a driver that lost it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import pytest
from tests.durability.crew import LEAD, RUN, Host, World, facts_of
from tests.durability.spies import Watched

from overt import Agent, Answer, Budget, ResumePolicy, Runtime, ToolContext, tool
from overt.clock import Clock
from overt.core import facts as f
from overt.errors import AlreadyAnswered, OvertError, RunConflict, RunExists, StoreError, UsageError
from overt.journal.record import Record
from overt.message import ModelRequest, ModelResponse
from overt.stores import MemoryStore, SQLiteStore, Store
from overt.testing import CrashingStore, MockModel, VirtualClock, call, say

pytestmark = pytest.mark.anyio


class Desk:
    """An agent whose tool waits until it is let go on, and counts how often it was entered."""

    def __init__(self) -> None:
        self.entered = 0
        self.inside = anyio.Event()
        self.go_on = anyio.Event()
        self.asked = 0

        @tool
        async def work(ctx: ToolContext[None]) -> str:
            """Work."""
            self.entered += 1
            self.inside.set()
            await self.go_on.wait()
            return "worked"

        @tool
        async def ask(ctx: ToolContext[None], n: int) -> str:
            """Ask."""
            answer = await ctx.ask(f"{n}?")
            self.entered += 1
            return f"{n}: {answer.data}"

        self.agent = Agent("a", does="Works.", tools=[work, ask])

    def runtime(self, store: Store, clock: Clock, model: Any = None, **options: Any) -> Runtime[str]:
        return Runtime(self.agent, run_id=RUN, **self.options(store, clock, model), **options)

    async def open(self, store: Store, clock: Clock, model: Any = None, **options: Any) -> Runtime[str]:
        return await Runtime.open(self.agent, RUN, **self.options(store, clock, model), **options)

    def options(self, store: Store, clock: Clock, model: Any) -> dict[str, Any]:
        return {"store": store, "clock": clock, "model": model or MockModel([call("work"), say("end")])}


class Held:
    """A model that waits before its first reply."""

    name = "held"

    def __init__(self, inner: MockModel) -> None:
        self.inner = inner
        self.asked = anyio.Event()
        self.go_on = anyio.Event()

    async def generate(self, request: ModelRequest) -> ModelResponse:
        self.asked.set()
        await self.go_on.wait()
        return await self.inner.generate(request)


async def caught(errors: list[Exception], work: Callable[[], Awaitable[object]]) -> None:
    try:
        await work()
    except OvertError as error:
        errors.append(error)


async def test_a_live_run_is_not_recovered_by_another() -> None:
    desk, store, clock = Desk(), MemoryStore(), VirtualClock()
    runtime = desk.runtime(store, clock)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.run, "go")
        await desk.inside.wait()
        other = await desk.open(store, clock)
        before = await facts_of(store)
        for verb in (
            lambda: other.recover(),
            lambda: other.resume(Answer(id="x", ok=True)),
            lambda: other.close(),
            lambda: other.interrupt(),
        ):
            with pytest.raises(RunConflict) as conflict:
                await verb()
            assert conflict.value.owner == (await store.info(RUN)).owner
            assert conflict.value.until == clock.now() + timedelta(seconds=30)
        with pytest.raises(UsageError, match="at work in this runtime"):
            await runtime.recover()
        assert await facts_of(store) == before
        desk.go_on.set()
    assert runtime.result().text == "end"
    assert desk.entered == 1
    # Whoever was refused may look again, and sees what happened.
    assert (await other.recover()).text == "end"
    assert desk.entered == 1


async def test_force_takes_the_run_and_the_stalled_driver_is_fenced() -> None:
    desk, store, clock = Desk(), MemoryStore(), VirtualClock()
    desk.go_on.set()
    held = Held(MockModel([call("work"), say("end")]))
    stalled = desk.runtime(store, clock, held)
    errors: list[Exception] = []
    async with anyio.create_task_group() as group:
        group.start_soon(caught, errors, lambda: stalled.run("go"))
        await held.asked.wait()
        other = await desk.open(store, clock)
        result = await other.recover(force=True)
        assert result.text == "end"
        assert desk.entered == 1
        after = await facts_of(store)
        held.go_on.set()
    assert [type(e) for e in errors] == [RunConflict]
    assert desk.entered == 1, "the fenced driver entered a tool"
    assert await facts_of(store) == after
    with pytest.raises(StoreError):
        await stalled.recover()


@pytest.mark.parametrize(("force", "seconds"), [(True, 2), (False, 31)])
async def test_a_driver_that_was_stopped_and_lost_its_run_enters_no_tool(force: bool, seconds: int) -> None:
    """It comes back between the append that says "about to enter" and the tool."""
    desk, inner, clock, later = Desk(), MemoryStore(), VirtualClock(), VirtualClock()
    desk.go_on.set()
    asleep, awake = anyio.Event(), anyio.Event()

    async def sleep(facts: list[f.Fact]) -> None:
        if any(isinstance(x, f.CallEntered) for x in facts):
            asleep.set()
            await awake.wait()

    stalled = desk.runtime(Watched(inner, after=sleep), clock)
    errors: list[Exception] = []
    async with anyio.create_task_group() as group:
        group.start_soon(caught, errors, lambda: stalled.run("go"))
        await asleep.wait()
        for one in (clock, later):
            one.set_wall(one.now() + timedelta(seconds=seconds))
        other = await desk.open(inner, later)
        result = await other.recover(force=force)
        assert (result.text, desk.entered) == ("end", 1)
        after = await facts_of(inner)
        awake.set()
    assert [type(e) for e in errors] == [RunConflict]
    assert "taken over" in str(errors[0])
    assert desk.entered == 1
    assert await facts_of(inner) == after


async def test_a_claim_that_ran_out_but_nobody_took_still_holds() -> None:
    desk, inner, clock = Desk(), MemoryStore(), VirtualClock()
    desk.go_on.set()

    async def sleep(facts: list[f.Fact]) -> None:
        if any(isinstance(x, f.CallEntered) for x in facts):
            clock.set_wall(clock.now() + timedelta(hours=1))

    runtime = desk.runtime(Watched(inner, after=sleep), clock)
    assert (await runtime.run("go")).text == "end"


async def test_the_claim_is_renewed_while_a_long_tool_runs() -> None:
    desk, store, clock = Desk(), MemoryStore(), VirtualClock()
    runtime = desk.runtime(store, clock)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.run, "go")
        await desk.inside.wait()
        for _ in range(12):
            await clock.advance(10)
            until = (await store.info(RUN)).until
            assert until is not None
            assert until >= clock.now() + timedelta(seconds=15)
            other = await desk.open(store, clock)
            with pytest.raises(RunConflict):
                await other.recover()
        desk.go_on.set()
    assert (runtime.result().text, desk.entered) == ("end", 1)


async def test_the_length_of_a_claim_is_an_option() -> None:
    desk, store, clock = Desk(), MemoryStore(), VirtualClock()
    runtime = desk.runtime(store, clock, claim=6)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.run, "go")
        await desk.inside.wait()
        assert (await store.info(RUN)).until == clock.now() + timedelta(seconds=6)
        await clock.advance(100)
        until = (await store.info(RUN)).until
        assert until is not None
        assert until > clock.now()
        desk.go_on.set()
    assert runtime.result().text == "end"


async def test_a_renewal_that_finds_the_run_taken_stops_the_driver() -> None:
    """A tool that waits for hours is told as soon as the renewal knows, not at its next append."""
    desk, store, clock = Desk(), MemoryStore(), VirtualClock()
    runtime = desk.runtime(store, clock)
    errors: list[Exception] = []
    async with anyio.create_task_group() as group:
        group.start_soon(caught, errors, lambda: runtime.run("go"))
        await desk.inside.wait()
        other = await desk.open(store, VirtualClock(), MockModel([call("ask", n=1), say("end")]))
        parked = await other.recover(force=True, policy=ResumePolicy.REWIND)
        assert parked.status == "pending"
        await clock.advance(11)
    assert [type(e) for e in errors] == [RunConflict]


async def test_parked_finished_failed_and_stopped_runs_have_no_claim() -> None:
    clock = VirtualClock()
    for model, status in (
        (MockModel([call("ask", n=1), say("end")]), "pending"),
        (MockModel([say("end")]), "done"),
        (MockModel([RuntimeError("gone")]), "error"),
        (MockModel([call("ask", n=1)], tokens=2000), "incomplete"),
    ):
        desk, store = Desk(), MemoryStore()
        runtime = desk.runtime(store, clock, model, budget=Budget(max_tool_calls=int(status != "incomplete")))
        result = await runtime.run("go")
        assert result.status == status
        info = await store.info(RUN)
        assert (info.owner, info.until, info.status) == (None, None, status)


async def test_a_cancelled_run_has_no_claim() -> None:
    desk, store, clock = Desk(), MemoryStore(), VirtualClock()
    runtime = desk.runtime(store, clock)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.run, "go")
        await desk.inside.wait()
        group.cancel_scope.cancel()
    assert (await store.info(RUN)).owner is None
    assert runtime.result().status == "interrupted"
    desk.go_on.set()
    other = await desk.open(store, clock)
    assert (await other.recover()).text == "end"


async def test_a_run_id_is_used_once() -> None:
    desk, store, clock = Desk(), MemoryStore(), VirtualClock()
    desk.go_on.set()
    await desk.runtime(store, clock).run("go")
    before, info = await facts_of(store), await store.info(RUN)
    model = MockModel([say("other")])
    again = desk.runtime(store, clock, model)
    with pytest.raises(RunExists, match=RUN):
        await again.run("something else")
    assert model.requests == []
    assert await facts_of(store) == before
    assert await store.info(RUN) == info


async def test_an_object_opened_earlier_catches_up() -> None:
    """Two objects on one run take turns; neither overwrites the other, neither acts on what it saw before."""
    store, clock = MemoryStore(), VirtualClock()
    desk = Desk()
    model = MockModel([[call("ask", n=1), call("ask", n=2)], [call("ask", n=3)], say("end")])
    first = desk.runtime(store, clock, model, resume_policy=ResumePolicy.CONTINUE)
    parked = await first.run("go")
    second = await desk.open(store, clock, model)
    one, two = parked.pendings
    await first.resume(Answer(id=one.id, ok=True, data="a"))
    assert len(second.pendings()) == 2, "reading alone reads nothing anew"
    with pytest.raises(AlreadyAnswered) as already:
        await second.resume(Answer(id=one.id, ok=True, data="b"))
    assert (already.value.same, already.value.answer.data) == (False, "a")
    assert [r.id for r in second.pendings()] == [two.id]
    third = await second.resume(Answer(id=two.id, ok=True, data="b"))
    assert third.pending is not None
    assert third.pending.prompt == "3?"
    # The first object never heard of the third question.
    result = await first.resume(Answer(id=third.pending.id, ok=True, data="c"))
    assert (result.text, desk.entered) == ("end", 3)
    assert (await second.recover()).text == "end"
    facts = await facts_of(store)
    assert sum(isinstance(x, f.AnswerGiven) for x in facts) == 3
    assert second.trace() == first.trace()
    assert (await store.info(RUN)).owner is None


async def test_a_refused_verb_leaves_no_claim_behind() -> None:
    store, clock, desk = MemoryStore(), VirtualClock(), Desk()
    model = MockModel([call("ask", n=1), say("end")])
    parked = await desk.runtime(store, clock, model).run("go")
    other = await desk.open(store, clock, model)
    for verb in (
        lambda: other.resume(Answer(id="nobody", ok=True)),
        lambda: other.resume([]),
        lambda: other.extend(Budget(max_turns=9)),
        lambda: other.spawn("root", "nobody"),
    ):
        with pytest.raises(UsageError):
            await verb()
        assert (await store.info(RUN)).owner is None
    assert parked.pending is not None
    assert (await other.resume(Answer(id=parked.pending.id, ok=True, data="x"))).text == "end"


async def test_of_two_that_answer_at_once_one_is_refused() -> None:
    for policy in ResumePolicy:
        store, world = MemoryStore(), World()
        host = Host(world, store, policy)
        parked = await Runtime(LEAD, run_id=RUN, **host.options()).run("sell")
        assert parked.pending is not None
        answer = host.answer(parked.pending)
        outcomes: list[Exception] = []
        async with anyio.create_task_group() as group:
            for _ in range(4):
                runtime = await Runtime.open(LEAD, RUN, **host.options())
                group.start_soon(caught, outcomes, partial(runtime.resume, answer))
        assert len(outcomes) == 3
        assert {type(e) for e in outcomes} <= {RunConflict, AlreadyAnswered}
        assert world.times("book 12a yes") == 1
        assert sum(isinstance(x, f.AnswerGiven) for x in await facts_of(store)) == 1


async def test_a_parked_run_keeps_no_task_for_its_claim() -> None:
    """Months may pass inside `async with`: nothing wakes for a claim that is not held."""
    clock = VirtualClock()

    @tool
    async def ask(ctx: ToolContext[None]) -> str:
        """Ask."""
        return str((await ctx.ask("ok?")).ok)

    model = MockModel([call("ask"), say("end")])
    agent = Agent("w", does="Works.", tools=[ask], model=model)
    async with Runtime(agent, store=MemoryStore(), clock=clock) as runtime:
        assert (await runtime.run("go")).pending is not None
        await clock.advance(60)
        assert clock.sleepers == 0
        result = await runtime.resume(Answer(id=runtime.pendings()[0].id, ok=True))
    assert result.text == "end"


async def test_a_claim_taken_anew_after_a_long_park_is_renewed_again() -> None:
    """The task that renewed it has ended with the park; the answered tool then takes longer than a claim lasts."""
    clock, store = VirtualClock(), CrashingStore(MemoryStore())
    going, inside, told = anyio.Event(), anyio.Event(), anyio.Event()

    @tool
    async def ask(ctx: ToolContext[None]) -> str:
        """Ask, and then take long."""
        answer = await ctx.ask("ok?")
        inside.set()
        await going.wait()
        return str(answer.ok)

    async def on_pending(request: Any) -> None:
        told.set()

    agent = Agent("w", does="Works.", tools=[ask], model=MockModel([call("ask"), say("end")]))
    async with Runtime(agent, store=store, clock=clock, run_id=RUN, on_pending=on_pending) as runtime:
        assert (await runtime.run("go")).pending is not None
        await clock.advance(60)  # nothing is held, so nothing renews any more
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.resume, Answer(id=runtime.pendings()[0].id, ok=True))
            await inside.wait()
            for _ in range(9):
                await clock.advance(10)
            until = (await store.info(RUN)).until
            assert until is not None
            assert until > clock.now()
            going.set()
    assert runtime.result().text == "end"


class Late(Watched):
    """A store whose driver hears late that its claim is given up: the time to renew it comes first."""

    def __init__(self, inner: Store, clock: VirtualClock) -> None:
        super().__init__(inner)
        self.clock = clock
        self.renewals = 0
        self.renewed = anyio.Event()

    async def append(self, run_id: str, records: Sequence[Record], **options: Any) -> str | None:
        mark = await super().append(run_id, records, **options)
        if options.get("release"):
            await self.clock.advance(10)
            await anyio.wait_all_tasks_blocked()
            if self.renewals:
                await self.renewed.wait()
        return mark

    async def renew(self, run_id: str, **options: Any) -> str | None:
        self.renewals += 1
        try:
            return await super().renew(run_id, **options)
        finally:
            self.renewed.set()


async def test_a_claim_that_is_being_given_up_is_not_renewed(tmp_path: Any) -> None:
    """Or the run of a driver that has come to rest would seem to be another's."""
    clock, inner = VirtualClock(), SQLiteStore(tmp_path / "runs.db")
    store = Late(inner, clock)
    ask = MockModel([call("ask", n=1), say("end")])
    rt = Desk().runtime(store, clock, ask)
    result = await rt.run("go")
    assert (result.status, store.renewals) == ("pending", 0)
    assert result.pending is not None
    assert (await rt.resume(Answer(id=result.pending.id, ok=True, data=1))).status == "done"
    await inner.close()
