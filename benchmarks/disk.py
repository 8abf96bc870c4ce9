"""What a turn costs more on a SQLiteStore than in memory, beside what the disk charges for one fsync."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter, process_time

from benchmarks.common import Numbers, Row, main, repeat, row
from benchmarks.workload import Script, worker

from overt import Status
from overt.stores import MemoryStore, SQLiteStore, Store

TURNS = 100
QUICK_DISK = 0.3
"""Milliseconds of an fsync up to which the target holds."""


async def turns(store: Store) -> Numbers:
    run_id = uuid.uuid4().hex
    wall, cpu = perf_counter(), process_time()
    result, _ = await worker.run("go", model=Script(TURNS), store=store, run_id=run_id)
    wall, cpu = perf_counter() - wall, process_time() - cpu
    assert result.status is Status.DONE, result
    appends = len(await store.read(run_id))
    return {"wall": wall / TURNS * 1e3, "cpu": cpu / TURNS * 1e3, "appends": appends / TURNS}


def fsyncs(folder: Path, count: int) -> Numbers:
    """Return the milliseconds of appending a page to a file and syncing it."""
    took: list[float] = []
    with (folder / "pages").open("ab", buffering=0) as file:
        for _ in range(count):
            start = perf_counter()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            took.append(perf_counter() - start)
    return {"fsync": statistics.median(took) * 1e3}


async def measure(args: argparse.Namespace) -> Iterable[Row]:
    """Wall time a turn; memory, file and bare fsyncs by turns."""
    times, warm = (1, 0) if args.quick else (7, 1)
    with tempfile.TemporaryDirectory(dir=args.disk) as name:
        folder = Path(name)
        store = SQLiteStore(folder / "runs.db")

        async def sync() -> Numbers:
            return fsyncs(folder, 30)

        try:
            got = await repeat(
                {"memory": lambda: turns(MemoryStore()), "file": lambda: turns(store), "fsync": sync},
                times=times,
                warm=warm,
            )
        finally:
            await store.close()
    fsync = statistics.median(got["fsync"]["fsync"])
    extra = _less(got["file"]["wall"], got["memory"]["wall"])
    appends = got["file"]["appends"][0]
    fast = fsync < QUICK_DISK
    return [
        row(
            "turn on SQLiteStore, more than in memory",
            extra,
            "ms wall",
            target=("value", "<=", 1) if fast else None,
            note="" if fast else f"target holds where an fsync is below {QUICK_DISK} ms",
        ),
        row(
            f"  less its {appends:.1f} fsyncs",
            [value - appends * fsync for value in extra],
            "ms wall",
        ),
        row("  CPU of it", _less(got["file"]["cpu"], got["memory"]["cpu"]), "ms CPU"),
        row("fsync of a 4 KiB append", got["fsync"]["fsync"], "ms wall"),
    ]


def _less(left: list[float], right: list[float]) -> list[float]:
    return [a - b for a, b in zip(left, right, strict=True)]


if __name__ == "__main__":
    main(measure)
