"""A run printed while it happens; the reader leaves in between, and another one reads on where it was.

    python examples/stream_to_terminal.py

OVERT_MODEL=openai:gpt-5-mini takes a real model; text comes in pieces from models that can stream.
"""

from __future__ import annotations

import os

import anyio

from overt import Agent, Event, Model, RunStream, tool
from overt.events import HandleSettled, TextDelta, ToolFinished, TurnFinished
from overt.testing import MockModel, Reply, call, say

FORECAST = {"Oslo": "rain, 4 degrees", "Rome": "sun, 21 degrees"}


@tool
async def forecast(city: str) -> str:
    """Look up tomorrow's weather.

    Args:
        city: Oslo or Rome.
    """
    return FORECAST.get(city, "unknown")


def model() -> Model | str:
    script: list[Reply] = [
        [say("Two cities, one moment."), call("forecast", city="Oslo"), call("forecast", city="Rome")],
        say("Take an umbrella to Oslo and a hat to Rome."),
    ]
    return os.environ.get("OVERT_MODEL") or MockModel(script, chunk=6)


def guide() -> Agent:
    return Agent(
        "guide",
        does="Says what to pack.",
        soul="Call forecast for Oslo and for Rome in one reply. Then say in one sentence what to pack.",
        tools=[forecast],
        model=model(),
    )


class Line:
    """Keeps what a model says on one line, and everything else on lines of its own."""

    def __init__(self) -> None:
        self.is_open = False

    def write(self, text: str) -> None:
        print(text, end="", flush=True)
        self.is_open = True

    def show(self, text: str) -> None:
        if self.is_open:
            print()
        self.is_open = False
        print(f"[{text}]")


def show(event: Event, line: Line) -> None:
    match event:
        case TextDelta(text=text):
            line.write(text)
        case TurnFinished(turn=turn, usage=usage):
            line.show(f"turn {turn}: {'?' if usage is None else usage.total_tokens} tokens")
        case ToolFinished(name=name, output=output):
            line.show(f"{name}: {output}")
        case HandleSettled(handle=handle, status=status):
            line.show(f"{handle}: {status}")
        case _:  # a class for every fact of the journal is in overt.events
            pass


async def read(stream: RunStream[str], *, until: str = "") -> int:
    """Print a stream, up to the first event of a kind; return the position of the last event."""
    line, position = Line(), 0
    async with stream:
        async for event in stream:
            show(event, line)
            position = event.position
            if event.kind == until:
                break  # leaves no task behind; the run is cut off
    return position


async def main() -> None:
    stream = guide().stream("What do I pack?")
    seen = await read(stream, until="tool_finished")
    runtime = stream.runtime
    print(f"-- left at position {seen}: {runtime.result().status}")
    # Without a prompt or an answer it is recover() that is streamed; `after` has what was missed come first.
    await read(runtime.stream(after=seen))
    print(f"-- {runtime.result().total_tokens} tokens, {len(runtime.events())} events in the journal")


if __name__ == "__main__":
    anyio.run(main)
