"""Values that are kept by one process and come back in another: the agents of both, and the other process.

    python -m tests.field.values FILE

It answers what the run in FILE asks, compares whatever comes back with what was kept, and says what it has seen.
"""

from __future__ import annotations

import enum
import json
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Generic, TypeVar
from uuid import UUID

import anyio
from pydantic import BaseModel

from overt import Agent, Answer, Runtime, ToolContext, tool
from overt.stores import SQLiteStore, Store
from overt.testing import MockModel, Reply, call, say

T = TypeVar("T")
RUN = "values"


class Outer:
    class Colour(enum.Enum):
        RED = "red"


class Page(BaseModel, Generic[T]):
    items: list[T]


@dataclass
class Point:
    x: int
    tags: set[str]
    seen: int = field(default=0, init=False)


@dataclass
class Spot:
    x: int
    tags: set[str]


AWARE = datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=2)))
VALUES: dict[str, tuple[Any, Any]] = {
    "bytes": (b"a\x00b\xc3\xa9", bytes),
    "aware": (AWARE, datetime),
    "utc": (datetime(2024, 1, 2, tzinfo=UTC), datetime),
    "naive": (datetime(2024, 1, 2, 3), datetime),
    "date": (date(1, 1, 1), date),
    "time": (time(1, 2, 3, 4), time),
    "timedelta": (timedelta(days=-1, microseconds=7), timedelta),
    "decimal": (Decimal("1.10"), Decimal),
    "great": (Decimal("1E+400"), Decimal),
    "uuid": (UUID(int=5), UUID),
    "enum": (Outer.Colour.RED, Outer.Colour),
    "dataclass": (Point(1, {"b", "a"}), Point),
    "generic": (Page[Outer.Colour](items=[Outer.Colour.RED]), Page[Outer.Colour]),
    "nested": ({"a": [Page[Decimal](items=[Decimal("1.0")])]}, dict[str, list[Page[Decimal]]]),
    "defaultdict": (defaultdict(int, {"b": 1, "a": 2}), defaultdict[str, int]),
    "set": ({3, 1, 2}, set[int]),
    "frozenset": (frozenset({"b", "a"}), frozenset[str]),
    "tuple": ((1, "a", None), tuple[int, str, None]),
    "ordered": ({"b": 1, "a": 2}, dict[str, int]),
    "keys": ({2: "b", 1: "a"}, dict[int, str]),
    "text": ("a\x00\u2028😀e\u0301\ufffe", str),
    "number": (0.1 + 0.2, float),
    "small": (5e-324, float),
    "long": (2**70, int),
}


def same(value: Any, back: Any, *, ordered: bool = True) -> bool:
    """Whether two values are equal and of one type, mappings in one order."""
    if type(value) is not type(back) or value != back:
        return False
    return not (ordered and isinstance(value, dict)) or list(value) == list(back)


class Book:
    """What one process does and sees."""

    def __init__(self, *, second: bool) -> None:
        self.second = second
        self.seen: list[str] = []

    def note(self, what: str, name: str, value: object) -> None:
        # An answer is the same whoever writes it: its keys are sorted.
        assert same(VALUES[name][0], value, ordered=what == "once"), f"{what} {name}: {value!r}"
        self.seen.append(f"{what} {name}")


@tool
async def keep(ctx: ToolContext[Book], name: str) -> Any:
    """Keep a value, ask for it, and return it."""
    value, annotation = VALUES[name]

    async def fn() -> Any:
        assert not ctx.deps.second, "it was kept by the other process"
        return value

    fn.__annotations__["return"] = annotation
    ctx.deps.note("once", name, await ctx.once(name, fn))
    answer = await ctx.ask(f"{name}?", answer_type=annotation, data={"value": value})
    ctx.deps.note("answer", name, answer.data)
    return value


@tool
async def take(
    ctx: ToolContext[Book],
    when: datetime,
    naive: datetime,
    day: date,
    span: timedelta,
    amount: Decimal,
    id: UUID,
    colour: Outer.Colour,
    tags: set[str],
    counts: defaultdict[str, int],
    page: Page[Outer.Colour],
    spot: Spot,
    raw: bytes,
    text: str,
) -> str:
    """Ask with arguments of every kind."""
    given = [when, naive, day, span, amount, id, colour, sorted(tags), counts, page, spot, raw, text]
    ctx.deps.seen.append(f"arguments {given!r} {json.dumps(ctx.call.arguments)}")
    answer = await ctx.ask("take?")
    return f"{answer.ok}"


ARGUMENTS: dict[str, Any] = {
    "when": "2024-01-02T03:04:05.000006+02:00", "naive": "2024-01-02T03:00:00", "day": "0001-01-01", "span": "-PT1S",
    "amount": "1.10", "id": str(UUID(int=5)), "colour": "red", "tags": ["b", "a"], "counts": {"b": 1, "a": 2},
    "page": {"items": ["red"]}, "spot": {"x": 1, "tags": ["z"]}, "raw": "a\x00é", "text": "a\x00\u2028😀",
}  # fmt: skip
FIRST: list[Reply] = [[*(call("keep", name=name) for name in VALUES), call("take", **ARGUMENTS)], say("end")]
KEEPER = Agent("keeper", does="keeps", tools=[keep, take], model=MockModel(FIRST), deps_type=Book)


open_store: Callable[[str], Store] = SQLiteStore


async def main(*given: str) -> None:
    """Answer the run, and say what came back."""
    (path,) = given
    store, book = open_store(path), Book(second=True)
    runtime = await Runtime.open(KEEPER, RUN, store=store, deps=book)
    answers: list[Answer[Any]] = []
    for request in runtime.pendings():
        name = request.prompt.removesuffix("?")
        print(f"data {json.dumps(request.data)}")
        answers.append(Answer[Any](id=request.id, ok=True, data=VALUES[name][0] if name in VALUES else None))
    result = await runtime.resume(answers)
    print("\n".join(book.seen))
    print(f"{result.status} {result.text}")
    await store.close()


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
