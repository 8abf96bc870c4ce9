"""Messages, tools and replies in the form of Anthropic's messages API. Knows no client and no network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from pydantic import JsonValue

from overt._text import clean
from overt.message import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelSettings,
    SystemMessage,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from overt.models._anthropic_parts import user_blocks
from overt.models._anthropic_reply import chained, digest_of, number_of, said_number
from overt.models._anthropic_schema import output_format
from overt.models._wire import (
    Converted,
    Wire,
    clean_json,
    count,
    output_limit,
    wire_id,
    wire_name,
)

__all__ = ("Converter",)

_CACHE: Wire = {"cache_control": {"type": "ephemeral"}}
_EMPTY = "(empty)"
_MAX_KEPT = 64


@dataclass(slots=True)
class _Form:
    """An assistant message in one of the two forms it may be sent in, or any other message in its only one."""

    blocks: list[JsonValue]
    digest: bytes
    ids: dict[str, str] = field(default_factory=dict)
    """The provider's ids of calls that are sent under them, by ours."""


@dataclass(slots=True)
class _Sent:
    """A converted message.

    Attributes:
        kind: What it becomes.
        plain: Without the parts only this provider understands.
        whole: With them, in the order the reply had; `None` where there are none, or the message is another by now.
        prefix: What stood before it when it was said, as a number.
        calls: Ids of its calls, or of the call it is the result of.
        tools: Names of the tools it calls, as they are sent.
    """

    kind: Literal["system", "user", "result", "assistant"]
    plain: _Form
    whole: _Form | None = None
    prefix: int | None = None
    calls: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


class Converter:
    """Turns requests into bodies; each message and each set of tools is converted once and kept while it lives.

    Args:
        provider: Whose opaque parts are sent back: those that a reply read for the same provider left.
        limit: Tokens a reply may have where neither request nor settings say it.
        cache: Whether breakpoints for the provider's prompt cache are set.
        transform: Turns a schema into one the API takes, `ValueError` where it cannot.
    """

    def __init__(
        self,
        provider: str,
        *,
        limit: int,
        cache: bool,
        transform: Callable[[dict[str, object]], Mapping[str, object]],
    ) -> None:
        self._provider = provider
        self._limit = limit
        self._cache = cache
        self._transform = transform
        self._converted: Converted[_Sent | None] = Converted(self._convert, _tool_set)
        self._digests: dict[int, tuple[list[JsonValue], bytes]] = {}
        self._formats: dict[int, tuple[Mapping[str, JsonValue], Wire | str]] = {}

    def body(self, request: ModelRequest, *, model: str, base: ModelSettings) -> tuple[Wire, int]:
        """Return the request's body, and a number that stands for all the model is shown with it.

        Args:
            request: What is asked.
            model: The model's name.
            base: Settings of the model, under those of the request.

        Returns:
            A new dict, whose blocks are shared with earlier bodies, and the number for `read_reply`.

        Raises:
            DefinitionError: A message has a part this API cannot take.
        """
        settings = request.settings.over(base)
        extra = {key: clean_json(value) for key, value in settings.extra.items()}
        sent = [item for item in self._converted.messages(request.messages) if item is not None]
        system = [block for item in sent if item.kind == "system" for block in item.plain.blocks]
        form = None if request.output_schema is None else self._format(request.output_schema)
        if isinstance(form, str):
            system.append({"type": "text", "text": form})
        tools, digest, withdrawn = self._tools(request, sent, extra.pop("tools", None))
        messages, prefix = _messages(
            [item for item in sent if item.kind != "system"],
            start=chained(digest_of([system, extra.get("system"), extra.get("messages")]), digest),
            keep=_keep(extra.get("thinking")),
        )
        body: Wire = {"model": model, "max_tokens": self._max_tokens(request, settings), "messages": messages}
        if system:
            body["system"] = system
        if tools:
            body["tools"] = tools
            choice: Wire | None = {"type": "none"} if withdrawn else _tool_choice(settings)
            if choice is not None:
                body["tool_choice"] = choice
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if settings.stop:
            body["stop_sequences"] = [clean(item) for item in settings.stop]
        if isinstance(form, dict):
            more = extra.pop("output_config", None)
            body["output_config"] = {"format": form, **(more if isinstance(more, dict) else {})}
        if self._cache:
            _set_breakpoints(body)
        body.update(extra)
        return body, prefix

    def _max_tokens(self, request: ModelRequest, settings: ModelSettings) -> int:
        said = settings.max_output_tokens
        least = output_limit(request, settings)
        # What a budget leaves may be more than any model can say.
        return min(self._limit if said is None else said, least if least is not None else 2**53)

    def _tools(
        self, request: ModelRequest, sent: Sequence[_Sent], more: JsonValue
    ) -> tuple[list[JsonValue], bytes, bool]:
        """Return what is offered, its digest, and whether it is only there because earlier turns called it."""
        added = more if isinstance(more, list) else []
        tools = self._converted.tools(request.tools) if request.tools else []
        if tools:
            known = self._digests.get(id(tools))
            if known is None or known[0] is not tools:
                if len(self._digests) >= _MAX_KEPT:
                    self._digests.clear()
                known = self._digests[id(tools)] = (tools, digest_of(tools))
            return (
                ([*tools, *added], chained(known[1], digest_of(added)), False) if added else (*known, False)
            )
        if added:
            return added, digest_of(added), False
        # A transcript with calls is refused where no tool is declared.
        names = dict.fromkeys(name for item in sent for name in item.tools)
        stubs: list[JsonValue] = [
            {"name": name, "description": "Not offered any more.", "input_schema": {"type": "object"}}
            for name in names
        ]
        return stubs, digest_of(stubs), True

    def _format(self, schema: Mapping[str, JsonValue]) -> Wire | str:
        known = self._formats.get(id(schema))
        if known is not None and known[0] is schema:
            return known[1]
        made = output_format(clean_json(dict(schema)), self._transform)
        if len(self._formats) >= _MAX_KEPT:
            self._formats.clear()
        self._formats[id(schema)] = (schema, made)
        return made

    def _convert(self, message: Message) -> _Sent | None:
        match message:
            case SystemMessage():
                return _other("system", _text(message.text)) if message.text.strip() else None
            case UserMessage():
                return _other("user", *user_blocks(message))
            case AssistantMessage():
                return self._assistant(message)
            case ToolMessage():
                return _result(message)

    def _assistant(self, message: AssistantMessage) -> _Sent | None:
        text = clean(message.text)
        if not text.strip() and not message.tool_calls:
            # Refused by the API, for good: every later request would hold it again.
            return None
        calls: list[Wire] = [
            {
                "type": "tool_use",
                "id": wire_id(call.id),
                "name": wire_name(call.name),
                "input": clean_json(call.arguments),
            }
            for call in message.tool_calls
        ]
        blocks: list[JsonValue] = [_text(text)] if text.strip() else []
        blocks.extend(calls)
        sent = _Sent(
            "assistant",
            _form(blocks),
            calls=tuple(str(call["id"]) for call in calls),
            tools=tuple(str(call["name"]) for call in calls),
        )
        own = (message.opaque or {}).get(self._provider)
        if isinstance(own, dict) and own.get("said") == said_number(text, message.tool_calls):
            sent.whole = _whole(own.get("blocks"), text, calls)
            sent.prefix = count(own.get("prefix"))
        return sent


def _whole(layout: JsonValue, text: str, calls: Sequence[Wire]) -> _Form | None:
    """Put a reply together again as it came, `None` where the layout is none of it."""
    blocks: list[JsonValue] = []
    ids: dict[str, str] = {}
    at, left = 0, list(calls)
    for entry in layout if isinstance(layout, list) else []:
        if isinstance(entry, int):
            if text[at : at + entry]:
                blocks.append(_text(text[at : at + entry]))
            at += entry
        elif isinstance(entry, dict) and isinstance(more := entry.get("call"), dict) and left:
            call = {**left.pop(0)}
            theirs = more.get("id")
            if isinstance(theirs, str) and wire_id(theirs) == theirs:
                ids[str(call["id"])] = theirs
            blocks.append({**call, **more, "id": ids.get(str(call["id"]), call["id"])})
        elif isinstance(entry, dict) and isinstance(block := entry.get("block"), dict):
            blocks.append(block)
        else:
            return None
    return None if at != len(text) or left else _form(blocks, ids)


def _result(message: ToolMessage) -> _Sent:
    id, text = wire_id(message.call_id), clean(message.text)
    block: Wire = {"type": "tool_result", "tool_use_id": id}
    if text.strip():
        block["content"] = text
    if message.is_error:
        block["is_error"] = True
        # An error without a text is refused.
        block.setdefault("content", "The tool failed and said nothing.")
    sent = _other("result", block)
    sent.calls = (id,)
    return sent


def _other(kind: Literal["system", "user", "result"], *blocks: JsonValue) -> _Sent:
    return _Sent(kind, _form([*blocks]))


def _form(blocks: list[JsonValue], ids: dict[str, str] | None = None) -> _Form:
    return _Form(blocks, digest_of(blocks), ids or {})


def _text(text: str) -> Wire:
    return {"type": "text", "text": clean(text)}


def _messages(
    sent: Sequence[_Sent], *, start: bytes, keep: Literal["all", "fitting", "none"]
) -> tuple[list[JsonValue], int]:
    """Return the messages, neighbours of one role merged where they have to be, and what they come to.

    A thinking block holds for exactly what stood before it. Where that is another by now it is left out, as the API
    would refuse it, and so are all behind it that were thought with it in sight.
    """
    out: list[JsonValue] = []
    results: list[tuple[int, Wire]] = []
    others: list[JsonValue] = []
    order: dict[str, int] = {}
    ids: dict[str, str] = {}
    used: set[str] = set()
    before = start
    waiting = False

    def flush() -> None:
        if not results and not others and not waiting:
            return
        # In the order of the calls, and before all else: so the API wants it.
        content: list[JsonValue] = [block for _, block in sorted(results, key=lambda item: item[0])]
        content.extend(others)
        out.append({"role": "user", "content": content or [_text(_EMPTY)]})
        results.clear()
        others.clear()

    for item in sent:
        form = item.plain
        if item.kind == "assistant":
            flush()
            waiting = False
            if (
                item.whole is not None
                and (keep == "all" or (keep == "fitting" and item.prefix == number_of(before)))
                and used.isdisjoint(item.whole.ids.values())
            ):
                form = item.whole
            order = {id: place for place, id in enumerate(item.calls)}
            ids = form.ids
            used.update(ids.get(id, id) for id in item.calls)
            out.append({"role": "assistant", "content": form.blocks})
        elif item.kind == "result":
            (id,) = item.calls
            block = cast("Wire", form.blocks[0])
            if id in ids:
                block = {**block, "tool_use_id": ids[id]}
            results.append((order.get(id, len(order)), block))
        else:
            waiting = True
            others.extend(form.blocks)
        before = chained(before, form.digest)
    flush()
    return out, number_of(before)


def _keep(thinking: JsonValue) -> Literal["all", "fitting", "none"]:
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind == "disabled":
        return "none"
    # Only older models think within a budget; they look at nothing before a block, and insist on having it.
    return "all" if kind == "enabled" else "fitting"


def _tool_choice(settings: ModelSettings) -> Wire | None:
    said = settings.tool_choice
    if said == "none":
        return {"type": "none"}
    choice: Wire = {"type": "any" if said == "required" else "auto"}
    if settings.parallel_tool_calls is False:
        choice["disable_parallel_tool_use"] = True
    return choice if said is not None or len(choice) > 1 else None


def _set_breakpoints(body: Wire) -> None:
    """Mark tools, instructions and the last two messages of the user, which makes the four there may be.

    The last but one is where the request before ended, so that it is found however many blocks came since.
    """
    for key in ("tools", "system"):
        if key in body:
            body[key] = _marked(body[key])
    messages = [*cast("list[Wire]", body["messages"])]
    users = [at for at, message in enumerate(messages) if message["role"] == "user"]
    for at in users[-2:]:
        messages[at] = {**messages[at], "content": _marked(messages[at]["content"])}
    body["messages"] = cast("list[JsonValue]", messages)


def _marked(blocks: JsonValue) -> list[JsonValue]:
    made = [*cast("list[JsonValue]", blocks)]
    made[-1] = {**cast("Wire", made[-1]), **_CACHE}
    return made


def _tool_set(tools: tuple[ToolSpec, ...]) -> list[JsonValue]:
    return [
        {
            "name": wire_name(tool.name),
            "description": clean(tool.description),
            "input_schema": clean_json(dict(tool.input_schema)),
        }
        for tool in tools
    ]
