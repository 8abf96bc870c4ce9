"""What a model was asked, in a form that can be compared: the same in every process, and without what it cannot see."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, cast

from pydantic import JsonValue

from overt.errors import DefinitionError
from overt.message import Message, ModelRequest, ToolSpec
from overt.models.redact import redact as without_secrets

__all__ = ("Asked", "Fields", "Questions", "differences", "encode", "nearest", "shown")

Fields: TypeAlias = dict[str, JsonValue]

_AROUND = 30
_LISTED = 3
_KEPT = frozenset(
    {"role", "kind", "id", "call_id", "model", "finish_reason", "raw_finish_reason", "media_type"}
)
_HOSTS = frozenset({"arguments", "opaque"})
"""What has keys of its own, which mean nothing here."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a model was asked, as far as it has an influence on the answer.

    Attributes:
        messages: The transcript.
        tools: The tools offered.
        rest: Model, settings and schema, as far as they are set.
        agent: Who asked; only for people.
    """

    messages: tuple[Fields, ...]
    tools: tuple[Fields, ...]
    rest: Fields
    agent: str = field(default="", compare=False)

    @property
    def digest(self) -> str:
        """The same for the same question, in every process. Ids of calls count by the order they appear in."""
        parts: list[JsonValue] = [[*_numbered(self.messages)], [*self.tools], self.rest]
        return hashlib.sha256(encode(parts, sort=True).encode()).hexdigest()


class _Called(Protocol):
    asked: Asked
    used: bool


class Questions:
    """Makes what is compared from requests; each message once.

    Args:
        hook: What the host replaces in every text.
    """

    def __init__(self, hook: Callable[[str], str] | None) -> None:
        self._hook = hook
        self._messages: dict[int, tuple[Message, Fields]] = {}
        self._tools: dict[int, tuple[ToolSpec, Fields]] = {}

    @property
    def redacts(self) -> bool:
        """Whether there is a hook."""
        return self._hook is not None

    def of(self, request: ModelRequest, name: str) -> Asked:
        """Return what a request asks of the model of a name."""
        rest: Fields = {}
        if request.model != name:
            rest["model"] = request.model
        settings = cast("Fields", request.settings.model_dump(mode="json", exclude_defaults=True))
        if settings:
            rest["settings"] = _public(settings)
        if request.output_schema is not None:
            rest["output_schema"] = _plain(dict(request.output_schema))
        return Asked(
            tuple(self._message(message) for message in request.messages),
            tuple(self._tool(tool) for tool in request.tools),
            rest,
            request.agent,
        )

    def redacted(self, fields: Fields) -> Fields:
        """Return a reply or an error with what the host replaces."""
        return fields if self._hook is None else cast("Fields", self._walk(fields, ours=True))

    def _message(self, message: Message) -> Fields:
        known = self._messages.get(id(message))
        if known is not None:
            return known[1]
        dumped = message.model_dump(mode="json", exclude={"metadata"})
        made: Fields = {"role": message.role}
        made |= {key: _shorter(value) for key, value in dumped.items() if key == "text" or value}
        made = self.redacted(made)
        # The message is kept, so that its id is nobody else's.
        self._messages[id(message)] = (message, made)
        return made

    def _tool(self, tool: ToolSpec) -> Fields:
        known = self._tools.get(id(tool))
        if known is None:
            schema = _plain(dict(tool.input_schema))
            made: Fields = {"name": tool.name, "description": tool.description, "input_schema": schema}
            known = self._tools[id(tool)] = (tool, made)
        return known[1]

    def _walk(self, value: JsonValue, *, ours: bool) -> JsonValue:
        if isinstance(value, str):
            return self._replaced(value)
        if isinstance(value, list):
            return [self._walk(item, ours=ours) for item in value]
        if not isinstance(value, dict):
            return value
        named = ours and ("id" in value or "call_id" in value)
        return {
            key: item
            if ours and (key in _KEPT or (named and key == "name"))
            else self._walk(item, ours=ours and key not in _HOSTS)
            for key, item in value.items()
        }

    def _replaced(self, text: str) -> str:
        hook = self._hook
        if hook is None:
            return text
        made = hook(text)
        if not isinstance(made, str) or hook(made) != made:  # pyright: ignore[reportUnnecessaryIsInstance]  # the host's
            raise DefinitionError(
                "Cassette: redact has to return a text, and leave what it has returned alone"
            )
        return made


def _public(settings: Fields) -> JsonValue:
    """Return settings without what looks like a credential: `extra` is the one place of a request for one."""
    text = json.dumps(settings, ensure_ascii=False)
    try:
        made: JsonValue = json.loads(without_secrets(text))
    except ValueError:
        # Too long to be looked through.
        return {"sha256": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()}
    return made


def _shorter(value: JsonValue) -> JsonValue:
    """Return the parts of a message without what they do not say."""
    if isinstance(value, list):
        return [_shorter(item) for item in value]
    if isinstance(value, dict) and "kind" in value:
        return {key: item for key, item in value.items() if item is not None}
    return value


def _plain(value: JsonValue) -> JsonValue:
    made: JsonValue = json.loads(json.dumps(value))
    return made


def _numbered(messages: Sequence[Fields]) -> Iterator[JsonValue]:
    """Yield messages with the ids of calls replaced by numbers, in the order they appear."""
    known: dict[str, int] = {}

    def number(id: object) -> int:
        return known.setdefault(str(id), len(known) + 1)

    for message in messages:
        if "call_id" in message:
            yield {**message, "call_id": number(message["call_id"])}
        elif "tool_calls" in message:
            calls = cast("list[Fields]", message["tool_calls"])
            yield {**message, "tool_calls": [{**call, "id": number(call["id"])} for call in calls]}
        else:
            yield message


def encode(value: JsonValue, *, sort: bool = False) -> str:
    """Return a value as one line of JSON that can be written in UTF-8."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=sort)
    try:
        text.encode()
    except UnicodeEncodeError:
        # A piece of a stream may end within a surrogate pair.
        return json.dumps(value, sort_keys=sort)
    return text


# ------------------------------------------------------------------ what differs


def shown(number: int | None, asked: Asked) -> str:
    """Return a question in words."""
    call = "a call" if number is None else f"call {number}"
    by = f" of agent {asked.agent!r}" if asked.agent else ""
    last = f", the last {_excerpt(_said(asked.messages[-1]), 0)}" if asked.messages else ""
    count = len(asked.messages)
    return f"{call}{by} ({count} message{'' if count == 1 else 's'}{last})"


def nearest(asked: Asked, calls: Sequence[_Called]) -> int | None:
    """Return the place of the recorded call that is most like a question; of several, one that is not used."""
    if not calls:
        return None

    def likeness(at: int) -> tuple[int, int, bool, int]:
        found = calls[at].asked
        mine, theirs = [*_numbered(asked.messages)], [*_numbered(found.messages)]
        equal = sum(a == b for a, b in zip(mine, theirs, strict=False))
        same = (found.rest == asked.rest) + (found.tools == asked.tools)
        return 2 * equal - max(len(mine), len(theirs)), same, not calls[at].used, -at

    return max(range(len(calls)), key=likeness)


def differences(asked: Asked, recorded: Asked) -> list[str]:
    """Return where a question differs from a recorded one, the first few places."""
    found = [*_differing(asked, recorded)]
    more = len(found) - _LISTED
    return found if more <= 0 else [*found[:_LISTED], f"and {more} more"]


def _differing(asked: Asked, recorded: Asked) -> Iterator[str]:
    for key in ("model", "settings", "output_schema"):
        mine, theirs = asked.rest.get(key), recorded.rest.get(key)
        if mine != theirs:
            yield _pair(key, _text(mine), _text(theirs))
    names, known = ([str(tool["name"]) for tool in one.tools] for one in (asked, recorded))
    if names != known:
        yield _pair("tools", ", ".join(names), ", ".join(known))
    else:
        for mine_tool, theirs_tool in zip(asked.tools, recorded.tools, strict=True):
            for key in ("description", "input_schema"):
                if mine_tool.get(key) != theirs_tool.get(key):
                    at = f"tool {mine_tool['name']!r}, {key}"
                    yield _pair(at, _text(mine_tool.get(key)), _text(theirs_tool.get(key)))
    mine_all, theirs_all = ([*_numbered(one.messages)] for one in (asked, recorded))
    for index, (mine_one, theirs_one) in enumerate(zip(mine_all, theirs_all, strict=False)):
        if mine_one != theirs_one:
            yield _message(index, cast("Fields", mine_one), cast("Fields", theirs_one))
    if len(mine_all) != len(theirs_all):
        yield f"the number of messages: recorded {len(theirs_all)}, asked {len(mine_all)}"


def _message(index: int, mine: Fields, theirs: Fields) -> str:
    for key in dict.fromkeys(("role", *theirs, *mine)):
        if mine.get(key) != theirs.get(key):
            return _pair(
                f"messages[{index}].{key} ({theirs['role']})", _text(mine.get(key)), _text(theirs.get(key))
            )
    return f"messages[{index}]"


def _pair(at: str, mine: str, theirs: str) -> str:
    same = zip(mine, theirs, strict=False)
    begin = next((at for at, (a, b) in enumerate(same) if a != b), min(len(mine), len(theirs)))
    return f"{at}: recorded {_excerpt(theirs, begin)}, asked {_excerpt(mine, begin)}"


def _excerpt(text: str, at: int) -> str:
    start, end = max(at - _AROUND, 0), at + _AROUND
    return repr(f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}")


def _said(message: Fields) -> str:
    text = message.get("text")
    return text if isinstance(text, str) and text else _text(message.get("tool_calls", ""))


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else "nothing" if value is None else encode(value)
