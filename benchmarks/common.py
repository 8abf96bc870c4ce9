"""Repetitions, medians, and rows of the table."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

__all__ = ("Numbers", "Samples", "main", "repeat", "row")

Numbers = Mapping[str, float]
"""What one repetition measured, by name."""
Samples = dict[str, list[float]]
Row = dict[str, Any]


async def repeat(
    run: Mapping[str, Callable[[], Awaitable[Numbers]]], *, times: int, warm: int
) -> dict[str, Samples]:
    """Run each of several things `times` times, by turns, so that what disturbs the machine disturbs all.

    A name that ends in "without gc" runs with the cyclic garbage collector off; the others pay for what they
    allocate, but not for the garbage of the one before.
    """
    samples: dict[str, Samples] = {name: {} for name in run}
    for round_ in range(warm + times):
        for name, once in run.items():
            gc.collect()
            if name.endswith("without gc"):
                gc.disable()
            try:
                numbers = await once()
            finally:
                gc.enable()
            if round_ >= warm:
                for what, value in numbers.items():
                    samples[name].setdefault(what, []).append(value)
    return samples


def row(
    measure: str,
    values: Sequence[float],
    unit: str,
    *,
    floor: Sequence[float] | None = None,
    without_gc: Sequence[float] | None = None,
    rate: bool = False,
    target: tuple[Literal["value", "ratio"], Literal["<=", ">="], float] | None = None,
    note: str = "",
) -> Row:
    """Return one row: medians, and what they are held against.

    Args:
        measure: What was measured.
        values: Of each repetition.
        unit: Of the values.
        floor: The floor's values in the same repetitions, in the same unit.
        without_gc: The values with the garbage collector off.
        rate: Whether more is better; the ratio tells cost all the same.
        target: Whether value or ratio is held against it, how, and the number; `None` for a number to know.
        note: Whatever has to be said beside it.
    """
    value = statistics.median(values)
    base = None if floor is None else statistics.median(floor)
    ratio = None if not base or not value else base / value if rate else value / base
    met: bool | None = None
    missed: float | None = None
    if target is not None:
        of, how, bound = target
        held = value if of == "value" else ratio
        assert held is not None
        met = held <= bound if how == "<=" else held >= bound
        if not met:
            missed = held / bound - 1
    return {
        "measure": measure,
        "unit": unit,
        "value": value,
        "low": min(values),
        "high": max(values),
        "samples": len(values),
        "floor": base,
        "ratio": ratio,
        "without_gc": None if without_gc is None else statistics.median(without_gc),
        "target": None if target is None else {"of": target[0], "how": target[1], "bound": target[2]},
        "met": met,
        "missed_by": missed,
        "note": note,
    }


def main(measure: Callable[[argparse.Namespace], Awaitable[Iterable[Row]]]) -> None:
    """Run a measurement in this process, and print its rows as JSON, one a line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="one repetition, to see that it works")
    parser.add_argument("--disk", help="folder for database files")
    for line in asyncio.run(_gather(measure, parser.parse_args())):
        print(json.dumps(line))


async def _gather(
    measure: Callable[[argparse.Namespace], Awaitable[Iterable[Row]]], args: argparse.Namespace
) -> list[Row]:
    return list(await measure(args))
