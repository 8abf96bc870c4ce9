"""The benchmarks run, and every row of their table is there. What they measure is not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = {
    "turns": {"turn 50", "turn 200", "turn 800", "turn, mean of 830", "turn 800 / turn 50"},
    "stream": {"event that is read, more than unread", "piece of text that is read, more than said"},
    "guardrails": {
        "guardrail that allows, a call",
        "  a second one",
        "  one that is async",
        "  before_tool that changes nothing",
    },
    "delegations": {"delegation, one of 100 in a run"},
    "crowd": {"1,000 runs at once, no think time", "1,000 runs at once, no think time: peak RSS grew"},
    "crowd-thinking": {
        "1,000 runs at once, 50 ms think time",
        "1,000 runs at once, 50 ms think time: peak RSS grew",
    },
    "park": {
        "parked after 50 turns, and resumed",
        "  suspend",
        "  write",
        "  load",
        "  resume",
        "parked run of 50 turns",
    },
    "encryption": {
        "a record of 500 characters, encrypted and decrypted",
        "a record of 10,000 characters, encrypted and decrypted",
        "a turn on an encrypted file",
    },
    "disk": {
        "turn on SQLiteStore, more than in memory",
        "  less its 2.0 fsyncs",
        "  CPU of it",
        "fsync of a 4 KiB append",
    },
    "fleet": {
        "open and resume one of 10,000 parked runs",
        "  beside 10,000 finished runs",
        "  oldest five of its open requests",
        "  file, a parked run",
        "parked runtime in memory",
        "bytes that turn 500 appends",
    },
    "imports": {"import overt", "import overt, CPU", "distributions of a bare install"},
}
# Where a number means something without a disk or a machine beside it.
SIGNED = {
    *ROWS["guardrails"],
    *ROWS["stream"],
    "turn on SQLiteStore, more than in memory",
    "  less its 2.0 fsyncs",
    "  CPU of it",
}


def bench(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--quick", *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


# One crowd shows that crowds are measured; the other takes as long again.
@pytest.mark.parametrize("name", [name for name in ROWS if name != "crowd-thinking"])
def test_rows(name: str) -> None:
    rows: list[dict[str, Any]] = json.loads(bench("--json", "--only", name))["rows"]
    assert {row["measure"] for row in rows} == ROWS[name]
    for row in rows:
        assert row["measure"] in SIGNED or row["value"] >= 0, row
        if row["target"] is not None:
            assert row["met"] is (row["missed_by"] is None), row


def test_table() -> None:
    text = bench("--only", "imports,delegations")
    for name in ROWS["imports"] | ROWS["delegations"]:
        assert f"\n{name}" in text
    assert "quick" in text.splitlines()[0]
