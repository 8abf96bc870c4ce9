"""A run whose host gives up on it, and one that goes on with it.

    python examples/cancel_and_recover.py

Cancelling the host's task propagates as cancellation always does; the journal is closed off first, so the run can be
read and recovered. OVERT_MODEL=openai:gpt-5-mini takes a real model.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import anyio

from overt import Agent, Model, Runtime, ToolContext, tool
from overt.stores import SQLiteStore
from overt.testing import MockModel, call, say


class Depot:
    """Slow on the first visit."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.is_counting = anyio.Event()

    async def count(self, key: str) -> int:
        self.keys.append(key)
        self.is_counting.set()
        if len(self.keys) == 1:
            await anyio.sleep_forever()
        return 7


@tool  # "rerun": counting twice does no harm, so recovery simply enters it again
async def count(ctx: ToolContext[Depot]) -> int:
    """Count the kettles in the depot. It takes a while."""
    return await ctx.deps.count(ctx.idempotency_key)


def model() -> Model | str:
    return os.environ.get("OVERT_MODEL") or MockModel([call("count"), say("There are seven.")])


def clerk() -> Agent[Depot, str]:
    return Agent(
        "clerk",
        does="Counts stock.",
        soul="Call count once, then answer with the number, in one sentence.",
        tools=[count],
        model=model(),
        deps_type=Depot,
    )


async def main() -> None:
    depot = Depot()
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder) / "runs.db")
        # Held before it runs: whoever wants to read a cancelled run needs the runtime, not the return value.
        runtime = Runtime(clerk(), store=store, run_id="count-1", deps=depot)

        async def ask() -> None:
            await runtime.run("How many kettles are there?")
            depot.is_counting.set()  # a model that did not count at all

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await depot.is_counting.wait()
            tasks.cancel_scope.cancel()
        print(f"{runtime.result().status}: {runtime.result().text} ({runtime.result().total_tokens} tokens)")

        # Anybody with the file can go on, here or in another process.
        again = await Runtime.open(clerk(), "count-1", store=store, deps=depot)
        result = await again.recover()
        print(f"{result.status}: {result.text} ({result.total_tokens} tokens)")
        print(f"entered {len(depot.keys)} times under {len(set(depot.keys))} key")
        await store.close()


if __name__ == "__main__":
    anyio.run(main)
