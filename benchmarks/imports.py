"""How long `import overt` takes in a fresh interpreter, and how many distributions a bare install brings."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata

from benchmarks.common import Row, main, row

DEPENDENCIES = (
    "asyncio, anyio, docstring_parser, jsonschema_rs, typing_extensions; from pydantic import BaseModel"
)
CODE = """
import time
wall, cpu = time.perf_counter(), time.process_time()
import {what}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


def timed(what: str) -> tuple[float, float]:
    out = subprocess.run(
        [sys.executable, "-c", CODE.format(what=what)], check=True, capture_output=True, text=True
    ).stdout
    wall, cpu = out.split()
    return float(wall) * 1e3, float(cpu) * 1e3


def distributions() -> set[str]:
    """Return the distributions a bare install of overt brings, itself included, as this environment has them.

    A requirement with another marker than an extra's counts where it is installed.
    """
    found: set[str] = set()
    waiting = ["overt"]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            requires = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        for requirement in requires:
            spec, _, marker = requirement.partition(";")
            named = re.match(r"[A-Za-z0-9._-]+", spec)
            if "extra" not in marker and named is not None:
                waiting.append(named.group())
    return found


async def measure(args: argparse.Namespace) -> Iterable[Row]:
    """Wall and CPU time of the import; the floor is the import of what it depends on."""
    wall: list[float] = []
    cpu: list[float] = []
    floor_wall: list[float] = []
    floor_cpu: list[float] = []
    for _ in range(1 if args.quick else 9):
        for what, walls, cpus in (("overt", wall, cpu), (DEPENDENCIES, floor_wall, floor_cpu)):
            one = timed(what)
            walls.append(one[0])
            cpus.append(one[1])
    names = distributions()
    note = "floor: the dependencies alone"
    return [
        row("import overt", wall, "ms wall", floor=floor_wall, target=("value", "<=", 150), note=note),
        row("import overt, CPU", cpu, "ms CPU", floor=floor_cpu, note=note),
        row("distributions of a bare install", [len(names)], "", note=", ".join(sorted(names))),
    ]


if __name__ == "__main__":
    main(measure)
