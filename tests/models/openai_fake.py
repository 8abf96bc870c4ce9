"""A provider in the process: what tests of the adapter talk to."""

from __future__ import annotations

import json
from typing import Any

import httpx2
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from overt.message import ModelSettings
from overt.models import OpenAIModel

KEY = "sk-test-0123456789"


class Provider:
    """Answers every request with `reply` and keeps the bodies it was sent."""

    def __init__(self, reply: object, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.reply = reply
        self.status = status
        self.headers = headers or {}
        self.requests: list[httpx2.Request] = []

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.requests]

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if isinstance(self.reply, Exception):
            raise self.reply
        if isinstance(self.reply, bytes):
            return httpx2.Response(self.status, content=self.reply, headers=self.headers)
        return httpx2.Response(self.status, json=self.reply, headers=self.headers)

    def client(self, **options: Any) -> AsyncOpenAI:
        http = DefaultAsyncHttpxClient(transport=httpx2.MockTransport(self.handle))
        return AsyncOpenAI(**{"api_key": KEY, "http_client": http, **options})

    def model(self, *, settings: ModelSettings | None = None, **options: Any) -> OpenAIModel:
        return OpenAIModel("gpt-5-mini", client=self.client(), settings=settings, **options)


def reply(**message: object) -> dict[str, Any]:
    """A reply with one choice; `finish_reason` and `usage` are lifted to where they belong."""
    finish = message.pop("finish_reason", "stop")
    usage = message.pop("usage", {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15})
    content = {"role": "assistant", "content": None, **message}
    choice = {"index": 0, "finish_reason": finish, "message": content}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5-mini-2026",
        "choices": [choice],
        "usage": usage,
    }


def calls(*items: tuple[object, object, object]) -> list[dict[str, object]]:
    """Tool calls from `(id, name, arguments)`."""
    return [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id, name, arguments in items
    ]
