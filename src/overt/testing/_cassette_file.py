"""The file of a cassette: lines of JSON that people can read and compare, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import JsonValue, ValidationError

from overt.errors import ModelError, OvertError
from overt.message import ModelDelta, ModelResponse, ToolCallDelta, Usage
from overt.models.redact import redact
from overt.testing._cassette_asked import Asked, Fields, encode

__all__ = (
    "CassetteError",
    "Outcome",
    "Recorded",
    "Tape",
    "delta_fields",
    "error_fields",
    "read_tape",
    "write_tape",
)

VERSION = 1


class CassetteError(OvertError):
    """A cassette cannot be read, or it may not be recorded here; says what to do."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a question.

    Attributes:
        reply: The reply, of a model that was not asked to stream.
        deltas: The pieces, of one that was; `None` otherwise.
        error: What it raised, after the pieces if there are any.
    """

    reply: Fields | None = None
    deltas: tuple[Fields, ...] | None = None
    error: Fields | None = None

    def response(self) -> ModelResponse | None:
        """Return the whole reply; `None` where there are only pieces or an error."""
        return None if self.reply is None else ModelResponse.model_validate(self.reply)

    def pieces(self) -> list[ModelDelta]:
        """Return the pieces that were streamed."""
        return [_delta(fields) for fields in self.deltas or ()]

    def failure(self) -> ModelError | None:
        """Return what was raised."""
        if self.error is None:
            return None
        fields = dict(self.error)
        usage = fields.pop("usage", None)
        said = None if usage is None else Usage.model_validate(usage)
        message = fields.pop("message")
        return ModelError(cast("str", message), usage=said, **cast("dict[str, Any]", fields))


@dataclass(slots=True)
class Recorded:
    """A question and what became of it; used once."""

    asked: Asked
    outcome: Outcome | None = None
    used: bool = False
    digest: str = ""


@dataclass(slots=True)
class Tape:
    """All of a cassette."""

    model: str
    provider: str
    structured_output: bool
    written: str = ""
    """The name it was given by, such as `"openai:gpt-5-mini"`; empty where it was given itself."""
    calls: list[Recorded] = field(default_factory=list)


def delta_fields(delta: ModelDelta) -> Fields:
    """Return a piece as JSON: what it says."""
    said: Fields = {}
    for name in ("text", "reasoning", "finish_reason", "raw_finish_reason", "model"):
        value = getattr(delta, name)
        if value is not None:
            said[name] = value
    if delta.tool_call is not None:
        call = delta.tool_call
        named = {"index": call.index, "id": call.id, "name": call.name, "arguments": call.arguments}
        said["tool_call"] = {key: value for key, value in named.items() if value is not None}
    if delta.usage is not None:
        said["usage"] = delta.usage.model_dump(mode="json", exclude_defaults=True)
    if delta.opaque is not None:
        said["opaque"] = dict(delta.opaque)
    return said


def error_fields(error: ModelError) -> Fields:
    """Return an error as JSON, without what looks like a credential."""
    said: Fields = {"message": redact(str(error)), "type": error.type}
    for name in ("status_code", "retry_after", "request_id"):
        value = getattr(error, name)
        if value is not None:
            said[name] = value
    if error.detail is not None:
        said["detail"] = redact(error.detail)
    if error.retryable:
        said["retryable"] = True
    if error.usage is not None:
        said["usage"] = error.usage.model_dump(mode="json", exclude_defaults=True)
    return said


def _delta(fields: Fields) -> ModelDelta:
    made = cast("dict[str, Any]", dict(fields))
    call, usage = made.pop("tool_call", None), made.pop("usage", None)
    return ModelDelta(
        tool_call=None if call is None else ToolCallDelta(**call),
        usage=None if usage is None else Usage.model_validate(usage),
        **made,
    )


# ------------------------------------------------------------------ writing


def write_tape(path: Path, tape: Tape) -> None:
    """Write a cassette in the place of the one that is there, whole or not at all."""
    text = "".join(f"{line}\n" for line in _lines(tape))
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with beside.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _lines(tape: Tape) -> Iterator[str]:
    head: Fields = {"cassette": VERSION, "model": tape.model, "provider": tape.provider}
    if tape.written:
        head["written"] = tape.written
    yield encode({**head, "structured_output": tape.structured_output})
    tools: dict[str, str] = {}
    ends: dict[str, int] = {}
    calls = [call for call in tape.calls if call.outcome is not None]
    for number, call in enumerate(calls, start=1):
        names: list[JsonValue] = []
        for tool in call.asked.tools:
            text = encode(tool)
            if text not in tools:
                tools[text] = _free(str(tool.get("name", "")), set(tools.values()))
                yield encode({"tool": tools[text], **tool})
            names.append(tools[text])
        asked: Fields = {"call": number, "agent": call.asked.agent, **call.asked.rest}
        if names:
            asked["tools"] = names
        asked["messages"] = len(call.asked.messages)
        follows, start = _longest(call.asked.messages, ends, number)
        if follows:
            asked["follows"] = follows
        yield encode(asked)
        for message in call.asked.messages[start:]:
            yield encode({"message": message})
        yield from _outcome_lines(call.outcome or Outcome())
    yield encode({"calls": len(calls)})


def _outcome_lines(outcome: Outcome) -> Iterator[str]:
    if outcome.reply is not None:
        yield encode({"reply": outcome.reply})
    if outcome.deltas is not None:
        for delta in outcome.deltas:
            yield encode({"delta": delta})
        yield encode({"deltas": len(outcome.deltas)})
    if outcome.error is not None:
        yield encode({"error": outcome.error})


def _free(name: str, taken: set[str]) -> str:
    """Return a name for a tool in the file: of two that differ and have one name the second gets a number."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}#{number}"
    return found


def _longest(messages: Sequence[Fields], ends: dict[str, int], number: int) -> tuple[int, int]:
    """Return the call whose whole transcript these begin with, the longest, and its length; note this one's own."""
    hashed = hashlib.sha256()
    follows = start = 0
    for length, message in enumerate(messages, start=1):
        hashed.update(encode(message).encode("utf-8", "surrogatepass"))
        hashed.update(b"\n")
        known = ends.get(hashed.hexdigest())
        if known is not None:
            follows, start = known, length
    ends.setdefault(hashed.hexdigest(), number)
    return follows, start


# ------------------------------------------------------------------ reading


def read_tape(path: Path) -> Tape:
    """Read a cassette.

    Raises:
        CassetteError: There is none, it is damaged, cut off, or of a newer release; names the line.
    """
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise CassetteError(f"there is no cassette {path}") from None
    except UnicodeDecodeError:
        raise CassetteError(f"cassette {path} is damaged: it is not UTF-8") from None
    return _Reader(path).read(text)


_DELTA: Mapping[str, type | tuple[type, ...]] = {
    "text": str,
    "reasoning": str,
    "tool_call": dict,
    "usage": dict,
    "finish_reason": str,
    "raw_finish_reason": str,
    "model": str,
    "opaque": dict,
}
_CALL_DELTA: Mapping[str, type | tuple[type, ...]] = {"index": int, "id": str, "name": str, "arguments": str}
_ERROR: Mapping[str, type | tuple[type, ...]] = {
    "message": str,
    "type": str,
    "status_code": int,
    "retryable": bool,
    "detail": str,
    "retry_after": (int, float),
    "request_id": str,
    "usage": dict,
}
_ROLES = ("system", "user", "assistant", "tool")
_ASKED = ("agent", "model", "settings", "output_schema")


class _Wrong(ValueError):
    """What is wrong with a line."""


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._tools: dict[str, Fields] = {}
        self._tape: Tape | None = None
        self._call: Fields | None = None
        self._messages: list[Fields] = []
        self._length: int = 0
        self._deltas: list[Fields] = []
        self._outcome: Outcome | None = None
        self._ended: bool = False

    def read(self, text: str) -> Tape:
        number = 0
        for number, line in enumerate(
            text.split("\n")[:-1] if text.endswith("\n") else text.split("\n"), start=1
        ):
            try:
                self._take(line)
            except _Wrong as error:
                raise CassetteError(
                    f"cassette {self._path} is damaged at line {number}: {error}. Record it again."
                ) from None
            except ValidationError as error:
                first = error.errors()[0]
                place = ".".join(str(part) for part in first["loc"])
                raise CassetteError(
                    f"cassette {self._path} is damaged at line {number}: {place}: {first['msg']}. Record it again."
                ) from None
        if self._tape is None or not self._ended:
            raise CassetteError(f"cassette {self._path} ends early, after line {number}. Record it again.")
        return self._tape

    def _take(self, line: str) -> None:
        try:
            value: object = json.loads(line)
        except (ValueError, RecursionError):
            raise _Wrong("it is not JSON") from None
        if not isinstance(value, dict) or not value:
            raise _Wrong("it is not a JSON object")
        fields = cast("Fields", value)
        kind = next(iter(fields))
        tape = self._tape
        if tape is None:
            self._tape = self._head(fields)
            return
        if self._ended:
            raise _Wrong("it stands behind the end")
        match kind:
            case "tool":
                self._finish(tape)
                name = _text(fields.pop("tool"))
                if name in self._tools:
                    raise _Wrong(f"the tool {name!r} stands twice in it")
                self._tools[name] = fields
            case "call":
                self._finish(tape)
                self._begin(tape.calls, fields)
            case "calls":
                self._finish(tape)
                if fields != {"calls": len(tape.calls)}:
                    raise _Wrong(f"{len(tape.calls)} calls are in the file, not {fields['calls']}")
                self._ended = True
            case "message" | "reply" | "delta" | "deltas" | "error":
                if self._call is None:
                    raise _Wrong(f"{kind} belongs to no call")
                self._part(kind, fields)
            case _:
                raise _Wrong(f"nobody knows {kind!r}")

    def _head(self, fields: Fields) -> Tape:
        version = fields.get("cassette")
        if type(version) is not int:
            raise _Wrong("it is not the head of a cassette")
        if version > VERSION:
            raise CassetteError(
                f"cassette {self._path} is of version {version}, this release reads up to {VERSION}: update overt, "
                "or record it again"
            )
        model, provider, native = (fields.get(key) for key in ("model", "provider", "structured_output"))
        if not isinstance(model, str) or not isinstance(provider, str):
            raise _Wrong("model or provider is missing")
        return Tape(model, provider, native is True, _text(fields.get("written", "")))

    def _begin(self, calls: Sequence[Recorded], fields: Fields) -> None:
        if fields.pop("call") != len(calls) + 1:
            raise _Wrong(f"call {len(calls) + 1} is missing")
        follows = fields.pop("follows", 0)
        if type(follows) is not int or not 0 <= follows <= len(calls):
            raise _Wrong("follows names no call")
        names = fields.pop("tools", [])
        if not isinstance(names, list) or any(name not in self._tools for name in names):
            raise _Wrong("tools names one that is not there")
        self._messages = [*calls[follows - 1].asked.messages] if follows else []
        length = fields.pop("messages", 0)
        if type(length) is not int:
            raise _Wrong("messages is no number")
        for key in fields:
            if key not in _ASKED:
                raise _Wrong(f"a call has the unknown field {key!r}")
        self._call = {**fields, "tools": names}
        self._length = length

    def _part(self, kind: str, fields: Fields) -> None:
        value = fields[kind]
        if len(fields) > 1:
            raise _Wrong("it says two things")
        if kind == "message":
            if self._outcome is not None or self._deltas:
                raise _Wrong("a message stands behind the reply")
            message = _object(value)
            if message.get("role") not in _ROLES:
                raise _Wrong("a message without a role")
            calls = message.get("tool_calls", [])
            if not isinstance(calls, list) or not all(
                isinstance(call, dict) and "id" in call for call in calls
            ):
                raise _Wrong("a message has calls that are none")
            self._messages.append(message)
            return
        done = self._outcome
        if done is not None and not (kind == "error" and done.deltas is not None and done.error is None):
            raise _Wrong("the call has its reply already")
        match kind:
            case "reply":
                reply = _object(value)
                ModelResponse.model_validate(reply)
                self._outcome = Outcome(reply=reply)
            case "delta":
                self._deltas.append(_checked_delta(_object(value)))
            case "deltas":
                if value != len(self._deltas):
                    raise _Wrong(f"{len(self._deltas)} pieces are in the file, not {value}")
                self._outcome = Outcome(deltas=tuple(self._deltas))
                self._deltas = []
            case _:
                error = _checked(_object(value), _ERROR, "error")
                if "message" not in error:
                    raise _Wrong("an error without a message")
                if "usage" in error:
                    Usage.model_validate(error["usage"])
                self._outcome = Outcome(deltas=None if done is None else done.deltas, error=error)

    def _finish(self, tape: Tape) -> None:
        """End the call that is being read."""
        if self._call is None:
            return
        if self._outcome is None:
            raise _Wrong(f"call {len(tape.calls) + 1} before it has no reply")
        if len(self._messages) != self._length:
            raise _Wrong(
                f"call {len(tape.calls) + 1} before it has {len(self._messages)} messages, not {self._length}"
            )
        rest = self._call
        names, agent = cast("list[str]", rest.pop("tools")), rest.pop("agent", "")
        tools = tuple(self._tools[name] for name in names)
        asked = Asked(tuple(self._messages), tools, rest, _text(agent))
        tape.calls.append(Recorded(asked, self._outcome, digest=asked.digest))
        self._call = self._outcome = None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _Wrong("a name is no text")
    return value


def _object(value: JsonValue) -> Fields:
    if not isinstance(value, dict):
        raise _Wrong("it holds no object")
    return value


def _checked_delta(fields: Fields) -> Fields:
    _checked(fields, _DELTA, "a piece")
    if "tool_call" in fields:
        _checked(_object(fields["tool_call"]), _CALL_DELTA, "a call's piece")
    if "usage" in fields:
        Usage.model_validate(fields["usage"])
    if fields.get("finish_reason", "stop") not in _FINISH:
        raise _Wrong("finish_reason is none")
    return fields


_FINISH = ("stop", "tool_calls", "length", "content_filter", "refusal", "unknown")


def _checked(fields: Fields, kinds: Mapping[str, type | tuple[type, ...]], what: str) -> Fields:
    for name, value in fields.items():
        kind = kinds.get(name)
        if kind is None:
            raise _Wrong(f"{what} has the unknown field {name!r}")
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise _Wrong(f"{what} has a {name} of another type")
    return fields
