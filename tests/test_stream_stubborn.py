"""Models that stream without end, without a pause, or past every cancellation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from overt import Agent, ModelDelta, ModelRequest, ModelResponse
from overt.testing import MockModel
from tests.driver.support import Cancelled
from tests.stream_kit import all_of


class Endless:
    """A model that talks on for as long as it is listened to."""

    name = "endless"

    def __init__(self, *, stubborn: bool) -> None:
        self.stubborn = stubborn
        self.said = 0
        self.closed = False
        self.quiet = False

    async def generate(self, request: ModelRequest) -> ModelResponse:
        return await MockModel(["done"]).generate(request)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        try:
            while not self.quiet:
                self.said += 1
                if self.said > 10_000:
                    raise AssertionError("nobody stops it")
                if self.stubborn:
                    with contextlib.suppress(*Cancelled):
                        await anyio.lowlevel.checkpoint()
                yield ModelDelta(text="on and ")
            yield ModelDelta(text="on", finish_reason="stop")
        finally:
            self.closed = True


def who(model: Any) -> Agent[None, str]:
    return Agent("w", does="talks", model=model)


@pytest.mark.parametrize("stubborn", [False, True])
async def test_it_is_heard_while_it_talks_and_stops_when_nobody_listens(stubborn: bool) -> None:
    model = Endless(stubborn=stubborn)
    async with who(model).stream("go") as stream:
        async for event in stream:
            if event.kind == "text":
                break
    assert model.closed
    assert stream.runtime.result().status == "interrupted"
    model.quiet = True
    assert (await stream.runtime.recover()).text == "done"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_hosts_task_is_cancelled_past_it() -> None:
    model = Endless(stubborn=True)
    host = asyncio.create_task(all_of(who(model).stream("go")))
    while model.said < 10:
        await anyio.lowlevel.checkpoint()
    host.cancel()
    with pytest.raises(asyncio.CancelledError):
        await host
    assert model.closed
    assert model.said < 1000


class Wrong(Endless):
    def stream(self, request: ModelRequest) -> Any:
        async def without_yield() -> AsyncIterator[ModelDelta]:
            raise AssertionError("nobody awaits it")

        return without_yield()


async def test_a_stream_that_is_a_coroutine_is_the_models_failure_without_a_warning() -> None:
    stream = who(Wrong(stubborn=False)).stream("go")
    await all_of(stream)
    error = (await stream.result()).error
    assert error is not None
    assert (error.type, error.source) == ("TypeError", "model")


@pytest.mark.parametrize("piece", [b"bytes", 5, ["text"]])
@pytest.mark.parametrize("kind", ["text", "reasoning"])
async def test_pieces_of_another_type_are_the_models_failure(kind: str, piece: Any) -> None:
    class Says(Endless):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
            yield ModelDelta(**{kind: piece})
            yield ModelDelta(finish_reason="stop")

    stream = who(Says(stubborn=False)).stream("go")
    await all_of(stream)
    error = (await stream.result()).error
    assert error is not None
    assert error.message == f"the model streamed a text of type {type(piece).__name__}"
