"""Schemas that come from a server: checked before they are believed, and never fetched from anywhere."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from jsonschema_rs import ValidationError, Validator, validator_for
from pydantic import JsonValue

from overt._canonical import NotJson, encode, jsonable, parse
from overt._schema import ArgumentsInvalid, object_of
from overt._text import clean
from overt.errors import DefinitionError

__all__ = ("ServerArguments", "places", "validator")

LARGEST = 200_000
"""Characters of a schema; a larger one would be most of what a model can read."""
_LONG = 300


def validator(schema: dict[str, JsonValue]) -> Validator:
    """Return what checks values against a schema. What it refers to has to be inside it.

    Raises:
        ValueError: It is no JSON Schema, or refers to something outside; the message says what.
    """

    def refuse(uri: str) -> JsonValue:
        raise ValueError(f"it refers to {uri}, which is not inside it")

    try:
        return validator_for(schema, retriever=refuse)
    except (ValidationError, ValueError) as error:
        text = error.message if isinstance(error, ValidationError) else str(error)
        raise ValueError(_short(text)) from error


def places(checks: Validator, value: JsonValue) -> list[str]:
    """Return `"field.path: problem"` for every place of a value that does not fit."""
    found: list[str] = []
    for error in checks.iter_errors(value):
        path = ".".join(map(str, error.instance_path))
        problem = _short(error.message)
        found.append(f"{path}: {problem}" if path else problem)
    return found


class ServerArguments:
    """Validates the arguments of a server's tool against the schema the server gave for it."""

    __slots__ = ("_checks", "_tool", "json_schema")

    def __init__(self, tool: str, schema: object, *, where: str) -> None:
        """Look at a schema.

        Args:
            tool: The tool's name, for messages to the model.
            schema: As the server gave it.
            where: Which tool of which server it is, for the error.

        Raises:
            DefinitionError: It is no schema of an object, or too large.
        """
        self._tool = tool
        try:
            given = jsonable(schema, "the schema")
            if not isinstance(given, dict):
                raise ValueError(f"it is {encode(given)[:80]}, and arguments are an object")
            text = encode(given)
        except (NotJson, ValueError, RecursionError) as error:
            raise _wrong(where, _reason(error)) from error
        if len(text) > LARGEST:
            raise _wrong(where, f"it has {len(text):,} characters, and {LARGEST:,} are the most")
        try:
            self._checks = validator(given)
        except ValueError as error:
            raise _wrong(where, str(error)) from error
        self.json_schema: dict[str, JsonValue] = _of_object(given, where)

    def canonical(self, raw: Mapping[str, object] | str) -> str:
        """Return valid arguments as compact JSON text with sorted keys. Nothing is filled in: that is the server's.

        Raises:
            ArgumentsInvalid: They do not fit; the message names every place and is for the model.
        """
        try:
            if isinstance(raw, str):
                arguments: JsonValue = object_of(
                    raw if raw.strip() else "{}", "the arguments have to be a JSON object"
                )
                arguments = jsonable(arguments)
            else:
                arguments = jsonable(dict(raw))
            found = places(self._checks, arguments)
            text = encode(arguments)
        except (NotJson, ValueError, RecursionError) as error:
            raise ArgumentsInvalid(self._tool, [_reason(error)]) from error
        if found:
            raise ArgumentsInvalid(self._tool, found)
        return text

    def bind(self, canonical: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments, as one, from what `canonical` returned.

        Raises:
            ArgumentsInvalid: The server's schema no longer takes them.
        """
        arguments = parse(canonical)
        if found := places(self._checks, arguments):
            raise ArgumentsInvalid(self._tool, found)
        return (arguments,), {}


def _of_object(schema: dict[str, JsonValue], where: str) -> dict[str, JsonValue]:
    """Return the schema as providers take it: with `type` and `properties` at its root."""
    made = copy.deepcopy(schema)
    seen: set[str] = set()
    while isinstance(target := made.pop("$ref", None), str):
        if target in seen:
            break
        seen.add(target)
        made = {**_inside(schema, target), **made}
    kind = made.setdefault("type", "object")
    if kind != "object":
        raise _wrong(where, f"it describes {kind!r}, and arguments are an object")
    if not isinstance(made.setdefault("properties", {}), dict):
        raise _wrong(where, "its properties are no object")
    return made


def _inside(schema: dict[str, JsonValue], target: str) -> dict[str, JsonValue]:
    """Return what a reference within a schema stands for, as far as it can be written in its place."""
    found: JsonValue = schema
    for part in target.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or key not in found:
            return {}
        found = found[key]
    return copy.deepcopy(found) if isinstance(found, dict) else {}


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _wrong(where: str, reason: str) -> DefinitionError:
    return DefinitionError(f"{where}: its input schema cannot be used: {clean(reason)}")


def _short(text: str) -> str:
    text = clean(text)
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
