"""What the adapter for the Responses API sends, and what it reads."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from tests.models.openai_fake import Body, Provider, sse, streamed
from tests.models.responses_fake import events_of, failed, function_call, message, reasoning, response

from overt.errors import DefinitionError, ModelError
from overt.message import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from overt.models import OpenAIModel, OpenAIResponsesModel, resolve
from overt.models._wire import wire_name

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

USER = UserMessage(text="go")
TOOL = ToolSpec(name="look", description="Look.", input_schema={"type": "object", "properties": {}})
SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


def ask(*messages: Message, **more: Any) -> ModelRequest:
    return ModelRequest(messages=messages or (USER,), **more)


async def sent(request: ModelRequest, **options: Any) -> dict[str, Any]:
    """The body of a request."""
    provider = Provider(response(message("hi")))
    await provider.responses(**options).generate(request)
    return provider.bodies[0]


async def both(whole: dict[str, Any], request: ModelRequest | None = None) -> ModelResponse:
    """A reply, which is the same whole and streamed."""
    request = request or ask(tools=(TOOL,))
    reply = await Provider(whole).responses().generate(request)
    assert await streamed(Provider(Body(sse(events_of(whole)))).responses(), request) == reply
    return reply


async def back(reply: ModelResponse, *after: Message, **options: Any) -> list[dict[str, Any]]:
    """What of a reply, stored and read again, stands in the next request."""
    stored = AssistantMessage.model_validate_json(reply.message.model_dump_json())
    body = await sent(ask(USER, stored, *after), **options)
    items: list[dict[str, Any]] = body["input"][1:]
    return items


# ------------------------------------------------------------------ what is sent


async def test_messages_tools_and_settings_are_sent() -> None:
    settings = ModelSettings(
        temperature=0.5, max_output_tokens=900, tool_choice="required", parallel_tool_calls=False
    )
    request = ask(
        SystemMessage(text="Be brief."),
        UserMessage(
            text="Look",
            parts=(
                TextPart(text="here"),
                ImagePart(url="https://x/i.png"),
                ImagePart(data="QUI="),
                FilePart(url="https://x/a.pdf"),
                FilePart(data="QUI=", name="a.pdf"),
            ),
        ),
        AssistantMessage(
            text="I look.",
            tool_calls=(
                ToolCall(id="t1", name="look", arguments={"a": "é"}),
                ToolCall(id="t2", name="look"),
            ),
        ),
        ToolMessage(text="seen", call_id="t1", name="look"),
        ToolMessage(text="failed", call_id="t2", name="look", is_error=True),
        AssistantMessage(text=""),
        AssistantMessage(text="Seen."),
        tools=(TOOL,),
        settings=settings,
        max_output_tokens=300,
        output_schema=SCHEMA,
    )
    assert await sent(request) == {
        "model": "gpt-5-mini",
        "input": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Look"},
                    {"type": "input_text", "text": "here"},
                    {"type": "input_image", "image_url": "https://x/i.png", "detail": "auto"},
                    {"type": "input_image", "image_url": "data:image/png;base64,QUI=", "detail": "auto"},
                    {"type": "input_file", "file_url": "https://x/a.pdf"},
                    {
                        "type": "input_file",
                        "filename": "a.pdf",
                        "file_data": "data:application/pdf;base64,QUI=",
                    },
                ],
            },
            {"role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": "t1", "name": "look", "arguments": '{"a":"é"}'},
            {"type": "function_call", "call_id": "t2", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "t1", "output": "seen"},
            {"type": "function_call_output", "call_id": "t2", "output": "failed"},
            {"role": "assistant", "content": "Seen."},
        ],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "tools": [
            {
                "type": "function",
                "name": "look",
                "description": "Look.",
                "parameters": SCHEMA,
                "strict": False,
            }
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_output_tokens": 300,
        "temperature": 0.5,
        "text": {"format": {"type": "json_schema", "name": "output", "schema": SCHEMA}},
    }


async def test_nothing_is_sent_that_nobody_asked_for() -> None:
    settings = ModelSettings(tool_choice="auto", parallel_tool_calls=True)
    body = await sent(ask(settings=settings, output_schema={"type": "array"}))
    assert set(body) == {"model", "input", "store", "include"}
    provider = Provider(Body(sse(events_of(response(message("hi"))))))
    await streamed(provider.responses(), ask())
    assert provider.bodies == [{**body, "stream": True}]


async def test_the_least_limit_the_api_takes() -> None:
    assert (await sent(ask(max_output_tokens=3)))["max_output_tokens"] == 16
    assert (await sent(ask(max_output_tokens=17)))["max_output_tokens"] == 17


async def test_extra_fields_stand_beside_what_the_adapter_sends() -> None:
    extra: dict[str, Any] = {
        "tools": [{"type": "web_search"}],
        "include": ["web_search_call.action.sources", "reasoning.encrypted_content"],
        "text": {"verbosity": "low"},
        "reasoning": {"effort": "low"},
        "store": True,
    }
    body = await sent(ask(tools=(TOOL,), output_schema=SCHEMA, settings=ModelSettings(extra=extra)))
    assert [tool["type"] for tool in body["tools"]] == ["function", "web_search"]
    assert body["include"] == ["reasoning.encrypted_content", "web_search_call.action.sources"]
    assert (set(body["text"]), body["text"]["verbosity"]) == ({"format", "verbosity"}, "low")
    assert (body["reasoning"], body["store"]) == ({"effort": "low"}, True)
    alone = await sent(ask(settings=ModelSettings(extra=extra)))
    assert (alone["tools"], alone["text"]) == ([{"type": "web_search"}], {"verbosity": "low"})


async def test_stop_sequences_are_refused() -> None:
    provider = Provider(response())
    with pytest.raises(DefinitionError, match=r"no stop sequences.*OpenAIModel"):
        await provider.responses().generate(ask(settings=ModelSettings(stop=("END",))))
    with pytest.raises(DefinitionError, match="url or data"):
        await streamed(provider.responses(), ask(UserMessage(text="x", parts=(FilePart(),))))
    assert provider.requests == []


@pytest.mark.parametrize(
    ("name", "asks"),
    [
        ("gpt-5-mini", True),
        ("gpt-6-astra", True),
        ("o3", True),
        ("ft:o4-mini:acme", True),
        ("gpt-oss-120b", True),
        ("gpt-4.1-mini", False),
        ("gpt-4o", False),
        ("ft:gpt-4o:acme", False),
        ("gpt-5-chat-latest", False),
        ("gpt-5.2-chat-latest", False),
    ],
)
async def test_reasoning_is_asked_for_where_there_may_be_some(name: str, asks: bool) -> None:
    provider = Provider(response(message("hi")))
    for encrypted in (None, True, False):
        model = OpenAIResponsesModel(name, client=provider.client(), encrypted_reasoning=encrypted)
        await model.generate(ask())
        assert ("include" in provider.bodies[-1]) is (asks if encrypted is None else encrypted)


async def test_each_message_is_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Provider(response(message("hi")))
    model = provider.responses()
    converted: list[Message] = []
    convert = model._converter._converted._convert

    def counted(message: Message) -> Any:
        converted.append(message)
        return convert(message)

    monkeypatch.setattr(model._converter._converted, "_convert", counted)
    messages: list[Message] = [USER]
    for turn in range(20):
        await model.generate(ask(*messages))
        messages.append(AssistantMessage(text=str(turn)))
    assert len(converted) == 20
    assert [len(body["input"]) for body in provider.bodies] == list(range(1, 21))
    converted.clear()
    del messages
    gc.collect()
    assert len(model._converter._converted._messages) == 1


async def test_names_and_texts_of_any_kind() -> None:
    names = [*(f"tool_{n}" for n in range(297)), "a.b", "a b", "x" * 200]
    tools = tuple(ToolSpec(name=name, description="\ud800", input_schema=SCHEMA) for name in names)
    odd = AssistantMessage(
        text="\x00\ud800", tool_calls=(ToolCall(id="ö" * 99, name="a.b", arguments={"\ud800": "\x00"}),)
    )
    request = ask(UserMessage(text="\ud83c\udf89\udf89"), odd, tools=tools)
    body = await sent(request)
    assert len({tool["name"] for tool in body["tools"]}) == 300
    assert [item.get("content") for item in body["input"][:2]] == ["🎉\ufffd", "\x00\ufffd"]
    call = body["input"][2]
    assert (call["name"], call["arguments"]) == (wire_name("a.b"), '{"\ufffd":"\\u0000"}')
    for name in ("a.b", "a b", "x" * 200):
        reply = await both(response(function_call("{}", name=wire_name(name))), request)
        assert [item.name for item in reply.message.tool_calls] == [name]


async def test_a_model_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k-123")
    model = resolve("openai-responses:gpt-5-mini")
    assert isinstance(model, OpenAIResponsesModel)
    assert model.name == "gpt-5-mini"
    assert isinstance(resolve("openai:gpt-5-mini"), OpenAIModel)
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(DefinitionError, match=r"OpenAIResponsesModel 'm' has no API key.*OPENAI_API_KEY"):
        resolve("openai-responses:m")


# ------------------------------------------------------------------ what comes back


@pytest.mark.parametrize(
    ("more", "finish", "raw"),
    [
        ({}, "stop", "completed"),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            "content_filter",
            None,
        ),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length", None),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_messages"}}, "unknown", None),
        ({"status": "incomplete", "incomplete_details": None}, "unknown", "incomplete"),
        ({"status": "cancelled"}, "unknown", "cancelled"),
    ],
)
async def test_finish_reasons(more: dict[str, Any], finish: str, raw: str | None) -> None:
    reply = await both(response(message("hi"), **more))
    raw = raw or more["incomplete_details"]["reason"]
    assert (reply.finish_reason, reply.raw_finish_reason) == (finish, raw)


async def test_a_status_nobody_gives() -> None:
    for status in ("queued", None):
        reply = await Provider(response(message("hi"), status=status)).responses().generate(ask())
        assert (reply.finish_reason, reply.raw_finish_reason) == ("unknown", status)


async def test_a_response_that_failed() -> None:
    whole = failed()
    for reply in (whole, Body(sse([{"type": "response.failed", "response": {**whole, "status": None}}]))):
        model = Provider(reply).responses()
        with pytest.raises(ModelError, match="ErrorReply 500: The server had an error") as caught:
            await (model.generate(ask()) if reply is whole else streamed(model, ask()))
        error = caught.value
        assert (error.retryable, error.usage) == (
            True,
            Usage(input_tokens=100, output_tokens=20, total_tokens=120),
        )
    with pytest.raises(ModelError, match="no error is given"):
        await Provider(response(status="failed")).responses().generate(ask())
    nothing = Body(sse([{"type": "response.failed", "response": {"model": "m"}}]))
    with pytest.raises(ModelError, match="no error is given"):
        await streamed(Provider(nothing).responses(), ask())


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, "ErrorReply 429: slow"),
        ({"type": "error", "error": {"type": "tokens", "code": "rate_limit_exceeded", "message": "slow"}},
         "ErrorReply 429: slow"),
        ({"type": "error", "error": {"type": "insufficient_quota", "code": "x", "message": "pay"}},
         "ErrorReply: pay"),
        ({"error": {"code": "server_error", "message": "broken"}}, "ErrorReply 500: broken"),
    ],
)  # fmt: skip
async def test_an_error_event(event: dict[str, Any], told: str) -> None:
    events = [*events_of(response(message("hi")))[:5], event]
    with pytest.raises(ModelError, match=told) as caught:
        await streamed(Provider(Body(sse(events))).responses(), ask())
    assert caught.value.retryable is ("pay" not in told)


@pytest.mark.parametrize("body", [{}, {"output": None, "status": "completed"}, {"choices": []}])
async def test_a_reply_that_is_none(body: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="has no output") as caught:
        await Provider(body).responses().generate(ask())
    assert caught.value.type == "InvalidReply"


async def test_items_of_any_form_do_not_break_a_reply() -> None:
    items: list[Any] = [
        None,
        {"type": "brand_new", "id": "x", "content": [1]},
        {"type": "reasoning", "id": None, "summary": None, "content": "x"},
        {"type": "message", "content": [None, {"type": "x"}, {"type": "output_text", "text": "a"}]},
        {"type": "message", "content": "b", "id": 7, "phase": 8},
        {"type": "function_call"},
        {"type": "computer_call", "id": "cu_1", "call_id": "c", "status": "completed"},
    ]
    reply = await Provider(response(*items)).responses().generate(ask(tools=(TOOL,)))
    assert (reply.message.text, reply.finish_reason) == ("a\n\nb", "tool_calls")
    assert (reply.message.tool_calls, reply.invalid_arguments) == ((ToolCall(id="call_0", name=""),), {0: ""})
    assert [item.get("type") for item in await back(reply)] == [None, "function_call"]


async def test_an_endpoint_whose_last_event_has_no_output() -> None:
    whole = response(reasoning("so", "on"), message("hi"), function_call('{"at": "A1"}'))
    expected = await both(whole)
    events = events_of(whole)
    events[-1] = {"type": "response.completed", "response": {**whole, "output": []}}
    assert await streamed(Provider(Body(sse(events))).responses(), ask(tools=(TOOL,))) == expected
    # Nor ends its items, nor says at which place they stand.
    bare = [
        {key: value for key, value in event.items() if key != "output_index"}
        for event in events
        if event["type"] != "response.output_item.done" or event["item"]["type"] == "reasoning"
    ]
    assert await streamed(Provider(Body(sse(bare))).responses(), ask(tools=(TOOL,))) == expected
    # Or counts from elsewhere.
    moved = [
        {**event, "output_index": event["output_index"] + 3} if "output_index" in event else event
        for event in events
    ]
    assert await streamed(Provider(Body(sse(moved))).responses(), ask(tools=(TOOL,))) == expected
    # Says calls only as they end.
    late = [event for event in events_of(whole) if "function_call_arguments" not in event["type"]]
    assert await streamed(Provider(Body(sse(late))).responses(), ask(tools=(TOOL,))) == expected


# ------------------------------------------------------------------ what goes back


async def test_reasoning_goes_back_whole_and_in_its_place() -> None:
    first, second = reasoning("So.", id="rs_1"), reasoning(id="rs_2", encrypted="gBBB")
    whole = response(
        first,
        message("I look.", phase="commentary"),
        second,
        function_call('{"at": "A1"}'),
        message("And on.", id="msg_2"),
        function_call('{"at": "B2"}', call_id="call_b", id="fc_2", namespace="n"),
    )
    reply = await both(whole)
    assert reply.message.reasoning == "So."
    assert reply.message.text == "I look.\n\nAnd on."

    def text(said: str, id: str, **more: object) -> dict[str, Any]:
        content = [{"type": "output_text", "text": said, "annotations": []}]
        item = {"type": "message", "id": id, "role": "assistant", "status": "completed"}
        return {**item, "content": content, **more}

    def call(at: str, id: str, call_id: str, **more: object) -> dict[str, Any]:
        named = {"type": "function_call", "id": id, "call_id": call_id, "name": "look"}
        return {**named, "arguments": f'{{"at":"{at}"}}', **more}

    assert await back(reply, ToolMessage(text="seen", call_id="call_a", name="look")) == [
        first,
        text("I look.", "msg_1", phase="commentary"),
        second,
        call("A1", "fc_1", "call_a"),
        text("And on.", "msg_2"),
        call("B2", "fc_2", "call_b", namespace="n"),
        {"type": "function_call_output", "call_id": "call_a", "output": "seen"},
    ]


async def test_what_was_written_for_one_host_stays_there() -> None:
    reply = await both(response(reasoning("So."), function_call('{"at": "A1"}')))
    stored = AssistantMessage.model_validate_json(reply.message.model_dump_json())
    plain = {"type": "function_call", "call_id": "call_a", "name": "look", "arguments": '{"at":"A1"}'}
    other = Provider(response(message("hi")))
    model = OpenAIResponsesModel("m", client=other.client(base_url="https://other.example/v1"))
    await model.generate(ask(USER, stored))
    assert other.bodies[0]["input"][1:] == [plain]
    chat = Provider({"choices": [{"message": {"content": "hi"}}]})
    await chat.model().generate(ask(USER, stored))
    assert set(chat.bodies[0]["messages"][1]) == {"role", "content", "tool_calls"}


async def test_a_message_that_a_hook_changed_takes_its_reasoning_along() -> None:
    item = reasoning("So.")
    reply = await both(response(item, message("secret"), function_call('{"at": "A1"}')))
    changed = reply.message.model_copy(update={"text": "«redacted»"})
    call = {"type": "function_call", "call_id": "call_a", "name": "look", "arguments": '{"at":"A1"}'}
    assert await back(reply.model_copy(update={"message": changed})) == [
        item,
        {"role": "assistant", "content": "«redacted»"},
        call,
    ]
    two = await both(response(item, message("a"), message("b", id="msg_2")))
    other = two.message.model_copy(update={"text": "aXXb"})
    plain = {"role": "assistant", "content": "aXXb"}
    assert await back(two.model_copy(update={"message": other})) == [item, plain]
    without = reply.message.model_copy(update={"tool_calls": ()})
    assert await back(reply.model_copy(update={"message": without})) == [
        item,
        {"role": "assistant", "content": "secret"},
    ]


async def test_reasoning_that_nobody_could_find_is_not_sent() -> None:
    bare = reasoning("So.", encrypted=None)
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    whole = response(bare, search, message("hi", phase="final_answer"))
    reply = await both(whole)
    assert reply.message.reasoning == "So."
    assert await back(reply) == [{"role": "assistant", "content": "hi", "phase": "final_answer"}]
    # A provider that stores the reply knows it by its id.
    request = ask(settings=ModelSettings(extra={"store": True}))
    reply = await both(whole, request)
    assert [item.get("id") for item in await back(reply)] == ["rs_1", "ws_1", "msg_1"]
    # An open model gives its reasoning in full.
    plain = {**reasoning(encrypted=None), "content": [{"type": "reasoning_text", "text": "Hm."}]}
    reply = await both(response(plain, message("hi")))
    assert reply.message.reasoning == "Hm."
    assert (await back(reply))[0] == plain


async def test_ids_are_left_out_where_nothing_names_them() -> None:
    reply = await both(response(message("hi"), function_call('{"at": "A1"}')))
    assert reply.message.opaque is None
    assert [item.get("id") for item in await back(reply)] == [None, None]


async def test_items_of_the_providers_own_tools() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}
    image = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "QUI="}
    reply = await both(response(search, image, message("hi")))
    assert reply.message.text == "hi"
    assert [item.get("id") for item in await back(reply)] == ["ws_1", "msg_1"]


async def test_remarks_on_the_way_are_not_the_typed_answer() -> None:
    request = ask(output_schema=SCHEMA)
    remark = message("Let me see.", phase="commentary")
    answer = message('{"value": 1}', id="msg_2", phase="final_answer")
    for first, ids in ((reasoning("So."), ["rs_1", "msg_1", "msg_2"]), (None, [None, None])):
        reply = await both(response(*([first] if first else []), remark, answer), request)
        assert reply.message.text == '{"value": 1}'
        assert reply.message.reasoning == ("So.\n\nLet me see." if first else "Let me see.")
        items = await back(reply)
        assert [item.get("id") for item in items] == ids
        assert items[-2].get("phase") == "commentary"
    assert (await both(response(remark, answer))).message.text == 'Let me see.\n\n{"value": 1}'


async def test_a_reply_that_says_nothing_is_not_sent() -> None:
    reply = await both(response(reasoning("So.")))
    assert (reply.message.text, reply.finish_reason) == ("", "stop")
    assert await back(reply) == []
