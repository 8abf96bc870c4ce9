"""An import that is cancelled anywhere leaves all of the run or nothing, and can be done again at once."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from overt.stores import MemoryStore, SQLiteStore, StoreWrapper
from tests.operations.kit import START, asking, park

pytestmark = pytest.mark.anyio


class CutOff(StoreWrapper):
    """Cancels whoever begins a run, once it is begun, as an SQLite file does that is slow to say so."""

    scope: anyio.CancelScope | None = None

    async def create(self, run_id: str, records, **more):  # type: ignore[no-untyped-def]
        claim = await super().create(run_id, records, **more)
        if self.scope is not None:
            self.scope.cancel()
            await anyio.lowlevel.checkpoint()
        return claim


async def test_it_is_whole_or_not_there(tmp_path: Path) -> None:
    source = MemoryStore()
    await park(source, "z", asking(what="Buy"))
    lines = await source.export_run("z")
    inner = SQLiteStore(tmp_path / "runs.db")
    store = CutOff(inner)
    with anyio.CancelScope() as store.scope:
        await store.import_run(lines, now=START)
    assert await inner.runs() == []
    assert await inner.import_run(lines, now=START) == "z"
    await inner.close()
