"""Typed output in runs: how a model gives it, what it is told where it does not fit, and what the host gets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from overt import (
    Agent,
    AssistantMessage,
    Budget,
    Completion,
    Extend,
    ModelResponse,
    ResumePolicy,
    Runtime,
    TaskResult,
    ToolMessage,
    UserMessage,
    tool,
)
from overt.errors import SpecDrift, StoreError
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import MockModel, call, say
from overt.testing.crashing import Crashed, CrashingStore
from overt.testing.mock import raw_call
from tests.suspend_kit import approve, tools_said, yes

W = "root/w.1"
both = pytest.mark.parametrize("policy", list(ResumePolicy))
ways = pytest.mark.parametrize("native", [True, False], ids=["native", "final tool"])


class Report(BaseModel):
    title: str
    pages: int = 1


@dataclass
class Point:
    x: int
    y: int = 0


class Place(TypedDict):
    city: str
    zip: int


class Colour(Enum):
    RED = "red"


CASES: list[tuple[Any, Any, Any, str]] = [
    (Report, {"title": "t", "pages": "3"}, Report(title="t", pages=3), '{"pages":3,"title":"t"}'),
    (Point, {"x": 1}, Point(1, 0), '{"x":1,"y":0}'),
    (Place, {"zip": 12, "city": "B"}, {"city": "B", "zip": 12}, '{"city":"B","zip":12}'),
    (Report | Point, {"value": {"x": 1}}, Point(1), '{"x":1,"y":0}'),
    (Report | Point, {"value": {"title": "t"}}, Report(title="t"), '{"pages":1,"title":"t"}'),
    (int, {"value": 3}, 3, "3"),
    (list[Point], {"value": [{"x": 1}, {"x": 2}]}, [Point(1), Point(2)], '[{"x":1,"y":0},{"x":2,"y":0}]'),
    (int | None, {"value": None}, None, "null"),
    (Colour, {"value": "red"}, Colour.RED, '"red"'),
    (Literal["a", "b"], {"value": "b"}, "b", '"b"'),
]


def model_of(native: bool, *replies: Any) -> MockModel:
    """A model that says these: a dict is an answer, given as the model can."""
    made: list[Any] = []
    for reply in replies:
        if isinstance(reply, dict):
            made.append(say(json.dumps(reply)) if native else call("final_result", **reply))
        else:
            made.append(reply)

    def script(request: Any) -> Any:
        return made[sum(isinstance(m, AssistantMessage) for m in request.messages)]

    return MockModel(script, structured_output=native)


def typed(model: Any, kind: Any, *tools: Any, **options: Any) -> Agent[None, Any]:
    return Agent("w", does="x", model=model, output_type=kind, tools=list(tools), **options)


def told(messages: Sequence[Any]) -> list[tuple[str, str]]:
    """What a model was told after it had spoken: by a user message, or by a tool's."""
    return [(m.role, m.text) for m in messages if not isinstance(m, AssistantMessage)][1:]


# ------------------------------------------------------------------ given and had


@ways
@pytest.mark.parametrize(("kind", "given", "wanted", "text"), CASES, ids=str)
async def test_an_answer_is_an_object_for_the_host_and_json_in_the_journal(
    kind: Any, given: Any, wanted: Any, text: str, native: bool, tmp_path: Path
) -> None:
    model = model_of(native, given)
    agent = typed(model, kind)
    store = SQLiteStore(tmp_path / "runs.db")
    result, rt = await agent.run("go", store=store, run_id="r")
    assert (result.status, result.output, result.text) == ("done", wanted, text)
    assert type(result.output) is type(wanted)
    assert result.unwrap() == wanted
    (request,) = model.requests
    if native:
        assert request.output_schema is not None
        assert request.tools == ()
    else:
        (spec,) = request.tools
        assert (request.output_schema, spec.name) == (None, "final_result")
        assert told(rt.transcript(W)) == [("tool", "accepted")]
    again = rt.result()
    assert again == result
    if isinstance(wanted, (BaseModel, Point, dict, list)):
        assert again.output is not result.output
    assert TaskResult[kind].model_validate_json(result.model_dump_json()) == result
    # Another process has nothing but the journal and the declaration.
    await store.close()
    store = SQLiteStore(tmp_path / "runs.db")
    opened = (await Runtime.open(typed(model, kind), "r", store=store)).result()
    assert opened == result
    assert type(opened.output) is type(wanted)
    assert result.usage.tool_calls == 0
    await store.close()


@ways
async def test_what_does_not_fit_is_told_with_its_places_until_it_does(native: bool) -> None:
    model = model_of(native, {"title": 1, "page": 2}, {"title": "t", "pages": "many"}, {"title": "t"})
    result, rt = await typed(model, Report).run("go")
    assert (result.output, result.turns, result.total_tokens) == (Report(title="t"), 3, 300)
    first, second, *_ = told(rt.transcript(W))
    role = "user" if native else "tool"
    assert (first[0], second[0]) == (role, role)
    assert "title: Input should be a valid string" in first[1]
    assert "page: unknown field; the fields are title, pages" in first[1]
    assert "pages: Input should be a valid integer" in second[1]
    if not native:
        assert [m.is_error for m in rt.transcript(W) if isinstance(m, ToolMessage)] == [True, True, False]


@ways
@pytest.mark.parametrize("bad", [{"title": 1}, "no answer at all", "[]"], ids=str)
async def test_turns_bound_it(native: bool, bad: Any) -> None:
    model = model_of(native, *[bad] * 9)
    result, rt = await typed(model, Report, budget=Budget(max_turns=3)).run("go")
    assert (result.status, result.limit, result.limit_at) == ("incomplete", "maxTurns", W)
    assert (result.turns, result.output, result.error) == (3, None, None)
    assert len(model.requests) == 3
    model = model_of(native, *[bad] * 3, {"title": "t"})
    result, rt = await typed(model, Report, budget=Budget(max_turns=3)).run("go")
    result = await rt.extend(Budget(max_turns=4))
    assert (result.status, result.output, result.turns) == ("done", Report(title="t"), 4)
    result, _ = await typed(model_of(native, {"title": "t"}), Report, budget=Budget(max_turns=1)).run("go")
    assert result.status == "done"


async def test_text_in_place_of_the_final_tool_is_sent_back_unless_it_is_the_answer() -> None:
    model = model_of(False, "it is three", '```json\n{"value": 3}\n```')
    result, rt = await typed(model, int).run("go")
    assert (result.output, result.turns) == (3, 2)
    assert told(rt.transcript(W)) == [("user", "Give the final answer by calling final_result.")]


@pytest.mark.parametrize("others", [1, 2])
async def test_the_final_tool_beside_other_calls_is_not_taken(others: int) -> None:
    ran: list[int] = []

    @tool
    async def t(n: int) -> str:
        ran.append(n)
        return f"t{n}"

    calls = [call("t", n=n) for n in range(others)]
    model = model_of(
        False, [calls[0], call("final_result", value=1), *calls[1:]],
        [call("final_result", value=2), call("final_result", value=3)], {"value": 4},
    )  # fmt: skip
    result, rt = await typed(model, int, t).run("go")
    assert (result.output, sorted(ran), result.usage.tool_calls) == (4, list(range(others)), others)
    texts = tools_said(rt.transcript(W))
    alone = "not taken: call final_result alone, once every other call has its result"
    assert texts == ["t0", alone, *(["t1"] if others == 2 else []), alone, alone, "accepted"]


async def test_arguments_that_are_no_json_are_told_and_unknown_tools_too() -> None:
    model = model_of(False, raw_call("final_result", '{"value": '), call("nope"), {"value": 1})
    result, rt = await typed(model, int).run("go")
    assert result.output == 1
    broken, unknown, _ = tools_said(rt.transcript(W))
    assert "JSON" in broken
    assert unknown == "unknown tool: 'nope'. The tools: final_result."


async def test_a_model_that_is_given_the_schema_has_no_final_tool() -> None:
    model = model_of(True, call("final_result", value=1), {"value": 2})
    result, rt = await typed(model, int).run("go")
    assert result.output == 2
    assert tools_said(rt.transcript(W)) == ["unknown tool: 'final_result'. The tools: none."]


async def test_it_draws_no_tool_call() -> None:
    result, _ = await typed(model_of(False, {"value": 1}), int, budget=Budget(max_tool_calls=0)).run("go")
    assert (result.status, result.output) == ("done", 1)


# ------------------------------------------------------------------ replies that are none


@ways
@pytest.mark.parametrize(
    ("finish", "kind"),
    [("length", "OutputTruncated"), ("refusal", "Refusal"), ("content_filter", "ContentFilter")],
)
async def test_a_reply_that_was_cut_off_or_refused_is_no_answer(native: bool, finish: Any, kind: str) -> None:
    cut = say('{"value": 1}', finish=finish)
    if not native:
        cut = call("final_result", value=1).with_options(finish=finish)
    store = MemoryStore()
    first_try = [True]

    def script(request: Any) -> Any:
        if first_try:
            return cut
        return say('{"value": 2}') if native else call("final_result", value=2)

    agent = typed(MockModel(script, structured_output=native), int)
    result, rt = await agent.run("go", store=store, run_id="r")
    assert result.error is not None
    assert (result.status, result.error.type, result.output) == ("error", kind, None)
    first_try.clear()
    rt = await Runtime.open(agent, "r", store=store)
    result = await rt.recover()
    assert (result.output, result.turns, len(rt.transcript(W))) == (2, 2, 2 if native else 3)


@ways
@pytest.mark.parametrize("asked", [True, False])
async def test_an_answer_that_the_budget_cut_off_is_no_answer(native: bool, asked: bool) -> None:
    cut: Any = say('{"value": 1}', finish="length")
    if not native:
        cut = call("final_result", value=1).with_options(finish="length")
    model = model_of(native, cut, {"value": 2})
    more = Budget(max_tokens=900)
    options: dict[str, Any] = {"on_limit": lambda info: Extend(more)} if asked else {}
    result, rt = await typed(model, int, budget=Budget(max_tokens=100)).run("go", **options)
    if not asked:
        assert (result.status, result.limit, result.output) == ("incomplete", "maxTokens", None)
        result = await rt.extend(more)
    assert (result.status, result.output, result.turns) == ("done", 2, 2)


@ways
async def test_an_empty_reply_is_an_error(native: bool) -> None:
    result, _ = await typed(model_of(native, say("")), Report).run("go")
    assert result.error is not None
    assert (result.status, result.error.type) == ("error", "EmptyReply")


# ------------------------------------------------------------------ doors


@ways
@pytest.mark.parametrize("door", ["task", "as_tool"])
async def test_a_childs_answer_reaches_its_parent_as_json(native: bool, door: str) -> None:
    child = Agent("c", does="x", model=model_of(native, {"title": "t"}), output_type=Report)
    asks = call("task", agent="c", prompt="p") if door == "task" else call("c", prompt="p")
    lead = typed(
        model_of(native, asks, {"x": 1}), Point,
        *([] if door == "task" else [child.as_tool()]), team=[child] if door == "task" else [],
    )  # fmt: skip
    result, rt = await lead.run("go")
    assert result.output == Point(1)
    said = [m for m in rt.transcript(W) if isinstance(m, ToolMessage)]
    assert (said[0].text, said[0].is_error) == ('{"pages":1,"title":"t"}', False)
    # The handle's own result, however it is asked for, has the object.
    (spawned,) = (view for view in rt.list() if view.agent == "c")
    async with rt:
        assert (await rt.wait(spawned.id)).output == Report(title="t")
    alone = await child.as_tool()("p")
    assert alone.output == Report(title="t")


@ways
async def test_a_loop_gives_an_object_for_each_prompt(native: bool) -> None:
    model = model_of(native, {"value": 1}, {"value": 2}, {"value": 3})
    loop = typed(model, int).loop()
    assert [(await loop.run(text)).output for text in "abc"] == [1, 2, 3]
    roles = [m.role for m in loop.transcript()]
    assert roles == ["user", "assistant", *([] if native else ["tool"])] * 3
    assert [len(request.messages) for request in model.requests] == ([1, 3, 5] if native else [1, 4, 7])


async def test_one_loop_with_both_kinds_of_model() -> None:
    final = model_of(False, {"value": 1}, {"value": 0}, {"value": 3})
    loop = typed(final, int).loop()
    assert (await loop.run("a")).output == 1
    other = model_of(True, {"value": 0}, {"value": 2})
    assert (await loop.run("b", model=other)).output == 2
    assert (await loop.run("c")).output == 3
    assert (other.requests[0].output_schema is None, other.requests[0].tools) == (False, ())
    assert [spec.name for spec in final.requests[-1].tools] == ["final_result"]


@ways
async def test_a_stream_ends_in_the_object(native: bool) -> None:
    async with typed(model_of(native, "?", {"x": 1}), Point).stream("go") as stream:
        kinds = [event.kind async for event in stream]
        result = await stream.result()
    assert kinds[-1] == "result"
    assert (result.output, type(result.output)) == (Point(1), Point)


@ways
@both
async def test_after_a_question_it_is_given_as_before(native: bool, policy: ResumePolicy) -> None:
    agent = typed(model_of(native, call("approve"), {"x": 1}), Point, approve)
    result, rt = await agent.run("go", resume_policy=policy)
    assert (result.status, result.output) == ("pending", None)
    result = await rt.resume(yes(result))
    assert (result.output, result.turns) == (Point(1), 3 if policy is ResumePolicy.REWIND else 2)


# ------------------------------------------------------------------ a type that has changed


class Longer(BaseModel):
    title: str
    pages: int
    author: str


@ways
async def test_a_result_that_no_longer_fits_says_so(native: bool) -> None:
    store = MemoryStore()
    model = model_of(native, {"title": "t"})
    await typed(model, Report).run("go", store=store, run_id="r")
    rt = await Runtime.open(typed(model, Longer), "r", store=store)
    with pytest.raises(
        SpecDrift, match=r"output of root/w\.1 no longer fits the output_type of 'w'.*\n.*author"
    ):
        rt.result()
    # A type that takes it still is none of anybody's business.
    rt = await Runtime.open(typed(model, dict[str, Any]), "r", store=store)
    assert rt.result().output == {"title": "t", "pages": 1}


@ways
async def test_an_answer_that_was_still_judged_when_the_type_changed(native: bool) -> None:
    def judge(attempt: Any) -> tuple[bool, str]:
        return True, ""

    def made(kind: Any) -> Agent[None, Any]:
        return typed(model_of(native, {"title": "t"}), kind, completion=Completion(judge, max_attempts=1))

    appends = []

    async def count(attempt: Any) -> tuple[bool, str]:
        appends.append(store.appends)
        return True, ""

    store = CrashingStore(MemoryStore())
    agent = typed(model_of(native, {"title": "t"}), Report, completion=Completion(count, max_attempts=1))
    await agent.run("go", store=store)
    store = CrashingStore(MemoryStore(), crash_at=appends[0] + 1)
    with pytest.raises((Crashed, StoreError, BaseExceptionGroup)):
        await made(Report).run("go", store=store, run_id="r")
    with pytest.raises(SpecDrift, match="no longer fits the output_type of 'w'"):
        await Runtime.open(made(Longer), "r", store=store.survivor)
    rt = await Runtime.open(made(Report), "r", store=store.survivor)
    assert (await rt.recover()).output == Report(title="t")


def test_messages_and_responses_are_what_a_model_of_ones_own_may_give() -> None:
    """Without `structured_output` a model is taken not to know it."""

    class Own:
        name = "own"

        async def generate(self, request: Any) -> ModelResponse:
            assert [spec.name for spec in request.tools] == ["final_result"]
            return ModelResponse(message=AssistantMessage(text='{"value": 1}'))

    result, rt = typed(Own(), int).run_sync("go")
    assert result.output == 1
    assert rt.transcript(W)[0] == UserMessage(text="go")


@ways
async def test_what_is_offered_is_the_same_object_from_turn_to_turn(native: bool) -> None:
    @tool
    async def look() -> str:
        return "seen"

    model = model_of(native, call("look"), call("look"), {"value": 1})
    result, _ = await typed(model, int, look).run("go")
    assert result.output == 1
    assert len({id(request.tools) for request in model.requests}) == 1
    assert [spec.name for spec in model.requests[0].tools] == ["look", *(() if native else ["final_result"])]
