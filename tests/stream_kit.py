"""What the tests of streams share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import anyio

from overt import Agent, RunStream, tool
from overt.events import Event, RequestOpened
from overt.testing import call, say
from overt.testing.mock import Reply
from tests.suspend_kit import agent, approve

__all__ = ("ENTRY", "Tool", "all_of", "bare", "facts", "kinds", "read", "team", "worker")

ENTRY = "root/w.1"


class Tool:
    """A tool that counts how often it was entered, and waits until it is let go."""

    def __init__(self, *, waits: bool = True) -> None:
        self.entered = 0
        self.inside = anyio.Event()
        self.go_on = anyio.Event()
        if not waits:
            self.go_on.set()

        @tool(name="work")
        async def work() -> str:
            self.entered += 1
            self.inside.set()
            await self.go_on.wait()
            return "worked"

        self.tool = work


def worker(work: Tool, **options: Any) -> Agent[None, str]:
    return agent([[say("off"), call("work")], say("done")], work.tool, **options)


def team(**options: Any) -> Agent[None, str]:
    """Three levels; the lowest asks."""
    low = agent([call("approve", what="site"), say("low")], approve, name="low")
    mid = agent([call("task", agent="low", prompt="deploy"), say("mid")], name="mid", team=[low])
    top: list[Reply] = [[call("task", agent="mid", prompt="deploy"), call("work")], say("top")]
    return agent(top, Tool(waits=False).tool, team=[mid], **options)


async def all_of(stream: RunStream[Any], *, into: list[Event] | None = None) -> list[Event]:
    """Read to the end."""
    events = [] if into is None else into
    async with stream:
        async for event in stream:
            events.append(event)  # those before an error count
    return events


def facts(events: list[Event]) -> list[Event]:
    """Those that stand in the journal."""
    return [event for event in events if event.kind not in ("text", "reasoning", "result")]


def bare(events: Iterable[Event]) -> list[Event]:
    """Without what answering a request repeats, which is told as of when it is read."""
    return [
        event.model_copy(
            update={"request": event.request.model_copy(update={"replays": (), "turns_again": 0})}
        )
        if isinstance(event, RequestOpened)
        else event
        for event in events
    ]


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


async def read(stream: RunStream[Any], *, at: str, then: Callable[[], object]) -> None:
    """Read to the end, and do something at each event of a kind."""
    async with stream:
        async for event in stream:
            if event.kind == at:
                then()
