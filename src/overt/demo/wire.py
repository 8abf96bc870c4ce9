"""`overt demo --wire`: the same job through providers' own clients, over HTTP, and whether it came to the same."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from overt.demo.clients import CLIENTS
from overt.demo.process import DATABASE
from overt.demo.provider.server import Provider, serve
from overt.demo.team import COORDINATOR, JOB, RUN_ID, entries, script
from overt.errors import DefinitionError
from overt.ledger import Ledger
from overt.policy import ResumePolicy
from overt.request import Answer
from overt.runtime import Runtime
from overt.stores import SQLiteStore

__all__ = ("run",)

_COLUMNS = "  {:<17} {:<20} {:>9} {:>6} {:>7}  {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What a run came to: what it said and spent, and what its tools did."""

    text: str
    ledger: Ledger
    effects: Counter[str]


class _Side:
    """One provider: its local server, its folder, and the process that is at work through its client."""

    def __init__(self, name: str, folder: Path, provider: Provider) -> None:
        self.name = name
        self.folder = folder
        self.provider = provider
        self.wrong: str | None = None
        self._child: subprocess.Popen[str] | None = None

    def begin(self, part: str, choice: str) -> None:
        """Start a process for the part, unless something is wrong already."""
        if self.wrong is None:
            command = [
                "-m",
                "overt.demo.process",
                part,
                str(self.folder),
                choice,
                self.name,
                self.provider.url,
            ]
            self._child = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
            )

    def end(self) -> None:
        """Wait for the process that was started."""
        if self._child is not None:
            said, _ = self._child.communicate()
            if self._child.returncode:
                said = textwrap.indent(said.strip(), "  ")
                self.wrong = f"its process ended with {self._child.returncode} and said\n{said}"
            self._child = None

    def kill(self) -> None:
        """End a process that is still at work, if there is one; its run is not kept."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()


def run(names: list[str], *, policy: ResumePolicy, answer: str) -> int:
    """Play the job through each provider's client; one line for each says whether it came to the same.

    Args:
        names: Of the providers, as in `CLIENTS`.
        policy: What an answer does with the work before it.
        answer: `approve` or `decline`.

    Returns:
        The exit code: 1 if any of them failed or came to something else, 130 if interrupted.
    """
    print("Over the wire: the same job through each provider's own client, streamed, in two")
    print("processes again, against a local server that speaks the provider's protocol.\n")
    print(_COLUMNS.format("provider", "client", "streamed", "turns", "tokens", "same ledger"))
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="overt-demo-wire-")))
            sides = [_side(name, folder / name, stack) for name in names]
            for side in sides:
                side.begin("start", str(policy))
            want = _reference(folder, policy, answer)
            for side in sides:
                side.end()
                side.begin("answer", answer)
            for side in sides:
                side.end()
                _compare(side, want)
    except KeyboardInterrupt:
        print("\nInterrupted; nothing is kept.")
        return 130
    wrong = [f"{side.name}: {side.wrong}" for side in sides if side.wrong is not None]
    for told in wrong:
        print(f"\n{told}")
    return 1 if wrong else 0


def _side(name: str, folder: Path, stack: ExitStack) -> _Side:
    folder.mkdir()
    side = _Side(name, folder, stack.enter_context(serve(script())))
    stack.callback(side.kill)
    try:
        CLIENTS[name].installed()
    except DefinitionError as error:
        side.wrong = str(error)
    return side


def _compare(side: _Side, want: _Outcome) -> None:
    """Print what one provider's run came to, and note what is wrong with it."""
    client = CLIENTS[side.name]
    try:
        label = f"{client.package} {client.installed()}"
    except DefinitionError:
        label = f"{client.package}: not there"
    if side.wrong is not None:
        print(_COLUMNS.format(side.name, label, "", "", "", "failed"))
        return
    got = anyio.run(_stored, side.folder)
    sent = side.provider.exchanges
    pieces = sum(exchange.streamed for exchange in sent)
    total = got.ledger.total
    same = "yes" if got == want else "no"
    streamed = f"{pieces} of {len(sent)}"
    print(_COLUMNS.format(side.name, label, streamed, total.turns, f"{total.total_tokens:,}", same))
    if got != want:
        side.wrong = f"expected\n{_shown(want)}\n\nand got\n{_shown(got)}"
    elif pieces < len(sent):
        side.wrong = f"only {streamed} replies were streamed"


def _shown(outcome: _Outcome) -> str:
    effects = ", ".join(f"{what} {times}" for what, times in sorted(outcome.effects.items()))
    return textwrap.indent(f"{outcome.ledger}\n{effects}\n{outcome.text}", "  ")


def _reference(folder: Path, policy: ResumePolicy, answer: str) -> _Outcome:
    """Play the job without a wire, in this process."""
    with contextlib.redirect_stdout(io.StringIO()):
        return anyio.run(_played, folder, policy, answer)


async def _played(folder: Path, policy: ResumePolicy, answer: str) -> _Outcome:
    runtime = Runtime(COORDINATOR, resume_policy=policy, deps=folder, model=script())
    result = await runtime.run(JOB)
    while result.pending is not None:
        ok = answer == "approve"
        reason = None if ok else "declined"
        result = await runtime.resume(Answer[Any](id=result.pending.id, ok=ok, reason=reason, by="demo"))
    return _outcome(runtime, folder)


async def _stored(folder: Path) -> _Outcome:
    store = SQLiteStore(folder / DATABASE)
    try:
        runtime = await Runtime.open(COORDINATOR, RUN_ID, store=store, deps=folder, model=script())
        return _outcome(runtime, folder)
    finally:
        await store.close()


def _outcome(runtime: Runtime[str], folder: Path) -> _Outcome:
    effects = Counter(str(line["what"]) for line in entries(folder))
    return _Outcome(text=runtime.result().text, ledger=runtime.ledger(), effects=effects)
