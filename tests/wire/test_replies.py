"""What an adapter makes of a provider's replies over real HTTP, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import JsonValue

from overt.demo.provider.server import serve
from overt.message import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from overt.testing import MockModel, call, say
from tests.wire.adapters import Adapter, each_adapter
from tests.wire.aimock import Aimock, Fixture, answer, calls, text, usage
from tests.wire.kit import asked

pytestmark = [pytest.mark.anyio, each_adapter, pytest.mark.parametrize("streamed", [False, True])]

SCHEMA: Mapping[str, JsonValue] = {"type": "object", "properties": {"item": {"type": "string"}}}
TOOLS = tuple(
    ToolSpec(name=name, description=f"{name} of an item", input_schema=SCHEMA) for name in ("price", "stock")
)
LONG = "Vierzig Kessel für Çağla, 40 zu 2.50 € 😀, und ein “Ende”."


async def test_text_and_what_it_cost(aimock: Aimock, adapter: Adapter, streamed: bool) -> None:
    model = aimock.model(text(LONG, usage=usage(1_000, 23)))
    got = await asked(adapter.at(aimock.url, model), tools=TOOLS, streamed=streamed)
    assert (got.message.text, got.message.tool_calls, got.message.reasoning) == (LONG, (), None)
    assert (got.finish_reason, got.invalid_arguments) == ("stop", {})
    assert got.usage == Usage(input_tokens=1_000, output_tokens=23, total_tokens=1_023)


@pytest.mark.parametrize("said", ["", "Both at once."])
async def test_parallel_calls_and_text_before_them(
    aimock: Aimock, adapter: Adapter, streamed: bool, said: str
) -> None:
    arguments: list[dict[str, Any]] = [
        {"item": LONG, "deep": [1, 2.5, None, {"é": True}]},
        {},
        {"item": "tea"},
    ]
    names = ["price", "stock", "price"]
    model = aimock.model(calls(*zip(names, arguments, strict=True), said=said))
    got = await asked(adapter.at(aimock.url, model), tools=TOOLS, streamed=streamed)
    assert got.message.text == said
    assert [(call.name, call.arguments) for call in got.message.tool_calls] == list(
        zip(names, arguments, strict=True)
    )
    assert len({call.id for call in got.message.tool_calls}) == 3
    # Of Google aimock says that it ends with FUNCTION_CALL; it ends with STOP.
    assert got.finish_reason == ("unknown" if adapter.provider == "google" else "tool_calls")
    assert got.invalid_arguments == {}
    assert got.usage == Usage(input_tokens=80, output_tokens=20, total_tokens=100)


async def test_results_go_back_in_order_under_the_ids_of_their_calls(
    aimock: Aimock, adapter: Adapter, streamed: bool
) -> None:
    model = aimock.model(text("7 kettles at 2.50."))
    asking = tuple(
        ToolCall(id=f"root/clerk.1:{number}", name=name, arguments={"item": "kettle"})
        for number, name in enumerate(("price", "stock", "price"))
    )
    transcript: list[Message] = [
        SystemMessage(text="You mind the shelf."),
        UserMessage(text="How many?"),
        AssistantMessage(tool_calls=asking),
        *(ToolMessage(text=f"result {n}", call_id=call.id, name=call.name) for n, call in enumerate(asking)),
    ]
    got = await asked(adapter.at(aimock.url, model), *transcript, tools=TOOLS, streamed=streamed)
    assert got.message.text == "7 kettles at 2.50."
    (sent,) = aimock.requests(model)
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["price", "stock"]
    system, user, *rest = sent["messages"]
    assert (system["role"], system["content"]) == ("system", "You mind the shelf.")
    assert (user["role"], user["content"]) == ("user", "How many?")
    said = [call for message in rest for call in message.get("tool_calls") or []]
    results = [message for message in rest if message["role"] == "tool"]
    assert [call["function"]["name"] for call in said] == ["price", "stock", "price"]
    assert [json.loads(call["function"]["arguments"]) for call in said] == [{"item": "kettle"}] * 3
    assert [call["id"] for call in said] == [result["tool_call_id"] for result in results]
    assert len({call["id"] for call in said}) == 3
    assert [f"result {n}" in result["content"] for n, result in enumerate(results)] == [True] * 3


async def test_tools_are_offered_with_their_schema(adapter: Adapter, streamed: bool) -> None:
    script = MockModel([call("price", item="tea")])
    with serve(script) as server:
        got = await asked(adapter.at(server.url), tools=TOOLS, streamed=streamed)
    assert (got.finish_reason, got.message.tool_calls[0].name) == ("tool_calls", "price")
    (offered,) = [request.tools for request in script.requests]
    assert [(tool.name, tool.description, tool.input_schema) for tool in offered] == [
        (tool.name, tool.description, tool.input_schema) for tool in TOOLS
    ]


async def test_no_message_of_nothing_is_sent(aimock: Aimock, adapter: Adapter, streamed: bool) -> None:
    model = aimock.model(text("Hello."))
    transcript = (UserMessage(text="a"), AssistantMessage(), UserMessage(text="b"))
    assert (
        await asked(adapter.at(aimock.url, model), *transcript, tools=TOOLS, streamed=streamed)
    ).message.text == "Hello."
    (sent,) = aimock.requests(model)
    assert all(message["content"] or message.get("tool_calls") for message in sent["messages"])


async def test_a_reply_that_was_cut_off_at_its_limit(adapter: Adapter, streamed: bool) -> None:
    with serve(MockModel([say("Half a sent", finish="length")])) as server:
        got = await asked(adapter.at(server.url), streamed=streamed)
    assert (got.message.text, got.finish_reason) == ("Half a sent", "length")


async def test_reasoning_is_kept_apart(aimock: Aimock, adapter: Adapter, streamed: bool) -> None:
    thinking: Fixture = answer(content="42.", reasoning="Let me think about that.")
    model = aimock.model(thinking)
    got = await asked(adapter.at(aimock.url, model), tools=TOOLS, streamed=streamed)
    assert (got.message.text, got.message.reasoning) == ("42.", "Let me think about that.")
