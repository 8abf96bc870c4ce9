"""A streamed reply put together again: the same response as without streaming, however it was cut."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from overt._text import clean
from overt.errors import ModelError
from overt.message import AssistantMessage, ModelDelta, ModelResponse, ToolCall, ToolCallDelta, Usage
from overt.models.arguments import parse_arguments

__all__ = ("Assembler",)


class _Call:
    __slots__ = ("arguments", "id", "name")

    def __init__(self) -> None:
        self.id: str | None = None
        self.name: str = ""
        self.arguments: list[str] = []


class Assembler:
    """Takes the pieces of one reply and gives the response.

    Texts are joined before anything is read of them, so a piece may end within a surrogate pair or an escape.
    """

    __slots__ = ("_calls", "_finish", "_model", "_opaque", "_raw_finish", "_reasoning", "_text", "_usage")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] | None = None
        self._calls: dict[int, list[_Call]] = {}
        """By index. More than one where a provider gives several calls the same."""
        self._usage: Usage | None = None
        self._finish: (
            Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"] | None
        ) = None
        self._raw_finish: str | None = None
        self._model: str = ""
        self._opaque: dict[str, JsonValue] | None = None

    def add(self, delta: ModelDelta) -> None:
        """Take the next piece.

        Raises:
            TypeError: It is none.
        """
        if not isinstance(delta, ModelDelta):  # pyright: ignore[reportUnnecessaryIsInstance]  # a host's own model
            raise TypeError(f"the model streamed {type(delta).__name__}, not a ModelDelta")
        for piece in (delta.text, delta.reasoning):
            if piece is not None and not isinstance(piece, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # as above
                raise TypeError(f"the model streamed a text of type {type(piece).__name__}")
        if delta.text:
            self._text.append(delta.text)
        if delta.reasoning is not None:
            if self._reasoning is None:
                self._reasoning = []
            self._reasoning.append(delta.reasoning)
        if delta.tool_call is not None:
            self._add_call(delta.tool_call)
        if delta.usage is not None:
            self._usage = delta.usage
        if delta.finish_reason is not None:
            self._finish = delta.finish_reason
        if delta.raw_finish_reason is not None:
            self._raw_finish = delta.raw_finish_reason
        if delta.model:
            self._model = delta.model
        if delta.opaque is not None:
            self._opaque = {**(self._opaque or {}), **delta.opaque}

    def _add_call(self, delta: ToolCallDelta) -> None:
        under = self._calls.setdefault(delta.index, [])
        if not under or (delta.id and under[-1].id and delta.id != under[-1].id):
            under.append(_Call())
        call = under[-1]
        if delta.id is not None and not call.id:
            call.id = delta.id
        if delta.name and not call.name:
            call.name = delta.name
        if delta.arguments:
            call.arguments.append(delta.arguments)

    def response(self) -> ModelResponse:
        """Return the reply.

        Calls are in the order of their indices. One without an id gets `call_0`, `call_1`, … by its place. Arguments
        that are no JSON object are kept as text in `invalid_arguments`.

        Raises:
            ModelError: No finish reason was said: the stream broke off, and what came of it is no reply. The type is
                `"StreamIncomplete"`, retryable.
        """
        if self._finish is None:
            raise ModelError(
                "The stream ended without a finish reason: the reply is incomplete.",
                type="StreamIncomplete",
                retryable=True,
                usage=self._usage,
            )
        calls: list[ToolCall] = []
        invalid: dict[int, str] = {}
        for made in (call for index in sorted(self._calls) for call in self._calls[index]):
            at = len(calls)
            raw = "".join(made.arguments)
            arguments: dict[str, JsonValue] = {}
            try:
                arguments = parse_arguments(raw)
            except ValueError:
                invalid[at] = clean(raw)
            id = f"call_{at}" if made.id is None else clean(made.id)
            calls.append(ToolCall(id=id, name=clean(made.name), arguments=arguments))
        return ModelResponse(
            message=AssistantMessage(
                text=clean("".join(self._text)),
                tool_calls=tuple(calls),
                reasoning=None if self._reasoning is None else clean("".join(self._reasoning)),
                opaque=self._opaque,
            ),
            usage=self._usage,
            finish_reason=self._finish,
            raw_finish_reason=self._raw_finish,
            model=clean(self._model),
            invalid_arguments=invalid,
        )
