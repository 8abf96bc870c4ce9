"""Keys, clients and loops of the Gemini adapter; streams that are left; both event loops."""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import anyio
import httpx2
import pytest
from google.auth.credentials import Credentials
from google.genai import Client
from google.genai.types import HttpOptions
from pydantic import BaseModel
from tests.models.google_fake import (
    KEY,
    NAME,
    SIGNATURE,
    TEXT,
    GoogleWire,
    Provider,
    Stream,
    client,
    event,
    pieces,
    refusal,
    reply,
    streamed,
)

from overt import Agent, tool
from overt.errors import DefinitionError, ModelError
from overt.message import Model, ModelRequest, StreamingModel, UserMessage
from overt.models import GoogleModel, resolve
from overt.models.assemble import Assembler

pytestmark = pytest.mark.anyio

ASK = ModelRequest(messages=(UserMessage(text="go"),))
HI = reply({"text": TEXT})
WIRE = GoogleWire()


async def test_whole_and_streamed_on_either_loop() -> None:
    for answer in (WIRE.body("reasoning_call"), WIRE.events("reasoning_call")):
        model = WIRE.make(httpx2.MockTransport(Provider(answer).handle))
        assert isinstance(model, StreamingModel)
        made = Assembler()
        if isinstance(answer, list):
            async for delta in model.stream(ASK):
                made.add(delta)
            response = made.response()
        else:
            response = await model.generate(ASK)
        assert (response.message.reasoning, response.finish_reason) == ("Let me look.", "tool_calls")


async def test_nothing_is_sent_before_the_first_piece_is_asked_for() -> None:
    provider = Provider(streamed(HI))
    stream = provider.model().stream(ASK)
    await anyio.lowlevel.checkpoint()
    assert provider.requests == []
    await anext(stream)
    assert len(provider.requests) == 1
    await stream.aclose()


async def test_a_stream_that_is_left_is_closed() -> None:
    provider = Provider(streamed(*pieces(HI)))
    stream = provider.model().stream(ASK)
    async for delta in stream:
        if delta.text:
            break
    sent = provider.streams[0]
    before = sent.closed
    await stream.aclose()
    assert (before, sent.closed, sent.given) == (False, True, 1)
    # With warnings as errors, a generator that nobody closed would fail here.
    gc.collect()


async def test_cancellation_goes_through_and_closes() -> None:
    closed = anyio.Event()
    reached = anyio.Event()

    class Hanging(Stream):
        async def __aiter__(self) -> Any:
            yield event(HI)
            reached.set()
            await anyio.sleep_forever()

        async def aclose(self) -> None:
            closed.set()

    async def drain() -> None:
        model = GoogleModel(NAME, client=client(httpx2.MockTransport(handle)))
        async for _ in model.stream(ASK):
            pass

    async def ask() -> None:
        await GoogleModel(NAME, client=client(httpx2.MockTransport(handle))).generate(ASK)

    def handle(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, stream=Hanging([]))

    for way in (drain, ask):
        closed, reached = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(way)
            await reached.wait()
            group.cancel_scope.cancel()
        assert group.cancel_scope.cancelled_caught
        assert closed.is_set()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_chunks_of_megabytes() -> None:
    text = "🎉" * 1_300_000
    whole = event(reply({"text": text}))
    assert len(whole) > 5_000_000
    for size in (len(whole), 65_536, 4_001):
        chunks = (whole[at : at + size] for at in range(0, len(whole), size))
        made = Assembler()
        async for delta in Provider(list(chunks)).model().stream(ASK):
            made.add(delta)
        assert made.response().message.text == text


async def test_a_run_with_a_tool_and_typed_output() -> None:
    @tool
    def look(at: str) -> str:
        """Look somewhere."""
        return f"seen {at}"

    class Found(BaseModel):
        city: str

    provider = Provider(None)
    answers = [WIRE.body("reasoning_call"), WIRE.body("structured")]

    def handle(request: httpx2.Request) -> httpx2.Response:
        provider.reply = answers[len(provider.requests)]
        return provider.handle(request)

    model = WIRE.make(httpx2.MockTransport(handle))
    agent = Agent("finder", does="Finds.", model=model, tools=[look], output_type=Found)
    result, _ = await agent.run("go")
    assert (result.unwrap(), result.total_tokens) == (Found(city="Oslo"), 240)
    assert provider.bodies[0]["generationConfig"]["responseJsonSchema"]["required"] == ["city"]
    answered = [
        {"text": "Let me look.", "thought": True},
        {"functionCall": {"name": "look", "args": {"at": "A1"}}, "thoughtSignature": SIGNATURE},
    ]
    told = {"functionResponse": {"name": "look", "response": {"output": "seen A1"}}}
    assert provider.contents[1:] == [{"role": "model", "parts": answered}, {"role": "user", "parts": [told]}]


# ------------------------------------------------------------------ keys and declarations


def test_a_name_with_its_prefix_becomes_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
        monkeypatch.delenv("GEMINI_API_KEY", raising=False)
        with pytest.raises(DefinitionError, match="set GEMINI_API_KEY or GOOGLE_API_KEY"):
            resolve(f"google:{NAME}")
        monkeypatch.setenv(variable, KEY)
        model = resolve(f"google:{NAME}")
        assert isinstance(model, GoogleModel)
        assert isinstance(model, Model)
        assert (model.name, model.provider) == (NAME, "google")
    with pytest.raises(DefinitionError, match="no header") as caught:
        GoogleModel(NAME, api_key="ключ").check()
    assert "ключ" not in str(caught.value)


def test_a_missing_package_is_told_by_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "overt.models.google")
    monkeypatch.setitem(sys.modules, "google.genai", None)
    with pytest.raises(DefinitionError, match=r"pip install 'overt\[google\]'"):
        resolve(f"google:{NAME}")


def test_contradictory_declarations_are_refused() -> None:
    given = Provider(HI).client()
    for options in ({"api_key": "k"}, {"base_url": "http://x"}):
        with pytest.raises(DefinitionError, match="belong to the client"):
            GoogleModel(NAME, client=given, **options)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="empty"):
        GoogleModel(" ")
    for name in ("../x", "a?b", "a&b", "a b"):
        with pytest.raises(DefinitionError, match="another address"):
            GoogleModel(name)
    with pytest.raises(DefinitionError, match="http"):
        GoogleModel(NAME, base_url="api.example.com")


# ------------------------------------------------------------------ loops and sockets


class _Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, str | None]]] = []
    peers: ClassVar[set[Any]] = set()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.seen.append((self.path, self.headers["x-goog-api-key"]))
        self.peers.add(self.client_address)
        status = 503 if "busy" in self.path else 200
        if status == 503:
            payload = json.dumps(refusal(503, "UNAVAILABLE", f"Busy for {KEY}")).encode()
        else:
            payload = event(HI) if "alt=sse" in self.path else json.dumps(HI).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    _Server.seen.clear()
    _Server.peers.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("backends", [("asyncio", "trio"), ("trio", "trio", "asyncio")])
def test_one_model_serves_loop_after_loop_over_real_sockets(
    url: str, backends: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    model, other = GoogleModel(NAME, base_url=url), GoogleModel("busy", base_url=url, api_key=KEY)

    async def main(key: str) -> None:
        monkeypatch.setenv("GEMINI_API_KEY", key)
        assert (await model.generate(ASK)).message.text == TEXT
        assert "".join([delta.text or "" async for delta in model.stream(ASK)]) == TEXT
        stream = model.stream(ASK)
        await anext(stream)
        await stream.aclose()
        with pytest.raises(ModelError) as caught:
            await other.generate(ASK)
        assert str(caught.value) == "InternalServerError 503: Busy for «redacted»"

    for number, backend in enumerate(backends):
        anyio.run(main, f"key-{number}", backend=backend)
    assert [key for _, key in _Server.seen if key != KEY] == [
        f"key-{number}" for number in range(len(backends)) for _ in range(3)
    ]
    assert {path for path, _ in _Server.seen} == {
        f"/v1/models/{NAME}:generateContent",
        f"/v1/models/{NAME}:streamGenerateContent?alt=sse",
        "/v1/models/busy:generateContent",
    }
    # With warnings as errors, a connection left open by a loop would fail here.
    gc.collect()


async def test_nothing_listens() -> None:
    with pytest.raises(ModelError) as caught:
        await GoogleModel(NAME, base_url="http://127.0.0.1:9", api_key=KEY).generate(ASK)
    assert (caught.value.type, caught.value.retryable) == ("APIConnectionError", True)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_dead_connection_is_given_up_and_no_redirect_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[str, Any]] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append((request.url.host, request.extensions["timeout"]))
        return httpx2.Response(307, headers={"location": "https://elsewhere.example"})

    made = httpx2.AsyncClient

    def connected(**options: Any) -> httpx2.AsyncClient:
        return made(transport=httpx2.MockTransport(handle), **options)

    monkeypatch.setattr("overt.models.google.httpx2.AsyncClient", connected)
    with pytest.raises(ModelError, match="APIStatusError 307"):
        await GoogleModel(NAME, api_key=KEY).generate(ASK)
    waits = {"connect": 5.0, "read": 600, "write": 600, "pool": 600}
    assert seen == [("generativelanguage.googleapis.com", waits)]


# ------------------------------------------------------------------ clients that are given


async def test_a_client_that_needs_asyncio_is_refused_on_trio(url: str, anyio_backend_name: str) -> None:
    given = Client(vertexai=False, api_key=KEY, http_options=HttpOptions(base_url=url))
    model = GoogleModel(NAME, client=given)
    if anyio_backend_name == "trio":
        with pytest.raises(DefinitionError, match="httpx_async_client"):
            await model.generate(ASK)
        with pytest.raises(DefinitionError, match="httpx_async_client"):
            await anext(model.stream(ASK))
        assert _Server.seen == []
    else:
        assert (await model.generate(ASK)).message.text == TEXT
        await given.aio.aclose()
    given.close()


class _Credentials(Credentials):
    """Credentials of a service account, which have to be fetched first."""

    def refresh(self, request: object) -> None:
        self.token = "tok-en-0123"


async def test_a_vertex_client_with_credentials() -> None:
    provider = Provider(HI)
    given = client(
        httpx2.MockTransport(provider.handle),
        vertexai=True,
        api_key=None,
        credentials=_Credentials(),  # type: ignore[no-untyped-call]
        project="zebra-7",
        location="europe-west4",
    )
    model = GoogleModel("gemini-3.8-flash", client=given)
    assert (await model.generate(ASK)).message.text == TEXT
    request = provider.requests[0]
    assert str(request.url) == (
        "https://europe-west4-aiplatform.googleapis.com/v1beta1/projects/zebra-7/locations/europe-west4/"
        "publishers/google/models/gemini-3.8-flash:generateContent"
    )
    assert request.headers["authorization"] == "Bearer tok-en-0123"
    provider.reply, provider.status = refusal(400, "INVALID_ARGUMENT", "zebra-7 and tok-en-0123 refused"), 400
    with pytest.raises(ModelError) as caught:
        await model.generate(ASK)
    assert str(caught.value) == "BadRequestError 400: «redacted» and «redacted» refused"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    ("name", "path"),
    [
        (NAME, f"publishers/google/models/{NAME}"),
        ("meta/llama", "publishers/meta/models/llama"),
        ("publishers/x/models/y", "publishers/x/models/y"),
    ],
)
async def test_a_vertex_client_with_a_key(name: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"):
        monkeypatch.delenv(variable, raising=False)
    provider = Provider(HI)
    await GoogleModel(name, client=provider.client(vertexai=True)).generate(ASK)
    assert provider.requests[0].url.path == f"/v1beta1/{path}:generateContent"
