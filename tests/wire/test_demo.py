"""The demo's job against others' mock of the providers: parked, opened anew, answered, and the same bill."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from overt import Answer, Runtime, Status
from overt.demo.clients import connect
from overt.demo.team import COORDINATOR, JOB, MODEL, RUN_ID, entries, script
from overt.ledger import Ledger
from overt.message import Model
from overt.stores import SQLiteStore
from tests.wire.adapters import Adapter, each_adapter
from tests.wire.aimock import Aimock, Fixture, calls, text
from tests.wire.kit import bare

pytestmark = [pytest.mark.anyio, each_adapter]

RESEARCH = {"agent": "researcher", "prompt": "How late was order A-1001, and why?"}
SETTLE = {"agent": "payments", "prompt": "Settle order A-1001: refund it and offer a voucher of 25."}
LATE = "It left five days late: a lorry broke down."
PAID = "40.00 refunded; voucher of 25.00 sent."


def matched(reply: Fixture, **match: Any) -> Fixture:
    return {**reply, "match": match}


# Of the request alone, as the script is: a wake that is played again gets the same replies.
FIXTURES = [
    matched(calls(("task", RESEARCH), ("task", SETTLE)), toolName="task", hasToolResult=False),
    matched(text(f"{LATE} {PAID}"), toolName="task", hasToolResult=True),
    matched(calls(("track", {"order": "A-1001"})), toolName="track", hasToolResult=False),
    matched(text(LATE), toolName="track", hasToolResult=True),
    matched(calls(("look_up", {"order": "A-1001"})), toolName="refund", turnIndex=0),
    matched(calls(("refund", {"order": "A-1001", "amount": 40.0})), toolName="refund", turnIndex=1),
    matched(calls(("send_voucher", {"order": "A-1001", "amount": 25.0})), toolName="refund", turnIndex=2),
    matched(text(PAID), toolName="refund", turnIndex=3),
]


async def played(folder: Path, model: Model) -> tuple[str, Ledger, Counter[str]]:
    """Play the job to its question, open it as another process would, and approve."""
    store = SQLiteStore(folder / "run.db")
    runtime: Runtime[str] = Runtime(COORDINATOR, store=store, run_id=RUN_ID, deps=folder, model=model)
    async with runtime.stream(JOB) as stream:
        parked = await stream.result()
    await store.close()
    assert parked.status is Status.PENDING, parked
    assert parked.pending is not None
    store = SQLiteStore(folder / "run.db")
    runtime = await Runtime.open(COORDINATOR, RUN_ID, store=store, deps=folder, model=model)
    async with runtime.stream(answer=Answer[Any](id=parked.pending.id, ok=True, by="demo")) as stream:
        result = await stream.result()
    await store.close()
    assert result.status is Status.DONE, result
    return result.text, bare(runtime.ledger()), Counter(str(line["what"]) for line in entries(folder))


async def test_the_demos_job(
    aimock: Aimock, adapter: Adapter, tmp_path_factory: pytest.TempPathFactory
) -> None:
    want = await played(tmp_path_factory.mktemp("mock"), script())
    before = len(aimock.requests(MODEL))
    aimock.add(MODEL, *FIXTURES)
    assert await played(tmp_path_factory.mktemp("wire"), connect(adapter.provider, aimock.url)) == want
    sent = aimock.requests(MODEL)[before:]
    assert [body.get("stream") for body in sent] == [True] * 12
