"""A thousand runs of three turns at once, in one event loop: THINK is the seconds each model call waits."""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from time import process_time

from benchmarks import floor
from benchmarks.common import Numbers, Row, main, repeat, row
from benchmarks.workload import Script, worker

from overt import Status

RUNS = 1000
THINK = float(os.environ.get("THINK", "0"))
MODEL = Script(2, think=THINK)


async def noop(x: int) -> str:
    return "ok"


async def one() -> None:
    result, _ = await worker.run("go", model=MODEL)
    assert result.status is Status.DONE, result
    assert result.turns == 3, result


async def one_bare() -> None:
    model = floor.FloorModel(2, think=THINK)
    text = await floor.loop(model, {"noop": noop}, [{"role": "user", "content": "go"}], usage=[0, 0])
    assert text == "done"


async def crowd(run: Callable[[], Awaitable[None]], runs: int) -> Numbers:
    start = process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(runs):
            group.create_task(_coroutine(run))
    return {"rate": runs / (process_time() - start)}


async def _coroutine(run: Callable[[], Awaitable[None]]) -> None:
    await run()


def peak_rss() -> float:
    """Return the most memory this process has had, in MB."""
    try:
        # Where there is one: what getrusage says may be the parent's, from before exec.
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    kilobytes = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(kilobytes.split()[1]) / 1024


async def measure(args: argparse.Namespace) -> Iterable[Row]:
    """Runs a second of CPU, and how much the peak of memory grew in the first thousand."""
    await crowd(one, 20)
    before = peak_rss()
    await crowd(one, RUNS)
    grown = peak_rss() - before
    times = 1 if args.quick else 3
    got = await repeat(
        {
            "floor": lambda: crowd(one_bare, RUNS),
            "ours": lambda: crowd(one, RUNS),
            "ours without gc": lambda: crowd(one, RUNS),
        },
        times=times,
        warm=0,
    )
    name = f"{RUNS:,} runs at once, " + (f"{THINK * 1000:g} ms think time" if THINK else "no think time")
    return [
        row(
            name,
            got["ours"]["rate"],
            "runs/s CPU",
            floor=got["floor"]["rate"],
            without_gc=got["ours without gc"]["rate"],
            rate=True,
            target=("value", ">=", 4000),
        ),
        row(f"{name}: peak RSS grew", [grown], "MB"),
    ]


if __name__ == "__main__":
    main(measure)
