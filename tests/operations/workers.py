"""Processes that drive a run in a file, spoken to line by line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from overt import ResumePolicy

__all__ = ("Worker",)


class Worker:
    """One process, spoken to line by line."""

    def __init__(self, folder: Path, verb: str, *pauses: str, policy: ResumePolicy) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable, "-W", "error", "-m", "tests.operations.worker",
                str(folder / "runs.db"), str(folder / "world"), policy.value, verb, *pauses,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            cwd=Path(__file__).parent.parent.parent,
        )  # fmt: skip

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        with self.process:  # closes its pipes and waits for it
            pass
