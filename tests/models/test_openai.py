from __future__ import annotations

import gc
import json
import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import anyio
import anyio.lowlevel
import httpx2
import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI, DefaultAsyncHttpxClient
from tests.models.openai_fake import KEY, Provider, calls, reply

from overt.errors import DefinitionError, ModelError
from overt.message import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    ModelRequest,
    ModelSettings,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from overt.models import OpenAIModel

pytestmark = pytest.mark.anyio

USER = UserMessage(text="go")
TOOL = ToolSpec(name="look", description="Look.", input_schema={"type": "object", "properties": {}})


def ask(*messages: Message, **more: Any) -> ModelRequest:
    return ModelRequest(messages=messages or (USER,), **more)


# ------------------------------------------------------------------ what is sent


async def test_messages_tools_and_settings_are_sent() -> None:
    provider = Provider(reply(content="hi"))
    settings = ModelSettings(
        temperature=0.5,
        max_output_tokens=900,
        tool_choice="required",
        parallel_tool_calls=False,
        stop=("END",),
    )
    await provider.model().generate(
        ask(
            SystemMessage(text="Be brief."),
            UserMessage(
                text="Look",
                parts=(TextPart(text="here"), ImagePart(url="https://x/i.png"), ImagePart(data="QUI=")),
            ),
            AssistantMessage(text="", tool_calls=(ToolCall(id="t1", name="look", arguments={"a": "é"}),)),
            ToolMessage(text="seen", call_id="t1", name="look"),
            AssistantMessage(text="Seen."),
            UserMessage(text="file", parts=(FilePart(data="QUI=", name="a.pdf"),)),
            tools=(TOOL,),
            settings=settings,
            max_output_tokens=300,
            output_schema={"type": "object", "properties": {}},
        )
    )
    assert provider.bodies == [
        {
            "model": "gpt-5-mini",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Look"},
                        {"type": "text", "text": "here"},
                        {"type": "image_url", "image_url": {"url": "https://x/i.png"}},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUI="}},
                    ],
                },
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "t1",
                            "type": "function",
                            "function": {"name": "look", "arguments": '{"a":"é"}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "t1", "content": "seen"},
                {"role": "assistant", "content": "Seen."},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "file"},
                        {
                            "type": "file",
                            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QUI="},
                        },
                    ],
                },
            ],
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "look",
                        "description": "Look.",
                        "parameters": {"type": "object", "properties": {}},
                    },
                }
            ],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "max_completion_tokens": 300,
            "temperature": 0.5,
            "stop": ["END"],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "output", "schema": {"type": "object", "properties": {}}},
            },
        }
    ]


async def test_nothing_is_sent_that_nobody_asked_for() -> None:
    provider = Provider(reply(content="hi"))
    settings = ModelSettings(tool_choice="auto", parallel_tool_calls=True)
    await provider.model().generate(ask(settings=settings, output_schema={"type": "array"}))
    assert set(provider.bodies[0]) == {"model", "messages"}


async def test_the_models_settings_are_under_the_agents() -> None:
    provider = Provider(reply(content="hi"))
    base = ModelSettings(temperature=0.1, max_output_tokens=50, extra={"seed": 7})
    model = provider.model(settings=base, output_limit_field="max_tokens")
    await model.generate(ask(settings=ModelSettings(temperature=0.9), max_output_tokens=80))
    await model.generate(ask(settings=ModelSettings(extra={"temperature": 0, "x": [1]})))
    first, second = provider.bodies
    assert (first["temperature"], first["max_tokens"], first["seed"]) == (0.9, 50, 7)
    assert (second["temperature"], second["x"], "seed" in second) == (0, [1], False)


async def test_each_message_is_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Provider(reply(content="hi"))
    model = provider.model()
    converted: list[Message] = []
    convert = model._converter._converted._convert

    def counted(message: Message) -> object:
        converted.append(message)
        return convert(message)

    monkeypatch.setattr(model._converter._converted, "_convert", counted)
    messages: list[Message] = [USER]
    for turn in range(20):
        await model.generate(ask(*messages))
        messages.append(AssistantMessage(text=str(turn)))
    assert len(converted) == 20
    assert [len(body["messages"]) for body in provider.bodies] == list(range(1, 21))
    converted.clear()
    del messages
    gc.collect()
    assert len(model._converter._converted._messages) == 1


async def test_a_part_that_cannot_be_sent_is_refused_before_anything_is() -> None:
    provider = Provider(reply(content="hi"))
    for part in (FilePart(url="https://x/a.pdf"), ImagePart()):
        with pytest.raises(DefinitionError, match="Part"):
            await provider.model().generate(ask(UserMessage(text="x", parts=(part,))))
    assert provider.requests == []


# ------------------------------------------------------------------ what comes back


async def test_text_usage_and_model() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 121,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 12},
    }
    response = await Provider(reply(content="hi", usage=usage)).model().generate(ask())
    assert response.message == AssistantMessage(text="hi")
    assert (response.finish_reason, response.raw_finish_reason, response.model) == (
        "stop",
        "stop",
        "gpt-5-mini-2026",
    )
    assert response.usage == Usage(
        input_tokens=100, output_tokens=20, cached_tokens=64, reasoning_tokens=12, total_tokens=121
    )


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({}, None),
        ("much", None),
        ({"prompt_tokens": None, "completion_tokens": None, "total_tokens": None}, None),
        ({"prompt_tokens": -1, "completion_tokens": True, "total_tokens": "9"}, None),
        (
            {"prompt_tokens": 3, "completion_tokens": None, "prompt_tokens_details": None},
            Usage(input_tokens=3, total_tokens=3),
        ),
        ({"total_tokens": 9}, Usage(input_tokens=9, total_tokens=9)),
        (
            {"prompt_tokens": 4, "total_tokens": 9, "completion_tokens_details": {"reasoning_tokens": None}},
            Usage(input_tokens=4, output_tokens=5, total_tokens=9),
        ),
    ],
)
async def test_usage_that_is_not_whole(usage: object, expected: Usage | None) -> None:
    body = reply(content="hi", usage=usage)
    assert (await Provider(body).model().generate(ask())).usage == expected
    if usage is None:
        del body["usage"]
        assert (await Provider(body).model().generate(ask())).usage is None


@pytest.mark.parametrize(
    ("message", "finish"),
    [
        ({"content": "x", "finish_reason": "length"}, "length"),
        ({"content": "x", "finish_reason": "content_filter"}, "content_filter"),
        ({"content": "x", "finish_reason": "eos"}, "unknown"),
        ({"content": "x", "finish_reason": None}, "unknown"),
        ({"refusal": "No.", "finish_reason": "stop"}, "refusal"),
        ({"refusal": "No.", "finish_reason": "content_filter"}, "content_filter"),
        ({"tool_calls": calls(("a", "look", "{}")), "finish_reason": "stop"}, "tool_calls"),
        ({"tool_calls": calls(("a", "look", "{}")), "finish_reason": "tool_calls"}, "tool_calls"),
        ({"tool_calls": calls(("a", "look", "{}")), "finish_reason": "length"}, "length"),
    ],
)
async def test_finish_reasons(message: dict[str, Any], finish: str) -> None:
    response = await Provider(reply(**message)).model().generate(ask())
    assert (response.finish_reason, response.raw_finish_reason) == (finish, message["finish_reason"])


async def test_a_refusal_is_read_as_text() -> None:
    assert (await Provider(reply(refusal="No.")).model().generate(ask())).message.text == "No."


async def test_content_in_parts_is_joined() -> None:
    body = reply(content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "x"}])
    assert (await Provider(body).model().generate(ask())).message.text == "ab"


async def test_arguments_given_as_an_object_are_taken() -> None:
    body = reply(tool_calls=calls(("a", "look", {"n": 1}), ("b", "look", None), ("c", "look", [1])))
    response = await Provider(body).model().generate(ask())
    assert [item.arguments for item in response.message.tool_calls] == [{"n": 1}, {}, {}]
    assert response.invalid_arguments == {1: "", 2: "[1]"}


async def test_reasoning_of_a_reply_with_calls_goes_back_to_its_provider_only() -> None:
    call = calls(("a", "look", "{}"))
    call[0]["extra_content"] = {"google": {"thought_signature": "s"}}
    provider = Provider(reply(tool_calls=call, reasoning_content="so"))
    response = await provider.model().generate(ask())
    assert response.message.reasoning == "so"
    stored = AssistantMessage.model_validate_json(response.message.model_dump_json())
    await provider.model().generate(ask(USER, stored))
    sent = provider.bodies[1]["messages"][1]
    assert sent["reasoning_content"] == "so"
    assert sent["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "s"}}
    other = Provider(reply(content="hi"))
    await OpenAIModel("m", client=other.client(base_url="https://other.example/v1")).generate(
        ask(USER, stored)
    )
    sent = other.bodies[0]["messages"][1]
    assert "reasoning_content" not in sent
    assert "extra_content" not in sent["tool_calls"][0]


# ------------------------------------------------------------------ failures

ECHO = {
    "error": {
        "message": f"Key {KEY} of org-AbC123456 in account acct-zebra failed " + "x" * 3000,
        "type": KEY,
        "code": "acct-zebra",
        "account_id": "acct-zebra",
        "param": "org-AbC123456",
    }
}
SECRETS = (KEY, "org-AbC123456", "acct-zebra")


def everything(error: BaseException) -> str:
    """All that a log, a tracker or a debugger would find on an exception."""
    told = "".join(traceback.format_exception(error))
    seen: BaseException | None = error
    while seen is not None:
        told += repr(vars(seen)) + repr(seen.args)
        seen = seen.__cause__ or seen.__context__
    return told


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "BadRequestError", False),
        (404, "NotFoundError", False),
        (408, "APIStatusError", True),
        (409, "ConflictError", True),
        (422, "UnprocessableEntityError", False),
        (429, "RateLimitError", True),
        (500, "InternalServerError", True),
        (503, "InternalServerError", True),
    ],
)
async def test_a_refused_request(status: int, kind: str, retryable: bool) -> None:
    provider = Provider(ECHO, status=status)
    with pytest.raises(ModelError) as caught:
        await provider.model().generate(ask())
    error = caught.value
    assert (error.status_code, error.type, error.retryable) == (status, kind, retryable)
    assert len(provider.requests) == 1
    assert error.detail is not None
    assert len(error.detail) <= 2_000
    assert str(error).startswith(f"{kind} {status}: Key «redacted» of «redacted»")
    assert len(str(error).partition(": ")[2]) <= 200
    assert not [secret for secret in SECRETS if secret in everything(error)]


@pytest.mark.parametrize("status", [401, 403])
async def test_nothing_of_a_refusal_of_credentials_is_told(status: int) -> None:
    body = {"error": {"message": "the words of the body", "code": "words_too"}}
    with pytest.raises(ModelError) as caught:
        await Provider(body, status=status).model().generate(ask())
    assert "words" not in everything(caught.value)
    assert (caught.value.status_code, caught.value.detail, caught.value.retryable) == (status, None, False)


async def test_the_provider_may_say_whether_to_retry() -> None:
    for status, headers, body, retryable in (
        (400, {"x-should-retry": "true"}, {}, True),
        (500, {"x-should-retry": "false"}, {}, False),
        (429, {}, {"error": {"code": "insufficient_quota", "message": "pay"}}, False),
    ):
        with pytest.raises(ModelError) as caught:
            await Provider(body, status=status, headers=headers).model().generate(ask())
        assert caught.value.retryable is retryable


async def test_a_body_that_is_no_json() -> None:
    with pytest.raises(ModelError, match="InternalServerError 502: <h1>Bad") as caught:
        await Provider(b"<h1>Bad gateway</h1>", status=502).model().generate(ask())
    assert caught.value.detail == "<h1>Bad gateway</h1>"
    with pytest.raises(ModelError) as caught:
        await Provider(b"", status=500).model().generate(ask())
    assert (str(caught.value), caught.value.detail) == ("InternalServerError 500", None)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (httpx2.ConnectError(f"refused for {KEY}"), "APIConnectionError"),
        (httpx2.ReadTimeout("slow"), "APITimeoutError"),
        (httpx2.RemoteProtocolError("gone"), "APIConnectionError"),
    ],
)
async def test_no_answer_at_all_can_be_tried_again(failure: Exception, kind: str) -> None:
    provider = Provider(failure)
    with pytest.raises(ModelError) as caught:
        await provider.model().generate(ask())
    assert (caught.value.type, caught.value.retryable, caught.value.status_code) == (kind, True, None)
    assert len(provider.requests) == 1
    assert KEY not in everything(caught.value)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"choices": []}, "has no choices"),
        ({"choices": None}, "has no choices"),
        ({}, "has no choices"),
        ({"choices": [{"finish_reason": "stop"}]}, "without a message"),
        ([1], "is not a JSON object"),
        (b"<html>", "is not a JSON object"),
        (b"", "is not a JSON object"),
        (b"[" * 100_000, "is not a JSON object"),
    ],
)
async def test_a_reply_that_is_none(body: object, told: str) -> None:
    with pytest.raises(ModelError, match=told) as caught:
        await Provider(body).model().generate(ask())
    assert (caught.value.type, caught.value.retryable) == ("InvalidReply", False)


async def test_an_error_within_a_200() -> None:
    with pytest.raises(ModelError, match="ErrorReply 429: Key «redacted»") as caught:
        await Provider({"error": {**ECHO["error"], "code": 429}}).model().generate(ask())
    assert (caught.value.retryable, caught.value.status_code) == (True, 429)
    assert not [secret for secret in SECRETS if secret in everything(caught.value)]
    with pytest.raises(ModelError, match="ErrorReply: broken"):
        await Provider({"error": {"message": "broken"}, "choices": []}).model().generate(ask())
    with pytest.raises(ModelError, match=r"ErrorReply: .*overload") as caught:
        await Provider({"choices": [{"error": "overload"}]}).model().generate(ask())
    refusing = Provider({"error": {"message": "the words", "code": "401"}}).model()
    with pytest.raises(ModelError) as caught:
        await refusing.generate(ask())
    assert "words" not in everything(caught.value)


async def test_cancellation_goes_through() -> None:
    started = anyio.Event()

    async def hang(_: httpx2.Request) -> httpx2.Response:
        started.set()
        await anyio.sleep_forever()
        raise AssertionError

    http = DefaultAsyncHttpxClient(transport=httpx2.MockTransport(hang))
    model = OpenAIModel("m", client=AsyncOpenAI(api_key=KEY, http_client=http))
    async with anyio.create_task_group() as group:
        group.start_soon(model.generate, ask())
        await started.wait()
        group.cancel_scope.cancel()
    assert group.cancel_scope.cancelled_caught


# ------------------------------------------------------------------ keys, clients, loops


async def test_a_missing_key_is_told_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = OpenAIModel("m", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(DefinitionError, match="OPENAI_API_KEY"):
        await model.generate(ask())
    for wrong in ("k\n", "k y", "ключ"):
        with pytest.raises(DefinitionError, match="no header") as caught:
            OpenAIModel("m", api_key=wrong).check()
        assert wrong not in str(caught.value)


def test_contradictory_declarations_are_refused() -> None:
    client = AsyncOpenAI(api_key=KEY)
    for options in ({"api_key": "k"}, {"base_url": "http://x"}):
        with pytest.raises(DefinitionError, match="belong to the client"):
            OpenAIModel("m", client=client, **options)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="empty"):
        OpenAIModel(" ")
    with pytest.raises(DefinitionError, match="http"):
        OpenAIModel("m", base_url="api.example.com/v1")


async def test_a_clients_own_organisation_and_headers_are_redacted() -> None:
    provider = Provider({"error": {"message": "blue-team and tok-en and zebra refused"}}, status=400)
    client = provider.client(
        organization="blue-team",
        project="zebra",
        default_headers={"Authorization": "Custom tok-en"},
        max_retries=5,
    )
    with pytest.raises(ModelError) as caught:
        await OpenAIModel("m", client=client).generate(ask())
    assert caught.value.detail == '{"error":{"message":"«redacted» and «redacted» and «redacted» refused"}}'
    assert len(provider.requests) == 1


async def test_an_azure_client_finds_its_deployment() -> None:
    provider = Provider(reply(content="hi"))
    http = DefaultAsyncHttpxClient(transport=httpx2.MockTransport(provider.handle))
    client = AsyncAzureOpenAI(
        api_key=KEY, api_version="2024-10-21", azure_endpoint="https://x.openai.azure.com", http_client=http
    )
    await OpenAIModel("gpt-5-mini", client=client).generate(ask())
    assert provider.requests[0].url.path == "/openai/deployments/gpt-5-mini/chat/completions"


class _Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, str | None, dict[str, Any]]]] = []
    peers: ClassVar[set[Any]] = set()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.seen.append((self.path, self.headers["authorization"], body))
        self.peers.add(self.client_address)
        status = 200 if body["messages"][-1]["content"] != "fail" else 503
        payload = json.dumps(reply(content="pong") if status == 200 else ECHO).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize("backends", [("asyncio", "trio", "asyncio"), ("trio", "trio")])
def test_one_model_serves_loop_after_loop_over_real_sockets(
    backends: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    _Server.seen.clear()
    _Server.peers.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        model, other = OpenAIModel("m", base_url=url), OpenAIModel("n", base_url=url, api_key=KEY)

        async def main(key: str) -> None:
            monkeypatch.setenv("OPENAI_API_KEY", key)
            assert (await model.generate(ask())).message.text == "pong"
            assert (await other.generate(ask())).message.text == "pong"
            with pytest.raises(ModelError) as caught:
                await other.generate(ask(UserMessage(text="fail")))
            assert caught.value.retryable
            assert not [secret for secret in SECRETS if secret in everything(caught.value)]

        for number, backend in enumerate(backends):
            anyio.run(main, f"key-{number}", backend=backend)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert {path for path, _, _ in _Server.seen} == {"/v1/chat/completions"}
    assert [key for _, key, body in _Server.seen if body["model"] == "m"] == [
        f"Bearer key-{number}" for number in range(len(backends))
    ]
    # One connection a loop, shared by both models.
    assert len(_Server.peers) == len(backends)
    # With warnings as errors, a connection left open by a loop would fail here.
    gc.collect()
