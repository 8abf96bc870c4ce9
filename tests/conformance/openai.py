"""OpenAI's wires with the answers of the conformance checks, and an endpoint that takes no schema for the answer."""

from __future__ import annotations

import json
from typing import Any

from tests.models.openai_fake import OpenAIWire, calls, chunks, reply, sse
from tests.models.responses_fake import ResponsesWire, events_of, message, response

from overt.models import OpenAIModel

__all__ = ("ChatWire", "CompatibleWire", "ItemsWire")

ANSWER = '{"city": "Oslo"}'
_USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
_OWN = {
    "structured": reply(content=ANSWER, usage=_USAGE),
    "final_call": reply(
        tool_calls=calls(("call_a", "final_result", ANSWER)), finish_reason="tool_calls", usage=_USAGE
    ),
}


class ChatWire(OpenAIWire):
    """Chat completions."""

    def body(self, case: str) -> bytes:
        return json.dumps(_OWN[case]).encode() if case in _OWN else super().body(case)

    def events(self, case: str) -> list[bytes]:
        return sse(chunks(_OWN[case])) if case in _OWN else super().events(case)


class CompatibleWire(ChatWire):
    """The same of another host: typed output comes by a call."""

    def make(self, transport: Any, **options: Any) -> OpenAIModel:
        return super().make(transport, structured_output=False, output_limit_field="max_tokens", **options)


class ItemsWire(ResponsesWire):
    """The Responses API."""

    def body(self, case: str) -> bytes:
        return json.dumps(response(message(ANSWER))).encode() if case == "structured" else super().body(case)

    def events(self, case: str) -> list[bytes]:
        if case == "structured":
            return sse(events_of(response(message(ANSWER))), named=True)
        return super().events(case)
