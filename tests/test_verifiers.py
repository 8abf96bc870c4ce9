"""The ready-made verifiers judge what is in the attempt and nothing else, and say what is missing."""

from __future__ import annotations

import doctest
import enum
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel
from typing_extensions import TypedDict

import overt.verifiers
from overt import Agent, Answer, DefinitionError, Limit, ToolCall, ToolContext, ToolResult, tool
from overt._schema import ArgumentsInvalid
from overt.completion import Attempt, Completion
from overt.guardrail import name_of
from overt.testing import MockModel, call, say
from overt.verifiers import all_todos_done, output_is, todo


class Item(BaseModel):
    name: str
    price: float = 1.0


class Report(BaseModel):
    title: str
    items: list[Item] = []


class Other(BaseModel):
    title: str


@dataclass
class Point:
    x: int


class Whole(TypedDict):
    a: int


class Colour(enum.Enum):
    RED = "red"


def explode(value: int) -> int:
    raise KeyError(value)


Bang = Annotated[int, AfterValidator(explode)]


def attempt(output: object, *calls: tuple[ToolCall, ToolResult], text: str = "") -> Attempt[Any]:
    return Attempt(
        text=output if isinstance(output, str) else text, output=output, tool_calls=calls, number=1
    )


def test_the_examples_run() -> None:
    done = doctest.testmod(overt.verifiers)
    assert done.attempted >= 4
    assert not done.failed


# ------------------------------------------------------------------ output_is


@pytest.mark.parametrize(
    ("kind", "output"),
    [
        (Report, Report(title="t")),
        (Report, '{"title":"t","items":[{"name":"n"}]}'),
        (Report, '```json\n{"title":"t"}\n```'),
        (Report | None, None),
        (Report | Point, Point(1)),
        (Point, Point(1)),
        (Point, '{"x":1}'),
        (Whole, {"a": 1}),
        (list[int], [1, 2]),
        (list[int], "[1, 2]"),
        (dict[str, int], '{"value":1}'),
        (int, 3),
        (int, "3"),
        (int | str, "text"),
        (str, "text"),
        (Colour, Colour.RED),
        (Colour, "red"),
        (Colour, '"red"'),
        (date, date(2024, 1, 2)),
        (date, "2024-01-02"),
    ],
    ids=str,
)
def test_an_output_of_the_type_will_do(kind: Any, output: object) -> None:
    ok, reason = output_is(kind)(attempt(output))
    assert ok, reason


@pytest.mark.parametrize(
    ("kind", "output", "places"),
    [
        (Report, '{"items":[{"name":1},{"nom":"n"}],"more":1}', [
            "title: missing", "items.0.name: Input should be a valid string", "items.1.name: missing",
            "items.1.nom: unknown field", "more: unknown field; the fields are title, items",
        ]),
        (Report, "done!", ["not valid JSON: Expecting value (character 0 of 5)"]),
        (Report, "", ["not valid JSON"]),
        (list[int], '[1,"x"]', ["1: Input should be a valid integer"]),
        (list[int], '{"value":[1]}', ["Input should be a valid array"]),
        (Colour, "green", ["Input should be 'red'"]),
        (date, "tomorrow", ["Input should be a valid date"]),
        (bool, "certainly", ["not valid JSON"]),
    ],
    ids=str,
)  # fmt: skip
def test_text_that_does_not_fit_is_told_every_place(kind: Any, output: str, places: list[str]) -> None:
    ok, reason = output_is(kind)(attempt(output))
    assert not ok
    told = reason.splitlines()
    assert told[0] == f"the answer has to be {getattr(kind, '__name__', '')} as JSON:".replace(
        "list as", "list[int] as"
    )
    assert len(told) == 1 + len(places)
    for place in places:
        assert any(line.startswith(place) for line in told[1:]), place


@pytest.mark.parametrize(
    ("kind", "output", "text", "place"),
    [
        (
            Report,
            Other(title="t"),
            '{"title":"t"}',
            "Input should be a valid dictionary or instance of Report",
        ),
        (Whole, {"a": 1, "b": 2}, '{"a":1,"b":2}', "b: unknown field; the fields are a"),
        (int, True, "1", "Input should be a valid integer"),
        (list[int], ["1"], "[1]", "0: Input should be a valid integer"),
        (Colour, 3, '"red"', "Input should be "),
        (int, None, "3", "Input should be a valid integer"),
        pytest.param(Bang, 3, "3", "a validator failed: KeyError: 3", id="Bang"),
    ],
    ids=str,
)
def test_an_output_of_another_type_will_not_do_whatever_its_text(
    kind: Any, output: object, text: str, place: str
) -> None:
    ok, reason = output_is(kind)(attempt(output, text=text))
    assert not ok
    head, told = reason.split("\n")
    assert head.startswith("the output has to be ")
    assert told.startswith(place)


def test_it_is_named_after_the_type() -> None:
    assert name_of(output_is(Report)) == "output_is(Report)"
    assert name_of(output_is(list[int])) == "output_is(list[int])"
    assert (
        repr(Completion(output_is(Report), max_attempts=2)) == "Completion(output_is(Report), max_attempts=2)"
    )


@pytest.mark.parametrize("kind", [Iterator[int], "Nowhere", pytest.param(object(), id="an object")], ids=str)
def test_a_type_that_cannot_be_is_refused_where_it_is_declared(kind: Any) -> None:
    with pytest.raises(DefinitionError, match=r"^output_is: output_type .* cannot become a JSON schema"):
        output_is(kind)


# ------------------------------------------------------------------ todo


def called(
    *items: tuple[str, str], name: str = "todo", is_error: bool = False
) -> tuple[ToolCall, ToolResult]:
    arguments: Any = {"items": [{"text": text, "status": status} for text, status in items]}
    return ToolCall(id="c", name=name, arguments=arguments), ToolResult("…", is_error=is_error)


async def test_the_tool_shows_the_list() -> None:
    made, _ = called((" read ", "done"), ("write", "doing"), ("send", "open"))
    _, arguments = todo.bind(todo.canonical(made.arguments))
    assert await todo(**arguments) == "[x] read\n[~] write\n[ ] send\n1 of 3 done"


def test_the_tool_is_declared_for_models() -> None:
    schema: Any = todo.input_schema
    assert todo.name == "todo"
    assert "whole list" in todo.description
    assert schema["required"] == ["items"]
    item = schema["$defs"]["TodoItem"]
    assert item["properties"]["status"]["enum"] == ["open", "doing", "done"]
    assert item["required"] == ["text", "status"]
    assert not todo.takes_context
    json.dumps(schema)


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({"items": []}, "items: "),
        ({"items": [{"text": " ", "status": "open"}]}, "items.0.text: "),
        ({"items": [{"text": "x", "status": "later"}]}, "items.0.status: "),
        ({"items": [{"text": "x"}]}, "items.0.status: missing"),
        ({"items": [{"text": "x", "status": "open", "more": 1}]}, "items.0.more: unknown field"),
        ({}, "items: missing"),
    ],
    ids=str,
)
def test_a_list_that_says_nothing_is_refused(arguments: dict[str, Any], place: str) -> None:
    with pytest.raises(ArgumentsInvalid) as caught:
        todo.canonical(arguments)
    assert caught.value.places[0].startswith(place)


# ------------------------------------------------------------------ all_todos_done


def test_no_list_is_a_failed_verdict_that_names_the_tool() -> None:
    for calls in ((), (called(("read", "done"), name="search"),), (called(("read", "done"), is_error=True),)):
        ok, reason = all_todos_done(attempt("done", *calls))
        assert not ok
        assert "write one with the tool todo" in reason


def test_what_is_not_done_is_listed() -> None:
    ok, reason = all_todos_done(
        attempt("done", called(("read", "done"), ("write", "doing"), ("send", "open")))
    )
    assert not ok
    assert reason.startswith("2 of 3 items on your list are not done:\n[~] write\n[ ] send\n")
    assert "read" not in reason


def test_only_the_last_list_counts() -> None:
    first, last = called(("read", "open")), called(("read", "done"))
    search = called(("x", "open"), name="search")
    assert all_todos_done(attempt("done", first, search, last, search)) == (True, "1 of 1 done")
    assert not all_todos_done(attempt("done", last, first))[0]


def test_a_call_that_failed_replaces_no_list() -> None:
    kept, failed = called(("read", "open")), called(("read", "done"), is_error=True)
    assert not all_todos_done(attempt("done", kept, failed))[0]


def test_another_tool_of_that_name_is_said() -> None:
    @tool(name="todo")
    def other(what: str) -> str:
        return what

    made = ToolCall(id="c", name=other.name, arguments={"what": "x"})
    with pytest.raises(DefinitionError, match=r"all_todos_done reads the tool overt\.todo"):
        all_todos_done(attempt("done", (made, ToolResult("x"))))


def test_the_gate_takes_both() -> None:
    assert name_of(all_todos_done) == "all_todos_done"
    assert vars(all_todos_done)["needs_tool"] == "todo"
    Completion(all_todos_done, max_attempts=1)
    Completion(output_is(Report), max_attempts=3)


# ------------------------------------------------------------------ in a run


def lists(**items: str) -> Any:
    return call("todo", items=[{"text": text, "status": status} for text, status in items.items()])


async def test_an_agent_works_until_its_list_is_done() -> None:
    agent = Agent(
        "a", does="d", tools=[todo], completion=Completion(all_todos_done, max_attempts=3),
        model=MockModel(prompts=[
            [say("done!")],
            [lists(write="open"), say("done!")],
            [lists(write="done"), say("now it is")],
        ]),
    )  # fmt: skip
    result, _ = await agent.run("write")
    assert result.text == "now it is"
    assert [(v.ok, v.reason.splitlines()[0]) for v in result.verdicts] == [
        (False, "there is no list of what is to be done: write one with the tool todo, then work through it"),
        (False, "1 of 1 items on your list are not done:"),
        (True, "1 of 1 done"),
    ]


async def test_the_last_list_is_that_of_this_attempt() -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        return str((await ctx.ask("Go on?")).ok)

    opened, done = lists(write="open"), lists(write="done")
    replies = iter([opened, done, call("ask"), done, opened, call("ask"), say("finished")])
    agent = Agent(
        "a", does="d", tools=[todo, ask], completion=Completion(all_todos_done, max_attempts=1),
        model=MockModel(lambda _: next(replies)),
    )  # fmt: skip
    result, runtime = await agent.run("write")
    assert result.pending is not None
    result = await runtime.resume(Answer(id=result.pending.id, ok=True))
    assert result.limit == Limit.COMPLETION
    assert [v.ok for v in result.verdicts] == [False]


async def test_text_is_sent_back_until_it_fits() -> None:
    agent = Agent(
        "a", does="d", completion=Completion(output_is(Report), max_attempts=3),
        model=MockModel(prompts=[[say("here")], [say('{"titel":"t"}')], [say('{"title":"t"}')]]),
    )  # fmt: skip
    result, _ = await agent.run("write")
    assert result.text == '{"title":"t"}'
    assert [v.reason for v in result.verdicts] == [
        "the answer has to be Report as JSON:\nnot valid JSON: Expecting value (character 0 of 4)",
        "the answer has to be Report as JSON:\ntitle: missing\ntitel: unknown field; the fields are title, items",
        "the output is Report",
    ]


def test_a_gate_without_the_tool_it_reads_is_refused_where_it_is_declared() -> None:
    with pytest.raises(
        DefinitionError, match=r"^agent 'a': completion is .*all_todos_done.*needs a tool 'todo'"
    ):
        Agent("a", does="d", completion=Completion(all_todos_done, max_attempts=1))
