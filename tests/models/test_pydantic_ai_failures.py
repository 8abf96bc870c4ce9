"""What comes of the failures of pydantic-ai's models and the clients below them."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelTimeoutError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import ModelMessage
from pydantic_ai.messages import ModelResponse as Reply
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.profiles import ModelProfile
from tests.models.openai_fake import KEY
from tests.models.pydantic_ai_fake import (
    ECHO,
    SECRETS,
    Provider,
    anthropic_events,
    anthropic_reply,
    chunks,
    everything,
    streamed,
)

from overt.errors import DefinitionError, ModelError
from overt.message import ModelRequest, UserMessage
from overt.models import PydanticAIModel

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


def ask(**more: Any) -> ModelRequest:
    return ModelRequest(messages=(UserMessage(text="go"),), **more)


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "BadRequestError", False),
        (404, "NotFoundError", False),
        (408, "APITimeoutError", True),
        (409, "ConflictError", True),
        (422, "UnprocessableEntityError", False),
        (429, "RateLimitError", True),
        (500, "InternalServerError", True),
        (503, "InternalServerError", True),
    ],
)
async def test_a_refused_request(status: int, kind: str, retryable: bool) -> None:
    provider = Provider(ECHO, status=status, headers={"retry-after": "5", "x-request-id": "req-7"})
    model = provider.chat(max_retries=5)
    for asked in (model.generate, lambda request: streamed(model, request)):
        provider.requests.clear()
        with pytest.raises(ModelError) as caught:
            await asked(ask())
        error = caught.value
        assert (error.status_code, error.type, error.retryable) == (status, kind, retryable)
        assert (error.retry_after, error.request_id) == (5, "req-7")
        assert len(provider.requests) == 1
        assert error.detail is not None
        assert str(error).startswith(f"{kind} {status}: Key «redacted» of «redacted»")
        assert len(str(error).partition(": ")[2]) <= 200
        assert not [secret for secret in SECRETS if secret in everything(error)]


@pytest.mark.parametrize("status", [401, 403])
async def test_nothing_of_a_refusal_of_credentials_is_told(status: int) -> None:
    body = {"error": {"message": "the words of the body", "code": "words_too"}}
    for model in (Provider(body, status=status).chat(), Provider(body, status=status).claude()):
        with pytest.raises(ModelError) as caught:
            await model.generate(ask())
        assert "words" not in everything(caught.value)
        assert (caught.value.status_code, caught.value.detail, caught.value.retryable) == (
            status,
            None,
            False,
        )


async def test_what_waiting_does_not_help() -> None:
    for status, headers, body, kind in (
        (500, {"x-should-retry": "false"}, {}, "InternalServerError"),
        (429, {}, {"error": {"code": "insufficient_quota", "message": "pay"}}, "QuotaExceededError"),
        (429, {}, {"error": {"code": "billing_hard_limit_reached", "message": "pay"}}, "QuotaExceededError"),
        (
            400,
            {},
            {"error": {"code": "context_length_exceeded", "message": "long"}},
            "ContextWindowExceededError",
        ),
    ):
        with pytest.raises(ModelError) as caught:
            await Provider(body, status=status, headers=headers).chat().generate(ask())
        assert (caught.value.type, caught.value.status_code, caught.value.retryable) == (kind, status, False)


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
        await provider.chat().generate(ask())
    assert (caught.value.type, caught.value.retryable, caught.value.status_code) == (kind, True, None)
    assert len(provider.requests) == 1
    assert KEY not in everything(caught.value)


@pytest.mark.parametrize(
    "body", [{"choices": []}, {}, {"choices": [{"finish_reason": "stop"}]}, b"<html>", b""]
)
async def test_a_reply_that_is_none(body: object) -> None:
    provider = Provider(body)
    with pytest.raises(ModelError) as caught:
        await provider.chat().generate(ask())
    assert caught.value.retryable is False
    assert len(provider.requests) == 1


async def test_an_error_in_the_middle_of_a_stream() -> None:
    events: list[dict[str, Any]] = anthropic_events(anthropic_reply({"type": "text", "text": "half"}))[:3]
    events.append({"type": "error", "error": {"type": "overloaded_error", "message": f"busy {KEY}"}})
    heard: list[str | None] = []

    async def read() -> None:
        async for delta in Provider(events).claude().stream(ask()):
            heard.append(delta.text)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(ModelError) as caught:
        await read()
    assert heard == ["hal"]
    assert (caught.value.status_code, caught.value.retryable) == (529, True)
    assert KEY not in everything(caught.value)
    late = [
        *chunks({"content": "half"}, finish=None),
        {"error": {"message": "broke", "code": "server_error"}},
    ]
    with pytest.raises(ModelError, match="broke") as caught:
        await streamed(Provider(late).chat(), ask())
    assert (caught.value.status_code, caught.value.retryable) == (500, True)


async def test_the_key_a_request_was_sent_with_is_not_told() -> None:
    class Refused(Exception):
        raw_response = httpx2.Response(
            400, request=httpx2.Request("POST", "https://x", headers={"Authorization": "Bearer grandfather"})
        )

    async def fail(_: list[ModelMessage], __: AgentInfo) -> Reply:
        raise ModelAPIError("m", "grandfather said no") from Refused()

    with pytest.raises(ModelError, match="«redacted» said no") as caught:
        await PydanticAIModel(FunctionModel(fail)).generate(ask())
    assert "grandfather" not in everything(caught.value)


async def test_whatever_a_client_raises_is_an_error_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOUSE_API_KEY", "grandmother")

    class Busy(Exception):
        status_code = 503

    for raised, kind, retryable in (
        (ValueError("grandmother said no"), "ValueError", False),
        (OSError("grandmother is away"), "OSError", True),
        (Busy("grandmother sleeps"), "Busy", True),
        (ExceptionGroup("grandmother", [ValueError("x")]), "ExceptionGroup", False),
    ):

        async def fail(_: list[ModelMessage], __: AgentInfo, raised: Exception = raised) -> Reply:
            raise raised

        with pytest.raises(ModelError) as caught:
            await PydanticAIModel(FunctionModel(fail)).generate(ask())
        assert (caught.value.type, caught.value.retryable) == (kind, retryable)
        assert "grandmother" not in everything(caught.value)


@pytest.mark.parametrize(
    ("raised", "kind", "retryable", "wait"),
    [
        (ModelHTTPError(429, "m", {"error": {"message": "slow"}}, retry_after=7), "RateLimitError", True, 7),
        (
            ModelHTTPError(503, "m", b"\xff", headers={"Retry-After-Ms": "500"}),
            "InternalServerError",
            True,
            0.5,
        ),
        (ModelQuotaExceededError("m", "no money"), "QuotaExceededError", False, None),
        (ModelServerError("m", "broke", body={"code": "x"}), "ServerError", True, None),
        (ModelTimeoutError("m", "slow"), "APITimeoutError", True, None),
        (ModelRequestTimeout("m", 3), "RequestTimeout", True, None),
        (ModelRequestRejectedError("m", "no"), "RequestRejectedError", False, None),
        (ModelAPIError("m", "odd"), "ModelAPIError", False, None),
        (UnexpectedModelBehavior("odd", '{"a": 1}'), "InvalidReply", False, None),
    ],
)
async def test_the_librarys_errors(raised: Exception, kind: str, retryable: bool, wait: float | None) -> None:
    async def fail(_: list[ModelMessage], __: AgentInfo) -> Reply:
        raise raised

    with pytest.raises(ModelError) as caught:
        await PydanticAIModel(FunctionModel(fail)).generate(ask())
    assert (caught.value.type, caught.value.retryable, caught.value.retry_after) == (kind, retryable, wait)


async def test_nothing_is_told_of_credentials_refused_without_a_status() -> None:
    async def fail(_: list[ModelMessage], __: AgentInfo) -> Reply:
        raise ModelAuthenticationError("m", "the words", body="more words", retry_after=1)

    with pytest.raises(ModelError) as caught:
        await PydanticAIModel(FunctionModel(fail)).generate(ask())
    assert "words" not in everything(caught.value)
    assert (caught.value.type, caught.value.retryable) == ("AuthenticationError", False)


async def test_what_the_library_cannot_send_is_a_wrong_definition() -> None:
    async def answer(_: list[ModelMessage], __: AgentInfo) -> Reply:
        raise AssertionError

    profile = ModelProfile(supports_json_schema_output=False)
    model = PydanticAIModel(FunctionModel(answer, profile=profile))
    with pytest.raises(DefinitionError, match="Native structured output"):
        await model.generate(ask(output_schema={"type": "object"}))
