"""A run comes to the same whoever carries the replies: the scripted model, HTTP, or others' mock of a provider."""

from __future__ import annotations

import pytest

from overt.demo.provider.server import serve
from overt.message import ToolMessage
from overt.testing import MockModel
from tests.wire.adapters import Adapter, each_adapter
from tests.wire.aimock import Aimock
from tests.wire.kit import SCRIPT, Came, came, clerk, fixtures, run, said

pytestmark = [pytest.mark.anyio, each_adapter]


async def reference(name: str) -> Came:
    _, runtime = await clerk(MockModel(list(SCRIPT), name=name)).run("go")
    return came(runtime)


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_scripted_model_behind_http(adapter: Adapter, streamed: bool) -> None:
    want = await reference("some-model")
    with serve(MockModel(list(SCRIPT), name="some-model")) as server:
        got = came(await run(clerk(adapter.at(server.url)), streamed=streamed))
    assert got == want
    assert [exchange.streamed for exchange in server.exchanges] == [streamed] * len(SCRIPT)
    results = [message for message in got.transcript if isinstance(message, ToolMessage)]
    assert [message.is_error for message in results] == [False, True, True, False, False, False]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_mock_of_the_provider_by_others(aimock: Aimock, adapter: Adapter, streamed: bool) -> None:
    model = aimock.model(*fixtures(SCRIPT))
    want = await reference(model)
    got = came(await run(clerk(adapter.at(aimock.url, model)), streamed=streamed))
    assert got == want
    *_, last = aimock.requests(model)
    asked = [call["id"] for message in last["messages"] for call in message.get("tool_calls") or []]
    assert [m["tool_call_id"] for m in last["messages"] if m["role"] == "tool"] == asked
    assert len(set(asked)) == 6


async def test_what_is_said_comes_in_pieces_and_in_order(adapter: Adapter) -> None:
    with serve(MockModel(list(SCRIPT))) as server:
        runtime, pieces = await said(clerk(adapter.at(server.url)))
    assert pieces == "Let me look." + runtime.result().text
