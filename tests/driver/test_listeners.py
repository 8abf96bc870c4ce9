"""Who is told of facts: all of them, once, in order, when they are stored and before what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio.lowlevel
import pytest

from overt import Agent, Answer, Runtime, ToolContext, pending, tool
from overt.core import facts as f
from overt.errors import StoreError
from overt.journal.store import Store
from overt.stores import MemoryStore, Record, SQLiteStore
from overt.testing import MockModel, call, say
from overt.testing.crashing import CrashingStore
from overt.testing.mock import Script
from tests.driver.support import SlowStore, agent, calling


class Heard:
    def __init__(self) -> None:
        self.records: list[tuple[int, int, list[f.Fact]]] = []

    def record(self, position: int, at: int, facts: Sequence[f.Fact]) -> None:
        self.records.append((position, at, list(facts)))


class Stored:
    """A store that knows the last position it has stored, and whether it appends at once."""

    def __init__(self, *, immediate: bool) -> None:
        self.inner = MemoryStore()
        self.position = 0
        if immediate:
            self.append_now = self._append_now

    def __getattr__(self, name: str) -> Any:
        if name == "append_now":
            raise AttributeError(name)
        return getattr(self.inner, name)

    async def create(self, run_id: str, records: Sequence[Record], **rest: Any) -> Any:
        claim = await self.inner.create(run_id, records, **rest)
        self.position = records[-1].position + records[-1].count - 1
        return claim

    async def append(self, run_id: str, records: Sequence[Record], **rest: Any) -> None:
        await anyio.lowlevel.checkpoint()
        self._append_now(run_id, records, **rest)

    def _append_now(self, run_id: str, records: Sequence[Record], **rest: Any) -> None:
        self.inner.append_now(run_id, records, **rest)
        if records:
            self.position = records[-1].position + records[-1].count - 1


@tool
async def t() -> str:
    return "t"


@tool
async def asks(ctx: ToolContext) -> object:
    return "ok" if ctx.answer else pending(kind="approval", prompt="?")


def boss() -> Agent[None, str]:
    child = Agent("child", does="works", tools=[t])
    return Agent("a", does="works", tools=[t], team=[child])


BOSS: Script = {
    "a": [[call("t"), call("task", agent="child", prompt="p"), call("t")], say("done")],
    "child": [[call("t"), call("t")], say("done")],
}


@pytest.mark.parametrize("kind", ["memory", "own memory", "sqlite"])
async def test_every_record_is_told_once_and_in_order(kind: str, tmp_path: Any) -> None:
    stores: dict[str, Any] = {"memory": MemoryStore(), "sqlite": SQLiteStore(tmp_path / "runs.db")}
    options = {} if kind == "own memory" else {"store": stores[kind]}
    runtime = Runtime(boss(), model=MockModel(BOSS), **options)
    heard = Heard()
    runtime._driver.listeners.append(heard)
    assert (await runtime.run("go")).status == "done"
    assert heard.records == runtime._driver.log
    assert heard.records[0][0] == 1
    await stores["sqlite"].close()


@pytest.mark.parametrize("immediate", [True, False])
async def test_they_are_told_when_it_is_stored_and_before_what_follows(immediate: bool) -> None:
    store: Any = Stored(immediate=immediate)
    seen: list[str] = []

    @tool
    async def body() -> str:
        seen.append("body")
        return "ok"

    class Order:
        def record(self, position: int, at: int, facts: Sequence[f.Fact]) -> None:
            assert store.position >= position + len(facts) - 1
            seen.extend(
                type(fact).__name__ for fact in facts if isinstance(fact, (f.CallEntered, f.CallReturned))
            )

    runtime = Runtime(agent(body), model=calling("body", "body"), store=store)
    runtime._driver.listeners.append(Order())
    assert (await runtime.run("go")).status == "done"
    assert len(runtime._driver.listeners) == 1
    assert seen[:2] == ["CallEntered"] * 2
    assert sorted(seen[2:]) == ["CallReturned"] * 2 + ["body"] * 2
    assert seen.index("body") < seen.index("CallReturned")


@pytest.mark.parametrize("immediate", [True, False])
async def test_one_that_raises_is_told_no_more_and_the_run_goes_on(
    immediate: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Raises(Heard):
        def record(self, position: int, at: int, facts: Sequence[f.Fact]) -> None:
            super().record(position, at, facts)
            if position > 1:
                raise ValueError("no")

    store: Store = MemoryStore() if immediate else CrashingStore(MemoryStore())
    runtime = Runtime(boss(), model=MockModel(BOSS), store=store)
    raises, heard = Raises(), Heard()
    runtime._driver.listeners += [raises, heard]
    assert (await runtime.run("go")).status == "done"
    assert heard.records == runtime._driver.log
    assert len(raises.records) <= 2
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_what_could_not_be_stored_is_not_told() -> None:
    store: Any = SlowStore(fails_at=2, error=StoreError("full"))
    runtime = Runtime(agent(t), model=calling("t"), store=store)
    heard = Heard()
    runtime._driver.listeners.append(heard)
    with pytest.raises(StoreError):
        await runtime.run("go")
    assert heard.records
    assert heard.records == runtime._driver.log
    assert heard.records[-1][0] <= (await store.inner.info(runtime.id)).position


async def test_what_another_driver_has_done_meanwhile_is_told_first() -> None:
    store = MemoryStore()
    model = MockModel(prompts=[[call("asks"), say("done")]])
    result, first = await agent(asks).run("go", model=model, store=store)
    assert result.pending is not None
    second = await Runtime.open(agent(asks), first.id, model=model, store=store)
    known = len(second._driver.log)
    heard = Heard()
    second._driver.listeners.append(heard)
    await first.resume(Answer(id=result.pending.id, ok=True))
    assert (await second.recover()).status == "done"
    assert heard.records == second._driver.log[known:]
    assert heard.records
