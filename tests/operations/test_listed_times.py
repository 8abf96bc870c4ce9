"""One row of the list of requests with a time that is none: the others are shown, and it is found and written anew."""

from __future__ import annotations

import sqlite3

import psycopg
import pytest

from tests.operations.kit import HOUR, START, asking, park
from tests.places import store_at

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("column", ["asked_at", "expires_at"])
@pytest.mark.parametrize("time", [9_000_000_000_000_000_000, -9_000_000_000_000_000_000])
async def test_the_others_are_shown_and_it_is_repaired(place: str, column: str, time: int) -> None:
    store = store_at(place)
    await park(store, "bad", asking(what="Buy", hours=1))
    await park(store, "good", asking(what="Sell", hours=1))
    statement = f"UPDATE {{}}requests SET {column} = {time} WHERE run_id = 'bad'"
    if place.endswith(".db"):
        with sqlite3.connect(place) as file:
            file.execute(statement.format(""))
        file.close()
    else:
        _, where, dsn = place.split(" ", 2)
        with psycopg.connect(dsn, autocommit=True) as server:
            server.execute(statement.format(f"{where}.").encode())
    assert sorted(one.run_id for one in await store.pendings()) == ["bad", "good"]
    (damage,) = await store.verify(now=START, repair_lists=True)
    assert (damage.run_id, damage.repaired) == ("bad", True)
    assert await store.verify(now=START) == ()
    assert sorted(await store.expire_due(START + 2 * HOUR)) == ["bad", "good"]
    await store.close()
