"""Run every benchmark in a process of its own, and print one table.

`python benchmarks/run.py [--quick] [--json] [--only turns,park] [--disk FOLDER]`. It needs the package and nothing
else, and no network. Numbers depend on the machine; the columns `floor` and `ratio` hold them against a hand-written
loop measured in the same process (see `floor.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Name, module, environment.
MEASURES: list[tuple[str, str, dict[str, str]]] = [
    ("turns", "benchmarks.turns", {}),
    ("stream", "benchmarks.stream", {}),
    ("guardrails", "benchmarks.guardrails", {}),
    ("delegations", "benchmarks.delegations", {}),
    ("crowd", "benchmarks.crowd", {"THINK": "0"}),
    ("crowd-thinking", "benchmarks.crowd", {"THINK": "0.05"}),
    ("park", "benchmarks.park", {}),
    ("disk", "benchmarks.disk", {}),
    ("encryption", "benchmarks.encryption", {}),
    ("fleet", "benchmarks.fleet", {}),
    ("postgres", "benchmarks.postgres", {}),
    ("imports", "benchmarks.imports", {}),
]
HEAD = ("measure", "value", "floor", "ratio", "no gc", "target", "")


def run(module: str, environment: dict[str, str], arguments: list[str]) -> list[dict[str, Any]]:
    """Measure in a fresh interpreter, with the package of this tree."""
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )
    if done.returncode:
        raise SystemExit(f"{module} failed")
    return [json.loads(line) for line in done.stdout.splitlines()]


def shown(value: float | None) -> str:
    """A number with three digits that mean something."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    target = row["target"]
    verdict = ""
    if target is not None:
        verdict = "met" if row["met"] else f"missed by {abs(row['missed_by']):.0%}"
    return (
        row["measure"],
        f"{shown(row['value'])} {row['unit']}".strip(),
        shown(row["floor"]),
        f"{shown(row['ratio'])}x" if row["ratio"] else "",
        shown(row["without_gc"]),
        f"{target['how']} {shown(target['bound'])}{'x' if target['of'] == 'ratio' else ''}" if target else "",
        verdict,
    )


def table(rows: list[dict[str, Any]]) -> str:
    lines = [HEAD, *map(cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    out: list[str] = []
    for line in lines:
        first, *rest = line
        padded = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(rest, widths[1:], strict=True))]
        out.append("  ".join(padded).rstrip())
    out.insert(1, "-" * len(max(out, key=len)))
    notes = [f"{row['measure'].strip()}: {row['note']}" for row in rows if row["note"]]
    return "\n".join([*out, "", *notes])


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the benchmarks.")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument(
        "--quick", action="store_true", help="one repetition each: shows that all work, no more"
    )
    parser.add_argument("--only", default="", help="some of: " + ",".join(name for name, _, _ in MEASURES))
    parser.add_argument("--disk", help="folder on the disk to measure; left out: where temporary files go")
    args = parser.parse_args()
    chosen = set(filter(None, args.only.split(",")))
    if unknown := chosen - {name for name, _, _ in MEASURES}:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    passed = ["--quick"] if args.quick else []
    if args.disk:
        passed += ["--disk", str(Path(args.disk).resolve())]
    rows: list[dict[str, Any]] = []
    for name, module, environment in MEASURES:
        if not chosen or name in chosen:
            if sys.stderr.isatty():
                print(f"{name} …", file=sys.stderr)
            rows += run(module, environment, passed)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    machine = f"{python}, {platform.system()}, {os.cpu_count()} CPUs"
    if args.json:
        print(json.dumps({"machine": machine, "quick": args.quick, "rows": rows}, indent=1))
        return
    print(f"{machine}{'; quick: the numbers mean little' if args.quick else ''}\n")
    print(table(rows))


if __name__ == "__main__":
    main()
