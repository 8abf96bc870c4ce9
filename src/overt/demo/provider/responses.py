"""OpenAI's responses, from the provider's side."""

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
    ToolCall,
    ToolMessage,
    UserMessage,
)

__all__ = ("OpenAIResponses",)


class OpenAIResponses:
    """OpenAI's responses."""

    def fits(self, path: str) -> bool:
        """Say whether it is the path of responses."""
        return path == "/v1/responses"

    def read(self, path: str, body: Any) -> Asked:
        """Read a request; what an assistant said and called one after another is one message."""
        messages: list[Message] = []
        if body.get("instructions"):
            messages.append(SystemMessage(text=body["instructions"]))
        items: list[Any] = (
            [{"role": "user", "content": body["input"]}] if isinstance(body["input"], str) else body["input"]
        )
        for item in items:
            kind, role = item.get("type", "message"), item.get("role")
            if kind == "message" and role in ("system", "developer"):
                messages.append(SystemMessage(text=text_of(item["content"])))
            elif kind == "message" and role == "user":
                messages.append(UserMessage(text=text_of(item["content"])))
            elif kind == "message":
                _join(messages, text=text_of(item["content"]))
            elif kind == "function_call":
                _join(messages, call=call_of(item["call_id"], item["name"], json.loads(item["arguments"])))
            elif kind == "function_call_output":
                messages.append(ToolMessage(text=text_of(item["output"]), call_id=item["call_id"], name=""))
            elif kind != "reasoning":
                raise ValueError(f"unknown item {kind!r}")
        tools = [tool_of(tool, tool.get("parameters")) for tool in many(body.get("tools"))]
        form = fields(body, "text", "format", "schema")
        return Asked(
            request=asked_of(messages, tools, form, body["model"]), streamed=bool(body.get("stream"))
        )

    def whole(self, response: ModelResponse, id: str) -> Wire:
        """Return a response."""
        return self._response(response, id, self._status(response), self._output(response, id))

    def events(self, response: ModelResponse, id: str, *, counted: bool) -> Iterator[str]:
        """Yield what happens to the response, item after item."""
        number = iter(range(1_000_000))

        def event(kind: str, **fields: Any) -> str:
            return event_of({"type": kind, "sequence_number": next(number), **fields}, kind)

        begun = self._response(response, id, "in_progress", [])
        yield event("response.created", response=begun)
        yield event("response.in_progress", response=begun)
        for index, item in enumerate(self._output(response, id)):
            empty: Wire = {"content": []} if item["type"] == "message" else {"arguments": ""}
            started = {**item, **empty, "status": "in_progress"}
            at: Wire = {"item_id": item["id"], "output_index": index}
            yield event("response.output_item.added", output_index=index, item=started)
            if item["type"] == "message":
                (part,) = item["content"]
                within = {**at, "content_index": 0}
                yield event("response.content_part.added", **within, part={**part, "text": ""})
                for piece in cut(part["text"]):
                    yield event("response.output_text.delta", **within, delta=piece, logprobs=[])
                yield event("response.output_text.done", **within, text=part["text"], logprobs=[])
                yield event("response.content_part.done", **within, part=part)
            else:
                for piece in cut(item["arguments"]):
                    yield event("response.function_call_arguments.delta", **at, delta=piece)
                done = {"arguments": item["arguments"], "name": item["name"]}
                yield event("response.function_call_arguments.done", **at, **done)
            yield event("response.output_item.done", output_index=index, item=item)
        status = self._status(response)
        yield event(f"response.{status}", response=self.whole(response, id))

    def refusal(self, status: int, message: str) -> Wire:
        """Return an error's body."""
        return {"error": {"message": message, "type": error_word(status), "param": None, "code": None}}

    def _status(self, response: ModelResponse) -> str:
        return "incomplete" if response.finish_reason in ("length", "content_filter") else "completed"

    def _response(self, response: ModelResponse, id: str, status: str, output: list[Wire]) -> Wire:
        usage = response.usage if status != "in_progress" else None
        reason = "max_output_tokens" if response.finish_reason == "length" else "content_filter"
        return {
            "id": f"resp_{id}",
            "object": "response",
            "created_at": 1,
            "model": response.model,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": reason} if status == "incomplete" else None,
            "instructions": None,
            "metadata": {},
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": None
            if usage is None
            else {
                "input_tokens": usage.input_tokens,
                "input_tokens_details": {"cached_tokens": usage.cached_tokens},
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
                "total_tokens": usage.total_tokens,
            },
        }

    def _output(self, response: ModelResponse, id: str) -> list[Wire]:
        items: list[Wire] = []
        if response.message.text:
            part: Wire = {
                "type": "output_text",
                "text": response.message.text,
                "annotations": [],
                "logprobs": [],
            }
            said = {"type": "message", "id": f"msg_{id}", "status": "completed", "role": "assistant"}
            items.append({**said, "content": [part]})
        for index, call, text in calls_of(response):
            names = {"id": f"fc_{id}_{index}", "call_id": f"call_{id}_{index}", "name": call.name}
            items.append({"type": "function_call", **names, "arguments": text, "status": "completed"})
        return items


def _join(messages: list[Message], *, text: str = "", call: ToolCall | None = None) -> None:
    """Add to what the assistant says last, or begin it."""
    last = messages.pop() if messages and isinstance(messages[-1], AssistantMessage) else AssistantMessage()
    assert isinstance(last, AssistantMessage)
    calls = last.tool_calls if call is None else (*last.tool_calls, call)
    messages.append(AssistantMessage(text=last.text + text, tool_calls=calls))
