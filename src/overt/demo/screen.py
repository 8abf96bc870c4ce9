"""What the demo prints: short plain lines, at most 80 characters where they are ours."""

from __future__ import annotations

import io
import os
import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from overt.demo.team import LEDGER, entries
from overt.events import Rewound, TurnFinished, WakeBegan
from overt.policy import ResumePolicy
from overt.request import ReplayedCall, Request
from overt.result import Status, TaskResult
from overt.runtime import Runtime

__all__ = ("POLICY", "by_line", "counts", "cut_off", "field", "ledger", "request", "result")

POLICY = {
    ResumePolicy.REWIND: "rewind: an answer replays what waits for it from the start; turns are bought and tools run "
    'again, but not what is on_replay="reuse"',
    ResumePolicy.CONTINUE: "continue: an answer goes on where the run stopped; only the tool that asked runs again",
}


def by_line() -> None:
    """Print each line as it comes, so that two processes do not mix theirs, and whatever the encoding lacks as `?`."""
    stream: object = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(line_buffering=True, errors="replace")


def cut_off() -> int:
    """Whoever read the output has gone (`| head`): say no more, and return the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 1


def field(name: str, text: str) -> None:
    """Print a named value; long ones are wrapped under themselves."""
    print(textwrap.fill(text, 80, initial_indent=f"  {name:<10}", subsequent_indent=" " * 12))


def request(given: Request, policy: ResumePolicy) -> None:
    """Print what is asked, and what answering would repeat."""
    field("asked by", "/".join(given.path))
    field("asks", f"{given.kind}: {given.prompt}")
    if policy is ResumePolicy.CONTINUE:
        field("repeats", "no turn and no finished tool")
        return
    field("repeats", f"{_count(given.turns_again, 'turn')} bought again; runs again: {_calls(given.replays)}")


def result(given: TaskResult[Any], runtime: Runtime[Any] | None = None) -> None:
    """Print a result; with its runtime also whose turns were bought again, and what `continue` would have cost."""
    field("result", f"{given.status}: {given.text}")
    field("tokens", f"{given.own_tokens:,} the coordinator's own, {given.total_tokens:,} with its team")
    replay = given.replay
    if replay is not None:
        turns, tokens = _bought_again(runtime)
        again = f"{_count(replay.turns_bought_again, 'turn')} bought again"
        whose = ", ".join(f"{number} of {handle}" for handle, number in turns.items())
        field("replay", f"attempt {replay.attempt}; {again}" + (f": {whose}" if whose else ""))
        field("", f"ran again: {_calls(replay.calls_rerun)}")
        field("", f"recorded result used: {_calls(replay.calls_reused)}")
        if tokens:
            less = given.total_tokens - tokens
            field("", f"continue would have cost about {less:,} tokens, not {given.total_tokens:,}")
    if given.status is Status.INCOMPLETE:
        field("limit", f"{given.limit} at {given.limit_at}")


def ledger(runtime: Runtime[Any]) -> None:
    """Print what each handle spent, as a tree."""
    print("\n" + textwrap.indent(str(runtime.ledger()), "  "))


def counts(folder: Path) -> None:
    """Print how often each tool's effect is in the file."""
    print(f"\n  How often it really happened, counted in {LEDGER}:")
    lines = entries(folder)
    for what in ("track", "look_up", "refund", "send_voucher"):
        keys = [line["key"] for line in lines if line["what"] == what]
        print(f"    {what:<13} {len(keys)}    {_count(len(set(keys)), 'idempotency key')}")
    print("  A tool call counts once in an attempt, also if it only asked; task is one.")
    print("  A line of the file is an effect.")


def _bought_again(runtime: Runtime[Any] | None) -> tuple[Counter[str], int]:
    """Return the turns that rewinds bought again, by the last part of the handle's id, and what they had cost."""
    turns: Counter[str] = Counter()
    tokens = 0
    attempt: defaultdict[str, list[int]] = defaultdict(list)
    for event in () if runtime is None else runtime.events():
        if isinstance(event, WakeBegan):
            attempt[event.handle].clear()
        elif isinstance(event, TurnFinished):
            attempt[event.handle].append(0 if event.usage is None else event.usage.total_tokens)
        elif isinstance(event, Rewound) and attempt[event.handle]:
            turns[event.handle.rpartition("/")[2]] += len(attempt[event.handle])
            tokens += sum(attempt.pop(event.handle))
    return turns, tokens


def _calls(calls: Iterable[ReplayedCall]) -> str:
    return ", ".join(call.tool for call in calls) or "nothing"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
