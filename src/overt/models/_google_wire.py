"""Messages, tools and settings in the form of Gemini's generateContent. Knows no client and no network."""

from __future__ import annotations

import hashlib
import mimetypes
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast
from urllib.parse import unquote_to_bytes, urlsplit

from pydantic import JsonValue

from overt._text import clean
from overt.errors import DefinitionError
from overt.message import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    ModelRequest,
    ModelSettings,
    SystemMessage,
    TextPart,
    ToolMessage,
    ToolSpec,
    UserMessage,
    UserPart,
)
from overt.models._wire import Converted, Wire, clean_json, output_limit, wire_name

__all__ = ("Converter", "function_name", "function_names", "schema_of", "version_of")

UNSIGNED = "skip_thought_signature_validator"
"""What Google documents for calls that Gemini did not make: without it, Gemini 3 refuses them for good."""

_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_VERSION = re.compile(r"(?:^|/)gemini-(\d+)")
# Keywords whose values are no schemas, and those whose values have schemas by name.
_VALUES = frozenset({"const", "default", "enum", "example", "examples"})
_MAPS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
# Without the files of the machine, so that a file is sent alike from everywhere.
_TYPES = mimetypes.MimeTypes(filenames=())


class _Turn(NamedTuple):
    role: str
    parts: list[JsonValue]
    content: Wire
    """The message as one content, with `parts`; of a tool's result and of instructions only the parts are used."""
    calls: tuple[tuple[str, str | None], ...] = ()
    """Our id and Google's of each call it makes."""
    call_id: str = ""
    """Whose result it is."""


class Converter:
    """Turns requests into bodies; each message and each set of tools is converted once and kept while it lives.

    Args:
        provider: Whose opaque parts are sent back: those that a reply read for the same provider left.
        signed: Whether the model refuses calls without a signature.
    """

    def __init__(self, provider: str, *, signed: bool) -> None:
        self._provider = provider
        self._signed = signed
        self._converted: Converted[_Turn | None] = Converted(self._convert, _tool_set)

    def body(self, request: ModelRequest, *, base: ModelSettings) -> Wire:
        """Return the request's body.

        Args:
            request: What is asked.
            base: Settings of the model, under those of the request.

        Returns:
            A new dict, whose contents are shared with earlier bodies.

        Raises:
            DefinitionError: A message has a part this API cannot take.
        """
        settings = request.settings.over(base)
        system, contents = _arranged(self._converted.messages(request.messages))
        body: Wire = {"contents": contents}
        if system:
            body["systemInstruction"] = {"parts": system}
        if request.tools:
            body["tools"] = [{"functionDeclarations": self._converted.tools(request.tools)}]
            if settings.tool_choice is not None:
                body["toolConfig"] = {"functionCallingConfig": {"mode": _MODES[settings.tool_choice]}}
        generation: Wire = {}
        if settings.temperature is not None:
            generation["temperature"] = settings.temperature
        limit = output_limit(request, settings)
        if limit is not None:
            generation["maxOutputTokens"] = limit
        if settings.stop:
            generation["stopSequences"] = [clean(item) for item in settings.stop]
        if request.output_schema is not None:
            generation["responseMimeType"] = "application/json"
            generation["responseJsonSchema"] = schema_of(request.output_schema)
        if generation:
            body["generationConfig"] = generation
        for key, value in settings.extra.items():
            body[key] = _merged(key, body.get(key), clean_json(value))
        return body

    def _convert(self, message: Message) -> _Turn | None:
        match message:
            case SystemMessage():
                return _turn("system", [{"text": clean(message.text)}])
            case UserMessage():
                return _turn("user", _user_parts(message))
            case AssistantMessage():
                return self._assistant(message)
            case ToolMessage():
                told: Wire = {"error" if message.is_error else "output": clean(message.text)}
                result: Wire = {"name": function_name(message.name), "response": told}
                return _turn("tool", [{"functionResponse": result}], call_id=message.call_id)

    def _assistant(self, message: AssistantMessage) -> _Turn | None:
        if not message.text and not message.tool_calls:
            # Refused by the API, for good: every later request would hold it again.
            return None
        kept = (message.opaque or {}).get(self._provider)
        found = kept.get("parts") if isinstance(kept, dict) else None
        layout = found if isinstance(found, list) else []
        parts = _laid_out(message, layout) if layout else None
        if parts is None:
            parts = _plain(message, layout)
            if message.tool_calls and self._signed:
                cast("Wire", parts[1 if message.text else 0]).setdefault("thoughtSignature", UNSIGNED)
        ids = _ids(layout, len(message.tool_calls))
        calls = tuple((call.id, ids.get(index)) for index, call in enumerate(message.tool_calls))
        return _turn("model", parts, calls=calls)


def _turn(
    role: str, parts: list[JsonValue], *, calls: tuple[tuple[str, str | None], ...] = (), call_id: str = ""
) -> _Turn:
    return _Turn(role, parts, {"role": role, "parts": parts}, calls, call_id)


def _arranged(turns: Sequence[_Turn | None]) -> tuple[list[JsonValue], list[JsonValue]]:
    """Return the instructions and the contents: the results of one turn are one content, in the order of its calls."""
    system: list[JsonValue] = []
    contents: list[JsonValue] = []
    results: list[_Turn] = []
    calls: tuple[tuple[str, str | None], ...] = ()
    for turn in turns:
        if turn is None:
            continue
        if turn.role == "system":
            system.extend(turn.parts)
        elif turn.role == "tool":
            results.append(turn)
        else:
            if results:
                contents.append(_results(results, calls))
                results = []
            contents.append(turn.content)
            calls = turn.calls
    if results:
        contents.append(_results(results, calls))
    return system, contents


def _results(results: list[_Turn], calls: tuple[tuple[str, str | None], ...]) -> Wire:
    places = {own: place for place, (own, _) in enumerate(calls)}
    given = dict(calls)
    parts: list[JsonValue] = []
    for turn in sorted(results, key=lambda turn: places.get(turn.call_id, len(places))):
        id = given.get(turn.call_id)
        if id is None:
            parts.extend(turn.parts)
        else:
            response = cast("Wire", cast("Wire", turn.parts[0])["functionResponse"])
            parts.append({"functionResponse": {"id": id, **response}})
    return {"role": "user", "parts": parts}


def _laid_out(message: AssistantMessage, layout: list[JsonValue]) -> list[JsonValue] | None:
    """Return a reply in the very parts it came in; `None` where the message is no longer what came."""
    text, thought = message.text, message.reasoning or ""
    said = thought_of = calls = 0
    parts: list[JsonValue] = []
    for entry in layout:
        if not isinstance(entry, dict):
            return None
        rest = entry.get("with")
        part: Wire
        if isinstance(count := entry.get("text"), int):
            part = {"text": text[said : said + count]}
            said += count
        elif isinstance(count := entry.get("thought"), int):
            part = {"text": thought[thought_of : thought_of + count], "thought": True}
            thought_of += count
        elif "call" in entry:
            if calls >= len(message.tool_calls):
                return None
            part = {"functionCall": _call(message, calls, entry.get("id"))}
            calls += 1
        else:
            part = {}
        parts.append({**part, **(rest if isinstance(rest, dict) else {})})
    whole = said == len(text) and thought_of == len(thought) and calls == len(message.tool_calls)
    return parts if whole else None


def _plain(message: AssistantMessage, layout: list[JsonValue]) -> list[JsonValue]:
    """Return a reply as text and calls, with what is kept of the calls where these are still as many."""
    parts: list[JsonValue] = [{"text": clean(message.text)}] if message.text else []
    kept = _kept(layout, len(message.tool_calls))
    for index, entry in enumerate(kept):
        rest = entry.get("with")
        call = _call(message, index, entry.get("id"))
        parts.append({"functionCall": call, **(rest if isinstance(rest, dict) else {})})
    return parts


def _call(message: AssistantMessage, index: int, id: JsonValue) -> Wire:
    call = message.tool_calls[index]
    wire: Wire = {"name": function_name(call.name), "args": clean_json(call.arguments)}
    return wire if id is None else {"id": id, **wire}


def _kept(layout: list[JsonValue], calls: int) -> list[Wire]:
    """Return what is kept of each call; nothing where these are no longer as many."""
    kept: list[Wire] = [entry for entry in layout if isinstance(entry, dict) and "call" in entry]
    return kept if len(kept) == calls else [{}] * calls


def _ids(layout: list[JsonValue], calls: int) -> dict[int, str]:
    kept = enumerate(_kept(layout, calls))
    return {at: id for at, entry in kept if isinstance(id := entry.get("id"), str)}


def _tool_set(tools: tuple[ToolSpec, ...]) -> list[JsonValue]:
    return [
        {
            "name": function_name(tool.name),
            "description": clean(tool.description),
            "parametersJsonSchema": schema_of(tool.input_schema),
        }
        for tool in tools
    ]


def _user_parts(message: UserMessage) -> list[JsonValue]:
    parts: list[JsonValue] = [{"text": clean(message.text)}] if message.text or not message.parts else []
    parts.extend(_part(part) for part in message.parts)
    return parts


def _part(part: UserPart) -> JsonValue:
    if isinstance(part, TextPart):
        return {"text": clean(part.text)}
    if part.data is not None:
        return {"inlineData": {"mimeType": _media_type(part), "data": clean(part.data)}}
    if part.url is None:
        raise DefinitionError(f"{_described(part)} for Gemini needs url or data")
    url = clean(part.url)
    if url.startswith("data:"):
        head, comma, data = url.partition(",")
        if not comma or not head.endswith(";base64"):
            raise DefinitionError(
                f"{_described(part)} for Gemini has a data: address that is not base64; give its data"
            )
        media_type = head[5:-7] or _media_type(part)
        return {"inlineData": {"mimeType": media_type, "data": unquote_to_bytes(data).decode("latin-1")}}
    file: Wire = {"fileUri": url}
    media_type = part.media_type or _TYPES.guess_type(urlsplit(url).path)[0] or ""
    if media_type:
        file["mimeType"] = clean(media_type)
    return {"fileData": file}


def _described(part: ImagePart | FilePart) -> str:
    name = part.name if isinstance(part, FilePart) else None
    return f"{'an ImagePart' if isinstance(part, ImagePart) else 'a FilePart'}{f' {name!r}' if name else ''}"


def _media_type(part: ImagePart | FilePart) -> str:
    if part.media_type is not None:
        return clean(part.media_type)
    if isinstance(part, ImagePart):
        return "image/png"
    return _TYPES.guess_type(part.name or "")[0] or "application/pdf"


def _merged(key: str, ours: JsonValue, theirs: JsonValue) -> JsonValue:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {**ours, **theirs}
    if key == "tools" and isinstance(ours, list) and isinstance(theirs, list):
        return [*ours, *theirs]
    return theirs


def function_name(name: str) -> str:
    """Return the name under which a tool is offered: it has to begin with a letter or an underscore.

    As with `wire_name`, it is a function of the name alone, and two names never become one.
    """
    sent = wire_name(name)
    if sent[0] == "_" or sent[0].isalpha():
        return sent
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"_{re.sub(r'[^a-zA-Z0-9_-]', '_', name)[:51]}__{digest}"


def function_names(request: ModelRequest) -> dict[str, str]:
    """Return the tools' own names by those they are offered under."""
    return {function_name(tool.name): tool.name for tool in request.tools}


def version_of(name: str) -> int | None:
    """Return a model's generation by its name; `None` where the name does not tell."""
    found = _VERSION.search(name)
    return int(found[1]) if found else None


def schema_of(schema: Mapping[str, JsonValue]) -> JsonValue:
    """Return a JSON Schema as Gemini reads it.

    Two things it documents not to take are said otherwise: a `$ref` with anything beside it, and `const`.
    """
    return _schema(clean_json(dict(schema)), root=True)


def _schema(node: JsonValue, *, root: bool = False) -> JsonValue:
    if isinstance(node, list):
        return [_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    out: Wire = {}
    for key, value in node.items():
        if key in _MAPS and isinstance(value, dict):
            out[key] = {name: _schema(item) for name, item in value.items()}
        else:
            out[key] = value if key in _VALUES else _schema(value)
    const = out.get("const")
    if isinstance(const, str | int | float) and not isinstance(const, bool) and "enum" not in out:
        out["enum"] = [out.pop("const")]
    alone = root or "$ref" not in out or all(key.startswith("$") for key in out)
    if not alone and "anyOf" not in out:
        out["anyOf"] = [{"$ref": out.pop("$ref")}]
    return out
