"""A store's lists say what its journals say, after every append."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import anyio
import pytest
from tests.durability import policed_crew
from tests.durability.crew import RUN, Host, World
from tests.durability.spies import Watched
from tests.postgres import Place

from overt import Agent, ResumePolicy, Runtime, State, ToolContext, tool
from overt.core import facts as f
from overt.journal.listing import open_requests_of, run_status
from overt.journal.loading import load
from overt.stores import MemoryStore, SQLiteStore, Store
from overt.testing import MockModel, VirtualClock, call, say

pytestmark = pytest.mark.anyio

START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def inner(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "postgres":
        postgres: Place = request.getfixturevalue("postgres")
        return postgres.store()
    return MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "runs.db")


class Auditor:
    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.seen: set[str] = set()
        self.most = 0

    async def compare(self, _: list[f.Fact]) -> None:
        for info in await self.inner.runs():
            tree, log = await load(self.inner, info.run_id)
            listed = await self.inner.open_requests(run_id=info.run_id)
            assert sorted(listed, key=lambda one: one.request) == sorted(
                open_requests_of(tree), key=lambda one: one.request
            )
            self.most = max(self.most, len(listed))
            assert info.position == tree.seq
            if info.status:  # a run that has only been created has none yet
                assert info.status == run_status(tree)
                assert int(info.updated.timestamp() * 1e6) == log[-1][1]
                self.seen.add(info.status)


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_lists_follow_the_journal(inner: Store, policy: ResumePolicy) -> None:
    auditor = Auditor(inner)
    store = Watched(inner, after=auditor.compare)
    result = await Host(World(), store, policy).run()
    assert result.status == "done"
    assert auditor.seen == {"running", "pending", "incomplete", "done"}
    assert auditor.most >= 1
    assert await inner.open_requests(run_id=RUN) == []


@pytest.mark.parametrize("policy", ["rewind", "continue"])
async def test_lists_follow_a_run_with_rules(inner: Store, policy: Literal["rewind", "continue"]) -> None:
    auditor = Auditor(inner)
    store = Watched(inner, after=auditor.compare)
    result, _ = await policed_crew.Host(World(), store, policy).run()
    assert result.status == "done"
    assert auditor.most >= 1


@tool
async def ask_twice(ctx: ToolContext, hours: int) -> str:
    """Ask, with a time to answer by."""
    until = START + timedelta(hours=hours) if hours else None
    return str((await ctx.ask("Go on?", expires_at=until)).reason)


def asker(*hours: int) -> Agent:
    calls = [call("ask_twice", hours=one) for one in hours]
    return Agent("asker", does="Asks.", tools=[ask_twice], model=MockModel([calls, say("done")]))


async def listed(store: Store) -> str:
    """The run's status in the lists, which is the one of its journal."""
    tree, _ = await load(store, RUN)
    info = await store.info(RUN)
    assert info.status == run_status(tree)
    return info.status


async def expired(store: Store, *hours: int) -> Runtime[str]:
    """A run whose first question has been answered by its expiry."""
    clock = VirtualClock(START)
    await asker(*hours).run("go", store=store, run_id=RUN, clock=clock)
    assert await listed(store) == "pending"
    await clock.advance(3601)
    return await Runtime.open(asker(*hours), RUN, store=store, clock=clock)


async def test_a_run_that_may_go_on_after_an_expiry_is_ready(inner: Store) -> None:
    runtime = await expired(inner, 1)
    assert await listed(inner) == "ready"
    assert (await runtime.recover()).status == "done"
    assert await listed(inner) == "done"


async def test_a_run_with_another_question_waits_on(inner: Store) -> None:
    runtime = await expired(inner, 1, 0)
    assert await listed(inner) == "pending"
    assert (await runtime.recover()).status == "pending"
    assert await listed(inner) == "pending"


@pytest.mark.parametrize("where", ["root", "root/asker.1"])
async def test_a_ready_run_can_be_interrupted(inner: Store, where: str) -> None:
    runtime = await expired(inner, 1)
    await runtime.interrupt(where)
    assert await listed(inner) == "interrupted"
    assert runtime.inspect("root/asker.1").state is State.CLOSED


async def test_a_run_that_was_cut_off_has_not_ended(inner: Store) -> None:
    scope = anyio.CancelScope()

    @tool
    async def stop() -> str:
        """Cancel the host."""
        scope.cancel()
        await anyio.sleep_forever()
        return ""

    def stopper() -> Agent:
        return Agent("stopper", does="Stops.", tools=[stop], model=MockModel([call("stop"), say("done")]))

    with scope:
        await stopper().run("go", store=inner, run_id=RUN, clock=VirtualClock())
    assert await listed(inner) == "cut_off"
    runtime = await Runtime.open(stopper(), RUN, store=inner, clock=VirtualClock())
    assert runtime.result().status == "interrupted"
    await runtime.interrupt()
    assert await listed(inner) == "interrupted"
