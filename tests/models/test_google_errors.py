"""What the Gemini adapter makes of failures; whatever it is, no credential is in it, and it was asked once."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from google.auth.exceptions import RefreshError, TransportError
from google.genai.types import HttpRetryOptions
from tests.models.google_fake import KEY, NAME, Provider, client, refusal, reply, streamed, usage

from overt.errors import ModelError
from overt.message import ModelRequest, ToolSpec, Usage, UserMessage
from overt.models import GoogleModel
from overt.models._google_wire import function_name
from overt.models.google import api_of, failure_of

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

ASK = ModelRequest(messages=(UserMessage(text="go"),))
ECHO = {
    "error": {
        "code": 400,
        "status": "INVALID_ARGUMENT",
        "message": f"Key {KEY} of projects/987654 with Bearer ya29.a0Abcdef123 failed " + "x" * 3000,
        "details": [
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "CONSUMER_INVALID",
                "domain": "googleapis.com",
                "metadata": {"consumer": "projects/987654", "apiKey": KEY, "account_id": "acct-zebra"},
            },
            {
                "detail": "acct-zebra",
                "token": "tok-opaque",
                "was": "ya29.c.Zyxwvut987",
                "links": f"https://x/?key={KEY}&project=987654",
            },
            {"resourceName": "organizations/555777", "description": "service@proj.iam.gserviceaccount.com"},
        ],
    }
}
SECRETS = (
    KEY,
    "ya29.c.Zyxwvut987",
    "987654",
    "ya29.a0Abcdef123",
    "acct-zebra",
    "tok-opaque",
    "555777",
    "gserviceaccount",
)


def everything(error: BaseException) -> str:
    """All that a log, a tracker or a debugger would find on an exception."""
    told = "".join(traceback.format_exception(error))
    seen: BaseException | None = error
    while seen is not None:
        told += repr(vars(seen)) + repr(seen.args)
        seen = seen.__cause__ or seen.__context__
    return told


async def drain(model: GoogleModel, request: ModelRequest = ASK) -> None:
    async for _ in model.stream(request):
        pass


Way = Callable[[GoogleModel], Any]
WAYS = pytest.mark.parametrize("way", [lambda model: model.generate(ASK), drain], ids=["whole", "streamed"])


@WAYS
@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "BadRequestError", False),
        (404, "NotFoundError", False),
        (408, "APITimeoutError", True),
        (409, "ConflictError", True),
        (413, "RequestTooLargeError", False),
        (429, "RateLimitError", True),
        (499, "APIStatusError", False),
        (500, "InternalServerError", True),
        (503, "InternalServerError", True),
        (504, "DeadlineExceededError", True),
    ],
)
async def test_a_refused_request(way: Way, status: int, kind: str, retryable: bool) -> None:
    provider = Provider(ECHO, status=status, headers={"x-goog-request-id": "req-1"})
    with pytest.raises(ModelError) as caught:
        await way(provider.model())
    error = caught.value
    assert (error.status_code, error.type, error.retryable) == (status, kind, retryable)
    assert (error.request_id, error.retry_after) == ("req-1", None)
    assert len(provider.requests) == 1
    assert error.detail is not None
    assert len(error.detail) <= 2_000
    assert str(error).startswith(f"{kind} {status}: Key «redacted» of projects/«redacted» with Bearer")
    assert len(str(error).partition(": ")[2]) <= 200
    assert (error.__cause__, error.__context__) == (None, None)
    assert not [secret for secret in SECRETS if secret in everything(error)]


@WAYS
@pytest.mark.parametrize("status", [401, 403])
async def test_nothing_of_a_refusal_of_credentials_is_told(way: Way, status: int) -> None:
    body = refusal(status, "PERMISSION_DENIED", "the words of the body")
    with pytest.raises(ModelError) as caught:
        await way(Provider(body, status=status).model())
    assert "words" not in everything(caught.value)
    assert (caught.value.status_code, caught.value.detail, caught.value.retryable) == (status, None, False)


async def test_a_wrong_key_is_told_apart_from_a_wrong_request() -> None:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    body = refusal(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", info)
    with pytest.raises(ModelError, match="AuthenticationError 400: API key not valid") as caught:
        await Provider(body, status=400).model().generate(ASK)
    assert not caught.value.retryable


async def test_a_wait_that_google_asks_for() -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "5.5s"}
    body = refusal(429, "RESOURCE_EXHAUSTED", "Quota exceeded.", {"@type": "QuotaFailure"}, info)
    for answer in (body, [body]):
        with pytest.raises(ModelError) as caught:
            await Provider(json.dumps(answer).encode(), status=429).model().generate(ASK)
        assert (caught.value.retry_after, caught.value.retryable) == (5.5, True)
        assert str(caught.value) == "RateLimitError 429: Quota exceeded."
    with pytest.raises(ModelError) as caught:
        await Provider(body, status=429, headers={"Retry-After": "7"}).model().generate(ASK)
    assert caught.value.retry_after == 7


async def test_a_refused_tool_is_named() -> None:
    at = "GenerateContentRequest.tools[0].function_declarations[1].parameters.properties[at].type"
    tools = tuple(ToolSpec(name=name, description="", input_schema={}) for name in ("look", "go.far"))
    request = ModelRequest(messages=ASK.messages, tools=tools)
    for told in (f"* {at}: must be specified", f"Function {function_name('go.far')!r} at {at} is wrong"):
        provider = Provider(refusal(400, "INVALID_ARGUMENT", told), status=400)
        with pytest.raises(ModelError) as caught:
            await provider.model().generate(request)
        assert str(caught.value) == f"BadRequestError 400: tool 'go.far': {told}"


@WAYS
async def test_a_body_that_is_no_json(way: Way) -> None:
    page = b"<html><head><title>404 Not Found</title></head></html>"
    with pytest.raises(ModelError, match="NotFoundError 404: a web page titled '404 Not Found'") as caught:
        await way(Provider(page, status=404).model())
    assert caught.value.type == "NotFoundError"
    with pytest.raises(ModelError) as caught:
        await way(Provider(b"", status=500).model())
    assert (str(caught.value), caught.value.detail) == ("InternalServerError 500", None)
    with pytest.raises(ModelError, match="APIStatusError 302"):
        await way(Provider(b"", status=302, headers={"location": "https://elsewhere"}).model())


@WAYS
@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (httpx2.ConnectError(f"refused for {KEY}"), "APIConnectionError"),
        (httpx2.ReadTimeout("slow"), "APITimeoutError"),
        (httpx2.RemoteProtocolError("gone"), "APIConnectionError"),
        (ConnectionResetError("reset"), "APIConnectionError"),
        (TimeoutError(), "APITimeoutError"),
    ],
)
async def test_no_answer_at_all_can_be_tried_again(way: Way, failure: Exception, kind: str) -> None:
    provider = Provider(failure)
    with pytest.raises(ModelError) as caught:
        await way(provider.model())
    error = caught.value
    assert (error.type, error.retryable, error.status_code) == (kind, True, None)
    assert len(provider.requests) == 1
    assert KEY not in everything(error)
    assert (error.__cause__, error.__context__) == (None, None)


@WAYS
@pytest.mark.parametrize("answer", [500, 429, httpx2.ConnectError("refused")])
async def test_a_clients_own_retries_are_off(way: Way, answer: Any) -> None:
    provider = Provider(answer, status=answer) if isinstance(answer, int) else Provider(answer)
    retries = HttpRetryOptions(attempts=5, initial_delay=0.001, jitter=0)
    given = client(httpx2.MockTransport(provider.handle), http_options={"retry_options": retries})
    with pytest.raises(ModelError):
        await way(GoogleModel(NAME, client=given))
    assert len(provider.requests) == 1


@WAYS
async def test_an_error_of_the_adapters_user_is_left_as_it_is(way: Way) -> None:
    with pytest.raises(ZeroDivisionError):
        await way(Provider(ZeroDivisionError()).model())


def test_failures_of_other_packages(anyio_backend: str) -> None:
    class ServerDisconnectedError(type("ClientError", (Exception,), {"__module__": "aiohttp.client"})):  # type: ignore[misc]
        pass

    api = api_of(Provider(None).client())
    for error, kind, retryable in (
        (ServerDisconnectedError("gone"), "APIConnectionError", True),
        (TransportError("token service: the words"), "APIConnectionError", True),  # type: ignore[no-untyped-call]
        (RefreshError("invalid_grant: the words"), "AuthenticationError", False),  # type: ignore[no-untyped-call]
        (ValueError(f"no {KEY}"), "ValueError", False),
    ):
        failure = failure_of(error, api, ASK)
        assert failure is not None
        assert (failure.type, failure.retryable) == (kind, retryable)
        assert not [word for word in ("words", KEY) if word in everything(failure)]
    assert failure_of(RuntimeError("ours"), api, ASK) is None


# ------------------------------------------------------------------ streams that break

BEGUN = reply({"text": "a"}, finish=None, used=usage(100, 3))
SPENT = Usage(input_tokens=100, output_tokens=3, total_tokens=103)


@pytest.mark.parametrize(
    ("rest", "kind", "told"),
    [
        ([httpx2.ReadError(f"reset {KEY}")], "APIConnectionError", "reset «redacted»"),
        ([httpx2.ReadTimeout("slow")], "APITimeoutError", "slow"),
        ([b'data: {"candidates": [{"conte'], "InvalidReply", "an event that is not a JSON object"),
        ([b'data: {"candidates": [{"conte\n\n'], "InvalidReply", "an event that is not a JSON object"),
        ([b"data: [1]\n\n"], "InvalidReply", "an event that is not a JSON object"),
    ],
)
async def test_a_stream_that_breaks(rest: list[Any], kind: str, told: str) -> None:
    provider = Provider([*streamed(BEGUN), *rest])
    seen = ""

    async def read() -> None:
        nonlocal seen
        async for delta in provider.model().stream(ASK):
            seen += delta.text or ""

    with pytest.raises(ModelError, match=told) as caught:
        await read()
    error = caught.value
    assert (error.type, error.retryable, error.usage) == (kind, True, SPENT)
    assert seen == "a"
    assert KEY not in everything(error)
    assert (error.__cause__, error.__context__) == (None, None)
    assert provider.streams[0].closed


async def test_a_stream_that_ends_early_gives_no_reason() -> None:
    for chunks in ([], streamed(BEGUN)):
        deltas = [delta async for delta in Provider(chunks).model().stream(ASK)]
        assert [delta.finish_reason for delta in deltas if delta.finish_reason] == []
