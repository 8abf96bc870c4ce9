"""What tests of running tools have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import trio

from overt import Agent, Runtime, ToolMessage
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say

ENTRY = "root/a.1"
Cancelled = (asyncio.CancelledError, trio.Cancelled)


def agent(*tools: Any, **options: Any) -> Agent[None, str]:
    return Agent("a", does="works", tools=list(tools), **options)


def calling(*names: str, then: str = "done", **options: Any) -> MockModel:
    """A model that calls each tool once, in one reply, and then says something."""
    return MockModel([[call(name) for name in names], say(then)], **options)


def results(runtime: Runtime[Any], handle: str = ENTRY) -> list[tuple[str, bool]]:
    """Text and error mark of every tool result in a transcript, in order."""
    return [(m.text, m.is_error) for m in runtime.transcript(handle) if isinstance(m, ToolMessage)]


def kinds(runtime: Runtime[Any]) -> list[str]:
    return [event.kind for event in runtime.events()]


def tasks() -> int:
    """How many tasks this event loop has."""
    return len(anyio.get_running_tasks())


async def gather(*work: Any) -> None:
    async with anyio.create_task_group() as group:
        for one in work:
            group.start_soon(one)


def texts(messages: Sequence[Any]) -> list[str]:
    return [m.text for m in messages]


async def settle() -> None:
    """Let everybody else get on for a while."""
    for _ in range(30):
        await anyio.lowlevel.checkpoint()


class SlowStore:
    """A store every call of which takes a while; one of its appends may fail."""

    def __init__(self, *, fails_at: int = 0, error: Exception | None = None) -> None:
        self.inner = MemoryStore()
        self.appends = 0
        self.fails_at = fails_at
        self.error = error

    def __getattr__(self, name: str) -> Any:
        if name == "append_now":
            raise AttributeError(name)
        method = getattr(self.inner, name)

        async def slowly(*args: Any, **kwargs: Any) -> Any:
            await settle()
            if name == "append":
                self.appends += 1
                if self.error is not None and self.appends >= self.fails_at:
                    raise self.error
            return await method(*args, **kwargs)

        return slowly
