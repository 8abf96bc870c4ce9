"""B021: of two writers that loaded the same version, the second gets a typed error and changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.postgres import Place

from overt import Agent, Answer, Runtime, ToolContext, tool
from overt.errors import AlreadyAnswered, RunConflict
from overt.journal.record import Record
from overt.journal.store import Owner
from overt.stores import MemoryStore, SQLiteStore, Store
from overt.testing import MockModel, VirtualClock, call, say
from overt.testing._store_checks import now_is

pytestmark = pytest.mark.anyio

NOW = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Store, Store]:
    """Two handles on the same journals."""
    if request.param == "memory":
        store = MemoryStore()
        return store, store
    if request.param == "postgres":
        postgres: Place = request.getfixturevalue("postgres")
        return postgres.store(), postgres.store()
    return SQLiteStore(tmp_path / "runs.db"), SQLiteStore(tmp_path / "runs.db")


async def test_the_second_of_two_stale_writers_is_refused(stores: tuple[Store, Store]) -> None:
    first, second = stores
    until = NOW + timedelta(seconds=30)
    claim = await first.create(
        "run", [Record(1, 1, text="start")], agent="a", owner=Owner(id="me"), now=NOW, until=until
    )
    loaded = (await first.info("run")).position, (await second.info("run")).position
    assert loaded == (1, 1)
    # Same claim, same clock tick: only the counter tells the writes apart.
    await first.append(
        "run", [Record(2, 1, text="first")], after=1, epoch=claim.epoch, change=now_is("running")
    )
    for _ in range(2):
        with pytest.raises(RunConflict) as caught:
            await second.append(
                "run", [Record(2, 1, text="second")], after=1, epoch=claim.epoch, change=now_is("failed")
            )
        assert caught.value.owner is None
    assert [one.text for one in await second.read("run")] == ["start", "first"]
    assert (await second.info("run")).status == "running"
    # Having read again, it may go on.
    await second.append(
        "run", [Record(3, 1, text="second")], after=2, epoch=claim.epoch, change=now_is("running")
    )
    assert [one.text for one in await first.read("run")] == ["start", "first", "second"]
    await first.close()
    await second.close()


async def test_the_second_of_two_stale_runtimes_is_refused(stores: tuple[Store, Store]) -> None:
    """Two runtimes that opened a run at the same position, and a clock that stands still."""
    paid: list[str] = []

    @tool
    async def pay(ctx: ToolContext) -> str:
        """Pay, if someone allows it."""
        answer = await ctx.ask("Pay?")
        paid.append(str(answer.data))
        return "paid"

    agent = Agent("w", does="works", tools=[pay])
    model, clock = MockModel([call("pay"), say("end")]), VirtualClock()
    result, _ = await agent.run("go", store=stores[0], run_id="r", model=model, clock=clock)
    assert result.pending is not None
    first, second = [
        await Runtime.open(agent, "r", store=store, model=model, clock=clock) for store in stores
    ]
    assert (await first.resume(Answer(id=result.pending.id, ok=True, data="first"))).text == "end"
    before = await stores[1].read("r")
    with pytest.raises(AlreadyAnswered) as refused:
        await second.resume(Answer(id=result.pending.id, ok=True, data="second"))
    assert (refused.value.answer.data, refused.value.same) == ("first", False)
    assert paid == ["first"]
    assert [one.text for one in await stores[1].read("r")] == [one.text for one in before]
    # It has read again: it knows how the run ended.
    assert second.result().text == "end"
    for store in stores:
        await store.close()
