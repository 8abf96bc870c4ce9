"""A runtime that holds a run which was removed and begun anew must not go on with it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from overt import Agent, Answer, Runtime, ToolContext, tool
from overt.errors import RunConflict
from overt.stores import MemoryStore, SQLiteStore, Store
from overt.testing import MockModel, call, say

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_parked_runtime_of_a_deleted_run_leaves_the_new_one_alone(kind: str, tmp_path: Path) -> None:
    store: Store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "runs.db")
    paid: list[int] = []

    @tool(on_replay="reuse")
    async def refund(ctx: ToolContext, euros: int) -> str:
        """Pay back."""
        await ctx.ask(f"Refund {euros}?")
        paid.append(euros)
        return "paid"

    def clerk(euros: int) -> Agent[None, str]:
        model = MockModel([call("refund", euros=euros), say("done")])
        return Agent("clerk", does="Refunds.", tools=[refund], model=model)

    first, old = await clerk(30).run("A", store=store, run_id="r")
    await store.delete("r", now=datetime.now(UTC))
    second, _ = await clerk(4000).run("B", store=store, run_id="r")
    assert first.pending is not None
    assert second.pending is not None
    with pytest.raises(RunConflict, match=r"another|not the one"):
        await old.resume(Answer(id=first.pending.id, ok=True))
    assert paid == []
    assert (await store.info("r")).owner is None
    new = await Runtime.open(clerk(4000), "r", store=store)
    result = await new.resume(Answer(id=second.pending.id, ok=True))
    assert (result.status, paid) == ("done", [4000])
    assert await store.verify() == ()
    await store.close()
