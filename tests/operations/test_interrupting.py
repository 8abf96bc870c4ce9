"""Interrupting a run from anywhere: done at once where nobody drives it, asked of its driver where one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from overt import Agent, Answer, Runtime, State, TaskResult, UsageError
from overt.core import facts as f
from overt.errors import AlreadyAnswered, JournalCorrupt, RunConflict, RunNotFound
from overt.journal.loading import load
from overt.journal.store import Owner
from overt.stores import (
    Change,
    Claim,
    Interruption,
    MemoryStore,
    OpenRequest,
    Store,
    StoreWrapper,
)
from overt.testing import VirtualClock, say
from overt.testing.crashing import Crashed, CrashingStore
from tests.durability.spies import Watched
from tests.operations.kit import (
    GONE,
    HOUR,
    START,
    Inside,
    answer,
    asking,
    chief,
    clerk,
    copy,
    damaged,
    facts_of,
    options,
    park,
)

pytestmark = pytest.mark.anyio


async def interrupted(
    store: Store, run_id: str = "run", agent: Agent[None, str] | None = None
) -> Runtime[str]:
    """A run that is over in every way."""
    info = await store.info(run_id)
    assert (info.status, info.owner, info.interrupt) == ("interrupted", None, None)
    assert await store.open_requests(run_id=run_id) == []
    tree, _ = await load(store, run_id)
    assert not tree.open
    assert tree.root.state is State.CLOSED
    runtime = await Runtime.open(agent or clerk(), run_id, store=store, clock=VirtualClock(START))
    assert runtime.result().status == "interrupted"
    assert (await runtime.recover()).status == "interrupted"
    return runtime


async def test_a_parked_run_at_once(store: Store) -> None:
    await park(store, "run", clerk())
    done = await store.interrupt("run", reason="too late", now=START + HOUR)
    assert done == Interruption(run_id="run", outcome="interrupted", status="interrupted")
    runtime = await interrupted(store)
    assert "too late" in runtime.result().text
    assert (await store.info("run")).updated == START + HOUR
    with pytest.raises(AlreadyAnswered, match="cancelled"):
        await answer_id(runtime)


async def answer_id(runtime: Runtime[str]) -> TaskResult[str]:
    (asked,) = [x for _, _, facts in runtime._driver.log for x in facts if isinstance(x, f.CallAsked)]
    return await runtime.resume(Answer(id=asked.request, ok=True))


async def test_a_tree_is_closed_below_too(store: Store) -> None:
    await park(store, "run", chief())
    assert (await store.interrupt("run", now=START)).outcome == "interrupted"
    runtime = await interrupted(store, agent=chief())
    assert [view.state for view in runtime.list()] == [State.CLOSED, State.CLOSED]


async def test_a_run_whose_driver_died(store: Store) -> None:
    whole = MemoryStore()
    await park(whole, "run", clerk())
    await copy(whole, "run", store, change=lambda records: records[:3])
    assert (await store.interrupt("run", now=START)).outcome == "interrupted"
    kinds = [type(x) for x in await facts_of(store, "run")]
    assert kinds[-5:] == [f.DriverLost, f.EffectLost, f.WakeSettled, f.HandleClosed, f.HandleClosed]
    await interrupted(store)


async def test_a_run_that_was_cut_off(store: Store) -> None:
    scope = anyio.CancelScope()

    async def cancel() -> None:
        scope.cancel()
        await anyio.sleep_forever()

    inside = Inside(cancel)
    with scope:
        await inside.agent.run("go", **options(store, "run"))
    assert (await store.info("run")).status == "cut_off"
    assert (await store.interrupt("run", now=START)).outcome == "interrupted"
    await interrupted(store, agent=inside.agent)


async def test_a_run_that_may_go_on_after_an_expiry(store: Store) -> None:
    await park(store, "run", asking(what="Go", hours=1))
    await store.expire_due(START + HOUR)
    assert (await store.interrupt("run", now=START + HOUR)).outcome == "interrupted"
    await interrupted(store)


@pytest.mark.parametrize("ends", ["done", "interrupted"])
async def test_a_run_that_has_ended_stays_as_it_is(store: Store, ends: str) -> None:
    await park(store, "run", clerk())
    if ends == "done":
        await answer(store, "run", clerk())
    else:
        await store.interrupt("run", now=START)
    before = await facts_of(store, "run")
    assert await store.interrupt("run", now=START) == Interruption(
        run_id="run", outcome="at_rest", status=ends
    )
    assert await facts_of(store, "run") == before
    info = await store.info("run")
    assert (info.interrupt, info.owner) == (None, None)


async def test_a_failed_run_can_still_be_recovered(store: Store) -> None:
    """As `Runtime.interrupt`, it ends what works or waits, and nothing else."""
    agent = clerk(RuntimeError("no line"), say("done"))
    result, _ = await agent.run("go", **options(store, "run"))
    assert result.status == "error"
    assert (await store.interrupt("run", now=START)).outcome == "at_rest"
    runtime = await Runtime.open(clerk(say("done")), "run", store=store, clock=VirtualClock(START))
    assert (await runtime.recover()).status == "done"


async def test_a_living_driver_is_asked_and_obeys(store: Store) -> None:
    said: list[Interruption] = []

    async def meanwhile() -> None:
        said.append(await store.interrupt("run", reason="changed my mind", now=START))

    inside = Inside(meanwhile)
    result, _ = await inside.agent.run("go", **options(store, "run"))
    (asked,) = said
    assert (asked.outcome, asked.status) == ("asked", "running")
    assert asked.owner
    assert asked.until == START + HOUR / 120
    assert result.status == "interrupted"
    assert "changed my mind" in result.text
    assert inside.entered == 1
    await interrupted(store, agent=inside.agent)


async def test_a_driver_that_parks_at_that_moment(store: Store) -> None:
    """The mark comes before the append that parks the run and gives it up: its driver is told of it with that."""

    async def ask(facts: list[f.Fact]) -> None:
        if any(isinstance(x, f.WakeParked) for x in facts):
            assert (await store.interrupt("run", now=START)).outcome == "asked"

    watched = Watched(store, before=ask)
    runtime = Runtime(clerk(), **options(watched, "run"))
    # How it stood when it came to rest; what was asked has been done by the time that is told.
    assert (await runtime.run("go")).status == "pending"
    assert runtime.result().status == "interrupted"
    await interrupted(store)


async def test_somebody_is_faster_than_a_driver_that_has_parked(store: Store) -> None:
    """The driver hears of the mark, and finds that it has been obeyed: that is no conflict."""

    async def mark(facts: list[f.Fact]) -> None:
        if any(isinstance(x, f.WakeParked) for x in facts):
            await store.ask_interrupt("run")

    async def obey(facts: list[f.Fact]) -> None:
        if any(isinstance(x, f.WakeParked) for x in facts):
            assert (await store.interrupt("run", now=START)).outcome == "interrupted"

    watched = Watched(store, before=mark, after=obey)
    runtime = Runtime(clerk(), **options(watched, "run"))
    assert (await runtime.run("go")).status == "pending"
    assert runtime.result().status == "interrupted"
    await interrupted(store)


async def test_somebody_else_holds_what_a_driver_has_parked(store: Store) -> None:
    """The driver hears of the mark, and another one has the run by then, which finds it too."""

    async def mark(facts: list[f.Fact]) -> None:
        if any(isinstance(x, f.WakeParked) for x in facts):
            await store.ask_interrupt("run")

    async def take(facts: list[f.Fact]) -> None:
        if any(isinstance(x, f.WakeParked) for x in facts):
            await store.claim("run", owner=Owner(id="other"), now=START, until=START + HOUR)

    watched = Watched(store, before=mark, after=take)
    result, _ = await clerk().run("go", **options(watched, "run"))
    assert result.status == "pending"
    info = await store.info("run")
    assert (info.owner, info.interrupt) == ("other", "")


class Asked(StoreWrapper):
    """Somebody asks for an interrupt in the last moment before a claim is given up."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.outcomes: list[str] = []

    async def release(self, run_id: str, *, epoch: int) -> None:
        if not self.outcomes:
            self.outcomes.append((await self.inner.interrupt(run_id, reason="enough", now=START)).outcome)
        await super().release(run_id, epoch=epoch)


async def test_a_driver_that_gives_its_run_up_at_that_moment(store: Store) -> None:
    """It had nothing to record, and heard of nothing."""
    await park(store, "run", clerk())
    asked = Asked(store)
    runtime = await Runtime.open(clerk(), "run", store=asked, clock=VirtualClock(START))
    await runtime.recover()
    assert asked.outcomes == ["asked"]
    await interrupted(store)
    assert "enough" in runtime.result().text


async def test_an_operation_that_gives_a_run_up_at_that_moment(store: Store) -> None:
    """A list that names a request which is none had it look at the run, and nothing was to be recorded."""
    await park(store, "run", clerk())
    ghost = OpenRequest(
        run_id="run", request="ghost", kind="input", agent="clerk", asked_at=START, expires_at=START
    )
    info = await store.info("run")
    claim = await store.claim("run", owner=GONE, now=START, until=START)
    change = Change(status="pending", at=START, asked=(ghost,))
    await store.append("run", (), after=info.position, epoch=claim.epoch, change=change, release=True)
    asked = Asked(store)
    assert await asked.expire_due(START) == ()
    assert asked.outcomes == ["asked"]
    assert (await store.info("run")).status == "interrupted"
    assert await store.verify(repair_lists=True, now=START)
    await interrupted(store)


async def test_an_expiry_at_that_moment(store: Store) -> None:
    """The mark comes while an operation holds the run, and with its append."""
    await park(store, "run", asking(what="Go", hours=1))
    outcomes: list[str] = []

    async def ask(facts: list[f.Fact]) -> None:
        if any(isinstance(x, f.AnswerGiven) for x in facts):
            outcomes.append((await store.interrupt("run", now=START)).outcome)

    assert await Watched(store, before=ask).expire_due(START + HOUR) == ("run",)
    assert outcomes == ["asked"]
    await interrupted(store)


async def test_several_at_once(store: Store, opens: Callable[[], Store]) -> None:
    await park(store, "run", clerk())
    others = [opens() for _ in range(4)]
    said: list[str] = []

    async def interrupt(one: Store) -> None:
        said.append((await one.interrupt("run", now=START)).outcome)

    async with anyio.create_task_group() as tasks:
        for one in others:
            tasks.start_soon(interrupt, one)
    assert said.count("interrupted") <= 1
    assert set(said) <= {"interrupted", "asked", "at_rest"}
    assert sum(isinstance(x, f.RequestCancelled) for x in await facts_of(store, "run")) == 1
    await interrupted(store)
    for one in others:
        if one is not store:
            await one.close()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_process_that_dies_over_it(store: Store, when: Any) -> None:
    await park(store, "run", clerk())
    with pytest.raises(Crashed):
        await CrashingStore(store, crash_at=1, when=when).interrupt("run", now=START)
    if when == "before":
        assert (await store.info("run")).interrupt == ""
        # Whoever takes the run next does it.
        runtime = await Runtime.open(clerk(), "run", store=store, clock=VirtualClock(START))
        assert (await runtime.recover()).status == "interrupted"
    await interrupted(store)


async def test_cancelled_while_the_run_is_taken(store: Store) -> None:
    """The claim was taken, and nobody heard of it; it is given up all the same."""
    scope = anyio.CancelScope()

    class Slow(StoreWrapper):
        asked = 0

        async def claim(self, run_id: str, **more: Any) -> Claim:
            claim = await super().claim(run_id, **more)
            self.asked += 1
            if self.asked == 1:
                scope.cancel()
                await checkpoint()
            return claim

    await park(store, "run", clerk())
    with scope:
        await Slow(store).interrupt("run", now=START)
    info = await store.info("run")
    assert (info.owner, info.interrupt, info.status) == (None, "", "pending")
    assert (await store.interrupt("run", now=START)).outcome == "interrupted"


async def test_expiring_obeys_a_mark_first(store: Store) -> None:
    await park(store, "run", asking(what="Go", hours=1))
    await store.ask_interrupt("run", reason="why")
    assert await store.expire_due(START + HOUR) == ()
    await interrupted(store)


async def test_errors(store: Store) -> None:
    await damaged(store, "broken", clerk())
    with pytest.raises(JournalCorrupt, match="run broken, position "):
        await store.interrupt("broken", now=START)
    info = await store.info("broken")
    assert (info.interrupt, info.owner) == ("", None)
    with pytest.raises(RunNotFound, match="nowhere"):
        await store.interrupt("nowhere")
    with pytest.raises(UsageError, match="time zone"):
        await store.interrupt("broken", now=START.replace(tzinfo=None))


async def test_a_runtime_that_is_not_the_driver_names_this_way(store: Store) -> None:
    conflicts: list[RunConflict] = []

    async def meanwhile() -> None:
        other = await Runtime.open(inside.agent, "run", store=store, clock=VirtualClock(START))
        try:
            await other.interrupt()
        except RunConflict as conflict:
            conflicts.append(conflict)

    inside = Inside(meanwhile)
    result, _ = await inside.agent.run("go", **options(store, "run"))
    assert result.status == "pending"
    (conflict,) = conflicts
    assert conflict.owner
    assert conflict.until
    assert "await store.interrupt('run')" in str(conflict)
