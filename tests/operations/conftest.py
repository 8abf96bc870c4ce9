"""Both stores, for every test of an operation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from overt.stores import MemoryStore, SQLiteStore, Store


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "runs.db")
    yield made
    await made.close()
