"""Field cases that end at the adapter: what it sends, and what it makes of what comes back."""

from __future__ import annotations

import json
import re

import anyio
import pytest
from tests.models.openai_fake import KEY, Provider, calls, reply

from overt.errors import ModelError
from overt.message import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelResponse,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from overt.models import OpenAIModel

pytestmark = pytest.mark.anyio

USER = UserMessage(text="go")
HALF = "a\ud83dz\0"
CLEAN = "a�z\0"


def ask(*messages: Message, tools: tuple[ToolSpec, ...] = ()) -> ModelRequest:
    return ModelRequest(messages=messages or (USER,), tools=tools)


def tool(name: str) -> ToolSpec:
    return ToolSpec(name=name, description=name, input_schema={"type": "object", "properties": {}})


async def test_b028_lone_surrogates_are_replaced_both_ways_and_nul_is_kept() -> None:
    provider = Provider(
        json.dumps(
            reply(content=HALF, tool_calls=calls(("i", f"t{HALF}", json.dumps({HALF: [HALF]}))))
        ).encode()
    )
    response = await provider.model().generate(
        ask(
            SystemMessage(text=HALF),
            UserMessage(text=HALF),
            AssistantMessage(text=HALF, tool_calls=(ToolCall(id=HALF, name=HALF, arguments={HALF: HALF}),)),
            ToolMessage(text=HALF, call_id=HALF, name=HALF),
            UserMessage(text="\ud83d\ude00"),
            tools=(
                ToolSpec(name="t", description=HALF, input_schema={"type": "object", "description": HALF}),
            ),
        )
    )
    sent = provider.bodies[0]
    assert [message["content"] for message in sent["messages"]] == [CLEAN, CLEAN, CLEAN, CLEAN, "😀"]
    call = sent["messages"][2]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {CLEAN: CLEAN}
    assert call["id"] == sent["messages"][3]["tool_call_id"]
    assert sent["tools"][0]["function"]["parameters"]["description"] == CLEAN
    assert response.message.text == CLEAN
    assert response.message.tool_calls[0].name == f"t{CLEAN}"
    assert response.message.tool_calls[0].arguments == {CLEAN: [CLEAN]}
    assert ModelResponse.model_validate_json(response.model_dump_json()) == response


async def test_b043_a_cut_off_call_is_told_as_cut_off() -> None:
    body = reply(tool_calls=calls(("a", "look", "{}"), ("b", "pay", '{"amount": 1')), finish_reason="length")
    response = await Provider(body).model().generate(ask())
    assert response.finish_reason == "length"
    assert response.invalid_arguments == {1: '{"amount": 1'}
    assert response.message.tool_calls[1].arguments == {}


@pytest.mark.parametrize("content", [None, ""])
async def test_b045_an_assistant_message_of_nothing_is_never_sent(content: str | None) -> None:
    provider = Provider(reply(content=content))
    model = provider.model()
    response = await model.generate(ask())
    assert response.message == AssistantMessage()
    await model.generate(ask(USER, response.message, USER))
    assert provider.bodies[1]["messages"] == [{"role": "user", "content": "go"}] * 2


async def test_b048_ids_missing_empty_or_repeated_lose_no_call() -> None:
    given = calls(
        (None, "look", "{}"), ("", "look", "{}"), ("x", "look", "{}"), ("x", "look", "{}"), ("y", "", "{}")
    )
    del given[0]["id"]
    provider = Provider(reply(tool_calls=given))
    response = await provider.model().generate(ask(tools=(tool("look"),)))
    found = response.message.tool_calls
    assert len(found) == 5
    assert all(item.id for item in found)
    assert found[4].name == ""
    # The runtime's own ids, as long and as odd as they like, and the unnamed call make a valid next request.
    ours = [f"root/boss:1/clerk:{n}/turn:17/call:{n}" for n in range(5)]
    again = tuple(ToolCall(id=id, name=item.name) for id, item in zip(ours, found, strict=True))
    results = [ToolMessage(text="r", call_id=id, name="look") for id in ours]
    await provider.model().generate(ask(USER, AssistantMessage(tool_calls=again), *results))
    sent = provider.bodies[1]["messages"]
    ids = [item["id"] for item in sent[1]["tool_calls"]]
    assert len(set(ids)) == 5
    assert ids == [message["tool_call_id"] for message in sent[2:]]
    assert all(re.fullmatch(r"[\w-]{1,40}", id) for id in ids)
    assert all(re.fullmatch(r"[\w-]{1,64}", item["function"]["name"]) for item in sent[1]["tool_calls"])


async def test_b056_malformed_arguments_are_reported_beside_the_valid_call() -> None:
    broken = ['{"a": ', "[1]", "null", "", '{"a": 1, "a": 2}']
    body = reply(
        tool_calls=calls(
            ("0", "look", '{"a": 1}'), *[(str(n), "look", text) for n, text in enumerate(broken, 1)]
        )
    )
    response = await Provider(body).model().generate(ask(tools=(tool("look"),)))
    assert response.message.tool_calls[0].arguments == {"a": 1}
    assert response.invalid_arguments == dict(enumerate(broken, 1))
    assert [item.arguments for item in response.message.tool_calls[1:]] == [{}] * 5


async def test_b056_calls_that_are_no_calls_are_calls_without_a_name() -> None:
    body = reply(
        tool_calls=[None, {"type": "custom", "custom": {"name": "x"}}, {"id": 3, "function": {"name": None}}]
    )
    response = await Provider(body).model().generate(ask())
    assert [item.name for item in response.message.tool_calls] == ["", "", ""]
    assert set(response.invalid_arguments) == {0, 1, 2}


async def test_b058_names_sent_are_valid_and_unique_and_come_back_as_their_own() -> None:
    names = ["a.b", "a_b", "a b", "x" * 200, "x" * 199, "my server/look", "größe", "look"]
    provider = Provider(reply(content="hi"))
    model = provider.model()
    tools = tuple(tool(name) for name in names)
    await model.generate(ask(tools=tools))
    sent = [item["function"]["name"] for item in provider.bodies[0]["tools"]]
    assert len(set(sent)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in sent)
    assert (sent[1], sent[7]) == ("a_b", "look")
    provider.reply = reply(
        tool_calls=calls(*[(str(n), name, "{}") for n, name in enumerate(sent)], ("u", "made_up", "{}"))
    )
    response = await model.generate(ask(tools=tools))
    assert [item.name for item in response.message.tool_calls] == [*names, "made_up"]
    # A tool whose own name is another's name on the wire does not take its calls.
    thief = tool(sent[0])
    await model.generate(ask(tools=(*tools, thief)))
    assert len({item["function"]["name"] for item in provider.bodies[-1]["tools"]}) == len(names) + 1
    # Read back by another process: the transcript's names are the ones that are offered.
    message = AssistantMessage.model_validate_json(response.message.model_dump_json())
    later = Provider(reply(content="hi"))
    await later.model().generate(ask(USER, message, tools=tools))
    body = later.bodies[0]
    assert [item["function"]["name"] for item in body["messages"][1]["tool_calls"]][:-1] == sent


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_b064_a_client_is_never_bound_to_a_dead_loop(backend: str) -> None:
    # Nothing listens there: what matters is that the second loop fails by its own connection.
    model = OpenAIModel("m", base_url="http://127.0.0.1:9/v1", api_key=KEY)

    async def main() -> str:
        with pytest.raises(ModelError) as caught:
            await model.generate(ask())
        return caught.value.type

    assert [anyio.run(main, backend=backend) for _ in range(2)] == ["APIConnectionError"] * 2
