"""What the host's own code gives that it may not give: told as its failure, and never the end of the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any, cast

import pytest
from pydantic import AfterValidator

from overt import (
    Agent,
    Allow,
    Ask,
    BeforeLLM,
    Budget,
    DefinitionError,
    Deny,
    Extend,
    GuardrailEvent,
    Hooks,
    LimitInfo,
    LLMOverride,
    Message,
    Ruling,
    Runtime,
    ToolMessage,
    ToolOverride,
    tool,
)
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say

ran: list[str] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


@tool
async def danger() -> str:
    """Do harm."""
    ran.append("danger")
    return "harm"


def worker(**fields: Any) -> Agent[None, str]:
    return Agent("w", does="w", tools=[danger], model=MockModel([call("danger"), say("done")]), **fields)


class Blocked(Deny):
    """A ruling of the host's own that forgets its base."""

    def __init__(self, code: int) -> None:
        object.__setattr__(self, "code", code)

    __slots__ = ("code",)


class Inquiry(Ask):
    def __init__(self) -> None: ...


@pytest.mark.parametrize("made", [lambda: Blocked(7), Inquiry])
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("field", ["guardrails", "input_guardrails", "output_guardrails"])
async def test_a_ruling_that_is_not_made_as_its_base_denies(field: str, waits: bool, made: Any) -> None:
    def plain(_: object) -> Ruling:
        ruling: Ruling = made()
        return ruling

    async def waiting(_: object) -> Ruling:
        return plain(_)

    options: Any = {field: [waiting if waits else plain]}
    result, rt = await worker().run("go", **options)
    assert ran == (["danger"] if field == "output_guardrails" else [])
    if field == "guardrails":
        (told,) = (m.text for m in rt.transcript(result.handle) if m.role == "tool")
        assert told.startswith("denied: guardrail ")
    else:
        assert result.error is not None
        assert result.error.type == "GuardrailDenied"


@pytest.mark.parametrize("field", ["before_tool", "after_tool"])
async def test_a_text_where_a_hook_gives_a_result(field: str) -> None:
    def wrong(event: object) -> ToolOverride:
        return ToolOverride(result="harmless")  # type: ignore[arg-type]  # the mistake

    given: dict[str, Any] = {field: wrong}
    hooks = Hooks(**given)
    result, rt = await worker().run("go", hooks=hooks)
    assert result.error is not None
    assert (result.error.type, result.error.source) == ("TypeError", "hook")
    assert "ToolResult" in result.error.message
    assert (await rt.recover()).status in ("error", "done")
    assert ran == (["danger"] if field == "after_tool" else [])


def without_results(messages: tuple[Message, ...]) -> Iterator[Message]:
    return (m for m in messages if m.role != "tool")


GIVEN: dict[str, Any] = {
    "no sequence": lambda _: 7,
    "a text that is none": lambda m: [m[0].model_copy(update={"text": None}), *m[1:]],
    "a message without its fields": lambda m: [
        *m,
        cast("Any", ToolMessage).model_construct(role="tool", text="x"),
    ],
    "a role of another kind": lambda m: [m[0].model_copy(update={"role": "tool"}), *m[1:]],
    "orphans, said once": without_results,
}


@pytest.mark.parametrize("given", GIVEN)
async def test_messages_that_are_none_end_the_wake_before_anything_is_sent(given: str) -> None:
    def before_llm(event: BeforeLLM) -> LLMOverride | None:
        return LLMOverride(messages=GIVEN[given](event.messages)) if event.turn == 2 else None

    store = MemoryStore()
    runtime = Runtime(worker(), hooks=Hooks(before_llm=before_llm), store=store, run_id="r")
    result = await runtime.run("go")
    assert (result.status, result.turns, result.usage.model_calls) == ("error", 1, 1)
    assert result.error is not None
    assert result.error.source == "hook"
    again = await Runtime.open(worker(), "r", store=store)
    assert (await again.recover()).text == "done"
    assert ran == ["danger"]


async def test_tools_that_are_no_sequence_are_the_hooks_failure() -> None:
    wrong: Any = LLMOverride(tools=5)  # type: ignore[arg-type]  # the mistake
    result, _ = await worker().run("go", hooks=Hooks(before_llm=lambda _: wrong))
    assert result.error is not None
    assert (result.error.source, result.usage.model_calls) == ("hook", 0)


class Odd(BaseException):
    pass


@pytest.mark.parametrize("raised", [asyncio.CancelledError, GeneratorExit, Odd])
@pytest.mark.parametrize("listener", ["on_metric", "on_spawn", "on_close"])
async def test_a_listener_that_raises_anything_does_not_stop_the_run(
    listener: str, raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def listens(*_: object) -> None:
        raise raised

    result, _ = await worker(**{listener: listens}).run("go")
    assert (result.status, ran) == ("done", ["danger"])
    assert "a listener of the run raised" in caplog.text


@pytest.mark.parametrize("wrong", [150.5, float("inf"), float("nan"), "many", -1, True + 0.5])
async def test_a_budget_that_was_copied_with_wrong_numbers(wrong: object) -> None:
    budget = Budget(max_tokens=100).model_copy(update={"max_tokens": wrong})
    with pytest.raises(DefinitionError, match="max_tokens"):
        Runtime(worker(), budget=budget)
    with pytest.raises(DefinitionError, match="max_tokens"):
        Runtime(worker(budget=budget))

    def on_limit(_: LimitInfo) -> Extend:
        return Extend(budget)

    result, rt = await worker().run("go", budget=Budget(max_tokens=100), on_limit=on_limit)
    assert result.error is not None
    assert (result.error.type, result.error.source) == ("DefinitionError", "hook")
    with pytest.raises(DefinitionError, match="max_tokens"):
        await rt.extend(budget, handle="root")


async def test_a_rule_that_stays_right_sees_no_difference() -> None:
    class Stern(Deny):
        pass

    def rule(_: GuardrailEvent) -> Ruling:
        return Stern("no")

    result, rt = await worker().run("go", guardrails=[rule])
    assert [m.text for m in rt.transcript(result.handle) if m.role == "tool"] == ["denied: no"]


async def test_a_type_that_changes_its_mind_is_a_denial_where_a_rule_would_look() -> None:
    moods: list[bool] = []

    def mood(value: int) -> int:
        if not moods.pop():
            raise ValueError("not today")
        return value

    agent = Agent(
        "a",
        does="works",
        output_type=Annotated[int, AfterValidator(mood)],
        output_guardrails=[lambda event: Allow()],
        model=MockModel([call("final_result", value=3)]),
    )
    moods[:] = [*[False] * 20, *[True] * 4]  # the answer is read four times before it is recorded
    result, runtime = await agent.run("go")
    assert result.error is not None
    assert result.error.type == "GuardrailDenied"
    assert "cannot be read as the output type any more" in result.error.message
    moods[:] = [True] * 20
    assert (await runtime.recover()).output == 3
