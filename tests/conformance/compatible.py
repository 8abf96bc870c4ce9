"""An endpoint that speaks OpenAI's chat completions and takes no schema for the answer."""

from __future__ import annotations

import json
from typing import Any

from tests.models.openai_fake import OpenAIWire, calls, chunks, reply, sse

from overt.message import Model

__all__ = ("CompatibleWire",)


class CompatibleWire(OpenAIWire):
    """OpenAI's wire; typed output comes by a call."""

    def body(self, case: str) -> bytes:
        return json.dumps(_final()).encode() if case == "final_call" else super().body(case)

    def events(self, case: str) -> list[bytes]:
        return sse(chunks(_final())) if case == "final_call" else super().events(case)

    def make(self, transport: Any, **options: Any) -> Model:
        return super().make(transport, structured_output=False, output_limit_field="max_tokens", **options)


def _final() -> dict[str, Any]:
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    answer = calls(("call_a", "final_result", '{"city": "Oslo"}'))
    return reply(tool_calls=answer, finish_reason="tool_calls", usage=usage)
