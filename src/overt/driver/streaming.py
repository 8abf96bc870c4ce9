"""Buying a reply: piece by piece where somebody hears it and the model can, whole otherwise."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, cast

from overt._text import clean
from overt.driver.context import stop_if_cancelled
from overt.message import Model, ModelDelta, ModelRequest, ModelResponse

if TYPE_CHECKING:
    from overt.driver.audience import Audience
    from overt.driver.loop import Driver

__all__ = ("generate",)


BREATH = 64
"""Pieces after which a model that never has to wait lets others run, and one that lets no cancellation through ends."""


async def generate(
    driver: Driver, handle: str, model: Model, request: ModelRequest, before: int = 0
) -> ModelResponse:
    """Ask a model. Response and usage are the same whichever way it is asked.

    Args:
        driver: Who asks.
        handle: For whom.
        model: The model.
        request: What it is asked.
        before: How often the host's task had been cancelled before.

    Raises:
        Exception: Whatever the model raises.
    """
    stream: Callable[[ModelRequest], AsyncIterator[ModelDelta]] | None = (
        getattr(model, "stream", None) if driver.audience else None
    )
    if stream is None:
        return await model.generate(request)
    from overt.models.assemble import Assembler  # loaded by the first run that is streamed

    assembler, voice = Assembler(), _Voice(driver.audience, handle)
    deltas = stream(request)
    heard = 0
    try:
        async for delta in deltas:
            assembler.add(delta)
            heard += 1
            if heard % BREATH == 0:
                await driver.pause()
                await stop_if_cancelled(before, driver.host)
            if delta.reasoning:
                voice.say(delta.reasoning, reasoning=True)
            if delta.text:
                voice.say(delta.text, reasoning=False)
    finally:
        # What was cancelled, or has failed, is not left to the event loop's collector of async generators.
        close: Callable[[], Any] | None = getattr(deltas, "aclose", None)
        if close is not None:
            await close()
        elif inspect.iscoroutine(given := cast("object", deltas)):
            # An `async def` without `yield`: the iteration has said that it is none.
            given.close()
    voice.end()
    return assembler.response()


class _Voice:
    """What a model says in one call, on its way to whoever hears it."""

    __slots__ = ("_audience", "_handle", "_held")

    def __init__(self, audience: Audience, handle: str) -> None:
        self._audience: Audience = audience
        self._handle: str = handle
        self._held: dict[bool, str] = {}
        """Half of a character that a piece ended in; for reasoning and for text."""

    def say(self, text: str, *, reasoning: bool) -> None:
        """Pass a piece on; half of a surrogate pair at its end waits for the other half."""
        if self._held or not text.isascii():
            text = self._held.pop(reasoning, "") + text
            if "\ud800" <= text[-1] <= "\udbff":
                self._held[reasoning] = text[-1]
                text = text[:-1]
            text = clean(text)
        if text:
            self._audience.piece(self._handle, self, reasoning=reasoning, text=text)

    def end(self) -> None:
        """Pass on what is left."""
        for reasoning in tuple(self._held):
            self._audience.piece(
                self._handle, self, reasoning=reasoning, text=clean(self._held.pop(reasoning))
            )
