"""A typed answer is validated, becomes text that is the same for the same answer, and comes back as what it was."""

from __future__ import annotations

import enum
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NewType, NotRequired, TypeVar, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    RootModel,
    SecretStr,
    StringConstraints,
    TypeAdapter,
    computed_field,
    field_serializer,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from overt import DefinitionError
from overt._output import FINAL, OutputInvalid, OutputSpec

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Size(enum.StrEnum):
    S = "s"


class Item(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str
    price: float = 1.0
    tags: frozenset[str] = frozenset()


class Report(BaseModel):
    title: str = Field(alias="Title", description="What it is called.")
    items: list[Item] = []
    best: Item | None = None
    when: datetime | None = None
    money: Decimal = Decimal("1.10")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def count(self) -> int:
        return len(self.items)

    @field_validator("title")
    @classmethod
    def stripped(cls, value: str) -> str:
        return value.strip()


class Span(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def ordered(self) -> Span:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: int | None = None


class Node(BaseModel):
    value: int
    children: list[Node] = []


@dataclass
class Point:
    x: int
    y: int = 0
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Line:
    start: Point
    end: Point | None = None


class Whole(TypedDict):
    a: int
    b: NotRequired[str]


class Part(TypedDict, total=False):
    c: int
    d: Whole


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


UserId = NewType("UserId", int)
Short = Annotated[str, StringConstraints(max_length=20)]
Pet = Annotated[Cat | Dog, Field(discriminator="kind")]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
ints = st.integers(-(10**20), 10**20)
floats = st.floats(allow_nan=False, allow_infinity=False)
when = st.sampled_from(["2024-01-02T03:04:05Z", "2024-01-02T03:04:05.5+02:00", 1700000000, 1.5])
money = st.sampled_from(["1.10", 1.1, 3, "1E+3"])
items = st.fixed_dictionaries({"name": texts}, optional={"price": floats, "tags": st.lists(texts)})
reports = st.fixed_dictionaries(
    {"Title": texts},
    optional={
        "items": st.lists(items, max_size=2),
        "best": st.none() | items,
        "when": st.none() | when,
        "money": money,
    },
)
points = st.fixed_dictionaries(
    {"x": ints | st.integers(-9, 9).map(str)}, optional={"y": ints, "names": st.lists(texts, max_size=2)}
)
wholes = st.fixed_dictionaries({"a": ints}, optional={"b": texts})
pets = st.fixed_dictionaries({"kind": st.just("cat")}, optional={"lives": ints}) | st.fixed_dictionaries(
    {"kind": st.just("dog"), "name": texts}
)
nodes = st.recursive(
    st.fixed_dictionaries({"value": ints}),
    lambda inner: st.fixed_dictionaries({"value": ints, "children": st.lists(inner, max_size=2)}),
    max_leaves=4,
)
free = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)

OBJECTS: list[tuple[object, st.SearchStrategy[Any]]] = [
    (Report, reports),
    (Item, items),
    (Span, st.tuples(ints, ints).map(lambda p: {"low": min(p), "high": max(p)})),
    (Page[int], st.fixed_dictionaries({"items": st.lists(ints)}, optional={"next": st.none() | ints})),
    (Page[Item], st.fixed_dictionaries({"items": st.lists(items, max_size=2)})),
    (Node, nodes),
    (Point, points),
    (Line, st.fixed_dictionaries({"start": points}, optional={"end": st.none() | points})),
    (Whole, wholes),
    (Part, st.fixed_dictionaries({}, optional={"c": ints, "d": wholes})),
    (Annotated[Cat, Field(description="The cat.")], st.fixed_dictionaries({}, optional={"lives": ints})),
]
OTHERS: list[tuple[object, st.SearchStrategy[Any]]] = [
    (Report | Point, reports | points),
    (Item | Whole | None, items | wholes | st.none()),
    (Pet, pets),
    (list[Pet], st.lists(pets, max_size=3)),
    (Literal["a", 3, True, None], st.sampled_from(["a", 3, True, None])),
    (Colour, st.sampled_from(["red", "blue"])),
    (Level, st.sampled_from([1, 2])),
    (Size, st.just("s")),
    (int, ints | st.integers(-9, 9).map(str)),
    (float, floats | st.integers(-9, 9)),
    (bool, st.booleans() | st.sampled_from(["yes", "off", 1, 0])),
    (str, texts),
    (Short, texts),
    (UserId, ints),
    (None, st.none()),
    (Decimal, money),
    (datetime, when),
    (timedelta, st.sampled_from(["PT1.5S", 3, 0.25, "P3DT1H"])),
    (UUID, st.uuids().map(str)),
    (Path, texts),
    (bytes, texts),
    (list[int], st.lists(ints)),
    (set[str], st.lists(texts)),
    (dict[str, list[Item]], st.dictionaries(texts, st.lists(items, max_size=2), max_size=2)),
    (dict[int, str], st.dictionaries(st.integers(-9, 9).map(str), texts)),
    (tuple[int, str], st.tuples(ints, texts).map(list)),
    (tuple[int, ...], st.lists(ints)),
    (int | None, ints | st.none()),
    (int | str, ints | texts),
    (int | float | bool, ints | floats | st.booleans()),
    (RootModel[list[int]], st.lists(ints)),
    (JsonValue, free),
    (Any, free),
]
SPECS = {id(kind): OutputSpec(kind, where="agent 'a'") for kind, _ in OBJECTS + OTHERS}


@st.composite
def _answers(draw: st.DrawFn) -> tuple[object, OutputSpec, Any, Any]:
    kind, values = draw(st.sampled_from(OBJECTS + OTHERS))
    spec = SPECS[id(kind)]
    output = draw(values)
    return kind, spec, output, {"value": output} if spec.wrapped else output


@given(_answers())
def test_what_canonical_writes_load_reads(given_: tuple[object, OutputSpec, Any, Any]) -> None:
    kind, spec, output, raw = given_
    expected = TypeAdapter[Any](cast("Any", kind)).validate_json(json.dumps(output))
    text = spec.canonical(raw)
    loaded = spec.load(text)
    assert loaded == expected
    assert type(loaded) is type(expected)
    assert spec.canonical(json.dumps(raw)) == text
    assert spec.canonical(f"```json\n{json.dumps(raw, indent=2)}\n```\n") == text
    assert spec.fits(json.dumps(output)) == text
    assert spec.fits(text) == text
    assert json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False, separators=(",", ":")) == text


@given(st.text(max_size=30) | free.map(json.dumps) | free.map(json.dumps).map(lambda t: t[:-1]))
def test_no_text_leaves_as_another_exception(text: str) -> None:
    for kind in (Report, Node, Part, Any, Pet):
        spec = SPECS[id(kind)]
        for read in (spec.canonical, spec.fits):
            try:
                out = read(text)
            except OutputInvalid as error:
                str(error).encode()
            else:
                assert spec.fits(out) == out
                spec.load(out)


@pytest.mark.parametrize("kind", [kind for kind, _ in OBJECTS], ids=str)
def test_what_is_an_object_is_given_as_it_is(kind: object) -> None:
    spec = SPECS[id(kind)]
    assert not spec.wrapped
    assert spec.schema["type"] == "object"
    assert spec.schema["additionalProperties"] is False


@pytest.mark.parametrize("kind", [kind for kind, _ in OTHERS], ids=str)
def test_everything_else_is_wrapped(kind: object) -> None:
    spec = SPECS[id(kind)]
    assert spec.wrapped
    assert spec.schema["type"] == "object"
    assert spec.schema["required"] == ["value"]
    assert list(spec.schema["properties"]) == ["value"]  # type: ignore[arg-type]


def test_the_schema_says_what_the_type_says() -> None:
    spec = SPECS[id(Report)]
    properties: Any = spec.schema["properties"]
    assert list(properties) == ["Title", "items", "best", "when", "money"]
    assert properties["Title"] == {"type": "string", "description": "What it is called."}
    assert spec.schema["required"] == ["Title"]
    assert spec.spec.name == FINAL == "final_result"
    assert spec.spec.input_schema == spec.schema
    assert spec.spec.description
    json.dumps(spec.schema)


def test_a_recursive_type_has_its_object_at_the_root() -> None:
    schema: Any = SPECS[id(Node)].schema
    assert "$ref" not in schema
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert schema["$defs"]["Node"]["properties"]["value"] == {"type": "integer"}


def test_numbers_are_written_one_way_whatever_is_around_them() -> None:
    assert OutputSpec(float, where="x").canonical({"value": 6e-8}) == "6e-08"
    assert OutputSpec(list[float | str], where="x").canonical({"value": [6e-8]}) == "[6e-08]"


def test_every_object_that_is_loaded_is_new() -> None:
    spec = SPECS[id(Report)]
    text = spec.canonical({"Title": "t", "items": [{"name": "n"}]})
    one, two = spec.load(text), spec.load(text)
    assert isinstance(one, Report)
    assert isinstance(two, Report)
    one.items.append(Item(name="x"))
    assert len(two.items) == 1
    assert spec.load(text) == two


def refused(spec: OutputSpec, raw: Any) -> tuple[str, ...]:
    with pytest.raises(OutputInvalid) as caught:
        spec.canonical(raw)
    assert isinstance(caught.value, ValueError)
    shown = "\n".join(caught.value.places[:100])
    assert str(caught.value).startswith(f"the answer does not fit:\n{shown}")
    return caught.value.places


def test_every_bad_place_is_named_as_the_model_knows_it() -> None:
    found = refused(
        SPECS[id(Report)], {"items": [{"name": 1}, {"name": "n", "extra": 1}], "money": "x", "nope": 1}
    )
    assert "Title: missing" in found
    assert "nope: unknown field; the fields are Title, items, best, when, money" in found
    assert "items.1.extra: unknown field" in found
    assert {place.split(":")[0] for place in found} == {
        "Title", "nope", "items.0.name", "items.1.extra", "money",
    }  # fmt: skip
    wrapped = OutputSpec(list[int], where="x")
    assert refused(wrapped, {}) == ("value: missing",)
    assert refused(wrapped, "[1]") == ('the answer has to be a JSON object {"value": …}, not an array',)
    assert refused(wrapped, {"value": [1, "x"], "more": 1}) == (
        "value.1: Input should be a valid integer, unable to parse string as an integer",
        "more: unknown field; the fields are value",
    )
    with pytest.raises(OutputInvalid, match=r"^the answer does not fit:\n1: Input should be a valid integer"):
        wrapped.fits('[1,"x"]')
    with pytest.raises(OutputInvalid, match=r"^the answer does not fit:\nInput should be a valid array"):
        wrapped.fits("1")


def test_a_validator_of_the_model_speaks_to_the_model() -> None:
    assert refused(SPECS[id(Span)], {"low": 2, "high": 1}) == ("Value error, low is above high",)


def test_a_validator_that_raises_anything_is_a_bad_answer() -> None:
    def explode(value: int) -> int:
        raise KeyError(value)

    spec = OutputSpec(Annotated[int, AfterValidator(explode)], where="x")
    assert refused(spec, {"value": 1}) == ("a validator failed: KeyError: 1",)


def test_many_bad_places_are_cut() -> None:
    spec = OutputSpec(list[int], where="x")
    assert len(refused(spec, {"value": ["x"] * 150})) == 150
    with pytest.raises(OutputInvalid, match=r"… and 50 more$"):
        spec.canonical({"value": ["x"] * 150})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"Title":"t"', "it is cut off"),
        ('{"Title":"t"} and more', "not valid JSON: Extra data"),
        ('Here it is: {"Title":"t"}', "not valid JSON"),
        ('{"Title":"t","Title":"u"}', "the key 'Title' stands twice"),
        ('["t"]', "the answer has to be a JSON object, not an array"),
        ('"t"', "the answer has to be a JSON object, not a string"),
        ("", "Title: missing"),
        ('```json\n{"Title":"t"}\n```\n```json\n{}\n```', "not valid JSON"),
        ('so:\n```json\n{"Title":"t"}\n```', "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_text_is_read_without_guessing(text: str, says: str) -> None:
    assert says in refused(SPECS[id(Report)], text)[0]


@pytest.mark.parametrize(
    "fence", ["```json\n{}\n```", "```\n{}\n```", "  ```JSON  \r\n{}\r\n```  ", "```{}```"]
)
def test_one_code_fence_around_the_text_is_taken_off(fence: str) -> None:
    text = fence.replace("{}", '{"Title": "a ``` b"}')
    assert json.loads(SPECS[id(Report)].canonical(text))["Title"] == "a ``` b"


def test_text_for_a_wrapped_type_is_wrapped_too() -> None:
    spec = OutputSpec(dict[str, int], where="x")
    assert spec.canonical('{"value":{"value":3}}') == '{"value":3}'
    assert "value: Input should be an object" in refused(spec, '{"value":3}')[0]
    assert spec.fits('{"value":3}') == '{"value":3}'


def test_nothing_gets_past_the_wrapper() -> None:
    spec = OutputSpec(int, where="x")
    for text in ('1,"other":2', '1,"value":2', "1}", "", " "):
        with pytest.raises(OutputInvalid, match="not valid JSON"):
            spec.fits(text)


class Loose(BaseModel):
    number: float


@pytest.mark.parametrize(
    "raw",
    ['{"number":NaN}', '{"number":-1e999}', '{"number":"NaN"}', {"number": float("nan")}, {"number": "inf"}],
    ids=str,
)
def test_no_nan(raw: Any) -> None:
    refused(OutputSpec(Loose, where="x"), raw)


def test_halves_of_surrogate_pairs_are_replaced() -> None:
    spec = SPECS[id(Report)]
    for raw in ({"Title": "a\ud800b"}, '{"Title":"a\\ud800b"}', '{"Title":"a\ud800b"}'):
        text = spec.canonical(raw)
        text.encode()
        assert json.loads(text)["Title"] == "a\ufffdb"
    assert json.loads(spec.canonical('{"Title":"\\ud83d\\ude00"}'))["Title"] == "😀"


def test_sets_are_the_same_in_every_process() -> None:
    code = (
        "from overt._output import OutputSpec\n"
        "print(OutputSpec(set[str], where='x').canonical({'value': ['c', 'a', 'b', 'é', 'dd']}))"
    )
    outs = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path), "PYTHONUTF8": "1"},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert outs == {'["a","b","c","dd","é"]\n'}


def test_a_type_that_says_what_happens_to_unknown_fields_decides() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        x: int

    spec = OutputSpec(Open, where="x")
    text = spec.canonical({"x": 1, "y": [2]})
    assert text == '{"x":1,"y":[2]}'
    assert spec.load(text) == Open(x=1, y=[2])  # type: ignore[call-arg]
    assert spec.schema["additionalProperties"] is True


# ------------------------------------------------------------------ types that cannot be


class Mismatch(BaseModel):
    amount: int = Field(validation_alias="in", serialization_alias="out")


class Deep(BaseModel):
    inner: dict[str, list[Mismatch]] = {}


class ByPath(BaseModel):
    amount: int = Field(validation_alias=AliasPath("a", "b"))  # type: ignore[pydantic-alias]


class OnlyByName(BaseModel):
    model_config = ConfigDict(validate_by_alias=False, validate_by_name=True)
    amount: int = Field(alias="in")


@dataclass
class MismatchedLine:
    amount: Annotated[int, Field(validation_alias="in", serialization_alias="out")]


class MismatchedDict(TypedDict):
    amount: Annotated[int, Field(validation_alias="in", serialization_alias="out")]


class Excluded(BaseModel):
    amount: int = Field(exclude=True)


class ExcludedDict(TypedDict):
    amount: Annotated[int, Field(exclude=True)]


@dataclass
class NotRead:
    amount: int = field(init=False, default=4)


@dataclass
class OnlyRead:
    amount: InitVar[int]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (Iterator[int], r"output_type .*Iterator\[int\] cannot become a JSON schema: "),
        (Callable[[], int], r"output_type .*Callable\[\[\], int\] cannot become a JSON schema: "),
        pytest.param(
            object(), "output_type <object object at .*> cannot become a JSON schema: ", id="an object"
        ),
        ("Nowhere", "output_type Nowhere cannot become a JSON schema: "),
        (type[int], "a class cannot come from JSON"),
        (SecretStr, "output_type SecretStr: SecretStr hides its value, so it cannot be recorded"),
        (Mismatch, "output_type Mismatch: field 'amount' is read as 'in' and written as 'out'"),
        (Deep, "output_type Deep: field 'amount' is read as 'in' and written as 'out'"),
        (list[Mismatch] | None, "field 'amount' is read as 'in' and written as 'out'"),
        (MismatchedLine, "field 'amount' is read as 'in' and written as 'out'"),
        (MismatchedDict, "field 'amount' is read as 'in' and written as 'out'"),
        (ByPath, "field 'amount' is read as a path and written as 'amount'"),
        (Excluded, "field 'amount' is required and never written"),
        (ExcludedDict, "field 'amount' is required and never written"),
        (NotRead, "field 'amount' is written and, with init=False, not read"),
        (OnlyRead, "field 'amount' is required and never written"),
        (OnlyByName, "field 'amount' is read as 'amount' and written as 'in'"),
    ],
    ids=str,
)
def test_a_type_that_cannot_be_is_refused_where_it_is_declared(kind: object, says: str) -> None:
    with pytest.raises(
        DefinitionError, match=rf"^agent 'scout': {says if says.startswith('out') else '.*' + says}"
    ):
        OutputSpec(kind, where="agent 'scout'")


def test_aliases_that_are_read_as_they_are_written_are_taken() -> None:
    class Both(BaseModel):
        model_config = ConfigDict(populate_by_name=True)
        amount: int = Field(validation_alias=AliasChoices("in", AliasPath("a", 0)))
        other: int = Field(default=0, validation_alias=AliasChoices("x", "y"), serialization_alias="y")

    spec = OutputSpec(Both, where="x")
    text = spec.canonical({"in": 1, "x": 2})
    assert text == '{"amount":1,"y":2}'
    assert spec.load(text) == Both(amount=1, other=2)


class Hidden(BaseModel):
    x: int
    y: int = Field(default=0, exclude=True)


class Rewritten(BaseModel):
    x: int

    @field_serializer("x")
    def rewrite(self, value: int) -> int:
        return value + 1


class Unreadable(BaseModel):
    x: int

    @field_serializer("x")
    def rewrite(self, value: int) -> str:
        return f"number {value}"


class HiddenDict(TypedDict):
    x: int
    y: NotRequired[Annotated[int, Field(exclude=True)]]


@dataclass
class Helped:
    x: int
    start: InitVar[int] = 0

    def __post_init__(self, start: int) -> None:
        self.x += start


def test_an_answer_that_json_does_not_keep_is_refused() -> None:
    growing = OutputSpec(Annotated[str, AfterValidator(lambda s: s + "!")], where="x")
    assert "does not survive being written as JSON" in refused(growing, {"value": "x"})[0]
    hidden = OutputSpec(Hidden, where="x")
    assert hidden.load(hidden.canonical({"x": 1})) == Hidden(x=1)
    assert "does not survive being written as JSON" in refused(hidden, {"x": 1, "y": 2})[0]
    hidden = OutputSpec(HiddenDict, where="x")
    assert hidden.load(hidden.canonical({"x": 1})) == {"x": 1}
    assert "does not survive being written as JSON" in refused(hidden, {"x": 1, "y": 2})[0]
    helped = OutputSpec(Helped, where="x")
    assert helped.canonical({"x": 1, "start": 2}) == '{"x":3}'
    assert helped.load('{"x":3}') == Helped(3)
    assert "does not survive being written as JSON" in refused(OutputSpec(Rewritten, where="x"), {"x": 1})[0]
    (place,) = refused(OutputSpec(Unreadable, where="x"), {"x": 1})
    assert place.startswith("x: ")
    assert "does not survive being written as JSON" in place


def test_an_answer_that_no_longer_fits() -> None:
    with pytest.raises(OutputInvalid, match="Title: missing"):
        SPECS[id(Report)].load('{"gone":1}')
