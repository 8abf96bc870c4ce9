"""What the adapters' wire formats have in common: names, ids, numbers, and messages that are converted once."""

from __future__ import annotations

import hashlib
import json
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar, cast

from pydantic import JsonValue, ValidationError

from overt._text import clean
from overt.errors import DefinitionError
from overt.message import Message, ModelRequest, ModelSettings, ToolCall, ToolSpec
from overt.models.arguments import parse_arguments

__all__ = (
    "Converted",
    "Wire",
    "arguments_text",
    "clean_json",
    "count",
    "data_url",
    "json_copy",
    "mapping",
    "names_of",
    "output_limit",
    "read_call",
    "text_of",
    "wire_id",
    "wire_name",
)

Wire: TypeAlias = dict[str, JsonValue]
"""A piece of a request's body."""

WireT = TypeVar("WireT")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_OURS = re.compile(r".*__[0-9a-f]{10}")
_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_MAX_TOOL_SETS = 64


class Converted(Generic[WireT]):
    """Messages and sets of tools in a provider's form; each is converted once and kept while it lives.

    Args:
        message: Converts a message.
        tools: Converts a set of tools.
    """

    def __init__(
        self, message: Callable[[Message], WireT], tools: Callable[[tuple[ToolSpec, ...]], list[JsonValue]]
    ) -> None:
        self._convert = message
        self._convert_tools = tools
        self._messages: dict[int, tuple[weakref.ref[Message], WireT]] = {}
        self._tools: dict[int, tuple[tuple[ToolSpec, ...], list[JsonValue]]] = {}

    def messages(self, messages: Sequence[Message]) -> list[WireT]:
        """Return every message converted; what is returned is shared with earlier and later requests."""
        known = self._messages
        out: list[WireT] = []
        for message in messages:
            entry = known.get(id(message))
            # An id comes back once its object is gone, and the reference tells.
            out.append(entry[1] if entry is not None and entry[0]() is message else self._add(message))
        return out

    def _add(self, message: Message) -> WireT:
        wire = self._convert(message)
        key = id(message)
        known = self._messages

        def forget(reference: weakref.ref[Message]) -> None:
            entry = known.get(key)
            if entry is not None and entry[0] is reference:
                del known[key]

        known[key] = (weakref.ref(message, forget), wire)
        return wire

    def tools(self, tools: tuple[ToolSpec, ...]) -> list[JsonValue]:
        """Return a set of tools converted."""
        entry = self._tools.get(id(tools))
        if entry is not None and entry[0] is tools:
            return entry[1]
        made = self._convert_tools(tools)
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


def names_of(request: ModelRequest) -> dict[str, str]:
    """Return the tools' own names by those they are offered under."""
    return {wire_name(tool.name): tool.name for tool in request.tools}


def wire_id(id: str) -> str:
    """Return the id of a call as every API takes it, a function of ours alone."""
    if _ID.fullmatch(id):
        return id
    return f"call_{hashlib.sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def read_call(
    index: int, id: object, name: object, arguments: object, names: Mapping[str, str]
) -> tuple[ToolCall, str | None]:
    """Read one call of a reply.

    Args:
        index: Which call of the reply it is, from 0.
        id: The provider's id; missing and empty ones are replaced.
        name: The name it calls; missing is empty.
        arguments: Their text, or an object that was parsed already; nothing repairs them.
        names: The tools' own names by those they were offered under.

    Returns:
        The call, and the text of its arguments where they are no JSON object.
    """
    called = clean(text_of(name))
    kept = clean(text_of(id)) or f"call_{index}"
    text = (
        arguments
        if isinstance(arguments, str)
        else ""
        if arguments is None
        else json.dumps(arguments, ensure_ascii=False)
    )
    try:
        return ToolCall(id=kept, name=names.get(called, called), arguments=parse_arguments(text)), None
    except (ValueError, ValidationError):
        return ToolCall(id=kept, name=names.get(called, called)), clean(text)


def arguments_text(arguments: Mapping[str, JsonValue]) -> str:
    """Return the arguments of a call as text."""
    return clean(json.dumps(arguments, ensure_ascii=False, separators=(",", ":")))


def output_limit(request: ModelRequest, settings: ModelSettings) -> int | None:
    """Return the least of the limits on a reply's tokens, `None` where there is none."""
    limits = [n for n in (request.max_output_tokens, settings.max_output_tokens) if n is not None]
    return min(limits) if limits else None


def data_url(url: str | None, data: str | None, media_type: str) -> str:
    """Return where a part's bytes are: its address, or a `data:` one with them in it.

    Raises:
        DefinitionError: The part has neither.
    """
    if data is not None:
        return f"data:{media_type};base64,{data}"
    if url is None:
        raise DefinitionError("an ImagePart or FilePart needs url or data")
    return clean(url)


def clean_json(value: JsonValue) -> JsonValue:
    """Return a JSON value whose texts can all be encoded; itself where they can."""
    text = json.dumps(value, ensure_ascii=False)
    cleaned = clean(text)
    if cleaned == text:
        return value
    again: JsonValue = json.loads(cleaned)
    return again


def json_copy(value: object) -> JsonValue:
    """Return a copy of what came out of a JSON parser that shares nothing with it. What is no number is null."""
    text = clean(json.dumps(value, ensure_ascii=False))
    copied: JsonValue = json.loads(text, parse_constant=lambda name: None)
    return copied


def count(value: object) -> int | None:
    """Return a count of tokens; `None` for whatever is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        return None
    return int(value)


def mapping(value: object) -> Mapping[str, object]:
    """Return an object of a body; an empty one for whatever is none."""
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def text_of(value: object) -> str:
    """Return a text of a body; an empty one for whatever is none."""
    return value if isinstance(value, str) else ""
