"""What agents and runs are told about guardrails, gate, hooks and limits, and what is refused where it is declared."""

from __future__ import annotations

import subprocess
import sys

from overt import (
    Agent,
    Allow,
    Attempt,
    Completion,
    GuardrailEvent,
    Handle,
    Hooks,
    MetricEvent,
    OutputEvent,
    PromptEvent,
    Ruling,
)


def allow(event: GuardrailEvent) -> Ruling:
    return Allow()


async def allow_prompt(event: PromptEvent) -> Ruling:
    return Allow()


def allow_output(event: OutputEvent) -> Ruling:
    return Allow()


def good(attempt: Attempt[str]) -> tuple[bool, str]:
    return True, ""


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
    for kept in (made, made.with_team(Agent("b", does="Does."))):
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


def test_declaring_an_agent_loads_no_policy_it_does_not_have() -> None:
    code = (
        "import sys, overt\n"
        "overt.Agent('a', does='Does.')\n"
        "later = ('overt.guardrail', 'overt.hooks', 'overt.completion', 'overt._output', 'overt.delegate')\n"
        "print([name for name in later if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
