"""JSON text that is the same for the same value, and values that come back from JSON as what they were."""

from __future__ import annotations

import base64
import json
import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, NoReturn, cast

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError
from pydantic_core import SchemaSerializer, to_jsonable_python
from typing_extensions import TypeForm

from overt._text import clean

__all__ = (
    "NotJson",
    "adapter",
    "dump_exact",
    "encode",
    "faithful",
    "jsonable",
    "load_exact",
    "parse",
    "settle",
)


class NotJson(TypeError):
    """A value has no JSON form, or would not come back from it; the message names the place and the type."""


NO_TIME = timedelta(0)

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode
_in_order = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encode(value: JsonValue) -> str:
    """Return compact JSON with sorted keys.

    Raises:
        ValueError: There is a NaN or an infinity in it.
        RecursionError: It is nested too deeply.
    """
    return _encode(value)


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the key {next(n for n in names if names.count(n) > 1)!r} stands twice in one object"
        )
    return made


def _constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:20]} is out of range")
    return number


_decode = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_number).decode


def parse(text: str) -> JsonValue:
    """Return what JSON `text` says; stricter than `json.loads`.

    Raises:
        ValueError: It is no JSON (`json.JSONDecodeError`), an object has a key twice, or a number is none.
        RecursionError: It is nested too deeply.
    """
    return cast("JsonValue", _decode(text))


@lru_cache(maxsize=256)
def _cached(annotation: object) -> TypeAdapter[Any]:
    return TypeAdapter(cast("TypeForm[Any]", annotation))


def adapter(annotation: object) -> TypeAdapter[Any]:
    """Return the adapter of a type; the same one again where the type is hashable.

    Raises:
        Exception: Whatever pydantic raises for a type it cannot handle.
    """
    try:
        hash(annotation)
    except TypeError:
        return TypeAdapter(cast("TypeForm[Any]", annotation))
    return _cached(annotation)


# ------------------------------------------------------------------ any value to JSON


def jsonable(value: object, place: str = "$") -> JsonValue:
    """Return `value` as JSON data: sets sorted, bytes as UTF-8 or else base64, text clean.

    Raises:
        NotJson: Something in it has no JSON form, or is NaN or infinite.
        RecursionError: It contains itself, or is nested too deeply.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return jsonable(value.value, place)
    if isinstance(value, str):
        return clean(str.__str__(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise NotJson(f"{place} is {value}: NaN and infinities are no JSON")
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(f"{place} is {value}: NaN and infinities are no JSON")
        return float(value)
    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return _object(cast("Mapping[object, object]", value), place, jsonable)
    if isinstance(value, (list, tuple, deque)):
        items = cast("Iterable[object]", value)
        return [jsonable(item, f"{place}[{index}]") for index, item in enumerate(items)]
    if isinstance(value, (set, frozenset)):
        members = cast("Iterable[object]", value)
        return sorted((jsonable(item, f"{place}[*]") for item in members), key=encode)
    serializer = None if isinstance(value, type) else getattr(value, "__pydantic_serializer__", None)
    if isinstance(serializer, SchemaSerializer):
        return _model(value, serializer, place)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: jsonable(getattr(value, f.name), f"{place}.{f.name}") for f in fields(value)}
    return _other(value, place)  # pyright: ignore[reportUnknownArgumentType]  # narrowed by is_dataclass


def _object(
    value: Mapping[object, object], place: str, write: Callable[[object, str], JsonValue]
) -> dict[str, JsonValue]:
    made: dict[str, JsonValue] = {}
    for key, item in value.items():
        name = clean(key) if type(key) is str else _key(key, place, write)
        if name in made:
            raise NotJson(f"{place} has two keys that are both {name!r} in JSON")
        made[name] = write(item, f"{place}.{name}")
    return made


def _key(key: object, place: str, write: Callable[[object, str], JsonValue]) -> str:
    data = write(key, f"a key of {place}")
    if isinstance(data, (list, dict)):
        raise NotJson(f"{place} has a key of type {_name(key)}, which JSON cannot have")
    return data if isinstance(data, str) else encode(data)


def _model(value: object, serializer: SchemaSerializer, place: str) -> JsonValue:
    try:
        data = serializer.to_python(value, mode="json")
    except (ValueError, TypeError):
        # Bytes that are no UTF-8, or a type pydantic does not know: the fields one by one say which.
        try:
            data = serializer.to_python(value)
        except (ValueError, TypeError) as error:
            raise NotJson(f"{place} of type {_name(value)} cannot be serialised: {error}") from error
        if type(data) is type(value):
            raise NotJson(f"{place} of type {_name(value)} cannot be serialised") from None
        return jsonable(data, place)
    return jsonable(settle(value, data, place), place)


def _other(value: object, place: str) -> JsonValue:
    if isinstance(value, datetime) and (value.utcoffset() or NO_TIME).seconds % 60:
        # pydantic drops the seconds of an offset, which would make it another time.
        return value.isoformat()
    try:
        data: object = to_jsonable_python(value)
    except (ValueError, TypeError) as error:
        raise NotJson(f"{place} is of type {_name(value)}, which has no JSON form") from error
    return jsonable(data, place)


def _name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def settle(value: object, data: object, place: str = "$") -> object:
    """Return `data`, the JSON that pydantic made of `value`, with everything that came from a set sorted.

    Raises:
        NotJson: pydantic wrote null for a NaN or an infinity.
    """
    if isinstance(value, float):
        if not math.isfinite(value) and (data is None or isinstance(data, float)):
            raise NotJson(f"{place} is {value}: NaN and infinities are no JSON")
        return data
    if isinstance(data, dict):
        made = cast("dict[str, object]", data)
        for key, item in _members(value, made):
            if key in made:
                made[key] = settle(item, made[key], f"{place}.{key}")
        return made
    if isinstance(data, list):
        items = cast("list[object]", data)
        if isinstance(value, (list, tuple, deque, set, frozenset)):
            values = list(cast("Iterable[object]", value))
            if len(values) == len(items):
                items = [
                    settle(v, d, f"{place}[{i}]") for i, (v, d) in enumerate(zip(values, items, strict=True))
                ]
        if isinstance(value, (set, frozenset)):
            return sorted(items, key=lambda item: encode(cast("JsonValue", item)))
        return items
    return data


def _members(value: object, data: Mapping[str, object]) -> Iterable[tuple[str, object]]:
    if isinstance(value, BaseModel):
        known = type(value).model_fields
        for name, item in value.__dict__.items():
            alias = known[name].serialization_alias if name in known else None
            yield (alias if alias is not None and alias in data else name), item
        yield from (value.__pydantic_extra__ or {}).items()
    elif isinstance(value, Mapping):
        mapping = cast("Mapping[object, object]", value)
        if len(mapping) == len(data):
            yield from zip(data, mapping.values(), strict=True)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((f.name, getattr(value, f.name, None)) for f in fields(value))


# ------------------------------------------------------------------ values that come back


def faithful(value: object, place: str = "$") -> JsonValue:
    """Return `value` as JSON data that says all of it: what reads it as the same type has the same value.

    `jsonable` is for readers: it writes bytes as base64, and masks what a type masks. This is for values that somebody
    takes back out.

    Raises:
        NotJson: It has no such form; the message names the place and the type.
        RecursionError: It contains itself, or is nested too deeply.
    """
    if value is None or isinstance(value, (str, int, float, Decimal)):
        return jsonable(value, place)
    if isinstance(value, Mapping):
        return _object(cast("Mapping[object, object]", value), place, faithful)
    if isinstance(value, (list, tuple, deque)):
        found = cast("Iterable[object]", value)
        return [faithful(item, f"{place}[{index}]") for index, item in enumerate(found)]
    if isinstance(value, (set, frozenset)):
        members = cast("Iterable[object]", value)
        return sorted((faithful(item, f"{place}[*]") for item in members), key=encode)
    try:
        return parse(dump_exact(value, type(value)))
    except NotJson as error:
        raise NotJson(place + str(error).removeprefix("$")) from error


def dump_exact(value: object, annotation: object = None) -> str:
    """Return JSON from which `load_exact` makes the same value again, mappings in the same order.

    Args:
        value: What to keep.
        annotation: The type it has; `None` where none is said: then it has to be JSON as it stands.

    Raises:
        NotJson: It would come back as something else; the message names the first place where.
    """
    try:
        if annotation is None:
            text = _in_order(_native(value, "$"))
        else:
            text = _in_order(
                settle(value, adapter(annotation).dump_python(value, mode="json", by_alias=True))
            )
        if clean(text) != text:
            raise NotJson(
                f"$ of type {_name(value)} has half of a surrogate pair in it, which no store can keep"
            )
        back = load_exact(text, annotation)
    except NotJson:
        raise
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(("$", *map(str, first["loc"])))
        raise NotJson(
            f"{path} of type {_name(value)} does not come back from JSON: {first['msg']}"
        ) from error
    except RecursionError:
        raise NotJson(f"$ of type {_name(value)} contains itself, or is nested too deeply") from None
    except Exception as error:  # pydantic and serialisers of user types raise what they like
        why = str(error).partition("\n")[0]
        raise NotJson(f"$ of type {_name(value)} has no JSON form: {why}") from error
    try:
        difference = _differs(value, back, "$")
    except Exception as error:  # so do comparisons of user types
        raise NotJson(f"$ of type {_name(value)} cannot be compared with what comes back: {error}") from error
    if difference is not None:
        hint = "; say its type as the return annotation" if annotation is None else ""
        raise NotJson(f"{difference}{hint}")
    return text


def load_exact(text: str, annotation: object = None) -> object:
    """Return the value whose text `dump_exact` made.

    Raises:
        ValidationError: The type has changed since, and refuses it.
    """
    if annotation is None:
        return parse(text)
    loaded: object = adapter(annotation).validate_json(text)
    return loaded


def _native(value: object, place: str) -> JsonValue:
    if value is None or type(value) in (str, int, bool):
        return cast("JsonValue", value)
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is list:
        return [_native(v, f"{place}[{i}]") for i, v in enumerate(cast("list[object]", value))]
    if type(value) is dict:
        made: dict[str, JsonValue] = {}
        for key, item in cast("dict[object, object]", value).items():
            if type(key) is not str:
                raise NotJson(f"{place} has a key of type {_name(key)}, which JSON turns into text")
            made[key] = _native(item, f"{place}.{key}")
        return made
    kind = "a NaN or an infinity" if type(value) is float else f"of type {_name(value)}"
    raise NotJson(f"{place} is {kind}, which JSON does not have; say its type as the return annotation")


def _differs(value: object, back: object, place: str) -> str | None:
    """Return the first place where the two differ in type or value, or `None`."""
    if type(value) is not type(back):
        return f"{place} is of type {_name(value)} and comes back as {_name(back)}"
    for mine, other, there in _pairwise(value, back, place):
        if (found := _differs(mine, other, there)) is not None:
            return found
    if isinstance(value, (datetime, time)) and isinstance(back, (datetime, time)):
        if value.utcoffset() != back.utcoffset():
            return f"{place} comes back in another time zone"
        if value.tzinfo is not None and value.tzinfo.utcoffset(None) is None:
            return f"{place} comes back with an offset in place of the time zone {value.tzinfo}"
        if value.fold != back.fold:
            return f"{place} comes back without its fold"
    if value != back:
        return f"{place} of type {_name(value)} comes back unequal"
    return None


def _pairwise(value: object, back: object, place: str) -> Iterable[tuple[object, object, str]]:
    for name in _attributes(value):
        yield getattr(value, name, None), getattr(back, name, None), f"{place}.{name}"
    if isinstance(value, dict) and isinstance(back, dict):
        mine, other = cast("dict[object, object]", value), cast("dict[object, object]", back)
        # By key and not by order: the text is sorted. A key that is gone shows when the whole is compared.
        yield from ((item, other[key], f"{place}.{key}") for key, item in mine.items() if key in other)
        yield from _same(mine, other, f"a key of {place}")
    elif isinstance(value, (set, frozenset)) and isinstance(back, (set, frozenset)):
        yield from _same(cast("Set[object]", value), cast("Set[object]", back), f"{place}[*]")
    elif isinstance(value, (list, tuple, deque)) and isinstance(back, (list, tuple, deque)):
        pairs = zip(cast("Iterable[object]", value), cast("Iterable[object]", back), strict=False)
        yield from ((left, right, f"{place}[{index}]") for index, (left, right) in enumerate(pairs))


def _same(
    mine: Iterable[object], other: Iterable[object], place: str
) -> Iterable[tuple[object, object, str]]:
    """Pair what is equal: `True` and `1` are, and are not the same."""
    theirs = {item: item for item in other}
    yield from ((item, theirs[item], place) for item in mine if item in theirs)


def _attributes(value: object) -> Iterable[str]:
    if isinstance(value, defaultdict):
        return ("default_factory",)
    if isinstance(value, BaseModel):
        return list(value.__dict__)
    if is_dataclass(value) and not isinstance(value, type):
        return [f.name for f in fields(value)]
    return ()
