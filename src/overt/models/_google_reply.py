"""Replies of Gemini's generateContent, whole and streamed, read by one reader. Knows no client and no network."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias, cast

from pydantic import JsonValue

from overt._text import clean
from overt.message import ModelDelta, ModelRequest, ToolCallDelta, Usage
from overt.models._google_wire import function_names
from overt.models._wire import Wire, count, json_copy, mapping, text_of

__all__ = ("Reader", "error_of", "usage_of")

_Finish: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"]

_FINISH: Mapping[str, _Finish] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    # The reply would go on in another request.
    "CONTINUATION": "length",
    **dict.fromkeys(
        (
            "BLOCKLIST",
            "ESCALATION",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "IMAGE_SAFETY",
            "LANGUAGE",
            "MODEL_ARMOR",
            "PROHIBITED_CONTENT",
            "RECITATION",
            "SAFETY",
            "SPII",
        ),
        "content_filter",
    ),
}
# Ends that leave no reply to go on with, by whether asking again may help. What came before them is not the answer.
_FAILED = {
    "MALFORMED_FUNCTION_CALL": ("MalformedFunctionCall", True),
    "MALFORMED_RESPONSE": ("MalformedResponse", True),
    "MISSING_THOUGHT_SIGNATURE": ("MissingThoughtSignature", False),
    "TOO_MANY_TOOL_CALLS": ("TooManyToolCalls", True),
    "UNEXPECTED_TOOL_CALL": ("UnexpectedToolCall", True),
}
_STATUSES = {
    "DEADLINE_EXCEEDED": 504,
    "FAILED_PRECONDITION": 400,
    "INTERNAL": 500,
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "UNAUTHENTICATED": 401,
    "UNAVAILABLE": 503,
}
_COUNTS = (
    "promptTokenCount",
    "candidatesTokenCount",
    "totalTokenCount",
    "cachedContentTokenCount",
    "thoughtsTokenCount",
    "toolUsePromptTokenCount",
)


class _Piece:
    """One part of a reply as it is kept: how many characters of the text or reasoning, which call, or all of it."""

    __slots__ = ("id", "kind", "rest", "text")

    def __init__(self, kind: Literal["text", "thought", "call", "part"], rest: Wire) -> None:
        self.kind = kind
        self.rest = rest
        self.text: list[str] = []
        self.id: str = ""


class Reader:
    """Reads one reply, in one body or in several.

    Args:
        request: What was asked, for the names of the tools.
        provider: Under which name opaque parts are kept.

    Attributes:
        usage: What the reply has used so far, `None` while nothing is said of it.
        begun: Whether there was a candidate, or the reason why there is none.
        failed: What ended the reply so that there is none: the error's type, Google's own words, and whether asking
            again may help.
    """

    def __init__(self, request: ModelRequest, *, provider: str) -> None:
        self._names = function_names(request)
        self._provider = provider
        self._counts: dict[str, object] = {}
        self._pieces: list[_Piece] = []
        self._calls = 0
        self._finish: str | None = None
        self._blocked: str | None = None
        self.usage: Usage | None = None
        self.begun: bool = False
        self.failed: tuple[str, str, bool] | None = None

    def read(self, body: Mapping[str, object]) -> Iterator[ModelDelta]:
        """Read a body, the whole reply or the next event of it; what is missing or of another type is absent."""
        model = text_of(body.get("modelVersion")) or None
        usage = mapping(body.get("usageMetadata"))
        if usage:
            # A count that is zero may be left out, and counts never fall.
            self._counts.update({key: usage[key] for key in _COUNTS if count(usage.get(key)) is not None})
            self.usage = usage_of(self._counts)
        if model or usage:
            yield ModelDelta(model=model, usage=self.usage)
        candidate = _candidate(body.get("candidates"))
        if candidate is None:
            reason = text_of(mapping(body.get("promptFeedback")).get("blockReason"))
            if reason:
                self.begun, self._blocked = True, reason
            return
        self.begun = True
        parts = mapping(candidate.get("content")).get("parts")
        for item in cast("list[object]", parts) if isinstance(parts, list) else []:
            yield from self._part(mapping(item))
        reason = text_of(candidate.get("finishReason"))
        if reason:
            self._finish = reason
            if reason in _FAILED:
                kind, again = _FAILED[reason]
                more = text_of(candidate.get("finishMessage"))
                self.failed = (kind, f"the reply ended with {reason}{f': {more}' if more else ''}", again)

    def _part(self, part: Mapping[str, object]) -> Iterator[ModelDelta]:
        rest = {
            key: json_copy(value)
            for key, value in part.items()
            if value is not None and key not in ("text", "functionCall")
        }
        text = part.get("text")
        call = part.get("functionCall")
        if isinstance(call, dict):
            piece = _Piece("call", rest)
            self._pieces.append(piece)
            yield self._call(cast("dict[str, object]", call), piece)
        elif isinstance(text, str):
            thought = part.get("thought") is True
            rest.pop("thought", None)
            self._add_text("thought" if thought else "text", text, rest)
            if text:
                yield ModelDelta(reasoning=text) if thought else ModelDelta(text=text)
        elif rest:
            self._pieces.append(_Piece("part", rest))

    def _add_text(self, kind: Literal["text", "thought"], text: str, rest: Wire) -> None:
        last = self._pieces[-1] if self._pieces else None
        # A part with a signature is not to be joined with one that has none, nor with another that has one.
        if last is None or rest or last.rest or last.kind != kind:
            if not text and not rest:
                return
            last = _Piece(kind, rest)
            self._pieces.append(last)
        last.text.append(text)

    def _call(self, call: dict[str, object], piece: _Piece) -> ModelDelta:
        index, self._calls = self._calls, self._calls + 1
        name, args = clean(text_of(call.get("name"))), call.get("args")
        if call.get("partialArgs") is not None or call.get("willContinue"):
            # Pieces of arguments, which nobody asked for, are not to be taken for all of them.
            args = json.dumps([call.get("partialArgs")])
        piece.id = clean(text_of(call.get("id")))
        return ModelDelta(
            tool_call=ToolCallDelta(
                index=index,
                id=piece.id or f"call_{index}",
                name=self._names.get(name, name),
                # An object that may be left out where it is empty, unlike a text.
                arguments="{}"
                if args is None
                else args
                if isinstance(args, str)
                else json.dumps(args, ensure_ascii=False),
            )
        )

    def end(self, *, whole: bool) -> ModelDelta:
        """Return what only the end of a reply tells.

        Args:
            whole: Whether no more can be missing: then a reply without a reason has an unknown one. Otherwise it has
                none, which says that the stream broke off.
        """
        raw = self._finish or self._blocked
        finish: _Finish | None = None
        if self._finish is not None:
            finish = _FINISH.get(self._finish, "unknown")
            if finish == "stop" and self._calls:
                finish = "tool_calls"
        elif self._blocked is not None:
            finish = "content_filter"
        elif whole:
            finish = "unknown"
        layout = self._layout()
        return ModelDelta(
            finish_reason=finish,
            raw_finish_reason=None if raw is None else clean(raw),
            opaque={self._provider: {"parts": layout}} if layout else None,
        )

    def _layout(self) -> list[JsonValue]:
        """Return what it takes to send the parts back as they came; nothing where text and calls will do."""
        ids = [piece.id for piece in self._pieces if piece.id]
        unique = len(set(ids)) == len(ids)
        layout: list[JsonValue] = []
        index = 0
        plain = True
        for piece in self._pieces:
            entry: Wire
            if piece.kind == "call":
                entry = {"call": index}
                index += 1
                if piece.id and unique:
                    entry["id"] = piece.id
                    plain = False
            elif piece.kind == "part":
                entry = {}
            else:
                entry = {piece.kind: len(clean("".join(piece.text)))}
                plain = plain and piece.kind == "text" and not index
            if piece.rest:
                entry["with"] = piece.rest
                plain = False
            layout.append(entry)
        return [] if plain else layout


def error_of(body: object) -> Mapping[str, object] | None:
    """Return the error a body is, also one in a list, with its status as a number; `None` where it is none."""
    listed = cast("list[object]", body) if isinstance(body, list) else [body]
    wrong = mapping(listed[0]).get("error") if listed else None
    if not wrong:
        return None
    if not isinstance(wrong, dict):
        return {"message": wrong}
    fields = cast("dict[str, object]", wrong)
    status = _STATUSES.get(text_of(fields.get("status")))
    return fields if status is None else {"code": status, **fields, "status": status}


def usage_of(value: object) -> Usage | None:
    """Return the usage a body reports; `None` where it says nothing of it."""
    usage = mapping(value)
    prompt, candidates, total, cached, thoughts, tool_use = (count(usage.get(key)) for key in _COUNTS)
    if prompt is None and candidates is None and total is None:
        return None
    # What built-in tools gave the model, and what it thought, are counted beside the prompt and the reply.
    received = None if candidates is None and thoughts is None else (candidates or 0) + (thoughts or 0)
    sent = max((total or 0) - (received or 0), 0) if prompt is None else prompt + (tool_use or 0)
    if candidates is None and total is not None:
        received = max(total - sent, received or 0)
    received = received or 0
    return Usage(
        input_tokens=sent,
        output_tokens=received,
        cached_tokens=cached or 0,
        reasoning_tokens=thoughts or 0,
        total_tokens=total if total is not None else sent + received,
    )


def _candidate(value: object) -> Mapping[str, object] | None:
    """Return the first candidate; others are only there where somebody asked for several."""
    for item in cast("list[object]", value) if isinstance(value, list) else []:
        candidate = mapping(item)
        if candidate and (count(candidate.get("index")) or 0) == 0:
            return candidate
    return None
