"""What it costs that somebody reads along: per event of the journal, and per piece of text."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Iterable
from time import process_time

from benchmarks.common import Numbers, Row, main, repeat, row
from benchmarks.workload import USAGE, Script, worker

from overt import Agent, Status
from overt.message import AssistantMessage, ModelDelta, ModelRequest, ModelResponse
from overt.models.assemble import Assembler

TURNS = 200
PIECES = 2_000
WORD = "word "
END = ModelDelta(finish_reason="stop", usage=USAGE)


class Speaker:
    """Says one long text, in pieces between which others run."""

    name = "speaker"

    async def generate(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse(message=AssistantMessage(text=WORD * PIECES), usage=USAGE)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        for _ in range(PIECES):
            await asyncio.sleep(0)
            yield ModelDelta(text=WORD)
        yield END


speaker = Agent("speaker", does="speaks", model=Speaker())


async def unread() -> Numbers:
    start = process_time()
    result, runtime = await worker.run("go", model=Script(TURNS))
    took = process_time() - start
    assert result.status is Status.DONE, result
    return {"run": took, "events": len(runtime.events())}


async def read() -> Numbers:
    events = 0
    start = process_time()
    async with worker.stream("go", model=Script(TURNS)) as stream:
        async for _ in stream:
            events += 1
    return {"run": process_time() - start, "events": events}


async def said() -> Numbers:
    """The model's own part: the text said to nobody, and put together."""
    assembler = Assembler()
    start = process_time()
    async for delta in Speaker().stream(ModelRequest(messages=())):
        assembler.add(delta)
    assert assembler.response().message.text == WORD * PIECES
    return {"run": process_time() - start}


async def heard() -> Numbers:
    pieces = 0
    start = process_time()
    async with speaker.stream("go") as stream:
        async for event in stream:
            pieces += event.kind == "text"
    took = process_time() - start
    assert pieces == PIECES, pieces
    return {"run": took}


async def measure(args: argparse.Namespace) -> Iterable[Row]:
    """CPU time, the unread run and the model's own part taken off."""
    times, warm = (1, 1) if args.quick else (15, 3)
    got = await repeat({"unread": unread, "read": read, "said": said, "heard": heard}, times=times, warm=warm)
    more = zip(got["unread"]["run"], got["read"]["run"], got["read"]["events"], strict=True)
    events = [(with_ - without) / count * 1e6 for without, with_, count in more]
    spoken = zip(got["said"]["run"], got["heard"]["run"], strict=True)
    pieces = [(with_ - without) / PIECES * 1e6 for without, with_ in spoken]
    return [
        row("event that is read, more than unread", events, "µs CPU", target=("value", "<=", 10)),
        row("piece of text that is read, more than said", pieces, "µs CPU", target=("value", "<=", 10)),
    ]


if __name__ == "__main__":
    main(measure)
