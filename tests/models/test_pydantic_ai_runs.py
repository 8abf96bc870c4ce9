"""The bridge to pydantic-ai's models on both event loops: streams, connections, runs."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import anyio
import anyio.lowlevel
import httpx2
import pytest
from google.genai import Client as GoogleClient
from google.genai.types import HttpOptions
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, TextPart, ThinkingPart, ToolCallPart, ToolReturnPart
from pydantic_ai.messages import ModelResponse as Reply
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage
from tests.models.openai_fake import KEY, calls, reply
from tests.models.pydantic_ai_fake import Provider, chunks, everything, streamed
from tests.stream_kit import all_of
from tests.suspend_kit import first, yes

from overt import Agent, ResumePolicy, RetryPolicy, Runtime, require_approval, tool
from overt.errors import DefinitionError, ModelError
from overt.events import RequestOpened, TextDelta
from overt.message import ModelRequest, StreamingModel, ToolCall, ToolMessage, ToolSpec, Usage, UserMessage
from overt.models import PydanticAIModel, resolve
from overt.models.pydantic_ai import _entered
from overt.prices import GenAIPrices, PricedCall
from overt.stores import MemoryStore

pytestmark = pytest.mark.anyio
# OpenAI's client leaves its generators to the event loop's collector, as soon as it has read the end of a stream.
left_by_openai = pytest.mark.filterwarnings("ignore:Async generator 'openai:ResourceWarning")
left_by_httpx = pytest.mark.filterwarnings("ignore:Async generator 'httpx2:ResourceWarning")

TOOL = ToolSpec(name="look", description="Look.", input_schema={"type": "object", "properties": {}})


def ask(*tools: ToolSpec) -> ModelRequest:
    return ModelRequest(messages=(UserMessage(text="go"),), tools=tools)


@left_by_openai
@left_by_httpx
async def test_a_streamed_reply_is_the_reply() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    made = calls(("a", "look", '{"n": [1, 2.50, "é"]}'), ("b", "look", "{}"))
    whole = Provider(
        reply(content="Hi 😀", reasoning_content="so", tool_calls=made, finish_reason="tool_calls")
    )
    deltas: list[dict[str, Any]] = [
        {"reasoning_content": "s"},
        {"reasoning_content": "o"},
        {"content": "H"},
        {"content": "i 😀"},
        {
            "tool_calls": [
                {"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": 1, "id": "b", "type": "function", "function": {"name": "look"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"n": [1, 2.'}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '50, "é"]}'}}]},
    ]
    pieces = Provider(chunks(*deltas, finish="tool_calls", usage=usage))
    request = ask(TOOL)
    heard = [delta async for delta in pieces.chat().stream(request)]
    assert [delta.text for delta in heard if delta.text] == ["H", "i 😀"]
    assert [delta.reasoning for delta in heard if delta.reasoning] == ["s", "o"]
    response = await streamed(pieces.chat(), request)
    assert response == await whole.chat().generate(request)
    assert response.usage == Usage(input_tokens=10, output_tokens=5, total_tokens=15)


async def test_leaving_a_stream_early_closes_the_connection() -> None:
    closed = anyio.Event()

    class Body(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for item in chunks({"content": "a"}, {"content": "b"}, finish=None):
                yield f"data: {json.dumps(item)}\n\n".encode()
            await anyio.sleep_forever()

        async def aclose(self) -> None:
            closed.set()

    def handle(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, stream=Body(), headers={"content-type": "text/event-stream"})

    http = DefaultAsyncHttpxClient(transport=httpx2.MockTransport(handle))
    client = AsyncOpenAI(api_key=KEY, http_client=http)
    model = PydanticAIModel(OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client)))
    stream = model.stream(ask())
    assert (await anext(stream)).text == "a"
    await stream.aclose()
    assert closed.is_set()

    with anyio.CancelScope() as scope:
        async for delta in model.stream(ask()):
            if delta.text == "b":
                scope.cancel()
    assert scope.cancelled_caught


async def test_cancellation_goes_through() -> None:
    started = anyio.Event()

    async def hang(_: list[ModelMessage], __: AgentInfo) -> Reply:
        started.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with anyio.create_task_group() as group:
        group.start_soon(PydanticAIModel(FunctionModel(hang)).generate, ask())
        await started.wait()
        group.cancel_scope.cancel()
    assert group.cancel_scope.cancelled_caught


async def test_googles_replies_and_their_signatures() -> None:
    thought = {"text": "hm", "thought": True}
    call = {"functionCall": {"name": "look", "args": {"n": 1}, "id": "f1"}, "thoughtSignature": "c2ln"}
    body: dict[str, Any] = {
        "candidates": [{"content": {"role": "model", "parts": [thought, call]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 3},
        "modelVersion": "gemini-3",
    }
    sent: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        if "stream" not in request.url.path:
            return httpx2.Response(200, json=body)
        return httpx2.Response(
            200,
            content=f"data: {json.dumps(body)}\n\n".encode(),
            headers={"content-type": "text/event-stream"},
        )

    options = HttpOptions(httpx_async_client=httpx2.AsyncClient(transport=httpx2.MockTransport(handle)))
    client = GoogleClient(api_key=KEY, http_options=options)
    model = PydanticAIModel(GoogleModel("gemini-3-pro", provider=GoogleProvider(client=client)))
    whole = await model.generate(ask(TOOL))
    assert (whole.message.reasoning, whole.finish_reason, whole.raw_finish_reason) == (
        "hm",
        "tool_calls",
        "STOP",
    )
    assert whole.usage == Usage(input_tokens=10, output_tokens=8, reasoning_tokens=3, total_tokens=18)
    assert whole.message.tool_calls == (ToolCall(id="f1", name="look", arguments={"n": 1}),)
    assert await streamed(model, ask(TOOL)) == whole
    result = ToolMessage(text="seen", call_id="f1", name="look")
    await model.generate(
        ModelRequest(messages=(UserMessage(text="go"), whole.message, result), tools=(TOOL,))
    )
    assert json.loads(sent[-1].content)["contents"][1]["parts"] == [thought, call]
    body.clear()
    body["error"] = {"code": 500, "message": "broke"}
    with pytest.raises(ModelError, match="neither content") as caught:
        await model.generate(ask(TOOL))
    assert (caught.value.type, caught.value.retryable) == ("InvalidReply", False)


# ------------------------------------------------------------------ connections and loops


class _Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    peers: ClassVar[set[Any]] = set()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.peers.add(self.client_address)
        status = 200 if body["messages"][-1]["content"] != "fail" else 503
        payload = json.dumps(reply(content="pong") if status == 200 else {"error": {"message": KEY}}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    _Server.peers.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("backends", [("asyncio", "trio", "asyncio"), ("trio", "trio")])
@pytest.mark.usefixtures("served")
def test_one_name_serves_loop_after_loop_over_real_sockets(backends: tuple[str, ...]) -> None:
    model, other = PydanticAIModel("openai-chat:m"), PydanticAIModel("openai-chat:m")
    entered: list[Any] = []

    async def main() -> None:
        for each in (model, other, model):
            assert (await each.generate(ask())).message.text == "pong"
        failing = ModelRequest(messages=(UserMessage(text="fail"),))
        with pytest.raises(ModelError) as caught:
            await model.generate(failing)
        assert (caught.value.status_code, caught.value.retryable) == (503, True)
        assert KEY not in everything(caught.value)
        entered.append(await _entered("openai-chat:m"))

    for backend in backends:
        anyio.run(main, backend=backend)
    # One connection a loop, shared by both models, and closed with it.
    assert len(_Server.peers) == len(backends)
    assert [each.provider.client.is_closed() for each in entered] == [True] * len(backends)
    assert len({id(each) for each in entered}) == len(backends)


@pytest.mark.usefixtures("served")
def test_a_model_that_is_given_serves_loop_after_loop() -> None:
    library = OpenAIChatModel("m", provider=OpenAIProvider())
    model = PydanticAIModel(library)

    async def main() -> None:
        for _ in range(2):
            assert (await model.generate(ask())).message.text == "pong"
        assert not library.client.is_closed()

    for _ in range(3):
        anyio.run(main)
        assert library.client.is_closed()
    assert len(_Server.peers) == 3


async def test_many_at_once_enter_a_model_once() -> None:
    entered: list[object] = []

    class Counted(FunctionModel):
        async def __aenter__(self) -> Counted:
            await anyio.lowlevel.checkpoint()
            entered.append(self)
            return self

    async def answer(_: list[ModelMessage], __: AgentInfo) -> Reply:
        return Reply([TextPart("hi")])

    model = PydanticAIModel(Counted(answer))
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(model.generate, ask())
    assert len(entered) == 1


# ------------------------------------------------------------------ declaring


def test_a_name_becomes_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model = resolve("pydantic-ai:openai-chat:ft:gpt-5-mini:acme")
    assert isinstance(model, PydanticAIModel)
    assert isinstance(model, StreamingModel)
    assert (model.name, model.provider) == ("ft:gpt-5-mini:acme", "openai")


def test_a_model_has_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    model = PydanticAIModel("openai-responses:gpt-5-mini")
    usage = Usage(input_tokens=1_000_000)
    call = PricedCall(provider=model.provider, model=model.name, usage=usage, at=datetime.now(UTC))
    assert GenAIPrices().price(call)


def test_what_is_missing_is_told_when_the_model_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(DefinitionError, match=r"openai:x.*Set the `OPENAI_API_KEY`") as caught:
        resolve("pydantic-ai:openai:x")
    assert "test model" not in str(caught.value)
    assert caught.value.__context__ is None
    monkeypatch.setitem(sys.modules, "groq", None)
    with pytest.raises(DefinitionError, match=r"pip install \"pydantic-ai-slim\[groq\]"):
        resolve("pydantic-ai:groq:llama")
    with pytest.raises(DefinitionError, match="Unknown model: nowhere:x"):
        resolve("pydantic-ai:nowhere:x")
    with pytest.raises(DefinitionError, match="empty"):
        PydanticAIModel(" ")


def test_a_missing_library_is_told_by_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "overt.models.pydantic_ai", raising=False)
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(DefinitionError, match=r"pip install 'overt\[pydantic-ai\]'"):
        resolve("pydantic-ai:groq:llama")


def test_attempts_nobody_would_count_are_refused() -> None:
    inner = TestModel()
    for model in (FallbackModel(inner, inner), WrapperModel(FallbackModel(inner, inner))):
        with pytest.raises(DefinitionError, match="FallbackModel"):
            PydanticAIModel(model)
    assert PydanticAIModel(WrapperModel(inner)).name == PydanticAIModel("test").name == "test"


# ------------------------------------------------------------------ runs


class Shop:
    """Scripted through the library: asks for the refund, then says what came of it."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.asked: list[list[ModelMessage]] = []

    def agent(self) -> Agent[None, str]:
        @tool(on_replay="reuse")
        async def refund(cents: int) -> str:
            """Give money back."""
            self.paid.append(cents)
            return f"paid {cents}"

        async def answer(messages: list[ModelMessage], info: AgentInfo) -> Reply:
            self.asked.append(messages)
            last = messages[-1].parts[-1]
            usage = RequestUsage(input_tokens=10, output_tokens=2)
            if isinstance(last, ToolReturnPart):
                return Reply([TextPart(f"so: {last.content}")], usage=usage)
            (offered,) = info.function_tools
            return Reply(
                [ThinkingPart("hm"), ToolCallPart(offered.name, {"cents": 5}, "their id")], usage=usage
            )

        async def said(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
            for part in (await answer(messages, info)).parts:
                if isinstance(part, TextPart):
                    for letter in part.content:
                        yield letter
                elif isinstance(part, ToolCallPart):
                    yield {0: DeltaToolCall(part.tool_name, '{"cents": 5}', tool_call_id="their id")}

        model = PydanticAIModel(FunctionModel(answer, stream_function=said, model_name="shop"))
        return Agent(
            "w", does="refunds", tools=[refund], model=model, guardrails=[require_approval("refund")]
        )


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_a_parked_approval_goes_on_in_another_runtime(policy: ResumePolicy) -> None:
    shop, store = Shop(), MemoryStore()
    result, runtime = await shop.agent().run("refund", store=store, resume_policy=policy)
    assert result.status == "pending"
    assert first(result).data["call"] == {"tool": "refund", "arguments": {"cents": 5}}
    assert (shop.paid, result.total_tokens) == ([], 12)
    again = await Runtime.open(shop.agent(), runtime.id, store=store)
    done = await again.resume(yes(result))
    assert (done.status, done.text, shop.paid) == ("done", "so: paid 5", [5])
    turns = 3 if policy is ResumePolicy.REWIND else 2
    assert (len(shop.asked), done.total_tokens, done.usage.model_calls) == (turns, 12 * turns, turns)


async def test_a_run_that_is_read_along_is_the_same_run() -> None:
    shop = Shop()
    stream = shop.agent().stream("refund")
    events = await all_of(stream)
    (opened,) = (event.request for event in events if isinstance(event, RequestOpened))
    answered = await all_of(stream.runtime.stream(answer=yes(opened), policy=ResumePolicy.CONTINUE))
    said = [event.text for event in answered if isinstance(event, TextDelta)]
    assert "".join(said) == "so: paid 5"
    assert len(said) > 1
    done = stream.runtime.result()
    assert (done.status, done.text, shop.paid) == ("done", "so: paid 5", [5])


async def test_a_run_over_a_real_wire_with_typed_output() -> None:
    class Answer(BaseModel):
        n: int

    provider = Provider([])
    replies = iter(
        [
            reply(tool_calls=calls(("x", "look", "{}"), ("y", "look", "{"))),
            reply(content='{"n": 3}'),
        ]
    )

    def handle(request: httpx2.Request) -> httpx2.Response:
        provider.requests.append(request)
        return httpx2.Response(200, json=next(replies))

    http = DefaultAsyncHttpxClient(transport=httpx2.MockTransport(handle))
    client = AsyncOpenAI(api_key=KEY, http_client=http)
    library = OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client))

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    agent = Agent("w", does="looks", tools=[look], output_type=Answer, model=PydanticAIModel(library))
    result, _ = await agent.run("go")
    assert result.unwrap() == Answer(n=3)
    said = provider.bodies[1]["messages"]
    assert [m["role"] for m in said] == ["user", "assistant", "tool", "tool"]
    assert said[2]["content"] == "seen"
    assert "not valid JSON" in said[3]["content"]
    assert provider.bodies[0]["response_format"]["json_schema"]["name"] == "output"


async def test_every_attempt_is_the_runtimes() -> None:
    statuses = iter([503, 429, 200])
    sent: list[httpx2.Request] = []

    def handle(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(next(statuses), json=reply(content="at last"))

    http = DefaultAsyncHttpxClient(transport=httpx2.MockTransport(handle))
    client = AsyncOpenAI(api_key=KEY, http_client=http)
    library = OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client))
    agent = Agent("w", does="waits", model=PydanticAIModel(library))
    result, _ = await agent.run("go", retry=RetryPolicy(base=0))
    assert (result.text, result.usage.model_calls, len(sent)) == ("at last", 3, 3)


async def test_the_librarys_own_test_model_runs() -> None:
    seen: list[str] = []

    @tool
    async def look(what: str) -> str:
        """Look."""
        seen.append(what)
        return "seen"

    model = PydanticAIModel(TestModel(custom_output_text="all seen"))
    result, _ = await Agent("w", does="looks", tools=[look], model=model).run("go")
    assert (result.status, result.text, seen) == ("done", "all seen", ["a"])
    assert result.usage.unreported_calls == 0
