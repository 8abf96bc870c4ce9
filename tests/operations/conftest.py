"""Every store, for every test of an operation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from overt.stores import MemoryStore, SQLiteStore, Store
from tests.postgres import Place


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave PostgreSQL to one loop: what it is to both, the conformance kit asks."""
    here = Path(__file__).parent
    items[:] = [one for one in items if here not in one.path.parents or "trio-postgres" not in one.name]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens the store of the test once more; of memory there is one."""
    if request.param == "postgres":
        postgres: Place = request.getfixturevalue("postgres")
        return postgres.store
    memory = MemoryStore()
    return lambda: memory if request.param == "memory" else SQLiteStore(tmp_path / "runs.db")


@pytest.fixture
async def store(opens: Callable[[], Store]) -> AsyncIterator[Store]:
    made = opens()
    yield made
    await made.close()
