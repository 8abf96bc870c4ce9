"""1.4, 6.6: arguments are validated, refused with the place, and become text that comes back as it was."""

from __future__ import annotations

import enum
import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, computed_field, field_serializer

from overt import tool
from overt._schema import ArgumentsInvalid


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    name: str
    price: float = 1.0
    tags: frozenset[str] = frozenset()


@dataclass
class Point:
    x: int
    y: int = 0


@tool
def everything(
    z: int,
    text: str = "é",
    number: float = 2,
    flag: bool = False,
    item: Item | None = None,
    items: list[Item] = [],  # noqa: B006
    point: Point = Point(1),  # noqa: B008
    colour: Colour = Colour.RED,
    choice: Literal["a", "b", 3] = "a",
    names: set[str] = set(),  # noqa: B006
    pairs: dict[str, tuple[int, str]] = {},  # noqa: B006
    when: datetime | None = None,
    money: Decimal = Decimal("1.10"),
    wait: timedelta = timedelta(seconds=1),
    uid: UUID = UUID(int=0),  # noqa: B008
    free: JsonValue = None,
    path: Path = Path("a/b"),
    raw: bytes = b"",
    either: int | str | Item = 0,
) -> None: ...


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
free = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
items = st.fixed_dictionaries(
    {"name": texts},
    optional={"price": st.floats(allow_nan=False, allow_infinity=False), "tags": st.lists(texts)},
)
arguments = st.fixed_dictionaries(
    {"z": st.integers() | st.integers(-9, 9).map(str)},
    optional={
        "text": texts,
        "number": st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.booleans() | st.sampled_from(["yes", "off"]),
        "item": st.none() | items,
        "items": st.lists(items, max_size=2),
        "point": st.fixed_dictionaries({"x": st.integers(-9, 9)}, optional={"y": st.integers(-9, 9)}),
        "colour": st.sampled_from(["red", "blue"]),
        "choice": st.sampled_from(["a", "b", 3]),
        "names": st.lists(texts, max_size=4),
        "pairs": st.dictionaries(texts, st.tuples(st.integers(-9, 9), texts).map(list), max_size=2),
        "when": st.none()
        | st.sampled_from(["2024-01-02T03:04:05Z", "2024-01-02T03:04:05.5+02:00", 1700000000, 1.5]),
        "money": st.sampled_from(["1.10", 1.1, 3, "1E+3"]),
        "wait": st.sampled_from(["PT1.5S", 3, 0.25, "P3DT1H"]),
        "uid": st.uuids().map(str),
        "free": free,
        "path": texts,
        "raw": texts,
        "either": st.integers(-9, 9) | texts | items,
    },
)


@given(arguments)
def test_canonical_text_is_a_fixed_point_and_binds_to_the_same_values(given_: dict[str, Any]) -> None:
    once = everything.canonical(given_)
    assert everything.canonical(once) == once
    assert everything.canonical(json.loads(once)) == once
    assert everything.canonical(json.dumps(given_)) == once
    assert json.dumps(json.loads(once), sort_keys=True, ensure_ascii=False, separators=(",", ":")) == once
    assert set(json.loads(once)) == set(everything.input_schema["properties"])  # type: ignore[arg-type]
    assert everything.bind(once) == everything.bind(everything.canonical(once))


@tool
def flat(b: int, a: str = "", c: float = 0, d: list[int] = [], e: bool | None = None) -> None: ...  # noqa: B006


@given(
    st.fixed_dictionaries(
        {"b": st.integers()},
        optional={
            "a": st.text(st.characters(exclude_categories=["Cs"])),
            "c": st.floats(allow_nan=False, allow_infinity=False),
            "d": st.lists(st.integers()),
            "e": st.none() | st.booleans(),
        },
    )
)
def test_the_short_way_for_flat_arguments_is_canonical_too(given_: dict[str, Any]) -> None:
    once = flat.canonical(given_)
    assert flat.canonical(once) == once
    assert list(json.loads(once)) == sorted(json.loads(once))
    assert flat.bind(once)[1] == {"a": "", "c": 0.0, "d": [], "e": None, **given_}
    assert " " not in once.replace(given_.get("a", ""), "") or " " in given_.get("a", "")


@given(st.text(max_size=30) | free.map(json.dumps) | free.map(json.dumps).map(lambda t: t[:-1]))
def test_no_text_escapes_as_another_exception(text: str) -> None:
    for made in (everything, flat):
        try:
            out = made.canonical(text)
        except ArgumentsInvalid as error:
            str(error).encode()
        else:
            assert made.canonical(out) == out


def test_the_same_in_every_process() -> None:
    code = (
        "from overt import tool\n@tool\ndef f(names: set[str]) -> None: ...\n"
        "print(f.canonical({'names': ['c', 'a', 'b', 'é', 'dd']}))"
    )
    outs = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path), "PYTHONUTF8": "1"},
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert outs == {'{"names":["a","b","c","dd","é"]}\n'}


def places(made: Any, raw: Any) -> tuple[str, ...]:
    with pytest.raises(ArgumentsInvalid) as caught:
        made.canonical(raw)
    assert str(caught.value).startswith(f"invalid arguments for {made.name}:\n")
    return caught.value.places


def test_every_bad_place_is_named() -> None:
    found = places(
        everything,
        {
            "items": [{"name": 1}, {"name": "n", "extra": 1}],
            "point": {"y": 1},
            "colour": "green",
            "nope": 1,
            "number": "x",
        },
    )
    starts = {place.split(":")[0] for place in found}
    assert starts == {"z", "items.0.name", "items.1.extra", "point.x", "colour", "nope", "number"}
    assert "z: missing" in found
    assert "items.1.extra: unknown field" in found
    assert any(place.startswith("nope: unknown field; the fields are z, text, number") for place in found)


def test_many_bad_places_are_cut() -> None:
    found = places(flat, {"b": 1, "d": ["x"] * 500})
    assert len(found) == 500
    with pytest.raises(ArgumentsInvalid, match=r"… and 400 more$"):
        flat.canonical({"b": 1, "d": ["x"] * 500})


def test_extra_fields_follow_the_type_that_says_so() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        x: int

    @tool
    def t(o: Open) -> None: ...

    assert t.canonical('{"o":{"x":1,"y":[2]}}') == '{"o":{"x":1,"y":[2]}}'
    assert places(t, '{"o":{"x":1},"p":1}') == ("p: unknown field; the fields are o",)


def test_aliases_computed_and_inner_defaults_come_back() -> None:
    class M(BaseModel):
        inner: int = Field(default=1, alias="Inner")
        many: list[int] = Field(default_factory=list)

        @computed_field  # type: ignore[prop-decorator]
        @property
        def double(self) -> int:
            return self.inner * 2

    @tool
    def t(m: M, a: Annotated[int, Field(alias="A")] = 2) -> None: ...

    once = t.canonical('{"m":{"Inner":3},"A":4}')
    assert once == '{"A":4,"m":{"Inner":3,"many":[]}}'
    assert t.canonical(once) == once
    assert t.bind(once) == ((), {"m": M(Inner=3), "a": 4})


def test_what_json_does_not_keep_is_refused() -> None:
    class Hidden(BaseModel):
        x: int
        y: int = Field(default=0, exclude=True)

    class Rewritten(BaseModel):
        x: int

        @field_serializer("x")
        def rewrite(self, value: int) -> int:
            return value + 1

    @tool
    def growing(a: Annotated[str, AfterValidator(lambda s: s + "!")]) -> None: ...

    @tool
    def stripping(a: Annotated[str, AfterValidator(str.strip)]) -> None: ...

    @tool
    def hidden(h: Hidden) -> None: ...

    @tool
    def rewritten(r: Rewritten) -> None: ...

    assert "does not survive" in places(growing, {"a": "x"})[0]
    assert stripping.canonical({"a": " x "}) == '{"a":"x"}'
    assert hidden.canonical({"h": {"x": 1}}) == '{"h":{"x":1}}'
    assert places(hidden, {"h": {"x": 1, "y": 2}})[0].startswith("h: does not survive")
    assert places(rewritten, {"r": {"x": 1}})[0].startswith("r: does not survive")


def test_validators_that_raise_anything_are_an_argument_error() -> None:
    def explode(value: str) -> str:
        raise KeyError(value)

    @tool
    def t(a: Annotated[str, AfterValidator(explode)]) -> None: ...

    assert places(t, {"a": "x"}) == ("a validator failed: KeyError: 'x'",)


@pytest.mark.parametrize(
    "raw",
    ['{"free":NaN,"z":1}', '{"free":[Infinity],"z":1}', '{"free":-1e999,"z":1}', '{"number":NaN,"z":1}'],
)
def test_no_nan_in_text(raw: str) -> None:
    assert "not valid JSON" in places(everything, raw)[0]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("nan")], object(), {1: object()}])
def test_no_nan_and_nothing_foreign_in_a_mapping(value: object) -> None:
    assert places(everything, {"z": 1, "free": value})


def test_deep_nesting_is_an_argument_error() -> None:
    places(everything, '{"z":1,"free":' + "[" * 100_000 + "]" * 100_000 + "}")
    places(everything, '{"z":1,"free":' + "[" * 500 + "]" * 500 + "}")
    looped: list[object] = []
    looped.append(looped)
    places(everything, {"z": 1, "free": looped})


def test_words_that_look_like_nan_are_text() -> None:
    assert (
        flat.canonical({"b": 1, "a": "NaN and Infinity"})
        == '{"a":"NaN and Infinity","b":1,"c":0.0,"d":[],"e":null}'
    )


def test_huge_numbers_are_refused_or_kept() -> None:
    assert '"b":' + "1" * 4000 in flat.canonical('{"b":' + "1" * 4000 + "}")
    places(flat, '{"b":' + "1" * 5000 + "}")


def test_arguments_no_longer_fit() -> None:
    with pytest.raises(ArgumentsInvalid):
        flat.bind('{"gone":1}')
