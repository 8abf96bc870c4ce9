"""The example with everything in it: three processes, one of them killed, and books that agree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "examples" / "three_levels.py"


@pytest.fixture(scope="module")
def printed() -> list[str]:
    """What the program prints; it is run once."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONWARNINGS": "error"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def parts(printed: list[str]) -> list[list[str]]:
    """The lines of each process."""
    found: list[list[str]] = []
    for line in printed:
        if re.fullmatch(r"Process \d, pid \d+", line):
            found.append([])
        found[-1].append(line.strip())
    return found


def test_three_processes_of_which_one_is_killed_in_the_middle_of_a_sentence(printed: list[str]) -> None:
    heads = [lines[0] for lines in parts(printed)]
    assert [head.split(",")[0] for head in heads] == ["Process 1", "Process 2", "Process 3"]
    assert len({head.split()[-1] for head in heads}) == 3
    second = parts(printed)[1]
    assert second[-2:] == [
        "desk.1: writes: Dear customer, we are sorry. You",
        "Process 2 was killed with signal 9",
    ]


def test_a_guardrail_asks_three_levels_down_and_another_denies(printed: list[str]) -> None:
    first, second, third = parts(printed)
    asked = "cashier.1: ASKS (approval): Allow refund(account='DE-4711', amount=250.0, order='A-1002')?"
    assert asked in first
    assert "cashier.1: DENIED refund of A-1003: XX-13 is not the customer's account" in first
    assert first[-1].startswith(
        "pending: Waiting for an answer to: Allow refund(account='DE-4711', amount=250.0"
    )
    assert second[2] == "cashier.1: refund returned: refunded 200.00"
    assert third[-1] == "The bank has paid: A-1001 40.00, A-1002 200.00"


def test_a_budget_suspends_and_nothing_is_bought_again(printed: list[str]) -> None:
    _, second, third = parts(printed)
    asked = "maxModelCalls of the run is spent: 6 of 6. root/desk.1 wants to go on. How much more?"
    at = second.index(f"desk.1: ASKS (budget): {asked}")
    assert second[at + 1] == "desk.1: ANSWERED by ada: 10"
    replies = [line for line in (*second, *third) if ": writes: " in line or ": calls " in line]
    # The second letter was cut off, and is the only reply that comes again.
    assert len(replies) == 6
    assert len([line for line in replies if "we are sorry. You" in line]) == 2


def test_the_gate_fails_twice_and_then_passes_over_two_processes(printed: list[str]) -> None:
    judged = [[line for line in lines if "JUDGED" in line] for lines in parts(printed)]
    assert judged == [
        [],
        [
            "desk.1: JUDGED, round 1, sent back: The letter does not mention 'sorry'. Write it again, all of it."
        ],
        [
            "desk.1: JUDGED, round 2, sent back: The letter does not mention '240.00'. Write it again, all of it.",
            "desk.1: JUDGED, round 3, passed: sorry, the sum and the refund that was denied",
        ],
    ]


def test_the_ledger_adds_up(printed: list[str]) -> None:
    at = next(number for number, line in enumerate(printed) if line.startswith("handle "))
    rows = {line.split()[0]: line.split()[-2:] for line in printed[at + 1 : at + 5]}
    assert rows == {
        "root": ["0", "900"],
        "desk.1": ["400", "900"],
        "case_worker.1": ["300", "500"],
        "cashier.1": ["200", "200"],
    }
    assert "10 model calls, of which 1 was lost with its process" in printed
