"""B058: a name no provider would take fails at declaration and is never rewritten, so no two tools can meet."""

from __future__ import annotations

import pytest

from overt import Agent, DefinitionError, tool


def fn() -> None: ...


@pytest.mark.parametrize(
    "name", ["a.b", "a b", "x" * 200, "x" * 65, "", " ", "a\n", "é", "a/b", "my server_tool"]
)
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="1 to 64 characters out of A-Z, a-z, 0-9, '_' and '-'"):
        tool(fn, name=name)
    with pytest.raises(DefinitionError, match="1 to 64 characters"):
        tool(name=name)(fn)


@pytest.mark.parametrize("name", ["a_b", "a-b", "A1", "_", "x" * 64])
def test_names_are_kept_as_they_are(name: str) -> None:
    assert tool(fn, name=name).name == name


def test_a_derived_name_is_checked_too() -> None:
    def schön() -> None: ...

    with pytest.raises(DefinitionError, match="'schön' is not allowed"):
        tool(schön)


def test_two_of_one_name_are_refused_by_the_agent() -> None:
    with pytest.raises(DefinitionError, match="two tools named 'a_b'"):
        Agent("x", does="d", tools=[tool(fn, name="a_b"), tool(fn, name="a_b")])
