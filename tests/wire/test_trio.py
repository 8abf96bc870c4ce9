"""The other event loop: connections, streams and failures work there too."""

from __future__ import annotations

import pytest

from overt import RetryPolicy, Status
from overt.testing import MockModel
from tests.wire.adapters import Adapter, each_adapter
from tests.wire.aimock import Aimock, broken, text
from tests.wire.kit import SCRIPT, came, clerk, fixtures, run

pytestmark = [pytest.mark.anyio, each_adapter]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Trio."""
    return "trio"


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_run(aimock: Aimock, adapter: Adapter, streamed: bool) -> None:
    model = aimock.model(*fixtures(SCRIPT))
    _, want = await clerk(MockModel(list(SCRIPT), name=model)).run("go")
    assert came(await run(clerk(adapter.at(aimock.url, model)), streamed=streamed)) == came(want)


async def test_a_stream_that_breaks_off(aimock: Aimock, adapter: Adapter) -> None:
    model = aimock.model(broken(text("Some long reply."), latency=2, truncateAfterChunks=3), text("Well."))
    runtime = await run(clerk(adapter.at(aimock.url, model)), streamed=True, retry=RetryPolicy(max_retries=0))
    assert runtime.result().status is Status.ERROR
    assert (await runtime.recover()).text == "Well."
