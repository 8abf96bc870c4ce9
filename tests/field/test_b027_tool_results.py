"""B027: a tool may return any ordinary value; the text is stable, and an unsupported type is an error that says so."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from uuid import UUID

import pytest

from overt import tool


@dataclass
class Point:
    x: int
    seen: datetime


@tool
def t() -> None: ...


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\xff\xfe", '"//4="'),
        (datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc), '"2024-01-02T03:04:05Z"'),  # noqa: UP017
        (Decimal("1.10"), '"1.10"'),
        (UUID(int=5), '"00000000-0000-0000-0000-000000000005"'),
        ({"b", "a", "c"}, '["a","b","c"]'),
        (Point(1, datetime(2024, 1, 2)), '{"seen":"2024-01-02T00:00:00","x":1}'),
    ],
)
def test_each_has_a_stable_json_text(value: object, text: str) -> None:
    result = t.as_result(value)
    assert result.output == text
    json.loads(result.output)
    assert not result.is_error


def test_an_unsupported_type_says_which() -> None:
    with pytest.raises(TypeError, match="tool 't' returned a socket that cannot be recorded"):
        t.as_result(type("socket", (), {})())
