"""1.3, 7.6: what a tool may return."""

from __future__ import annotations

import copy
import enum
import pickle
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from overt import ToolResult, tool


@tool
def t() -> None: ...


class Level(enum.StrEnum):
    HIGH = "high"


class Pair(NamedTuple):
    a: int
    b: set[str]


class Model(BaseModel):
    when: datetime
    names: set[str]
    inner: list[frozenset[int]] = []
    raw: bytes = b""
    number: float = 0.0


def test_text_is_passed_on() -> None:
    assert t.as_result("plain") == ToolResult("plain")
    assert t.as_result(Level.HIGH).output == "high"
    result = ToolResult("x", is_error=True, metadata={"a": 1})
    assert t.as_result(result) is result
    assert t.as_result(None).output == "null"


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ({"b": 1, "a": [1, 2.5, True, None, "é"]}, '{"a":[1,2.5,true,null,"é"],"b":1}'),
        (Pair(1, {"b", "a"}), '[1,["a","b"]]'),
        (deque([1, (2, 3)]), "[1,[2,3]]"),
        (defaultdict(int, {"a": 1}), '{"a":1}'),
        ({1: "a", None: "b", Level.HIGH: "c"}, '{"1":"a","high":"c","null":"b"}'),
        (b"text", '"text"'),
        (b"\xff\x00", '"/wA="'),
        ([b"text", b"\xff"], '["text","/w=="]'),
        (3, "3"),
        (True, "true"),
        (range(3), None),
        ({frozenset({3, 1}), frozenset({2})}, "[[1,3],[2]]"),
    ],
)
def test_values_become_stable_json(value: object, output: str | None) -> None:
    if output is None:
        with pytest.raises(TypeError):
            t.as_result(value)
    else:
        assert t.as_result(value).output == output


def test_models_with_sets_bytes_and_times() -> None:
    made = Model(
        when=datetime(2024, 1, 2, tzinfo=UTC),
        names={"c", "a", "b"},
        inner=[frozenset({3, 2, 1})],
        raw=b"\xff",
    )
    assert (
        t.as_result([made]).output
        == '[{"inner":[[1,2,3]],"names":["a","b","c"],"number":0.0,"raw":"/w==","when":"2024-01-02T00:00:00Z"}]'
    )
    made = made.model_copy(update={"raw": b"x"})
    assert '"names":["a","b","c"]' in t.as_result(made).output
    assert '"inner":[[1,2,3]]' in t.as_result(made).output


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        [float("inf")],
        {"a": -float("inf")},
        Model(when=datetime(2024, 1, 2, tzinfo=UTC), names=set(), number=float("nan")),
        object(),
        [lambda: 1],
        Exception("x"),
        {(1, 2): 3},
        {"1": 1, 1: 2},
        int,
    ],
)
def test_what_has_no_json_form_names_tool_and_type(value: object) -> None:
    with pytest.raises(
        TypeError, match=rf"^tool 't' returned a {type(value).__name__} that cannot be recorded: "
    ):
        t.as_result(value)


def test_a_value_that_contains_itself() -> None:
    looped: list[Any] = []
    looped.append(looped)
    with pytest.raises(TypeError, match="contains itself"):
        t.as_result(looped)


def test_dataclasses_with_fields_of_their_own() -> None:
    @dataclass
    class D:
        a: int
        b: set[str] = field(default_factory=set, init=False)

    made = D(1)
    made.b = {"y", "x"}
    assert t.as_result(made).output == '{"a":1,"b":["x","y"]}'


def test_generators_are_read_out() -> None:
    def numbers() -> Iterator[int]:
        yield from (1, 2)

    assert t.as_result(numbers()).output == "[1,2]"


@given(st.text())
def test_text_can_always_be_encoded(text: str) -> None:
    for value in (text, [text], {text: text}, ToolResult(text), ToolResult(metadata={text: text})):
        result = t.as_result(value)
        result.output.encode()
        repr(result.metadata).encode()


def test_results_are_frozen_copies() -> None:
    inner = [1]
    result = ToolResult("x", metadata={"a": inner})
    inner.append(2)
    assert result.metadata == {"a": [1]}
    with pytest.raises(FrozenInstanceError):
        result.output = "y"  # type: ignore[misc]
    assert copy.deepcopy(result) == result == pickle.loads(pickle.dumps(result))
    assert repr(ToolResult("x")) == "ToolResult(output='x', is_error=False, metadata={}, pending=None)"


def test_results_refuse_what_is_no_text() -> None:
    with pytest.raises(TypeError, match="is text, not int"):
        ToolResult(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"metadata\.a.* object"):
        ToolResult(metadata={"a": object()})
    with pytest.raises(TypeError, match=r"metadata\.a is nan"):
        ToolResult(metadata={"a": float("nan")})
