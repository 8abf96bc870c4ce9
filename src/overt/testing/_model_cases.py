"""What a provider answers in the conformance checks of models, and what has to come out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from overt.message import Usage

__all__ = ("MODEL_CASES", "CaseCall", "ModelCase")

Finish: TypeAlias = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"]
Part: TypeAlias = Literal["text", "calls", "finish"]

TEXT = "Hello, wörld 🎉"
OUTPUT = '{"city":"Oslo"}'
KEY = "sk-kit0123456789abcdefghij"
ACCOUNT = "org-Kit0123456789abcdefghij"
REQUEST_ID = "req_kit_1"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseCall:
    """A tool call in a provider's answer.

    Attributes:
        tool: Name of the tool.
        arguments: The arguments as the model wrote them, JSON or not.
        id: The provider's id; `None` where it gives none.
    """

    tool: str = "look"
    arguments: str = '{"at":"A1"}'
    id: str | None = "call_a"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCase:
    """One answer of a provider. How it looks on the wire is for the bench to say.

    Attributes:
        name: Identifier of the case. What no field says is told by it: `error_in_200`, `cut_off`, `null_content`,
            `null_usage`, `unreachable`, `silent`.
        says: The answer in words.
        text: The text of the reply.
        calls: The tool calls of the reply.
        reasoning: The reasoning beside it, with whatever opaque parts the provider wants back; `None` for none.
        finish: Why the reply ends, in words of `ModelResponse.finish_reason`.
        raw_finish: A reason no adapter knows, to be sent as it is; `None`: the provider's own word for `finish`.
        usage: What the reply reports; `None` where it reports nothing.
        free: What the provider may say otherwise than written here.
        status: HTTP status of the answer.
        headers: Headers of the answer, beside those every answer has.
        body: The answer's body, to be sent as it is; `None`: a reply in the provider's own form.
        fails: Whether `ModelError` has to come of it.
    """

    name: str
    says: str
    text: str = ""
    calls: tuple[CaseCall, ...] = ()
    reasoning: str | None = None
    finish: Finish = "stop"
    raw_finish: str | None = None
    usage: Usage | None = field(
        default_factory=lambda: Usage(input_tokens=100, output_tokens=20, total_tokens=120)
    )
    free: frozenset[Part] = frozenset()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType(dict[str, str]()))
    body: str | None = None
    fails: bool = False


_ONE = (CaseCall(),)
_TWO = (CaseCall(), CaseCall(arguments='{"at":"B2"}', id="call_b"))


def _error(message: str) -> str:
    return f'{{"error":{{"message":"{message}","type":"kit_error","code":"kit"}}}}'


_REPLIES = (
    ModelCase(name="text", says="The text `Hello, wörld 🎉`.", text=TEXT),
    ModelCase(name="call", says='A call of `look` with `{"at":"A1"}`.', calls=_ONE, finish="tool_calls"),
    ModelCase(
        name="calls",
        says='Two calls of `look`, with `{"at":"A1"}` and `{"at":"B2"}`.',
        calls=_TWO,
        finish="tool_calls",
    ),
    ModelCase(
        name="reasoning_call",
        says="Reasoning, in the form the provider wants back, and then the call.",
        calls=_ONE,
        reasoning="A1 comes first.",
        finish="tool_calls",
        free=frozenset({"text"}),
    ),
    ModelCase(
        name="truncated",
        says="Text that the output limit cuts off.",
        text="Hello, wö",
        finish="length",
        free=frozenset({"text"}),
    ),
    ModelCase(
        name="truncated_call",
        says="A call of `look` that the output limit cuts off within its arguments.",
        calls=(CaseCall(arguments='{"at":"A'),),
        finish="length",
        free=frozenset({"text", "calls"}),
    ),
    ModelCase(
        name="refusal",
        says="The model refuses, in the provider's own form, in whatever words.",
        text="I cannot help with that.",
        finish="refusal",
        free=frozenset({"text"}),
    ),
    ModelCase(
        name="filtered",
        says="The provider's content filter ends the reply.",
        finish="content_filter",
        free=frozenset({"text"}),
    ),
    ModelCase(name="empty", says="Nothing: neither text nor calls."),
    ModelCase(
        name="null_content",
        says="`null` where the text would be.",
        free=frozenset({"calls", "finish"}),
    ),
    ModelCase(
        name="unknown_finish",
        says="Text, ended for a reason nobody has heard of.",
        text=TEXT,
        finish="unknown",
        raw_finish="kit_reason",
        free=frozenset({"text"}),
    ),
    ModelCase(
        name="bad_arguments",
        says="A call of `look` whose arguments are no JSON object.",
        calls=(CaseCall(arguments='{"at": A1}'),),
        finish="tool_calls",
        free=frozenset({"calls"}),
    ),
    ModelCase(
        name="missing_id", says="A call without an id.", calls=(CaseCall(id=None),), finish="tool_calls"
    ),
    ModelCase(
        name="empty_id", says="A call whose id is empty.", calls=(CaseCall(id=""),), finish="tool_calls"
    ),
    ModelCase(
        name="repeated_id",
        says="The two calls, under one id.",
        calls=(CaseCall(), CaseCall(arguments='{"at":"B2"}')),
        finish="tool_calls",
    ),
    ModelCase(name="no_usage", says="The text, and nothing about usage.", text=TEXT, usage=None),
    ModelCase(
        name="null_usage", says="The text; usage is there, its counts are `null`.", text=TEXT, usage=None
    ),
    ModelCase(
        name="cached_usage",
        says="The text; of 100 tokens sent 60 are from the cache, of 20 received 5 are reasoning, if it can say so.",
        text=TEXT,
        usage=Usage(
            input_tokens=100,
            output_tokens=20,
            cached_tokens=60,
            cache_write_tokens=10,
            reasoning_tokens=5,
            total_tokens=120,
        ),
    ),
    ModelCase(
        name="structured",
        says='The answer `{"city":"Oslo"}`, as the provider gives an answer by a schema.',
        text=OUTPUT,
        free=frozenset({"text"}),
    ),
    ModelCase(
        name="final_call",
        says='A call of `final_result` with `{"city":"Oslo"}`: typed output of a provider without schemas.',
        calls=(CaseCall(tool="final_result", arguments=OUTPUT),),
        finish="tool_calls",
    ),
)

_FAILURES = (
    ModelCase(
        name="error_in_200",
        says="An error in the body, or as an event of the stream, of status 200.",
        fails=True,
    ),
    ModelCase(
        name="cut_off",
        says="The stream of `text`, whose connection ends in the middle.",
        text=TEXT,
        fails=True,
    ),
    ModelCase(name="web_page", says="A web page.", body="<!doctype html><title>Hi</title>", fails=True),
    ModelCase(
        name="bad_request",
        says="Status 400, with a key and an account's id in the body.",
        status=400,
        headers={"x-request-id": REQUEST_ID},
        body=_error(f"kit refuses: key {KEY} of {ACCOUNT}"),
        fails=True,
    ),
    ModelCase(
        name="denied",
        says="Status 401, with a key and an account's id in the body.",
        status=401,
        headers={"x-request-id": REQUEST_ID},
        body=_error(f"kit denies: key {KEY} of {ACCOUNT}"),
        fails=True,
    ),
    ModelCase(
        name="rate_limited",
        says="Status 429, with `Retry-After: 7`.",
        status=429,
        headers={"retry-after": "7", "x-request-id": REQUEST_ID},
        body=_error("kit is busy"),
        fails=True,
    ),
    ModelCase(name="server_error", says="Status 500.", status=500, body=_error("kit has failed"), fails=True),
    ModelCase(name="unreachable", says="Nothing: nobody listens there.", fails=True),
    ModelCase(name="silent", says="Nothing: the request is taken and never answered.", fails=True),
)

MODEL_CASES: Final[Mapping[str, ModelCase]] = MappingProxyType(
    {case.name: case for case in (*_REPLIES, *_FAILURES)}
)
"""Every case of the checks, by name."""
