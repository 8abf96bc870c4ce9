"""A scripted reply cut into the pieces a provider would stream."""

from __future__ import annotations

import json
from collections.abc import Iterator

from overt.message import ModelDelta, ModelResponse, ToolCallDelta, Usage

__all__ = ("chunks",)


def chunks(response: ModelResponse, size: int) -> Iterator[ModelDelta]:
    """Yield a reply in pieces of at most `size` characters.

    The first piece of a call has its id and name. Usage is what it came to so far, as of providers that repeat it: what
    was sent is in every piece, the whole of it in the last two.
    """
    message, usage = response.message, response.usage
    begun = None if usage is None else _begun(usage)
    for piece in _pieces(response, size):
        yield ModelDelta(
            text=piece.text,
            reasoning=piece.reasoning,
            tool_call=piece.tool_call,
            model=response.model,
            usage=begun,
        )
    yield ModelDelta(
        finish_reason=response.finish_reason,
        raw_finish_reason=response.raw_finish_reason,
        model=response.model,
        opaque=message.opaque,
        usage=usage,
    )
    if usage is not None:
        yield ModelDelta(usage=usage)


def _pieces(response: ModelResponse, size: int) -> Iterator[ModelDelta]:
    message = response.message
    if message.reasoning is not None:
        for piece in _cut(message.reasoning, size):
            yield ModelDelta(reasoning=piece)
    if message.text:
        for piece in _cut(message.text, size):
            yield ModelDelta(text=piece)
    for index, call in enumerate(message.tool_calls):
        raw = response.invalid_arguments.get(index)
        if raw is None:
            raw = json.dumps(call.arguments, ensure_ascii=False)
        for number, piece in enumerate(_cut(raw, size)):
            first = number == 0
            yield ModelDelta(
                tool_call=ToolCallDelta(
                    index=index,
                    id=call.id if first else None,
                    name=call.name if first else None,
                    arguments=piece,
                )
            )


def _cut(text: str, size: int) -> Iterator[str]:
    """Yield at least one piece."""
    for start in range(0, max(len(text), 1), size):
        yield text[start : start + size]


def _begun(usage: Usage) -> Usage:
    return usage.model_copy(
        update={"output_tokens": 0, "reasoning_tokens": 0, "total_tokens": usage.input_tokens}
    )
