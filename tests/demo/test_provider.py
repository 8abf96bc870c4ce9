"""The local provider is as strict as a real one: what it lets through, a real one might refuse."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from overt.demo.provider.server import Provider, serve
from overt.errors import ModelError
from overt.message import ModelRequest
from overt.testing import MockModel, Reply, call, say

CALL = {"id": "c1", "type": "function", "function": {"name": "price", "arguments": "{}"}}
USE = {"type": "tool_use", "id": "c1", "name": "price", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "2"}
GO = {"role": "user", "content": "go"}


def script(request: ModelRequest) -> Reply:
    match request.messages[-1].text:
        case "busy":
            return ModelError("too much at once", status_code=429, retry_after=2.5)
        case "broken":
            return ModelError("out of order")
        case _:
            return [say("é"), call("price", item="tea")] if request.tools else say("well")


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with serve(MockModel(script)) as server:
        yield server


def post(provider: Provider, path: str, body: object) -> tuple[int, Any, Any]:
    """Status, headers and what was answered: JSON, or the text of a stream."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(provider.url + path, data)
    try:
        answer = urllib.request.urlopen(request, timeout=10)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        text = answer.read().decode()
        streamed = answer.headers["Content-Type"] == "text/event-stream"
        return answer.status, answer.headers, text if streamed else json.loads(text)


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/v1/chat/completions", {"messages": [GO]}, "KeyError: 'model'"),
        ("/v1/chat/completions", b"{", "JSONDecodeError"),
        ("/v1/chat/completions", {"model": "m", "messages": [{"role": "robot", "content": ""}]}, "robot"),
        (
            "/v1/chat/completions",
            {
                "model": "m",
                "messages": [GO, {"role": "assistant", "content": None, "tool_calls": [CALL]}, GO],
            },
            "the calls ['c1'] have no result",
        ),
        (
            "/v1/chat/completions",
            {"model": "m", "messages": [GO, {"role": "tool", "tool_call_id": "c1", "content": "2"}]},
            "answers no call",
        ),
        (
            "/v1/chat/completions",
            {"model": "m", "messages": [GO, {"role": "assistant", "content": None}, GO]},
            "says nothing",
        ),
        (
            "/v1/responses",
            {"model": "m", "input": [GO, {"type": "function_call_output", "call_id": "c1", "output": "2"}]},
            "answers no call",
        ),
        ("/v1/responses", {"model": "m", "input": [{"type": "thought"}]}, "unknown item 'thought'"),
        ("/v1/messages", {"model": "m", "messages": [GO]}, "KeyError: 'max_tokens'"),
        ("/v1/messages", {"model": "m", "max_tokens": 9, "messages": [GO, GO]}, "two messages of 'user'"),
        (
            "/v1/messages",
            {
                "model": "m",
                "max_tokens": 9,
                "messages": [
                    GO,
                    {"role": "assistant", "content": [USE, USE]},
                    {"role": "user", "content": [RESULT]},
                ],
            },
            "have no result",
        ),
        (
            "/v1beta/models/m:generateContent",
            {
                "contents": [
                    {"role": "user", "parts": [{"functionResponse": {"name": "price", "response": {}}}]}
                ]
            },
            "answers no call",
        ),
    ],
)
def test_a_request_that_is_none_is_refused(provider: Provider, path: str, body: object, told: str) -> None:
    status, _, answer = post(provider, path, body)
    assert status == 400
    assert told in answer["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/nothing", "/chat/completions", "/v1/models/m:countTokens"])
def test_there_is_nothing_elsewhere(provider: Provider, path: str) -> None:
    assert post(provider, path, {})[0] == 404


def test_the_models_errors_are_answers(provider: Provider) -> None:
    busy = {"model": "m", "messages": [{"role": "user", "content": "busy"}]}
    status, headers, answer = post(provider, "/v1/chat/completions", busy)
    assert (status, headers["Retry-After"], answer["error"]["type"]) == (429, "2.5", "rate_limit_error")
    broken = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "broken"}]}
    status, headers, answer = post(provider, "/v1/messages", broken)
    assert (status, headers["Retry-After"]) == (500, None)
    assert answer == {"type": "error", "error": {"type": "api_error", "message": "out of order"}}


def test_usage_of_a_streamed_chat_is_told_if_asked_for(provider: Provider) -> None:
    body = {"model": "m", "messages": [GO], "stream": True}
    _, _, plain = post(provider, "/v1/chat/completions", body)
    _, _, counted = post(
        provider, "/v1/chat/completions", {**body, "stream_options": {"include_usage": True}}
    )
    assert '"usage"' not in plain
    assert '"total_tokens": 100' in counted
    assert plain.endswith("data: [DONE]\n\n")
