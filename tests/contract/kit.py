"""A table from (callable, error) to a function that makes exactly this callable raise exactly this error."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import cast

from overt import Agent, Answer, Loop, Options, Request, Runtime, ToolContext, tool
from overt.stores import MemoryStore, Owner
from overt.testing import MockModel, VirtualClock, call

Provocation = Callable[[], Awaitable[object]] | Callable[[], object]
TABLE: dict[tuple[str, str], Provocation] = {}

NOW = datetime(2026, 1, 1, tzinfo=UTC)
UNTIL = NOW + timedelta(days=36_500)
OTHER = Owner(id="another driver", host="another machine")
ENTRY = "root/clerk.1"


def promise(*pairs: str) -> Callable[[Provocation], Provocation]:
    """Enter a function for pairs such as `"overt.Runtime.run UsageError"`."""

    def enter(provocation: Provocation) -> Provocation:
        for pair in pairs:
            path, _, error = pair.partition(" ")
            assert (path, error) not in TABLE, pair
            TABLE[path, error] = provocation
        return provocation

    return enter


@contextmanager
def without(package: str) -> Iterator[None]:
    """Have a package not installed meanwhile."""
    hidden = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == package}
    for name in hidden:
        del sys.modules[name]
    sys.modules[package] = cast("ModuleType", None)  # an import of it raises ModuleNotFoundError
    try:
        yield
    finally:
        del sys.modules[package]
        sys.modules.update(hidden)


# ------------------------------------------------------------------ runs in a known state


@tool
async def asks(ctx: ToolContext) -> str:
    """Ask."""
    answer = await ctx.ask("May I?", answer_type=bool)
    return str(answer.ok)


@tool
async def more(ctx: ToolContext) -> str:
    """Ask, in the code of another process."""
    answer = await ctx.ask("More?", answer_type=bool)
    return str(answer.ok)


clerk = Agent("clerk", does="Asks.", tools=[asks])
newer = Agent("clerk", does="Asks twice.", tools=[asks, more])


def script() -> MockModel:
    return MockModel([call("asks"), "done"])


def yes(request: Request) -> Answer[bool]:
    return Answer(id=request.id, ok=True, data=True)


async def done() -> Runtime[str]:
    _, runtime = await clerk.run("go", model=MockModel(["done"]), run_id="r")
    return runtime


async def parked(
    store: MemoryStore | None = None, *, clock: VirtualClock | None = None
) -> tuple[Runtime[str], Request]:
    """A run that waits for an answer."""
    options: Options = {"store": store or MemoryStore(), "model": script(), "run_id": "r"}
    if clock is not None:
        options["clock"] = clock
    result, runtime = await clerk.run("go", **options)
    assert result.pending is not None
    return runtime, result.pending


async def parked_loop(store: MemoryStore | None = None) -> tuple[Loop[str], Request]:
    loop = clerk.loop(store=store or MemoryStore(), model=script(), run_id="r")
    result = await loop.run("go")
    assert result.pending is not None
    return loop, result.pending


async def driven(store: MemoryStore) -> None:
    """Let another driver have the run from now on."""
    await store.claim("r", owner=OTHER, now=NOW, until=UNTIL)


async def moved_on(store: MemoryStore) -> None:
    """Let another process, with other code, answer the run and ask anew where the code here has no tool."""
    model = MockModel([call("asks"), call("more"), "done"])
    there = await Runtime.open(newer, "r", store=store, model=model)
    result = await there.resume(yes(there.pendings()[0]))
    assert result.pending is not None
