"""Names that JSON spells with escapes, and objects whose braces are escaped."""

from __future__ import annotations

import json

import pytest

from overt._redaction import Redaction


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("api/key", r'{"api\/key": "S3CRET"}'),
        ('a"b', json.dumps({'a"b': "S3CRET"})),
        ("a\\b", json.dumps({"a\\b": "S3CRET"})),
        ("a\nb", json.dumps({"a\nb": "S3CRET"})),
        ("pass", '"\\u007b\\u0022pass\\u0022:\\u0022S3CRET\\u0022}"'),
    ],
)
def test_the_value_is_left_out(name: str, text: str) -> None:
    assert "S3CRET" not in Redaction([name]).text(text)
