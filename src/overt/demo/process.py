"""One process of the demo: the first runs until somebody is asked, the second answers. Started by the command."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from overt.demo import screen
from overt.demo.team import COORDINATOR, JOB, RUN_ID, entries, model
from overt.errors import OvertError
from overt.message import Model
from overt.policy import ResumePolicy
from overt.request import Answer, Request
from overt.result import Status, TaskResult
from overt.runtime import Runtime
from overt.stores import SQLiteStore
from overt.stream import RunStream

__all__ = ("DATABASE", "Play", "answer", "main", "start")

DATABASE = "run.db"


def main(arguments: list[str]) -> int:
    """Play one part: `start FOLDER POLICY`, or `answer FOLDER HOW`. Returns the exit code."""
    part, folder, choice = arguments
    screen.by_line()
    try:
        play = Play(Path(folder), model(os.environ.get("OVERT_MODEL", "")))
        return start(play, ResumePolicy(choice)) if part == "start" else answer(play, choice)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return screen.cut_off()
    except OvertError as error:
        print(f"overt demo: {error}", file=sys.stderr)
        return 1


@dataclass(frozen=True)
class Play:
    """One run of the job.

    Attributes:
        folder: Where it is kept.
        model: Who answers.
        streamed: Whether replies are read piece by piece.
    """

    folder: Path
    model: Model | str
    streamed: bool = False

    async def begin(self, policy: ResumePolicy) -> TaskResult[str]:
        """Run the job until it is done or somebody is asked."""
        store = SQLiteStore(self.folder / DATABASE)
        try:
            runtime: Runtime[str] = Runtime(
                COORDINATOR,
                store=store,
                run_id=RUN_ID,
                resume_policy=policy,
                deps=self.folder,
                model=self.model,
            )
            if not self.streamed:
                return await runtime.run(JOB)
            return await _read(runtime.stream(JOB))
        finally:
            await store.close()

    async def go_on(self, answer: Answer[Any] | None) -> tuple[TaskResult[str], Runtime[str]]:
        """Open the run and answer it; without an answer go on with what was cut off or failed, if anything was."""
        store = SQLiteStore(self.folder / DATABASE)
        try:
            runtime = await Runtime.open(COORDINATOR, RUN_ID, store=store, deps=self.folder, model=self.model)
            if answer is not None:
                if self.streamed:
                    return await _read(runtime.stream(answer=answer)), runtime
                return await runtime.resume(answer), runtime
            result = runtime.result()
            if result.status not in (Status.PENDING, Status.DONE, Status.INCOMPLETE):
                print("  It was cut off or failed; recover() goes on with it.")
                result = await runtime.recover()
            return result, runtime
        finally:
            await store.close()


async def _read(stream: RunStream[str]) -> TaskResult[str]:
    """Read a stream to its end; somebody has to, for the model to be asked for pieces."""
    async with stream:
        async for _ in stream:
            pass
    return await stream.result()


def start(play: Play, policy: ResumePolicy) -> int:
    """Play the first part and return its exit code."""
    print(f"\nProcess {os.getpid()} starts run {RUN_ID}")
    screen.field("job", JOB)
    result = anyio.run(play.begin, policy)
    if result.status is Status.PENDING:
        print(f"  The run waits for a person; it is all in {DATABASE}. Process {os.getpid()} ends here.")
        return 0
    if result.status is not Status.DONE:
        screen.result(result)
        return 1
    print("  The run is done; nobody had to be asked.")
    return 0


def answer(play: Play, how: str) -> int:
    """Play the second part and return its exit code."""
    print(f"\nProcess {os.getpid()} opens run {RUN_ID}")
    result, runtime = anyio.run(play.go_on, None)
    while result.pending is not None:
        screen.request(result.pending, runtime.policy)
        decided = _decide(result.pending, play.folder, how)
        result, runtime = anyio.run(play.go_on, decided)
    print()
    screen.result(result, runtime)
    screen.ledger(runtime)
    screen.counts(play.folder)
    return 0 if result.status is Status.DONE else 1


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
