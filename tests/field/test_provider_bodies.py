"""A body that echoes keys and accounts: none of them in a result, an event, a trace, the journal or a log."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from tests.driver.support import agent
from tests.models.anthropic_fake import AnthropicWire
from tests.models.google_fake import GoogleWire
from tests.models.openai_fake import OpenAIWire
from tests.models.responses_fake import ResponsesWire

from overt import RetryPolicy
from overt.errors import ModelError
from overt.message import ModelRequest, UserMessage
from overt.stores import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

SECRETS = (
    "sk-proj-A1b2C3d4E5f6G7h8",
    "hunter2-bearer-0123456789",
    "org-9f8e7d6c5b4a",
    "acct_1234567890abcdef",
    "proj_abcdef0123456789",
    "ann@acme.example",
)
WORDS = (
    f"Incorrect API key provided: {SECRETS[0]}. Authorization: Bearer {SECRETS[1]} of organization {SECRETS[2]}, "
    f"account {SECRETS[3]}, project {SECRETS[4]}, user {SECRETS[5]}."
)
FIELDS = {
    "message": WORDS,
    "type": f"invalid {SECRETS[2]}",
    "code": f"bad_key {SECRETS[0]}",
    "param": SECRETS[4],
    "status": WORDS,
    "details": [{"organization": SECRETS[2], "account_id": SECRETS[3], "metadata": {"user": SECRETS[5]}}],
}
WIRES = {
    "chat": OpenAIWire(),
    "responses": ResponsesWire(),
    "anthropic": AnthropicWire(),
    "google": GoogleWire(),
}
HEADERS = {"x-request-id": f"req-{SECRETS[3]}", "request-id": f"req-{SECRETS[3]}"}

wires = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)


def keys_in(request: httpx2.Request) -> set[str]:
    """The keys the client sent, which a provider may say back."""
    found = {request.headers.get(name, "") for name in ("x-api-key", "x-goog-api-key", "authorization")}
    return {value.removeprefix("Bearer ") for value in found if value}


@wires
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 429, 500])
@pytest.mark.parametrize("text", [False, True], ids=["json", "text"])
async def test_nothing_of_it_is_anywhere(
    wire: Any, status: int, streamed: bool, text: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sent: set[str] = set()

    def handle(request: httpx2.Request) -> httpx2.Response:
        keys = keys_in(request)
        sent.update(keys)
        echo = " ".join(keys)
        body = f"{WORDS} {echo}" if text else json.dumps({"error": {**FIELDS, "echo": echo, "key": echo}})
        return httpx2.Response(status, content=body.encode(), headers=HEADERS)

    store = MemoryStore()
    made = agent()
    model = wire.make(httpx2.MockTransport(handle))
    options: Any = {"model": model, "store": store, "run_id": "r", "retry": RetryPolicy(max_retries=0)}
    if streamed:
        async with made.stream("go", **options) as stream:
            shown = [event.model_dump_json() async for event in stream]
            result, rt = await stream.result(), stream.runtime
    else:
        result, rt = await made.run("go", **options)
        shown = [event.model_dump_json() for event in rt.events()]
    assert (result.status, len(sent)) == ("error", 1)
    assert result.error is not None
    assert result.error.status_code in (status, None) or status == 200
    everywhere = "\n".join(
        [
            result.model_dump_json(),
            *shown,
            *rt.trace(),
            *[record.text for record in await store.read("r")],
            caplog.text,
        ]
    )
    for secret in (*SECRETS, *sent):
        assert secret not in everywhere, secret
    if status in (401, 403):
        assert "Incorrect API key" not in everywhere
        assert result.error.detail is None
    elif status != 200:
        assert "Incorrect API key provided" in everywhere
    assert len(result.error.message) < 300


@wires
async def test_no_exception_leads_to_the_body(wire: Any) -> None:
    def handle(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(401, json={"error": FIELDS}, headers=HEADERS)

    with pytest.raises(ModelError) as caught:
        await wire.make(httpx2.MockTransport(handle)).generate(
            ModelRequest(messages=(UserMessage(text="go"),))
        )
    error = caught.value
    assert (error.__cause__, error.__context__, error.detail) == (None, None, None)
    told = f"{error!r} {error.args} {vars(error)}"
    assert not any(secret in told for secret in SECRETS)
