"""Facts as JSON text and back.

A record is `{"v": 3, "sum": checksum, "at": microseconds, "facts": [...]}`. The checksum is the CRC-32 of what stands
behind it, as eight hex digits, so that a byte that was changed is not taken for what happened; from schema 3 on it is
that of `v` too. `v` is the schema of all facts of the record; records of an earlier one are brought to the present one
when they are read (`overt.journal.upcasts`). A fact is an object with its `kind`; fields that have their default are
left out, and so is `handle` where it is the one of the fact before. Field names are the ones in `overt.core.facts`,
which is therefore the description of the format.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any, cast

from pydantic_core import from_json, to_json

from overt.core import facts as f
from overt.errors import JournalCorrupt, UnsupportedSchema
from overt.journal.record import Record
from overt.journal.upcasts import UPCASTS, upcast

__all__ = ("SCHEMA", "decode", "encode", "plain_fields", "record", "seal")

SCHEMA = 3
"""Version of the records written. History: 1, the first; 2, records with a checksum; 3, attempts at a model, money."""

CHECKED = 2
"""The first schema whose records have a checksum."""

_KIND = {cls: kind for kind, cls in f.FACTS.items()}
_MISSING = object()
_strict = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _shape(cls: type[Any]) -> tuple[tuple[int, str, object], ...]:
    """Index, name and default of every field of a named tuple."""
    defaults: dict[str, object] = cls._field_defaults
    return tuple((at, name, defaults.get(name, _MISSING)) for at, name in enumerate(cls._fields))


_SHAPES: dict[type[Any], tuple[tuple[int, str, object], ...]] = {
    cls: _shape(cls)
    for cls in (*f.FACTS.values(), f.Caps, f.CallSpec, f.ErrorSpec, f.Question, f.RulingSpec, f.Said)
}


def plain_fields(value: tuple[Any, ...]) -> dict[str, Any]:
    """The fields of a named tuple that differ from their defaults."""
    made: dict[str, Any] = {}
    for at, name, default in _SHAPES[type(value)]:
        item = value[at]
        if item is not default and item != default:
            made[name] = _plain(item)
    return made


def _plain(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    items = cast("tuple[object, ...]", value)
    if isinstance(value, f.Tokens):
        if value.written:
            return list(items)
        return list(items[:5]) if value.total or value.cached or value.reasoning else list(items[:2])
    return plain_fields(items) if type(items) in _SHAPES else [_plain(item) for item in items]


def encode(at: int, facts: Sequence[f.Fact]) -> str:
    """Return the text of one record."""
    rows: list[dict[str, Any]] = []
    handle: str | None = None
    for fact in facts:
        row = {"kind": _KIND[type(fact)], **plain_fields(fact)}
        here = row.get("handle")
        if here is not None and here == handle:
            del row["handle"]
        elif here is not None:
            handle = here
        rows.append(row)
    data = to_json({"at": at, "facts": rows})
    if b"NaN" in data or b"Infinity" in data:
        # Either a text says so, or a number is none; the strict encoder refuses the number.
        data = _strict({"at": at, "facts": rows}).encode()
    return seal(data, version=SCHEMA)


def seal(data: bytes, *, version: int) -> str:
    """Return the text of a record: its JSON object, with schema and checksum put in front."""
    return f'{{"v":{version},"sum":"{_sum(data, version):08x}",{data[1:].decode()}'


def _sum(data: bytes, version: int) -> int:
    """Return the checksum of a record: from schema 3 on of its schema, too, where one letter stands for all."""
    return zlib.crc32(data, version if version > CHECKED else 0)


_WHOLE = {
    cls: tuple(
        name
        for name, kind in cls.__annotations__.items()
        if getattr(kind, "__forward_arg__", kind) in ("int", int)
    )
    for cls in f.FACTS.values()
}


def _check(fact: f.Fact) -> None:
    """Refuse what would only be found out when it is used: a number that is none, JSON inside that is none."""
    for name in _WHOLE[type(fact)]:
        if type(getattr(fact, name)) is not int:
            raise ValueError(f"{name} is no whole number")
    if isinstance(fact, f.CallAsked):
        from_json(fact.question.data)
        if fact.question.schema is not None:
            from_json(fact.question.schema)
    elif isinstance(fact, f.AnswerGiven) and fact.data is not None:
        from_json(fact.data)
    elif isinstance(fact, (f.WakeAsked, f.QuestionUpgraded)):
        from_json(fact.question.data)
    elif isinstance(fact, f.ArgumentsUpgraded):
        from_json(fact.before)
        from_json(fact.after)
    elif isinstance(fact, f.Overridden) and fact.messages is not None:
        from_json(fact.messages)


def _calls(rows: list[dict[str, Any]]) -> tuple[f.CallSpec, ...]:
    for row in rows:
        if "ruling" in row:
            row["ruling"] = _ruling(row["ruling"])
    return tuple(f.CallSpec(**row) for row in rows)


def _ruling(row: dict[str, Any]) -> f.RulingSpec:
    if "question" in row:
        row["question"] = f.Question(**row["question"])
    if "said" in row:
        row["said"] = tuple(f.Said(**said) for said in row["said"])
    return f.RulingSpec(**row)


def _rulings(rows: list[dict[str, Any]]) -> tuple[f.RulingSpec, ...]:
    return tuple(_ruling(row) for row in rows)


_NESTED: dict[type, dict[str, Callable[[Any], Any]]] = {
    f.HandleSpawned: {"caps": lambda row: f.Caps(**row)},
    f.BudgetRaised: {"caps": lambda row: f.Caps(**row)},
    f.ModelReplied: {"calls": _calls, "tokens": lambda row: f.Tokens(*row)},
    f.ModelFailed: {"error": lambda row: f.ErrorSpec(**row), "tokens": lambda row: f.Tokens(*row)},
    f.CallReturned: {"error": lambda row: f.ErrorSpec(**row)},
    f.WakeSettled: {"error": lambda row: f.ErrorSpec(**row)},
    f.CallAsked: {"question": lambda row: f.Question(**row)},
    f.WakeAsked: {"question": lambda row: f.Question(**row)},
    f.QuestionUpgraded: {"question": lambda row: f.Question(**row)},
    f.ChecksAsked: {"calls": tuple},
    f.ChecksDone: {"rulings": _rulings},
    f.TextChecked: {"ruling": _ruling},
    f.Overridden: {"tools": tuple},
    f.ModelSkipped: {"error": lambda row: f.ErrorSpec(**row)},
}


_SUM = re.compile(r'\{"v":\d+,"sum":"([0-9a-f]{8})",')


def _check_sum(text: str, version: int, where: str) -> None:
    found = _SUM.match(text)
    if found is None:
        raise JournalCorrupt(f"{where}: the record has no checksum where it should begin with one")
    data = b"{" + text[found.end() :].encode("utf-8", "surrogatepass")
    actual = _sum(data, version)
    if actual != int(found[1], 16):
        raise JournalCorrupt(
            f"{where}: the record is not as it was written: its checksum is {actual:08x} and should be "
            f"{found[1]}. Restore it from a backup"
        )


def decode(run_id: str, rec: Record) -> tuple[int, list[f.Fact]]:
    """Return time (microseconds since 1970) and facts of a record, of this schema or an earlier one.

    Raises:
        JournalCorrupt: The record is damaged; names run, position and the kind of the fact.
        UnsupportedSchema: A newer release wrote it.
    """
    where = f"run {run_id}, position {rec.position}"
    try:
        row = from_json(rec.text)
        version = row["v"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise JournalCorrupt(f"{where}: the record is no journal record ({type(error).__name__})") from error
    if type(version) is int and CHECKED <= version <= SCHEMA:
        _check_sum(rec.text, version, where)
    elif type(version) is int and 0 < version < CHECKED and "sum" in row:
        raise JournalCorrupt(f"{where}: the record has a checksum, which one of schema {version!r} has not")
    if version != SCHEMA or type(version) is not int:
        row = _of_this_schema(where, row, version)
    facts: list[f.Fact] = []
    handle: str | None = None
    kind: Any = None
    try:
        for fields in row["facts"]:
            kind = None
            kind = fields.pop("kind")
            cls = f.FACTS[kind]
            if "handle" in cls._fields:
                handle = fields.setdefault("handle", handle)
                if handle is None:
                    raise KeyError("handle")
            for name, build in _NESTED.get(cls, {}).items():
                if fields.get(name) is not None:
                    fields[name] = build(fields[name])
            fact = cls(**fields)
            _check(fact)
            facts.append(fact)
        kind = None
        at = row["at"]
        if type(at) is not int:
            raise TypeError(f"at is {at!r}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = "a fact" if kind is None else f"a fact of kind {kind!r:.80}"
        if isinstance(kind, str) and kind not in f.FACTS:
            raise JournalCorrupt(f"{where}: {what} cannot be read: there is no such kind") from error
        raise JournalCorrupt(f"{where}: {what} cannot be read ({type(error).__name__}: {error})") from error
    if len(facts) != rec.count:
        raise JournalCorrupt(f"{where}: the record holds {len(facts)} facts, the store says {rec.count}")
    return at, facts


def _of_this_schema(where: str, row: dict[str, Any], version: object) -> dict[str, Any]:
    """Bring a record of another schema to this one."""
    if type(version) is not int or version < min(UPCASTS, default=SCHEMA):
        raise JournalCorrupt(f"{where}: the record has schema {version!r}, which no release has written")
    if version > SCHEMA:
        raise UnsupportedSchema(
            f"{where}: the record has schema {version!r}, this release reads up to {SCHEMA}; use a newer overt"
        )
    try:
        return upcast(row, to=SCHEMA, upcasts=UPCASTS)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise JournalCorrupt(
            f"{where}: the record of schema {version} cannot be brought to schema {SCHEMA} "
            f"({type(error).__name__}: {error})"
        ) from error


def _encode_payload(payload: object) -> str:
    at, facts = cast("tuple[int, Sequence[f.Fact]]", payload)
    return encode(at, facts)


def record(position: int, at: int, facts: Sequence[f.Fact]) -> Record:
    """Return the facts of one input as a record that begins at `position`."""
    return Record(position, len(facts), payload=(at, facts), encode=_encode_payload)
