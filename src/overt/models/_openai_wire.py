"""Messages, tools and replies in the form of the chat completions API. Knows no client and no network."""

from __future__ import annotations

from collections.abc import Mapping
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
from overt.models._wire import (
    Converted,
    Wire,
    arguments_text,
    clean_json,
    count,
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
    "REASONING",
    "Converter",
    "OutputLimitField",
    "content_of",
    "error_of",
    "read_reply",
    "usage_of",
)

OutputLimitField: TypeAlias = Literal["max_completion_tokens", "max_tokens"]
_Finish: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"]

_FINISH: Mapping[str, _Finish] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}
REASONING = ("reasoning_content", "reasoning", "reasoning_details")
"""Fields in which compatible endpoints give reasoning, the one that is read first."""


class Converter:
    """Turns requests into bodies; each message and each set of tools is converted once and kept while it lives.

    Args:
        provider: Whose opaque parts are sent back: those that a reply read for the same provider left.
        limit_field: What the endpoint calls its output limit.
    """

    def __init__(self, provider: str, *, limit_field: OutputLimitField) -> None:
        self._provider = provider
        self._limit_field = limit_field
        self._converted: Converted[Wire | None] = Converted(self._convert, _tool_set)

    def body(self, request: ModelRequest, *, model: str, base: ModelSettings) -> Wire:
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
        body: Wire = {
            "model": model,
            "messages": [wire for wire in self._converted.messages(request.messages) if wire is not None],
        }
        if request.tools:
            body["tools"] = self._converted.tools(request.tools)
            if settings.tool_choice is not None:
                body["tool_choice"] = settings.tool_choice
            if settings.parallel_tool_calls is not None:
                body["parallel_tool_calls"] = settings.parallel_tool_calls
        limit = output_limit(request, settings)
        if limit is not None:
            body[self._limit_field] = limit
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if settings.stop:
            body["stop"] = [clean(item) for item in settings.stop]
        schema = request.output_schema
        if schema is not None and schema.get("type") == "object":
            # Other roots are refused by the API.
            form: Wire = {"name": "output", "schema": clean_json(dict(schema))}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        for key, value in settings.extra.items():
            body[key] = clean_json(value)
        return body

    def _convert(self, message: Message) -> Wire | None:
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
                    "tool_call_id": wire_id(message.call_id),
                    "content": clean(message.text),
                }

    def _assistant(self, message: AssistantMessage) -> Wire | None:
        if not message.text and not message.tool_calls:
            # Refused by the API, for good: every later request would hold it again.
            return None
        wire: Wire = {"role": "assistant", "content": clean(message.text) or None}
        if not message.tool_calls:
            return wire
        kept = (message.opaque or {}).get(self._provider)
        own = kept if isinstance(kept, dict) else {}
        extras = own.get("calls")
        calls: list[JsonValue] = []
        for index, item in enumerate(message.tool_calls):
            call: Wire = {
                "id": wire_id(item.id),
                "type": "function",
                "function": {"name": wire_name(item.name), "arguments": arguments_text(item.arguments)},
            }
            if isinstance(extras, list) and len(extras) == len(message.tool_calls):
                extra = extras[index]
                call.update(extra if isinstance(extra, dict) else {})
            calls.append(call)
        wire["tool_calls"] = calls
        reasoning = own.get("message")
        wire.update(reasoning if isinstance(reasoning, dict) else {})
        return wire


def _tool_set(tools: tuple[ToolSpec, ...]) -> list[JsonValue]:
    made: list[JsonValue] = []
    for tool in tools:
        function: Wire = {
            "name": wire_name(tool.name),
            "description": clean(tool.description),
            "parameters": clean_json(dict(tool.input_schema)),
        }
        made.append({"type": "function", "function": function})
    return made


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
            "image_url": {"url": data_url(part.url, part.data, part.media_type or "image/png")},
        }
    if part.data is None:
        raise DefinitionError("a FilePart for OpenAI chat completions needs data; a url is not taken there")
    url = data_url(None, part.data, part.media_type or "application/pdf")
    return {"type": "file", "file": {"filename": clean(part.name or "file"), "file_data": url}}


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
    message = mapping(choice.get("message"))
    raw_calls = message.get("tool_calls")
    calls: list[ToolCall] = []
    invalid: dict[int, str] = {}
    extras: list[JsonValue] = []
    names = names_of(request)
    for item in cast(list[object], raw_calls) if isinstance(raw_calls, list) else []:
        call = mapping(item)
        function = mapping(call.get("function"))
        made, wrong = read_call(
            len(calls), call.get("id"), function.get("name"), function.get("arguments"), names
        )
        if wrong is not None:
            invalid[len(calls)] = wrong
        calls.append(made)
        extra = call.get("extra_content")
        extras.append({"extra_content": json_copy(extra)} if extra is not None else {})
    text = clean(content_of(message.get("content")))
    refusal = clean(text_of(message.get("refusal")))
    kept: Wire = {key: json_copy(message[key]) for key in REASONING if message.get(key) is not None}
    own: Wire = {}
    if kept:
        own["message"] = kept
    if any(extras):
        own["calls"] = extras
    reasoning = next((clean(value) for key in REASONING if isinstance(value := message.get(key), str)), None)
    finish, raw_finish = _finish(choice.get("finish_reason"), bool(calls), bool(refusal))
    return ModelResponse(
        message=AssistantMessage(
            text=text or refusal,
            tool_calls=tuple(calls),
            reasoning=reasoning,
            opaque={provider: own} if own and calls else None,
        ),
        usage=usage_of(body.get("usage")) or usage_of(choice.get("usage")),
        finish_reason=finish,
        raw_finish_reason=raw_finish,
        model=clean(text_of(body.get("model"))),
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


def usage_of(value: object, *, sent: str = "prompt", received: str = "completion") -> Usage | None:
    """Return the usage a body reports; `None` where it says nothing of it.

    Args:
        value: What the body has as its usage.
        sent: What the API calls tokens that were sent, in front of `_tokens`.
        received: What it calls those that were received.
    """
    usage = mapping(value)
    given = [count(usage.get(f"{key}_tokens")) for key in (sent, received, "total")]
    if all(number is None for number in given):
        return None
    total = given[2]
    input_tokens = given[0] if given[0] is not None else max((total or 0) - (given[1] or 0), 0)
    output_tokens = given[1] if given[1] is not None else max((total or 0) - input_tokens, 0)
    of_sent = mapping(usage.get(f"{sent}_tokens_details"))
    of_received = mapping(usage.get(f"{received}_tokens_details"))
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=count(of_sent.get("cached_tokens")) or 0,
        cache_write_tokens=count(of_sent.get("cache_write_tokens")) or 0,
        reasoning_tokens=count(of_received.get("reasoning_tokens")) or 0,
        total_tokens=total if total is not None else input_tokens + output_tokens,
    )


def error_of(body: Mapping[str, object], choice: Mapping[str, object] | None) -> object:
    """Return the error that a body or its choice holds, something false where they hold none."""
    wrong = body.get("error") or (choice or {}).get("error")
    return wrong or (body if body.get("object") == "error" else None)


def content_of(value: object) -> str:
    """Return the text of a message's content, or of a piece of one; halves of a character are kept."""
    if isinstance(value, list):
        # Some compatible endpoints answer in parts.
        return "".join(text_of(mapping(item).get("text")) for item in cast(list[object], value))
    return text_of(value)
