"""A streamed reply of the chat completions API, put together as the API would have given it whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import cast

from overt.message import ModelDelta, ModelRequest, Usage
from overt.models._failures import loads
from overt.models._openai_client import Answer
from overt.models._openai_pieces import Heard
from overt.models._openai_wire import REASONING, content_of, error_of, read_reply, usage_of
from overt.models._wire import mapping, text_of, wire_name

__all__ = ("ChatReader",)

# Of a piece of `reasoning_details` these go on where the piece before ended; any other field is said once.
_GROWING = frozenset({"text", "summary", "data"})


class _Call:
    __slots__ = ("arguments", "extra", "id", "name", "place", "whole")

    def __init__(self, place: int) -> None:
        self.place = place
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra: object = None
        self.whole = False
        """Whether its first piece was all of it."""

    def wire(self) -> dict[str, object]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id, "function": function, "extra_content": self.extra}


class ChatReader:
    """Reads the chunks of one reply.

    Args:
        request: What was asked.
        provider: Under which name opaque parts are kept.

    Attributes:
        usage: The usage said last.
        ended: Never; the API says `[DONE]`.
    """

    def __init__(self, request: ModelRequest, *, provider: str) -> None:
        self.usage: Usage | None = None
        self.ended: bool = False
        self._request = request
        self._provider = provider
        self._offered = frozenset(wire_name(tool.name) for tool in request.tools)
        self._heard = Heard()
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._thoughts: dict[str, list[str]] = {}
        self._details: dict[str, object] = {}
        self._spoken: str | None = None
        """The field whose reasoning is passed on: some endpoints say the same in two."""
        self._calls: dict[int, list[_Call]] = {}
        """By index; more than one where an endpoint gives several calls the same."""
        self._places: set[int] = set()
        self._latest = 0
        self._usage: object = None
        self._model = ""
        self._finish: object = None

    def read(self, name: str, event: Mapping[str, object], answer: Answer) -> Iterator[ModelDelta]:
        """Yield what a chunk says."""
        choices = event.get("choices")
        found = cast("list[object]", choices) if isinstance(choices, list) else []
        choice = next((c for c in map(mapping, found) if c.get("index") in (None, 0)), None)
        said = usage_of(event.get("usage")) or usage_of((choice or {}).get("usage"))
        if said is not None:
            self.usage = said
            self._usage = event.get("usage") or (choice or {}).get("usage")
            yield ModelDelta(usage=said)
        wrong = error_of(event, choice) or (event if name == "error" else None)
        if wrong:
            raise answer.reports(wrong, usage=self.usage)
        self._model = text_of(event.get("model")) or self._model
        if choice is None:
            return
        if choice.get("finish_reason") is not None:
            self._finish = choice["finish_reason"]
        delta = mapping(choice.get("delta"))
        for key in REASONING:
            if delta.get(key) is not None:
                yield from self._think(key, delta[key])
        text = content_of(delta.get("content"))
        if text:
            self._content.append(text)
            yield self._heard.text(text)
        self._refusal.append(text_of(delta.get("refusal")))
        calls = delta.get("tool_calls")
        for item in cast("list[object]", calls) if isinstance(calls, list) else []:
            yield from self._piece(mapping(item))

    def end(self, *, done: bool) -> Iterator[ModelDelta]:
        """Yield what is left to say."""
        if self._finish is None and not done:
            return
        calls = [call for index in sorted(self._calls) for call in self._calls[index]]
        message: dict[str, object] = {
            **self._details,
            **{key: "".join(pieces) for key, pieces in self._thoughts.items()},
            "content": "".join(self._content),
            "refusal": "".join(self._refusal),
            "tool_calls": [call.wire() for call in calls],
        }
        body = {"usage": self._usage, "model": self._model}
        choice = {"message": message, "finish_reason": self._finish}
        whole = read_reply(body, choice, self._request, provider=self._provider)
        yield from self._heard.rest(whole, [call.place for call in calls])

    def _think(self, key: str, value: object) -> Iterator[ModelDelta]:
        if isinstance(value, str):
            self._thoughts.setdefault(key, []).append(value)
            self._spoken = self._spoken or key
            if key == self._spoken:
                yield self._heard.reasoning(value)
        elif isinstance(value, list):
            known = self._details.setdefault(key, [])
            for piece in cast("list[object]", value):
                _join(cast("list[object]", known), piece)
        else:
            self._details[key] = value

    def _piece(self, item: Mapping[str, object]) -> Iterator[ModelDelta]:
        function = mapping(item.get("function"))
        id, name, raw = text_of(item.get("id")), text_of(function.get("name")), function.get("arguments")
        arguments = (
            raw if isinstance(raw, str) else "" if raw is None else json.dumps(raw, ensure_ascii=False)
        )
        index = item.get("index")
        if type(index) is int and index >= 0:
            self._latest = index
        under = self._calls.setdefault(self._latest, [])
        call = under[-1] if under else None
        if (
            call is None
            or (id and call.id and id != call.id)
            # Some endpoints send whole calls, all under one index, and without ids.
            or (name and arguments and call.whole)
        ):
            call = _Call(self._place(self._latest, len(under)))
            call.whole = bool(name) and isinstance(loads(arguments), dict)
            under.append(call)
        new_id = id if not call.id else ""
        call.id = call.id or id
        if name and not self._repeats(call.name, name):
            call.name += name
        call.arguments.append(arguments)
        extra = item.get("extra_content")
        call.extra = call.extra if extra is None else extra
        # The name waits for the end, since more of it may come at any time.
        yield self._heard.call(call.place, id=new_id, arguments=arguments or None)

    def _place(self, index: int, under: int) -> int:
        place = index + under + sum(len(calls) - 1 for at, calls in self._calls.items() if at < index)
        while place in self._places:
            place += 1
        self._places.add(place)
        return place

    def _repeats(self, known: str, piece: str) -> bool:
        """Tell the whole name said again, as some endpoints do with every piece, from the rest of a name."""
        if known != piece or piece not in self._offered:
            return False
        return not any(name.startswith(known + piece) for name in self._offered)


def _join(known: list[object], piece: object) -> None:
    """Add a piece of reasoning to those it goes on from, told by kind, index and id."""
    fields = mapping(piece)
    for item in reversed(known):
        entry = mapping(item)
        same = all(entry.get(key) == fields.get(key) for key in ("type", "index"))
        if fields and same and (not fields.get("id") or entry.get("id") in (None, "", fields["id"])):
            grown = cast("dict[str, object]", item)
            for key, value in fields.items():
                if value is None and key in grown:
                    continue
                said = grown.get(key)
                grows = key in _GROWING and isinstance(said, str) and isinstance(value, str)
                grown[key] = f"{said}{value}" if grows else value
            return
    known.append(dict(fields) if fields else piece)
