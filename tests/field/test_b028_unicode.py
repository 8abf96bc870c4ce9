"""B028: half a surrogate pair is replaced where text enters, NUL is kept, an escaped pair stays the character it is."""

from __future__ import annotations

import json

from overt import ToolResult, tool
from overt._schema import ArgumentsInvalid


@tool
def say(text: str, more: dict[str, list[str]] | None = None) -> str:
    return text


def test_arguments() -> None:
    for raw in (
        r'{"text":"a\ud800b\u0000\ud83d\ude00"}',
        {"text": "a\ud800b\x00\ud83d\ude00"},
        {"text": "a\ud800b\x00😀"},
    ):
        once = say.canonical(raw)
        assert json.loads(once)["text"] == "a\ufffdb\x00😀"
        once.encode()
        assert say.canonical(once) == once
    assert (
        say.canonical(r'{"text":"","more":{"\udc00":["\ud800"]}}')
        == '{"more":{"\ufffd":["\ufffd"]},"text":""}'
    )


def test_results() -> None:
    assert say.as_result("a\ud800\x00😀").output == "a\ufffd\x00😀"
    assert say.as_result({"\ud800": ["\udfff"]}).output == '{"\ufffd":["\ufffd"]}'
    assert ToolResult("\ud83d\ude00", metadata={"\ud800": "\ud800"}).output == "😀"
    assert ToolResult(metadata={"\ud800": "\ud800"}).metadata == {"\ufffd": "\ufffd"}


def test_error_messages_can_be_encoded() -> None:
    for raw in ({"text": 1, "\ud800": 2}, r'{"text":1,"\ud800":2}', '{"\ud800'):
        try:
            say.canonical(raw)
        except ArgumentsInvalid as error:
            str(error).encode()
