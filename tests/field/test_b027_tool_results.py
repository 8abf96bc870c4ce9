"""B027: a tool may return any ordinary value; the text is stable, and an unsupported type is an error that says so."""

from __future__ import annotations

import enum
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import UUID

import pytest
from pydantic import BaseModel, SecretStr

from overt import (
    Agent,
    AssistantMessage,
    Message,
    Runtime,
    ToolCall,
    ToolContext,
    ToolMessage,
    ToolResult,
    tool,
)
from overt.errors import DefinitionError
from overt.stores import SQLiteStore
from overt.testing import MockModel, call, say

T = TypeVar("T")


@dataclass
class Point:
    x: int
    seen: datetime
    n: int = field(default=7, init=False)


class Outer:
    class Colour(enum.Enum):
        RED = "red"


class Page(BaseModel, Generic[T]):
    items: list[T]
    secret: SecretStr = SecretStr("")


@tool
def t() -> None: ...


ODD = timezone(timedelta(minutes=19, seconds=32))
TEXTS: list[tuple[Any, str]] = [
    (b"\xff\xfe", '"//4="'),
    (b"a\x00", '"a\\u0000"'),
    (datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc), '"2024-01-02T03:04:05Z"'),  # noqa: UP017
    (datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=2))), '"2024-01-02T00:00:00+02:00"'),
    (datetime(1900, 1, 2, tzinfo=ODD), '"1900-01-02T00:00:00+00:19:32"'),
    (date(2024, 1, 2), '"2024-01-02"'),
    (time(1, 2), '"01:02:00"'),
    (timedelta(days=1, seconds=5), '"P1DT5S"'),
    (Decimal("1.10"), '"1.10"'),
    (Decimal("1E+400"), '"1E+400"'),
    (UUID(int=5), '"00000000-0000-0000-0000-000000000005"'),
    ({"b", "a", "c"}, '["a","b","c"]'),
    (frozenset({2, 1}), "[1,2]"),
    (defaultdict(int, {"b": 1, "a": 2}), '{"a":2,"b":1}'),
    (Point(1, datetime(2024, 1, 2)), '{"n":7,"seen":"2024-01-02T00:00:00","x":1}'),
    (
        Page[Outer.Colour](items=[Outer.Colour.RED], secret=SecretStr("x")),
        '{"items":["red"],"secret":"**********"}',
    ),
    ({Outer.Colour.RED: {UUID(int=5)}}, '{"red":["00000000-0000-0000-0000-000000000005"]}'),
]
NONE: list[tuple[Any, str]] = [
    (Decimal("sNaN"), "is sNaN: NaN and infinities are no JSON"),
    ({"a": [Decimal("Infinity")]}, r"\.a\[0\] is Infinity: NaN and infinities are no JSON"),
    ({"a": float("nan")}, r"\.a is nan: NaN and infinities are no JSON"),
    ({1: 2, "1": 3}, "two keys that are both '1'"),
    (object(), "is of type object, which has no JSON form"),
]


@pytest.mark.parametrize(("value", "text"), TEXTS)
def test_each_has_a_stable_json_text(value: object, text: str) -> None:
    result = t.as_result(value)
    assert result.output == text
    json.loads(result.output)
    assert not result.is_error


def test_an_unsupported_type_says_which() -> None:
    with pytest.raises(TypeError, match="tool 't' returned a socket that cannot be recorded"):
        t.as_result(type("socket", (), {})())


@pytest.mark.parametrize(("value", "why"), NONE)
def test_what_has_no_json_form_is_refused_by_place(value: Any, why: str) -> None:
    with pytest.raises(
        TypeError, match=rf"tool 't' returned a \w+ that cannot be recorded: the value.*{why}"
    ):
        t.as_result(value)


async def test_results_metadata_and_questions_are_the_same_from_the_file(tmp_path: Path) -> None:
    """What a tool gave is JSON from there on: for the model, whoever is asked, and every later process."""

    @tool
    async def give(n: int) -> Any:
        """Give."""
        return TEXTS[n][0]

    @tool
    async def mark(n: int) -> ToolResult:
        """Mark."""
        return ToolResult("x", metadata={"v": TEXTS[n][0]})

    @tool
    async def ask(ctx: ToolContext, n: int) -> str:
        """Ask."""
        return str((await ctx.ask("ok?", data={"v": TEXTS[n][0]})).ok)

    numbers = range(len(TEXTS))
    model = MockModel([[call(name, n=n) for name in ("give", "mark", "ask") for n in numbers]])
    agent = Agent("a", does="gives", tools=[give, mark, ask], model=model)
    store = SQLiteStore(tmp_path / "runs.db")
    result, _ = await agent.run("go", store=store, run_id="r")
    await store.close()
    store = SQLiteStore(tmp_path / "runs.db")
    runtime = await Runtime.open(agent, "r", store=store)
    assert runtime.pendings() == result.pendings
    wanted = [json.loads(text) for _, text in TEXTS]
    assert [request.data["v"] for request in runtime.pendings()] == wanted
    finished = [e for e in runtime.events() if e.kind == "tool_finished"]
    assert {e.output for e in finished if e.name == "give"} == {text for _, text in TEXTS}
    assert sorted(json.dumps(e.metadata["v"]) for e in finished if e.name == "mark") == sorted(
        map(json.dumps, wanted)
    )
    await store.close()


@pytest.mark.parametrize(("value", "why"), NONE)
async def test_what_cannot_be_recorded_is_an_error_that_says_where(value: Any, why: str) -> None:
    @tool
    async def give() -> Any:
        """Give."""
        return value

    @tool
    async def mark() -> ToolResult:
        """Mark."""
        return ToolResult("x", metadata={"v": value})

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        return str((await ctx.ask("ok?", data={"v": value})).ok)

    model = MockModel([[call("give"), call("mark"), call("ask")], say("end")])
    agent = Agent("a", does="gives", tools=[give, mark, ask], model=model)
    result, runtime = await agent.run("go")
    messages = [m for m in runtime.transcript(result.handle) if isinstance(m, ToolMessage)]
    assert [m.is_error for m in messages] == [True] * 3
    for message, place in zip(messages, ["tool 'give'", r"metadata\.v", r"data\['v'\]"], strict=True):
        assert re.search(rf"{place}.*{why}", message.text), message.text


def unchecked(metadata: dict[str, Any]) -> list[Message]:
    """A history as somebody makes it who checks nothing."""
    asked = AssistantMessage(tool_calls=(ToolCall(id="x", name="t"),))
    fields: dict[str, Any] = {"text": "", "call_id": "x", "name": "t", "role": "tool", "is_error": False}
    return [asked, ToolMessage.model_construct(**fields, metadata=metadata)]


@pytest.mark.parametrize(
    "value",
    [b"\xff", Decimal("1.10"), datetime(2024, 1, 1), {1, 2}, (1, 2), float("nan"), object(), 10**5000],
    ids=lambda value: type(value).__name__,
)
def test_a_history_with_what_is_no_json_is_refused_by_item(value: Any) -> None:
    agent = Agent("a", does="works", model=MockModel([say("end")]))
    with pytest.raises(DefinitionError, match="option 'history' cannot be recorded: item 1: "):
        Runtime(agent, history=unchecked({"v": value}))


async def test_a_history_comes_back_as_it_was_given(tmp_path: Path) -> None:
    metadata = {"b": [1, 1.0, True, None, 2**70, 5e-324, "a\x00\u2028😀"], "a": {"z": {}}}
    given = unchecked(metadata)
    agent = Agent("a", does="works", model=MockModel([say("end")]))
    store = SQLiteStore(tmp_path / "runs.db")
    result, _ = await agent.run("go", store=store, run_id="r", history=given)
    await store.close()
    store = SQLiteStore(tmp_path / "runs.db")
    runtime = await Runtime.open(agent, "r", store=store)
    back = runtime.transcript(result.handle)[:2]
    assert list(back) == given
    assert isinstance(back[1], ToolMessage)
    assert repr(back[1].metadata["b"]) == repr(metadata["b"])
    await store.close()
