"""The process dies at every append of a run whose model calls fail and cost money: nothing is lost of the bill."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from typing import Any, Literal

import pytest
from tests.core.sim import fold

from overt import Agent, Budget, Price, PriceTable, RetryPolicy, Runtime, Usage, tool
from overt.errors import ModelError
from overt.journal.codec import decode
from overt.message import ModelRequest
from overt.stores import MemoryStore
from overt.testing import MockModel, Part, call, say
from overt.testing.crashing import Crashed, CrashingStore

SPENT = Usage(input_tokens=100, total_tokens=100)
PRICES = PriceTable({"mock": Price(input=Decimal(10_000), output=Decimal(0))})
"""A dollar a call."""


@tool
async def look() -> str:
    """Look."""
    return "seen"


AGENT = Agent("a", does="works", tools=[look], budget=Budget(max_cost=Decimal(40)))


class Provider:
    """Every other call fails, now charged and now not; it counts the calls it got."""

    def __init__(self) -> None:
        self.calls = 0
        self.charged = 0

    def says(self, request: ModelRequest) -> Part:
        self.calls += 1
        if self.calls % 2:
            usage = SPENT if self.calls % 4 == 1 else None
            self.charged += usage is not None
            raise ModelError("busy", retryable=True, status_code=503, usage=usage)
        self.charged += 1
        return (
            call("look").with_options(usage=SPENT) if len(request.messages) < 4 else say("done", usage=SPENT)
        )


def options(store: Any, provider: Provider) -> dict[str, Any]:
    return {
        "store": store,
        "model": MockModel(provider.says),
        "prices": PRICES,
        "retry": RetryPolicy(base=0, jitter=0),
    }


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("crash_at", range(3, 13))
async def test_every_attempt_is_on_the_bill(crash_at: int, when: Literal["before", "after"]) -> None:
    store, provider = MemoryStore(), Provider()
    crashing = CrashingStore(store, crash_at=crash_at, when=when)
    with suppress(Crashed):
        await AGENT.run("go", run_id="r", **options(crashing, provider))
    rt = await Runtime.open(AGENT, "r", **options(store, provider))
    result = await rt.recover()
    assert (result.status, result.text) == ("done", "done")
    usage = result.usage
    # At most the one call whose outcome died with the process is not known as what it was.
    assert usage.model_calls - provider.calls in (0, 1)
    assert 0 <= provider.charged * 100 - result.total_tokens <= 100
    assert result.priced == Decimal(result.total_tokens) / 100
    unknown = usage.model_calls - result.total_tokens // 100
    assert usage.unreported_calls == unknown == sum(item.calls for item in result.unpriced)
    tree = fold([decode("r", record) for record in await store.read("r")])
    assert (tree.root.total.cost, tree.root.money_reserved, tree.root.reserved) == (
        result.priced,
        Decimal(0),
        0,
    )


async def test_the_run_has_that_many_appends() -> None:
    crashing, provider = CrashingStore(MemoryStore()), Provider()
    result, _ = await AGENT.run("go", run_id="r", **options(crashing, provider))
    assert (result.status, provider.calls, crashing.appends) == ("done", 6, 12)
