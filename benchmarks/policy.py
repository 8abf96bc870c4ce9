"""What a guardrail costs a call, and what streaming costs an event: each a difference, in one process, by turns."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from time import process_time

from benchmarks.common import Numbers, Row, main, repeat, row
from benchmarks.workload import Script, Speaker, guarded, guarded_async, worker

from overt import Agent, Model, Status
from overt.events import TextDelta

TURNS = 200
PIECES = 1000


async def plain(agent: Agent[None, str], model: Model) -> Numbers:
    """CPU time of a run that nobody watches."""
    start = process_time()
    result, _ = await agent.run("go", model=model)
    took = process_time() - start
    assert result.status is Status.DONE, result
    return {"took": took * 1e6}


async def streamed(agent: Agent[None, str], model: Model) -> Numbers:
    """CPU time of a run that is read event by event, the events, and those of them that are pieces of text."""
    events = pieces = 0
    start = process_time()
    async with agent.stream("go", model=model) as stream:
        async for event in stream:
            events += 1
            pieces += isinstance(event, TextDelta)
    took = process_time() - start
    assert (await stream.result()).status is Status.DONE
    return {"took": took * 1e6, "events": events, "pieces": pieces}


def apart(more: Sequence[float], less: Sequence[float], by: float) -> list[float]:
    """The difference of each repetition, for one of `by` things."""
    return [(a - b) / by for a, b in zip(more, less, strict=True)]


async def measure(args: argparse.Namespace) -> Iterable[Row]:
    """CPU time of one guardrail that allows, and of one event that is read."""
    times, warm = (1, 1) if args.quick else (31, 3)
    steps, words = Script(TURNS), Speaker(PIECES)
    got = await repeat(
        {
            "plain": lambda: plain(worker, steps),
            "guarded": lambda: plain(guarded, steps),
            "guarded async": lambda: plain(guarded_async, steps),
            "streamed": lambda: streamed(worker, steps),
            "spoken": lambda: plain(worker, words),
            "spoken, streamed": lambda: streamed(worker, words),
        },
        times=times,
        warm=warm,
    )
    took = {name: samples["took"] for name, samples in got.items()}
    events = got["streamed"]["events"][0]
    pieces = got["spoken, streamed"]["pieces"]
    assert set(pieces) == {PIECES}, "pieces were joined: the model has to let the reader read"
    return [
        row(
            "a guardrail that allows, a call",
            apart(took["guarded"], took["plain"], TURNS),
            "µs CPU",
            target=("value", "<=", 15),
        ),
        row(
            "  one that is async",
            apart(took["guarded async"], took["plain"], TURNS),
            "µs CPU",
            note="asked after the reply is recorded, and its ruling is an append of its own",
        ),
        row(
            "streaming, an event",
            apart(took["streamed"], took["plain"], events),
            "µs CPU",
            target=("value", "<=", 10),
            note=f"{events / (TURNS + 1):.1f} events a turn with one call",
        ),
        row(
            "streaming, a piece of text",
            apart(took["spoken, streamed"], took["spoken"], PIECES),
            "µs CPU",
            target=("value", "<=", 10),
            note="beside a model that waits as often and gives the reply whole",
        ),
    ]


if __name__ == "__main__":
    main(measure)
