"""Bringing records that earlier releases wrote to the present schema, before facts are made of them.

An upcast takes a record as its JSON says, of one schema, and returns it as the next schema has it. It sees that record
and nothing else. It keeps the number of facts, because positions in a journal are what readers go on from, and it
names no import path: a journal is read without the code that wrote it.

To change the format after a release: raise `SCHEMA` in `overt.journal.codec`, add the upcast from the schema before to
`UPCASTS`, and write golden journals of the new schema; those of earlier ones stay as they are and are read through it.
Where facts and fields are only added it is `same`: a release that does not know them then refuses the journal as newer,
and does not take it for damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

__all__ = ("UPCASTS", "Upcast", "each", "same", "upcast")

Upcast = Callable[[dict[str, Any]], dict[str, Any]]


def _checksums(row: dict[str, Any]) -> dict[str, Any]:
    """From 1 to 2: nothing but a checksum, which is looked at in the text."""
    return {**row, "v": 2}


def same(row: dict[str, Any]) -> dict[str, Any]:
    """Change nothing: the next schema only has more."""
    return row


UPCASTS: Mapping[int, Upcast] = MappingProxyType({1: _checksums, 2: same})
"""What leads from a schema to the next, by the schema it takes: one for every schema before the present one."""


def upcast(row: dict[str, Any], *, to: int, upcasts: Mapping[int, Upcast]) -> dict[str, Any]:
    """Return a record as schema `to` has it, by one upcast after the other.

    Args:
        row: The record, with its `v`.
        to: The schema that is wanted, not below the record's.
        upcasts: As `UPCASTS`.

    Raises:
        KeyError: There is no upcast from the record's schema, or from one on the way.
        ValueError: An upcast gave another number of facts.
    """
    version: int = row["v"]
    count = len(row["facts"])
    while version < to:
        row = upcasts[version](row)
        version += 1
        if len(row["facts"]) != count:
            raise ValueError(f"the upcast to schema {version} made {len(row['facts'])} facts of {count}")
        row["v"] = version
    return row


def each(kind: str, change: Callable[[dict[str, Any]], None]) -> Upcast:
    """Return the upcast that changes the facts of one kind where they stand.

    `change` may rename the kind too. A fact that has no `handle` in it has the one of the fact before.
    """

    def cast(row: dict[str, Any]) -> dict[str, Any]:
        for fact in row["facts"]:
            if fact["kind"] == kind:
                change(fact)
        return row

    return cast
