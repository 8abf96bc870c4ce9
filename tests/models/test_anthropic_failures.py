"""What becomes of Anthropic's failures."""

from __future__ import annotations

import traceback
from typing import Any

import httpx2
import pytest
from anthropic import AnthropicError
from tests.models.anthropic_fake import CASES, KEY, Provider, error, event, events_of, reply, text

from overt.errors import ModelError
from overt.message import ModelRequest, ToolSpec, Usage, UserMessage

pytestmark = pytest.mark.anyio
one_loop = pytest.mark.parametrize("anyio_backend", ["asyncio"])

ASK = ModelRequest(messages=(UserMessage(text="go"),))
ORGANISATION = "5f0c1d3e-1111-4222-8333-444455556666"
ECHO = {
    "type": "error",
    "error": {
        "type": KEY,
        "message": f"Key {KEY} of org-AbC123456 in account acct-zebra failed " + "x" * 3000,
        "details": {"error_code": "acct-zebra", "organization_id": ORGANISATION},
        "account_id": "acct-zebra",
    },
    "request_id": f"req_{KEY}",
    "echo": f"Bearer {KEY}",
    "where": f"within {ORGANISATION}",
}
SECRETS = (KEY, "org-AbC123456", "acct-zebra", ORGANISATION)


def everything(error: BaseException) -> str:
    """All that a log, a tracker or a debugger would find on an exception."""
    told = "".join(traceback.format_exception(error))
    seen: BaseException | None = error
    while seen is not None:
        told += repr(vars(seen)) + repr(seen.args)
        seen = seen.__cause__ or seen.__context__
    return told


async def failure(
    provider: Provider, *, streamed: bool, request: ModelRequest = ASK, **options: Any
) -> ModelError:
    """The error of one request, of which there has to be no more than one, and nothing of the client's."""
    model = provider.model(**options)

    async def get() -> None:
        if not streamed:
            await model.generate(request)
            return
        async for _ in model.stream(request):
            pass

    with pytest.raises(ModelError) as caught:
        await get()
    assert len(provider.requests) == 1
    found = caught.value
    assert found.__cause__ is None
    assert found.__context__ is None
    assert [secret for secret in SECRETS if secret in everything(found)] == []
    return found


both = pytest.mark.parametrize("streamed", [False, True])


@one_loop
@both
@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "BadRequestError", False),
        (402, "APIStatusError", False),
        (404, "NotFoundError", False),
        (409, "ConflictError", True),
        (413, "RequestTooLargeError", False),
        (422, "UnprocessableEntityError", False),
        (429, "RateLimitError", True),
        (500, "InternalServerError", True),
        (504, "DeadlineExceededError", True),
        (529, "OverloadedError", True),
    ],
)
async def test_a_refused_request(status: int, kind: str, retryable: bool, streamed: bool) -> None:
    provider = Provider(ECHO, status=status, headers={"request-id": "req_7"})
    found = await failure(provider, streamed=streamed)
    assert (found.status_code, found.type, found.retryable) == (status, kind, retryable)
    assert found.request_id == "req_7"
    assert found.detail is not None
    assert len(found.detail) <= 2_000
    assert str(found).startswith(f"{kind} {status}: Key «redacted» of «redacted»")
    assert len(str(found).partition(": ")[2]) <= 200


@one_loop
@both
@pytest.mark.parametrize("status", [401, 403])
async def test_nothing_of_a_refusal_of_credentials_is_told(status: int, streamed: bool) -> None:
    body = {"error": {"message": "the words of the body", "type": "words_too"}}
    found = await failure(Provider(body, status=status), streamed=streamed)
    assert "words" not in everything(found)
    assert (found.status_code, found.detail, found.retryable) == (status, None, False)


@one_loop
async def test_identifiers_of_the_headers_are_redacted() -> None:
    headers = {"anthropic-organization-id": ORGANISATION, "anthropic-workspace-id": "wrkspc_01"}
    body = {"error": {"message": f"{ORGANISATION} and wrkspc_01 are full"}}
    found = await failure(Provider(body, status=400, headers=headers), streamed=False)
    assert str(found) == "BadRequestError 400: «redacted» and «redacted» are full"


@one_loop
async def test_how_long_to_wait_and_whether_to() -> None:
    for headers, wait in (
        ({"retry-after": "5"}, 5.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 10.0),
        ({}, None),
    ):
        found = await failure(Provider(error(), status=429, headers=headers), streamed=False)
        assert (found.retry_after, found.retryable) == (wait, True)
    told_not_to = Provider(error(), status=529, headers={"x-should-retry": "false"})
    assert (await failure(told_not_to, streamed=True)).retryable is False
    for code, retryable in (
        ("ramp_limit_exceeded", True),
        ("enforced_spend_limit_reached", False),
        ("contract_spend_limit_reached", False),
    ):
        body = {"error": {"type": "rate_limit_error", "message": "no", "details": {"error_code": code}}}
        assert (await failure(Provider(body, status=429), streamed=False)).retryable is retryable


@one_loop
async def test_a_refused_tool_is_named_with_the_field() -> None:
    told = "tools.1.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"
    tools = tuple(ToolSpec(name=name, description="", input_schema={}) for name in ("look", "walk.on"))
    request = ModelRequest(messages=ASK.messages, tools=tools)
    provider = Provider(error("invalid_request_error", told), status=400)
    found = await failure(provider, streamed=False, request=request)
    assert str(found).startswith(
        "BadRequestError 400: tool 'walk.on': tools.1.custom.input_schema: JSON schema"
    )


@both
@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (httpx2.ConnectError(f"refused for {KEY}"), "APIConnectionError"),
        (httpx2.ReadTimeout("slow"), "APITimeoutError"),
        (httpx2.RemoteProtocolError("gone"), "APIConnectionError"),
    ],
)
async def test_no_answer_at_all_can_be_tried_again(wrong: Exception, kind: str, streamed: bool) -> None:
    found = await failure(Provider(wrong), streamed=streamed)
    assert (found.type, found.retryable, found.status_code) == (kind, True, None)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (httpx2.ReadError(f"reset {KEY}"), "APIConnectionError"),
        (httpx2.ReadTimeout("slow"), "APITimeoutError"),
        (httpx2.RemoteProtocolError("peer closed connection"), "APIConnectionError"),
    ],
)
async def test_a_connection_that_breaks_within_a_stream(wrong: Exception, kind: str) -> None:
    provider = Provider([*events_of(CASES["text"])[:4], wrong])
    found = await failure(provider, streamed=True)
    assert (found.type, found.retryable) == (kind, True)
    # Of what was begun the input is known.
    assert found.usage == Usage(input_tokens=100, output_tokens=1, total_tokens=101)
    assert provider.streams[0].closed
    if kind == "APIConnectionError":
        assert str(found).startswith(f"APIConnectionError: the answer broke off: {type(wrong).__name__} ")


@one_loop
async def test_a_refusal_whose_body_breaks_off() -> None:
    provider = Provider([b'{"error": ', httpx2.ReadError("reset")], status=500)
    found = await failure(provider, streamed=True)
    assert (found.type, found.retryable) == ("APIConnectionError", True)
    assert provider.streams[0].closed


@one_loop
@both
@pytest.mark.parametrize(
    ("kind", "status", "retryable"),
    [
        ("overloaded_error", 529, True),
        ("api_error", 500, True),
        ("rate_limit_error", 429, True),
        ("timeout_error", 504, True),
        ("invalid_request_error", 400, False),
        ("not_found_error", 404, False),
        ("request_too_large", 413, False),
        ("billing_error", 402, False),
        ("novel_error", None, False),
    ],
)
async def test_an_error_within_a_200(kind: str, status: int | None, retryable: bool, streamed: bool) -> None:
    found = await failure(Provider(error(kind, f"{KEY} broke")), streamed=streamed)
    assert (found.type, found.status_code, found.retryable) == ("ErrorReply", status, retryable)
    assert str(found).endswith(": «redacted» broke")


@one_loop
async def test_an_error_in_the_middle_of_a_stream() -> None:
    start = events_of(CASES["cached_usage"])[:4]
    last = event("error", **{key: value for key, value in ECHO.items() if key != "type"})
    found = await failure(Provider([*start, last], headers={"request-id": "req_7"}), streamed=True)
    assert found.request_id == "req_7"
    assert found.usage == Usage(
        input_tokens=100, cached_tokens=60, cache_write_tokens=10, output_tokens=1, total_tokens=101
    )
    denied = event("error", error={"type": "authentication_error", "message": "the words"})
    found = await failure(Provider([*start, denied]), streamed=True)
    assert (found.status_code, "words" in everything(found)) == (401, False)
    # Not every proxy gives an error as an object, or in an event of its name.
    for data in (b"event: error\ndata: went away\n\n", b'data: {"type":"error","message":"went away"}\n\n'):
        assert "went away" in str(await failure(Provider([*start, data]), streamed=True))


PAGE = b"<!DOCTYPE html><html><title>Hi</title>"


@one_loop
@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "has no content"),
        ({"content": "hi"}, "has no content"),
        ({"content": None}, "has no content"),
        ([1], "is not a JSON object"),
        (PAGE, "is not a JSON object: a web page titled 'Hi'"),
        (b"", "is not a JSON object"),
        (b"[" * 100_000, "is not a JSON object"),
    ],
)
async def test_a_reply_that_is_none(body: object, told: str) -> None:
    provider = Provider(body)
    if isinstance(body, list):
        provider.answer = b"[1]"
    found = await failure(provider, streamed=False)
    assert told in str(found)
    assert (found.type, found.retryable) == ("InvalidReply", False)


async def test_an_answer_to_a_stream_that_is_none() -> None:
    found = await failure(Provider(PAGE), streamed=True)
    assert (found.type, found.retryable) == ("InvalidReply", False)
    assert "is no stream of events: a web page titled 'Hi'" in str(found)
    found = await failure(
        Provider(b'{"error": {"type": "overloaded_error", "message": "full"}}'), streamed=True
    )
    assert (str(found), found.retryable) == ("ErrorReply 529: full", True)
    whole = Provider(b'{"content": []}')
    assert "is no stream of events" in str(await failure(whole, streamed=True))


@one_loop
async def test_a_body_that_is_no_json() -> None:
    found = await failure(Provider(b"<h1>Bad gateway</h1>", status=502), streamed=True)
    assert (str(found), found.retryable) == ("InternalServerError 502: <h1>Bad gateway</h1>", True)
    assert (await failure(Provider(b"", status=500), streamed=False)).detail is None


@one_loop
@both
async def test_what_a_middleware_of_the_client_lets_through_or_raises(streamed: bool) -> None:
    async def through(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    async def fail(request: Any, call_next: Any) -> Any:
        await call_next(request)
        raise AnthropicError(f"no {KEY} today")

    class Middle(Provider):
        def client(self, **options: Any) -> Any:
            return super().client(middleware=[self.middleware], **options)

        middleware = staticmethod(through)

    found = await failure(Middle(ECHO, status=529), streamed=streamed)
    assert (found.type, found.retryable) == ("OverloadedError", True)

    class Failing(Middle):
        middleware = staticmethod(fail)

    found = await failure(Failing(reply(text("hi"))), streamed=streamed)
    assert (str(found), found.retryable) == ("AnthropicError: no «redacted» today", False)
