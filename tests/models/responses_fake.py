"""What the Responses API sends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import httpx2
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from tests.models.openai_fake import CASES, FAILED, KEY, REFUSAL, TEXT, THOUGHT, Cut, in_threes, sse

from overt.models import OpenAIResponsesModel

USAGE: dict[str, Any] = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 120,
}


def message(text: str, *, id: str = "msg_1", **more: object) -> dict[str, Any]:
    """A message with one text."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "type": "message",
        "id": id,
        "role": "assistant",
        "status": "completed",
        "content": [part],
        **more,
    }


def function_call(
    arguments: object,
    *,
    call_id: object = "call_a",
    name: str = "look",
    id: str = "fc_1",
    **more: object,
) -> dict[str, Any]:
    """A call."""
    return {
        "type": "function_call",
        "id": id,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
        **more,
    }


def reasoning(*summary: str, id: str = "rs_1", encrypted: str | None = "gAAA…=") -> dict[str, Any]:
    """A reasoning item."""
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"type": "reasoning", "id": id, "summary": parts, "encrypted_content": encrypted}


def response(*output: dict[str, Any], status: str | None = "completed", **more: object) -> dict[str, Any]:
    """A reply."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "model": "gpt-5-mini-2026",
        "output": list(output),
        "usage": USAGE,
        "store": False,
        **more,
    }


def events_of(whole: dict[str, Any], cut: Cut = in_threes) -> list[dict[str, Any]]:
    """The events that OpenAI streams for a reply."""
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}

    def parts(at: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        where = {"item_id": item["id"], "output_index": at}
        if item["type"] == "function_call":
            for piece in cut(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **where, "delta": piece}
            yield {
                "type": "response.function_call_arguments.done",
                **where,
                "arguments": item["arguments"],
            }
        for index, part in enumerate(item.get("summary") or ()):
            there = {**where, "summary_index": index}
            yield {"type": "response.reasoning_summary_part.added", **there, "part": {**part, "text": ""}}
            for piece in cut(part["text"]):
                yield {"type": "response.reasoning_summary_text.delta", **there, "delta": piece}
            yield {"type": "response.reasoning_summary_text.done", **there, "text": part["text"]}
            yield {"type": "response.reasoning_summary_part.done", **there, "part": part}
        for index, part in enumerate(item.get("content") or ()):
            there = {**where, "content_index": index}
            kind, key = {
                "output_text": ("output_text", "text"),
                "refusal": ("refusal", "refusal"),
                "reasoning_text": ("reasoning_text", "text"),
            }[part["type"]]
            yield {"type": "response.content_part.added", **there, "part": {**part, key: ""}}
            for piece in cut(part[key]):
                yield {"type": f"response.{kind}.delta", **there, "delta": piece, "obfuscation": "x"}
            yield {"type": f"response.{kind}.done", **there, key: part[key]}
            yield {"type": "response.content_part.done", **there, "part": part}

    def items() -> Iterator[dict[str, Any]]:
        yield {"type": "response.created", "response": begun}
        yield {"type": "response.in_progress", "response": begun}
        for at, item in enumerate(whole["output"]):
            empty: dict[str, list[Any]] = {key: [] for key in ("content", "summary") if item.get(key)}
            bare = {"arguments": ""} if item["type"] == "function_call" else {}
            partial = {"encrypted_content": "gA"} if item.get("encrypted_content") else {}
            added = {**item, **empty, **bare, **partial, "status": "in_progress"}
            yield {"type": "response.output_item.added", "output_index": at, "item": added}
            yield from parts(at, item)
            yield {"type": "response.output_item.done", "output_index": at, "item": item}
        yield {"type": f"response.{whole['status']}", "response": whole}

    return [{**event, "sequence_number": number} for number, event in enumerate(items())]


def _whole(case: str) -> dict[str, Any]:
    look, at = '{"at": "A1"}', '{"at": "B2"}'
    second = function_call(at, call_id="call_b", id="fc_2")
    outputs: dict[str, list[dict[str, Any]]] = {
        "call": [function_call(look)],
        "calls": [function_call(look), second],
        "reasoning_call": [reasoning(THOUGHT), function_call(look)],
        "truncated": [message(TEXT[:9], status="incomplete")],
        "truncated_call": [{**function_call('{"at": "A'), "status": "incomplete"}],
        "refusal": [{**message(""), "content": [{"type": "refusal", "refusal": REFUSAL}]}],
        "filtered": [],
        "empty": [message("")],
        "bad_arguments": [function_call('{"at": A1')],
        "missing_id": [function_call(look, call_id=None)],
        "empty_id": [function_call(look, call_id="")],
        "repeated_id": [function_call(look), {**second, "call_id": "call_a"}],
        "null_content": [{**message(""), "content": None}],
        "structured": [message('{"value": "A1"}')],
    }
    usage: dict[str, Any] | None = USAGE
    if case == "null_usage":
        usage = dict.fromkeys(USAGE)
    if case == "no_usage":
        usage = None
    if case == "cached_usage":
        usage = {
            **USAGE,
            "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
            "output_tokens_details": {"reasoning_tokens": 5},
        }
    reasons = {
        "truncated": "max_output_tokens",
        "truncated_call": "max_output_tokens",
        "filtered": "content_filter",
        "unknown_finish": "steered",
    }
    if case in reasons:
        more: dict[str, Any] = {"incomplete_details": {"reason": reasons[case]}}
        return response(*outputs.get(case, [message(TEXT)]), usage=usage, status="incomplete", **more)
    return response(*outputs.get(case, [message(TEXT)]), usage=usage)


class ResponsesWire:
    """What the Responses API sends, case by case."""

    cases: ClassVar[tuple[str, ...]] = CASES

    def body(self, case: str) -> bytes:
        """A reply that comes whole."""
        return json.dumps(failed() if case == "error_in_200" else _whole(case)).encode()

    def events(self, case: str) -> list[bytes]:
        """The same reply as a stream."""
        return sse(self.said(case), named=True)

    def said(self, case: str, cut: Cut = in_threes) -> list[Any]:
        if case == "error_in_200":
            begun = events_of(_whole("text"), cut)[:5]
            return [*begun, {"type": "response.failed", "response": failed(), "sequence_number": 5}]
        return events_of(_whole(case), cut)

    def make(self, transport: httpx2.AsyncBaseTransport, **options: Any) -> OpenAIResponsesModel:
        """The adapter over a transport."""
        http = DefaultAsyncHttpxClient(transport=transport)
        client = AsyncOpenAI(api_key=KEY, http_client=http)
        return OpenAIResponsesModel("gpt-5-mini", client=client, **options)


def failed() -> dict[str, Any]:
    """A reply that failed."""
    error = {"code": FAILED["type"], "message": FAILED["message"]}
    return response(status="failed", error=error, usage=USAGE)
