"""Messages, tools and replies in the form of the Responses API. Knows no client and no network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal, TypeAlias, cast

from pydantic import JsonValue

from overt._text import clean
from overt.errors import DefinitionError
from overt.message import (
    AssistantMessage,
    ImagePart,
    Message,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    UserPart,
)
from overt.models._openai_wire import usage_of
from overt.models._wire import (
    Converted,
    Wire,
    arguments_text,
    clean_json,
    data_url,
    json_copy,
    mapping,
    names_of,
    output_limit,
    read_call,
    text_of,
    wire_id,
    wire_name,
)

__all__ = (
    "BREAK",
    "ResponsesConverter",
    "is_thought",
    "output_of",
    "places_of",
    "read_response",
    "usage_in",
)

BREAK = "\n\n"
"""Between the texts of two messages of one reply, and between two pieces of reasoning."""
_ENCRYPTED = "reasoning.encrypted_content"
# The least the API takes as a limit.
_MIN_OUTPUT = 16
# Items that are complete in themselves, so that they may stand in a later request.
_CARRIED = frozenset({
    "code_interpreter_call", "compaction", "file_search_call", "mcp_call", "mcp_list_tools", "reasoning",
    "web_search_call",
})  # fmt: skip
# Of a call, beside what every call has.
_OF_CALL = ("caller", "namespace")
_Finish: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"]
_INCOMPLETE: Mapping[str, _Finish] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
}


class ResponsesConverter:
    """Turns requests into bodies; each message and each set of tools is converted once and kept while it lives.

    Args:
        provider: Whose opaque parts are sent back: those that a reply read for the same provider left.
        encrypted: Whether to ask for reasoning in a form that can be sent back.
    """

    def __init__(self, provider: str, *, encrypted: bool) -> None:
        self._provider = provider
        self._encrypted = encrypted
        self._converted: Converted[list[Wire]] = Converted(self._convert, _tool_set)

    def body(self, request: ModelRequest, *, model: str, base: ModelSettings) -> Wire:
        """Return the request's body.

        Args:
            request: What is asked.
            model: The model's name.
            base: Settings of the model, under those of the request.

        Returns:
            A new dict, whose items are shared with earlier bodies.

        Raises:
            DefinitionError: A message has a part this API cannot take, or the settings have `stop`.
        """
        settings = request.settings.over(base)
        if settings.stop:
            raise DefinitionError(
                "the Responses API knows no stop sequences: leave out stop, or use OpenAIModel (chat completions)"
            )
        items: list[JsonValue] = list(chain.from_iterable(self._converted.messages(request.messages)))
        body: Wire = {"model": model, "input": items, "store": False}
        if self._encrypted:
            body["include"] = [_ENCRYPTED]
        if request.tools:
            body["tools"] = self._converted.tools(request.tools)
            if settings.tool_choice is not None:
                body["tool_choice"] = settings.tool_choice
            if settings.parallel_tool_calls is not None:
                body["parallel_tool_calls"] = settings.parallel_tool_calls
        limit = output_limit(request, settings)
        if limit is not None:
            body["max_output_tokens"] = max(limit, _MIN_OUTPUT)
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        schema = request.output_schema
        if schema is not None and schema.get("type") == "object":
            # Other roots are refused by the API.
            form: Wire = {"type": "json_schema", "name": "output", "schema": clean_json(dict(schema))}
            body["text"] = {"format": form}
        for key, value in settings.extra.items():
            body[key] = _joined(body.get(key), clean_json(value)) if key in _JOINED else clean_json(value)
        return body

    def _convert(self, message: Message) -> list[Wire]:
        match message:
            case SystemMessage():
                return [{"role": "system", "content": clean(message.text)}]
            case UserMessage():
                return [{"role": "user", "content": _user_content(message)}]
            case AssistantMessage():
                return self._assistant(message)
            case ToolMessage():
                return [
                    {
                        "type": "function_call_output",
                        "call_id": wire_id(message.call_id),
                        "output": clean(message.text),
                    }
                ]

    def _assistant(self, message: AssistantMessage) -> list[Wire]:
        if not message.text and not message.tool_calls:
            return []
        kept = (message.opaque or {}).get(self._provider)
        own = kept.get("items") if isinstance(kept, dict) else None
        entries = [item for item in own if isinstance(item, dict)] if isinstance(own, list) else []
        texts = _texts(message.text, [entry for entry in entries if "length" in entry])
        calls = [entry for entry in entries if "call" in entry]
        if entries and texts is not None and len(calls) == len(message.tool_calls):
            return list(_as_it_came(entries, texts, message.tool_calls))
        # A hook has changed the message: what was written for its parts no longer fits them.
        wire: list[Wire] = [item for entry in entries if isinstance(item := entry.get("item"), dict)]
        if message.text:
            wire.append(_text(message.text, {}))
        wire.extend(_call(call, {}) for call in message.tool_calls)
        return wire


_JOINED = frozenset({"include", "text", "tools"})


def _joined(ours: JsonValue, theirs: JsonValue) -> JsonValue:
    """Return a field that the host adds to, such as tools of the provider beside the agent's."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return [*ours, *(item for item in theirs if item not in ours)]
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {**ours, **theirs}
    return theirs


def _tool_set(tools: tuple[ToolSpec, ...]) -> list[JsonValue]:
    return [
        {
            "type": "function",
            "name": wire_name(tool.name),
            "description": clean(tool.description),
            "parameters": clean_json(dict(tool.input_schema)),
            # The API's default; it forbids defaults of parameters, which are ordinary here.
            "strict": False,
        }
        for tool in tools
    ]


def _user_content(message: UserMessage) -> JsonValue:
    if not message.parts:
        return clean(message.text)
    parts: list[JsonValue] = []
    if message.text:
        parts.append({"type": "input_text", "text": clean(message.text)})
    parts.extend(_part(part) for part in message.parts)
    return parts


def _part(part: UserPart) -> JsonValue:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": clean(part.text)}
    if isinstance(part, ImagePart):
        url = data_url(part.url, part.data, part.media_type or "image/png")
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    if part.data is None:
        return {"type": "input_file", "file_url": data_url(part.url, None, "")}
    url = data_url(None, part.data, part.media_type or "application/pdf")
    return {"type": "input_file", "filename": clean(part.name or "file"), "file_data": url}


def _texts(text: str, entries: Sequence[Wire]) -> list[str] | None:
    """Cut a reply's text into those of its messages; `None` where it is another text."""
    texts: list[str] = []
    at = 0
    for entry in entries:
        length = entry["length"]
        if not isinstance(length, int):
            return None
        if texts:
            if not text.startswith(BREAK, at):
                return None
            at += len(BREAK)
        texts.append(text[at : at + length])
        at += length
    return texts if at == len(text) else None


def _as_it_came(entries: Sequence[Wire], texts: Sequence[str], calls: Sequence[ToolCall]) -> Iterator[Wire]:
    text, call = iter(texts), iter(calls)
    for entry in entries:
        item, about = entry.get("item"), entry.get("call")
        if isinstance(item, dict):
            yield item
        elif isinstance(about, dict):
            yield _call(next(call), about)
        else:
            yield _text(next(text), entry)


def _text(text: str, entry: Wire) -> Wire:
    id, phase = entry.get("id"), entry.get("phase")
    wire: Wire = {"role": "assistant", "content": clean(text)}
    if id is not None:
        content: Wire = {"type": "output_text", "text": clean(text), "annotations": []}
        wire = {
            "type": "message",
            "id": id,
            "role": "assistant",
            "status": "completed",
            "content": [content],
        }
    if phase is not None:
        wire["phase"] = phase
    return wire


def _call(call: ToolCall, about: Wire) -> Wire:
    return {
        "type": "function_call",
        **about,
        "call_id": wire_id(call.id),
        "name": wire_name(call.name),
        "arguments": arguments_text(call.arguments),
    }


# ------------------------------------------------------------------ replies


def output_of(body: Mapping[str, object]) -> list[Mapping[str, object]] | None:
    """Return the items of a reply; `None` where it has none to look for them in."""
    output = body.get("output")
    return [mapping(item) for item in cast("list[object]", output)] if isinstance(output, list) else None


def places_of(output: Sequence[Mapping[str, object]]) -> list[int]:
    """Return where the calls stand among the items of a reply."""
    return [at for at, item in enumerate(output) if item.get("type") == "function_call"]


def usage_in(value: object) -> Usage | None:
    """Return the usage a body reports; `None` where it says nothing of it."""
    return usage_of(value, sent="input", received="output")


def is_thought(item: Mapping[str, object], request: ModelRequest) -> bool:
    """Return whether a message is a remark on the way, where nothing but the typed answer is wanted as text."""
    return request.output_schema is not None and item.get("phase") == "commentary"


def read_response(
    body: Mapping[str, object],
    output: Sequence[Mapping[str, object]],
    request: ModelRequest,
    *,
    provider: str,
    stored: bool,
) -> ModelResponse:
    """Read a reply; what is missing or of another type is read as absent.

    Args:
        body: The reply.
        output: Its items.
        request: What was asked, for the names of the tools.
        provider: Under which name opaque parts are kept.
        stored: Whether the provider stores the reply, and so knows its items by their ids.

    Returns:
        The response. Ids of calls are not empty, and may repeat where the provider repeats them.
    """
    names = names_of(request)
    calls: list[ToolCall] = []
    invalid: dict[int, str] = {}
    texts: list[str] = []
    refusals: list[str] = []
    thoughts: list[str] = []
    for item in output:
        match item.get("type"):
            case "function_call":
                made, wrong = read_call(
                    len(calls), item.get("call_id"), item.get("name"), item.get("arguments"), names
                )
                if wrong is not None:
                    invalid[len(calls)] = wrong
                calls.append(made)
            case "message":
                said = _said(item)
                refusals.append("".join(_pieces(item.get("content"), "refusal")))
                if said:
                    (thoughts if is_thought(item, request) else texts).append(said)
            case "reasoning":
                thoughts.extend(filter(None, _pieces(item.get("content"), "text")))
                thoughts.extend(filter(None, _pieces(item.get("summary"), "text")))
            case _:
                pass
    refusal = clean("".join(refusals))
    entries = _entries(output, request, stored=stored)
    finish, raw = _finish(body, calls=bool(calls), refusal=bool(refusal))
    return ModelResponse(
        message=AssistantMessage(
            text=clean(BREAK.join(texts)) or refusal,
            tool_calls=tuple(calls),
            reasoning=clean(BREAK.join(thoughts)) if thoughts else None,
            opaque={provider: {"items": entries}} if entries else None,
        ),
        usage=usage_in(body.get("usage")),
        finish_reason=finish,
        raw_finish_reason=raw,
        model=clean(text_of(body.get("model"))),
        invalid_arguments=invalid,
    )


def _pieces(parts: object, key: str) -> list[str]:
    found = cast("list[object]", parts) if isinstance(parts, list) else []
    return [text_of(mapping(part).get(key)) for part in found]


def _said(item: Mapping[str, object]) -> str:
    content = item.get("content")
    return content if isinstance(content, str) else "".join(_pieces(content, "text"))


def _entries(
    output: Sequence[Mapping[str, object]], request: ModelRequest, *, stored: bool
) -> list[JsonValue]:
    """Return what of a reply's items its text and calls do not tell, in their order; nothing where that is nothing.

    Reasoning that the provider neither stores nor gave in full cannot be sent back, nor can what names it.
    """
    bare = not stored and any(
        item.get("type") == "reasoning"
        and not item.get("encrypted_content")
        and not _pieces(item.get("content"), "text")
        for item in output
    )
    carries = not bare and any(text_of(item.get("type")) in _CARRIED for item in output)
    entries: list[JsonValue] = []
    worth = carries
    for item in output:
        kind, id = text_of(item.get("type")), item.get("id")
        ids: Wire = {"id": clean(id)} if carries and isinstance(id, str) and id else {}
        if kind == "function_call":
            of_call: Wire = {key: json_copy(item[key]) for key in _OF_CALL if item.get(key) is not None}
            worth = worth or bool(of_call)
            entries.append({"call": {**ids, **of_call}})
        elif kind == "message" and not is_thought(item, request):
            said, phase = _said(item), item.get("phase")
            if said:
                of_text: Wire = {"phase": clean(phase)} if isinstance(phase, str) else {}
                worth = worth or bool(of_text)
                entries.append({"length": len(clean(said)), **ids, **of_text})
        elif kind == "message" or (carries and kind in _CARRIED):
            worth = True
            plain = {"role": "assistant", "content": _said(item), "phase": item.get("phase")}
            entries.append({"item": json_copy(item if carries else plain)})
    return entries if worth else []


def _finish(body: Mapping[str, object], *, calls: bool, refusal: bool) -> tuple[_Finish, str | None]:
    status = body.get("status")
    raw = clean(status) if isinstance(status, str) else None
    if raw == "incomplete":
        reason = clean(text_of(mapping(body.get("incomplete_details")).get("reason")))
        return _INCOMPLETE.get(reason, "unknown"), reason or raw
    if raw != "completed":
        return "unknown", raw
    return "tool_calls" if calls else "refusal" if refusal else "stop", raw
