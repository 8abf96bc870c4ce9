"""Schemas of answers, as Anthropic's structured outputs take them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from pydantic import JsonValue

from overt.models._wire import Wire, json_copy

__all__ = ("output_format",)


def output_format(
    schema: JsonValue, transform: Callable[[dict[str, object]], Mapping[str, object]]
) -> Wire | str:
    """Return the form an answer is asked for in, or what the model is told where there is none.

    The API closes every object and knows no recursion: under such a schema a free mapping could only be empty. Where
    an answer needs one, the model is told the schema, and the runtime checks what it gives as always.

    Args:
        schema: Schema of the answer.
        transform: Turns a schema into one the API takes, `ValueError` where it cannot.
    """
    if isinstance(schema, dict) and not _open(schema) and not _recursive(schema):
        try:
            made = json_copy(transform(cast("dict[str, object]", schema)))
        except ValueError:
            pass
        else:
            return {"type": "json_schema", "schema": made}
    return (
        "Give your final answer as one JSON value and nothing else, without a code fence. It has to fit this JSON "
        f"schema:\n{json.dumps(schema, ensure_ascii=False)}"
    )


def _open(value: JsonValue) -> bool:
    """Whether there is an object of which not every key is known."""
    if isinstance(value, list):
        return any(map(_open, value))
    if not isinstance(value, dict):
        return False
    more = value.get("additionalProperties")
    if value.get("type") == "object" and (
        more not in (None, False)
        or "patternProperties" in value
        or (more is None and "properties" not in value)
    ):
        return True
    return any(_open(item) for item in _within(value))


def _within(schema: Mapping[str, JsonValue]) -> Iterator[JsonValue]:
    """Yield the schemas directly within one."""
    for key, item in schema.items():
        if key in ("properties", "$defs") and isinstance(item, dict):
            yield from item.values()
        elif key not in ("enum", "const", "default", "examples"):
            yield item


def _recursive(schema: Mapping[str, JsonValue]) -> bool:
    """Whether a definition comes to itself."""
    definitions = schema.get("$defs")
    known = (
        {f"#/$defs/{name}": item for name, item in definitions.items()}
        if isinstance(definitions, dict)
        else {}
    )
    follows = {name: set(_references(item)) for name, item in known.items()}
    follows["#"] = {"#"} & set(_references({**schema, "$defs": {}}))
    for start in follows:
        reached: set[str] = set()
        edge = set(follows[start])
        while edge:
            if start in edge:
                return True
            reached |= edge
            edge = {further for name in edge for further in follows.get(name, ())} - reached
    return False


def _references(value: JsonValue) -> Iterator[str]:
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str):
            yield reference
        for item in _within(value):
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)
