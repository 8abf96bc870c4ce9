"""Everything set up wrong, over real HTTP: which mistake it is can be read off the result."""

from __future__ import annotations

import socket

import pytest

from overt import ErrorInfo, RetryPolicy
from overt.message import Model
from tests.wire.adapters import Adapter, each_adapter
from tests.wire.aimock import KEY, Aimock, text
from tests.wire.kit import clerk, run
from tests.wire.raw import sending

pytestmark = [pytest.mark.anyio, each_adapter, pytest.mark.parametrize("streamed", [False, True])]

PAGE = b"<!doctype html><html><head><title>Welcome</title></head><body>Sign in</body></html>"


async def failed(model: Model, streamed: bool) -> ErrorInfo:
    """The error of a run with this model, which never names the key."""
    runtime = await run(clerk(model), streamed=streamed, retry=RetryPolicy(max_retries=0))
    result = runtime.result()
    assert result.status == "error"
    assert result.error is not None
    assert KEY not in result.model_dump_json()
    assert "wrong-key" not in result.model_dump_json()
    return result.error


async def test_a_wrong_key(aimock: Aimock, adapter: Adapter, streamed: bool) -> None:
    model = aimock.model(text("never said"))
    error = await failed(adapter.at(aimock.url, model, key="sk-wrong-key-000000"), streamed)
    assert (error.status_code, error.retryable, error.detail) == (401, False, None)
    assert aimock.requests(model) == []


async def test_a_base_url_that_leads_nowhere(aimock: Aimock, adapter: Adapter, streamed: bool) -> None:
    error = await failed(adapter.at(f"{aimock.url}/nowhere"), streamed)
    assert (error.status_code, error.retryable) == (404, False)


@pytest.mark.parametrize("status", [200, 404])
async def test_a_base_url_that_leads_to_a_web_page(adapter: Adapter, streamed: bool, status: int) -> None:
    with sending() as server:
        server.pieces, server.kind, server.status = [PAGE], "text/html", status
        error = await failed(adapter.at(server.url), streamed)
    assert error.status_code == (None if status == 200 else 404)
    assert not error.retryable
    assert "a web page titled 'Welcome', not JSON; does base_url point at the API?" in error.message


async def test_nobody_listens(adapter: Adapter, streamed: bool) -> None:
    with socket.socket() as nobody:  # bound, so that nobody else listens there
        nobody.bind(("127.0.0.1", 0))
        error = await failed(adapter.at(f"http://127.0.0.1:{nobody.getsockname()[1]}"), streamed)
    assert (error.status_code, error.retryable) == (None, True)


async def test_https_where_http_is_spoken(aimock: Aimock, adapter: Adapter, streamed: bool) -> None:
    error = await failed(adapter.at(aimock.url.replace("http://", "https://")), streamed)
    assert (error.status_code, error.retryable) == (None, True)
