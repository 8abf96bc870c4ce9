"""What the providers' protocols have in common: how a request is read, how a reply is cut into pieces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from overt.message import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolMessage,
    ToolSpec,
)

__all__ = (
    "Asked",
    "Spoken",
    "Wire",
    "asked_of",
    "balanced",
    "call_of",
    "calls_of",
    "cut",
    "error_word",
    "event_of",
    "fields",
    "many",
    "text_of",
    "tool_of",
)

_PIECE = 8

Wire: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that was read.

    Attributes:
        request: What the model is asked.
        streamed: Whether the reply is wanted in pieces.
        counted: Whether usage is wanted in a streamed reply.
    """

    request: ModelRequest
    streamed: bool
    counted: bool = True


class Spoken(Protocol):
    """One provider's protocol."""

    def fits(self, path: str) -> bool:
        """Say whether a request to this path is for this provider."""
        ...

    def read(self, path: str, body: Any) -> Asked:
        """Read a request.

        Raises:
            LookupError, TypeError, ValueError: It is not one of this protocol.
        """
        ...

    def whole(self, response: ModelResponse, id: str) -> Wire:
        """Return the reply as one body."""
        ...

    def events(self, response: ModelResponse, id: str, *, counted: bool) -> Iterator[str]:
        """Yield the reply as server-sent events, each with its empty line."""
        ...

    def refusal(self, status: int, message: str) -> Wire:
        """Return the body of an answer that says no."""
        ...


def balanced(messages: Sequence[Message]) -> str | None:
    """Return what is wrong with the calls and results of a transcript, as providers check it; `None` for nothing."""
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.call_id not in open_calls:
                return f"the result of {message.call_id!r} answers no call of the message before it"
            open_calls.remove(message.call_id)
            continue
        if open_calls:
            return f"the calls {open_calls} have no result"
        if isinstance(message, AssistantMessage):
            if not message.text and not message.tool_calls:
                return "an assistant message says nothing"
            open_calls = [call.id for call in message.tool_calls]
    return f"the calls {open_calls} have no result" if open_calls else None


def asked_of(messages: Sequence[Message], tools: Sequence[ToolSpec], form: Any, model: str) -> ModelRequest:
    """Return what the model is asked."""
    return ModelRequest(messages=tuple(messages), tools=tuple(tools), output_schema=form, model=model)


def fields(value: Any, *names: str) -> Any:
    """Return what is at the end of a path through objects, `None` where it does not lead on."""
    for name in names:
        value = value.get(name) if value else None
    return value


def many(value: Any) -> list[Any]:
    """Return an array; an empty one for nothing."""
    return [] if value is None else value


def tool_of(given: Mapping[str, Any], schema: Any) -> ToolSpec:
    """Return a tool that is offered."""
    return ToolSpec(name=given["name"], description=given.get("description", ""), input_schema=schema or {})


def call_of(id: str, name: str, arguments: Any) -> ToolCall:
    """Return a call, checked."""
    return ToolCall.model_validate({"id": id, "name": name, "arguments": arguments})


def text_of(content: Any) -> str:
    """Return the text of a string, of parts that have text, or of nothing."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text", "") for part in content)


def calls_of(response: ModelResponse) -> Iterable[tuple[int, ToolCall, str]]:
    """Yield index, call and the text of its arguments as the model wrote it."""
    for index, call in enumerate(response.message.tool_calls):
        raw = response.invalid_arguments.get(index)
        yield index, call, json.dumps(call.arguments, ensure_ascii=False) if raw is None else raw


def cut(text: str) -> Iterator[str]:
    """Yield the pieces of a text, so short that words and numbers are cut too; of an empty text none."""
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]


def event_of(data: Wire, name: str | None = None) -> str:
    """Return a server-sent event, its empty line included."""
    line = f"data: {json.dumps(data, ensure_ascii=False)}\n\n"
    return line if name is None else f"event: {name}\n{line}"


def error_word(status: int) -> str:
    """Return what an error of this status is called."""
    words = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}
    return words.get(status, "api_error")
