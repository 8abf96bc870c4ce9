"""A store's lists say what its journals say, after every append."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from tests.durability import policed_crew
from tests.durability.crew import RUN, Host, World
from tests.durability.spies import Watched
from tests.postgres import Place

from overt import ResumePolicy
from overt.core import facts as f
from overt.journal.listing import open_requests_of, run_status
from overt.journal.loading import load
from overt.stores import MemoryStore, SQLiteStore, Store

pytestmark = pytest.mark.anyio


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
