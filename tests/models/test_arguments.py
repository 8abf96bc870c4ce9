from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overt.models.arguments import parse_arguments


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "are empty"),
        (" \n", "are empty"),
        ('{"a": ', "not valid JSON"),
        ("{} {}", "not valid JSON"),
        ("[1]", "a JSON array"),
        ("null", "a JSON null"),
        ('"x"', "a JSON string"),
        ("true", "a JSON boolean"),
        ("1.5", "a JSON number"),
        ('{"a": 1, "a": 2}', "the key 'a' twice"),
        ('{"x": {"b": 1, "b": 1}}', "the key 'b' twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": [-Infinity]}', "-Infinity"),
        ('{"a": 1e999}', "too large"),
        ('{"a": ' + "9" * 5_000 + "}", "digits"),
        ('{"a": ' + "[" * 200 + "]" * 200 + "}", "nested deeper"),
        ("[" * 100_000, "nested deeper"),
    ],
)
def test_what_is_no_object_is_named(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        parse_arguments(text)
    assert len(str(caught.value)) < 200


def test_surrogates_are_cleaned_and_pairs_joined() -> None:
    assert parse_arguments(r'{"a\ud800": ["\ud83d\ude00", "\udc00x", "\u0000"]}') == {
        "a�": ["😀", "�x", "\0"]
    }
    assert parse_arguments('{"a": "\ud800"}') == {"a": "�"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values), st.booleans())
def test_every_object_comes_back_as_it_was(value: dict[str, object], ascii: bool) -> None:
    assert parse_arguments(json.dumps(value, ensure_ascii=ascii)) == value
