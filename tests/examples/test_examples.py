"""The record's measurements run as they stand, warnings are errors, and print what they say they show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "record"

PRINTED: dict[str, tuple[str, ...]] = {
    "a_tree_total.py": (
        "status       done",
        "total_tokens 600",
        "own_tokens   200",
        "root/coordinator.1 turns=2 total=600 own=200",
        "root/coordinator.1/explore.1 turns=1 total=400 own=400",
    ),
    "b_named_limits.py": (
        "status       incomplete",
        "limit        maxTurns",
        "limit_at     root/searcher.1",
        "turns        3",
        "total_tokens 210",
    ),
    "c_rewind.py": (
        "before: invocations 1 turns 2 tokens 100",
        "before: stored messages 0",
        "before: answering runs again ['stage']",
        "before: answering buys again 2 turns",
        "after:  status done",
        "after:  invocations 3 turns 6 tokens 300",
        "after:  in order stage stage commit",
    ),
    "c_rewind.py --policy reuse": (
        "before: invocations 1 turns 2 tokens 100",
        "before: answering runs again []",
        "before: answering buys again 2 turns",
        "after:  invocations 2 turns 6 tokens 300",
        "after:  in order stage commit",
    ),
    "c_rewind.py --policy continue": (
        "before: invocations 1 turns 2 tokens 100",
        "before: stored messages 0",
        "before: answering buys again 0 turns",
        "after:  invocations 2 turns 4 tokens 200",
        "after:  in order stage commit",
    ),
    "d_second_prompt.py": (
        "first  done the first answer total_tokens 100 turns 1",
        "second done the second answer total_tokens 200 turns 2",
    ),
}
"""Lines each example of the record's measurements prints, in this order; `test_programs.py` has the others."""


def test_every_record_has_its_lines() -> None:
    assert {command.split()[0] for command in PRINTED} == {p.name for p in EXAMPLES.glob("*.py")}


@pytest.mark.parametrize("command", sorted(PRINTED))
def test_an_example_runs_and_prints(command: str) -> None:
    name, *arguments = command.split()
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = iter(done.stdout.splitlines())
    missing = [line for line in PRINTED.get(command, ()) if line not in lines]
    assert not missing, done.stdout
