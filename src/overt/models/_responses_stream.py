"""A streamed reply of the Responses API, read at its end as the API would have given it whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from overt.message import ModelDelta, ModelRequest, Usage
from overt.models._openai_client import Answer
from overt.models._openai_pieces import Heard
from overt.models._responses_wire import (
    BREAK,
    is_thought,
    output_of,
    places_of,
    read_response,
    usage_in,
)
from overt.models._wire import mapping, names_of, text_of

__all__ = ("ResponsesReader", "failure_in")

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


def failure_in(body: Mapping[str, object]) -> object:
    """Return the error that a reply holds, something false where it holds none."""
    wrong = body.get("error")
    if body.get("status") == "failed":
        return wrong or {"message": "the response failed, and no error is given"}
    return wrong or (body if body.get("object") == "error" else None)


class ResponsesReader:
    """Reads the events of one reply.

    Args:
        request: What was asked.
        provider: Under which name opaque parts are kept.
        stored: Whether the provider stores the reply.

    Attributes:
        usage: The usage said last.
        ended: Whether the reply has ended.
    """

    def __init__(self, request: ModelRequest, *, provider: str, stored: bool) -> None:
        self.usage: Usage | None = None
        self.ended: bool = False
        self._request = request
        self._names = names_of(request)
        self._provider = provider
        self._stored = stored
        self._heard = Heard()
        self._items: dict[int, dict[str, object]] = {}
        self._open: set[int] = set()
        """Items that have begun and not ended."""
        self._pieces: dict[int, list[str]] = {}
        """What came of an item so far: its text or its arguments."""
        self._at_text: int | None = None
        self._at_thought: tuple[object, ...] | None = None
        self._end: dict[str, object] | None = None

    def read(self, name: str, event: Mapping[str, object], answer: Answer) -> Iterator[ModelDelta]:
        """Yield what an event says."""
        kind = text_of(event.get("type")) or name
        body = mapping(event.get("response"))
        if kind == "response.failed":
            body = {**body, "status": "failed"}
        self.usage = usage_in(body.get("usage")) or self.usage
        # Documented is an error event that is the error, sent is one that has it.
        wrong = event.get("error") or (event if kind == "error" else failure_in(body))
        if wrong:
            raise answer.reports(wrong, usage=self.usage)
        at = self._place(event)
        delta = text_of(event.get("delta"))
        match kind:
            case "response.output_item.added" | "response.output_item.done":
                yield from self._item(at, mapping(event.get("item")), done=kind.endswith("done"))
            case "response.output_text.delta" if delta:
                yield from self._text(at, delta)
            case "response.function_call_arguments.delta" if delta:
                self._begin(at, "function_call")
                self._pieces.setdefault(at, []).append(delta)
                yield self._heard.call(at, arguments=delta)
            case "response.reasoning_summary_text.delta" if delta:
                yield self._think((at, "summary", event.get("summary_index")), delta)
            case "response.reasoning_text.delta" if delta:
                yield self._think((at, "content", event.get("content_index")), delta)
            case _ if kind in _ENDS:
                self.ended, self._end = True, {"status": kind.rpartition(".")[2], **body}
            case _:
                # Refusals wait for the end: they are the text of a reply that has no other. Built-in tools go on
                # telling of themselves, and their items come whole.
                pass

    def end(self, *, done: bool) -> Iterator[ModelDelta]:
        """Yield what is left to say."""
        if self._end is None:
            return
        # Some endpoints leave the output out of the last event.
        output, known = output_of(self._end), sorted(self._items)
        if output:
            places = places_of(output)
        else:
            output = [self._whole(at) for at in known]
            places = [known[at] for at in places_of(output)]
        whole = read_response(self._end, output, self._request, provider=self._provider, stored=self._stored)
        yield from self._heard.rest(whole, places)

    def _place(self, event: Mapping[str, object]) -> int:
        index = event.get("output_index")
        if type(index) is int and index >= 0:
            return index
        id = event.get("item_id") or mapping(event.get("item")).get("id")
        return next((at for at, item in self._items.items() if id and item.get("id") == id), len(self._items))

    def _begin(self, at: int, kind: str) -> dict[str, object]:
        if at not in self._items:
            self._open.add(at)
        return self._items.setdefault(at, {"type": kind})

    def _item(self, at: int, item: Mapping[str, object], *, done: bool) -> Iterator[ModelDelta]:
        self._items[at] = dict(item)
        if done:
            self._open.discard(at)
        else:
            self._open.add(at)
            if item.get("type") == "function_call":
                name = text_of(item.get("name"))
                yield self._heard.call(at, id=text_of(item.get("call_id")), name=self._names.get(name, name))

    def _text(self, at: int, delta: str) -> Iterator[ModelDelta]:
        item = self._begin(at, "message")
        self._pieces.setdefault(at, []).append(delta)
        if is_thought(item, self._request):
            yield self._think((at,), delta)
            return
        if self._heard.any_text and at != self._at_text:
            yield self._heard.text(BREAK)
        self._at_text = at
        yield self._heard.text(delta)

    def _think(self, at: tuple[object, ...], delta: str) -> ModelDelta:
        begins = self._heard.any_reasoning and at != self._at_thought
        self._at_thought = at
        return self._heard.reasoning(BREAK + delta if begins else delta)

    def _whole(self, at: int) -> Mapping[str, object]:
        item = self._items[at]
        if at not in self._open or at not in self._pieces:
            return item
        said = "".join(self._pieces[at])
        if item.get("type") == "function_call":
            return {**item, "arguments": said}
        return {**item, "content": [{"type": "output_text", "text": said}]}
