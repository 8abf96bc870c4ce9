"""Executes a page: Python blocks in order with shared names, console blocks as real processes, checks of its numbers.

`#> text` lines of a Python block are what it prints. A Python block that begins with `# name.py` is a file: it is
written, imported under that name, and console blocks may run it. In a console block `$ python name.py …` or
`$ overt …` is run in a process of its own and the lines below it are what it prints; where it fails, what it says on
standard error follows, and `Killed` if it was. `…` on a line stands for anything, on a line of its own for any lines.
`<!-- not run: REASON -->` above a block leaves it out.

Docstrings are executed alike, each on its own, `>>>` lines too.
"""

from __future__ import annotations

import contextlib
import doctest
import functools
import importlib
import inspect
import io
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import anyio
import pytest
from sybil import Document, Example, Region
from tools.fences import RUN, Fence, Page, scan
from tools.prose import Check, altered, checks

import overt
from overt._planning import crew_of, plan_of
from overt.testing import MockModel
from tests import zygote

ROOT = Path(__file__).parents[2]
_SCRIPT = """
import functools, runpy, sys, anyio
anyio.run = functools.partial(anyio.run, backend={backend!r})
sys.argv = {argv!r}
{run}
"""


def run_page(page: Path, folder: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Execute every block and every check of `page` in `folder`, and return how many there were."""
    text = page.read_text("utf-8")
    fences = [fence for fence in scan(text) if fence.language in RUN and fence.unrun is None]
    parts: list[Fence | Check] = [*fences, *checks(text)]
    with _desk(folder, backend, monkeypatch) as desk:
        _evaluate(page, text, parts, desk)
    return len(parts)


def run_docstring(page: Page, folder: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Execute every block and every `>>>` of a docstring in `folder`, and return how many there were."""
    fences = [fence for fence in page.fences if fence.language in (*RUN, "pycon") and fence.unrun is None]
    with _desk(folder, backend, monkeypatch) as desk:
        _evaluate(page.path, page.path.read_text("utf-8"), fences, desk)
    return len(fences)


class Desk:
    """Where the blocks of one page are executed."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.written: list[str] = []

    def python(self, fence: Fence, example: Example) -> str | None:
        # Padded, so that tracebacks carry the page's own line numbers.
        padded = "\n" * (fence.line - 1) + fence.source
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if fence.file:
                Path(f"{fence.file}.py").write_text(padded, encoding="utf-8")
                self.written.append(fence.file)
                importlib.invalidate_caches()
                example.namespace[fence.file] = importlib.import_module(fence.file)
            else:
                exec(compile(padded, example.path, "exec", dont_inherit=True), example.namespace)
        want = re.findall(r"^ *#> ?(.*)$", fence.source, flags=re.MULTILINE)
        return compare(want, printed.getvalue()) if not fence.file else None

    def console(self, fence: Fence, example: Example) -> str | None:
        shown = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", fence.source, flags=re.MULTILINE)
        if not shown:
            return "no line of it is a command: `$ …`"
        for command, want in shown:
            match shlex.split(command, comments=True):
                case ["python", "-m", name, *rest]:
                    argv, run = (
                        [name, *rest],
                        f"runpy.run_module({name!r}, run_name='__main__', alter_sys=True)",
                    )
                case ["overt", *rest]:
                    argv, run = (
                        ["overt", *rest],
                        "runpy.run_module('overt', run_name='__main__', alter_sys=True)",
                    )
                case ["python", name, *rest] if not name.startswith("-"):
                    argv, run = [name, *rest], f"runpy.run_path({name!r}, run_name='__main__')"
                case _:
                    return f"$ {command}: only python and overt are run; say `<!-- not run: … -->` above it"
            ran = zygote.run(
                ["-c", _SCRIPT.format(backend=self.backend, argv=argv, run=run)],
                cwd=Path.cwd(),
                env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"},
            )
            printed = ran.stdout
            if ran.returncode:
                killed = ran.returncode == -signal.SIGKILL
                printed += "Killed\n" if killed else ran.stderr or f"exit status {ran.returncode}\n"
            if told := compare(want.rstrip().splitlines(), printed):
                return f"$ {command}: {told}"
        return None

    def pycon(self, fence: Fence, example: Example) -> str | None:
        told: list[str] = []
        prompt = doctest.Example(fence.source, fence.wanted)
        test = doctest.DocTest([prompt], {}, example.path, example.path, fence.line - 1, None)
        test.globs = example.namespace  # it would take a copy
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append, clear_globs=False)
        return "".join(told) or None

    def check(self, check: Check, example: Example) -> str | None:
        return asserted(check, example.path, example.namespace)


def asserted(check: Check, path: str, namespace: dict[str, Any]) -> str | None:
    """Say what is wrong with a check: it is not true, or it is with other numbers too."""
    known = {"overt": overt, "default": default, "inspect": inspect, "metadata": metadata, **namespace}
    for name in re.findall(r"\bovert(?:\.\w+)+", check.source):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(".".join(part for part in name.split(".") if part.islower()))

    def value(source: str) -> object:
        padded = "\n" * (check.line - 1) + f"({source})"
        return eval(compile(padded, path, "eval", dont_inherit=True), dict(known))

    def holds(source: str) -> bool:
        with contextlib.suppress(Exception):
            return value(source) is True
        return False

    if (found := value(check.source)) is not True:
        return f"the check is {found!r}: {check.source}"
    for number, others in altered(check.source):
        if all(map(holds, others)):
            return f"the check is true without {number}, too: {check.source}"
    return None


def default(option: str) -> object:
    """What an option of a run is where it is left out."""
    agent = overt.Agent("agent", does="Nothing.", model=MockModel([]))
    plan, crew = plan_of(agent, {})[0], crew_of(agent, {})
    return getattr(plan, option) if hasattr(plan, option) else getattr(crew, option)


@contextlib.contextmanager
def _desk(folder: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    desk = Desk(backend)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(anyio, "run", functools.partial(anyio.run, backend=backend))
    # A reader is not continuous integration, where a cassette refuses to record.
    monkeypatch.delenv("CI", raising=False)
    try:
        yield desk
    finally:
        for name in desk.written:
            sys.modules.pop(name, None)


def _evaluate(path: Path, text: str, parts: Sequence[Fence | Check], desk: Desk) -> None:
    document = Document(text, str(path))
    for part in parts:
        how: Callable[..., str | None] = (
            desk.check if isinstance(part, Check) else getattr(desk, part.language)
        )
        document.add(Region(part.start, part.end, part, functools.partial(how, part)))
    for example in document.examples():
        example.evaluate()


def compare(want: list[str], printed: str) -> str | None:
    """Say how what was printed differs from the lines of the page, if it does."""
    got = [line.rstrip() for line in printed.splitlines()]
    pattern = "\n".join(
        "(?s:.*)" if line.strip() == "…" else ".*".join(map(re.escape, line.rstrip().split("…")))
        for line in want
    )
    if re.fullmatch(pattern, "\n".join(got)):
        return None
    return f"printed {got!r}, the page says {want!r}"
