"""One process of the demo: the first runs until somebody is asked, the second answers. Started by the command."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from overt.demo import screen
from overt.demo.team import COORDINATOR, JOB, RUN_ID, entries, model
from overt.errors import OvertError
from overt.policy import ResumePolicy
from overt.request import Answer, Request
from overt.result import Status, TaskResult
from overt.runtime import Runtime
from overt.stores import SQLiteStore

__all__ = ("DATABASE", "main")

DATABASE = "run.db"


def main(arguments: list[str]) -> int:
    """Play one part: `start FOLDER POLICY`, or `answer FOLDER HOW`. Returns the exit code."""
    part, folder, choice = arguments[0], Path(arguments[1]), arguments[2]
    screen.by_line()
    try:
        return _start(folder, ResumePolicy(choice)) if part == "start" else _answer(folder, choice)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return screen.cut_off()
    except OvertError as error:
        print(f"overt demo: {error}", file=sys.stderr)
        return 1


def _start(folder: Path, policy: ResumePolicy) -> int:
    print(f"\nProcess {os.getpid()} starts run {RUN_ID}")
    screen.field("job", JOB)
    result = anyio.run(_run, folder, policy)
    if result.status is Status.PENDING:
        print(f"  The run waits for a person; it is all in {DATABASE}. Process {os.getpid()} ends here.")
        return 0
    if result.status is not Status.DONE:
        screen.result(result)
        return 1
    print("  The run is done; nobody had to be asked.")
    return 0


async def _run(folder: Path, policy: ResumePolicy) -> TaskResult[str]:
    store = SQLiteStore(folder / DATABASE)
    try:
        result, _ = await COORDINATOR.run(
            JOB, store=store, run_id=RUN_ID, resume_policy=policy, deps=folder, model=_model()
        )
        return result
    finally:
        await store.close()


def _answer(folder: Path, how: str) -> int:
    print(f"\nProcess {os.getpid()} opens run {RUN_ID}")
    result, runtime = anyio.run(_go_on, folder, None)
    while result.pending is not None:
        screen.request(result.pending, runtime.policy)
        answer = _decide(result.pending, folder, how)
        result, runtime = anyio.run(partial(_go_on, folder, answer))
    print()
    screen.result(result, runtime)
    screen.ledger(runtime)
    screen.counts(folder)
    return 0 if result.status is Status.DONE else 1


async def _go_on(folder: Path, answer: Answer[Any] | None) -> tuple[TaskResult[str], Runtime[str]]:
    """Open the run and answer it; without an answer go on with what was cut off or failed, if anything was."""
    store = SQLiteStore(folder / DATABASE)
    try:
        runtime = await Runtime.open(COORDINATOR, RUN_ID, store=store, deps=folder, model=_model())
        if answer is not None:
            return await runtime.resume(answer), runtime
        result = runtime.result()
        if result.status not in (Status.PENDING, Status.DONE, Status.INCOMPLETE):
            print("  It was cut off or failed; recover() goes on with it.")
            result = await runtime.recover()
        return result, runtime
    finally:
        await store.close()


def _decide(request: Request, folder: Path, how: str) -> Answer[Any]:
    if request.kind == "in_doubt":
        return _clear_doubt(request, folder)
    ok = _ask() if how == "ask" else how == "approve"
    screen.field("answer", "approved" if ok else "declined")
    return Answer[Any](id=request.id, ok=ok, reason=None if ok else "declined", by="demo")


def _ask() -> bool:
    while True:
        print("  Approve? [y/n] ", end="", flush=True)
        line = (
            sys.stdin.readline() if sys.stdin is not None else ""
        )  # None where it was closed before the start
        if not line:
            print()
            raise StdinClosed
        if (word := line.strip().lower()) in ("y", "yes", "n", "no"):
            return word.startswith("y")


class StdinClosed(OvertError):
    """There is nobody to ask."""

    def __str__(self) -> str:
        return "nobody can be asked, the input is closed; use --answer approve or --answer decline"


def _clear_doubt(request: Request, folder: Path) -> Answer[Any]:
    """Say what became of a refund that was cut off: its key is in the file, or it is not."""
    happened = request.data["idempotency_key"] in [line["key"] for line in entries(folder)]
    outcome = {"outcome": "succeeded", "output": "refunded"} if happened else {"outcome": "retry"}
    screen.field("answer", f"looked it up in the file: {outcome['outcome']}")
    return Answer[Any](id=request.id, ok=True, data=outcome, by="demo")


def _model() -> Any:
    return model(os.environ.get("OVERT_MODEL", ""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
