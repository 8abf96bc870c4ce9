"""Messages, tools and replies in the form of pydantic-ai. Knows no provider and no network."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from pydantic import JsonValue, ValidationError
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequestPart,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.messages import ModelRequest as Sent
from pydantic_ai.messages import ModelResponse as Reply
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings as Settings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

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
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    UserPart,
)
from overt.message import TextPart as OurText
from overt.models._wire import (
    Converted,
    Wire,
    arguments_text,
    clean_json,
    count,
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
    "PARAGRAPH",
    "Asked",
    "Converter",
    "Traits",
    "is_whole",
    "read_reply",
    "reasoning_of",
    "says_nothing",
    "usage_of",
)

PARAGRAPH = "\n\n"
"""Between two parts of the reasoning."""

_Finish: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"]

_FINISH: Mapping[str, _Finish] = {
    "stop": "stop",
    "tool_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
}
_MADE_UP = "pyd_ai_"
_EXTRAS = ("id", "provider_name", "provider_details")
_REASONING = ("reasoning_tokens", "thinking_tokens", "thoughts_tokens")


class Traits(NamedTuple):
    """What is to be known of one of the library's models."""

    system: str
    """Its provider, as the library calls it."""
    key: str
    """Under which its opaque parts are kept: those left for another key are not sent."""
    name: str
    id_length: int | None
    """Exact length of a call's id, where the provider insists on one."""
    one_try: bool
    """Whether it takes the setting that turns its client's retries off."""
    says_why: bool
    """Whether every stream that is whole has the provider's own word for why it ended."""
    streams_unasked: bool
    """Whether the library may stream a reply that is asked for whole."""
    makes_up_stop: bool
    """Whether the library says `stop` where the provider said nothing."""
    arguments_are_objects: bool
    """Whether the wire has arguments as objects, so that none at all is the empty object and no broken text."""
    structured: bool
    """Whether it takes a schema for the answer, tools beside it included."""


class Asked(NamedTuple):
    """A request, as the library takes it."""

    messages: list[ModelMessage]
    settings: Settings
    parameters: ModelRequestParameters


class Converter:
    """Turns requests into the library's; each message and each set of tools is converted once and kept while it lives.

    Args:
        traits: Of the model.
    """

    def __init__(self, traits: Traits) -> None:
        self._traits = traits
        # What `Converted` keeps of tools is not looked into, so it may as well be the library's definitions.
        tools = cast("Callable[[tuple[ToolSpec, ...]], list[JsonValue]]", _tool_set)
        self._known: Converted[Reply | tuple[ModelRequestPart, ...]] = Converted(self._message, tools)

    def asked(self, request: ModelRequest, *, base: ModelSettings) -> Asked:
        """Return the request in the library's form.

        Args:
            request: What is asked.
            base: Settings of the model, under those of the request.

        Returns:
            A new list of messages whose parts are shared with earlier ones, settings and parameters.

        Raises:
            DefinitionError: A part has neither url nor data or data that is not base64, or the settings want retries.
        """
        settings = request.settings.over(base)
        tools = cast("list[ToolDefinition]", self._known.tools(request.tools)) if request.tools else []
        parameters = ModelRequestParameters(function_tools=list(tools))
        schema = request.output_schema
        if schema is not None and schema.get("type") == "object":
            # Other roots are refused by most providers.
            form = cast("dict[str, Any]", clean_json(dict(schema)))
            parameters.output_mode = "native"
            parameters.output_object = OutputObjectDefinition(json_schema=form, name="output")
        return Asked(self._all(request.messages), self._settings(request, settings), parameters)

    def _settings(self, request: ModelRequest, settings: ModelSettings) -> Settings:
        made: dict[str, object] = {}
        limit = output_limit(request, settings)
        if limit is not None:
            made["max_tokens"] = limit
        if settings.temperature is not None:
            made["temperature"] = settings.temperature
        if settings.stop:
            made["stop_sequences"] = [clean(item) for item in settings.stop]
        if request.tools:
            if settings.tool_choice is not None:
                made["tool_choice"] = settings.tool_choice
            if settings.parallel_tool_calls is not None:
                made["parallel_tool_calls"] = settings.parallel_tool_calls
        for key, value in settings.extra.items():
            if key == "max_retries":
                raise DefinitionError(
                    "ModelSettings.extra has max_retries, and attempts the runtime does not see cannot be counted; "
                    "leave it out"
                )
            made[key] = clean_json(value)
        if self._traits.one_try:
            made["max_retries"] = 0
        return cast("Settings", made)

    def _all(self, messages: tuple[Message, ...]) -> list[ModelMessage]:
        out: list[ModelMessage] = []
        parts: list[ModelRequestPart] = []
        for piece in self._known.messages(messages):
            if isinstance(piece, tuple):
                # Providers want the results of one turn in one message.
                parts.extend(piece)
                continue
            if parts:
                out.append(Sent(parts=parts))
                parts = []
            out.append(piece)
        if parts:
            out.append(Sent(parts=parts))
        return out

    def _message(self, message: Message) -> Reply | tuple[ModelRequestPart, ...]:
        match message:
            case SystemMessage():
                return (SystemPromptPart(clean(message.text)),)
            case UserMessage():
                return (UserPromptPart(_user_content(message)),)
            case AssistantMessage():
                # Without text and calls it is refused by most, for good: every later request would hold it again.
                return self._assistant(message) if message.text or message.tool_calls else ()
            case ToolMessage():
                return (
                    ToolReturnPart(
                        tool_name=wire_name(message.name),
                        content=clean(message.text),
                        tool_call_id=self._id(message.call_id),
                        outcome="failed" if message.is_error else "success",
                    ),
                )

    def _assistant(self, message: AssistantMessage) -> Reply:
        traits = self._traits
        own = mapping((message.opaque or {}).get(traits.key))
        parts = self._restored(message, own) if own else None
        if parts is None:
            text = [TextPart(clean(message.text))] if message.text else []
            parts = [*text, *(self._call(call, {}) for call in message.tool_calls)]
        # What was left for another endpoint was kept under another key, so the address need not be said again.
        return Reply(
            parts=parts,
            model_name=traits.name,
            provider_name=traits.system,
            canonical_system=text_of(own.get("system")) or None,
        )

    def _call(self, call: ToolCall, extra: Mapping[str, Any]) -> ToolCallPart:
        return ToolCallPart(
            tool_name=wire_name(call.name),
            args=json.loads(arguments_text(call.arguments)),
            tool_call_id=self._id(call.id),
            **extra,
        )

    def _restored(
        self, message: AssistantMessage, own: Mapping[str, object]
    ) -> list[ModelResponsePart] | None:
        """Return the parts of a reply as they were, in their order; `None` where they no longer fit the message."""
        items = own.get("parts")
        found = [mapping(item) for item in cast("list[object]", items)] if isinstance(items, list) else []
        if sum("call" in item for item in found) != len(message.tool_calls):
            return None
        others = _read_parts([item["part"] for item in found if "part" in item])
        if others is None:
            return None
        text = clean(message.text)
        # What has an id may be answered from the provider's own copy, so a text that was edited goes without.
        same = own.get("text") == _digest(text)
        parts: list[ModelResponsePart] = []
        calls, rest = iter(message.tool_calls), iter(others)
        at = 0
        for item in found:
            if "part" in item:
                parts.append(next(rest))
            elif "call" in item:
                if not same and text:
                    parts.append(TextPart(text))
                    text = ""
                parts.append(self._call(next(calls), _extra(item["call"])))
            elif same:
                length = count(item.get("length")) or 0
                parts.append(TextPart(text[at : at + length], **_extra(item.get("text"))))
                at += length
        if not same and text:
            parts.append(TextPart(text))
        return parts

    def _id(self, id: str) -> str:
        made, length = wire_id(id), self._traits.id_length
        if length is None or (len(made) == length and made.isalnum()):
            return made
        return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def _tool_set(tools: tuple[ToolSpec, ...]) -> list[ToolDefinition]:
    return [
        ToolDefinition(
            name=wire_name(tool.name),
            description=clean(tool.description),
            parameters_json_schema=cast("dict[str, Any]", clean_json(dict(tool.input_schema))),
        )
        for tool in tools
    ]


def _user_content(message: UserMessage) -> str | Sequence[UserContent]:
    if not message.parts:
        return clean(message.text)
    text = [clean(message.text)] if message.text else []
    return [*text, *(_part(part) for part in message.parts)]


def _part(part: UserPart) -> UserContent:
    if isinstance(part, OurText):
        return clean(part.text)
    url, data, media = part.url, part.data, part.media_type
    if data is None and url is not None and url.startswith("data:"):
        head, _, data = url.partition(",")
        media = media or head[5:].partition(";")[0]
    if isinstance(part, ImagePart):
        if data is not None:
            return _binary(data, media or "image/png", None)
        return ImageUrl(_address(url), media_type=media)
    if data is not None:
        return _binary(data, media or "application/pdf", part.name)
    match (media or "").partition("/")[0]:
        case "image":
            return ImageUrl(_address(url), media_type=media)
        case "audio":
            return AudioUrl(_address(url), media_type=media)
        case "video":
            return VideoUrl(_address(url), media_type=media)
        case _:
            return DocumentUrl(_address(url), media_type=media)


def _address(url: str | None) -> str:
    if url is None:
        raise DefinitionError("an ImagePart or FilePart needs url or data")
    return clean(url)


def _binary(data: str, media_type: str, name: str | None) -> BinaryContent:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise DefinitionError("the data of an ImagePart or FilePart is not base64") from None
    return BinaryContent(content, media_type=media_type, identifier=None if name is None else clean(name))


def _extra(value: object) -> dict[str, Any]:
    kept = mapping(value)
    return {name: kept[name] for name in _EXTRAS if kept.get(name) is not None}


def _read_parts(dumps: list[object]) -> Sequence[ModelResponsePart] | None:
    if not dumps:
        return ()
    try:
        message = ModelMessagesTypeAdapter.validate_python([{"kind": "response", "parts": dumps}])[0]
    except ValidationError:
        # Written by a version whose parts this one does not know.
        return None
    return message.parts if isinstance(message, Reply) else None


def _write_parts(parts: Sequence[ModelResponsePart]) -> list[JsonValue]:
    if not parts:
        return []
    dumped = ModelMessagesTypeAdapter.dump_python([Reply(parts=list(parts))], mode="json", exclude_none=True)
    return cast("list[JsonValue]", json_copy(dumped[0]["parts"]))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _opaque(reply: Reply, traits: Traits) -> dict[str, JsonValue] | None:
    """Return what only the provider understands: what was neither text nor call, and what text and calls had besides.

    Texts are kept by their length and calls by their place, so that neither is stored twice.
    """
    others = iter(_write_parts([p for p in reply.parts if not isinstance(p, TextPart | ToolCallPart)]))
    items: list[JsonValue] = []
    text: list[str] = []
    special = False
    for part in reply.parts:
        if not isinstance(part, TextPart | ToolCallPart):
            special = True
            items.append({"part": next(others)})
            continue
        found = {name: value for name in _EXTRAS if (value := getattr(part, name)) is not None}
        extra = json_copy(found) if found else {}
        special = special or bool(found)
        if isinstance(part, ToolCallPart):
            items.append({"call": extra})
        else:
            piece = clean(part.content)
            text.append(piece)
            items.append({"text": extra, "length": len(piece)})
    if not special:
        return None
    own: Wire = {"parts": items, "text": _digest("".join(text))}
    if reply.canonical_system is not None:
        own["system"] = reply.canonical_system
    return {traits.key: own}


def reasoning_of(reply: Reply) -> str | None:
    """Return the reasoning of a reply as text; `None` where it shows none."""
    said = [part.content for part in reply.parts if isinstance(part, ThinkingPart) and part.content]
    return clean(PARAGRAPH.join(said)) if said else None


def is_whole(reply: Reply, traits: Traits, *, streamed: bool) -> bool:
    """Say whether a reply came to its end.

    The library takes the end of a stream for the end of the reply, and some of its models then say `stop` themselves.
    """
    if reply.state != "complete":
        return False
    unsaid = _reason(reply, traits) == (None, None)
    return not (unsaid and (traits.says_why if streamed else traits.streams_unasked))


def says_nothing(reply: Reply, traits: Traits) -> bool:
    """Say whether a reply is none: the library reads an error within Google's 200 as a reply without anything."""
    return (
        traits.says_why
        and not reply.parts
        and _reason(reply, traits) == (None, None)
        and usage_of(reply.usage) is None
    )


def read_reply(reply: Reply, request: ModelRequest, traits: Traits) -> ModelResponse:
    """Read a reply.

    Args:
        reply: What the library made of it, whole.
        request: What was asked, for the names of the tools.
        traits: Of the model.

    Returns:
        The response.
    """
    names = names_of(request)
    parts = [part for part in reply.parts if isinstance(part, ToolCallPart)]
    finish, raw, refusal = _finish(reply, bool(parts), traits)
    calls: list[ToolCall] = []
    invalid: dict[int, str] = {}
    for index, part in enumerate(parts):
        arguments: object = part.args
        if arguments is None or (arguments == "" and traits.arguments_are_objects):
            # A call without arguments; one that was cut off begins like it, and is left as it came.
            arguments = "{}" if finish in ("stop", "tool_calls", "unknown") else ""
        # What the library makes up is another id each time it is asked.
        id = None if part.tool_call_id.startswith(_MADE_UP) else part.tool_call_id
        call, wrong = read_call(index, id, part.tool_name, arguments, names)
        calls.append(call)
        if wrong is not None:
            invalid[index] = wrong
    text = clean("".join(part.content for part in reply.parts if isinstance(part, TextPart)))
    return ModelResponse(
        message=AssistantMessage(
            text=text or refusal,
            tool_calls=tuple(calls),
            reasoning=reasoning_of(reply),
            opaque=_opaque(reply, traits),
        ),
        usage=usage_of(reply.usage),
        finish_reason=finish,
        raw_finish_reason=raw,
        model=clean(reply.model_name or ""),
        invalid_arguments=invalid,
    )


def _finish(reply: Reply, calls: bool, traits: Traits) -> tuple[_Finish, str | None, str]:
    raw, reason = _reason(reply, traits)
    found = _FINISH.get(reason or "", "unknown")
    refusal = "" if calls else clean(text_of(mapping(reply.provider_details).get("refusal")))
    if refusal or (raw == "refusal" and not calls):
        return "refusal", raw, refusal
    return ("tool_calls" if calls and found == "stop" else found), raw, ""


def _reason(reply: Reply, traits: Traits) -> tuple[str | None, str | None]:
    """Return why a reply ended: the provider's own word, and the library's."""
    said = mapping(reply.provider_details).get("finish_reason")
    raw = clean(str.__str__(said)) if isinstance(said, str) else None
    made_up = reply.finish_reason == "stop" and raw is None and traits.makes_up_stop
    return raw, None if made_up else reply.finish_reason


def usage_of(usage: RequestUsage) -> Usage | None:
    """Return what a reply used; `None` where the provider did not say.

    The library marks a reply without usage. Models that do not mark it leave both counts at 0, which no real reply has.
    """
    sent, received = count(usage.input_tokens) or 0, count(usage.output_tokens) or 0
    if usage.unmeasured_requests or not (sent or received):
        return None
    reasoning = count(usage.output_reasoning_tokens) or next(
        (n for name in _REASONING if (n := count(usage.details.get(name)))), 0
    )
    return Usage(
        input_tokens=sent,
        output_tokens=received,
        cached_tokens=count(usage.cache_read_tokens) or 0,
        cache_write_tokens=count(usage.cache_write_tokens) or 0,
        reasoning_tokens=reasoning,
        total_tokens=sent + received,
    )
