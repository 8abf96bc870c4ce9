"""The conformance checks find what is wrong with a model."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import anyio
import pytest
from tests.testing.plain import PlainBench, PlainModel

from overt import Message, ModelDelta, ModelRequest, ModelResponse, ToolMessage, Usage
from overt.errors import ModelError
from overt.testing import MODEL_CASES, MODEL_CHECKS, ModelCheck, _model_runs, model_conformance

pytestmark = pytest.mark.anyio

Body = dict[str, Any]
CHECKS = {check.name: check for check in MODEL_CHECKS}
BROKEN: list[tuple[type[PlainModel], tuple[str, ...]]] = []


def fails(*checks: str) -> Any:
    """Say which checks find what is wrong with the class."""

    def note(broken: type[PlainModel]) -> type[PlainModel]:
        BROKEN.append((broken, checks))
        return broken

    return note


# ------------------------------------------------------------------ replies


@fails("reads_text", "reads_truncated", "reads_structured", "gives_typed_output", "runs_tools_side_by_side")
class LosesText(PlainModel):
    def read(self, body: Body, request: ModelRequest) -> ModelResponse:
        return super().read({**body, "text": ""}, request)


@fails("reads_text", "streams_in_any_pieces", "says_it_piece_by_piece", "runs_streamed")
class RepeatsWhatItStreams(PlainModel):
    def piece(self, line: Body, names: Any) -> ModelDelta:
        return super().piece({**line, "text": line["text"] * 2} if "text" in line else line, names)


@fails(
    "reads_calls",
    "reads_repeated_id",
    "keeps_calls_of_one_id_apart",
    "runs_streamed",
)
class KeepsOneCall(PlainModel):
    def read(self, body: Body, request: ModelRequest) -> ModelResponse:
        return super().read({**body, "calls": body["calls"][:1]}, request)

    def piece(self, line: Body, names: Any) -> ModelDelta:
        return super().piece({} if line.get("call", {"at": 0})["at"] else line, names)


@fails("reads_call", "goes_on_after_approval", "replays_after_approval", "tells_the_model_what_is_wrong")
class KeepsNoCall(PlainModel):
    def read(self, body: Body, request: ModelRequest) -> ModelResponse:
        return super().read({**body, "calls": []}, request)


@fails("gives_typed_output_by_a_call")
class KeepsNoCallAndTakesNoSchema(KeepsNoCall):
    structured_output = False


@fails("reads_calls")
class TurnsCallsAround(PlainModel):
    def read(self, body: Body, request: ModelRequest) -> ModelResponse:
        return super().read({**body, "calls": body["calls"][::-1]}, request)


@fails("reads_calls")
class GivesAllCallsOneId(PlainModel):
    def read(self, body: Body, request: ModelRequest) -> ModelResponse:
        return super().read({**body, "calls": [{**call, "id": "x"} for call in body["calls"]]}, request)


@fails("reads_missing_id", "reads_empty_id")
class GivesNoIds(PlainModel):
    def read(self, body: Body, request: ModelRequest) -> ModelResponse:
        reply = super().read(body, request)
        calls = tuple(call.model_copy(update={"id": ""}) for call in reply.message.tool_calls)
        return reply.model_copy(update={"message": reply.message.model_copy(update={"tool_calls": calls})})


@fails("reads_bad_arguments", "tells_the_model_what_is_wrong")
class RepairsArguments(PlainModel):
    def read(self, body: Body, request: ModelRequest) -> ModelResponse:
        repaired = [{**call, "arguments": '{"at": "A1"}'} for call in body["calls"]]
        return super().read({**body, "calls": repaired}, request)


@fails("reads_truncated_call", "enters_no_call_that_was_cut_off")
class CompletesCalls(PlainModel):
    def read(self, body: Body, request: ModelRequest) -> ModelResponse:
        calls = [{**call, "arguments": re.sub(r"A$", 'A"}', call["arguments"])} for call in body["calls"]]
        return super().read({**body, "calls": calls, "end": "tool_calls"}, request)


@fails(
    "reads_truncated",
    "reads_refusal",
    "reads_filtered",
    "reads_unknown_finish",
    "ends_on_a_refusal",
    "ends_on_a_filter",
)
class AlwaysStops(PlainModel):
    def end(self, body: Body) -> Any:
        return "stop"


@fails("reads_empty", "ends_on_an_empty_reply")
class SaysSomething(PlainModel):
    def read(self, body: Body, request: ModelRequest) -> ModelResponse:
        return super().read({**body, "text": body["text"] or "…"}, request)


@fails("reads_null_content")
class ExpectsText(PlainModel):
    def read(self, body: Body, request: ModelRequest) -> ModelResponse:
        return super().read({**body, "text": body["text"].strip()}, request)


@fails("reads_no_usage", "reads_null_usage")
class TakesAbsentForZero(PlainModel):
    def usage(self, said: Any) -> Usage | None:
        return super().usage(said) or Usage()


@fails("reads_cached_usage")
class CountsCachedTwice(PlainModel):
    def usage(self, said: Any) -> Usage | None:
        found = super().usage(said)
        return found and found.model_copy(update={"input_tokens": found.input_tokens + found.cached_tokens})


@fails("reads_text")
class CountsTurns(PlainModel):
    def usage(self, said: Any) -> Usage | None:
        found = super().usage(said)
        return found and found.model_copy(update={"turns": 1})


@fails("reads_reasoning_call", "carries_reasoning", "goes_on_elsewhere_with_reasoning")
class ForgetsReasoning(PlainModel):
    def read(self, body: Body, request: ModelRequest) -> ModelResponse:
        return super().read({**body, "thought": None}, request)


# ------------------------------------------------------------------ streams, cancellation


@fails("reads_text", "streams_in_any_pieces")
class ReadsChunksAsLines(PlainModel):
    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        async with self.send({**self.body(request), "stream": True}) as answer:
            async for chunk in answer.chunks:
                yield self.piece(json.loads(chunk), {})


@fails("says_it_piece_by_piece")
class HoldsBack(PlainModel):
    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        held = [delta async for delta in super().stream(request)]
        yield ModelDelta(text="".join(delta.text or "" for delta in held))
        yield held[-1]


@fails("sends_nothing_before_it_is_asked")
class SendsAtOnce(PlainModel):
    def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        self.begun = self.send({**self.body(request), "stream": True})
        return super().stream(request)


@fails("lets_go_of_a_stream", "sends_nothing_before_it_is_asked", "reads_text")
class LeavesStreamsOpen(PlainModel):
    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        self.kept = self.send({**self.body(request), "stream": True})
        answer = await self.kept.__aenter__()
        rest = b""
        async for chunk in answer.chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield self.piece(json.loads(line), {})


@fails("lets_cancellation_through")
class SwallowsCancellation(PlainModel):
    async def generate(self, request: ModelRequest) -> ModelResponse:
        try:
            return await super().generate(request)
        except anyio.get_cancelled_exc_class():
            return self.read({"text": "late", "calls": [], "thought": None, "end": "stop"}, request)


@fails("answers_many_at_once")
class KeepsStateOfACall(PlainModel):
    async def generate(self, request: ModelRequest) -> ModelResponse:
        self.busy = getattr(self, "busy", 0) + 1
        reply = await super().generate(request)
        assert self.busy == 1
        self.busy -= 1
        return reply


# ------------------------------------------------------------------ failures


@fails(
    "reports_an_error_within_a_reply",
    "reports_a_web_page",
    "reports_a_refused_request",
    "recovers_from_a_failure",
)
class TakesErrorsForReplies(PlainModel):
    def refuse(self, answer: Any, text: str) -> None:
        pass

    async def generate(self, request: ModelRequest) -> ModelResponse:
        with suppress(ValueError, KeyError):
            return await super().generate(request)
        return self.read({"text": "?", "calls": [], "thought": None, "end": "stop"}, request)


@fails("reports_a_stream_that_breaks_off")
class TakesAnyEndForTheEnd(PlainModel):
    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        async for delta in super().stream(request):
            yield delta
        yield ModelDelta(finish_reason="stop")


@fails("reports_a_refused_request", "says_nothing_of_a_denial")
class TellsTheBody(PlainModel):
    def refuse(self, answer: Any, text: str) -> None:
        if answer.status != 200:
            raise ModelError(f"{answer.status}: {text}", status_code=answer.status, detail=text)
        super().refuse(answer, text)


@fails("does_not_retry_by_itself", "reports_the_wait_of_a_rate_limit")
class TriesAgain(PlainModel):
    async def generate(self, request: ModelRequest) -> ModelResponse:
        try:
            return await super().generate(request)
        except ModelError:
            with suppress(RuntimeError):
                self.send(self.body(request))
            raise


@fails("reports_the_wait_of_a_rate_limit", "does_not_retry_by_itself", "waits_as_long_as_it_is_told")
class KeepsNothingOfAnError(PlainModel):
    def refuse(self, answer: Any, text: str) -> None:
        if answer.status != 200:
            raise ModelError("it failed")
        super().refuse(answer, text)


@fails("reports_an_unreachable_provider")
class LeadsToTheClientsError(PlainModel):
    async def generate(self, request: ModelRequest) -> ModelResponse:
        try:
            async with self.send(self.body(request)):
                raise AssertionError
        except OSError as error:
            raise ModelError("unreachable", retryable=True) from error


# ------------------------------------------------------------------ requests


class Rewrites(PlainModel):
    """Changes bodies before they are sent."""

    def rewrite(self, body: Body) -> Body:
        return body

    def body(self, request: ModelRequest) -> Body:
        return self.rewrite(super().body(request))


@fails("sends_instructions")
class SendsInstructionsTwice(Rewrites):
    def rewrite(self, body: Body) -> Body:
        return {**body, "messages": [*body["messages"], body["messages"][0]]}


@fails("sends_instructions", "sends_the_conversation", "sends_results_in_order", "pairs_results_with_calls")
class SendsTheLastMessageOnly(Rewrites):
    def rewrite(self, body: Body) -> Body:
        return {**body, "messages": body["messages"][-1:]}


@fails(
    "sends_results_in_order", "pairs_results_with_calls", "runs_tools_side_by_side", "sends_the_conversation"
)
class TurnsMessagesAround(Rewrites):
    def rewrite(self, body: Body) -> Body:
        return {**body, "messages": body["messages"][::-1]}


@fails("pairs_results_with_calls")
class SendsIdsOfItsOwn(PlainModel):
    def message(self, message: Message) -> list[Body]:
        return [
            {**wire, "id": "x"} if isinstance(message, ToolMessage) else wire
            for wire in super().message(message)
        ]


@fails("says_that_a_result_is_an_error")
class MarksNoErrors(PlainModel):
    def message(self, message: Message) -> list[Body]:
        return [{**wire, "failed": False} for wire in super().message(message)]


@fails("sends_no_empty_message")
class SendsEmptyMessages(PlainModel):
    def message(self, message: Message) -> list[Body]:
        return super().message(message) or [{"by": "model", "text": ""}]


@fails("survives_broken_texts")
class SendsTextsAsTheyAre(Rewrites):
    def rewrite(self, body: Body) -> Body:
        return {**body, "more": "\ud800"}


@fails("sends_image_by_url", "sends_image_as_data", "sends_file_by_url", "sends_file_as_data")
class SendsNoParts(PlainModel):
    def message(self, message: Message) -> list[Body]:
        return [{**wire, "parts": []} for wire in super().message(message)]


@fails("carries_reasoning")
class SendsReasoningOfOthers(PlainModel):
    def thought(self, message: Any) -> Body:
        return {"thought": next(iter(message.opaque.values()))} if message.opaque else {}


@fails("carries_reasoning", "goes_on_elsewhere_with_reasoning")
class SendsPartOfTheReasoning(PlainModel):
    def thought(self, message: Any) -> Body:
        return {"thought": message.reasoning} if super().thought(message) else {}


@fails("offers_tools_with_their_schemas")
class SendsNoSchemas(Rewrites):
    def rewrite(self, body: Body) -> Body:
        return {**body, "tools": [{**tool, "schema": {}} for tool in body["tools"]]}


class Renames(Rewrites):
    def tool(self, name: str) -> str:
        return name

    def rewrite(self, body: Body) -> Body:
        tools = [{**tool, "name": self.tool(tool["name"])} for tool in body["tools"]]
        return {**body, "tools": tools}


@fails("offers_tools_by_names_of_their_own")
class CutsNames(Renames):
    def tool(self, name: str) -> str:
        return re.sub("__.*", "", name)


@fails("offers_tools_by_names_of_their_own", "calls_a_tool_as_it_is_offered")
class SendsOddNames(Renames):
    def tool(self, name: str) -> str:
        return f"{name}."


@fails("sends_the_schema")
class SendsNoAnswerSchema(Rewrites):
    def rewrite(self, body: Body) -> Body:
        return {key: value for key, value in body.items() if key != "answer"}


@fails(
    "sends_temperature",
    "sends_output_limit",
    "sends_stop",
    "sends_tool_choice",
    "sends_no_tool_choice",
    "sends_one_call_at_a_time",
    "sends_extra",
    "takes_the_least_limit",
)
class SendsNoSettings(Rewrites):
    def rewrite(self, body: Body) -> Body:
        return {key: body[key] for key in ("messages", "tools")}


@fails("sends_temperature")
class SendsSettingsUnasked(PlainModel):
    def body(self, request: ModelRequest) -> Body:
        return {"warmth": 0.625, **super().body(request)}


@fails("takes_the_least_limit")
class TakesTheSettingsLimit(PlainModel):
    def body(self, request: ModelRequest) -> Body:
        return {**super().body(request), "limit": request.settings.max_output_tokens}


@fails("sends_the_same_for_the_same")
class CountsRequests(PlainModel):
    count = 0

    def body(self, request: ModelRequest) -> Body:
        self.count += 1
        return {**super().body(request), "number": self.count}


# ------------------------------------------------------------------ the checks


PAIRS = [(broken, check) for broken, checks in BROKEN for check in checks]


@pytest.mark.parametrize(
    ("broken", "check"), PAIRS, ids=[f"{broken.__name__}-{check}" for broken, check in PAIRS]
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_is_wrong_is_found(
    broken: type[PlainModel], check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (broken, check) == (KeepsOneCall, "runs_streamed"):
        monkeypatch.setattr(_model_runs, "PATIENCE", 1.0)  # its tools wait for a call that never comes
    assert CHECKS[check].why_not(PlainBench(broken)) is None
    with pytest.raises(AssertionError, match=f"^{check}: "):
        await CHECKS[check](lambda: PlainBench(broken))


def test_every_check_can_fail() -> None:
    assert {check for _, check in PAIRS} == CHECKS.keys()


async def test_a_sound_model_passes() -> None:
    assert await model_conformance(PlainBench) == {
        "gives_typed_output_by_a_call": "takes a schema for its answer"
    }


async def test_the_whole_kit_names_the_check_that_fails() -> None:
    with pytest.raises(
        AssertionError, match=r"^reads_text: whole: text: expected 'Hello, wörld 🎉', found ''$"
    ):
        await model_conformance(lambda: PlainBench(LosesText))


class WholeOnly:
    """A model that neither streams nor takes a schema."""

    name = "whole"

    def __init__(self, inner: PlainModel) -> None:
        self.generate = inner.generate


class WholeBench(PlainBench):
    not_applicable = MappingProxyType({"refusal": "it never refuses", "sends_stop": "it never stops"})

    def model(self, *cases: Any, pieces: int | None = None) -> Any:
        return WholeOnly(super().model(*cases))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_what_a_model_has_nothing_of_is_left_out_with_the_reason() -> None:
    assert await model_conformance(WholeBench) == {
        "reads_structured": "takes no schema for its answer",
        "reads_refusal": "it never refuses",
        "streams_in_any_pieces": "does not stream",
        "says_it_piece_by_piece": "does not stream",
        "sends_nothing_before_it_is_asked": "does not stream",
        "lets_go_of_a_stream": "does not stream",
        "reports_a_stream_that_breaks_off": "does not stream",
        "sends_the_schema": "takes no schema for its answer",
        "sends_stop": "it never stops",
        "runs_streamed": "does not stream",
        "gives_typed_output": "takes no schema for its answer",
        "ends_on_a_refusal": "it never refuses",
    }


def test_checks_and_cases_say_what_they_are() -> None:
    assert len(CHECKS) == len(MODEL_CHECKS)
    assert len({check.says for check in MODEL_CHECKS}) == len(MODEL_CHECKS)
    used = {name for check in MODEL_CHECKS for name in check.cases}
    assert used == MODEL_CASES.keys()
    assert all(case.name == name and case.says for name, case in MODEL_CASES.items())
    assert str(MODEL_CHECKS[0]) == "reads_text"
    assert isinstance(MODEL_CHECKS[0], ModelCheck)
