"""A hundred delegations in one run, one after another, each to a child that answers at once."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from time import process_time
from typing import Any

from benchmarks import floor
from benchmarks.common import Numbers, Row, main, repeat, row
from benchmarks.workload import Script, coordinator

from overt import Status

COUNT = 100


def part(turn: int) -> dict[str, Any]:
    return {"agent": "child", "prompt": f"part {turn}"}


async def ours() -> Numbers:
    model = Script(COUNT, tool="task", arguments=part)
    start = process_time()
    result, runtime = await coordinator.run("go", model=model)
    took = process_time() - start
    assert result.status is Status.DONE, result
    assert len(runtime.list()) == COUNT + 1
    assert result.total_tokens == 15 * (COUNT + 1) + 10 * COUNT, result
    return {"each": took / COUNT * 1e6}


async def bare() -> Numbers:
    usage = [0, 0]
    child = floor.ChildModel()

    async def task(x: int) -> str:
        text = await floor.loop(child, {}, [{"role": "user", "content": f"part {x}"}], usage=usage)
        assert text is not None
        return text

    model = floor.FloorModel(COUNT, tool="task")
    start = process_time()
    text = await floor.loop(model, {"task": task}, [{"role": "user", "content": "go"}], usage=usage)
    took = process_time() - start
    assert text == "done"
    return {"each": took / COUNT * 1e6}


async def measure(args: argparse.Namespace) -> Iterable[Row]:
    """CPU time of one delegation: the parent's turn, spawn, wake, the child's turn, settle, close."""
    times, warm = (1, 1) if args.quick else (15, 3)
    got = await repeat({"floor": bare, "ours": ours, "ours without gc": ours}, times=times, warm=warm)
    return [
        row(
            f"delegation, one of {COUNT} in a run",
            got["ours"]["each"],
            "µs CPU",
            floor=got["floor"]["each"],
            without_gc=got["ours without gc"]["each"],
            target=("value", "<=", 200),
        )
    ]


if __name__ == "__main__":
    main(measure)
