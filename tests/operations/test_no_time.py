"""A record whose times are none, with a right checksum, is damage of that run; the others stay usable."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from overt.errors import JournalCorrupt
from overt.journal.codec import seal
from overt.journal.record import Record
from overt.stores import MemoryStore
from tests.operations.kit import HOUR, START, asking, copy, park

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("place", ["at", "expires_at"])
@pytest.mark.parametrize("time", [10**25, -(10**25), 253402300800000000])
async def test_it_is_named_and_the_others_are_shown(place: str, time: int) -> None:
    def spoil(records: list[Record]) -> list[Record]:
        made: list[Record] = []
        for one in records:
            row = json.loads(one.text)
            asks = [fact for fact in row["facts"] if fact.get("question")]
            if place == "at" and one is records[-1]:
                row["at"] = time
            for fact in asks if place == "expires_at" else ():
                fact["question"]["expires_at"] = time
            data = json.dumps({"at": row["at"], "facts": row["facts"]}, separators=(",", ":")).encode()
            made.append(Record(one.position, one.count, text=seal(data, version=row["v"])))
        return made

    whole, store = MemoryStore(), MemoryStore()
    await park(whole, "bad", asking(what="Buy", hours=1))
    await park(store, "good", asking(what="Sell", hours=1))
    try:
        await copy(whole, "bad", store, change=spoil)
    except OverflowError:  # the kit lists what it writes; before the patch it cannot
        pytest.fail("OverflowError")
    assert [(one.run_id, one.position is not None) for one in await store.verify(now=START)] == [
        ("bad", True)
    ]
    told: list[str] = []
    found = await store.pendings(on_error=lambda id, error: told.append(f"{id} {type(error).__name__}"))
    assert [one.run_id for one in found] == ["good"]
    assert told == ["bad JournalCorrupt"]
    with pytest.raises(JournalCorrupt, match="bad"):
        await store.expire_due(START + 2 * HOUR)
    assert (await store.info("good")).status == "ready"


async def test_the_last_time_there_is() -> None:
    store = MemoryStore()
    await park(store, "a", asking(what="Buy", hours=1))
    assert await store.expire_due(datetime.max.replace(tzinfo=UTC)) == ("a",)
