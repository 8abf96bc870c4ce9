"""What a guardrail costs a call: a run with one beside the same run without, in one process, by turns."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from time import process_time

from benchmarks.common import Numbers, Row, main, repeat, row
from benchmarks.workload import MANY, Script, noop, worker

from overt import Agent, Allow, BeforeTool, GuardrailEvent, Hooks, Ruling, Status

TURNS = 200
ALLOW = Allow()


def allow(event: GuardrailEvent) -> Ruling:
    return ALLOW


async def allow_async(event: GuardrailEvent) -> Ruling:
    return ALLOW


def look(event: BeforeTool) -> None:
    """Change nothing."""


guarded = Agent("worker", does="Calls a tool.", tools=[noop], budget=MANY, guardrails=[allow])
guarded_twice = Agent("worker", does="Calls a tool.", tools=[noop], budget=MANY, guardrails=[allow, allow])
waiting = Agent("worker", does="Calls a tool.", tools=[noop], budget=MANY, guardrails=[allow_async])
hooked = Agent("worker", does="Calls a tool.", tools=[noop], budget=MANY, hooks=Hooks(before_tool=look))


async def turns(agent: Agent[None, str]) -> Numbers:
    """CPU time of a turn with one call, in a run of many."""
    start = process_time()
    result, _ = await agent.run("go", model=Script(TURNS))
    took = process_time() - start
    assert result.status is Status.DONE, result
    assert result.usage.tool_calls == TURNS, result
    return {"turn": took / TURNS * 1e6}


def more(with_: Sequence[float], without: Sequence[float]) -> list[float]:
    """The difference in each repetition."""
    return [a - b for a, b in zip(with_, without, strict=True)]


async def measure(args: argparse.Namespace) -> Iterable[Row]:
    """CPU time, that of the turn itself taken off."""
    times, warm = (1, 1) if args.quick else (31, 3)
    got = await repeat(
        {
            "bare": lambda: turns(worker),
            "one": lambda: turns(guarded),
            "two": lambda: turns(guarded_twice),
            "async": lambda: turns(waiting),
            "hook": lambda: turns(hooked),
        },
        times=times,
        warm=warm,
    )
    turn = {name: samples["turn"] for name, samples in got.items()}
    return [
        row(
            "guardrail that allows, a call",
            more(turn["one"], turn["bare"]),
            "µs CPU",
            target=("value", "<=", 15),
        ),
        row("  a second one", more(turn["two"], turn["one"]), "µs CPU"),
        row(
            "  one that is async",
            more(turn["async"], turn["bare"]),
            "µs CPU",
            note="asked beside a timer once the reply is recorded; its ruling is a record of its own",
        ),
        row("  before_tool that changes nothing", more(turn["hook"], turn["bare"]), "µs CPU"),
    ]


if __name__ == "__main__":
    main(measure)
