"""Replies of Anthropic's messages API, read. Knows no client and no network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, TypeAlias

from pydantic import JsonValue

from overt._text import clean
from overt.message import AssistantMessage, ModelRequest, ModelResponse, ToolCall, Usage
from overt.models._wire import Wire, count, json_copy, mapping, names_of, read_call, text_of

__all__ = (
    "Content",
    "Finish",
    "chained",
    "digest_of",
    "finish_of",
    "number_of",
    "read_content",
    "read_reply",
    "refusal_of",
    "said_number",
    "usage_of",
)

Finish: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"]

_FINISH: Mapping[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    # Cut off in the middle, by a server's own tools; what there is of it is no answer.
    "pause_turn": "length",
    "refusal": "refusal",
}


def digest_of(value: object) -> bytes:
    """Return a digest of a JSON value, whatever the order of its keys."""
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).digest()


def chained(before: bytes, digest: bytes) -> bytes:
    """Return the digest of what `before` stands for with one thing more behind it."""
    return blake2b(before + digest, digest_size=16).digest()


def number_of(digest: bytes) -> int:
    """Return a digest as a number that JSON keeps exactly."""
    return int.from_bytes(digest[:6], "big")


def said_number(text: str, calls: Sequence[ToolCall]) -> int:
    """Return a number for what a message says, by which it is known whether it is still that."""
    return number_of(digest_of([text, [[call.name, call.arguments] for call in calls]]))


@dataclass(slots=True)
class Content:
    """What the blocks of a reply say."""

    text: str
    calls: tuple[ToolCall, ...]
    invalid: dict[int, str]
    reasoning: str | None
    opaque: dict[str, JsonValue] | None


def read_content(
    content: Sequence[object], *, names: Mapping[str, str], provider: str, prefix: int, cut: bool
) -> Content:
    """Read the blocks of a reply.

    Args:
        content: The blocks; what is missing or of another type in them is read as absent.
        names: The tools' own names by those they were offered under.
        provider: Under which name opaque parts are kept.
        prefix: The number of the request.
        cut: Whether the reply was cut off.

    Returns:
        What they say. A call without arguments has `{}`; where the reply was cut off within it, it has none yet.
    """
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    invalid: dict[int, str] = {}
    layout: list[JsonValue] = []
    blocks = [mapping(item) for item in content]
    opaque = [
        at for at, block in enumerate(blocks) if block and block.get("type") not in ("text", "tool_use")
    ]
    for at, block in enumerate(blocks):
        kind = block.get("type")
        if kind == "text":
            texts.append(text_of(block.get("text")))
            layout.append(len(texts) - 1)
        elif kind == "tool_use":
            arguments = block.get("input")
            if arguments is None or arguments in ("", {}):
                arguments = "" if cut and at == len(blocks) - 1 else "{}"
            call, wrong = read_call(len(calls), block.get("id"), block.get("name"), arguments, names)
            if wrong is not None:
                invalid[len(calls)] = wrong
            calls.append(call)
            more = {key: json_copy(block[key]) for key in block if key not in ("type", "id", "name", "input")}
            if opaque and at < opaque[-1] and isinstance(block.get("id"), str):
                # What is thought behind it is thought with this id in sight.
                more["id"] = json_copy(block["id"])
            layout.append({"call": more})
        elif block:
            if kind == "thinking" and (thought := text_of(block.get("thinking"))):
                thoughts.append(thought)
            layout.append({"block": json_copy(dict(block))})
    text = clean("".join(texts))
    own: Wire | None = None
    if opaque and "".join(map(clean, texts)) == text:
        own = {
            "prefix": prefix,
            "said": said_number(text, calls),
            "blocks": [len(clean(texts[entry])) if isinstance(entry, int) else entry for entry in layout],
        }
    return Content(
        text=text,
        calls=tuple(calls),
        invalid=invalid,
        reasoning=clean("\n\n".join(thoughts)) if thoughts else None,
        opaque=None if own is None else {provider: own},
    )


def read_reply(
    body: Mapping[str, object],
    content: Sequence[object],
    request: ModelRequest,
    *,
    provider: str,
    prefix: int,
) -> ModelResponse:
    """Read a reply.

    Args:
        body: The reply.
        content: Its blocks.
        request: What was asked, for the names of the tools.
        provider: Under which name opaque parts are kept.
        prefix: The number of the request.

    Returns:
        The response. Ids of calls are not empty, and may repeat where the provider repeats them.
    """
    reason = body.get("stop_reason")
    said = read_content(
        content,
        names=names_of(request),
        provider=provider,
        prefix=prefix,
        cut=finish_of(reason, calls=False)[0] == "length",
    )
    finish, raw = finish_of(reason, calls=bool(said.calls))
    excuse = "" if said.text else refusal_of(body)
    return ModelResponse(
        message=AssistantMessage(
            text=said.text or excuse,
            tool_calls=said.calls,
            reasoning=said.reasoning,
            opaque=None if excuse else said.opaque,
        ),
        usage=usage_of(body.get("usage")),
        finish_reason=finish,
        raw_finish_reason=raw,
        model=clean(text_of(body.get("model"))),
        invalid_arguments=said.invalid,
    )


def finish_of(reason: object, *, calls: bool) -> tuple[Finish, str | None]:
    """Return why a reply ended, and the provider's own word."""
    raw = clean(reason) if isinstance(reason, str) else None
    found = _FINISH.get(raw or "", "unknown")
    return "tool_calls" if calls and found == "stop" else found, raw


def refusal_of(body: Mapping[str, object]) -> str:
    """Return what is said of a refusal; nothing where it is none, or nothing is said."""
    if body.get("stop_reason") != "refusal":
        return ""
    return clean(text_of(mapping(body.get("stop_details")).get("explanation")))


def usage_of(value: object) -> Usage | None:
    """Return the usage a body reports; `None` where it says nothing of it."""
    usage = mapping(value)
    sent, read, written, received = (
        count(usage.get(key))
        for key in (
            "input_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
            "output_tokens",
        )
    )
    if sent is None and received is None:
        return None
    # Tokens from the cache and into it are told beside the others, not among them.
    total_input = (sent or 0) + (read or 0) + (written or 0)
    return Usage(
        input_tokens=total_input,
        output_tokens=received or 0,
        cached_tokens=read or 0,
        cache_write_tokens=written or 0,
        reasoning_tokens=count(mapping(usage.get("output_tokens_details")).get("thinking_tokens")) or 0,
        total_tokens=total_input + (received or 0),
    )
