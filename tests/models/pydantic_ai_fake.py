"""Providers in the process, with pydantic-ai's models of OpenAI and Anthropic in front of them."""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence
from typing import Any

import httpx2
from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from tests.models.openai_fake import KEY
from tests.models.openai_fake import Provider as Plain

from overt.message import ModelRequest, ModelResponse
from overt.models import PydanticAIModel
from overt.models.assemble import Assembler

__all__ = (
    "ECHO",
    "SECRETS",
    "Provider",
    "anthropic_events",
    "anthropic_reply",
    "chunks",
    "everything",
    "streamed",
)

ECHO = {
    "error": {
        "message": f"Key {KEY} of org-AbC123456 in account acct-zebra failed " + "x" * 3000,
        "type": KEY,
        "code": "acct-zebra",
        "account_id": "acct-zebra",
        "param": "org-AbC123456",
    }
}
SECRETS = (KEY, "org-AbC123456", "acct-zebra")


def everything(error: BaseException) -> str:
    """All that a log, a tracker or a debugger would find on an exception."""
    told = "".join(traceback.format_exception(error))
    seen: BaseException | None = error
    while seen is not None:
        told += repr(vars(seen)) + repr(seen.args)
        seen = seen.__cause__ or seen.__context__
    return told


class Provider(Plain):
    """Answers every request with `reply`; a list is a stream of server-sent events.

    A whole reply of Anthropic's is streamed, in pieces of `cut` characters, to who asks for a stream.
    """

    cut = 3

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        events = self.reply
        if (
            isinstance(events, dict)
            and events.get("type") == "message"
            and json.loads(request.content).get("stream")
        ):
            events = anthropic_events(events, cut=self.cut)
        if not isinstance(events, list):
            return super().handle(request)
        self.requests.append(request)
        content = b"".join(
            (f"event: {item['type']}\n" if "type" in item else "").encode()
            + f"data: {json.dumps(item)}\n\n".encode()
            for item in events
        )
        if events and events[-1].get("choices") is not None:
            content += b"data: [DONE]\n\n"
        return httpx2.Response(200, content=content, headers={"content-type": "text/event-stream"})

    def chat(
        self,
        *,
        name: str = "gpt-5-mini",
        responses: bool = False,
        profile: ModelProfile | None = None,
        **options: Any,
    ) -> PydanticAIModel:
        kind = OpenAIResponsesModel if responses else OpenAIChatModel
        provider = OpenAIProvider(openai_client=self.client(**options))
        return PydanticAIModel(kind(name, provider=provider, profile=profile))

    def claude(self, **options: Any) -> PydanticAIModel:
        """A model that streams when it is asked whole, unless a limit on the output is set."""
        http = DefaultAsyncHttpxClient(transport=httpx2.MockTransport(self.handle))
        client = AsyncAnthropic(**{"api_key": KEY, "http_client": http, **options})
        provider = AnthropicProvider(anthropic_client=client)
        return PydanticAIModel(AnthropicModel("claude-haiku-4-5", provider=provider))


def chunks(
    *deltas: dict[str, Any], finish: str | None = "stop", usage: object = None
) -> list[dict[str, Any]]:
    """A streamed reply of the chat completions."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5-mini-2026"}
    made = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    if finish is not None:
        made.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if usage is not None:
        made.append({**head, "choices": [], "usage": usage})
    return made


def anthropic_reply(*content: dict[str, Any], stop: str = "end_turn", **usage: int) -> dict[str, Any]:
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-4-5-2026",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5, **usage},
    }


def anthropic_events(whole: dict[str, Any], *, cut: int = 3) -> list[dict[str, Any]]:
    """The same reply streamed, its texts in pieces of `cut` characters."""
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
    ]
    for index, block in enumerate(whole["content"]):
        kind = block["type"]
        empty: dict[str, dict[str, Any]] = {
            "text": {"text": ""},
            "thinking": {"thinking": "", "signature": ""},
            "tool_use": {"input": {}},
        }
        events.append(
            {"type": "content_block_start", "index": index, "content_block": {**block, **empty.get(kind, {})}}
        )
        deltas: list[dict[str, Any]] = []
        if kind == "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"], cut)]
        elif kind == "thinking":
            deltas = [{"type": "thinking_delta", "thinking": p} for p in _pieces(block["thinking"], cut)]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif kind == "tool_use":
            text = json.dumps(block["input"]) if block["input"] else ""
            deltas = [{"type": "input_json_delta", "partial_json": p} for p in _pieces(text, cut)]
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": whole["usage"]["output_tokens"]}
    return [*events, {"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def _pieces(text: str, cut: int) -> Sequence[str]:
    return [text[at : at + cut] for at in range(0, len(text), cut)] or [""]


async def streamed(model: PydanticAIModel, request: ModelRequest) -> ModelResponse:
    """Ask in pieces and put them together."""
    assembler = Assembler()
    async for delta in model.stream(request):
        assembler.add(delta)
    return assembler.response()
