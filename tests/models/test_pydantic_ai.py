"""The bridge to pydantic-ai's models: what is sent, what comes back, streams and failures."""

from __future__ import annotations

import base64
import gc
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import ModelResponse as Reply
from pydantic_ai.messages import TextPart as TheirText
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.usage import RequestUsage
from tests.models.openai_fake import calls, reply
from tests.models.pydantic_ai_fake import Provider, anthropic_events, anthropic_reply, chunks, streamed

from overt.errors import DefinitionError, ModelError
from overt.message import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    ModelRequest,
    ModelSettings,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from overt.models import PydanticAIModel

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

USER = UserMessage(text="go")
TOOL = ToolSpec(name="look", description="Look.", input_schema={"type": "object", "properties": {}})
PIXEL = base64.b64encode(b"A").decode()


def ask(*messages: Message, **more: Any) -> ModelRequest:
    return ModelRequest(messages=messages or (USER,), **more)


class Local:
    """A model of the library that keeps what it was asked."""

    def __init__(self, *parts: Any, **reply: Any) -> None:
        self.reply = {"parts": parts, **reply}
        self.asked: list[tuple[list[ModelMessage], AgentInfo]] = []

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> Reply:
        self.asked.append((messages, info))
        return Reply(**{**self.reply, "parts": list(self.reply["parts"])})

    def model(self, **options: Any) -> PydanticAIModel:
        async def answer(messages: list[ModelMessage], info: AgentInfo) -> Reply:
            return self.answer(messages, info)

        return PydanticAIModel(FunctionModel(answer, **options))


# ------------------------------------------------------------------ what is sent


async def test_messages_tools_and_settings_are_sent() -> None:
    provider = Provider(reply(content="hi"))
    settings = ModelSettings(
        temperature=0.5,
        max_output_tokens=900,
        tool_choice="required",
        parallel_tool_calls=False,
        stop=("END",),
        extra={"seed": 7, "extra_body": {"metadata": {"a": "b"}}},
    )
    await provider.chat(name="gpt-4o").generate(
        ask(
            SystemMessage(text="Be brief."),
            UserMessage(
                text="Look",
                parts=(TextPart(text="here"), ImagePart(url="https://x/i.png"), ImagePart(data=PIXEL)),
            ),
            AssistantMessage(text="", tool_calls=(ToolCall(id="t1", name="look.at", arguments={"a": "é"}),)),
            ToolMessage(text="seen", call_id="t1", name="look.at"),
            AssistantMessage(text=""),
            UserMessage(text="again"),
            tools=(TOOL, ToolSpec(name="look.at", description="", input_schema={"type": "object"})),
            settings=settings,
            max_output_tokens=300,
        )
    )
    (body,) = provider.bodies
    named = body["tools"][1]["function"]["name"]
    assert re.fullmatch(r"look_at__[0-9a-f]{10}", named)
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look"},
                {"type": "text", "text": "here"},
                {"type": "image_url", "image_url": {"url": "https://x/i.png"}},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": named, "arguments": '{"a":"é"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "seen"},
        {"role": "user", "content": "again"},
    ]
    assert body["tools"][0]["function"]["name"] == "look"
    sent = {name: body.get(name) for name in ("tool_choice", "parallel_tool_calls", "max_completion_tokens")}
    assert sent == {"tool_choice": "required", "parallel_tool_calls": False, "max_completion_tokens": 300}
    assert (body["temperature"], body["stop"], body["seed"], body["metadata"]) == (
        0.5,
        ["END"],
        7,
        {"a": "b"},
    )


async def test_the_models_settings_are_under_the_agents_and_nothing_is_sent_unasked() -> None:
    local = Local(TheirText("hi"))
    model = PydanticAIModel(
        FunctionModel(local.answer, settings={"temperature": 0.1, "top_p": 0.2, "max_retries": 5}),
        settings=ModelSettings(max_output_tokens=50, stop=("A",)),
    )
    await model.generate(
        ask(settings=ModelSettings(stop=("B",), tool_choice="required"), max_output_tokens=80)
    )
    settings = local.asked[0][1].model_settings
    assert settings == {
        "temperature": 0.1, "top_p": 0.2, "max_retries": 0, "max_tokens": 50, "stop_sequences": ["B"],
    }  # fmt: skip


async def test_settings_that_want_retries_are_refused() -> None:
    local = Local(TheirText("hi"))
    with pytest.raises(DefinitionError, match="max_retries"):
        await local.model().generate(ask(settings=ModelSettings(extra={"max_retries": 2})))
    assert local.asked == []


async def test_the_schema_of_the_answer_is_sent_where_it_can_be() -> None:
    provider = Provider(reply(content="{}"))
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    model = provider.chat()
    assert model.structured_output
    await model.generate(ask(output_schema=schema))
    form = provider.bodies[0]["response_format"]["json_schema"]
    assert (form["name"], form["schema"]["properties"]) == ("output", {"n": {"type": "integer"}})
    await model.generate(ask(output_schema={"type": "array"}))
    assert "response_format" not in provider.bodies[1]
    assert not provider.chat(profile=ModelProfile(supports_json_schema_output=False)).structured_output


async def test_results_of_a_turn_stand_together_and_errors_are_marked() -> None:
    local = Local(TheirText("hi"))
    await local.model().generate(
        ask(
            SystemMessage(text="s"),
            USER,
            AssistantMessage(tool_calls=(ToolCall(id="c1", name="a"), ToolCall(id="c2", name="a"))),
            ToolMessage(text="one", call_id="c1", name="a"),
            ToolMessage(text="two", call_id="c2", name="a", is_error=True),
            UserMessage(text="and"),
        )
    )
    first, second, third = local.asked[0][0]
    assert [part.part_kind for part in first.parts] == ["system-prompt", "user-prompt"]
    assert [part.part_kind for part in second.parts] == ["tool-call", "tool-call"]
    one, two, user = third.parts
    assert isinstance(one, ToolReturnPart)
    assert isinstance(two, ToolReturnPart)
    assert (one.content, one.outcome, two.content, two.outcome) == ("one", "success", "two", "failed")
    assert isinstance(user, UserPromptPart)


async def test_each_message_is_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    local = Local(TheirText("hi"))
    model = local.model()
    known = model._about()[1]._known
    converted: list[Message] = []
    convert = known._convert

    def counted(message: Message) -> Any:
        converted.append(message)
        return convert(message)

    monkeypatch.setattr(known, "_convert", counted)
    messages: list[Message] = [USER]
    tools = (TOOL,)
    for turn in range(20):
        await model.generate(ask(*messages, tools=tools))
        messages.append(AssistantMessage(text=str(turn)))
    assert len(converted) == 20
    first, last = local.asked[0], local.asked[-1]
    assert last[0][0].parts[0] is first[0][0].parts[0]
    assert last[1].function_tools == first[1].function_tools
    converted.clear()
    del messages, first, last
    local.asked.clear()
    gc.collect()
    assert len(known._messages) == 1


async def test_images_and_files() -> None:
    local = Local(TheirText("hi"))
    await local.model().generate(
        ask(
            UserMessage(
                text="",
                parts=(
                    ImagePart(url=f"data:image/gif;base64,{PIXEL}"),
                    FilePart(data=PIXEL, name="a.pdf"),
                    FilePart(url="https://x/a.pdf"),
                    FilePart(url="https://x/a", media_type="audio/mpeg"),
                    FilePart(url="https://x/v", media_type="video/mp4"),
                    FilePart(url="https://x/i", media_type="image/webp"),
                    ImagePart(data=PIXEL, url="https://x/i.png", media_type="image/webp"),
                ),
            )
        )
    )
    part = local.asked[0][0][0].parts[0]
    assert isinstance(part, UserPromptPart)
    assert not isinstance(part.content, str)
    gif, pdf, url, audio, video, webp, both = part.content
    assert isinstance(gif, BinaryContent)
    assert isinstance(pdf, BinaryContent)
    assert isinstance(both, BinaryContent)
    assert (gif.data, gif.media_type, both.media_type) == (b"A", "image/gif", "image/webp")
    assert (pdf.media_type, pdf.identifier) == ("application/pdf", "a.pdf")
    assert isinstance(url, DocumentUrl)
    assert [item.kind for item in (audio, video)] == ["audio-url", "video-url"]  # type: ignore[union-attr]
    assert isinstance(webp, ImageUrl)


async def test_a_part_that_cannot_be_sent_is_refused_before_anything_is() -> None:
    provider = Provider(reply(content="hi"))
    for part in (
        FilePart(),
        ImagePart(),
        ImagePart(data="no base64!"),
        ImagePart(url="data:image/png;base64,é"),
    ):
        with pytest.raises(DefinitionError, match="Part"):
            await provider.chat().generate(ask(UserMessage(text="x", parts=(part,))))
    audio = FilePart(data=PIXEL, media_type="video/mp4")
    with pytest.raises((DefinitionError, ModelError)):
        await provider.chat().generate(ask(UserMessage(text="x", parts=(audio,))))
    assert provider.requests == []


async def test_ids_have_the_length_a_provider_insists_on() -> None:
    local = Local(TheirText("hi"))
    model = local.model(profile=ModelProfile(tool_call_id_length=9))
    call = ToolCall(id="c1", name="a")
    await model.generate(
        ask(USER, AssistantMessage(tool_calls=(call,)), ToolMessage(text="", call_id="c1", name="a"))
    )
    _, asked, answered = local.asked[0][0]
    ids = {part.tool_call_id for part in (*asked.parts, *answered.parts) if hasattr(part, "tool_call_id")}
    assert len(ids) == 1
    assert re.fullmatch(r"[0-9a-zA-Z]{9}", ids.pop())


async def test_lone_surrogates_are_sent_as_replacements() -> None:
    provider = Provider(reply(content="hi"))
    call = ToolCall.model_construct(id="c1", name="a\ud800", arguments={"k\ud800": "\udfff"})
    await provider.chat().generate(
        ask(
            SystemMessage.model_construct(text="\ud800"),
            UserMessage.model_construct(text="\ud83d\ude00", parts=()),
            AssistantMessage.model_construct(text="x\ud800", tool_calls=(call,)),
            ToolMessage.model_construct(text="\udc00", call_id="c1", name="a\ud800"),
        )
    )
    sent = provider.bodies[0]["messages"]
    assert [sent[0]["content"], sent[1]["content"], sent[3]["content"]] == ["\ufffd", "😀", "\ufffd"]
    assert json.loads(sent[2]["tool_calls"][0]["function"]["arguments"]) == {"k\ufffd": "\ufffd"}


# ------------------------------------------------------------------ what comes back


async def test_text_usage_and_model() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 12},
    }
    response = await Provider(reply(content="hi", usage=usage)).chat().generate(ask())
    assert response.message == AssistantMessage(text="hi")
    assert (response.finish_reason, response.raw_finish_reason, response.model) == (
        "stop",
        "stop",
        "gpt-5-mini-2026",
    )
    assert response.usage == Usage(
        input_tokens=100, output_tokens=20, cached_tokens=64, reasoning_tokens=12, total_tokens=120
    )


async def test_tokens_read_from_and_written_into_a_cache_are_counted_once() -> None:
    body = anthropic_reply(
        {"type": "text", "text": "hi"}, cache_read_input_tokens=100, cache_creation_input_tokens=30
    )
    whole = await Provider(body).claude().generate(ask())
    assert whole.usage == Usage(
        input_tokens=140, output_tokens=5, cached_tokens=100, cache_write_tokens=30, total_tokens=145
    )
    assert (await streamed(Provider(body).claude(), ask())).usage == whole.usage


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}])
async def test_no_usage_is_none_and_not_zero(usage: object) -> None:
    body = reply(content="hi", usage=usage)
    assert (await Provider(body).chat().generate(ask())).usage is None
    assert (await streamed(Provider(chunks({"content": "hi"})).chat(), ask())).usage is None
    local = Local(TheirText("hi"), usage=RequestUsage(unmeasured_requests=1))
    assert (await local.model().generate(ask())).usage is None


@pytest.mark.parametrize(
    ("message", "finish"),
    [
        ({"content": "x", "finish_reason": "length"}, "length"),
        ({"content": "x", "finish_reason": "content_filter"}, "content_filter"),
        ({"content": "x", "finish_reason": None}, "unknown"),
        ({"tool_calls": calls(("a", "look", "{}")), "finish_reason": "stop"}, "tool_calls"),
        ({"tool_calls": calls(("a", "look", "{}")), "finish_reason": "tool_calls"}, "tool_calls"),
        ({"tool_calls": calls(("a", "look", "{}")), "finish_reason": "length"}, "length"),
    ],
)
async def test_finish_reasons(message: dict[str, Any], finish: str) -> None:
    response = await Provider(reply(**message)).chat().generate(ask())
    assert (response.finish_reason, response.raw_finish_reason) == (finish, message["finish_reason"])


async def test_refusals() -> None:
    told = await Provider(reply(refusal="No.")).chat().generate(ask())
    assert (told.message.text, told.finish_reason) == ("No.", "refusal")
    assert await streamed(
        Provider(chunks({"refusal": "N"}, {"refusal": "o."})).chat(), ask()
    ) == told.model_copy(update={"usage": None})
    body = anthropic_reply({"type": "text", "text": "I"}, stop="refusal")
    refused = await Provider(body).claude().generate(ask())
    assert (refused.finish_reason, refused.raw_finish_reason) == ("refusal", "refusal")


async def test_names_come_back_as_the_tools_own() -> None:
    tool = ToolSpec(name="look.at", description="", input_schema={"type": "object"})
    provider = Provider(reply(content="hi"))
    model = provider.chat()
    await model.generate(ask(tools=(tool,)))
    named = provider.bodies[0]["tools"][0]["function"]["name"]
    provider.reply = reply(tool_calls=calls(("a", named, "{}"), ("b", "nothing", "{}")))
    response = await model.generate(ask(tools=(tool,)))
    assert [call.name for call in response.message.tool_calls] == ["look.at", "nothing"]


@pytest.mark.parametrize("text", ["", "{", '{"a": 1', "[1]", '"x"', "null", '{"a": NaN}', '{"a": 1, "a": 2}'])
async def test_arguments_that_are_no_object_are_reported_as_they_came(text: str) -> None:
    made = calls(("a", "look", '{"n": 1}'), ("b", "look", text))
    response = await Provider(reply(tool_calls=made)).chat().generate(ask(tools=(TOOL,)))
    assert [call.arguments for call in response.message.tool_calls] == [{"n": 1}, {}]
    assert response.invalid_arguments == {1: text}
    deltas = [{"tool_calls": [{"index": at, **call}]} for at, call in enumerate(made)]
    again = await streamed(Provider(chunks(*deltas, finish="stop")).chat(), ask(tools=(TOOL,)))
    assert again.invalid_arguments == {1: text}
    assert again.message == response.message


async def test_a_call_without_arguments_where_they_are_objects_has_none() -> None:
    body = anthropic_reply({"type": "tool_use", "id": "t", "name": "look", "input": {}}, stop="tool_use")
    whole = await Provider(body).claude().generate(ask(tools=(TOOL,)))
    assert whole.message.tool_calls == (ToolCall(id="t", name="look"),)
    assert whole.invalid_arguments == {}
    assert await streamed(Provider(body).claude(), ask(tools=(TOOL,))) == whole
    # Cut off, it may have been about to have some.
    cut = anthropic_events({**body, "stop_reason": "max_tokens"})
    response = await streamed(Provider(cut).claude(), ask(tools=(TOOL,)))
    assert (response.finish_reason, response.invalid_arguments) == ("length", {0: ""})


async def test_ids_the_library_makes_up_are_made_up_alike() -> None:
    local = Local(ToolCallPart("look"), ToolCallPart("look", tool_call_id="theirs"), ToolCallPart("look"))
    response = await local.model().generate(ask(tools=(TOOL,)))
    assert [call.id for call in response.message.tool_calls] == ["call_0", "theirs", "call_2"]


async def test_a_local_model_gives_no_reason() -> None:
    local = Local(TheirText("a"), ThinkingPart("why"), TheirText("b"), ToolCallPart("look"))
    response = await local.model(model_name="m").generate(ask(tools=(TOOL,)))
    assert (response.finish_reason, response.raw_finish_reason, response.model) == ("unknown", None, "m")
    assert (response.message.text, response.message.reasoning) == ("ab", "why")
    assert response.message.tool_calls[0].arguments == {}


# ------------------------------------------------------------------ what is only the provider's

THOUGHT = {"type": "thinking", "thinking": "so it is", "signature": "sig=="}
CLAUDE = (
    THOUGHT,
    {"type": "text", "text": "I look"},
    {"type": "redacted_thinking", "data": "zzz"},
    {"type": "tool_use", "id": "t", "name": "look", "input": {"n": 1}},
)


async def test_reasoning_goes_back_to_its_provider_unchanged_and_to_no_other() -> None:
    provider = Provider(anthropic_reply(*CLAUDE, stop="tool_use"))
    model = provider.claude()
    whole = await model.generate(ask(tools=(TOOL,)))
    assert whole.message.reasoning == "so it is"
    assert await streamed(model, ask(tools=(TOOL,))) == whole
    stored = AssistantMessage.model_validate_json(whole.message.model_dump_json())
    said = json.dumps(stored.opaque)
    assert "I look" not in said
    assert json.dumps({"n": 1}) not in said
    result = ToolMessage(text="seen", call_id="t", name="look")
    await model.generate(ask(USER, stored, result, tools=(TOOL,)))
    (sent,) = (m for m in provider.bodies[-1]["messages"] if m["role"] == "assistant")
    assert sent["content"] == list(CLAUDE)

    for elsewhere in (
        Provider(reply(content="hi")).chat(),
        provider.claude(base_url="https://other.example"),
    ):
        other = elsewhere._source.provider.client._client._transport.handler.__self__  # type: ignore[union-attr]
        other.requests.clear()
        await elsewhere.generate(ask(USER, stored, result, tools=(TOOL,)))
        body = json.dumps(other.bodies[0])
        assert "I look" in body
        assert not [word for word in ("so it is", "sig==", "zzz") if word in body]


async def test_what_was_edited_since_is_sent_as_edited() -> None:
    provider = Provider(anthropic_reply(*CLAUDE, stop="tool_use"))
    model = provider.claude()
    message = (await model.generate(ask(tools=(TOOL,)))).message
    result = ToolMessage(text="seen", call_id="t", name="look")

    async def content(edited: AssistantMessage, *results: Message) -> list[dict[str, Any]]:
        await model.generate(ask(USER, edited, *results, tools=(TOOL,)))
        (sent,) = (m for m in provider.bodies[-1]["messages"] if m["role"] == "assistant")
        found: list[dict[str, Any]] = sent["content"]
        return found

    edited = message.model_copy(update={"text": "I shall"})
    assert await content(edited, result) == [
        THOUGHT,
        CLAUDE[2],
        {"type": "text", "text": "I shall"},
        CLAUDE[3],
    ]
    assert await content(message.model_copy(update={"text": ""}), result) == [THOUGHT, CLAUDE[2], CLAUDE[3]]
    assert await content(message.model_copy(update={"tool_calls": ()})) == [
        {"type": "text", "text": "I look"}
    ]
    key = next(iter(message.opaque or {}))
    strange = {key: {"parts": [{"part": {"part_kind": "of another version"}}, {"call": {}}], "text": "x"}}
    for opaque in (strange, {key: "text"}, {key: {"parts": 1}}):
        plain = message.model_copy(update={"opaque": opaque})
        assert await content(plain, result) == [{"type": "text", "text": "I look"}, CLAUDE[3]]


async def test_ids_of_items_come_back_only_with_the_text_they_stand_for() -> None:
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    output = [{**item, "content": [{"type": "output_text", "text": "hi", "annotations": []}]}]
    body = {
        "id": "r", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": output,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None, "incomplete_details": None,
    }  # fmt: skip
    provider = Provider(body)
    model = provider.chat(responses=True)
    message = (await model.generate(ask())).message
    (_, back, *_) = model._about()[1].asked(ask(USER, message, USER), base=ModelSettings()).messages
    assert isinstance(back, Reply)
    assert (back.provider_name, back.canonical_system) == ("openai", "openai")
    for text, known in (("hi", True), ("ho", False)):
        await model.generate(ask(USER, message.model_copy(update={"text": text}), USER))
        sent = json.dumps(provider.bodies[-1]["input"])
        assert (text in sent, "msg_1" in sent) == (True, known)


async def test_a_suspended_reply_is_an_error_that_says_what_it_cost() -> None:
    body = anthropic_reply({"type": "text", "text": "wait"}, stop="pause_turn")
    with pytest.raises(ModelError, match="suspended") as caught:
        await Provider(body).claude().generate(ask())
    assert (caught.value.type, caught.value.usage) == (
        "SuspendedReply",
        Usage(input_tokens=10, output_tokens=5, total_tokens=15),
    )
    with pytest.raises(ModelError, match="suspended"):
        await streamed(Provider(body).claude(), ask())


# ------------------------------------------------------------------ streams


@pytest.mark.parametrize("cut", [1, 4, 99])
async def test_a_streamed_reply_of_another_wire_is_the_reply(cut: int) -> None:
    body = anthropic_reply(
        THOUGHT,
        {"type": "text", "text": "a"},
        THOUGHT,
        {"type": "text", "text": "b😀"},
        CLAUDE[3],
        stop="tool_use",
    )
    whole = await Provider(body).claude().generate(ask(tools=(TOOL,)))
    assert whole.message.reasoning == "so it is\n\nso it is"
    assert await streamed(Provider(anthropic_events(body, cut=cut)).claude(), ask(tools=(TOOL,))) == whole


@pytest.mark.parametrize("keep", range(5))
async def test_a_stream_that_breaks_off_is_no_reply(keep: int) -> None:
    events = anthropic_events(anthropic_reply({"type": "text", "text": "half"}))[: keep + 1]
    for model in (
        Provider(events).claude(),
        Provider(chunks({"content": "half"}, {"content": " of it"}, finish=None)[: keep + 1]).chat(),
    ):
        with pytest.raises(ModelError) as caught:
            await streamed(model, ask())
        assert (caught.value.type, caught.value.retryable) == ("StreamIncomplete", True)


async def test_a_reply_the_library_streams_unasked_may_break_off_too() -> None:
    events = anthropic_events(anthropic_reply({"type": "text", "text": "halves"}))
    whole = await Provider(events).claude().generate(ask())
    assert (whole.message.text, whole.finish_reason) == ("halves", "stop")
    with pytest.raises(ModelError) as caught:
        await Provider(events[:4]).claude().generate(ask())
    assert (caught.value.type, caught.value.retryable) == ("StreamIncomplete", True)


async def test_a_local_stream_ends_when_it_ends() -> None:
    async def said(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        for piece in ("a", "b"):
            yield piece
        yield {1: DeltaToolCall(name="lo", json_args='{"n"', tool_call_id="x")}
        yield {1: DeltaToolCall(name="ok", json_args=": 1}")}

    response = await streamed(PydanticAIModel(FunctionModel(stream_function=said)), ask(tools=(TOOL,)))
    assert (response.message.text, response.finish_reason) == ("ab", "unknown")
    assert response.message.tool_calls == (ToolCall(id="x", name="look", arguments={"n": 1}),)


async def test_a_model_that_cannot_stream_gives_its_reply_at_once() -> None:
    class Mute(TheirModel[None]):
        model_name = "mute"
        system = "house"

        async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Reply:
            return Reply([ThinkingPart("so"), TheirText("hi"), ToolCallPart("look", '{"a": 1}', "x")])

    model = PydanticAIModel(Mute())
    assert (model.name, model.provider) == ("mute", "house")
    assert await streamed(model, ask(tools=(TOOL,))) == await model.generate(ask(tools=(TOOL,)))
