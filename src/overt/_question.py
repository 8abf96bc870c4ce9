"""A question as a tool asks it, before the runtime has made it a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from pydantic import JsonValue
from typing_extensions import TypeVar

from overt._canonical import NotJson, jsonable
from overt._schema import schema_of
from overt._text import clean
from overt.errors import UsageError
from overt.request import Answer

__all__ = ("Channel", "Question", "make_question")

T = TypeVar("T")

RESERVED_KINDS = frozenset({"budget", "in_doubt"})
RESERVED = frozenset({"call", "errors", "limit"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked; fields as in `Request`."""

    kind: str
    prompt: str
    url: str | None = None
    data: dict[str, JsonValue]
    answer_schema: dict[str, JsonValue] | None = None
    expires_at: datetime | None = None


class Channel(Protocol):
    """What a `ToolContext` needs of whoever runs the tool."""

    async def ask(self, question: Question, /) -> Answer[JsonValue]:
        """Return the answer to the next question of this call, or leave the tool to wait for it."""
        ...

    async def once(self, label: str, fn: Callable[[], Awaitable[T]], annotation: object, /) -> T:
        """Run `fn` unless its outcome is recorded under `label`; `annotation` is for `dump_exact`."""
        ...


def make_question(
    *,
    kind: str,
    prompt: str,
    url: str | None,
    data: Mapping[str, object] | None,
    answer_type: object,
    expires_at: datetime | None,
    answer_schema: dict[str, JsonValue] | None = None,
) -> Question:
    """Check and freeze a question; `answer_type` is `None` where any answer will do, or `answer_schema` says which.

    Raises:
        UsageError: A field is empty, reserved, no JSON, or without a time zone; names it.
    """
    for field, text in (("kind", kind), ("prompt", prompt)):
        if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
            raise UsageError(f"a question needs a non-empty {field}, not {text!r:.80}")
    if kind in RESERVED_KINDS:
        raise UsageError(
            f"kind={kind!r} is the runtime's own: it says what an answer does to the run; take another"
        )
    if url is not None and not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
        raise UsageError(f"url of a question has to be a str, not {type(url).__name__}")
    if expires_at is not None:
        if not isinstance(expires_at, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
            raise UsageError(f"expires_at has to be an aware datetime, not {type(expires_at).__name__}")
        if expires_at.utcoffset() is None:
            raise UsageError(f"expires_at={expires_at.isoformat()} has no time zone: give an aware datetime")
        try:
            expires_at = expires_at.astimezone(UTC)
        except OverflowError:
            raise UsageError(
                f"expires_at={expires_at.isoformat()} is past the end of time: None is never"
            ) from None
    given = dict(data or {})
    if taken := RESERVED & given.keys():
        raise UsageError(f"data[{min(taken)!r}] is reserved: the runtime fills it")
    made: dict[str, JsonValue] = {}
    for key, value in given.items():
        try:
            made[clean(key)] = jsonable(value, f"data[{key!r}]")
        except (NotJson, TypeError, RecursionError) as error:
            reason = "contains itself" if isinstance(error, RecursionError) else error
            raise UsageError(f"data[{key!r}] of a question has to be JSON: {reason}") from error
    schema = answer_schema
    if answer_type is not None:
        try:
            schema = schema_of(answer_type)
        except Exception as error:  # pydantic and user types raise what they like
            raise UsageError(
                f"answer_type={answer_type!r:.80} cannot become a JSON schema: {error}"
            ) from error
    return Question(
        kind=clean(kind),
        prompt=clean(prompt),
        url=None if url is None else clean(url),
        data=made,
        answer_schema=schema,
        expires_at=expires_at,
    )
