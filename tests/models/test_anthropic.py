"""What is sent to Anthropic."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue
from tests.models.anthropic_fake import Provider, call, reply, text

from overt._output import OutputSpec
from overt.errors import DefinitionError
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
    UserMessage,
    UserPart,
)
from overt.models._wire import wire_name

# What is sent does not depend on the loop.
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

USER = UserMessage(text="go")
TOOL = ToolSpec(name="look", description="Look.", input_schema={"type": "object", "properties": {}})
WIRE_TOOL = {
    "name": "look",
    "description": "Look.",
    "input_schema": {"type": "object", "properties": {}},
}
EPHEMERAL = {"type": "ephemeral"}


def ask(*messages: Message, **more: Any) -> ModelRequest:
    return ModelRequest(messages=messages or (USER,), **more)


def said(*calls: str, text: str = "") -> AssistantMessage:
    return AssistantMessage(
        text=text, tool_calls=tuple(ToolCall(id=id, name="look", arguments={"at": id}) for id in calls)
    )


def result(id: str, text: str = "seen", *, is_error: bool = False) -> ToolMessage:
    return ToolMessage(text=text, call_id=id, name="look", is_error=is_error)


async def sent(*messages: Message, options: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The body of a request."""
    provider = Provider(reply(text("hi")))
    await provider.model(**(options or {})).generate(ask(*messages, **more))
    (body,) = provider.bodies
    return body


async def test_messages_tools_and_settings_are_sent() -> None:
    settings = ModelSettings(
        temperature=0.5,
        max_output_tokens=900,
        tool_choice="required",
        parallel_tool_calls=False,
        stop=("END",),
    )
    body = await sent(
        SystemMessage(text="Be brief."),
        UserMessage(text="Look"),
        said("t1", "t2", text="I look."),
        result("t1"),
        result("t2", "no", is_error=True),
        UserMessage(text="And now?"),
        AssistantMessage(text="Seen."),
        USER,
        tools=(TOOL,),
        settings=settings,
        max_output_tokens=300,
        output_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    )
    look = {"type": "tool_use", "name": "look"}
    assert body == {
        "model": "claude-sonnet-5",
        "max_tokens": 300,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {**look, "id": "t1", "input": {"at": "t1"}},
                    {**look, "id": "t2", "input": {"at": "t2"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "seen"},
                    {"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": True},
                    {"type": "text", "text": "And now?"},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "Seen."}]},
            {"role": "user", "content": [{"type": "text", "text": "go"}]},
        ],
        "tools": [WIRE_TOOL],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "temperature": 0.5,
        "stop_sequences": ["END"],
        "output_config": {
            "format": {
                "type": "json_schema",
                "schema": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                    "additionalProperties": False,
                },
            }
        },
    }


async def test_nothing_is_sent_that_nobody_asked_for() -> None:
    assert set(await sent(settings=ModelSettings(tool_choice="auto"))) == {"model", "max_tokens", "messages"}
    body = await sent(tools=(TOOL,), settings=ModelSettings(parallel_tool_calls=True))
    assert set(body) == {"model", "max_tokens", "messages", "tools"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "required"}, {"type": "any"}),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
    ],
)
async def test_tool_choices(settings: dict[str, Any], expected: dict[str, Any]) -> None:
    assert (await sent(tools=(TOOL,), settings=ModelSettings(**settings)))["tool_choice"] == expected


async def test_the_limit_is_the_least_and_a_large_budget_raises_none() -> None:
    async def limit(said: int | None, left: int | None, **options: Any) -> int:
        settings = ModelSettings(max_output_tokens=said)
        body = await sent(settings=settings, max_output_tokens=left, options=options)
        return int(body["max_tokens"])

    assert await limit(None, None) == 16_384
    assert await limit(None, 1_000_000) == 16_384
    assert await limit(None, 70) == 70
    assert await limit(64_000, 1_000_000) == 64_000
    assert await limit(64_000, 500) == 500
    assert await limit(None, None, max_output_tokens=99) == 99
    assert await limit(64_000, None, max_output_tokens=99) == 64_000


async def test_the_models_settings_are_under_the_agents_and_extra_is_merged() -> None:
    options = {
        "settings": ModelSettings(temperature=0.1, max_output_tokens=50, extra={"service_tier": "auto"})
    }
    body = await sent(
        options=options, settings=ModelSettings(temperature=0.9), max_output_tokens=80, tools=(TOOL,)
    )
    assert (body["temperature"], body["max_tokens"], body["service_tier"]) == (0.9, 50, "auto")
    search: dict[str, JsonValue] = {"type": "web_search_20260209", "name": "web_search"}
    body = await sent(
        tools=(TOOL,),
        output_schema={"type": "object", "properties": {"a": {"type": "integer"}}},
        settings=ModelSettings(
            extra={
                "tools": [search],
                "output_config": {"effort": "low"},
                "thinking": {"type": "adaptive"},
                "odd": "\ud800",
            }
        ),
    )
    assert body["tools"] == [WIRE_TOOL, search]
    assert (body["output_config"]["effort"], body["output_config"]["format"]["type"]) == (
        "low",
        "json_schema",
    )
    assert (body["thinking"], body["odd"]) == ({"type": "adaptive"}, "�")
    body = await sent(settings=ModelSettings(extra={"tools": [search], "stream": True}))
    assert (body["tools"], "stream" in body) == ([search], False)


async def test_results_of_a_turn_come_first_and_in_the_order_of_the_calls() -> None:
    body = await sent(
        USER,
        said("a", "b", "c"),
        UserMessage(text="early"),
        result("c"),
        result("a"),
        result("b"),
        UserMessage(text="late"),
        UserMessage(text="later"),
    )
    content = body["messages"][2]["content"]
    assert [block.get("tool_use_id") or block["text"] for block in content] == [
        "a",
        "b",
        "c",
        "early",
        "late",
        "later",
    ]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]


async def test_blank_texts_are_left_out_or_said_to_be_empty() -> None:
    blank = UserMessage(text=" \n")
    body = await sent(
        SystemMessage(text=" "),
        blank,
        AssistantMessage(text="\n"),
        USER,
        said("a", text=" "),
        result("a", ""),
        blank,
        AssistantMessage(text="x"),
        blank,
        said("b"),
        result("b", " ", is_error=True),
    )
    assert "system" not in body
    contents = [message["content"] for message in body["messages"]]
    failed = {"content": "The tool failed and said nothing.", "is_error": True}
    assert contents == [
        # The assistant's blank text is no message, so that two of the user's meet.
        [{"type": "text", "text": "go"}],
        [{"type": "tool_use", "id": "a", "name": "look", "input": {"at": "a"}}],
        [{"type": "tool_result", "tool_use_id": "a"}],
        [{"type": "text", "text": "x"}],
        [{"type": "text", "text": "(empty)"}],
        [{"type": "tool_use", "id": "b", "name": "look", "input": {"at": "b"}}],
        [{"type": "tool_result", "tool_use_id": "b", **failed}],
    ]


async def test_calls_of_tools_that_are_offered_no_more() -> None:
    body = await sent(USER, said("a"), result("a"))
    assert [(tool["name"], tool["input_schema"]) for tool in body["tools"]] == [("look", {"type": "object"})]
    assert body["tool_choice"] == {"type": "none"}


async def test_images_and_files() -> None:
    parts: tuple[UserPart, ...] = (
        TextPart(text="here"),
        ImagePart(url="https://x/i.png"),
        ImagePart(data="QUI="),
        ImagePart(data="QUI=", media_type="image/jpeg"),
        ImagePart(url="data:image/webp;base64,QUI="),
        FilePart(data="QUI=", name="a.pdf"),
        FilePart(url="https://x/a.pdf", media_type="application/pdf"),
        FilePart(url="data:application/pdf;base64,QUI="),
        FilePart(data="w7w=", media_type="text/csv; charset=utf-8", name="ü.csv"),
        FilePart(data="QUI=", media_type="image/png"),
    )
    body = await sent(UserMessage(text="Look", parts=parts))

    def base64(media_type: str) -> dict[str, str]:
        return {"type": "base64", "media_type": media_type, "data": "QUI="}

    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "Look"},
        {"type": "text", "text": "here"},
        {"type": "image", "source": {"type": "url", "url": "https://x/i.png"}},
        {"type": "image", "source": base64("image/png")},
        {"type": "image", "source": base64("image/jpeg")},
        {"type": "image", "source": base64("image/webp")},
        {"type": "document", "source": base64("application/pdf"), "title": "a.pdf"},
        {"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}},
        {"type": "document", "source": base64("application/pdf")},
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "ü"},
            "title": "ü.csv",
        },
        {"type": "image", "source": base64("image/png")},
    ]


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (ImagePart(), "ImagePart of a user message .* neither url nor data"),
        (ImagePart(data="QUI=", media_type="image/tiff"), "image/tiff"),
        (ImagePart(url="https://x/i.svg", media_type="image/svg+xml"), "image/svg"),
        (FilePart(), "FilePart of a user message .* neither url nor data"),
        (FilePart(data="QUI=", media_type="audio/mpeg", name="a.mp3"), "FilePart 'a.mp3' .*audio/mpeg"),
        (FilePart(url="https://x/a.txt", media_type="text/plain"), "text/plain', by url"),
        (FilePart(data="?", media_type="text/plain"), "not UTF-8 in base64"),
        (FilePart(data="/w==", media_type="text/plain"), "not UTF-8 in base64"),
    ],
)
async def test_a_part_that_cannot_be_sent_is_refused_before_anything_is(part: UserPart, told: str) -> None:
    provider = Provider(reply(text("hi")))
    with pytest.raises(DefinitionError, match=told):
        await provider.model().generate(ask(UserMessage(text="x", parts=(part,))))
    assert provider.requests == []


async def test_names_and_ids_the_api_does_not_take() -> None:
    names = ["a.b", "a_b", "a b", "a" * 200, *(f"t{n}" for n in range(296))]
    tools = tuple(ToolSpec(name=name, description=name, input_schema={"type": "object"}) for name in names)
    provider = Provider(reply(*(call({}, id=name, name=wire_name(name)) for name in names), stop="tool_use"))
    response = await provider.model().generate(ask(tools=tools))
    assert [item.name for item in response.message.tool_calls] == names
    offered = [tool["name"] for tool in provider.bodies[0]["tools"]]
    assert len({*offered}) == 300
    assert all(len(name) <= 64 and name.replace("-", "_").isidentifier() for name in offered)
    body = await sent(USER, response.message, *(result(name) for name in names), tools=tools)
    calls, results = body["messages"][1]["content"], body["messages"][2]["content"]
    assert [block["name"] for block in calls] == offered
    assert [block["id"] for block in calls] == [block["tool_use_id"] for block in results]
    assert all(block["id"].replace("-", "_").isidentifier() for block in calls)


async def test_broken_texts_never_break() -> None:
    odd = "a\ud83d\x00b\udc00"
    body = await sent(
        SystemMessage(text=odd),
        UserMessage(text=odd, parts=(TextPart(text=odd), FilePart(data="QUI=", name=odd))),
        AssistantMessage(text=odd, tool_calls=(ToolCall(id=odd, name=odd, arguments={odd: odd}),)),
        ToolMessage(text=odd, call_id=odd, name=odd),
        tools=(ToolSpec(name=odd, description=odd, input_schema={"type": "object", "title": odd}),),
        settings=ModelSettings(stop=(odd,)),
    )
    clean = "a�\x00b�"
    assert body["system"] == [{"type": "text", "text": clean}]
    assert body["messages"][1]["content"][1]["input"] == {clean: clean}
    assert (body["tools"][0]["description"], body["stop_sequences"]) == (clean, [clean])


async def test_each_message_is_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Provider(reply(text("hi")))
    model = provider.model()
    converted: list[Message] = []
    convert = model._converter._converted._convert

    def counted(message: Message) -> Any:
        converted.append(message)
        return convert(message)

    monkeypatch.setattr(model._converter._converted, "_convert", counted)
    messages: list[Message] = [USER]
    tools = (TOOL,)
    for turn in range(20):
        await model.generate(ask(*messages, tools=tools))
        messages.append(AssistantMessage(text=str(turn)))
    assert len(converted) == 20
    assert [len(body["messages"]) for body in provider.bodies] == list(range(1, 21))
    assert len(model._converter._digests) == 1
    converted.clear()
    del messages
    gc.collect()
    assert len(model._converter._converted._messages) == 1


async def test_cache_breakpoints_are_set_where_the_next_request_finds_them() -> None:
    provider = Provider(reply(text("hi")))
    model = provider.model(cache=True)
    first = (SystemMessage(text="Be brief."), USER)
    second = (*first, said("a", "b"), result("a"), result("b"))
    third = (*second, AssistantMessage(text="so"), UserMessage(text="on"))
    for messages in (first, second, third):
        await model.generate(ask(*messages, tools=(TOOL, TOOL)))

    def marked(body: dict[str, Any]) -> list[tuple[int, int]]:
        blocks = [
            ((at, place), block)
            for at, group in enumerate(
                (body["tools"], body["system"], *(message["content"] for message in body["messages"]))
            )
            for place, block in enumerate(group)
        ]
        return [place for place, block in blocks if block.get("cache_control") == EPHEMERAL]

    assert [marked(body) for body in provider.bodies] == [
        [(0, 1), (1, 0), (2, 0)],
        [(0, 1), (1, 0), (2, 0), (4, 1)],
        [(0, 1), (1, 0), (4, 1), (6, 0)],
    ]
    # The converted messages are shared and stay as they are.
    assert marked(await sent(*third, tools=(TOOL,), options={"cache": False})) == []


# ------------------------------------------------------------------ typed output


class Stop(BaseModel):
    city: str
    days: int | None = None


class Tree(BaseModel):
    children: list[Tree] = []


class Chain(BaseModel):
    next: Chain | None = None


async def form_of(output_type: object, **options: Any) -> dict[str, Any]:
    schema = OutputSpec(output_type, where="test").schema
    return await sent(SystemMessage(text="Be brief."), output_schema=schema, options=options)


@pytest.mark.parametrize("output_type", [Stop, list[Stop], int | str, bool])
async def test_an_answer_is_asked_for_by_its_schema(output_type: object) -> None:
    body = await form_of(output_type)
    schema = body["output_config"]["format"]["schema"]
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)
    assert len(body["system"]) == 1


@pytest.mark.parametrize(
    "output_type", [dict[str, int], Tree, Chain, list[dict[str, str]], Any, dict[str, Stop]]
)
async def test_an_answer_no_schema_of_the_api_can_say_is_asked_for_in_words(output_type: object) -> None:
    body = await form_of(output_type)
    assert "output_config" not in body
    told = body["system"][1]["text"]
    assert told.startswith("Give your final answer as one JSON value")
    assert '"properties"' in told


async def test_the_form_of_an_answer_is_made_once() -> None:
    provider = Provider(reply(text("{}")))
    model = provider.model()
    schema = OutputSpec(Stop, where="test").schema
    for _ in range(3):
        await model.generate(ask(output_schema=schema))
    assert len(model._converter._formats) == 1
    assert model.structured_output
    assert not provider.model(structured_output=False).structured_output
