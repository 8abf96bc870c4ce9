"""A head of PostgreSQL whose time is none is damage, said as such, as with SQLite."""

from __future__ import annotations

import pytest
from tests.operations.kit import START, asking, park
from tests.postgres import Place

from overt.errors import JournalCorrupt

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("column", ["updated", "created"])
async def test_it_is_named(postgres: Place, column: str) -> None:
    store = postgres.store()
    await park(store, "a", asking(what="Buy", hours=1))
    postgres.sql(f"UPDATE runs SET {column} = -9000000000000000000")
    with pytest.raises(JournalCorrupt, match="'a'"):
        await store.runs()
    assert len(await store.verify(now=START)) == 1
    await store.close()
