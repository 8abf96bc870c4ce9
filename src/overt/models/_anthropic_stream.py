"""Streamed replies of Anthropic's messages API, event by event. Knows no client and no network."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from overt._text import clean
from overt.message import ModelDelta, ModelRequest, ToolCallDelta, Usage
from overt.models._anthropic_reply import finish_of, read_content, refusal_of, usage_of
from overt.models._wire import mapping, names_of, text_of

__all__ = ("StreamReader",)

_PIECES = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("input", "partial_json"),
}
"""Which field of its block a piece belongs to, and where it is in the event; by the event's type."""
_KINDS = {"text": "text", "thinking": "thinking", "signature": "thinking", "input": "tool_use"}


class _Block:
    __slots__ = ("call", "implied", "pieces", "start")

    def __init__(self, start: Mapping[str, object], call: int | None, *, implied: bool) -> None:
        self.start = start
        self.call = call
        self.implied = implied
        """Whether a piece of it came before its beginning."""
        self.pieces: dict[str, list[str]] = {}

    @property
    def kind(self) -> object:
        return self.start.get("type")

    def whole(self) -> dict[str, object]:
        """Return the block as a reply has it that is not streamed."""
        made = dict(self.start)
        for key, pieces in self.pieces.items():
            text = "".join(pieces)
            if key != "input":
                made[key] = text_of(made.get(key)) + text
            elif text:
                made[key] = text if self.kind == "tool_use" else _parsed(text)
        return made


class StreamReader:
    """Reads one reply. What its pieces come to is what `read_reply` makes of the same reply in one piece.

    Args:
        request: What was asked, for the names of the tools.
        provider: Under which name opaque parts are kept.
        prefix: The number of the request.

    Attributes:
        usage: What the reply has used so far, as far as it is known.
    """

    def __init__(self, request: ModelRequest, *, provider: str, prefix: int) -> None:
        self.usage: Usage | None = None
        self._names = names_of(request)
        self._provider = provider
        self._prefix = prefix
        self._blocks: list[_Block] = []
        self._at: dict[int | None, _Block] = {}
        """By the provider's index: the last one that was begun under it."""
        self._calls = 0
        self._spoken = False
        self._thinker: _Block | None = None
        self._counts: dict[str, object] = {}
        self._ended = False

    def read(self, event: Mapping[str, object]) -> Iterator[ModelDelta]:
        """Read the next event; unknown ones say nothing."""
        match event.get("type"):
            case "message_start":
                message = mapping(event.get("message"))
                model = clean(text_of(message.get("model")))
                yield ModelDelta(model=model or None, usage=self._count(message.get("usage")))
            case "content_block_start":
                yield from self._begin(_index(event), mapping(event.get("content_block")))
            case "content_block_delta":
                yield from self._go_on(_index(event), mapping(event.get("delta")))
            case "message_delta":
                delta = mapping(event.get("delta"))
                usage = self._count(event.get("usage"))
                if delta.get("stop_reason") is not None and not self._ended:
                    yield from self._end(delta, usage)
                elif usage is not None:
                    yield ModelDelta(usage=usage)
            case "message_stop" if not self._ended:
                yield from self._end({}, None)
            case _:
                pass

    def _count(self, usage: object) -> Usage | None:
        """Take counts; each is a total, and one that is not repeated still holds."""
        self._counts.update({key: value for key, value in mapping(usage).items() if value is not None})
        self.usage = usage_of(self._counts)
        return self.usage

    def _begin(self, index: int | None, start: Mapping[str, object]) -> Iterator[ModelDelta]:
        early = self._at.get(index)
        if early is not None and early.implied and early.kind == start.get("type"):
            early.implied = False
            early.start = start
            if early.call is not None:
                yield self._call(early)
            return
        block = self._add(index, start)
        if block.kind == "tool_use":
            yield self._call(block)
        elif block.kind == "text" and (text := text_of(start.get("text"))):
            yield self._text(text)
        elif block.kind == "thinking" and (thought := text_of(start.get("thinking"))):
            yield self._thought(block, thought)

    def _add(self, index: int | None, start: Mapping[str, object], *, implied: bool = False) -> _Block:
        is_call = start.get("type") == "tool_use"
        block = _Block(start, self._calls if is_call else None, implied=implied)
        self._calls += is_call
        self._blocks.append(block)
        self._at[index] = block
        return block

    def _call(self, block: _Block) -> ModelDelta:
        id, name = clean(text_of(block.start.get("id"))), clean(text_of(block.start.get("name")))
        assert block.call is not None
        return ModelDelta(
            tool_call=ToolCallDelta(index=block.call, id=id or None, name=self._names.get(name, name) or None)
        )

    def _go_on(self, index: int | None, delta: Mapping[str, object]) -> Iterator[ModelDelta]:
        key, where = _PIECES.get(text_of(delta.get("type")), ("", ""))
        piece = text_of(delta.get(where))
        if not piece:
            return
        block = self._at.get(index)
        if block is None:
            block = self._add(index, {"type": _KINDS[key]}, implied=True)
        block.pieces.setdefault(key, []).append(piece)
        match key:
            case "text" if block.kind == "text":
                yield self._text(piece)
            case "thinking" if block.kind == "thinking":
                yield self._thought(block, piece)
            case "input" if block.call is not None:
                yield ModelDelta(tool_call=ToolCallDelta(index=block.call, arguments=piece))
            case _:
                pass

    def _text(self, text: str) -> ModelDelta:
        self._spoken = True
        return ModelDelta(text=text)

    def _thought(self, block: _Block, thought: str) -> ModelDelta:
        gap = "\n\n" if self._thinker not in (None, block) else ""
        self._thinker = block
        return ModelDelta(reasoning=gap + thought)

    def _say(self, *, cut: bool) -> Iterator[ModelDelta]:
        """Say the arguments of calls that came in one piece, or that have none."""
        for block in self._blocks:
            if block.call is None or "input" in block.pieces:
                continue
            given = block.start.get("input")
            if given is None or given in ("", {}):
                text = "" if cut and block is self._blocks[-1] else "{}"
            else:
                text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            if text:
                yield ModelDelta(tool_call=ToolCallDelta(index=block.call, arguments=text))

    def _end(self, delta: Mapping[str, object], usage: Usage | None) -> Iterator[ModelDelta]:
        self._ended = True
        finish, raw = finish_of(delta.get("stop_reason"), calls=self._calls > 0)
        cut = finish == "length"
        yield from self._say(cut=cut)
        opaque = None
        excuse = "" if self._spoken else refusal_of(delta)
        if not excuse and any(block.kind not in ("text", "tool_use") for block in self._blocks):
            opaque = read_content(
                [block.whole() for block in self._blocks],
                names=self._names,
                provider=self._provider,
                prefix=self._prefix,
                cut=cut,
            ).opaque
        yield ModelDelta(
            text=excuse or None, usage=usage, finish_reason=finish, raw_finish_reason=raw, opaque=opaque
        )


def _index(event: Mapping[str, object]) -> int | None:
    index = event.get("index")
    return index if isinstance(index, int) else None


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
