"""Keys, clients and event loops of the Anthropic adapter."""

from __future__ import annotations

import gc
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import anyio
import httpx2
import pytest
from anthropic import AsyncAnthropic, AsyncAnthropicFoundry, AsyncAnthropicVertex, DefaultAsyncHttpxClient
from tests.models.anthropic_fake import CASES, HELLO, KEY, Provider, error, events_of, reply, text

from overt.errors import DefinitionError, ModelError
from overt.message import Model, ModelRequest, StreamingModel, UserMessage
from overt.models import AnthropicModel, resolve
from overt.models.assemble import Assembler

pytestmark = pytest.mark.anyio
one_loop = pytest.mark.parametrize("anyio_backend", ["asyncio"])

ASK = ModelRequest(messages=(UserMessage(text="go"),))


async def streamed(model: AnthropicModel) -> str:
    assembler = Assembler()
    async for piece in model.stream(ASK):
        assembler.add(piece)
    return assembler.response().message.text


# ------------------------------------------------------------------ keys and declarations


def test_a_name_with_the_provider_becomes_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k-123")
    model = resolve("anthropic:claude-sonnet-5")
    assert isinstance(model, AnthropicModel)
    assert isinstance(model, Model)
    assert isinstance(model, StreamingModel)
    assert (model.name, model.provider) == ("claude-sonnet-5", "anthropic")
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with pytest.raises(DefinitionError, match="ANTHROPIC_API_KEY"):
        resolve("anthropic:claude-sonnet-5")


def test_a_missing_package_is_told_by_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "overt.models.anthropic", raising=False)
    monkeypatch.setitem(sys.modules, "anthropic", None)
    with pytest.raises(DefinitionError, match=r"pip install 'overt\[anthropic\]'"):
        resolve("anthropic:claude-sonnet-5")


async def test_a_missing_key_is_told_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    model = AnthropicModel("m", base_url="http://127.0.0.1:9")
    with pytest.raises(DefinitionError, match="ANTHROPIC_API_KEY"):
        await model.generate(ASK)
    with pytest.raises(DefinitionError, match="ANTHROPIC_API_KEY"):
        await streamed(model)
    for wrong in ("k\n", "k y", "ключ"):
        with pytest.raises(DefinitionError, match="no header") as caught:
            AnthropicModel("m", api_key=wrong).check()
        assert wrong not in str(caught.value)


def test_contradictory_declarations_are_refused() -> None:
    client = Provider(None).client()
    for options in ({"api_key": "k"}, {"base_url": "http://x"}):
        with pytest.raises(DefinitionError, match="belong to the client"):
            AnthropicModel("m", client=client, **options)  # type: ignore[arg-type]  # each has one of the two
    with pytest.raises(DefinitionError, match="empty"):
        AnthropicModel(" ")
    with pytest.raises(DefinitionError, match="http"):
        AnthropicModel("m", base_url="api.example.com")
    with pytest.raises(DefinitionError, match="max_output_tokens is 0"):
        AnthropicModel("m", max_output_tokens=0)


# ------------------------------------------------------------------ clients of the host


@one_loop
async def test_a_given_client_is_used_as_it_is_but_for_its_retries() -> None:
    provider = Provider(error(), status=529)
    client = provider.client(
        base_url="https://proxy.example/claude", default_headers={"x-team": "blue"}, max_retries=5
    )
    model = AnthropicModel("m", client=client)
    model.check()
    for get in (model.generate(ASK), streamed(model)):
        with pytest.raises(ModelError):
            await get
    assert [str(request.url) for request in provider.requests] == [
        "https://proxy.example/claude/v1/messages"
    ] * 2
    assert provider.requests[0].headers["x-team"] == "blue"
    assert provider.requests[0].headers["content-type"] == "application/json"
    assert client.max_retries == 5
    assert not client.is_closed()


@one_loop
async def test_a_given_client_without_credentials_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    provider = Provider(reply(text("hi")))
    model = AnthropicModel("m", client=provider.client(api_key=None))
    for get in (model.generate(ASK), streamed(model)):
        with pytest.raises(DefinitionError, match="no credentials"):
            await get
    assert provider.requests == []
    token = provider.client(api_key=None, auth_token="tok-en-tok-en")
    assert (await AnthropicModel("m", client=token).generate(ASK)).message.text == "hi"
    provider.answer, provider.status = {"error": {"message": "tok-en-tok-en is over"}}, 400
    with pytest.raises(ModelError) as caught:
        await AnthropicModel("m", client=token).generate(ASK)
    assert str(caught.value) == "BadRequestError 400: «redacted» is over"


@one_loop
async def test_a_client_for_vertex_finds_its_path() -> None:
    provider = Provider(CASES["reasoning_call"])
    http = DefaultAsyncHttpxClient(transport=provider.transport())
    client = AsyncAnthropicVertex(
        project_id="blue-zebra", region="eu", access_token="ya29.secret", http_client=http, max_retries=3
    )
    model = AnthropicModel("claude-sonnet-5", client=client)
    whole = await model.generate(ASK)
    assembler = Assembler()
    async for piece in model.stream(ASK):
        assembler.add(piece)
    assert assembler.response() == whole
    assert [*(whole.message.opaque or {})] == ["anthropic:aiplatform.eu.rep.googleapis.com"]
    path = "/v1/projects/blue-zebra/locations/eu/publishers/anthropic/models/claude-sonnet-5"
    found = [request.url.path for request in provider.requests]
    assert found == [f"{path}:rawPredict", f"{path}:streamRawPredict"]
    assert "model" not in provider.bodies[0]
    provider.answer, provider.status = {"error": {"message": "no ya29.secret in blue-zebra"}}, 500
    with pytest.raises(ModelError) as caught:
        await model.generate(ASK)
    assert str(caught.value) == "InternalServerError 500: no «redacted» in «redacted»"
    assert len(provider.requests) == 3


@one_loop
async def test_a_client_for_foundry_finds_its_path() -> None:
    provider = Provider(CASES["text"])
    client = AsyncAnthropicFoundry(
        api_key=KEY, resource="x", http_client=DefaultAsyncHttpxClient(transport=provider.transport())
    )
    model = AnthropicModel("claude-sonnet-5", client=client)
    assert (await model.generate(ASK)).message.text == await streamed(model) == HELLO
    assert {request.url.path for request in provider.requests} == {"/anthropic/v1/messages"}


async def test_cancellation_goes_through() -> None:
    started = anyio.Event()

    async def hang(_: httpx2.Request) -> httpx2.Response:
        started.set()
        await anyio.sleep_forever()
        raise AssertionError

    http = DefaultAsyncHttpxClient(transport=httpx2.MockTransport(hang))
    model = AnthropicModel("m", client=AsyncAnthropic(api_key=KEY, http_client=http))
    for get in (model.generate, lambda _: streamed(model)):
        async with anyio.create_task_group() as group:
            group.start_soon(get, ASK)
            await started.wait()
            group.cancel_scope.cancel()
        assert group.cancel_scope.cancelled_caught


# ------------------------------------------------------------------ loops and sockets


class _Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, str | None, str]]] = []
    peers: ClassVar[set[Any]] = set()
    left: ClassVar[threading.Event]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        key = self.headers["authorization"] or self.headers["x-api-key"]
        said = body["messages"][-1]["content"][0]["text"]
        self.seen.append((self.path, key.removeprefix("Bearer "), body["model"]))
        self.peers.add(self.client_address)
        if body.get("stream"):
            self.stream(endless=said == "endless")
            return
        payload = json.dumps(reply(text("pong")) if said != "fail" else error()).encode()
        self.send_response(200 if said != "fail" else 529)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def stream(self, *, endless: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        events = events_of(CASES["text"])
        try:
            while endless:
                self.chunk(events[3])
        except OSError:
            self.left.set()
            self.close_connection = True
            return
        self.chunk(b"".join(events))
        self.chunk(b"")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize("backends", [("asyncio", "trio", "asyncio"), ("trio", "trio")])
def test_one_model_serves_loop_after_loop_over_real_sockets(
    backends: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    _Server.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    endless = ModelRequest(messages=(UserMessage(text="endless"),))
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        model, other = AnthropicModel("m", base_url=url), AnthropicModel("n", base_url=url, api_key=KEY)

        async def main(key: str) -> None:
            monkeypatch.setenv("ANTHROPIC_API_KEY", key)
            assert (await model.generate(ASK)).message.text == "pong"
            assert await streamed(other) == HELLO
            with pytest.raises(ModelError) as caught:
                await other.generate(ModelRequest(messages=(UserMessage(text="fail"),)))
            assert (caught.value.status_code, caught.value.retryable) == (529, True)
            # One connection a loop, shared by both models, whether they stream or not.
            assert len(_Server.peers) == 1
            # Leaving early is told to the provider, and leaves nothing open that a loop would warn of.
            stream = other.stream(endless)
            async for _ in stream:
                break
            await stream.aclose()
            assert await anyio.to_thread.run_sync(_Server.left.wait, 10)

        keys: list[str] = []
        for number, backend in enumerate(backends):
            keys.append(f"key-{number}")
            _Server.left = threading.Event()
            _Server.peers.clear()
            anyio.run(main, keys[-1], backend=backend)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert {path for path, _, _ in _Server.seen} == {"/v1/messages"}
    # The key is read at each call, and each call is one request.
    assert [key for _, key, name in _Server.seen if name == "m"] == keys
    assert [key for _, key, name in _Server.seen if name == "n"] == [KEY] * 3 * len(keys)
    # With warnings as errors, a connection left open by a loop would fail here.
    gc.collect()


async def test_no_redirect_is_followed_with_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def away(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.host)
        return httpx2.Response(307, headers={"location": "https://elsewhere.example/v1/messages"})

    client = await AnthropicModel("m", api_key="sk-ant-of-nobody")._own_client()
    monkeypatch.setattr(client._client, "_transport_for_url", lambda url: httpx2.MockTransport(away))
    with pytest.raises(ModelError) as caught:
        await AnthropicModel("m", client=client).generate(ModelRequest(messages=(UserMessage(text="hi"),)))
    assert (asked, caught.value.status_code) == (["api.anthropic.com"], 307)
