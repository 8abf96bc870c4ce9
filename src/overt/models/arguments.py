"""Argument text as models write it: read strictly, so that what is wrong with it can be said."""

from __future__ import annotations

import json
import math
from typing import cast

from pydantic import JsonValue

from overt._text import clean

__all__ = ("parse_arguments",)

_MAX_DEPTH = 100


def parse_arguments(text: str) -> dict[str, JsonValue]:
    """Read the argument text of a tool call.

    Lone surrogates become U+FFFD, also those written as escapes. Nothing is repaired: an empty text is refused too,
    because a reply that was cut off leaves one as well.

    Args:
        text: What the model wrote.

    Returns:
        The arguments, a new dict.

    Raises:
        ValueError: The text is not one JSON object: broken, of another type, with a key twice, with `NaN` or an
            infinity, or nested deeper than 100. The message says which and repeats nothing of the text but a key.
    """
    if not text.strip():
        raise ValueError("the arguments are empty, not a JSON object")
    try:
        value: object = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_constant, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"the arguments are not valid JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError(f"the arguments are nested deeper than {_MAX_DEPTH}") from None
    if not isinstance(value, dict):
        raise ValueError(f"the arguments are a JSON {_kind(value)}, not an object")
    found = cast(dict[str, JsonValue], value)
    if not _shallow(found, _MAX_DEPTH):
        raise ValueError(f"the arguments are nested deeper than {_MAX_DEPTH}")
    if text.isascii() and "\\u" not in text:
        return found
    cleaned: dict[str, JsonValue] = json.loads(clean(json.dumps(found, ensure_ascii=False)))
    return cleaned


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the arguments have the key {clean(key)[:80]!r} twice")
            seen.add(key)
    return found


def _constant(name: str) -> float:
    raise ValueError(f"the arguments contain {name}, which is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("the arguments contain a number too large for a float")
    return number


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return "array"
    if isinstance(value, str):
        return "string"
    return "boolean" if isinstance(value, bool) else "number"


def _shallow(value: JsonValue, depth: int) -> bool:
    if isinstance(value, dict):
        return depth > 0 and all(_shallow(item, depth - 1) for item in value.values())
    if isinstance(value, list):
        return depth > 0 and all(_shallow(item, depth - 1) for item in value)
    return True
