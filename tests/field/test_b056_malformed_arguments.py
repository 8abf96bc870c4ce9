"""B056: malformed arguments are named, and never become empty ones."""

from __future__ import annotations

import pytest

from overt import tool
from overt._schema import ArgumentsInvalid


@tool
def charge(amount: int, note: str = "") -> str:
    raise AssertionError("entered")


@tool
def now() -> str:
    return "now"


@tool
def optional(a: int = 1) -> str:
    return str(a)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ('{"amount": 5, "no', "not valid JSON: Unterminated string .* it is cut off"),
        ('{"amount": 5', "not valid JSON: .*it is cut off"),
        ('{"amount": ', "not valid JSON: .*it is cut off"),
        ("{amount: 5}", "not valid JSON"),
        ('{"amount": 5} thanks', "not valid JSON: Extra data"),
        ("[5]", "a JSON object, not an array"),
        ("null", "a JSON object, not null"),
        ("5", "a JSON object, not a number"),
        ("true", "a JSON object, not a boolean"),
        ('"{}"', "a JSON object, not a string"),
        ("", "amount: missing"),
        ("  ", "amount: missing"),
        ('{"amount": 5, "amount": 6}', "the key 'amount' stands twice"),
        ('{"amount": 5, "amoun": 6}', "amoun: unknown field; the fields are amount, note"),
        ("{}", "amount: missing"),
        ('{"amount": null}', "amount: Input should be a valid integer"),
    ],
)
def test_each_problem_is_named(raw: str, problem: str) -> None:
    with pytest.raises(ArgumentsInvalid, match=rf"(?s)^invalid arguments for charge:\n.*{problem}"):
        charge.canonical(raw)


def test_twice_at_depth() -> None:
    @tool
    def t(free: dict[str, dict[str, int]]) -> None: ...

    with pytest.raises(ArgumentsInvalid, match="the key 'b' stands twice"):
        t.canonical('{"free": {"a": {"b": 1, "b": 1}}}')


def test_an_empty_string_is_no_arguments_where_none_are_required() -> None:
    assert now.canonical("") == "{}"
    assert now.canonical(" \n") == "{}"
    assert now.canonical({}) == "{}"
    assert optional.canonical("") == '{"a":1}'
    with pytest.raises(ArgumentsInvalid, match="a: unknown field; the fields are none"):
        now.canonical('{"a":1}')
