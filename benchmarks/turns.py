"""A turn with one tool: what it costs at the beginning of a run, later, and much later."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from time import process_time

from benchmarks import floor
from benchmarks.common import Numbers, Row, main, repeat, row
from benchmarks.workload import Script, worker

from overt import Status

AT = (50, 200, 800)
HALF = 25
"""Turns measured before and after each of these points."""
TURNS = max(AT) + HALF + 5
MARKS = frozenset(at + side for at in AT for side in (-HALF, HALF))


async def ours() -> Numbers:
    model = Script(TURNS, marks=MARKS)
    start = process_time()
    result, _ = await worker.run("go", model=model)
    took = process_time() - start
    assert result.status is Status.DONE, result
    assert result.turns == TURNS + 1, result
    assert result.total_tokens == 15 * result.turns, result
    return _numbers(model.stamps, took)


async def noop(x: int) -> str:
    return "ok"


async def bare() -> Numbers:
    model = floor.FloorModel(TURNS, marks=MARKS)
    usage = [0, 0]
    start = process_time()
    text = await floor.loop(model, {"noop": noop}, [{"role": "user", "content": "go"}], usage=usage)
    took = process_time() - start
    assert text == "done"
    return _numbers(model.stamps, took)


def _numbers(stamps: Mapping[int, float], took: float) -> Numbers:
    at = {str(at): (stamps[at + HALF] - stamps[at - HALF]) / (2 * HALF) * 1e6 for at in AT}
    return {**at, "mean": took / TURNS * 1e6, "flat": at["800"] / at["50"]}


async def measure(args: argparse.Namespace) -> Iterable[Row]:
    """CPU time a turn around three points of one run, and over the whole run."""
    times, warm = (1, 1) if args.quick else (15, 3)
    got = await repeat({"floor": bare, "ours": ours, "ours without gc": ours}, times=times, warm=warm)
    ours_, floor_, no_gc = got["ours"], got["floor"], got["ours without gc"]
    rows = [
        row(
            f"turn {at}" if at != "mean" else f"turn, mean of {TURNS}",
            ours_[at],
            "µs CPU",
            floor=floor_[at],
            without_gc=no_gc[at],
            target=("ratio", "<=", 30),
        )
        for at in (*map(str, AT), "mean")
    ]
    flat = row(
        "turn 800 / turn 50", ours_["flat"], "x", without_gc=no_gc["flat"], target=("value", "<=", 1.15)
    )
    return [*rows, flat]


if __name__ == "__main__":
    main(measure)
