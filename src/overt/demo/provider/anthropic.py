"""Anthropic's messages, from the provider's side."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from overt.demo.provider.spoken import (
    Asked,
    Wire,
    asked_of,
    call_of,
    calls_of,
    cut,
    error_word,
    event_of,
    fields,
    many,
    text_of,
    tool_of,
)
from overt.message import (
    AssistantMessage,
    Message,
    ModelResponse,
    SystemMessage,
    ToolMessage,
    Usage,
    UserMessage,
)

__all__ = ("Anthropic",)


class Anthropic:
    """Anthropic's messages."""

    def fits(self, path: str) -> bool:
        """Say whether it is the path of messages."""
        return path == "/v1/messages"

    def read(self, path: str, body: Any) -> Asked:
        """Read a request; results of calls come in the user's messages."""
        if not isinstance(body["max_tokens"], int):
            raise TypeError("max_tokens is no number")
        messages: list[Message] = []
        if body.get("system"):
            messages.append(SystemMessage(text=text_of(body["system"])))
        before = "assistant"
        for item in body["messages"]:
            if item["role"] == before:
                raise ValueError(f"two messages of {before!r} one after the other, or the first is no user's")
            before = item["role"]
            blocks = _blocks(item["content"])
            if item["role"] == "user":
                for block in blocks:
                    if block["type"] == "tool_result":
                        told = text_of(block.get("content", ""))
                        failed = bool(block.get("is_error"))
                        messages.append(
                            ToolMessage(text=told, call_id=block["tool_use_id"], name="", is_error=failed)
                        )
                text = text_of([block for block in blocks if block["type"] == "text"])
                if text:
                    messages.append(UserMessage(text=text))
            else:
                calls = [
                    call_of(block["id"], block["name"], block["input"])
                    for block in blocks
                    if block["type"] == "tool_use"
                ]
                text = text_of([block for block in blocks if block["type"] == "text"])
                messages.append(AssistantMessage(text=text, tool_calls=tuple(calls)))
        tools = [tool_of(tool, tool["input_schema"]) for tool in many(body.get("tools"))]
        form = fields(body, "output_config", "format", "schema")
        return Asked(
            request=asked_of(messages, tools, form, body["model"]), streamed=bool(body.get("stream"))
        )

    def whole(self, response: ModelResponse, id: str) -> Wire:
        """Return a message."""
        return {
            **self._head(response, id),
            "content": self._content(response, id),
            "stop_reason": self._stop(response),
            "usage": self._usage(response.usage),
        }

    def events(self, response: ModelResponse, id: str, *, counted: bool) -> Iterator[str]:
        """Yield the message block by block; input tokens are told first, output tokens last."""

        def event(kind: str, **fields: Any) -> str:
            return event_of({"type": kind, **fields}, kind)

        begun = {**self._usage(response.usage), "output_tokens": 1}
        yield event("message_start", message={**self._head(response, id), "content": [], "usage": begun})
        yield event("ping")
        for index, block in enumerate(self._content(response, id)):
            text = block["type"] == "text"
            empty: Wire = {**block, "text": ""} if text else {**block, "input": {}}
            yield event("content_block_start", index=index, content_block=empty)
            for piece in cut(block["text"] if text else json.dumps(block["input"], ensure_ascii=False)):
                delta = (
                    {"type": "text_delta", "text": piece}
                    if text
                    else {"type": "input_json_delta", "partial_json": piece}
                )
                yield event("content_block_delta", index=index, delta=delta)
            yield event("content_block_stop", index=index)
        end = {"stop_reason": self._stop(response), "stop_sequence": None}
        yield event("message_delta", delta=end, usage=self._usage(response.usage))
        yield event("message_stop")

    def refusal(self, status: int, message: str) -> Wire:
        """Return an error's body."""
        return {"type": "error", "error": {"type": error_word(status), "message": message}}

    def _head(self, response: ModelResponse, id: str) -> Wire:
        return {
            "id": f"msg_{id}",
            "type": "message",
            "role": "assistant",
            "model": response.model,
            "stop_reason": None,
            "stop_sequence": None,
        }

    def _content(self, response: ModelResponse, id: str) -> list[Wire]:
        text = response.message.text
        blocks: list[Wire] = [{"type": "text", "text": text}] if text else []
        for index, call, _ in calls_of(response):
            blocks.append(
                {
                    "type": "tool_use",
                    "id": f"toolu_{id}_{index}",
                    "name": call.name,
                    "input": dict(call.arguments),
                }
            )
        return blocks

    def _stop(self, response: ModelResponse) -> str:
        words = {"tool_calls": "tool_use", "length": "max_tokens", "stop": "end_turn", "unknown": "end_turn"}
        return words.get(response.finish_reason, "refusal")

    def _usage(self, usage: Usage | None) -> Wire:
        # What came from a cache is beside the input here, not within it.
        given = usage or Usage()
        return {
            "input_tokens": given.input_tokens - given.cached_tokens,
            "cache_read_input_tokens": given.cached_tokens,
            "cache_creation_input_tokens": 0,
            "output_tokens": given.output_tokens,
        }


def _blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
