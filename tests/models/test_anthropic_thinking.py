"""Thinking goes back to Anthropic as it came, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from tests.models.anthropic_fake import HIDDEN, THOUGHT, Provider, call, events_of, reply, text

from overt import Agent, Answer, ResumePolicy, Runtime, Status, ToolContext, tool
from overt.message import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from overt.models import AnthropicModel
from overt.models.assemble import Assembler
from overt.stores import MemoryStore

# Bodies and replies do not depend on the loop.
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

SYSTEM = SystemMessage(text="Be brief.")
USER = UserMessage(text="go")
TOOL = ToolSpec(name="look", description="Look.", input_schema={"type": "object"})
CALL = call({"at": "A1", "n": 1.0}, id="toolu_9")
SENT_CALL = {**CALL, "id": "c1"}
CONTENT = [THOUGHT, HIDDEN, text("I look."), CALL]


def ask(*messages: Message, **more: Any) -> ModelRequest:
    return ModelRequest(messages=messages, **{"tools": (TOOL,), **more})


def renamed(response: ModelResponse) -> AssistantMessage:
    """The message as a runtime keeps it: calls under ids of its own, stored and read again."""
    calls = tuple(
        item.model_copy(update={"id": f"c{number}"})
        for number, item in enumerate(response.message.tool_calls, 1)
    )
    kept = response.message.model_copy(update={"tool_calls": calls})
    return AssistantMessage.model_validate_json(kept.model_dump_json())


async def reply_to(
    request: ModelRequest, content: Sequence[dict[str, Any]], **options: Any
) -> AssistantMessage:
    return renamed(await Provider(reply(*content, stop="tool_use")).model(**options).generate(request))


async def messages_of(request: ModelRequest, **options: Any) -> list[Any]:
    provider = Provider(reply(text("hi")))
    await provider.model(**options).generate(request)
    found: list[Any] = provider.bodies[0]["messages"]
    return found


RESULT = ToolMessage(text="seen", call_id="c1", name="look")


async def test_thinking_goes_back_unchanged_before_its_call() -> None:
    request = ask(SYSTEM, USER)
    message = await reply_to(request, CONTENT)
    assert message.reasoning == "A1 comes first."
    sent = await messages_of(ask(SYSTEM, USER, message, RESULT))
    assert sent[1]["content"] == [THOUGHT, HIDDEN, text("I look."), SENT_CALL]
    assert sent[2]["content"][0]["tool_use_id"] == "c1"


async def test_it_is_the_same_when_it_was_streamed() -> None:
    request = ask(SYSTEM, USER)
    body = reply(*CONTENT, stop="tool_use")
    assembler = Assembler()
    async for piece in Provider(events_of(body, width=3)).model().stream(request):
        assembler.add(piece)
    streamed = assembler.response()
    assert streamed == await Provider(body).model().generate(request)
    sent = await messages_of(ask(SYSTEM, USER, renamed(streamed), RESULT))
    assert sent[1]["content"][:2] == [THOUGHT, HIDDEN]


async def test_the_order_of_a_reply_is_kept() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "ä"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"url": "https://x"}]}
    empty = {"type": "thinking", "thinking": "", "signature": "b25seQ=="}
    content = [
        text("A "),
        search,
        found,
        text("\n\n"),
        empty,
        text("ü🎉"),
        CALL,
        HIDDEN,
        call({}, id="toolu_8"),
    ]
    message = await reply_to(ask(USER), content)
    assert message.text == "A \n\nü🎉"
    assert message.reasoning is None
    results = [ToolMessage(text="x", call_id=id, name="look") for id in ("c2", "c1")]
    sent = await messages_of(ask(USER, message, *results))
    # What stands before a thinking block stays as it was, the provider's id of a call included.
    assert sent[1]["content"] == [*content[:-1], {**content[-1], "id": "c2"}]
    assert [block["tool_use_id"] for block in sent[2]["content"]] == ["toolu_9", "c2"]
    assembler = Assembler()
    async for piece in Provider(events_of(reply(*content, stop="tool_use"))).model().stream(ask(USER)):
        assembler.add(piece)
    assert renamed(assembler.response()) == message


async def test_a_providers_id_is_sent_once() -> None:
    content = [CALL, HIDDEN]
    first = await reply_to(ask(USER), content)
    result = RESULT.model_copy(update={"call_id": "c1"})
    before = (USER, first, result)
    second = (await reply_to(ask(*before), content)).model_copy(update={"reasoning": None})
    second = second.model_copy(update={"tool_calls": (second.tool_calls[0].model_copy(update={"id": "c2"}),)})
    sent = await messages_of(ask(*before, second, RESULT.model_copy(update={"call_id": "c2"})))
    assert sent[1]["content"] == content
    assert sent[3]["content"] == [{**CALL, "id": "c2"}]


async def test_thinking_of_an_answer_goes_back_too() -> None:
    message = await reply_to(ask(USER), [THOUGHT, text("42")])
    sent = await messages_of(ask(USER, message, UserMessage(text="why?")))
    assert sent[1]["content"] == [THOUGHT, text("42")]
    # With nothing said it is no message.
    silent = await reply_to(ask(USER), [THOUGHT])
    assert [item["role"] for item in await messages_of(ask(USER, silent, USER))] == ["user"]


async def test_another_host_is_sent_none_of_it() -> None:
    message = await reply_to(ask(USER), CONTENT)
    provider = Provider(reply(text("hi")))
    away = provider.client(base_url="https://other.example")
    await AnthropicModel("m", client=away).generate(ask(USER, message, RESULT))
    assert provider.bodies[0]["messages"][1]["content"] == [text("I look."), SENT_CALL]


@pytest.mark.parametrize(
    "change",
    [
        {"text": "I looked."},
        {"text": "I walk."},
        {"tool_calls": ()},
        {"tool_calls": (ToolCall(id="c1", name="look", arguments={"at": "A2", "n": 1.0}),)},
        {"tool_calls": (ToolCall(id="c1", name="walk", arguments={"at": "A1", "n": 1.0}),)},
        {"opaque": {"anthropic:api.anthropic.com": {"blocks": [5], "said": 1, "prefix": 2}}},
        {"opaque": {"anthropic:api.anthropic.com": None}},
    ],
)
async def test_an_altered_message_is_sent_without(change: dict[str, Any]) -> None:
    message = (await reply_to(ask(USER), CONTENT)).model_copy(update=change)
    sent = await messages_of(ask(USER, message, USER))
    kinds = [block["type"] for block in sent[1]["content"]]
    assert kinds == ["text", *(["tool_use"] if message.tool_calls else [])]


async def test_it_is_left_out_where_anything_before_it_has_changed() -> None:
    """The API refuses a block whose instructions, tools or earlier messages are others, for good."""
    start = ask(SYSTEM, USER)
    message = await reply_to(start, CONTENT)
    history = (SYSTEM, USER, message, RESULT)
    kept = await messages_of(ask(*history))
    other_tool = replace(TOOL, description="Look well.")
    for request in (
        ask(SystemMessage(text="Be brief today."), *history[1:]),
        ask(*history[1:]),
        ask(SYSTEM, UserMessage(text="a summary"), *history[2:]),
        ask(SYSTEM, USER, UserMessage(text="a note"), *history[2:]),
        ask(*history, tools=(other_tool,)),
        ask(*history, tools=(TOOL, other_tool)),
        ask(*history, settings=ModelSettings(extra={"tools": [{"type": "x", "name": "x"}]})),
        ask(*history, settings=ModelSettings(extra={"thinking": {"type": "disabled"}})),
    ):
        sent = await messages_of(request)
        assert [block["type"] for block in sent[-2]["content"]] == ["text", "tool_use"], request
    for request in (
        ask(*history, UserMessage(text="more")),
        ask(*history, settings=ModelSettings(temperature=1.0, extra={"thinking": {"type": "adaptive"}})),
        ask(*history, tools=(replace(TOOL),)),
    ):
        sent = await messages_of(request)
        assert sent[1] == kept[1]
    # Cache breakpoints move from request to request, and change nothing.
    assert (await messages_of(ask(*history), cache=True))[1] == kept[1]
    # Older models, the only ones with a budget to think in, insist on the block and look at nothing before it.
    budget = ModelSettings(extra={"thinking": {"type": "enabled", "budget_tokens": 1024}})
    sent = await messages_of(ask(SystemMessage(text="other"), *history[1:], settings=budget))
    assert sent[1] == kept[1]


async def test_a_change_leaves_valid_what_was_thought_after_it() -> None:
    first = await reply_to(ask(SYSTEM, USER), CONTENT)
    new = SystemMessage(text="Be long.")
    second = await reply_to(ask(new, USER, first, RESULT), [HIDDEN, text("2")])
    third = await reply_to(ask(new, USER, first, RESULT, second, USER), [HIDDEN, text("3")])
    sent = await messages_of(ask(new, USER, first, RESULT, second, USER, third, USER))
    answers = [item["content"] for item in sent if item["role"] == "assistant"]
    assert [HIDDEN in content for content in answers] == [False, True, True]
    # The thinking of the second was done without that of the first in sight.
    sent = await messages_of(ask(SYSTEM, USER, first, RESULT, second, USER, third, USER))
    answers = [item["content"] for item in sent if item["role"] == "assistant"]
    assert [HIDDEN in content for content in answers] == [True, False, False]


async def test_what_was_thought_without_other_thoughts_in_sight_is_no_answer_to_them() -> None:
    first = await reply_to(ask(USER), CONTENT)
    off = ModelSettings(extra={"thinking": {"type": "disabled"}})
    second = await reply_to(ask(USER, first, RESULT, settings=off), [HIDDEN, text("2")])
    sent = await messages_of(ask(USER, first, RESULT, second, USER))
    assert [HIDDEN in item["content"] for item in sent if item["role"] == "assistant"] == [True, False]


@tool
def look(at: str = "A1") -> str:
    """Look."""
    return f"seen {at}"


@tool
async def sign(ctx: ToolContext[None], name: str = "x") -> str:
    """Sign."""
    return f"signed: {(await ctx.ask('Sign?')).ok}"


class Scripted(Provider):
    """Gives its answers in turn."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        super().__init__(None)
        self.answers = answers

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        self.answer = self.answers[len(self.requests)]
        return super().handle(request)


async def test_a_run_that_was_parked_and_opened_again_sends_every_block_where_it_was() -> None:
    store = MemoryStore()
    first = Scripted(
        reply(THOUGHT, text("one"), call({"at": "ä2"}), stop="tool_use"),
        reply(HIDDEN, call({"name": "y"}, name="sign"), stop="tool_use"),
    )
    second = Scripted(reply(THOUGHT, text("done")))

    def agent(provider: Provider) -> Agent[None, str]:
        return Agent("clerk", does="looks", soul="Be brief.", tools=[look, sign], model=provider.model())

    result, _ = await agent(first).run("go", store=store, run_id="r")
    assert result.pending is not None
    runtime = await Runtime.open(agent(second), "r", store=store)
    result = await runtime.resume(Answer(id=result.pending.id, ok=True), policy=ResumePolicy.CONTINUE)
    assert (result.status, result.text) == (Status.DONE, "done")
    messages = second.bodies[-1]["messages"]
    assert messages[:3] == first.bodies[-1]["messages"]
    assert messages[1]["content"][:2] == [THOUGHT, text("one")]
    assert messages[2]["content"][0]["content"] == "seen ä2"
    assert messages[3]["content"][0] == HIDDEN
    assert messages[4]["content"][0]["content"] == "signed: True"
