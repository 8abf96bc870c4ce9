"""B023: a kept value comes back equal and of the same type, or keeping it failed and says where."""

from __future__ import annotations

import enum
import json
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Generic, TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from overt._canonical import NotJson, dump_exact, load_exact

T = TypeVar("T")


class Outer:
    class Colour(enum.Enum):
        RED = "red"


class Page(BaseModel, Generic[T]):
    items: list[T]
    secret: SecretStr = SecretStr("")


@dataclass
class NonInit:
    x: int
    y: int = field(default=0, init=False)


@dataclass
class Point:
    x: int
    tags: set[str]


PLUS2 = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (Outer.Colour.RED, Outer.Colour),
        (Page[int](items=[1]), Page[int]),
        (Page[Outer.Colour](items=[Outer.Colour.RED]), Page[Outer.Colour]),
        ({"a", "b"}, set[str]),
        (Decimal("1.10"), Decimal),
        (datetime(2024, 1, 2, tzinfo=UTC), datetime),
        (datetime(2024, 1, 2, tzinfo=PLUS2), datetime),
        (defaultdict(int, {"a": 1}), defaultdict[str, int]),
        ((1, "a"), tuple[int, str]),
        ([Point(1, {"b", "a"})], list[Point]),
        (UUID(int=1), UUID | None),
        (None, int | None),
        (b"abc", bytes),
        (NonInit(1), NonInit),
        ({"a": 1.0}, dict[str, float]),
        ({1: "a"}, dict[int, str]),
        ({"a": [1, 1.5, True, None, "x"]}, None),
        ({"a": [1, {"b": "x"}]}, dict[str, Any]),
        (5, Any),
    ],
)
def test_what_comes_back(value: object, annotation: object) -> None:
    back = load_exact(dump_exact(value, annotation), annotation)
    assert back == value
    assert type(back) is type(value)


def non_init() -> NonInit:
    made = NonInit(1)
    made.y = 2
    return made


@pytest.mark.parametrize(
    ("value", "annotation", "place"),
    [
        (Outer.Colour.RED, None, r"\$ is of type .*Outer\.Colour"),
        ({"a": {1, 2}}, None, r"\$\.a is of type set"),
        ([(1, 2)], None, r"\$\[0\] is of type tuple"),
        ({"a": Decimal(1)}, None, r"\$\.a is of type decimal\.Decimal"),
        ({1: "a"}, None, r"\$ has a key of type int"),
        (float("nan"), None, r"\$ is a NaN"),
        (float("nan"), float, r"\$"),
        ({"a": float("inf")}, dict[str, float], r"\$\.a"),
        (datetime(2024, 1, 1, tzinfo=UTC), None, r"\$ is of type datetime"),
        (non_init(), NonInit, r"\$(\.y)? .*come.* back"),
        ({"a": (1, 2)}, dict[str, Any], r"\$\.a is of type tuple and comes back as list"),
        (
            defaultdict(int, {"a": 1}),
            dict[str, int],
            r"\$ is of type collections\.defaultdict and comes back as dict",
        ),
        (Page[int](items=[1], secret=SecretStr("s")), Page[int], r"\$\.secret"),
        (True, int, r"\$ is of type bool"),
        (object(), object, r"\$"),
        ("x", int, r"\$"),
        (b"\xff", bytes, r"\$"),
        ("\ud800", None, r"\$ of type str has half of a surrogate"),
        ("\ud800", str, r"\$"),
    ],
)
def test_what_does_not_is_refused_by_place(value: object, annotation: object, place: str) -> None:
    with pytest.raises(NotJson, match=place):
        dump_exact(value, annotation)


def test_a_value_that_contains_itself() -> None:
    looped: list[object] = []
    looped.append(looped)
    with pytest.raises(NotJson, match="contains itself"):
        dump_exact(looped)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(json_values)
def test_every_json_value_comes_back(value: object) -> None:
    text = dump_exact(value)
    assert json.loads(text) == value
    assert load_exact(text) == value
