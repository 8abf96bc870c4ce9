"""A run's open request as the form an MCP client shows, and what it sends back as an answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from mcp_types import (
    ClientCapabilities,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
)
from pydantic import JsonValue

from overt._canonical import encode
from overt._schema import json_of
from overt.driver.answers import check_data, fits_schema
from overt.errors import InvalidAnswer
from overt.request import Answer, Request
from overt.sources.mcp.results import cut
from overt.sources.mcp.schemas import _inside

__all__ = ("Form", "Wrong", "form_of")

_KEPT = frozenset(
    {
        "type", "title", "description", "default", "enum", "enumNames", "oneOf", "minLength", "maxLength", "format",
        "minimum", "maximum", "items", "minItems", "maxItems",
    }
)  # fmt: skip
_FORMATS = ("email", "uri", "date", "date-time")
_SIMPLE = ("string", "number", "integer", "boolean")
_SHOWN = 2_000


class Wrong(Exception):
    """What was sent back does not fit; the message says where, and is for whoever filled it in."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a request is put to the person behind a client."""

    request: Request
    ask: ElicitRequest
    _read: Callable[[Mapping[str, Any]], JsonValue]

    def answer(self, reply: ElicitResult, by: str) -> Answer[Any] | None:
        """Return the answer a reply is, `None` where it was dismissed.

        Raises:
            Wrong: It does not fit.
        """
        if reply.action == "cancel":
            return None
        if reply.action == "decline":
            return Answer[Any](id=self.request.id, ok=False, reason="declined", by=by)
        try:
            data = self._read(reply.content or {})
            check_data(self.request, data)
        except InvalidAnswer as error:
            raise Wrong("; ".join(error.places)) from None
        except ValueError as error:
            raise Wrong(str(error)) from None
        return Answer[Any](id=self.request.id, ok=True, data=data, by=by)


def form_of(request: Request, capabilities: ClientCapabilities | None, *, note: str = "") -> Form | None:
    """Return how a client is asked, `None` where it cannot ask that.

    Args:
        request: The request.
        capabilities: What the client says of itself.
        note: What was wrong with the last reply.
    """
    can = None if capabilities is None else capabilities.elicitation
    if can is None:
        return None
    message = _message(request, note)
    if request.url is not None:
        if can.url is None:
            return None
        params = ElicitRequestURLParams(message=message, url=request.url, elicitation_id=request.id)
        return Form(request, ElicitRequest(params=params), lambda content: None)
    if can.form is None and can.url is not None:
        return None
    schema, read = _fields(request.answer_schema)
    form = ElicitRequestFormParams(message=message, requested_schema=cast("dict[str, Any]", schema))
    return Form(request, ElicitRequest(params=form), read)


def _message(request: Request, note: str) -> str:
    parts = [f"That did not fit: {note}" if note else "", request.prompt]
    call = request.data.get("call")
    if isinstance(call, dict):
        parts.append(f"{call.get('tool')}({cut(encode(call.get('arguments')), _SHOWN)})")
    if request.replays or request.turns_again:
        turns = f"{request.turns_again} turn{'' if request.turns_again == 1 else 's'}"
        calls = ", ".join(sorted({call.tool for call in request.replays}))
        parts.append(f"Answering repeats {turns} and {f'these calls: {calls}' if calls else 'no call'}.")
    return "\n\n".join(part for part in parts if part)


def _fields(
    schema: dict[str, JsonValue] | None,
) -> tuple[dict[str, JsonValue], Callable[[Mapping[str, Any]], JsonValue]]:
    """Return a form of simple fields, which is all there may be, and what makes the answer's data of it."""
    if schema is None:
        return _object({}, []), lambda content: None
    properties = schema.get("properties")
    if schema.get("type") == "object" and isinstance(properties, dict):
        fields = {name: _simple(schema, field) for name, field in properties.items()}
        if all(field is not None for field in fields.values()):
            required = schema.get("required")
            needed = [str(name) for name in required] if isinstance(required, list) else []
            # A form has no null: what may be null is left empty.
            empty = [name for name in needed if _or_null(properties.get(name))]
            nothing: dict[str, JsonValue] = dict.fromkeys(empty)
            asked = [name for name in needed if name not in empty]
            return _object(fields, asked), lambda content: {**nothing, **content}
    one = _simple(schema, schema)
    if one is not None:
        needed = [] if _or_null(schema) else ["value"]
        return _object({"value": one}, needed), lambda content: cast("JsonValue", content.get("value"))
    if fits_schema(encode(schema), None):
        # A yes is enough, as for a guardrail's question; what else it takes does not go into a form.
        return _object({}, []), lambda content: None
    told = cut(json.dumps(schema, ensure_ascii=False, separators=(",", ":")), _SHOWN)
    text: JsonValue = {"type": "string", "title": "JSON", "description": f"JSON that fits {told}"}
    return _object({"json": text}, ["json"]), lambda content: json_of(str(content.get("json")))


def _object(fields: Mapping[str, JsonValue], needed: list[str]) -> dict[str, JsonValue]:
    made: dict[str, JsonValue] = {"type": "object", "properties": dict(fields)}
    if needed:
        made["required"] = cast("JsonValue", needed)
    return made


def _or_null(field: JsonValue) -> dict[str, JsonValue] | None:
    """Return the other schema of a value that may be null; `None` for any other field."""
    options = field.get("anyOf") if isinstance(field, dict) else None
    if not isinstance(options, list) or len(options) != 2 or {"type": "null"} not in options:
        return None
    other = options[0] if options[1] == {"type": "null"} else options[1]
    return other if isinstance(other, dict) else None


def _simple(schema: dict[str, JsonValue], field: JsonValue) -> JsonValue | None:
    """Return a field as the protocol lets a form have it, `None` where it cannot."""
    if not isinstance(field, dict):
        return None
    if (other := _or_null(field)) is not None:
        field = {**{key: value for key, value in field.items() if key != "anyOf"}, **other}
    if isinstance(target := field.get("$ref"), str):
        field = {**_inside(schema, target), **{key: value for key, value in field.items() if key != "$ref"}}
    made = {key: value for key, value in field.items() if key in _KEPT}
    if made.get("format") not in _FORMATS:
        made.pop("format", None)
    if made.get("default", "") is None:
        del made["default"]
    if "const" in field:
        made["enum"] = [field["const"]]
    if isinstance(choices := made.get("enum"), list):
        if not all(isinstance(choice, str) for choice in choices):
            return None
        return {**made, "type": "string"}
    if (
        "anyOf" in field
        or "allOf" in field
        or "oneOf" in field
        or "not" in field
        or "patternProperties" in field
    ):
        return None
    kind = made.setdefault(
        "type", "string" if "properties" not in field and "items" not in field else "object"
    )
    return made if kind in _SIMPLE else None
