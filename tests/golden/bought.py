"""Golden runs of model calls that are made again, and that cost money."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from typing import Any

from overt import Agent, Budget, Price, PriceTable, RetryPolicy, Usage, tool
from overt.errors import ModelError
from overt.message import ModelRequest
from overt.stores import Store
from overt.testing import MockModel, Part, VirtualClock, call, say
from overt.testing.crashing import Crashed, CrashingStore

SPENT = Usage(
    input_tokens=900,
    cached_tokens=300,
    cache_write_tokens=100,
    output_tokens=100,
    reasoning_tokens=40,
    total_tokens=1000,
)


@tool
async def weigh(item: str) -> str:
    """Weigh something."""
    return f"{item}: 3 kg"


SHOPPER = Agent("shopper", does="Shops.", tools=[weigh], budget=Budget(max_cost=Decimal(1)))


def options(store: Store) -> dict[str, Any]:
    """What each of them is run and opened with: the first call fails once, and was charged."""
    failed = False

    def says(request: ModelRequest) -> Part:
        nonlocal failed
        if not failed and len(request.messages) == 1:
            failed = True
            raise ModelError(
                "HTTP 529: overloaded",
                type="OverloadedError",
                status_code=529,
                retryable=True,
                detail='{"error":"overloaded"}',
                retry_after=0.0,
                request_id="req-1",
                usage=SPENT,
            )
        return say("bought", usage=SPENT) if len(request.messages) > 1 else first

    first = call("weigh", item="tea").with_options(usage=SPENT)
    dear = Price(input=Decimal(10), output=Decimal(50), cached=Decimal(1), cache_write=Decimal("12.5"))
    return {
        "store": store,
        "model": MockModel(says, name="clerk-1"),
        "clock": VirtualClock(),
        "retry": RetryPolicy(base=0, jitter=0),
        "prices": PriceTable({"clerk-1": dear}),
    }


async def retried(store: Store) -> None:
    """It fails, is made again, and the run is done."""
    await SHOPPER.run("tea, please", run_id="retried", **options(store))


async def retry_cut_off(store: Store) -> None:
    """The process dies while it waits for the second attempt."""
    with suppress(Crashed):
        await SHOPPER.run("tea, please", run_id="retry_cut_off", **options(CrashingStore(store, crash_at=3)))
