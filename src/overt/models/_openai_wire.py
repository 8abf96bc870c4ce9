"""Messages, tools and replies in the form of the chat completions API. Knows no client and no network."""

from __future__ import annotations

import hashlib
import json
import re
import weakref
from collections.abc import Mapping
from typing import Literal, TypeAlias, cast

from pydantic import JsonValue, ValidationError

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
from overt.models.arguments import parse_arguments

__all__ = ("Converter", "OutputLimitField", "read_reply", "wire_name")

OutputLimitField: TypeAlias = Literal["max_completion_tokens", "max_tokens"]
_Wire: TypeAlias = dict[str, JsonValue]
_Finish: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_OURS = re.compile(r".*__[0-9a-f]{10}")
_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_FINISH: Mapping[str, _Finish] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}
_REASONING = ("reasoning_content", "reasoning", "reasoning_details")
_MAX_TOOL_SETS = 64


class Converter:
    """Turns requests into bodies; each message and each set of tools is converted once and kept while it lives.

    Args:
        provider: Whose opaque parts are sent back: those that a reply read for the same provider left.
        limit_field: What the endpoint calls its output limit.
    """

    def __init__(self, provider: str, *, limit_field: OutputLimitField) -> None:
        self._provider = provider
        self._limit_field = limit_field
        self._messages: dict[int, tuple[weakref.ref[Message], _Wire | None]] = {}
        self._tools: dict[int, tuple[tuple[ToolSpec, ...], list[JsonValue]]] = {}

    def body(self, request: ModelRequest, *, model: str, base: ModelSettings) -> _Wire:
        """Return the request's body.

        Args:
            request: What is asked.
            model: The model's name.
            base: Settings of the model, under those of the request.

        Returns:
            A new dict, whose messages are shared with earlier bodies.

        Raises:
            DefinitionError: A message has a part this API cannot take.
        """
        settings = request.settings.over(base)
        body: _Wire = {"model": model, "messages": self._all(request.messages)}
        if request.tools:
            body["tools"] = self._tool_set(request.tools)
            if settings.tool_choice is not None:
                body["tool_choice"] = settings.tool_choice
            if settings.parallel_tool_calls is not None:
                body["parallel_tool_calls"] = settings.parallel_tool_calls
        limits = [n for n in (request.max_output_tokens, settings.max_output_tokens) if n is not None]
        if limits:
            body[self._limit_field] = min(limits)
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if settings.stop:
            body["stop"] = [clean(item) for item in settings.stop]
        schema = request.output_schema
        if schema is not None and schema.get("type") == "object":
            # Other roots are refused by the API.
            form: _Wire = {"name": "output", "schema": _clean_json(dict(schema))}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        for key, value in settings.extra.items():
            body[key] = _clean_json(value)
        return body

    def _all(self, messages: tuple[Message, ...]) -> list[JsonValue]:
        known = self._messages
        out: list[JsonValue] = []
        for message in messages:
            entry = known.get(id(message))
            # An id comes back once its object is gone, and the reference tells.
            wire = entry[1] if entry is not None and entry[0]() is message else self._add(message)
            if wire is not None:
                out.append(wire)
        return out

    def _add(self, message: Message) -> _Wire | None:
        wire = self._convert(message)
        key = id(message)
        known = self._messages

        def forget(reference: weakref.ref[Message]) -> None:
            entry = known.get(key)
            if entry is not None and entry[0] is reference:
                del known[key]

        known[key] = (weakref.ref(message, forget), wire)
        return wire

    def _convert(self, message: Message) -> _Wire | None:
        match message:
            case SystemMessage():
                return {"role": "system", "content": clean(message.text)}
            case UserMessage():
                return {"role": "user", "content": _user_content(message)}
            case AssistantMessage():
                return self._assistant(message)
            case ToolMessage():
                return {
                    "role": "tool",
                    "tool_call_id": _wire_id(message.call_id),
                    "content": clean(message.text),
                }

    def _assistant(self, message: AssistantMessage) -> _Wire | None:
        if not message.text and not message.tool_calls:
            # Refused by the API, for good: every later request would hold it again.
            return None
        wire: _Wire = {"role": "assistant", "content": clean(message.text) or None}
        if not message.tool_calls:
            return wire
        kept = (message.opaque or {}).get(self._provider)
        own = kept if isinstance(kept, dict) else {}
        extras = own.get("calls")
        calls: list[JsonValue] = []
        for index, item in enumerate(message.tool_calls):
            arguments = clean(json.dumps(item.arguments, ensure_ascii=False, separators=(",", ":")))
            call: _Wire = {
                "id": _wire_id(item.id),
                "type": "function",
                "function": {"name": wire_name(item.name), "arguments": arguments},
            }
            if isinstance(extras, list) and len(extras) == len(message.tool_calls):
                extra = extras[index]
                call.update(extra if isinstance(extra, dict) else {})
            calls.append(call)
        wire["tool_calls"] = calls
        reasoning = own.get("message")
        wire.update(reasoning if isinstance(reasoning, dict) else {})
        return wire

    def _tool_set(self, tools: tuple[ToolSpec, ...]) -> list[JsonValue]:
        entry = self._tools.get(id(tools))
        if entry is not None and entry[0] is tools:
            return entry[1]
        made: list[JsonValue] = []
        for tool in tools:
            function: _Wire = {
                "name": wire_name(tool.name),
                "description": clean(tool.description),
                "parameters": _clean_json(dict(tool.input_schema)),
            }
            made.append({"type": "function", "function": function})
        if len(self._tools) >= _MAX_TOOL_SETS:
            self._tools.clear()
        self._tools[id(tools)] = (tools, made)
        return made


def wire_name(name: str) -> str:
    """Return the name under which a tool is offered.

    It is a function of the name alone, so that a transcript read back from a store still fits, and two names never
    become one: what the API does not take gets a digest of the original.

    Args:
        name: The tool's own name, also an empty one.

    Returns:
        `name` itself where it has at most 64 letters, digits, `_` and `-`.
    """
    if _NAME.fullmatch(name) and not _OURS.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{re.sub(r'[^a-zA-Z0-9_-]', '_', name)[:52]}__{digest}"


def _wire_id(id: str) -> str:
    if _ID.fullmatch(id):
        return id
    return f"call_{hashlib.sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def _user_content(message: UserMessage) -> JsonValue:
    if not message.parts:
        return clean(message.text)
    parts: list[JsonValue] = []
    if message.text:
        parts.append({"type": "text", "text": clean(message.text)})
    parts.extend(_part(part) for part in message.parts)
    return parts


def _part(part: UserPart) -> JsonValue:
    if isinstance(part, TextPart):
        return {"type": "text", "text": clean(part.text)}
    if isinstance(part, ImagePart):
        return {
            "type": "image_url",
            "image_url": {"url": _url(part.url, part.data, part.media_type or "image/png")},
        }
    if part.data is None:
        raise DefinitionError("a FilePart for OpenAI chat completions needs data; a url is not taken there")
    url = _url(None, part.data, part.media_type or "application/pdf")
    return {"type": "file", "file": {"filename": clean(part.name or "file"), "file_data": url}}


def _url(url: str | None, data: str | None, media_type: str) -> str:
    if data is not None:
        return f"data:{media_type};base64,{data}"
    if url is None:
        raise DefinitionError("an ImagePart needs url or data")
    return clean(url)


def _clean_json(value: JsonValue) -> JsonValue:
    text = json.dumps(value, ensure_ascii=False)
    cleaned = clean(text)
    if cleaned == text:
        return value
    again: JsonValue = json.loads(cleaned)
    return again


def read_reply(
    body: Mapping[str, object], choice: Mapping[str, object], request: ModelRequest, *, provider: str
) -> ModelResponse:
    """Read one choice of a reply; what is missing or of another type is read as absent.

    Args:
        body: The reply.
        choice: Its choice.
        request: What was asked, for the names of the tools.
        provider: Under which name opaque parts are kept.

    Returns:
        The response. Ids of calls are not empty, and may repeat where the provider repeats them.
    """
    message = _mapping(choice.get("message"))
    raw_calls = message.get("tool_calls")
    calls: list[ToolCall] = []
    invalid: dict[int, str] = {}
    extras: list[JsonValue] = []
    names = {wire_name(tool.name): tool.name for tool in request.tools}
    for item in cast(list[object], raw_calls) if isinstance(raw_calls, list) else []:
        index = len(calls)
        call = _mapping(item)
        function = _mapping(call.get("function"))
        name = clean(_text(function.get("name")))
        id = clean(_text(call.get("id"))) or f"call_{index}"
        raw = function.get("arguments")
        text = raw if isinstance(raw, str) else "" if raw is None else json.dumps(raw, ensure_ascii=False)
        try:
            made = ToolCall(id=id, name=names.get(name, name), arguments=parse_arguments(text))
        except (ValueError, ValidationError):
            invalid[index] = clean(text)
            made = ToolCall(id=id, name=names.get(name, name))
        calls.append(made)
        extra = call.get("extra_content")
        extras.append({"extra_content": _json(extra)} if extra is not None else {})
    text = _content(message.get("content"))
    refusal = clean(_text(message.get("refusal")))
    kept: _Wire = {key: _json(message[key]) for key in _REASONING if message.get(key) is not None}
    own: _Wire = {}
    if kept:
        own["message"] = kept
    if any(extras):
        own["calls"] = extras
    reasoning = next((clean(value) for key in _REASONING if isinstance(value := message.get(key), str)), None)
    finish, raw_finish = _finish(choice.get("finish_reason"), bool(calls), bool(refusal))
    return ModelResponse(
        message=AssistantMessage(
            text=text or refusal,
            tool_calls=tuple(calls),
            reasoning=reasoning,
            opaque={provider: own} if own and calls else None,
        ),
        usage=_usage(body.get("usage")),
        finish_reason=finish,
        raw_finish_reason=raw_finish,
        model=clean(_text(body.get("model"))),
        invalid_arguments=invalid,
    )


def _finish(reason: object, calls: bool, refusal: bool) -> tuple[_Finish, str | None]:
    raw = clean(reason) if isinstance(reason, str) else None
    found = _FINISH.get(raw or "", "unknown")
    if refusal and not calls and found == "stop":
        return "refusal", raw
    if calls and found == "stop":
        return "tool_calls", raw
    return found, raw


def _usage(value: object) -> Usage | None:
    usage = _mapping(value)
    given = [_count(usage.get(key)) for key in ("prompt_tokens", "completion_tokens", "total_tokens")]
    if all(number is None for number in given):
        return None
    total = given[2]
    input_tokens = given[0] if given[0] is not None else max((total or 0) - (given[1] or 0), 0)
    output_tokens = given[1] if given[1] is not None else max((total or 0) - input_tokens, 0)
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=_count(_mapping(usage.get("prompt_tokens_details")).get("cached_tokens")) or 0,
        reasoning_tokens=_count(_mapping(usage.get("completion_tokens_details")).get("reasoning_tokens"))
        or 0,
        total_tokens=total if total is not None else input_tokens + output_tokens,
    )


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return int(value)


def _content(value: object) -> str:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        # Some compatible endpoints answer in parts.
        return clean("".join(_text(_mapping(item).get("text")) for item in cast(list[object], value)))
    return ""


def _mapping(value: object) -> Mapping[str, object]:
    return cast(Mapping[str, object], value) if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _json(value: object) -> JsonValue:
    # It came out of a JSON parser, and the copy shares nothing with the body.
    copied: JsonValue = json.loads(clean(json.dumps(value, ensure_ascii=False)))
    return copied
