"""What the Gemini adapter sends."""

from __future__ import annotations

import gc
import json
from typing import Any

import httpx2
import pytest
from tests.models.google_fake import NAME, SIGNATURE, Provider, call, client, reply

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
)
from overt.models import GoogleModel
from overt.models._google_wire import function_name, schema_of

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

USER = UserMessage(text="go")
TOOL = ToolSpec(name="look", description="Look.", input_schema={"type": "object", "properties": {}})
HI = reply({"text": "hi"})


def ask(*messages: Message, **more: Any) -> ModelRequest:
    return ModelRequest(messages=messages or (USER,), **more)


def said(*calls: ToolCall, **more: Any) -> AssistantMessage:
    return AssistantMessage(tool_calls=calls, **more)


async def test_messages_tools_and_settings_are_sent() -> None:
    provider = Provider(HI)
    settings = ModelSettings(
        temperature=0.5,
        max_output_tokens=900,
        tool_choice="required",
        parallel_tool_calls=False,
        stop=("END",),
    )
    await provider.model("gemini-2.5-flash").generate(
        ask(
            SystemMessage(text="Be brief."),
            UserMessage(
                text="Look",
                parts=(TextPart(text="here"), ImagePart(url="https://x/i.png"), ImagePart(data="QUI=")),
            ),
            AssistantMessage(text="So.", tool_calls=(ToolCall(id="t1", name="look", arguments={"a": "é"}),)),
            ToolMessage(text="seen", call_id="t1", name="look"),
            AssistantMessage(text="Seen."),
            UserMessage(text="", parts=(FilePart(data="QUI=", name="a.csv"),)),
            tools=(TOOL,),
            settings=settings,
            max_output_tokens=300,
            output_schema={"type": "array", "items": {"type": "string"}},
        )
    )
    assert provider.requests[0].url.path == "/v1/models/gemini-2.5-flash:generateContent"
    assert provider.bodies == [
        {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [
                {
                    "role": "user",
                    "parts": [
                        {"text": "Look"},
                        {"text": "here"},
                        {"fileData": {"fileUri": "https://x/i.png", "mimeType": "image/png"}},
                        {"inlineData": {"mimeType": "image/png", "data": "QUI="}},
                    ],
                },
                {
                    "role": "model",
                    "parts": [{"text": "So."}, {"functionCall": {"name": "look", "args": {"a": "é"}}}],
                },
                {
                    "role": "user",
                    "parts": [{"functionResponse": {"name": "look", "response": {"output": "seen"}}}],
                },
                {"role": "model", "parts": [{"text": "Seen."}]},
                {"role": "user", "parts": [{"inlineData": {"mimeType": "text/csv", "data": "QUI="}}]},
            ],
            "tools": [
                {
                    "functionDeclarations": [
                        {
                            "name": "look",
                            "description": "Look.",
                            "parametersJsonSchema": {"type": "object", "properties": {}},
                        }
                    ]
                }
            ],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
            "generationConfig": {
                "temperature": 0.5,
                "maxOutputTokens": 300,
                "stopSequences": ["END"],
                "responseMimeType": "application/json",
                "responseJsonSchema": {"type": "array", "items": {"type": "string"}},
            },
        }
    ]


async def test_nothing_is_sent_that_nobody_asked_for() -> None:
    provider = Provider(HI)
    await provider.model().generate(ask(settings=ModelSettings(tool_choice="auto", parallel_tool_calls=True)))
    assert set(provider.bodies[0]) == {"contents"}


@pytest.mark.parametrize(("choice", "mode"), [("auto", "AUTO"), ("required", "ANY"), ("none", "NONE")])
async def test_the_choice_of_tools(choice: Any, mode: str) -> None:
    provider = Provider(HI)
    await provider.model().generate(ask(tools=(TOOL,), settings=ModelSettings(tool_choice=choice)))
    assert provider.bodies[0]["toolConfig"] == {"functionCallingConfig": {"mode": mode}}


async def test_the_models_settings_are_under_the_agents() -> None:
    provider = Provider(HI)
    extra: Any = {
        "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
        "tools": [{"codeExecution": {}}],
        "safetySettings": [],
    }
    model = provider.model(settings=ModelSettings(temperature=0.1, max_output_tokens=50, extra=extra))
    await model.generate(ask(tools=(TOOL,), settings=ModelSettings(temperature=0.9), max_output_tokens=80))
    await model.generate(ask(settings=ModelSettings(extra={"x": [1], "contents": []})))
    first, second = provider.bodies
    assert first["generationConfig"] == {
        "temperature": 0.9,
        "maxOutputTokens": 50,
        "thinkingConfig": {"includeThoughts": True},
    }
    assert [list(tool) for tool in first["tools"]] == [["functionDeclarations"], ["codeExecution"]]
    assert first["safetySettings"] == []
    assert (second["x"], second["contents"], "tools" in second) == ([1], [], False)


async def test_each_message_is_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Provider(HI)
    model = provider.model()
    converted: list[Message] = []
    convert = model._converter._converted._convert

    def counted(message: Message) -> Any:
        converted.append(message)
        return convert(message)

    monkeypatch.setattr(model._converter._converted, "_convert", counted)
    messages: list[Message] = [USER]
    for turn in range(10):
        await model.generate(ask(*messages))
        messages.append(said(ToolCall(id=f"c{turn}", name="look")))
        messages.append(ToolMessage(text=str(turn), call_id=f"c{turn}", name="look"))
    assert len(converted) == 19
    assert [len(body["contents"]) for body in provider.bodies] == list(range(1, 21, 2))
    converted.clear()
    del messages
    gc.collect()
    assert len(model._converter._converted._messages) == 1


# ------------------------------------------------------------------ images and files


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        (
            ImagePart(url="https://x/i?sig=1", media_type="image/webp"),
            {"fileData": {"fileUri": "https://x/i?sig=1", "mimeType": "image/webp"}},
        ),
        (ImagePart(url="https://x/i"), {"fileData": {"fileUri": "https://x/i"}}),
        (
            FilePart(url="gs://b/a.pdf"),
            {"fileData": {"fileUri": "gs://b/a.pdf", "mimeType": "application/pdf"}},
        ),
        (
            ImagePart(url="data:image/gif;base64,QUI%3D"),
            {"inlineData": {"mimeType": "image/gif", "data": "QUI="}},
        ),
        (FilePart(data="QUI="), {"inlineData": {"mimeType": "application/pdf", "data": "QUI="}}),
    ],
)
async def test_where_bytes_are(part: ImagePart | FilePart, sent: object) -> None:
    provider = Provider(HI)
    await provider.model().generate(ask(UserMessage(text="", parts=(part,))))
    assert provider.contents == [{"role": "user", "parts": [sent]}]


async def test_a_part_that_cannot_be_sent_is_refused_before_anything_is() -> None:
    provider = Provider(HI)
    for part, told in (
        (FilePart(name="a.pdf"), "a FilePart 'a.pdf' for Gemini needs url or data"),
        (ImagePart(), "an ImagePart for Gemini needs url or data"),
        (ImagePart(url="data:text/plain,hi"), "not base64"),
    ):
        with pytest.raises(DefinitionError, match=told):
            await provider.model().generate(ask(UserMessage(text="x", parts=(part,))))
    assert provider.requests == []


# ------------------------------------------------------------------ calls, results, thoughts


async def test_results_of_one_turn_are_one_content_in_the_order_of_the_calls() -> None:
    provider = Provider(HI)
    await provider.model("gemini-2.5-flash").generate(
        ask(
            USER,
            said(ToolCall(id="a", name="look"), ToolCall(id="b", name="look"), ToolCall(id="c", name="go")),
            ToolMessage(text="third", call_id="c", name="go"),
            ToolMessage(text="second failed", call_id="b", name="look", is_error=True),
            ToolMessage(text="first", call_id="a", name="look"),
            UserMessage(text="and?"),
            said(ToolCall(id="a", name="look")),
            ToolMessage(text="again", call_id="a", name="look"),
        )
    )
    results = [content for content in provider.contents if "functionResponse" in content["parts"][0]]
    assert [[part["functionResponse"] for part in content["parts"]] for content in results] == [
        [
            {"name": "look", "response": {"output": "first"}},
            {"name": "look", "response": {"error": "second failed"}},
            {"name": "go", "response": {"output": "third"}},
        ],
        [{"name": "look", "response": {"output": "again"}}],
    ]


async def test_an_empty_reply_is_never_sent() -> None:
    provider = Provider(HI)
    await provider.model().generate(ask(USER, AssistantMessage(), AssistantMessage(reasoning="hm"), USER))
    assert [content["role"] for content in provider.contents] == ["user", "user"]


async def test_signatures_and_thoughts_go_back_at_their_places_to_their_host_only() -> None:
    parts: list[dict[str, Any]] = [
        {"text": "Let me ", "thought": True},
        {"text": "see.", "thought": True, "thoughtSignature": "dA=="},
        {"text": "First "},
        {**call(id="g1"), "thoughtSignature": SIGNATURE},
        {"text": "th", "thoughtSignature": "bm93"},
        {"text": "en"},
        {"executableCode": {"code": "1+1", "language": "PYTHON"}},
        call("B2", id="g2"),
        {"text": "", "thoughtSignature": "ZW5k"},
    ]
    provider = Provider(reply(*parts))
    response = await provider.model().generate(ask(tools=(TOOL,)))
    # As the runtime does: calls get ids of our own, and the message goes through a store.
    calls = tuple(
        item.model_copy(update={"id": f"ours/{n}"}) for n, item in enumerate(response.message.tool_calls)
    )
    message = response.message.model_copy(update={"tool_calls": calls})
    stored = AssistantMessage.model_validate_json(message.model_dump_json())
    assert (stored.text, stored.reasoning) == ("First then", "Let me see.")
    history = (
        USER,
        stored,
        ToolMessage(text="2", call_id="ours/1", name="look"),
        ToolMessage(text="1", call_id="ours/0", name="look"),
    )
    await provider.model().generate(ask(*history))
    assert provider.contents[1] == {"role": "model", "parts": parts}
    assert [part["functionResponse"]["id"] for part in provider.contents[2]["parts"]] == ["g1", "g2"]

    other = Provider(HI)
    elsewhere = other.client(http_options={"base_url": "https://gateway.example"})
    await GoogleModel("gemini-2.5-pro", client=elsewhere).generate(ask(*history))
    assert other.contents[1]["parts"] == [
        {"text": "First then"},
        {"functionCall": {"name": "look", "args": {"at": "A1"}}},
        {"functionCall": {"name": "look", "args": {"at": "B2"}}},
    ]
    assert not any("id" in part["functionResponse"] for part in other.contents[2]["parts"])


async def test_a_reply_that_was_changed_keeps_the_signatures_of_its_calls() -> None:
    provider = Provider(reply({"text": "secret"}, {**call(), "thoughtSignature": SIGNATURE}))
    response = await provider.model().generate(ask(tools=(TOOL,)))
    changed = response.message.model_copy(update={"text": "«redacted»"})
    await provider.model().generate(ask(USER, changed))
    assert provider.contents[1]["parts"] == [
        {"text": "«redacted»"},
        {**call(), "thoughtSignature": SIGNATURE},
    ]


@pytest.mark.parametrize(
    ("name", "mark"), [(NAME, "skip_thought_signature_validator"), ("gemini-2.5-pro", None)]
)
async def test_a_call_never_gets_the_signature_of_another(name: str, mark: str | None) -> None:
    signed = (
        {**call(id="x"), "thoughtSignature": SIGNATURE},
        {**call("B2", id="y"), "thoughtSignature": "dA=="},
    )
    provider = Provider(reply(*signed))
    message = (await provider.model(name).generate(ask(tools=(TOOL,)))).message
    second = message.model_copy(update={"tool_calls": message.tool_calls[1:]})
    await provider.model(name).generate(ask(USER, second, ToolMessage(text="", call_id="y", name="look")))
    assert provider.contents[1]["parts"] == [{**call("B2"), **({"thoughtSignature": mark} if mark else {})}]
    assert "id" not in provider.contents[2]["parts"][0]["functionResponse"]
    none = message.model_copy(update={"tool_calls": (), "text": "So."})
    await provider.model(name).generate(ask(USER, none))
    assert provider.contents[1]["parts"] == [{"text": "So."}]


async def test_halves_of_a_character_in_two_pieces_are_one() -> None:
    halves = ({"text": "\ud83c"}, {"text": "\udf89!"}, {"text": "", "thoughtSignature": SIGNATURE})
    provider = Provider(json.dumps(reply(*halves)).encode())
    response = await provider.model().generate(ask())
    await provider.model().generate(ask(USER, response.message))
    assert provider.contents[1]["parts"] == [{"text": "🎉!"}, halves[2]]


async def test_a_plain_reply_leaves_nothing_opaque() -> None:
    provider = Provider(reply({"text": "a"}, {"text": "b"}, call(), call("B2")))
    response = await provider.model().generate(ask(tools=(TOOL,)))
    assert (response.message.text, response.message.opaque) == ("ab", None)


@pytest.mark.parametrize(("name", "marked"), [("gemini-3.8-flash", True), ("gemini-2.5-flash", False)])
async def test_calls_of_another_provider_are_marked_where_gemini_wants_it(name: str, marked: bool) -> None:
    provider = Provider(HI)
    calls = (ToolCall(id="a", name="look"), ToolCall(id="b", name="look"))
    foreign = AssistantMessage(text="So.", tool_calls=calls, opaque={"openai-chat:api.openai.com": {"x": 1}})
    await provider.model(name).generate(ask(USER, foreign))
    signatures = [part.get("thoughtSignature") for part in provider.contents[1]["parts"]]
    assert signatures == [None, "skip_thought_signature_validator" if marked else None, None]


async def test_ids_that_repeat_are_not_sent_back() -> None:
    provider = Provider(reply({**call(id="x"), "thoughtSignature": SIGNATURE}, call("B2", id="x")))
    response = await provider.model().generate(ask(tools=(TOOL,)))
    await provider.model().generate(ask(USER, response.message))
    assert provider.contents[1]["parts"] == [{**call(), "thoughtSignature": SIGNATURE}, call("B2")]


# ------------------------------------------------------------------ names, schemas, odd texts


async def test_names_of_tools_both_ways() -> None:
    names = ["look", "a.b", "a_b", "a b", "1st", "-x", "_1st", "x" * 200, "x" * 199 + "y", "größe", "9" * 64]
    names += [f"tool.{n}" for n in range(300)]
    sent = [function_name(name) for name in names]
    assert len(set(sent)) == len(names)
    assert all(name.isascii() and len(name) <= 64 and (name[0].isalpha() or name[0] == "_") for name in sent)
    assert (function_name("look"), function_name("_1st")) == ("look", "_1st")
    assert function_name(function_name("1st")) != function_name("1st")
    tools = tuple(ToolSpec(name=name, description="", input_schema={"type": "object"}) for name in names)
    provider = Provider(reply(*({"functionCall": {"name": name, "args": {}}} for name in sent)))
    response = await provider.model().generate(ask(tools=tools))
    assert [item.name for item in response.message.tool_calls] == names
    await provider.model().generate(ask(USER, response.message, tools=tools))
    declared = provider.bodies[1]["tools"][0]["functionDeclarations"]
    assert [item["name"] for item in declared] == sent
    assert [part["functionCall"]["name"] for part in provider.contents[1]["parts"]] == sent


def test_what_schemas_may_not_say_is_said_otherwise(anyio_backend: str) -> None:
    place: dict[str, Any] = {"$ref": "#/$defs/Place", "description": "Where."}
    schema: dict[str, Any] = {
        "$defs": {"Place": {"type": "object", "properties": {"kind": {"const": "place", "type": "string"}}}},
        "type": "object",
        "properties": {
            "at": place,
            "by": {"$ref": "#/$defs/Place"},
            "const": {"items": place, "default": {"$ref": "x", "const": 1}},
            "on": {"const": True},
        },
    }
    before = json.dumps(schema)
    said_otherwise = {"anyOf": [{"$ref": "#/$defs/Place"}], "description": "Where."}
    assert schema_of(schema) == {
        "$defs": {"Place": {"type": "object", "properties": {"kind": {"enum": ["place"], "type": "string"}}}},
        "type": "object",
        "properties": {
            "at": said_otherwise,
            "by": {"$ref": "#/$defs/Place"},
            "const": {"items": said_otherwise, "default": {"$ref": "x", "const": 1}},
            "on": {"const": True},
        },
    }
    assert json.dumps(schema) == before
    root: Any = {"$ref": "#/$defs/Node", "$defs": {"Node": {"type": "object"}}, "title": "Node"}
    assert schema_of(root) == root


async def test_lone_surrogates_and_nuls_are_sent_as_what_can_be_encoded() -> None:
    provider = Provider(HI)
    odd = "a\ud800\x00b"
    tool = ToolSpec(name=odd, description=odd, input_schema={"type": "object", "title": odd})
    await provider.model().generate(
        ask(
            SystemMessage(text=odd),
            UserMessage(text=odd, parts=(TextPart(text=odd), FilePart(data="QUI=", media_type=odd))),
            said(ToolCall(id=odd, name=odd, arguments={odd: odd}), text=odd),
            ToolMessage(text=odd, call_id=odd, name=odd),
            tools=(tool,),
            output_schema={"type": "string", "title": odd},
            settings=ModelSettings(stop=(odd,), extra={"labels": {"a": odd}}),
        )
    )
    content = provider.requests[0].content
    assert b"\\ud800" not in content
    assert content.count(b"a\\ufffd\\u0000b") == 13


# ------------------------------------------------------------------ structured output, addresses


@pytest.mark.parametrize(
    ("name", "together"),
    [
        ("gemini-3.8-flash", True),
        ("models/gemini-3-pro-preview", True),
        ("publishers/google/models/gemini-4-argon", True),
        ("gemini-2.5-pro", False),
        ("gemini-flash-latest", False),
        ("tunedModels/mine", False),
    ],
)
def test_a_schema_beside_tools_by_the_name(name: str, together: bool, anyio_backend: str) -> None:
    assert GoogleModel(name).structured_output is together
    assert GoogleModel(name, structured_output=not together).structured_output is not together


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (NAME, f"models/{NAME}"),
        (f"models/{NAME}", f"models/{NAME}"),
        ("tunedModels/mine", "tunedModels/mine"),
    ],
)
async def test_the_address_of_a_model(name: str, path: str) -> None:
    provider = Provider(HI)
    await provider.model(name).generate(ask())
    assert str(provider.requests[0].url) == (
        f"https://generativelanguage.googleapis.com/v1/{path}:generateContent"
    )


async def test_the_version_and_address_of_a_client_hold() -> None:
    provider = Provider(HI)
    given = client(
        httpx2.MockTransport(provider.handle),
        http_options={"api_version": "v1beta", "base_url": "https://gateway.example/google"},
    )
    await GoogleModel(NAME, client=given.aio).generate(ask())
    assert str(provider.requests[0].url) == (
        f"https://gateway.example/google/v1beta/models/{NAME}:generateContent"
    )
