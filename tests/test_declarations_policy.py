"""What agents and runs are told about guardrails, gate, hooks, limits and output; what is refused where declared."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from unittest.mock import Mock

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from overt import (
    Agent,
    Allow,
    Attempt,
    Budget,
    Completion,
    DefinitionError,
    Extend,
    GuardrailEvent,
    Handle,
    Hooks,
    LimitDecision,
    LimitInfo,
    MetricEvent,
    OutputEvent,
    PromptEvent,
    Ruling,
    Runtime,
    Stop,
    Tool,
    require_approval,
    tool,
)
from overt._output import OutputSpec
from overt.agent import resolve_team
from overt.options import check_run
from overt.testing import MockModel


def allow(event: GuardrailEvent) -> Ruling:
    return Allow()


async def allow_prompt(event: PromptEvent) -> Ruling:
    return Allow()


def allow_output(event: OutputEvent) -> Ruling:
    return Allow()


def good(attempt: Attempt[str]) -> tuple[bool, str]:
    return True, ""


def nothing() -> Ruling:
    return Allow()


async def told(event: object) -> None: ...


class Told:
    async def __call__(self, event: object) -> None: ...


@tool
def refund(order: int) -> str:
    return str(order)


@tool(name="final_result")
def final() -> str:
    return ""


helper = Agent("helper", does="Helps.")


def agent(**given: Any) -> Agent:
    return cast("Agent", Agent("a", does="Does.", model=MockModel([]), **given))


def run(**options: Any) -> Runtime:
    return Runtime(agent(), **options)


# ------------------------------------------------------------------ what is kept


def test_an_agent_keeps_its_policy_and_shares_no_list() -> None:
    metrics: list[MetricEvent] = []
    spawned: list[Handle] = []
    closed: list[tuple[Handle, str]] = []

    def on_close(handle: Handle, reason: str) -> None:
        closed.append((handle, reason))

    gate, hooks, rules = Completion(good, max_attempts=2), Hooks(), [allow]
    made = Agent(
        "a",
        does="Does.",
        guardrails=rules,
        input_guardrails=[allow_prompt],
        output_guardrails=[allow_output],
        completion=gate,
        hooks=hooks,
        on_metric=metrics.append,
        on_spawn=spawned.append,
        on_close=on_close,
    )
    rules.clear()
    for kept in (made, made.with_team(helper)):
        assert kept.guardrails == (allow,)
        assert kept.input_guardrails == (allow_prompt,)
        assert kept.output_guardrails == (allow_output,)
        assert kept.completion is gate
        assert kept.hooks is hooks
        assert (kept.on_metric, kept.on_spawn, kept.on_close) == (metrics.append, spawned.append, on_close)


def test_an_agent_has_no_policy_unless_told() -> None:
    made = Agent("a", does="Does.")
    assert (made.guardrails, made.input_guardrails, made.output_guardrails) == ((), (), ())
    assert (made.completion, made.hooks, made.on_metric, made.on_spawn, made.on_close) == (None,) * 5
    assert made._output is None


def test_declaring_an_agent_loads_no_policy_it_does_not_have() -> None:
    code = (
        "import sys, overt\n"
        "overt.Agent('a', does='Does.')\n"
        "later = ('overt.guardrail', 'overt.hooks', 'overt.completion', 'overt._output', 'overt.delegate')\n"
        "print([name for name in later if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------ guardrails


FIELDS = ("guardrails", "input_guardrails", "output_guardrails")


class Rule:
    def __call__(self, event: GuardrailEvent) -> Ruling:
        return Allow()


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    "rule", [allow, allow_prompt, Rule(), Rule().__call__, partial(allow), Mock(), lambda *e: e]
)
def test_anything_that_can_be_asked_is_a_guardrail(field: str, rule: object) -> None:
    assert getattr(agent(**{field: [rule]}), field) == (rule,)
    run(**{field: [rule]})


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    ("rules", "match"),
    [
        ([allow, 3], "item 1 has to be a function, not int"),
        ([Allow()], "item 0 has to be a function, not Allow"),
        ([Allow], "item 0 has to be a function, not the class Allow"),
        (["refund"], "item 0 has to be a function, not str"),
        ([None], "item 0 has to be a function, not NoneType"),
        ([require_approval], "item 0 is require_approval itself: call it with names of tools"),
        ([nothing], "item 0: nothing has to take one argument: too many positional arguments"),
        ([lambda event, more: event], "item 0: <lambda> has to take one argument: missing .* 'more'"),
    ],
)
def test_what_cannot_be_asked_is_refused(field: str, rules: list[object], match: str) -> None:
    with pytest.raises(DefinitionError, match=f"^agent 'a': {field}: {match}"):
        agent(**{field: rules})
    with pytest.raises(DefinitionError, match=f"^option '{field}': {match}"):
        run(**{field: rules})


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("given", [allow, None, 3])
def test_one_guardrail_is_no_list(field: str, given: object) -> None:
    with pytest.raises(DefinitionError, match=rf"^agent 'a': {field} has to be a list, .* {field}=\[…\]"):
        agent(**{field: given})
    with pytest.raises(DefinitionError, match=rf"^option '{field}' has to be a list .* {field}=\[…\]"):
        run(**{field: given})


def test_approval_is_required_of_tools_the_agent_has() -> None:
    rule = require_approval("refund")
    assert agent(tools=[refund], guardrails=[rule]).guardrails == (rule,)
    agent(tools=[helper.as_tool()], guardrails=[require_approval("helper")])
    agent(team=[helper], guardrails=[require_approval("task")])
    agent(tools=[tool(nothing, name="task")], guardrails=[require_approval("task")])


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({}, r"require_approval\('refnd'\), and it has no tool of that name: it has no tools"),
        (
            {"tools": [refund, helper.as_tool()]},
            r"require_approval\('refnd'\), .*: its tools are helper, refund$",
        ),
    ],
)
def test_approval_of_a_tool_that_is_not_there_is_refused(given: dict[str, Any], match: str) -> None:
    with pytest.raises(DefinitionError, match=f"^agent 'a': guardrails has {match}"):
        agent(**given, guardrails=[allow, require_approval("refnd")])


@pytest.mark.parametrize("field", ["input_guardrails", "output_guardrails"])
def test_approval_is_a_rule_on_calls(field: str) -> None:
    match = (
        rf"{field}'?: item 0 is require_approval\(refund\), which is about calls: put it in guardrails=\[…\]$"
    )
    with pytest.raises(DefinitionError, match=f"^agent 'a': {match}"):
        agent(tools=[refund], **{field: [require_approval("refund")]})
    with pytest.raises(DefinitionError, match=f"^option '{match}"):
        run(**{field: [require_approval("refund")]})


def test_approval_of_every_named_tool_is_checked() -> None:
    with pytest.raises(DefinitionError, match=r"require_approval\('charge'\)"):
        agent(tools=[refund], guardrails=[require_approval("refund", "charge")])


def test_approval_of_a_delegation_needs_a_team() -> None:
    match = r"^agent 'a': guardrails has require_approval\('task'\), and it has no team"
    with pytest.raises(DefinitionError, match=match):
        agent(tools=[refund], guardrails=[require_approval("task")])
    with pytest.raises(DefinitionError, match=match):
        agent(team=[helper], guardrails=[require_approval("task")]).with_team()


def test_approval_for_a_run_is_of_tools_some_agent_has() -> None:
    deep = Agent("deep", does="Does.", tools=[refund])
    entry = agent(tools=[Agent("b", does="Does.", team=[deep]).as_tool(name="ask_b")])
    agents = resolve_team(entry)
    for name in ("refund", "task", "ask_b"):
        check_run(entry, agents, {"guardrails": [require_approval(name)]})
    missing = r"^option 'guardrails' has require_approval\('b'\), .* the tools are ask_b, refund, task$"
    with pytest.raises(DefinitionError, match=missing):
        check_run(entry, agents, {"guardrails": [require_approval("refund", "b")]})
    with pytest.raises(DefinitionError, match=r"require_approval\('task'\), .* there are no tools$"):
        run(guardrails=[require_approval("task")])


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "30", None])
def test_the_time_for_guardrails_is_a_positive_number(seconds: object) -> None:
    with pytest.raises(DefinitionError, match=r"^option 'guardrail_timeout' has to be a positive number"):
        run(guardrail_timeout=seconds)


def test_guardrails_may_be_given_any_time() -> None:
    for seconds in (0.001, 3, 1e9):
        run(guardrail_timeout=seconds)


# ------------------------------------------------------------------ gate, hooks, callbacks


@pytest.mark.parametrize("given", [good, Completion, 3, True])
def test_a_gate_is_a_completion(given: object) -> None:
    with pytest.raises(DefinitionError, match=r"^agent 'a': completion has to be Completion or None, not "):
        agent(completion=given)


@pytest.mark.parametrize("rounds", [0, -1, 1.0, True, "3", None])
def test_a_gate_has_at_least_one_round(rounds: Any) -> None:
    with pytest.raises(DefinitionError, match=r"^Completion: max_attempts is an int of at least 1, not "):
        Completion(good, max_attempts=rounds)


@pytest.mark.parametrize("given", [allow, Hooks, {"before_tool": allow}, 3])
def test_hooks_are_hooks(given: object) -> None:
    with pytest.raises(
        DefinitionError, match=r"^agent 'a': hooks has to be Hooks such as Hooks\(before_tool"
    ):
        agent(hooks=given)
    with pytest.raises(DefinitionError, match=r"^option 'hooks' has to be Hooks such as "):
        run(hooks=given)


def two(first: object, second: object) -> None: ...


@pytest.mark.parametrize(
    ("field", "given", "match"),
    [
        ("on_metric", 3, "has to be a function, not int"),
        ("on_metric", MetricEvent, "has to be a function, not the class MetricEvent"),
        ("on_metric", told, "has to be a plain function: nothing would await an async one"),
        ("on_metric", Told(), "has to be a plain function"),
        ("on_metric", partial(told), "has to be a plain function"),
        ("on_metric", two, ": two has to take one argument"),
        ("on_spawn", "print", "has to be a function, not str"),
        ("on_spawn", told, "has to be a plain function"),
        ("on_spawn", two, ": two has to take one argument"),
        ("on_close", [], "has to be a function, not list"),
        ("on_close", nothing, ": nothing has to take 2 arguments"),
    ],
)
def test_who_is_told_is_a_function(field: str, given: object, match: str) -> None:
    with pytest.raises(DefinitionError, match=f"^agent 'a': {field}:? ?{match}"):
        agent(**{field: given})
    if field == "on_metric":
        with pytest.raises(DefinitionError, match=f"^option 'on_metric':? ?{match}"):
            run(on_metric=given)


@pytest.mark.parametrize("given", ["stop", Stop(), Stop, Extend(Budget()), nothing])
def test_who_decides_at_a_limit_is_a_function(given: object) -> None:
    with pytest.raises(
        DefinitionError, match=r"^option 'on_limit'.* has to (be a function, not|take one argument)"
    ):
        run(on_limit=given)


def test_who_decides_at_a_limit_may_take_time() -> None:
    def decide(info: LimitInfo) -> LimitDecision:
        return Stop()

    async def ask(info: LimitInfo) -> LimitDecision:
        return Stop()

    for decision in (decide, ask, partial(decide), Mock()):
        run(on_limit=decision)


def test_what_is_left_out_may_be_none() -> None:
    run(on_limit=None, hooks=None, on_metric=None)


@pytest.mark.parametrize(
    "name", ["guardrail", "completion", "on_spawn", "on_close", "onlimit", "output_type"]
)
def test_options_of_other_names_are_refused(name: str) -> None:
    with pytest.raises(
        DefinitionError, match=f"^unknown option '{name}'; the options are .*guardrails, .*on_limit"
    ):
        run(**{name: None})


# ------------------------------------------------------------------ typed output


class Model(BaseModel):
    x: int


@dataclass
class Data:
    x: int


class Dict(TypedDict):
    x: int


@pytest.mark.parametrize("kind", [Model, Data, Dict, int, int | str, list[Model], Model | None, bool])
def test_an_output_type_is_one_with_a_schema(kind: Any) -> None:
    made = agent(output_type=kind)
    assert made.output_type == kind
    assert isinstance(made._output, OutputSpec)
    assert made.with_team(helper)._output is made._output


@pytest.mark.parametrize("kind", [Callable[[], int], object(), Mock, 3, "no such type"])
def test_an_output_type_that_cannot_be_a_schema_is_refused(kind: Any) -> None:
    with pytest.raises(DefinitionError, match=r"^agent 'a': output_type .* cannot become a JSON schema"):
        agent(output_type=kind)


def test_a_typed_output_has_a_tool_of_its_own() -> None:
    taken: tuple[Tool[Any, ..., object], ...] = (final,)
    assert agent(tools=taken).tools == taken
    for made in (final, helper.as_tool(name="final_result")):
        with pytest.raises(
            DefinitionError, match=r"^agent 'a': tools has one named 'final_result', .* typed output"
        ):
            agent(tools=[made], output_type=Model)
