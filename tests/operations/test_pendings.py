"""The approval queue: open requests across runs, as the journals have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import TypeAdapter

from overt import ResumePolicy, Runtime, UsageError
from overt.errors import JournalCorrupt, StoreError
from overt.journal.record import Record
from overt.stores import MemoryStore, OpenRequest, PendingRequest, Store, StoreWrapper
from overt.testing import VirtualClock, call, say
from tests.operations.kit import START, answer, asking, chief, clerk, damaged, park

pytestmark = pytest.mark.anyio


class Counting(StoreWrapper):
    """Counts the journals that are read, and does something before the first one."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.read_runs: list[str] = []

    async def read(self, run_id: str, *, after: int = 0) -> Sequence[Record]:
        self.read_runs.append(run_id)
        return await super().read(run_id, after=after)


async def three(store: Store) -> None:
    """Three runs that ask, a second apart; the second one asks two things."""
    clock = VirtualClock(START)
    await park(store, "a", clerk(), clock=clock)
    await clock.advance(1)
    both = clerk([call("ask", what="One", kind="input"), call("ask", what="Two")], say("done"), name="other")
    await park(store, "b", both, clock=clock)
    await clock.advance(1)
    await park(store, "c", chief(), clock=clock)


async def test_requests_of_all_runs_oldest_first(store: Store) -> None:
    await three(store)
    found = await store.pendings()
    assert [(one.run_id, one.request.prompt) for one in found] == [
        ("a", "Buy tea?"),
        ("b", "One?"),
        ("b", "Two?"),
        ("c", "Buy?"),
    ]
    first, last = found[0], found[-1]
    assert (first.entry, first.agent, first.asked_at) == ("clerk", "clerk", START)
    assert (last.entry, last.agent) == ("chief", "buyer")
    assert last.request.path == ("root", "chief.1", "buyer.1")


async def test_what_an_answer_repeats_is_said_without_any_agent(store: Store) -> None:
    await park(store, "rewinds", chief())
    await park(store, "continues", chief(), resume_policy=ResumePolicy.CONTINUE)
    by_run = {one.run_id: one for one in await store.pendings()}
    rewinds, continues = by_run["rewinds"], by_run["continues"]
    runtime = await Runtime.open(chief(), "rewinds", store=store, clock=VirtualClock(START))
    assert rewinds.request == runtime.pendings()[0]
    again = [(one.handle, one.tool) for one in rewinds.request.replays]
    assert again == [("root/chief.1/buyer.1", "look"), ("root/chief.1", "look")]
    assert rewinds.request.turns_again == 4
    assert (continues.request.replays, continues.request.turns_again) == ((), 0)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"kind": "input"}, ["One?"]),
        ({"kind": "none"}, []),
        ({"agent": "buyer"}, ["Buy?"]),
        ({"run_id": "b"}, ["One?", "Two?"]),
        ({"older_than": START.replace(second=1)}, ["Buy tea?"]),
        ({"limit": 3}, ["Buy tea?", "One?", "Two?"]),
        ({"limit": 0}, []),
        ({"run_id": "b", "kind": "approval"}, ["Two?"]),
    ],
)
async def test_only_some(store: Store, wanted: dict[str, Any], found: list[str]) -> None:
    await three(store)
    assert [one.request.prompt for one in await store.pendings(**wanted)] == found


async def test_a_negative_limit_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="-1"):
        await store.pendings(limit=-1)


async def test_each_journal_that_has_one_is_read_once(store: Store) -> None:
    await three(store)
    await answer(store, "a", clerk())
    counting = Counting(store)
    assert len(await counting.pendings()) == 3
    assert counting.read_runs == ["b", "c"]


async def test_answered_between_list_and_journal_is_not_shown(store: Store) -> None:
    await three(store)

    class Late(Counting):
        async def open_requests(self, **wanted: Any) -> Sequence[OpenRequest]:
            rows = await super().open_requests(**wanted)
            if not self.read_runs:
                await answer(store, "a", clerk())
                await store.delete("c", now=START)
            return rows

    found = await Late(store).pendings()
    assert [(one.run_id, one.request.prompt) for one in found] == [("b", "One?"), ("b", "Two?")]


async def test_rows_that_are_settled_do_not_use_up_the_limit(store: Store) -> None:
    """The list is behind: it names a request that has its answer, before the ones that wait."""
    await three(store)
    stale = await store.open_requests(run_id="a")
    await answer(store, "a", clerk())

    class Behind(StoreWrapper):
        async def open_requests(self, **wanted: Any) -> Sequence[OpenRequest]:
            rows = await store.open_requests(**wanted)
            return [*stale, *rows][: wanted["limit"]]

    assert [one.request.prompt for one in await Behind(store).pendings(limit=1)] == ["One?"]
    assert [one.request.prompt for one in await Behind(store).pendings(limit=2)] == ["One?", "Two?"]


async def test_a_damaged_run_is_named(store: Store) -> None:
    await park(store, "whole", asking(what="Go"))
    await damaged(store, "broken", clerk())
    with pytest.raises(JournalCorrupt, match="run broken, position "):
        await store.pendings()


async def test_others_are_listed_where_somebody_is_told(store: Store) -> None:
    await damaged(store, "broken", clerk())
    await park(store, "whole", asking(what="Go"))
    told: list[tuple[str, StoreError]] = []
    found = await store.pendings(on_error=lambda run_id, error: told.append((run_id, error)))
    assert [one.run_id for one in found] == ["whole"]
    ((run_id, error),) = told
    assert run_id == "broken"
    assert isinstance(error, JournalCorrupt)


async def test_more_than_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overt.journal.operations.PAGE", 2)
    store = MemoryStore()
    for number in range(7):
        await park(store, f"run-{number}", asking(what=str(number)))
    assert len(await store.pendings()) == 7


async def test_it_is_plain_json(store: Store) -> None:
    await park(store, "run", chief())
    (found,) = await store.pendings()
    kind = TypeAdapter(PendingRequest)
    assert kind.validate_json(kind.dump_json(found)) == found
