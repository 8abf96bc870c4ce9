"""Answers by the clock, in runs nobody drives; what follows from them runs when the host goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest
from anyio.lowlevel import checkpoint

from overt import Agent, Answer, ResumePolicy, Runtime, ToolContext, UsageError, tool
from overt.core import facts as f
from overt.errors import JournalCorrupt, RequestExpired, StoreError
from overt.stores import MemoryStore, Store
from overt.testing import MockModel, Script, VirtualClock, call, say
from overt.testing.crashing import Crashed, CrashingStore
from tests.durability.spies import Watched
from tests.operations.kit import (
    HOUR,
    START,
    asking,
    chief,
    clerk,
    copy,
    damaged,
    facts_of,
    park,
)

pytestmark = pytest.mark.anyio

LATER = START + 2 * HOUR


def timed() -> Agent[None, str]:
    return asking(what="Go", hours=1)


async def reopened(store: Store, run_id: str, agent: Agent[None, str]) -> Runtime[str]:
    clock = VirtualClock(LATER)
    return await Runtime.open(agent, run_id, store=store, clock=clock)


async def test_only_what_is_due_expires(store: Store) -> None:
    await park(store, "due", timed())
    await park(store, "later", asking(what="Go", hours=3))
    await park(store, "never", asking(what="Go"))
    assert await store.expire_due(START + HOUR / 2) == ()
    assert await store.expire_due(START + HOUR) == ("due",)
    assert {one.run_id for one in await store.open_requests()} == {"later", "never"}
    (given,) = [x for x in await facts_of(store, "due") if isinstance(x, f.AnswerGiven)]
    assert (given.ok, given.reason, given.by) == (False, "expired", None)
    info = await store.info("due")
    assert (info.status, info.owner, info.updated) == ("ready", None, START + HOUR)
    assert await store.expire_due(START + HOUR) == ()


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_recover_goes_on_with_what_follows(store: Store, policy: ResumePolicy) -> None:
    await park(store, "run", clerk(call("look", what="tea"), call("ask", what="Buy", hours=1), say("left")),
               resume_policy=policy)  # fmt: skip
    assert await store.expire_due(LATER) == ("run",)
    agent = clerk(call("look", what="tea"), call("ask", what="Buy", hours=1), say("left"))
    runtime = await reopened(store, "run", agent)
    result = await runtime.recover()
    assert (result.status, result.text) == ("done", "left")
    told = [m.text for m in runtime.transcript(result.handle) if m.role == "tool"]
    assert told == ["tea is fine", "Buy: expired"]
    assert result.usage.turns == (5 if policy is ResumePolicy.REWIND else 3)


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_a_child_below_a_waiting_parent(store: Store, policy: ResumePolicy) -> None:
    await park(store, "run", chief(), resume_policy=policy)
    assert await store.expire_due(LATER) == ("run",)
    assert [info.run_id for info in await store.runs(status="ready")] == ["run"]
    runtime = await reopened(store, "run", chief())
    result = await runtime.recover()
    assert (result.status, result.text) == ("done", "all done")
    # Two turns each until it parked. Then the rest, and under REWIND those two again before it.
    assert result.usage.turns == (10 if policy is ResumePolicy.REWIND else 6)
    child = [m.text for m in runtime.transcript("root/chief.1/buyer.1") if m.role == "tool"]
    assert child == ["shelves is fine", "Buy: expired"]


async def test_another_question_keeps_it_parked(store: Store) -> None:
    def both() -> Agent[None, str]:
        return clerk([call("ask", what="One", hours=1), call("ask", what="Two")], say("done"))

    await park(store, "run", both())
    assert await store.expire_due(LATER) == ("run",)
    assert (await store.info("run")).status == "pending"
    (left,) = await store.pendings()
    assert left.request.prompt == "Two?"
    runtime = await reopened(store, "run", both())
    assert (await runtime.recover()).status == "pending"


async def test_a_run_that_is_driven_is_left_to_its_driver(store: Store) -> None:
    found: list[tuple[str, ...]] = []

    async def meanwhile() -> None:
        while not await store.open_requests(due=LATER):
            await checkpoint()
        found.append(await store.expire_due(LATER))

    await park(store, "run", at_work(meanwhile), claim=9 * 3600)
    assert found == [()]
    assert not [x for x in await facts_of(store, "run") if isinstance(x, f.AnswerGiven)]


def at_work(meanwhile: Callable[[], Awaitable[None]]) -> Agent[None, str]:
    """An agent that asks for an hour, while a tool beside the question is inside `meanwhile`."""
    asked = anyio.Event()

    @tool
    async def work() -> str:
        """Work."""
        await asked.wait()
        await meanwhile()
        return "worked"

    @tool
    async def question(ctx: ToolContext) -> str:
        """Ask."""
        asked.set()
        return str((await ctx.ask("Go?", expires_at=START + HOUR)).reason)

    script: Script = [[call("question"), call("work")], say("done")]
    return Agent("worker", does="Works.", tools=[work, question], model=MockModel(script))


async def test_time_never_goes_back(store: Store) -> None:
    """A run whose last fact is later than the time that is given keeps its own time."""
    clock = VirtualClock(START)
    await park(store, "run", clerk([call("ask", what="One", hours=1), call("ask", what="Two", hours=9)], say("")),
               clock=clock)  # fmt: skip
    await clock.advance(5 * 3600)
    await store.expire_due(clock.now())
    before = await store.info("run")
    assert await store.expire_due(START) == ()
    assert await store.expire_due(START + 9 * HOUR) == ("run",)
    info = await store.info("run")
    assert before.updated == START + 5 * HOUR
    assert info.updated == START + 9 * HOUR


async def test_the_time_of_a_later_fact_counts(store: Store) -> None:
    """A clock that was set back a day finds what is due by it, and records it at the time of the last fact."""
    clock = VirtualClock(START + 24 * HOUR)
    await park(store, "run", asking(what="Go", hours=25), clock=clock)
    assert await store.expire_due(START + 25 * HOUR) == ("run",)
    assert (await store.info("run")).updated == START + 25 * HOUR


async def test_a_late_answer_is_refused(store: Store) -> None:
    result = await park(store, "run", timed())
    await store.expire_due(LATER)
    runtime = await reopened(store, "run", timed())
    assert result.pending is not None
    with pytest.raises(RequestExpired):
        await runtime.resume(Answer(id=result.pending.id, ok=True))


async def test_several_at_once_do_it_once(store: Store, opens: Callable[[], Store]) -> None:
    for name in ("a", "b", "c"):
        await park(store, name, timed())
    others = [opens() for _ in range(4)]
    found: list[str] = []

    async def expire(one: Store) -> None:
        found.extend(await one.expire_due(LATER))

    async with anyio.create_task_group() as tasks:
        for one in others:
            tasks.start_soon(expire, one)
    assert sorted(found) == ["a", "b", "c"]
    for name in ("a", "b", "c"):
        assert sum(isinstance(x, f.AnswerGiven) for x in await facts_of(store, name)) == 1
        assert (await store.info(name)).owner is None
    for one in others:
        if one is not store:
            await one.close()


async def test_a_damaged_run_keeps_no_other_from_expiring(store: Store) -> None:
    await damaged(store, "broken", timed_look())
    await park(store, "whole", timed())
    with pytest.raises(JournalCorrupt, match="run broken, position "):
        await store.expire_due(LATER)
    assert (await store.info("whole")).status == "ready"
    assert (await store.info("broken")).owner is None


async def test_somebody_is_told_of_a_damaged_run(store: Store) -> None:
    await damaged(store, "broken", timed_look())
    await park(store, "whole", timed())
    told: list[tuple[str, StoreError]] = []
    done = await store.expire_due(LATER, on_error=lambda run_id, error: told.append((run_id, error)))
    assert done == ("whole",)
    assert [run_id for run_id, _ in told] == ["broken"]


def timed_look() -> Agent[None, str]:
    return clerk(call("look", what="tea"), call("ask", what="Buy", hours=1), say("left"))


async def test_a_run_whose_driver_died(store: Store) -> None:
    """It died inside a tool, with a question open beside it: the question expires, and nothing else is decided."""
    whole = MemoryStore()
    agent = at_work(checkpoint)
    await park(whole, "run", agent)
    await copy(whole, "run", store, change=lambda records: records[:-1])
    assert await store.expire_due(LATER) == ("run",)
    facts = await facts_of(store, "run")
    assert [type(x) for x in facts[-2:]] == [f.DriverLost, f.AnswerGiven]
    runtime = await reopened(store, "run", agent)
    assert (await runtime.recover()).status == "done"


async def test_it_is_over_or_not_begun_when_the_process_dies(store: Store) -> None:
    await park(store, "a", timed())
    await park(store, "b", timed())
    dying = CrashingStore(store, crash_at=2)
    with pytest.raises(Crashed):
        await dying.expire_due(LATER)
    (first,) = await store.runs(status="ready")
    (second,) = {"a", "b"} - {first.run_id}
    assert await store.expire_due(LATER) == (second,)
    assert len(await store.runs(status="ready")) == 2


async def test_cancelled_in_the_middle_leaves_no_claim(store: Store) -> None:
    await park(store, "run", timed())
    scope = anyio.CancelScope()

    async def cancel(_: list[f.Fact]) -> None:
        scope.cancel()
        await checkpoint()

    with scope:
        await Watched(store, before=cancel).expire_due(LATER)
    assert scope.cancelled_caught
    assert (await store.info("run")).owner is None
    assert await store.expire_due(LATER) == ("run",)


async def test_a_time_without_a_zone_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="time zone"):
        await store.expire_due(LATER.replace(tzinfo=None))
