"""What of a streamed reply has been said, and what is left to say once the whole is known."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from overt._text import clean
from overt.message import ModelDelta, ModelResponse, ToolCallDelta

__all__ = ("Heard",)


class _Call:
    __slots__ = ("arguments", "id", "name")

    def __init__(self) -> None:
        self.id = False
        self.name = False
        self.arguments = False


class Heard:
    """Makes the pieces of one reply and remembers them.

    A stream is read by the same code as a reply that came whole: text, reasoning and arguments are passed on as they
    come, the reply is put together at the end, and `rest` adds what only the whole tells. What was said stays said,
    also where a provider's end of the stream tells otherwise.
    """

    __slots__ = ("_calls", "_reasoning", "_text")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _Call] = {}

    @property
    def any_text(self) -> bool:
        """Whether text was said."""
        return bool(self._text)

    @property
    def any_reasoning(self) -> bool:
        """Whether reasoning was said."""
        return bool(self._reasoning)

    def text(self, piece: str) -> ModelDelta:
        """Say a piece of the text."""
        self._text.append(piece)
        return ModelDelta(text=piece)

    def reasoning(self, piece: str) -> ModelDelta:
        """Say a piece of the reasoning."""
        self._reasoning.append(piece)
        return ModelDelta(reasoning=piece)

    def call(
        self, place: int, *, id: str | None = None, name: str | None = None, arguments: str | None = None
    ) -> ModelDelta:
        """Say a piece of a call.

        Args:
            place: Where among the calls of the reply it stands.
            id: Its id; an empty one is none.
            name: Its name, whole.
            arguments: A piece of their text.
        """
        call = self._calls.setdefault(place, _Call())
        call.id = call.id or bool(id)
        call.name = call.name or bool(name)
        call.arguments = call.arguments or bool(arguments)
        piece = ToolCallDelta(index=place, id=id or None, name=name or None, arguments=arguments)
        return ModelDelta(tool_call=piece)

    def rest(self, whole: ModelResponse, places: Sequence[int] = ()) -> Iterator[ModelDelta]:
        """Yield what has not been said of a reply, its end included.

        Args:
            whole: The reply.
            places: Of its calls, in order; by default 0, 1, 2, ….
        """
        message = whole.message
        reasoning = _after(message.reasoning, self._reasoning)
        if reasoning is not None:
            yield self.reasoning(reasoning)
        text = _after(message.text or None, self._text)
        if text is not None:
            yield self.text(text)
        for index, call in enumerate(message.tool_calls):
            place = places[index] if index < len(places) else index
            said = self._calls.setdefault(place, _Call())
            arguments = None
            if not said.arguments:
                arguments = whole.invalid_arguments.get(index)
                if arguments is None:
                    arguments = json.dumps(call.arguments, ensure_ascii=False)
            yield self.call(
                place,
                id=None if said.id else call.id,
                name=None if said.name else call.name,
                arguments=arguments,
            )
        yield ModelDelta(
            usage=whole.usage,
            finish_reason=whole.finish_reason,
            raw_finish_reason=whole.raw_finish_reason,
            model=whole.model,
            opaque=message.opaque,
        )


def _after(whole: str | None, said: Sequence[str]) -> str | None:
    """Return what follows what was said; `None` where nothing does."""
    if whole is None:
        return None
    heard = clean("".join(said))
    if said and (heard == whole or not whole.startswith(heard)):
        return None
    return whole[len(heard) :]
