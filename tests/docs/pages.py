"""Executes a page: Python blocks in order with shared names, console blocks as real processes.

`#> text` lines of a Python block are what it prints. A Python block that begins with `# name.py` is a file: it is
written, imported under that name, and console blocks may run it. In a console block `$ python name.py …` is run in a
process of its own and the lines below it are what it prints; `…` on a line stands for anything.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from sybil import Document, Example, Sybil
from sybil.parsers.markdown import CodeBlockParser

ROOT = Path(__file__).parents[2]
_SCRIPT = """
import functools, runpy, sys, anyio
anyio.run = functools.partial(anyio.run, backend={backend!r})
sys.argv = {argv!r}
sys.path.insert(0, "")
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_page(page: Path, folder: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Execute every block of `page` in `folder` and return how many there were."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(anyio, "run", functools.partial(anyio.run, backend=backend))
    # A reader is not continuous integration, where a cassette refuses to record.
    monkeypatch.delenv("CI", raising=False)
    written: list[str] = []

    def python(example: Example) -> str | None:
        source = str(example.parsed)
        named = re.match(r"# (\w+)\.py\n", source)
        # Padded, so that tracebacks carry the page's own line numbers.
        padded = "\n" * (example.line + example.parsed.line_offset) + source
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if named:
                Path(f"{named[1]}.py").write_text(padded, encoding="utf-8")
                written.append(named[1])
                importlib.invalidate_caches()
                example.namespace[named[1]] = importlib.import_module(named[1])
            else:
                exec(compile(padded, example.path, "exec", dont_inherit=True), example.namespace)
        want = re.findall(r"^ *#> ?(.*)$", source, flags=re.MULTILINE)
        return _compare(want, printed.getvalue()) if not named else None

    def console(example: Example) -> str | None:
        for command, want in re.findall(
            r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", str(example.parsed), flags=re.MULTILINE
        ):
            words = shlex.split(command, comments=True)
            if words[0] != "python":
                continue
            ran = subprocess.run(
                [sys.executable, "-c", _SCRIPT.format(backend=backend, argv=words[1:])],
                capture_output=True,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"},
                check=False,
            )
            if ran.returncode:
                return f"$ {command}\n{ran.stderr}"
            if told := _compare(want.rstrip().splitlines(), ran.stdout):
                return f"$ {command}: {told}"
        return None

    try:
        document = Sybil([CodeBlockParser("python", python), CodeBlockParser("console", console)]).parse(page)
        examples = list(_examples(document))
        for example in examples:
            example.evaluate()
    finally:
        for name in written:
            sys.modules.pop(name, None)
    return len(examples)


def _examples(document: Document) -> Any:
    return document.examples()


def _compare(want: list[str], printed: str) -> str | None:
    got = [line.rstrip() for line in printed.splitlines()]
    pattern = "\n".join(".*".join(map(re.escape, line.rstrip().split("…"))) for line in want)
    if re.fullmatch(pattern, "\n".join(got)):
        return None
    return f"printed {got!r}, the page says {want!r}"
