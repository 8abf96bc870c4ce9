"""Checks of models: what is sent to the provider. They look for texts and numbers, in whatever form a body has them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from overt.message import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    ModelSettings,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from overt.testing._model_cases import MODEL_CASES
from overt.testing._model_checks import (
    LOOK,
    ModelBench,
    ModelCheck,
    ask,
    asked_with,
    expect,
    leaves,
    truth,
    unsent,
)

__all__ = ("REQUEST_CHECKS",)

SYSTEM = SystemMessage(text="kit-instructions")
USER = UserMessage(text="kit-prompt")
DATA: Final = "a2l0LWJ5dGVzLWtpdC1ieXRlcw=="
URL: Final = "https://kit.example/picture.png"

_CALLS = AssistantMessage(
    text="kit-says",
    tool_calls=(
        ToolCall(id="kit_a", name="look", arguments={"at": "kit-A1"}),
        ToolCall(id="kit_b", name="look", arguments={"at": "kit-B2"}),
    ),
)
_RESULTS = (
    ToolMessage(text="kit-first-result", call_id="kit_a", name="look"),
    ToolMessage(text="kit-second-result", call_id="kit_b", name="look", is_error=True),
)
_TURN: tuple[Message, ...] = (SYSTEM, USER, _CALLS, *_RESULTS)


def _texts(body: JsonValue) -> list[str]:
    return [leaf for _, leaf in leaves(body) if isinstance(leaf, str)]


def _order(body: JsonValue, *needles: str) -> list[str]:
    """Return the needles in the order they are found in a body, each as often as it is found."""
    return [needle for text in _texts(body) for needle in needles if needle in text]


async def _sends_instructions(bench: ModelBench) -> None:
    body = await asked_with(bench, ask(SYSTEM, USER))
    expect(sorted(_order(body, SYSTEM.text, USER.text)), [SYSTEM.text, USER.text], "instructions and prompt")


async def _sends_the_conversation(bench: ModelBench) -> None:
    said = ("kit-one", "kit-two", "kit-three", "kit-four", "kit-five")
    messages = [
        UserMessage(text=text) if number % 2 == 0 else AssistantMessage(text=text)
        for number, text in enumerate(said)
    ]
    expect(_order(await asked_with(bench, ask(SYSTEM, *messages)), *said), [*said], "texts in order")


async def _sends_results_in_order(bench: ModelBench) -> None:
    needles = ("kit-says", "kit-A1", "kit-B2", "kit-first-result", "kit-second-result", "kit-goes-on")
    body = await asked_with(bench, ask(*_TURN, UserMessage(text="kit-goes-on")))
    expect(_order(body, *needles), [*needles], "text, calls, results and what follows, in order")


async def _pairs_results_with_calls(bench: ModelBench) -> None:
    found = _order(await asked_with(bench, ask(*_TURN)), "kit_a", "kit_b")
    expect(found, ["kit_a", "kit_b", "kit_a", "kit_b"], "ids of the calls, then of their results")


async def _says_that_a_result_is_an_error(bench: ModelBench) -> None:
    wrong = await asked_with(bench, ask(*_TURN))
    right = await asked_with(bench, ask(*_TURN[:-1], _RESULTS[1].model_copy(update={"is_error": False})))
    truth(wrong != right, "an error result is sent as any other")


async def _sends_no_empty_message(bench: ModelBench) -> None:
    before = (SYSTEM, USER, AssistantMessage(text="kit-one"), UserMessage(text="kit-two"))
    plain = await asked_with(bench, ask(*before, UserMessage(text="kit-three")))
    empty = AssistantMessage(text="")
    found = await asked_with(bench, ask(*before, empty, UserMessage(text="kit-three")))
    expect(found, plain, "the body, where an empty reply of the model is left out")


async def _survives_broken_texts(bench: ModelBench) -> None:
    odd = "kit \ud83d\x00 \ude00 \udcff end"
    body = await asked_with(
        bench,
        ask(
            SystemMessage(text=odd),
            UserMessage(text=odd),
            AssistantMessage(
                text=odd, tool_calls=(ToolCall(id="kit_a", name="look", arguments={"at": odd}),)
            ),
            ToolMessage(text=odd, call_id="kit_a", name="look"),
            tools=(replace(LOOK, description=odd),),
        ),
    )
    for text in _texts(body):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise AssertionError(f"{text!r} cannot be sent") from None
    expect(len(_order(body, " end")), 6, "texts")


def _part(part: ImagePart | FilePart, needle: str) -> Callable[[ModelBench], Awaitable[None]]:
    async def body(bench: ModelBench) -> None:
        sent = await asked_with(bench, ask(SYSTEM, UserMessage(text="kit-sees", parts=(part,))))
        expect(sorted(_order(sent, "kit-sees", needle)), sorted(("kit-sees", needle)), "text and part")

    return body


async def _carries_reasoning(bench: ModelBench) -> None:
    reply = await bench.model(MODEL_CASES["reasoning_call"]).generate(ask(SYSTEM, USER))
    message = reply.message
    truth(message.opaque, "a reply whose reasoning has to be sent back has no opaque parts")
    (call,) = message.tool_calls
    result = ToolMessage(text="kit-first-result", call_id=call.id, name="look")
    back = await asked_with(bench, ask(SYSTEM, USER, message, result))
    plain = await asked_with(bench, ask(SYSTEM, USER, message.model_copy(update={"opaque": None}), result))
    truth(back != plain, "the opaque parts are not sent back")
    opaque = message.opaque or {}
    expect(unsent(opaque, back), [], "opaque parts that are not sent back as they came")
    another = {f"another-{provider}": parts for provider, parts in opaque.items()}
    away = await asked_with(bench, ask(SYSTEM, USER, message.model_copy(update={"opaque": another}), result))
    expect(away, plain, "the body, where the opaque parts are of another provider")


def _setting(settings: ModelSettings, *needles: JsonValue) -> Callable[[ModelBench], Awaitable[None]]:
    """Check that settings are sent where they are set, and only there."""

    async def body(bench: ModelBench) -> None:
        plain = await asked_with(bench, ask(SYSTEM, USER))
        found = await asked_with(bench, replace(ask(SYSTEM, USER), settings=settings))
        truth(found != plain, "the setting changes nothing of what is sent")
        for needle in needles:
            values = [leaf for _, leaf in leaves(found)]
            truth(needle in values, f"{needle!r} is not in the body")
        same = await asked_with(bench, replace(ask(SYSTEM, USER), settings=ModelSettings()))
        expect(same, plain, "the body where no setting is set")

    return body


async def _takes_the_least_limit(bench: ModelBench) -> None:
    request = replace(ask(), settings=ModelSettings(max_output_tokens=77_777), max_output_tokens=55_555)
    values = [leaf for _, leaf in leaves(await asked_with(bench, request))]
    expect([value for value in values if value in (77_777, 55_555)], [55_555], "limits on the output")


async def _offers_tools_by_names_of_their_own(bench: ModelBench) -> None:
    names = ["a.b", "a_b", "a b", "a" * 200, "a" * 199 + "b", "ünï", *(f"tool_{n}" for n in range(294))]
    body = await asked_with(bench, ask(tools=tuple(replace(LOOK, name=name) for name in names)))
    sent = [leaf for key, leaf in leaves(body) if key == "name" and isinstance(leaf, str)]
    expect(len(set(sent)), len(names), "different names")
    odd = [name for name in sent if not 1 <= len(name) <= 128 or not name.replace("-", "_").isidentifier()]
    odd += [name for name in sent if not name.isascii()]
    expect(odd, [], "names that APIs do not take")


async def _calls_a_tool_as_it_is_offered(bench: ModelBench) -> None:
    name = "kit.look around"
    said = AssistantMessage(
        text="", tool_calls=(ToolCall(id="kit_a", name=name, arguments={"at": "kit-A1"}),)
    )
    body = await asked_with(
        bench,
        ask(
            SYSTEM,
            USER,
            said,
            ToolMessage(text="kit-result", call_id="kit_a", name=name),
            tools=(replace(LOOK, name=name),),
        ),
    )
    sent = [leaf for key, leaf in leaves(body) if key in ("name", "tool_name") and isinstance(leaf, str)]
    truth(len(sent) > 1, "fewer than two names: of the tool and of its call")
    expect(len(set(sent)), 1, "different names of one tool")


async def _sends_the_schema(bench: ModelBench) -> None:
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {"kit_city": {"type": "string", "description": "kit-describes"}},
        "required": ["kit_city"],
        "additionalProperties": False,
    }
    texts = _texts(await asked_with(bench, replace(ask(), output_schema=schema)))
    truth("kit_city" in texts and "kit-describes" in texts, "the schema is not in the body")


async def _offers_tools_with_their_schemas(bench: ModelBench) -> None:
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {
            "kit_place": {"type": "string", "description": "kit-which", "enum": ["kit-A1", "kit-B2"]}
        },
        "required": ["kit_place"],
        "additionalProperties": False,
    }
    tool = ToolSpec(name="kit_look", description="kit-describes", input_schema=schema)
    texts = _texts(await asked_with(bench, ask(tools=(tool,))))
    for needle in ("kit_look", "kit-describes", "kit_place", "kit-which", "kit-A1", "kit-B2"):
        truth(needle in texts, f"{needle!r} is not in the body")


async def _sends_the_same_for_the_same(bench: ModelBench) -> None:
    case = MODEL_CASES["text"]
    model, request = bench.model(case, case), ask(*_TURN)
    before = [message.model_dump_json() for message in request.messages]
    for _ in range(2):
        await model.generate(request)
    first, second = bench.sent()
    expect(second, first, "the body of the second of two equal requests")
    expect([message.model_dump_json() for message in request.messages], before, "messages of the request")


_SETTINGS = (
    ("temperature", "the temperature", ModelSettings(temperature=0.625), (0.625,)),
    ("output_limit", "the output limit", ModelSettings(max_output_tokens=77_777), (77_777,)),
    ("stop", "stop sequences", ModelSettings(stop=("kit-stop",)), ("kit-stop",)),
    ("tool_choice", "that a tool has to be called", ModelSettings(tool_choice="required"), ()),
    ("no_tool_choice", "that no tool may be called", ModelSettings(tool_choice="none"), ()),
    ("one_call_at_a_time", "that calls come one at a time", ModelSettings(parallel_tool_calls=False), ()),
    (
        "extra",
        "fields of the provider's own",
        ModelSettings(extra={"kit_field": "kit-value"}),
        ("kit-value",),
    ),
)
_PARTS = (
    ("image_by_url", "an image by its address", ImagePart(url=URL, media_type="image/png"), URL),
    ("image_as_data", "an image as data", ImagePart(data=DATA, media_type="image/png"), DATA),
    ("file_by_url", "a file by its address", FilePart(url=URL, media_type="application/pdf"), URL),
    (
        "file_as_data",
        "a file as data",
        FilePart(data=DATA, media_type="application/pdf", name="kit.pdf"),
        DATA,
    ),
)


def _check(body: Callable[[ModelBench], Awaitable[None]], says: str, *cases: str) -> ModelCheck:
    name = body.__name__.strip("_")
    return ModelCheck(
        body,
        name=name,
        says=says,
        cases=("text", *cases),
        needs="schema" if name == "sends_the_schema" else None,
    )


REQUEST_CHECKS = (
    _check(_sends_instructions, "instructions are sent, once"),
    _check(_sends_the_conversation, "messages are sent in order"),
    _check(_sends_results_in_order, "calls and their results, in order"),
    _check(_pairs_results_with_calls, "each result with the id of its call"),
    _check(_says_that_a_result_is_an_error, "a result that is an error is marked"),
    _check(_sends_no_empty_message, "an empty reply is not sent back"),
    _check(_survives_broken_texts, "half a surrogate pair, or NUL, in any text"),
    _check(
        _carries_reasoning, "reasoning goes back to its provider unchanged, and to no other", "reasoning_call"
    ),
    *(
        ModelCheck(_part(part, needle), name=f"sends_{name}", says=says, cases=("text",))
        for name, says, part, needle in _PARTS
    ),
    _check(_offers_tools_with_their_schemas, "tools, with descriptions and schemas"),
    _check(_offers_tools_by_names_of_their_own, "300 tools, names no API takes among them, all different"),
    _check(_calls_a_tool_as_it_is_offered, "such a name is the same in the offer and in later turns"),
    _check(_sends_the_schema, "the schema of the answer"),
    *(
        ModelCheck(
            _setting(settings, *needles), name=f"sends_{name}", says=f"setting: {says}", cases=("text",)
        )
        for name, says, settings, needles in _SETTINGS
    ),
    _check(_takes_the_least_limit, "of two output limits the least"),
    _check(_sends_the_same_for_the_same, "equal requests are sent alike, and left as they were"),
)
