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

from overt.demo.clients import CLIENTS, connect
from overt.demo.process import DATABASE, Play, answer, start
from overt.demo.provider.server import Provider, serve
from overt.demo.team import COORDINATOR, JOB, RUN_ID, entries, script
from overt.errors import DefinitionError, OvertError, RunNotFound
from overt.ledger import Ledger
from overt.policy import ResumePolicy
from overt.request import Answer
from overt.runtime import Runtime
from overt.stores import SQLiteStore

__all__ = ("main", "run")

_COLUMNS = "  {:<17} {:<20} {:>9} {:>6} {:>7}  {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What a run came to: what it said and spent, and what its tools did."""

    text: str
    ledger: Ledger
    effects: Counter[str]


def run(names: list[str], *, policy: ResumePolicy, how: str) -> int:
    """Play the job through each provider's client; one line for each says whether it came to the same.

    Args:
        names: Of the providers, as in `CLIENTS`.
        policy: What an answer does with the work before it.
        how: The question is answered: `approve` or `decline`.

    Returns:
        The exit code: 1 if any of them failed or came to something else, 130 if interrupted.
    """
    print("Over the wire: the same job through each provider's own client, streamed, in two")
    print("processes again, against a local server that speaks the provider's protocol.\n")
    print(_COLUMNS.format("provider", "client", "streamed", "turns", "tokens", "same ledger"))
    wrong: list[str] = []
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="overt-demo-wire-")))
            sides = {name: stack.enter_context(serve(script())) for name in names}
            there = [f"{name}={sides[name].url}" for name in names if _missing(name) is None]
            for part, choice in (("start", str(policy)), ("answer", how)):
                told = _process(part, str(folder), choice, *there)
                wrong += [] if told is None else [told]
            want = _reference(folder, policy, how)
            for name in names:
                told = _compare(name, folder / name, sides[name], want)
                wrong += [] if told is None else [f"{name}: {told}"]
    except KeyboardInterrupt:
        print("\nInterrupted; nothing is kept.")
        return 130
    for told in wrong:
        print(f"\n{told}")
    return 1 if wrong else 0


def _missing(name: str) -> str | None:
    """Return what has to be installed for a provider, `None` for nothing."""
    try:
        CLIENTS[name].installed()
    except DefinitionError as error:
        return str(error)
    return None


def _process(*arguments: str) -> str | None:
    """Play one part of all runs in a process of its own, and return what it said if it went wrong."""
    with subprocess.Popen(
        [sys.executable, "-m", "overt.demo.wire", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as child:
        try:
            said, _ = child.communicate()
        except BaseException:
            child.kill()  # its runs are not kept
            raise
    if child.returncode == 0:
        return None
    return f"The process ended with {child.returncode} and said\n{textwrap.indent(said.strip(), '  ')}"


def main(arguments: list[str]) -> int:
    """Play one part through several clients, one after the other: `start FOLDER POLICY PROVIDER=URL…`, or `answer`."""
    part, folder, choice, *sides = arguments
    failed = 0
    for side in sides:
        name, _, url = side.partition("=")
        print(f"{name}:", flush=True)
        try:
            at = Path(folder) / name
            at.mkdir(exist_ok=True)
            played = Play(at, connect(name, url), streamed=True)
            failed |= start(played, ResumePolicy(choice)) if part == "start" else answer(played, choice)
        except OvertError as error:
            print(error)
            failed = 1
    return failed


def _compare(name: str, folder: Path, provider: Provider, want: _Outcome) -> str | None:
    """Print what one provider's run came to, and return what is wrong with it, `None` for nothing."""
    client = CLIENTS[name]
    missing = _missing(name)
    if missing is not None:
        print(_COLUMNS.format(name, f"no {client.package}", "", "", "", "not run"))
        return missing
    label = f"{client.package} {client.installed()}"
    try:
        # Opening a store makes its file.
        got = anyio.run(_stored, folder) if (folder / DATABASE).exists() else None
    except RunNotFound:
        got = None
    if got is None:
        print(_COLUMNS.format(name, label, "", "", "", "not begun"))
        return "its run was not begun"
    total = got.ledger.total
    sent = provider.exchanges
    streamed = f"{sum(exchange.streamed for exchange in sent)} of {len(sent)}"
    same = "yes" if got == want else "no"
    print(_COLUMNS.format(name, label, streamed, total.turns, f"{total.total_tokens:,}", same))
    if got != want:
        return f"expected\n{_shown(want)}\n\nand got\n{_shown(got)}"
    if not all(exchange.streamed for exchange in sent):
        return f"only {streamed} replies were streamed"
    return None


def _shown(outcome: _Outcome) -> str:
    effects = ", ".join(f"{what} {times}" for what, times in sorted(outcome.effects.items()))
    return textwrap.indent(f"{outcome.ledger}\n{effects}\n{outcome.text}", "  ")


def _reference(folder: Path, policy: ResumePolicy, how: str) -> _Outcome:
    """Play the job without a wire, in this process."""
    with contextlib.redirect_stdout(io.StringIO()):
        return anyio.run(_played, folder, policy, how)


async def _played(folder: Path, policy: ResumePolicy, how: str) -> _Outcome:
    runtime = Runtime(COORDINATOR, resume_policy=policy, deps=folder, model=script())
    result = await runtime.run(JOB)
    while result.pending is not None:
        ok = how == "approve"
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
