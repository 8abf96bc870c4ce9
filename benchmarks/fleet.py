"""Many runs in one SQLite file: does the number of parked or finished ones cost the next run anything.

And what a parked runtime holds in memory, and what a turn appends, early and late in a run.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import tracemalloc
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from time import perf_counter

import anyio
from benchmarks.common import Numbers, Row, main, repeat, row
from benchmarks.workload import Script, approver, worker

from overt import Answer, ResumePolicy, Runtime
from overt.stores import MemoryStore, SQLiteStore

FEW, MANY = 10, 10_000
HELD = 1_000
TURNS = 500
AT_ONCE = 100
"""Runs started together while the file is filled; they share commits."""


async def fill(store: SQLiteStore, count: int, *, finished: bool) -> None:
    """Start `count` runs that park at their first turn, or finish after it."""
    agent = worker if finished else approver
    model = Script(1) if finished else Script(0, last="danger")
    left = iter(range(count))

    async def one() -> None:
        for _ in left:
            await agent.run("go", model=model, store=store)

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(one)


async def go_on(store: SQLiteStore) -> Numbers:
    """Park one more run, open it anew and answer it; return the milliseconds from opening to the result."""
    model = Script(0, last="danger")
    parked, runtime = await approver.run("go", model=model, store=store, resume_policy=ResumePolicy.CONTINUE)
    assert parked.pending is not None
    start = perf_counter()
    again = await Runtime.open(approver, runtime.id, model=model, store=store)
    result = await again.resume(Answer(id=parked.pending.id, ok=True))
    took = perf_counter() - start
    assert result.status == "done", result
    start = perf_counter()
    assert await store.open_requests(limit=5)
    return {"resume": took * 1e3, "queue": (perf_counter() - start) * 1e3}


def size_of(folder: Path, pattern: str) -> int:
    """Return the bytes of some files."""
    return sum(path.stat().st_size for path in folder.glob(pattern))


async def held(count: int) -> float:
    """Return the kB of one of `count` parked runtimes in memory, each with its journal in a file."""
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder) / "runs.db")
        model = Script(0, last="danger")
        await approver.run("go", model=model, store=store)  # loads what is loaded once
        gc.collect()
        tracemalloc.start()
        kept: list[Runtime[str]] = []
        for _ in range(count):
            _, runtime = await approver.run("go", model=model, store=store)
            kept.append(runtime)
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await store.close()
        return size / len(kept) / 1e3


async def appended() -> Numbers:
    """Return the bytes that turn 10 and turn 500 append, of a run whose turns are alike."""
    store = MemoryStore()
    _, runtime = await worker.run(
        "go", model=Script(TURNS, arguments=lambda _: {"x": 7}), store=store, run_id="run"
    )
    sizes = [len(record.text.encode()) for record in await store.read(runtime.id)]
    # The first append opens the run; then each turn is a reply and a result.
    return {"early": float(sum(sizes[19:21])), "late": float(sum(sizes[2 * TURNS - 1 : 2 * TURNS + 1]))}


async def measure(args: argparse.Namespace) -> Iterable[Row]:
    """Few and many runs in a file by turns; memory; bytes."""
    many, times, warm = (200, 1, 0) if args.quick else (MANY, 41, 3)
    with tempfile.TemporaryDirectory(dir=args.disk) as name:
        folder = Path(name)
        stores = {what: SQLiteStore(folder / f"{what}.db") for what in ("few", "parked", "finished")}
        await fill(stores["few"], FEW, finished=False)
        await fill(stores["parked"], many, finished=False)
        await fill(stores["finished"], many, finished=True)
        await fill(stores["finished"], FEW, finished=False)
        try:
            got = await repeat(
                {what: partial(go_on, store) for what, store in stores.items()},
                times=times,
                warm=warm,
            )
        finally:
            for store in stores.values():
                await store.close()
        size = size_of(folder, "parked.db*") / many / 1e3
    memory = await held(50 if args.quick else HELD)
    sizes = await appended()
    return [
        row(
            "open and resume one of 10,000 parked runs",
            got["parked"]["resume"],
            "ms wall",
            floor=got["few"]["resume"],
            target=("ratio", "<=", 2),
            note=f"the floor is the same with {FEW}",
        ),
        row(
            "  beside 10,000 finished runs",
            got["finished"]["resume"],
            "ms wall",
            floor=got["few"]["resume"],
            target=("ratio", "<=", 2),
        ),
        row(
            "  oldest five of its open requests", got["parked"]["queue"], "ms wall", floor=got["few"]["queue"]
        ),
        row("  file, a parked run", [size], "kB"),
        row("parked runtime in memory", [memory], "kB", target=("value", "<=", 20)),
        row(
            f"bytes that turn {TURNS} appends",
            [sizes["late"]],
            "B",
            floor=[sizes["early"]],
            target=("ratio", "<=", 1.02),
            note="the floor is turn 10; numbers with more digits are longer",
        ),
    ]


if __name__ == "__main__":
    main(measure)
