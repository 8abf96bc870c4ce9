"""`overt demo`: starts the two processes, one after the other, and keeps or removes what they leave."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from overt.demo import screen, wire
from overt.demo.clients import CLIENTS
from overt.demo.process import DATABASE
from overt.demo.team import LEDGER
from overt.errors import DefinitionError
from overt.models import resolve
from overt.policy import ResumePolicy

__all__ = ("add_to", "run")

_SECONDS_TO_END = 10.0
_INTERRUPTED = (130, -signal.SIGINT)


def add_to(commands: Any) -> None:
    """Add the command `demo` to a parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo",
        help="a team, an irreversible refund and a question to a person, in two processes",
        description="A coordinator delegates to two agents at once. One of them refunds an order and then asks a "
        "person about a voucher: the run parks in a file and its process ends. A second process opens the run, "
        "answers, and prints the one result and the bill. No key and no network are needed; "
        "OVERT_MODEL=openai:NAME, with OPENAI_API_KEY and OPENAI_BASE_URL, takes a real model.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--policy",
        choices=[str(policy) for policy in ResumePolicy],
        default="rewind",
        help="what an answer does with the work before it (default: rewind)",
    )
    parser.add_argument(
        "--answer",
        choices=["approve", "decline", "ask"],
        default="approve",
        help="how the question is answered; `ask` asks you (default: approve)",
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder and say how to look at it")
    parser.add_argument(
        "--open",
        type=Path,
        metavar="FOLDER",
        help="go on with a run that was kept or interrupted, or show it",
    )
    parser.add_argument(
        "--wire",
        choices=[*CLIENTS, "all"],
        help="play the same job over HTTP instead, through this provider's own client (or each provider's) and against "
        "a local server, and compare the bills",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Play the demo and return its exit code."""
    screen.by_line()
    if arguments.wire is not None:
        return _over_the_wire(arguments)
    name = os.environ.get("OVERT_MODEL", "")
    try:
        if name:
            resolve(name)
    except DefinitionError as error:
        return _refuse(f"OVERT_MODEL: {error}")
    kept: Path | None = arguments.open
    if kept is not None and not (kept / DATABASE).is_file():
        return _refuse(f"there is no run in {kept}: {DATABASE} is missing")
    folder = Path(tempfile.mkdtemp(prefix="overt-demo-")) if kept is None else kept
    try:
        code = _play(arguments, folder, name)
        if code in _INTERRUPTED:
            code = 130
        _leave(arguments, folder, code)
    except BrokenPipeError:
        print(f"overt demo: the output was closed; the folder is still there: {folder}", file=sys.stderr)
        return screen.cut_off()
    return code


def _over_the_wire(arguments: argparse.Namespace) -> int:
    if arguments.open is not None or arguments.keep or arguments.answer == "ask":
        return _refuse("--wire keeps nothing and asks nobody: leave --open, --keep and --answer ask out")
    names = list(CLIENTS) if arguments.wire == "all" else [arguments.wire]
    try:
        return wire.run(names, policy=ResumePolicy(arguments.policy), how=arguments.answer)
    except BrokenPipeError:
        return screen.cut_off()


def _leave(arguments: argparse.Namespace, folder: Path, code: int) -> None:
    """Remove the folder, or say what it is good for."""
    if code == 130 and not (folder / DATABASE).exists():
        print("\nInterrupted before anything was stored.")
        shutil.rmtree(folder)
    elif code == 130:
        print(f"\nInterrupted. The run is in {folder} and can be recovered:")
        print(f"  {_again(arguments, folder)}")
    elif code != 0:
        print(f"\nThe run is in {folder}; this goes on with it:\n  {_again(arguments, folder)}")
    elif arguments.keep or arguments.open is not None:
        print(f"\n  Kept in {folder}:")
        print(f"  {DATABASE} is the journal, {LEDGER} what the tools did.")
        print(f"  Look at it again:\n    {_again(arguments, folder)}")
    else:
        shutil.rmtree(folder)


def _play(arguments: argparse.Namespace, folder: Path, name: str) -> int:
    print("overt demo: a team, a refund, and a question to a person\n")
    screen.field("model", name or "a script (OVERT_MODEL=openai:NAME takes a real one)")
    screen.field("folder", str(folder))
    if arguments.open is None:
        screen.field("policy", screen.POLICY[ResumePolicy(arguments.policy)])
        if name and arguments.policy == "rewind":
            screen.field(
                "note", "a model that words a replay otherwise diverges; --policy continue avoids it"
            )
        code = _process("start", folder, arguments.policy)
        if code != 0:
            return code
    return _process("answer", folder, arguments.answer)


def _process(part: str, folder: Path, choice: str) -> int:
    """Run one part in a process of its own and return its exit code, 130 if this one was interrupted."""
    child = subprocess.Popen([sys.executable, "-m", "overt.demo.process", part, str(folder), choice])
    try:
        return child.wait()
    except KeyboardInterrupt:
        _end(child)
        return 130


def _end(child: subprocess.Popen[bytes]) -> None:
    """Let the child close its journal off: a terminal has interrupted it too, anything else has not."""
    for how in (None, signal.SIGINT, signal.SIGKILL):
        if how is not None:
            child.send_signal(how)
        try:
            child.wait(_SECONDS_TO_END if how else 2.0)
            return
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            continue


def _again(arguments: argparse.Namespace, folder: Path) -> str:
    python = Path(sys.executable)
    if python.is_relative_to(Path.cwd()):
        python = python.relative_to(Path.cwd())
    answer = "" if arguments.answer == "approve" else f" --answer {arguments.answer}"
    return shlex.join([str(python), "-m", "overt", "demo", "--open", str(folder)]) + answer


def _refuse(why: str) -> int:
    print(f"overt demo: {why}", file=sys.stderr)
    return 2
