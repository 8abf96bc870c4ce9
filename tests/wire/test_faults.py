"""Providers that fail over real HTTP: what a run says of it, and that it goes on when they are well again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from overt import RetryPolicy, Runtime, Status
from overt.errors import ModelError
from overt.events import RetryAwaited
from overt.testing import VirtualClock
from tests.wire.adapters import Adapter, each_adapter
from tests.wire.aimock import Aimock, Fixture, broken, calls, fails, text
from tests.wire.kit import asked, clerk, run

pytestmark = [pytest.mark.anyio, each_adapter]

WELL = text("All is well.")
LONG = text("This reply is long enough to be cut in the middle.")
CALLED = calls(("price", {"item": "tea, and a good deal of other things"}))


@dataclass(frozen=True)
class Fault:
    """A fault, and what a run has to say of it."""

    reply: Fixture
    status: int | None
    retryable: bool
    streamed: bool | None = None
    """Where it can happen; `None` is both."""


FAULTS = {
    "told to wait": Fault(fails(429, "slow down", after=7), 429, True),
    "server error": Fault(fails(500), 500, True),
    "overloaded": Fault(fails(529), 529, True),
    "bad request": Fault(fails(400), 400, False),
    "connection dropped": Fault(broken(WELL, chaos={"disconnectRate": 1}), None, True),
    "no JSON": Fault(broken(WELL, chaos={"malformedRate": 1}), None, False),
    "text cut off": Fault(broken(LONG, latency=2, truncateAfterChunks=4), None, True, streamed=True),
    "cut off before its first piece": Fault(broken(LONG, truncateAfterChunks=1), None, True, streamed=True),
}
CASES = [
    pytest.param(fault, streamed, id=f"{name}-{'streamed' if streamed else 'whole'}")
    for name, fault in FAULTS.items()
    for streamed in (False, True)
    if fault.streamed in (None, streamed)
]


ONCE = RetryPolicy(max_retries=0)
EXACT = RetryPolicy(jitter=0)


@pytest.mark.parametrize(("fault", "streamed"), CASES)
async def test_a_failed_call_is_a_result_and_the_run_goes_on_when_the_provider_is_well(
    aimock: Aimock, adapter: Adapter, fault: Fault, streamed: bool
) -> None:
    model = aimock.model(fault.reply, WELL)
    runtime = await run(clerk(adapter.at(aimock.url, model)), streamed=streamed, retry=ONCE)
    result = runtime.result()
    assert result.status is Status.ERROR
    assert result.error is not None
    assert result.error.source == "model"
    assert (result.error.status_code, result.error.retryable) == (fault.status, fault.retryable)
    assert result.usage.model_calls == 1
    assert len(aimock.requests(model)) == 1, "the client tried again behind the runtime's back"
    again = await runtime.recover()
    assert (again.status, again.text) == (Status.DONE, "All is well.")
    assert (again.usage.model_calls, again.usage.turns) == (2, 1)
    # Anthropic says at the beginning of a reply what it has read so far.
    assert again.total_tokens == result.total_tokens + 100
    assert result.usage.unreported_calls == (0 if result.total_tokens else 1)


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_run_asks_again_when_the_provider_said_it_may(
    aimock: Aimock, adapter: Adapter, streamed: bool
) -> None:
    model = aimock.model(fails(503), fails(429, "slow down", after=7), WELL)
    clock = VirtualClock()
    runtimes: list[Runtime[Any]] = []

    async def go() -> None:
        runtimes.append(
            await run(clerk(adapter.at(aimock.url, model)), streamed=streamed, clock=clock, retry=EXACT)
        )

    async with anyio.create_task_group() as group:
        group.start_soon(go)
        for seconds in (0.5, 7.0):
            await clock.wait_for_sleepers()
            await clock.advance(seconds)
    (runtime,) = runtimes
    assert (runtime.result().status, runtime.result().text) == (Status.DONE, "All is well.")
    assert runtime.result().usage.model_calls == 3
    waits = [event.seconds for event in runtime.events() if isinstance(event, RetryAwaited)]
    assert waits == [0.5, 7.0]
    assert len(aimock.requests(model)) == 3


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_wait_a_provider_asks_for_is_known(
    aimock: Aimock, adapter: Adapter, streamed: bool
) -> None:
    model = aimock.model(fails(429, "slow down", after=7))
    with pytest.raises(ModelError) as raised:
        await asked(adapter.at(aimock.url, model), streamed=streamed)
    assert raised.value.retry_after == 7
    assert raised.value.request_id
    assert "slow down" in str(raised.value)


async def test_a_call_that_is_cut_off_is_not_entered(aimock: Aimock, adapter: Adapter) -> None:
    if adapter.provider == "google":
        return  # its calls come whole
    model = aimock.model(broken(CALLED, latency=2, truncateAfterChunks=5), WELL)
    runtime = await run(clerk(adapter.at(aimock.url, model)), streamed=True, retry=ONCE)
    result = runtime.result()
    assert result.status is Status.ERROR
    assert result.usage.tool_calls == 0
    assert (await runtime.recover()).status is Status.DONE
