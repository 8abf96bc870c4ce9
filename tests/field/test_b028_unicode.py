"""B028: half a surrogate pair is replaced where text enters, NUL is kept, an escaped pair stays the character it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from overt import Agent, Answer, Runtime, ToolContext, ToolMessage, ToolResult, UserMessage, tool
from overt._schema import ArgumentsInvalid
from overt.errors import DefinitionError
from overt.stores import SQLiteStore
from overt.testing import MockModel, call
from overt.testing import say as says


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


def test_a_default_with_half_a_pair_is_refused_when_the_tool_is_declared() -> None:
    with pytest.raises(DefinitionError, match="parameter 'text': its default"):

        @tool
        def bad(text: str = "\ud800") -> str:
            return text


DIRTY = "a\ud800b\x00\ud83d\ude00\ufffe\u2028"
CLEAN = "a\ufffdb\x00😀\ufffe\u2028"


async def test_through_the_file_and_back(tmp_path: Path) -> None:
    """Result, metadata, question, answer and history are the cleaned text, live and read from the file."""
    seen: list[object] = []

    @tool
    async def ask(ctx: ToolContext) -> ToolResult:
        """Ask."""
        answer = await ctx.ask(DIRTY, data={DIRTY: [DIRTY]})
        seen.append((answer.data, answer.reason))
        return ToolResult(DIRTY, metadata={DIRTY: DIRTY})

    agent = Agent("a", does="asks", tools=[ask], model=MockModel([call("ask"), says("end")]))
    store = SQLiteStore(tmp_path / "runs.db")
    result, _ = await agent.run("go", store=store, run_id="r", history=[UserMessage(text=DIRTY)])
    await store.close()
    store = SQLiteStore(tmp_path / "runs.db")
    runtime = await Runtime.open(agent, "r", store=store)
    (request,) = runtime.pendings()
    assert (request.prompt, request.data[CLEAN]) == (CLEAN, [CLEAN])
    answer = Answer[Any].model_construct(
        id=request.id, ok=True, data={DIRTY: DIRTY}, reason=DIRTY, by=None, at=None
    )
    result = await runtime.resume(answer)
    await store.close()
    assert seen == [({CLEAN: CLEAN}, CLEAN)]
    store = SQLiteStore(tmp_path / "runs.db")
    runtime = await Runtime.open(agent, "r", store=store)
    messages = runtime.transcript(result.handle)
    assert messages[0].text == CLEAN
    (message,) = [m for m in messages if isinstance(m, ToolMessage)]
    assert (message.text, message.metadata) == (CLEAN, {CLEAN: CLEAN})
    assert runtime.tool_result(result.handle, message.call_id) == CLEAN
    await store.close()
