from __future__ import annotations

import pickle
from collections.abc import Awaitable

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overt.clock import Clock
from overt.errors import DefinitionError, ModelError
from overt.message import (
    AssistantMessage,
    Message,
    Model,
    ModelRequest,
    ModelResponse,
    SystemMessage,
    ToolMessage,
    Usage,
    UserMessage,
)
from overt.testing import MockModel, Reply, VirtualClock, call, raw_call, say

pytestmark = pytest.mark.anyio


def request(*messages: Message, agent: str = "clerk") -> ModelRequest:
    return ModelRequest(messages=messages, agent=agent)


USER = UserMessage(text="go")
SAID = AssistantMessage(text="…")
RESULT = ToolMessage(text="ok", call_id="1", name="t")


async def test_is_a_model() -> None:
    assert isinstance(MockModel(["x"]), Model)
    assert MockModel(["x"]).name == "mock"


async def test_the_reply_is_chosen_by_assistant_messages_after_the_last_user_message() -> None:
    model = MockModel([call("a"), call("b"), "done"])
    first = await model.generate(request(SystemMessage(text="s"), USER, SAID, RESULT, SAID, USER))
    assert [item.name for item in first.message.tool_calls] == ["a"]
    third = await model.generate(request(USER, SAID, SAID, USER, SAID, RESULT, RESULT, SAID, RESULT))
    assert third.message.text == "done"


async def test_the_same_request_gets_the_same_reply_however_often_and_wherever() -> None:
    model = MockModel([call("a", x=1), "done"])
    asked = request(USER)
    replies = [await model.generate(asked) for _ in range(3)]
    await model.generate(request(USER, SAID))
    replies.append(await model.generate(pickle.loads(pickle.dumps(asked))))
    assert all(reply == replies[0] for reply in replies)


async def test_a_reply_shares_no_container_with_the_next() -> None:
    given_items: list[object] = [1, {"k": "v"}]
    model = MockModel([call("a", items=given_items)])
    first = await model.generate(request(USER))
    first.message.tool_calls[0].arguments["items"] = "gone"
    given_items.append(2)
    second = await model.generate(request(USER))
    items = second.message.tool_calls[0].arguments["items"]
    assert items == [1, {"k": "v"}]
    assert isinstance(items, list)
    items.append(3)
    third = await model.generate(request(USER))
    assert third.message.tool_calls[0].arguments["items"] == [1, {"k": "v"}]


async def test_text_and_parallel_calls_are_one_reply() -> None:
    model = MockModel([["Both. ", say("Now."), call("a", n=1), call("a", n=2)]])
    reply = await model.generate(request(USER))
    assert reply.message.text == "Both. Now."
    assert [item.arguments for item in reply.message.tool_calls] == [{"n": 1}, {"n": 2}]
    assert len({item.id for item in reply.message.tool_calls}) == 2
    assert (reply.finish_reason, reply.model) == ("tool_calls", "mock")


async def test_scripts_by_agent() -> None:
    model = MockModel(
        {"boss": [call("task", agent="clerk", prompt="p"), "thanks"], "clerk": lambda _: "did it"}
    )
    assert (await model.generate(request(USER, SAID, agent="boss"))).message.text == "thanks"
    assert (await model.generate(request(USER, SAID, agent="clerk"))).message.text == "did it"
    with pytest.raises(ModelError, match="agent 'cook', only for 'boss', 'clerk'"):
        await model.generate(request(USER, agent="cook"))


async def test_prompts_has_a_script_for_each_user_message_and_repeats_the_last() -> None:
    model = MockModel(prompts=[["one"], {"clerk": ["two"]}, [call("x"), "three"]])
    assert (await model.generate(request(USER))).message.text == "one"
    assert (await model.generate(request(USER, SAID, USER))).message.text == "two"
    for more in ((), (USER,), (USER, SAID, USER)):
        reply = await model.generate(request(USER, SAID, USER, SAID, USER, SAID, *more, USER, SAID))
        assert reply.message.text == "three"
    with pytest.raises(ModelError, match="script for prompt 1 has 1"):
        await model.generate(request(USER, SAID))


@pytest.mark.parametrize("wait", [False, True])
async def test_a_function_of_the_request(wait: bool) -> None:
    def answer(asked: ModelRequest) -> Reply:
        return [f"{len(asked.messages)}", call("t")]

    async def answer_later(asked: ModelRequest) -> Reply:
        await anyio.lowlevel.checkpoint()
        return answer(asked)

    model = MockModel(answer_later) if wait else MockModel(answer)
    reply = await model.generate(request(USER, SAID))
    assert (reply.message.text, reply.message.tool_calls[0].name) == ("2", "t")


async def test_past_the_end_it_says_agent_index_and_what_to_add() -> None:
    model = MockModel(["one", "two"], name="m1")
    with pytest.raises(ModelError) as caught:
        await model.generate(request(USER, SAID, SAID))
    assert str(caught.value) == (
        "MockModel 'm1' has no reply 3 for agent 'clerk': its script has 2. "
        "Add the next reply to it, for instance say('…')."
    )
    assert (caught.value.type, caught.value.retryable) == ("ScriptExhausted", False)


async def test_exceptions_are_raised() -> None:
    boom = ModelError("busy", status_code=503, retryable=True)
    model = MockModel([boom, TimeoutError, ModelError])
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            await model.generate(request(USER))
        assert caught.value is boom
    with pytest.raises(TimeoutError):
        await model.generate(request(USER, SAID))
    with pytest.raises(ModelError):
        await model.generate(request(USER, SAID, SAID))


@given(st.integers(0, 10**9))
def test_usage_is_exact_in_total(tokens: int) -> None:
    async def reply(model: MockModel) -> ModelResponse:
        return await model.generate(request(USER))

    for model in (MockModel(["x"], tokens=tokens), MockModel([say("x", tokens=tokens)])):
        usage = anyio.run(reply, model).usage
        assert usage is not None
        assert usage.total_tokens == tokens == usage.input_tokens + usage.output_tokens
        assert usage.output_tokens == tokens // 5


async def test_usage_of_several_parts_adds_up_and_can_be_absent() -> None:
    model = MockModel(
        [
            [say("x", tokens=3), call("t").with_options(tokens=4), call("t")],
            say("x", usage=None),
            call("t").with_options(usage=None),
            say("x", usage=Usage(input_tokens=1, cached_tokens=1, total_tokens=9)),
        ]
    )
    usages = [(await model.generate(request(USER, *[SAID] * n))).usage for n in range(4)]
    assert usages[0] is not None
    assert usages[0].total_tokens == 7
    assert usages[1:3] == [None, None]
    assert usages[3] == Usage(input_tokens=1, cached_tokens=1, total_tokens=9)


async def test_finish_reason_can_be_said() -> None:
    model = MockModel([say("x", finish="length"), raw_call("t", '{"a', finish="length")])
    assert (await model.generate(request(USER))).finish_reason == "length"
    cut = await model.generate(request(USER, SAID))
    assert (cut.finish_reason, cut.invalid_arguments) == ("length", {0: '{"a'})


async def test_raw_calls_carry_broken_text_and_any_id() -> None:
    reply = (
        await MockModel(
            [[raw_call("t", '{"a": 1}', id=""), raw_call("", "[1]", id="x"), raw_call("t", "", id="x")]]
        ).generate(request(USER))
    ).message
    assert [(c.id, c.name, c.arguments) for c in reply.tool_calls] == [
        ("", "t", {"a": 1}),
        ("x", "", {}),
        ("x", "t", {}),
    ]


async def test_a_whole_response_passes_through() -> None:
    response = ModelResponse(message=AssistantMessage(text="r", reasoning="because"), finish_reason="refusal")
    assert await MockModel([response]).generate(request(USER)) == response
    assert await MockModel(lambda _: response).generate(request(USER)) == response


async def test_think_time_is_slept_on_the_given_clock() -> None:
    clock = VirtualClock()
    assert isinstance(clock, Clock)
    model = MockModel(["x"], think_time=5, clock=clock)
    replies: list[ModelResponse] = []

    async def ask() -> None:
        replies.append(await model.generate(request(USER)))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await clock.advance(4.9)
        assert replies == []
        await clock.advance(0.1)
        assert len(replies) == 1


async def test_requests_are_recorded_unless_not_wanted() -> None:
    model, silent = MockModel(["x"]), MockModel(["x"], record=False)
    asked = request(USER)
    for each in (model, silent):
        await each.generate(asked)
    assert model.requests == [asked]
    assert silent.requests == []


def test_what_cannot_be_understood_fails_when_made() -> None:
    wrong: list[tuple[object, str]] = [
        ([3], r"script\[0\] holds 3"),
        ([["a", object()]], r"script\[0\] holds <object"),
        ({"a": ["x", None]}, r"script\['a'\]\[1\] holds None"),
        (7, "script is 7"),
        ([int], "the class int"),
    ]
    for script, told in wrong:
        with pytest.raises(DefinitionError, match=told):
            MockModel(script)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="either"):
        MockModel()
    with pytest.raises(DefinitionError, match="either"):
        MockModel(["x"], prompts=[["x"]])
    with pytest.raises(DefinitionError, match="empty"):
        MockModel(prompts=[])
    with pytest.raises(DefinitionError, match=r"'t'.*when"):
        call("t", when=object())


async def test_any_length_of_transcript_is_counted_right() -> None:
    model = MockModel([str(n) for n in range(400)])
    pair: list[Message] = [USER, SAID]
    before = [*pair * 50, USER]
    for turns in (0, 1, 15, 16, 17, 47, 48, 200, 399):
        turn: list[Message] = [SAID, RESULT]
        reply = await model.generate(request(*before, *turn * turns))
        assert reply.message.text == str(turns)


def _types_hold(later: Awaitable[Reply]) -> None:
    MockModel([["a", call("t")], say("b"), ValueError("x")])
    MockModel({"a": {"b": ["nested"]}})
