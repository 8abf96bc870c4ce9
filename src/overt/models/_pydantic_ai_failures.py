"""What pydantic-ai and the clients below it raise, as errors of ours."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.models import Model

from overt._text import told
from overt.errors import DefinitionError, ModelError
from overt.message import ModelRequest
from overt.models._failures import (
    connection_failure,
    cut,
    kind_of,
    other_failure,
    status_failure,
    unreadable,
)
from overt.models._wire import wire_name
from overt.models.redact import redact

__all__ = ("definition_error", "failure_of", "incomplete", "secrets_of")

_MAX_ADVICE = 300
_LIKE_A_SECRET = re.compile(r"(?:API_?KEY|ACCESS_?KEY(?:_ID)?|TOKEN|SECRET|PASSWORD)$", re.I)
_CLIENT_SECRETS = (
    "admin_api_key",
    "api_key",
    "auth_token",
    "organization",
    "project",
    "webhook_secret",
)
_SECRET_HEADERS = ("authorization", "api-key", "x-api-key", "x-goog-api-key", "cookie")
_PASSING = (ModelRateLimitError, ModelUnavailableError, ModelServerError, ModelConnectionError)


def definition_error(text: str) -> DefinitionError:
    """Return what the library says of a model it cannot make, or a request it cannot send."""
    return DefinitionError(
        cut(redact(text.partition(" To try Pydantic AI")[0], secrets_of(None)), _MAX_ADVICE)
    )


def incomplete() -> ModelError:
    """Return the error of a stream that broke off, as the assembler of streams has it."""
    return ModelError(
        "The stream ended without a finish reason: the reply is incomplete.",
        type="StreamIncomplete",
        retryable=True,
    )


def failure_of(error: Exception, model: Model, request: ModelRequest) -> Exception:
    """Return what a call raised as an error of ours, redacted.

    Args:
        error: What was raised.
        model: Who was asked.
        request: What was asked.

    Returns:
        A `ModelError`; a `DefinitionError` where the library refused to send the request.
    """
    secrets = secrets_of(model) | _sent_with(error)
    if isinstance(error, UserError):
        return DefinitionError(f"{model.model_id}: {cut(redact(told(error), secrets), _MAX_ADVICE)}")
    if isinstance(error, ModelAPIError):
        return _api_failure(error, request, secrets)
    if isinstance(error, UnexpectedModelBehavior):
        return unreadable("cannot be read", error.body or error.message, secrets=secrets)
    kind = type(error).__name__
    status = getattr(error, "status_code", None)
    if type(status) is int and 400 <= status < 600:
        return status_failure(kind, status, told(error), secrets=secrets)
    if isinstance(error, OSError) or any(base.__name__ == "TransportError" for base in type(error).__mro__):
        return connection_failure(kind, told(error), secrets=secrets)
    return other_failure(kind, told(error), secrets=secrets)


def _api_failure(error: ModelAPIError, request: ModelRequest, secrets: set[str | None]) -> ModelError:
    kind = _kind(error)
    if isinstance(error, ModelHTTPError):
        made = status_failure(
            kind,
            error.status_code,
            _body(error.body),
            headers=error.headers,
            secrets=secrets,
            tools=request.tools,
            wire_name=wire_name,
        )
        if isinstance(error, ModelQuotaExceededError):
            made.retryable = False
    elif isinstance(error, ModelAuthenticationError):
        # Nothing of the body: it is about credentials.
        return ModelError(f"{kind}: credentials were refused", type=kind)
    elif isinstance(error, ModelConnectionError | ModelRequestTimeout):
        cause = "" if error.__cause__ is None else told(error.__cause__)
        text = told(error)
        made = connection_failure(kind, text if cause in text else f"{text} {cause}", secrets=secrets)
    elif "without a `finish_reason`" in told(error):
        return incomplete()
    else:
        made = status_failure(kind, None, _body(error.body) or told(error), secrets=secrets)
        made.retryable = isinstance(error, _PASSING)
    if made.retry_after is None and made.status_code not in (401, 403):
        made.retry_after = error.retry_after
    return made


def _kind(error: ModelAPIError) -> str:
    """Return the name such errors go by, whoever the provider is; two the library tells apart keep theirs."""
    if isinstance(error, ModelHTTPError) and not isinstance(
        error, ModelQuotaExceededError | ModelContextWindowExceededError
    ):
        return kind_of(error.status_code)
    if isinstance(error, ModelConnectionError):
        return "APITimeoutError" if isinstance(error, ModelTimeoutError) else "APIConnectionError"
    name = type(error).__name__
    return name if name == "ModelAPIError" else name.removeprefix("Model")


def _body(body: object) -> str:
    if body is None or isinstance(body, str):
        return body or ""
    if isinstance(body, bytes):
        return body.decode(errors="replace")
    try:
        return json.dumps(body, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return ""


def secrets_of(model: Model | None) -> set[str | None]:
    """Return the strings of a model's client, and of the environment, that no error may repeat.

    Args:
        model: Whose client; `None` for the environment alone.
    """
    found: set[str | None] = {value for name, value in os.environ.items() if _LIKE_A_SECRET.search(name)}
    client: object = None if model is None or model.provider is None else model.provider.client
    for name in _CLIENT_SECRETS:
        value = getattr(client, name, None)
        if isinstance(value, str):
            found.add(value)
    return found | _in_headers(getattr(client, "default_headers", None))


def _sent_with(error: BaseException) -> set[str | None]:
    """Return the credentials of the request that failed, where a client's exception still has it.

    Not every client can be asked for its key.
    """
    found: set[str | None] = set()
    seen: BaseException | None = error
    while seen is not None:
        for name in ("response", "raw_response"):
            with suppress(Exception):  # httpx raises where a response has no request
                found |= _in_headers(getattr(seen, name).request.headers)
        seen = seen.__cause__
    return found


def _in_headers(headers: object) -> set[str | None]:
    found: set[str | None] = set()
    for name, value in cast("Mapping[str, object]", headers).items() if isinstance(headers, Mapping) else ():
        if name.lower() in _SECRET_HEADERS and isinstance(value, str):
            found |= {value, value.partition(" ")[2]}
    return found
