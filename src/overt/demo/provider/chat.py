"""OpenAI's chat completions, from the provider's side."""

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

__all__ = ("OpenAIChat",)


class OpenAIChat:
    """OpenAI's chat completions."""

    def fits(self, path: str) -> bool:
        """Say whether it is the path of chat completions."""
        return path == "/v1/chat/completions"

    def read(self, path: str, body: Any) -> Asked:
        """Read a request."""
        messages: list[Message] = []
        for item in body["messages"]:
            match item["role"]:
                case "system" | "developer":
                    messages.append(SystemMessage(text=text_of(item["content"])))
                case "user":
                    messages.append(UserMessage(text=text_of(item["content"])))
                case "tool":
                    messages.append(
                        ToolMessage(text=text_of(item["content"]), call_id=item["tool_call_id"], name="")
                    )
                case role:
                    if role != "assistant":
                        raise ValueError(f"unknown role {role!r}")
                    calls = [
                        call_of(
                            call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])
                        )
                        for call in many(item.get("tool_calls"))
                    ]
                    messages.append(AssistantMessage(text=text_of(item["content"]), tool_calls=tuple(calls)))
        tools = [
            tool_of(tool["function"], tool["function"].get("parameters")) for tool in many(body.get("tools"))
        ]
        form = fields(body, "response_format", "json_schema", "schema")
        return Asked(
            request=asked_of(messages, tools, form, body["model"]),
            streamed=bool(body.get("stream")),
            counted=bool(fields(body, "stream_options", "include_usage")),
        )

    def whole(self, response: ModelResponse, id: str) -> Wire:
        """Return a chat completion."""
        message: Wire = {"role": "assistant", "content": response.message.text or None, "refusal": None}
        if response.message.tool_calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{id}_{index}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": text},
                }
                for index, call, text in calls_of(response)
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish(response)}
        return {
            **self._head(response, id, "chat.completion"),
            "choices": [choice],
            "usage": self._usage(response.usage),
        }

    def events(self, response: ModelResponse, id: str, *, counted: bool) -> Iterator[str]:
        """Yield chunks and the mark of their end."""
        head = self._head(response, id, "chat.completion.chunk")

        def chunk(delta: Wire, finish: str | None = None) -> str:
            return event_of(
                {
                    **head,
                    "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
                }
            )

        yield chunk({"role": "assistant", "content": ""})
        for piece in cut(response.message.text):
            yield chunk({"content": piece})
        for index, call, text in calls_of(response):
            begin = {"id": f"call_{id}_{index}", "type": "function"}
            function = {"name": call.name, "arguments": ""}
            yield chunk({"tool_calls": [{"index": index, **begin, "function": function}]})
            for piece in cut(text):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield chunk({}, self._finish(response))
        if counted:
            yield event_of({**head, "choices": [], "usage": self._usage(response.usage)})
        yield "data: [DONE]\n\n"

    def refusal(self, status: int, message: str) -> Wire:
        """Return an error's body."""
        return {"error": {"message": message, "type": error_word(status), "param": None, "code": None}}

    def _head(self, response: ModelResponse, id: str, kind: str) -> Wire:
        return {"id": f"chatcmpl-{id}", "object": kind, "created": 1, "model": response.model}

    def _finish(self, response: ModelResponse) -> str:
        return {"refusal": "stop", "unknown": "stop"}.get(response.finish_reason, response.finish_reason)

    def _usage(self, usage: Usage | None) -> Wire | None:
        if usage is None:
            return None
        return {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        }
