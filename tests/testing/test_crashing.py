"""The store that dies, and its gates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from overt.errors import RunNotFound
from overt.journal.record import Record
from overt.journal.store import Owner
from overt.journal.wrapper import StoreWrapper
from overt.stores import MemoryStore, SQLiteStore, Store
from overt.testing import STORE_CHECKS, Crashed, CrashingStore, StoreCheck
from overt.testing._store_checks import now_is

pytestmark = pytest.mark.anyio

NOW = datetime(2024, 1, 1, tzinfo=UTC)
UNTIL = NOW + timedelta(seconds=30)


async def create(store: Store, run_id: str = "run") -> None:
    await store.create(run_id, (), agent="a", owner=Owner(id="me"), now=NOW, until=UNTIL)


async def append(store: Store, position: int, run_id: str = "run") -> None:
    await store.append(
        run_id,
        [Record(position, 1, text=str(position))],
        after=position - 1,
        epoch=1,
        change=now_is("running"),
    )


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    return MemoryStore if request.param == "memory" else lambda: SQLiteStore(tmp_path / "runs.db")


@pytest.mark.parametrize("check", [one for one in STORE_CHECKS if "close" not in one.name], ids=str)
async def test_it_is_a_store_until_it_dies(check: StoreCheck) -> None:
    await check(lambda: CrashingStore(MemoryStore()))


@pytest.mark.parametrize(("when", "kept"), [("before", 1), ("after", 2)])
async def test_it_dies_at_the_nth_append(
    make: Callable[[], Store], when: Literal["before", "after"], kept: int
) -> None:
    inner = make()
    store = CrashingStore(inner, crash_at=3, when=when)
    await create(store)
    await append(store, 1)
    with pytest.raises(Crashed):
        await append(store, 2)
    assert store.crashed
    assert store.appends == 3
    calls: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: create(store, "other"),
        lambda: append(store, kept + 1),
        lambda: store.read("run"),
        lambda: store.info("run"),
        lambda: store.claim("run", owner=Owner(id="you"), now=NOW, until=UNTIL),
        lambda: store.renew("run", epoch=1, until=UNTIL),
        lambda: store.release("run", epoch=1),
        store.close,
    )
    for call in calls:
        with pytest.raises(Crashed):
            await call()
    assert store.appends == 3
    assert store.survivor is inner
    assert (await inner.info("run")).position == kept
    # Its claim is void, as that of a dead process is.
    assert (await inner.claim("run", owner=Owner(id="next"), now=NOW, until=UNTIL)).epoch == 2
    await inner.close()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_it_dies_at_a_create(when: Literal["before", "after"]) -> None:
    store = CrashingStore(MemoryStore(), crash_at=1, when=when)
    with pytest.raises(Crashed):
        await create(store)
    if when == "before":
        with pytest.raises(RunNotFound):
            await store.survivor.info("run")
    else:
        assert (await store.survivor.info("run")).owner is None


async def test_no_except_exception_survives_it() -> None:
    assert not issubclass(Crashed, Exception)


async def test_a_held_append_waits_and_others_pass(make: Callable[[], Store]) -> None:
    inner = make()
    store = CrashingStore(inner)
    await create(store, "slow")
    await create(store, "fast")
    gate = store.hold(3)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append, store, 1, "slow")
        await gate.reached()
        await append(store, 1, "fast")
        assert (await inner.info("slow")).position == 0
        assert (await inner.info("fast")).position == 1
        gate.release()
    assert (await inner.info("slow")).position == 1
    await inner.close()


async def test_a_held_append_dies_with_the_process() -> None:
    store = CrashingStore(MemoryStore(), crash_at=3)
    await create(store)
    gate = store.hold(2)
    died: list[str] = []

    async def held() -> None:
        try:
            await append(store, 1)
        except Crashed:
            died.append("held")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(held)
        await gate.reached()
        with pytest.raises(Crashed):
            await create(store, "other")
        gate.release()
    assert died == ["held"]
    assert (await store.survivor.info("run")).position == 0


async def test_a_gate_is_set_before_its_append() -> None:
    store = CrashingStore(MemoryStore())
    await create(store)
    with pytest.raises(ValueError, match="begun already"):
        store.hold(1)
    store.hold(2).release()
    await append(store, 1)
    with pytest.raises(ValueError, match="counted from 1"):
        CrashingStore(MemoryStore(), crash_at=0)


async def test_it_dies_where_it_is_told(make: Callable[[], Store]) -> None:
    inner = make()
    store = CrashingStore(inner)
    await create(store)
    await append(store, 1)
    with pytest.raises(Crashed, match="between its appends"):
        store.die()
    assert store.crashed
    assert (await inner.info("run")).owner == "me"
    with pytest.raises(Crashed, match="between its appends"):
        await append(store, 2)
    assert store.appends == 2, "an append of a dead process has not begun"
    # The call it got in its last moments has made its claim void.
    assert (await inner.info("run")).owner is None
    assert (await inner.info("run")).position == 1
    with pytest.raises(Crashed):
        store.die()
    await inner.close()


async def test_an_append_under_way_when_it_dies_is_told_of_no_more() -> None:
    store = CrashingStore(Slow(MemoryStore()))
    await create(store)
    slow = store.survivor
    assert isinstance(slow, Slow)
    told: list[str] = []

    async def under_way() -> None:
        try:
            await append(store, 1)
        except Crashed:
            told.append("dead")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(under_way)
        await slow.reached.wait()
        with pytest.raises(Crashed):
            store.die()
        slow.go_on.set()
    assert told == ["dead"]
    info = await slow.info("run")
    assert (info.position, info.owner) == (1, None)


class Slow(StoreWrapper):
    """A store whose appends wait."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.reached = anyio.Event()
        self.go_on = anyio.Event()

    async def append(self, run_id: str, records: Sequence[Record], **options: Any) -> str | None:
        self.reached.set()
        await self.go_on.wait()
        return await super().append(run_id, records, **options)
