"""What becomes of failures of both adapters for OpenAI, whole and streamed."""

from __future__ import annotations

import gc
import json
import threading
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import httpx2
import pytest
from openai import AsyncAzureOpenAI, DefaultAsyncHttpxClient
from tests.models.openai_fake import CASES, KEY, Body, OpenAIWire, Provider, pieces, sse, streamed
from tests.models.responses_fake import ResponsesWire

from overt.errors import DefinitionError, ModelError
from overt.message import ModelRequest, ModelResponse, ToolSpec, UserMessage
from overt.models import OpenAIModel, OpenAIResponsesModel

pytestmark = pytest.mark.anyio
one_loop = pytest.mark.parametrize("anyio_backend", ["asyncio"])

Wire = OpenAIWire | ResponsesWire
WIRES: dict[str, Wire] = {"chat": OpenAIWire(), "responses": ResponsesWire()}
on_both = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
KINDS: dict[str, type[OpenAIModel] | type[OpenAIResponsesModel]] = {
    "chat": OpenAIModel,
    "responses": OpenAIResponsesModel,
}
in_both = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)

TOOLS = tuple(
    ToolSpec(name=name, description="", input_schema={"type": "object", "properties": {}})
    for name in ("look", "refund.order")
)
REQUEST = ModelRequest(messages=(UserMessage(text="go"),), tools=TOOLS)
ACCOUNT = "org-AbC123456"
SECRETS = (KEY, ACCOUNT, "acct-zebra", "tok-en-of-mine")
ECHO = {
    "message": f"Bearer {KEY} of {ACCOUNT} with tok-en-of-mine in account acct-zebra failed",
    "type": f"type {KEY}",
    "code": "acct-zebra",
    "param": ACCOUNT,
    "account_id": "acct-zebra",
    "metadata": {"headers": {"Authorization": f"Bearer {KEY}"}, "user_id": "acct-zebra"},
}


def everything(error: BaseException) -> str:
    """All that a log, a tracker or a debugger would find on an exception."""
    told = "".join(traceback.format_exception(error))
    seen: BaseException | None = error
    while seen is not None:
        told += repr(vars(seen)) + repr(seen.args)
        seen = seen.__cause__ or seen.__context__
    return told


async def failures(wire: Wire, provider: Provider, **options: Any) -> list[ModelError]:
    """The error of a whole reply and that of a stream; each took one request."""
    errors: list[ModelError] = []
    ways: list[Callable[[Any], Awaitable[ModelResponse]]] = [
        lambda model: model.generate(REQUEST),
        lambda model: streamed(model, REQUEST),
    ]
    for way in ways:
        model = wire.make(httpx2.MockTransport(provider.handle), **options)
        with pytest.raises(ModelError) as caught:
            await way(model)
        assert (caught.value.__cause__, caught.value.__context__) == (None, None)
        errors.append(caught.value)
    assert len(provider.requests) == 2
    return errors


@on_both
@one_loop
@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "BadRequestError", False),
        (404, "NotFoundError", False),
        (408, "APIStatusError", True),
        (429, "RateLimitError", True),
        (500, "InternalServerError", True),
        (529, "InternalServerError", True),
    ],
)
async def test_a_refused_request(wire: Wire, status: int, kind: str, retryable: bool) -> None:
    headers = {"x-request-id": "req_1", "retry-after": "5", "openai-organization": "tok-en-of-mine"}
    for error in await failures(wire, Provider({"error": ECHO}, status=status, headers=headers)):
        assert (error.status_code, error.type, error.retryable) == (status, kind, retryable)
        assert (error.request_id, error.retry_after) == ("req_1", 5)
        assert str(error).startswith(f"{kind} {status}: «redacted» of «redacted» with «redacted»")
        assert not [secret for secret in SECRETS if secret in everything(error)]


@on_both
@one_loop
async def test_waits_are_said_in_every_form(wire: Wire) -> None:
    date = "Tue, 01 Dec 2026 12:00:00 GMT"
    for headers, wait in (
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Tue, 01 Dec 2026 12:00:05 GMT", "date": date}, 5),
    ):
        for error in await failures(wire, Provider({"error": {}}, status=429, headers=headers)):
            assert error.retry_after == wait


@on_both
@one_loop
@pytest.mark.parametrize("status", [401, 403])
async def test_nothing_of_a_refusal_of_credentials_is_told(wire: Wire, status: int) -> None:
    provider = Provider({"error": {"message": "the words", "code": "words_too"}}, status=status)
    for error in await failures(wire, provider):
        assert "words" not in everything(error)
        assert (error.status_code, error.detail, error.retryable) == (status, None, False)


@on_both
@one_loop
async def test_a_refused_tool_is_named(wire: Wire) -> None:
    at = "tools[1].function.parameters" if isinstance(wire, OpenAIWire) else "tools[1].parameters"
    told = {"message": f"Invalid schema at '{at}': 'order' has no type", "param": at}
    for error in await failures(wire, Provider({"error": told}, status=400)):
        assert str(error).startswith(f"BadRequestError 400: tool 'refund.order': Invalid schema at '{at}'")


@on_both
@one_loop
async def test_an_error_in_what_says_yes_is_redacted_too(wire: Wire) -> None:
    whole = {"error": {**ECHO, "code": 429}, "status": "failed"}
    for error in await failures(wire, Provider(whole, headers={"content-type": "application/json"})):
        assert (error.status_code, error.retryable) == (429, True)
        assert not [secret for secret in SECRETS[:3] if secret in everything(error)]
    flat = [{**ECHO, "type": "error"}] if isinstance(wire, ResponsesWire) else []
    for event in ({"error": ECHO}, *flat):
        with pytest.raises(ModelError, match="ErrorReply: «redacted» of «redacted»") as caught:
            await streamed(wire.make(httpx2.MockTransport(Provider(Body(sse([event]))).handle)), REQUEST)
        assert not [secret for secret in SECRETS[:3] if secret in everything(caught.value)]


@on_both
@one_loop
@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (httpx2.ConnectError(f"refused for {KEY}"), "APIConnectionError"),
        (httpx2.ReadTimeout("slow"), "APITimeoutError"),
    ],
)
async def test_no_answer_at_all(wire: Wire, failure: Exception, kind: str) -> None:
    for error in await failures(wire, Provider(failure)):
        assert (error.type, error.retryable, error.status_code) == (kind, True, None)
        assert KEY not in everything(error)


@on_both
@one_loop
async def test_an_address_that_is_no_api(wire: Wire) -> None:
    page = b"<!doctype html><title>Welcome</title>"
    html = {"content-type": "text/html"}
    for error in await failures(wire, Provider(page, headers=html)):
        assert "a web page titled 'Welcome', not JSON; does base_url point at the API?" in str(error)
        assert (error.type, error.retryable) == ("InvalidReply", False)
    for error in await failures(wire, Provider(page, status=404, headers=html)):
        assert str(error).startswith("NotFoundError 404: a web page titled 'Welcome'")


@on_both
@one_loop
async def test_an_answer_that_breaks_off(wire: Wire) -> None:
    for kind in ("application/json", "text/event-stream"):
        body = Body([b'{"half'], then=httpx2.RemoteProtocolError("gone"))
        for error in await failures(wire, Provider(body, headers={"content-type": kind})):
            assert (error.type, error.retryable) == ("APIConnectionError", True)
        assert body.closes == 2
    after = Body([*wire.events("text"), b"x"], then=httpx2.RemoteProtocolError("gone"))
    reply = await streamed(wire.make(httpx2.MockTransport(Provider(after).handle)), REQUEST)
    assert reply.finish_reason == "stop"


@on_both
async def test_cancellation_closes_the_answer(wire: Wire) -> None:
    closed: list[bool] = []

    class Endless(Body):
        async def __aiter__(self) -> AsyncGenerator[bytes]:
            for piece in self.pieces:
                yield piece
            started.set()
            await anyio.sleep_forever()

        async def aclose(self) -> None:
            closed.append(True)

    started = anyio.Event()
    model = wire.make(httpx2.MockTransport(Provider(Endless(wire.events("text")[:6])).handle))
    async with anyio.create_task_group() as group:
        group.start_soon(pieces, model, REQUEST)
        await started.wait()
        group.cancel_scope.cancel()
    assert group.cancel_scope.cancelled_caught
    assert closed == [True]


# ------------------------------------------------------------------ clients and hosts


@in_both
def test_contradictory_declarations_are_refused(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Provider(None).client()
    for options in ({"api_key": "k"}, {"base_url": "http://x"}):
        with pytest.raises(DefinitionError, match=f"{kind.__name__} 'm': .*belong to the client"):
            kind("m", client=client, **options)
    with pytest.raises(DefinitionError, match=f"{kind.__name__}: name is empty"):
        kind(" ")
    monkeypatch.setenv("OPENAI_BASE_URL", "api.example.com/v1")
    with pytest.raises(DefinitionError, match="http"):
        kind("m")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL")
    with pytest.raises(DefinitionError, match=f"{kind.__name__} 'm' has no API key"):
        kind("m").check()


@in_both
def test_whose_prices_hold(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    azure = AsyncAzureOpenAI(api_key=KEY, api_version="v1", azure_endpoint="https://x.openai.azure.com")
    assert kind("m").provider == "openai"
    assert kind("m", base_url="https://eu.api.openai.com/v1").provider == "openai"
    assert (
        kind("m", base_url="https://evilapi.openai.com.example/v1").provider == "evilapi.openai.com.example"
    )
    assert kind("m", client=azure).provider == "azure"
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.deepseek.com/v1")
    assert kind("m").provider == "api.deepseek.com"


def test_who_takes_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    other = "https://llm.example/v1"
    assert OpenAIModel("m").structured_output
    assert not OpenAIModel("m", base_url=other).structured_output
    assert OpenAIModel("m", base_url=other, structured_output=True).structured_output
    assert not OpenAIModel("m", structured_output=False).structured_output
    assert OpenAIResponsesModel("m", base_url=other).structured_output
    assert not OpenAIResponsesModel("m", structured_output=False).structured_output


@in_both
@one_loop
async def test_a_token_that_a_host_gets_for_each_request_is_redacted(kind: Any) -> None:
    provider = Provider({"error": {"message": "no quota for tok-en-of-mine"}}, status=429)
    http = DefaultAsyncHttpxClient(transport=httpx2.MockTransport(provider.handle))

    async def token() -> str:
        return "tok-en-of-mine"

    client = AsyncAzureOpenAI(
        azure_ad_token_provider=token,
        api_version="2026-01-01",
        azure_endpoint="https://x.openai.azure.com",
        http_client=http,
    )
    with pytest.raises(ModelError) as caught:
        await streamed(kind("deployed", client=client), REQUEST)
    assert "no quota for «redacted»" in str(caught.value)
    assert "tok-en-of-mine" not in everything(caught.value)
    paths = {
        OpenAIModel: "/openai/deployments/deployed/chat/completions",
        OpenAIResponsesModel: "/openai/responses",
    }
    assert provider.requests[0].url.path == paths[kind]


def test_streams_over_real_sockets_share_a_connection() -> None:
    peers: set[Any] = set()
    wires = {"/v1/chat/completions": WIRES["chat"], "/v1/responses": WIRES["responses"]}

    class Server(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            peers.add(self.client_address)
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for event in wires[self.path].events("calls"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/v1"

    async def main() -> None:
        for kind in (*KINDS.values(), *KINDS.values()):
            reply = await streamed(kind("m", base_url=url, api_key=KEY), REQUEST)
            assert [call.arguments for call in reply.message.tool_calls] == [{"at": "A1"}, {"at": "B2"}]

    try:
        for backend in ("asyncio", "trio"):
            anyio.run(main, backend=backend)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert len(peers) == 2
    gc.collect()


def test_the_fakes_have_every_case() -> None:
    for wire in WIRES.values():
        for case in CASES:
            json.loads(wire.body(case))
            assert wire.events(case)
