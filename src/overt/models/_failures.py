"""What becomes of a provider's failure: one `ModelError`, redacted, with all that may be said of it.

Every adapter makes its errors here, so that what is kept, cut and left out is the same for all.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Protocol, cast

from overt._text import clean
from overt.errors import ModelError
from overt.message import ToolSpec, Usage
from overt.models.redact import denied, redact
from overt.policy import may_succeed_later

__all__ = (
    "Body",
    "body_text",
    "connection_failure",
    "cut",
    "error_body",
    "kind_of",
    "loads",
    "other_failure",
    "retry_after",
    "status_failure",
    "unreadable",
)

_MAX_DETAIL = 2_000
_MAX_IN_MESSAGE = 200
_MAX_ID = 128
# Levels of a body. The journal is read back with at most 200, and what is kept of a body stands in something.
_MAX_DEPTH = 150
_KINDS = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    408: "APITimeoutError",
    409: "ConflictError",
    413: "RequestTooLargeError",
    422: "UnprocessableEntityError",
    429: "RateLimitError",
    504: "DeadlineExceededError",
    529: "OverloadedError",
}
_SPENT = frozenset({"contract_spend_limit_reached", "enforced_spend_limit_reached", "insufficient_quota"})
_REQUEST_IDS = ("x-request-id", "request-id", "x-goog-request-id", "x-ms-request-id", "cf-ray")
# Where providers say which tool they refuse: `tools[3].function…`, `tools.3.custom…`, `function_declarations[3]`.
_TOOL_AT = re.compile(
    r"(?:function_?declarations|tools)(?:\[|\.)(\d{1,4})\b(?!.{0,40}function_?declarations)", re.I
)
_HTML = re.compile(r"\s*<(?:!doctype html|html|head|body)\b", re.I)

Redact = Callable[[str], str]


class Body(Protocol):
    """What is read of a response whose body is there."""

    @property
    def text(self) -> str: ...
    @property
    def content(self) -> bytes: ...


def kind_of(status: int) -> str:
    """Return the name errors of a status go by, whoever the provider is."""
    return _KINDS.get(status) or ("InternalServerError" if status >= 500 else "APIStatusError")


def status_failure(
    kind: str,
    status: int | None,
    text: str,
    *,
    headers: Mapping[str, str] | None = None,
    secrets: Iterable[str | None] = (),
    tools: Sequence[ToolSpec] = (),
    wire_name: Callable[[str], str] | None = None,
    usage: Usage | None = None,
) -> ModelError:
    """Return the error of an answer that says no.

    Args:
        kind: Name of the error, such as the client's exception class.
        status: HTTP status, `None` where an error came inside a reply without one.
        text: The body, as it came.
        headers: Of the answer; names in any case.
        secrets: Strings known to be secret.
        tools: The tools that were offered, in the order they were sent: where the body points at one, it is named.
        wire_name: How the names of tools were sent.
        usage: What the provider says to have charged.

    Returns:
        The error. Of a 401 or 403 it has nothing of the body.
    """
    head = {name.lower(): value for name, value in (headers or {}).items()}
    known = tuple(secrets)
    request_id = _request_id(head, known)
    refused = denied(kind, status)
    if refused is not None:
        return ModelError(refused, type=kind, status_code=status, request_id=request_id)
    fields = _error_fields(text)
    retryable = status is not None and may_succeed_later(status)
    told_to = head.get("x-should-retry")
    if told_to in ("true", "false"):
        retryable = told_to == "true"
    elif not _SPENT.isdisjoint(map(str, (fields.get("code"), fields.get("type"), _detail_code(fields)))):
        retryable = False
    detail = redact(text, known)
    message = _error_fields(detail).get("message")
    told = message if isinstance(message, str) and message else _readable(detail)
    prefix = kind if status is None else f"{kind} {status}"
    tool = _tool(told, tools, wire_name) if status in (400, 422, None) else None
    if tool is not None:
        prefix = f"{prefix}: tool {tool!r}"
    return ModelError(
        f"{prefix}: {cut(told, _MAX_IN_MESSAGE)}" if told else prefix,
        type=kind,
        status_code=status,
        retryable=retryable,
        detail=cut(detail) or None,
        retry_after=retry_after(head, fields),
        request_id=request_id,
        usage=usage,
    )


def error_body(
    wrong: object,
    text: str,
    *,
    headers: Mapping[str, str] | None = None,
    secrets: Iterable[str | None] = (),
    usage: Usage | None = None,
) -> ModelError:
    """Return the error that came in the body of an answer which otherwise says yes, or in the middle of a stream.

    Args:
        wrong: The body's `error`, usually an object with a message and perhaps a status.
        text: The body, as it came.
        headers: Of the answer.
        secrets: Strings known to be secret.
        usage: What the provider says to have charged.
    """
    fields: Mapping[str, object] = cast("dict[str, object]", wrong) if isinstance(wrong, dict) else {}
    codes = [
        code for key in ("status", "status_code", "code") if (code := _status(fields.get(key))) is not None
    ]
    codes += [code for key in ("type", "code") if (code := _WORDS.get(str(fields.get(key)))) is not None]
    status = codes[0] if codes else None
    return status_failure("ErrorReply", status, text, headers=headers, secrets=secrets, usage=usage)


# What providers call a failure where they give no status, as within a stream.
_WORDS = {
    "api_error": 500,
    "authentication_error": 401,
    "billing_error": 402,
    "internal_error": 500,
    "invalid_api_key": 401,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "request_too_large": 413,
    "server_error": 500,
    "timeout_error": 504,
    "too_many_requests": 429,
    "vector_store_timeout": 504,
}


def connection_failure(
    kind: str,
    told: str,
    *,
    headers: Mapping[str, str] | None = None,
    secrets: Iterable[str | None] = (),
    usage: Usage | None = None,
) -> ModelError:
    """Return the error of a request that got no answer, or only the beginning of one. It may be tried again.

    Args:
        kind: Name of the error, such as the client's exception class.
        told: What the client says.
        headers: Of the answer, where one had begun.
        secrets: Strings known to be secret.
        usage: What the provider had said by then.
    """
    head = {name.lower(): value for name, value in (headers or {}).items()}
    known = tuple(secrets)
    text = redact(told, known)
    return ModelError(
        f"{kind}: {cut(text, _MAX_IN_MESSAGE)}" if text else kind,
        type=kind,
        retryable=True,
        request_id=_request_id(head, known),
        usage=usage,
    )


def other_failure(kind: str, told: str, *, secrets: Iterable[str | None] = ()) -> ModelError:
    """Return the error of a request the client could not even make."""
    text = redact(told, secrets)
    return ModelError(f"{kind}: {cut(text, _MAX_IN_MESSAGE)}" if text else kind, type=kind)


def unreadable(
    what: str,
    text: str,
    *,
    headers: Mapping[str, str] | None = None,
    secrets: Iterable[str | None] = (),
    usage: Usage | None = None,
    retryable: bool = False,
) -> ModelError:
    """Return the error of an answer that says yes and cannot be read.

    Args:
        what: What is wrong with it: `"is not a JSON object"`.
        text: The body, as it came.
        headers: Of the answer.
        secrets: Strings known to be secret.
        usage: What the provider says to have charged.
        retryable: Whether it may have been damaged on the way, as a piece of a stream.
    """
    head = {name.lower(): value for name, value in (headers or {}).items()}
    known = tuple(secrets)
    detail = redact(text, known)
    shown = _readable(detail)
    return ModelError(
        f"the reply {what}: {cut(shown, _MAX_IN_MESSAGE)}",
        type="InvalidReply",
        retryable=retryable,
        detail=cut(detail),
        request_id=_request_id(head, known),
        usage=usage,
    )


def retry_after(headers: Mapping[str, str], fields: Mapping[str, object] | None = None) -> float | None:
    """Return the seconds a provider asks to wait, said in milliseconds, seconds or as a date.

    A date is read against the answer's own `Date`, so that neither clock need be right.

    Args:
        headers: Of the answer, names in lower case.
        fields: The error's fields: Google says the wait there, as `retryDelay`.

    Returns:
        Seconds, 0 or more; `None` where nothing is said, or nothing that can be read.
    """
    exact = _seconds(headers.get("retry-after-ms"))
    if exact is not None:
        return exact / 1000
    said = headers.get("retry-after")
    if said is not None:
        plain = _seconds(said)
        return plain if plain is not None else _until(said, headers.get("date"))
    details = (fields or {}).get("details")
    for item in cast("list[object]", details) if isinstance(details, list) else []:
        delay = cast("dict[str, object]", item).get("retryDelay") if isinstance(item, dict) else None
        if isinstance(delay, str) and delay.endswith("s"):
            return _seconds(delay[:-1])
    return None


def _seconds(text: str | None) -> float | None:
    try:
        number = float(text) if text else math.nan
    except ValueError:
        return None
    return max(number, 0.0) if math.isfinite(number) else None


def _until(said: str, date: str | None) -> float | None:
    due = _date(said)
    if due is None:
        return None
    return max((due - (_date(date) or datetime.now(UTC))).total_seconds(), 0.0)


def _date(text: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(text) if text else None
    except (ValueError, OverflowError):
        return None
    return found if found is None or found.tzinfo is not None else found.replace(tzinfo=UTC)


def _request_id(headers: Mapping[str, str], secrets: tuple[str | None, ...]) -> str | None:
    for name in _REQUEST_IDS:
        found = headers.get(name, "").strip()
        if found:
            return redact(cut(found, _MAX_ID), secrets)
    return None


def _tool(told: str, tools: Sequence[ToolSpec], wire_name: Callable[[str], str] | None) -> str | None:
    at = _TOOL_AT.search(told)
    if at is not None and int(at[1]) < len(tools):
        return clean(tools[int(at[1])].name)
    for tool in tools:
        sent = tool.name if wire_name is None else wire_name(tool.name)
        if any(f"{q}{sent}{q}" in told for q in "'\"`"):
            return clean(tool.name)
    return None


def _readable(text: str) -> str:
    """Return a body as a message has it: of a page only that it is one."""
    if _HTML.match(text):
        title = re.search(r"<title[^>]*>(.*?)</title>", text, re.I | re.S)
        named = f" titled {' '.join(title[1].split())!r}" if title else ""
        return f"a web page{named}, not JSON; does base_url point at the API?"
    return text


def loads(text: str) -> object:
    """Read JSON; `None` where it is none, or is nested deeper than anything here could take apart or keep."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return None if text.count("{") + text.count("[") > _MAX_DEPTH and _deeper(value, _MAX_DEPTH) else value


def _deeper(value: object, depth: int) -> bool:
    if isinstance(value, dict):
        inner = list(cast("dict[str, object]", value).values())
    elif isinstance(value, list):
        inner = cast("list[object]", value)
    else:
        return False
    return depth == 0 or any(_deeper(item, depth - 1) for item in inner)


def body_text(response: Body) -> str:
    """Return the text of an answer, also where it names an encoding that cannot be used."""
    try:
        return response.text
    except Exception:  # noqa: BLE001 - a codec raises what it likes
        return response.content.decode(errors="replace")


def _error_fields(text: str) -> Mapping[str, object]:
    body = loads(text)
    if isinstance(body, list) and body:
        body = cast("list[object]", body)[0]  # Google's streams wrap an error so
    if not isinstance(body, dict):
        return {}
    fields = cast("dict[str, object]", body)
    inner = fields.get("error")
    return cast("dict[str, object]", inner) if isinstance(inner, dict) else fields


def _detail_code(fields: Mapping[str, object]) -> object:
    details = fields.get("details")
    return cast("dict[str, object]", details).get("error_code") if isinstance(details, dict) else None


def _status(value: object) -> int | None:
    try:
        code = int(value) if isinstance(value, int | str) else 0
    except ValueError:
        return None
    return code if 400 <= code < 600 else None


def cut(text: str, length: int = _MAX_DETAIL) -> str:
    """Return `text` with at most so many characters."""
    text = clean(text)
    return text if len(text) <= length else f"{text[: length - 1]}…"
