"""Leaving the values of named fields out of JSON, wherever in it they stand."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any, cast

from pydantic import JsonValue

from overt._text import clean

__all__ = ("REDACTED", "Redaction")

REDACTED = "[redacted]"
PATIENCE = 20
"""How often, on average, a character may be read in vain."""
_OPENING = re.compile(r"[\[{]")
_ESCAPED = re.compile(r'["\\/\x00-\x1f]')
"""What JSON text may or has to spell otherwise than with `\\u`."""
_DIGITS = 4_000
"""Digits of a whole number that Python turns into text again."""


class Redaction:
    """The names of the fields, and what is left of texts and values without them. Case does not matter."""

    __slots__ = ("_escapable", "_names")

    def __init__(self, names: Iterable[str]) -> None:
        self._names: frozenset[str] = frozenset(clean(name).casefold() for name in names)
        self._escapable: bool = any(_ESCAPED.search(name) for name in self._names)

    def text(self, text: str) -> str:
        """Return a text in which no JSON object has values of the fields, wherever in the text it stands.

        Where there is nothing to leave out, it is the same text; an object that has something is written anew,
        compactly. What cannot be looked through, since it is nested too deeply, is left out whole.
        """
        if not self._may_have(text):
            return text
        body = text.strip()
        try:
            if body[:1] == '"':
                return self._quoted(text, body)
            return self._objects(text)
        except RecursionError:
            return REDACTED

    def _quoted(self, text: str, body: str) -> str:
        """JSON text whose value is a text."""
        try:
            inner: object = _decoder.decode(body)
        except ValueError:
            return self._objects(text)
        made = self.text(inner) if isinstance(inner, str) else inner
        return text if made == inner else clean(_encode(made))

    def _objects(self, text: str) -> str:
        kept: list[str] = []
        copied = looked = work = 0
        while (opening := _OPENING.search(text, looked)) is not None:
            start = opening.start()
            try:
                value, end = cast("tuple[JsonValue, int]", _decoder.raw_decode(text, start))
            except json.JSONDecodeError as error:
                # Brackets of no JSON are soon seen to be none; text that is made to be read over and over is not kept.
                work += error.pos - start
                if work > PATIENCE * len(text):
                    return REDACTED
                looked = start + 1
                continue
            made = self.value(value)
            if made is not value:
                kept += (text[copied:start], clean(_encode(made)))
                copied = end
            looked = end
        return "".join((*kept, text[copied:])) if kept else text

    def value(self, value: JsonValue) -> JsonValue:
        """Return JSON data without the values of the fields, text in it that is JSON too; itself where it has none.

        Raises:
            RecursionError: It is nested too deeply.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            made = {
                key: REDACTED if key.casefold() in self._names else self.value(item)
                for key, item in value.items()
            }
            return value if all(made[key] is item for key, item in value.items()) else made
        if isinstance(value, list):
            items = [self.value(item) for item in value]
            return value if all(mine is item for mine, item in zip(items, value, strict=True)) else items
        return value

    def message(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a message as JSON data; one that is the result of a tool without the values of the fields.

        Raises:
            RecursionError: Its metadata is nested too deeply.
        """
        if message.get("role") != "tool":
            return message
        metadata = self.value(message.get("metadata") or {})
        return {**message, "text": self.text(message["text"]), "metadata": metadata}

    def _may_have(self, text: str) -> bool:
        """Whether it is worth a look; a name may be spelled with escapes."""
        if "\\u" in text:
            return True
        if "{" not in text:
            return False
        if self._escapable and "\\" in text:
            return True
        lower = text.casefold()
        return any(name in lower for name in self._names)


def _whole(digits: str) -> int | str:
    return int(digits) if len(digits) <= _DIGITS else digits


def _real(digits: str) -> float | str:
    number = float(digits)
    return digits if math.isinf(number) else number


# Numbers that no number of ours can hold become text: what cannot be read would be let through.
_decoder = json.JSONDecoder(parse_int=_whole, parse_float=_real, strict=False)
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
