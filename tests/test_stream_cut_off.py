"""A stream whose run is cut off by others before the reader hears of it."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from overt.events import ResultReady
from tests.driver.support import settle
from tests.stream_kit import Tool, worker


async def test_a_reader_whose_scope_was_cancelled_beside_it_is_cancelled() -> None:
    """The run hears of it first: the reader was not waiting."""
    work = Tool()
    with anyio.CancelScope() as scope:
        async with worker(work).stream("go") as stream:
            await anext(aiter(stream))
            await work.inside.wait()
            scope.cancel()
            with anyio.CancelScope(shield=True):
                await settle()
            async for _ in stream:
                pass
    assert scope.cancelled_caught
    work.go_on.set()
    assert (await stream.runtime.recover()).text == "done"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_where_only_the_run_is_cancelled_the_result_says_so() -> None:
    """As `asyncio` lets anybody do to every task."""
    work, before = Tool(), asyncio.all_tasks()
    async with worker(work).stream("go") as stream:
        await anext(aiter(stream))
        await work.inside.wait()
        for task in asyncio.all_tasks() - before:
            task.cancel()
        events = [event async for event in stream]
    last = events[-1]
    assert isinstance(last, ResultReady)
    assert last.result.status == "interrupted"
    await settle()
    assert asyncio.all_tasks() == before
    work.go_on.set()
    assert (await stream.runtime.recover()).text == "done"
