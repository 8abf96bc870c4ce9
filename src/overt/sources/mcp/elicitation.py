"""What a server asks in the middle of a call, as a question of the run; and the answer, as the server wants it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult
from pydantic import JsonValue

from overt._canonical import NotJson, encode, jsonable
from overt._question import Question, make_question
from overt._text import clean
from overt.request import Answer
from overt.sources.mcp.results import cut
from overt.sources.mcp.schemas import LARGEST, validator
from overt.sources.mcp.secrets import Secrets

__all__ = ("Elicited", "NotAsked", "elicited", "question_of", "reply_of")

LONGEST_PROMPT = 4_000
_PRIMITIVE = frozenset({"string", "number", "integer", "boolean"})
_REFERS = ("$ref", "$dynamicRef", "$recursiveRef")


class NotAsked(Exception):
    """The server asks something that is not asked of anybody; the message is for the server."""


@dataclass(frozen=True, slots=True)
class Elicited:
    """What a server asks; of a form with its schema, else with a URL."""

    message: str
    schema: dict[str, JsonValue] | None
    url: str | None


def elicited(params: ElicitRequestParams) -> Elicited:
    """Look at what a server asks.

    Raises:
        NotAsked: It is no form of simple fields, or no address on the web.
    """
    message = cut(clean(params.message), LONGEST_PROMPT)
    if isinstance(params, ElicitRequestFormParams):
        return Elicited(message, _form(params.requested_schema), None)
    url = clean(params.url)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise NotAsked("the URL cannot be read") from None
    if parts.scheme not in ("http", "https") or not parts.netloc or len(url) > LONGEST_PROMPT:
        raise NotAsked("the URL is no http or https address people could go to")
    return Elicited(message, None, url)


def _form(given: dict[str, Any]) -> dict[str, JsonValue]:
    """Return the schema of a form: an object of simple fields, as the protocol has it, and whole in itself."""
    try:
        schema = cast("dict[str, JsonValue]", jsonable(given))
        if len(encode(schema)) > LARGEST:
            raise NotAsked("the requested schema is too large")
        fields = schema.get("properties")
        if schema.get("type") != "object" or not isinstance(fields, dict):
            raise NotAsked("the requested schema has to be of an object with properties")
        for name, field in fields.items():
            if not _is_simple(field):
                raise NotAsked(f"field {name!r:.80} of the requested schema is no simple value")
        if _refers(schema):
            raise NotAsked("the requested schema has references")
        validator(schema)
    except (NotJson, ValueError, RecursionError) as error:
        raise NotAsked("the requested schema is no JSON Schema") from error
    return schema


def _is_simple(field: JsonValue) -> bool:
    if not isinstance(field, dict):
        return False
    if field.get("type") == "array":
        items = field.get("items")
        return isinstance(items, dict) and (items.get("type") == "string" or _is_choice(items))
    return field.get("type") in _PRIMITIVE or _is_choice(field)


def _is_choice(field: dict[str, JsonValue]) -> bool:
    """Whether it is one out of given texts or numbers."""
    given = field.get("enum") or field.get("oneOf") or field.get("anyOf")
    if not isinstance(given, list):
        return False
    values = [item.get("const") if isinstance(item, dict) else item for item in given]
    return all(isinstance(value, str | int | float) for value in values)


def _refers(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return any(key in value for key in _REFERS) or any(map(_refers, value.values()))
    return isinstance(value, list) and any(map(_refers, value))


def question_of(asked: Elicited, *, server: str, tool: str, secrets: Secrets) -> Question:
    """Return the question people are asked; its data says which tool of which server wants to know.

    A form without a field asks for nothing but a yes: an approval, whose answer needs no data.
    """
    message = secrets.hide(asked.message)
    kind = "authorization"
    if asked.schema is not None:
        kind = "input" if asked.schema["properties"] else "approval"
    return make_question(
        kind=kind,
        prompt=message
        if message.strip()
        else f"MCP server {server!r} asks for something and does not say what.",
        url=asked.url,
        data={"mcp": {"server": server, "tool": tool}},
        answer_type=None,
        answer_schema=asked.schema if kind == "input" else None,
        expires_at=None,
    )


def reply_of(asked: Elicited, answer: Answer[JsonValue]) -> ElicitResult:
    """Return what the server is told: `accept` with the fields it asked for, `decline`, or `cancel`."""
    if not answer.ok:
        return ElicitResult(action="cancel" if answer.reason in ("cancelled", "expired") else "decline")
    if asked.schema is None:
        return ElicitResult(action="accept")
    fields = cast("dict[str, JsonValue]", asked.schema["properties"])
    given = answer.data if isinstance(answer.data, dict) else {}
    content = {name: value for name, value in given.items() if name in fields}
    return ElicitResult(action="accept", content=cast("Any", content))
