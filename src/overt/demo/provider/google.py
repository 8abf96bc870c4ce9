"""Google's generateContent, from the provider's side."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

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

__all__ = ("Google",)


class Google:
    """Google's generateContent."""

    _PATH = re.compile(r"/v1(?:beta)?/models/([^:/]+):(generateContent|streamGenerateContent)")

    def fits(self, path: str) -> bool:
        """Say whether it is a path of this provider."""
        return self._PATH.fullmatch(path) is not None

    def read(self, path: str, body: Any) -> Asked:
        """Read a request; results of calls are matched by id, or by their place where there is none."""
        found = self._PATH.fullmatch(path)
        if found is None:
            raise ValueError(f"unknown path {path!r}")
        messages: list[Message] = []
        system = body.get("systemInstruction")
        if system:
            messages.append(SystemMessage(text=text_of(system["parts"])))
        calls: list[ToolCall] = []
        for number, item in enumerate(body["contents"]):
            parts: list[Any] = [part for part in item["parts"] if not part.get("thought")]
            text = text_of([part for part in parts if "text" in part])
            if item.get("role") == "model":
                calls = [
                    call_of(
                        call.get("id") or f"{number}.{index}",
                        call["name"],
                        call.get("args") or {},
                    )
                    for index, call in enumerate(
                        part["functionCall"] for part in parts if "functionCall" in part
                    )
                ]
                messages.append(AssistantMessage(text=text, tool_calls=tuple(calls)))
                continue
            for index, result in enumerate(
                part["functionResponse"] for part in parts if "functionResponse" in part
            ):
                id = result.get("id") or (calls[index].id if index < len(calls) else "none")
                told = json.dumps(result["response"], ensure_ascii=False)
                messages.append(
                    ToolMessage(text=_result(result["response"], told), call_id=id, name=result["name"])
                )
            if text:
                messages.append(UserMessage(text=text))
        tools = [
            tool_of(tool, tool.get("parametersJsonSchema") or tool.get("parameters"))
            for group in many(body.get("tools"))
            for tool in many(group.get("functionDeclarations"))
        ]
        config = body.get("generationConfig")
        form = fields(config, "responseJsonSchema") or fields(config, "responseSchema")
        return Asked(
            request=asked_of(messages, tools, form, found[1]), streamed=found[2] == "streamGenerateContent"
        )

    def whole(self, response: ModelResponse, id: str) -> Wire:
        """Return a response with one candidate."""
        return self._body(response, id, self._parts(response, id), last=True)

    def events(self, response: ModelResponse, id: str, *, counted: bool) -> Iterator[str]:
        """Yield responses, each with the next parts; calls come whole."""
        parts: list[Wire] = [{"text": piece} for piece in cut(response.message.text)]
        parts += [part for part in self._parts(response, id) if "functionCall" in part]
        for part in parts:
            yield event_of(self._body(response, id, [part], last=False))
        yield event_of(self._body(response, id, [{"text": ""}], last=True))

    def refusal(self, status: int, message: str) -> Wire:
        """Return an error's body."""
        return {"error": {"code": status, "message": message, "status": error_word(status).upper()}}

    def _parts(self, response: ModelResponse, id: str) -> list[Wire]:
        text = response.message.text
        parts: list[Wire] = [{"text": text}] if text else []
        for index, call, _ in calls_of(response):
            made = {"id": f"{id}_{index}", "name": call.name, "args": dict(call.arguments)}
            parts.append({"functionCall": made})
        return parts

    def _body(self, response: ModelResponse, id: str, parts: list[Wire], *, last: bool) -> Wire:
        candidate: Wire = {"content": {"role": "model", "parts": parts}, "index": 0}
        if last:
            words = {"length": "MAX_TOKENS", "content_filter": "SAFETY", "refusal": "PROHIBITED_CONTENT"}
            candidate["finishReason"] = words.get(response.finish_reason, "STOP")
        body: Wire = {"candidates": [candidate], "modelVersion": response.model, "responseId": id}
        usage = response.usage
        if usage is not None:
            output = usage.output_tokens - usage.reasoning_tokens if last else 0
            body["usageMetadata"] = {
                "promptTokenCount": usage.input_tokens,
                "cachedContentTokenCount": usage.cached_tokens,
                "candidatesTokenCount": output,
                "thoughtsTokenCount": usage.reasoning_tokens if last else 0,
                "totalTokenCount": usage.total_tokens if last else usage.input_tokens,
            }
        return body


def _result(response: Any, otherwise: str) -> str:
    """Return a result as text: it is an object there, with the text in its one field."""
    values: list[Any] = list(cast("Wire", response).values()) if isinstance(response, dict) else []
    return values[0] if len(values) == 1 and isinstance(values[0], str) else otherwise
