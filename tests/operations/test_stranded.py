"""Which runs an upgrade would strand, said before it is deployed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from overt import Agent, Allow, DefinitionError, GuardrailEvent, Runtime, UsageError, tool
from overt.errors import JournalCorrupt, SpecDrift
from overt.operations import Stranded, check
from overt.stores import MemoryStore, Record, SQLiteStore, Store, StoreWrapper
from overt.testing import MockModel, VirtualClock, call, say
from overt.testing.crashing import CrashingStore
from overt.upgrade import Drift
from tests.operations.kit import (
    GONE,
    HOUR,
    START,
    answer,
    ask,
    asking,
    chief,
    clerk,
    copy,
    damaged,
    look,
    options,
    park,
)

pytestmark = pytest.mark.anyio


def without(*names: str) -> Agent[None, str]:
    """The clerk of the next release, which lacks tools."""
    return Agent("clerk", does="Buys.", tools=[t for t in (look, ask) if t.name not in names])


async def two(store: Store) -> None:
    await park(store, "looked", clerk())
    await park(store, "asked", asking(what="Go"))


async def test_nothing_is_stranded(store: Store) -> None:
    assert await check(clerk(), store) == ()
    await two(store)
    assert await check(clerk(), store) == ()


async def test_runs_whose_tool_is_gone(store: Store) -> None:
    await two(store)
    (found,) = await check(without("look"), store)
    assert (found.run_id, found.status, found.error) == ("looked", "pending", None)
    assert len(found.drifts) == 1
    assert "tool 'look' of agent 'clerk' is gone" in str(found)
    both = await check(without("look", "ask"), store)
    assert {one.run_id for one in both} == {"looked", "asked"}
    # As opening one says.
    with pytest.raises(SpecDrift) as refused:
        await Runtime.open(
            without("look"), "looked", store=store, model=MockModel([]), clock=VirtualClock(START)
        )
    assert refused.value.drifts == found.drifts


async def test_a_type_that_no_longer_takes_what_there_is(store: Store) -> None:
    class What(BaseModel):
        name: str

    @tool(name="ask")
    async def other(what: What) -> str:
        """Ask otherwise."""
        return what.name

    await park(store, "run", asking(what="Go"))
    (found,) = await check(Agent("clerk", does="Buys.", tools=[other]), store)
    assert "no longer takes the arguments" in str(found)


async def test_a_member_of_the_team_that_is_gone(store: Store) -> None:
    await park(store, "run", chief())
    (found,) = await check(Agent("chief", does="Leads.", tools=[look]), store)
    assert "buyer" in str(found)


async def test_guardrails_that_are_not_given_again(store: Store) -> None:
    def fine(_: GuardrailEvent) -> Allow:
        return Allow()

    await park(store, "run", clerk(), guardrails=[fine])
    (found,) = await check(clerk(), store)
    assert "guardrails=fine; give them again" in str(found)
    assert await check(clerk(), store, guardrails=[fine]) == ()


async def test_runs_that_are_finished_or_anothers_do_not_count(store: Store) -> None:
    await park(store, "done", clerk())
    await answer(store, "done", clerk())
    await park(store, "stopped", clerk())
    await store.interrupt("stopped", now=START)
    await park(store, "other", chief())

    class Unread(StoreWrapper):
        async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]:
            raise AssertionError(f"{run_id} was read")

    assert await check(without("look", "ask"), Unread(store)) == ()


async def test_runs_of_every_other_status(store: Store) -> None:
    whole = MemoryStore()
    await park(whole, "running", clerk())
    await copy(whole, "running", store, change=lambda rows: rows[:-2])
    await park(store, "ready", clerk(call("look", what="tea"), call("ask", what="Go", hours=1), say("done")))
    await store.expire_due(START + HOUR)
    await clerk(call("look", what="tea"), RuntimeError("no line")).run("go", **options(store, "failed"))
    found = await check(without("look"), store)
    assert {one.run_id: one.status for one in found} == {
        "running": "running",
        "ready": "ready",
        "failed": "error",
    }


async def test_journals_that_cannot_be_read(store: Store) -> None:
    await damaged(store, "broken", clerk())
    await park(store, "looked", clerk())
    by_run = {one.run_id: one for one in await check(without("look"), store)}
    broken = by_run["broken"]
    assert isinstance(broken.error, JournalCorrupt)
    assert broken.drifts == ()
    assert str(broken).startswith("run broken, position ")
    assert by_run["looked"].drifts


async def test_nothing_is_claimed_or_changed(store: Store) -> None:
    """Also beside the driver of the release there is."""
    await two(store)
    await store.claim("looked", owner=GONE, now=START, until=START + HOUR)
    before = await store.runs()
    journals = [await store.export_run(info.run_id) for info in before]
    spy = CrashingStore(store)
    assert len(await check(without("look"), spy)) == 1
    assert spy.appends == 0
    assert await store.runs() == before
    assert [await store.export_run(info.run_id) for info in before] == journals


async def test_neither_model_nor_deps_are_needed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    await park(store, "run", clerk())
    new = Agent("clerk", does="Buys.", tools=[look, ask], model="openai:gpt-5-mini", deps_type=dict)
    assert await check(new, store) == ()


async def test_misuse(store: Store, tmp_path: Any) -> None:
    wrong: Any = {"colour": "red"}
    with pytest.raises(DefinitionError, match="colour"):
        await check(clerk(), store, **wrong)
    with pytest.raises(UsageError, match="two stores"):
        await check(clerk(), store, store=SQLiteStore(tmp_path / "another.db"))
    no_store: Any = object()
    with pytest.raises(DefinitionError, match="has to be a store"):
        await check(clerk(), no_store)
    assert await check(clerk(), store, store=store) == ()


def test_what_is_stranded_says_so_in_lines() -> None:
    drifts = tuple(Drift(kind="tool", what=what, how="add it", acceptable=True) for what in ("one", "two"))
    shown = str(Stranded(run_id="run", status="pending", drifts=drifts))
    assert shown == "\n".join(f"run run: {drift}" for drift in drifts)
