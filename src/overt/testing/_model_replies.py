"""Checks of models: what comes out of a provider's answer, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import cast

import anyio
import anyio.lowlevel
from pydantic import JsonValue

from overt.errors import ModelError
from overt.message import ModelRequest, ModelResponse, StreamingModel, Usage
from overt.models.arguments import parse_arguments
from overt.testing._model_cases import ACCOUNT, KEY, MODEL_CASES, REQUEST_ID, ModelCase
from overt.testing._model_checks import (
    ModelBench,
    ModelCheck,
    ask,
    assembled,
    expect,
    model_error,
    truth,
    ways,
)

__all__ = ("FAILURE_CHECKS", "REPLY_CHECKS")


def _compare(reply: ModelResponse, case: ModelCase) -> None:
    message = reply.message
    if "text" not in case.free:
        expect(message.text, case.text, "text")
    if "finish" not in case.free:
        expect(reply.finish_reason, case.finish, "finish_reason")
    if case.raw_finish is not None:
        truth(reply.raw_finish_reason, "raw_finish_reason: the provider's own word is lost")
    if "calls" not in case.free:
        expect([call.name for call in message.tool_calls], [call.tool for call in case.calls], "tools called")
        found = [call.arguments for call in message.tool_calls]
        expect(found, [parse_arguments(call.arguments) for call in case.calls], "arguments")
        expect(reply.invalid_arguments, {}, "invalid_arguments")
    expect([call for call in message.tool_calls if not call.id], [], "calls without an id")
    expect(_counts(reply.usage), _counts(case.usage), "usage")


def _counts(usage: Usage | None) -> tuple[int, ...] | None:
    if usage is None:
        return None
    expect((usage.turns, usage.model_calls), (0, 0), "usage.turns and model_calls, which the runtime counts")
    return usage.input_tokens, usage.output_tokens, usage.total_tokens, usage.cached_tokens


def _reads(name: str) -> Callable[[ModelBench], Awaitable[None]]:
    """Check that the answer of a case comes out as it is written there, in every way."""

    async def body(bench: ModelBench) -> None:
        case, whole = MODEL_CASES[name], None
        request = ask()
        if name == "structured":
            request = ModelRequest(messages=request.messages, output_schema=_CITY)
        for way, get in ways(bench, name):
            try:
                reply = await get(request)
                _compare(reply, case)
                _MORE.get(name, _nothing_more)(reply)
                if name in ("missing_id", "empty_id"):
                    reply = _without_ids(reply)
                whole = whole or reply
                expect(reply, whole, "compared with the whole reply")
            except AssertionError as error:
                raise AssertionError(f"{way}: {error}") from error
            except Exception as error:
                raise AssertionError(f"{way}: {type(error).__name__}: {error}") from error

    return body


_CITY: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def _nothing_more(_: ModelResponse) -> None:
    pass


def _without_ids(reply: ModelResponse) -> ModelResponse:
    """Where the provider gave no ids, those that are made up may be others each time."""
    calls = tuple(call.model_copy(update={"id": ""}) for call in reply.message.tool_calls)
    return reply.model_copy(update={"message": reply.message.model_copy(update={"tool_calls": calls})})


def _two_ids(reply: ModelResponse) -> None:
    expect(len({call.id for call in reply.message.tool_calls}), 2, "different ids")


def _reasons(reply: ModelResponse) -> None:
    truth(reply.message.reasoning or reply.message.opaque, "neither reasoning nor opaque parts are kept")


def _is_cut_off(reply: ModelResponse) -> None:
    truth(reply.message.text, "what was said is lost")


def _is_cut_call(reply: ModelResponse) -> None:
    for call in reply.message.tool_calls:
        expect(dict(call.arguments), {}, "arguments of the call that was cut off")


def _is_answer(reply: ModelResponse) -> None:
    expect(json.loads(reply.message.text), {"city": "Oslo"}, "the answer")


def _is_bad_call(reply: ModelResponse) -> None:
    expect([call.name for call in reply.message.tool_calls], ["look"], "tools called")
    expect([len(call.arguments) for call in reply.message.tool_calls], [0], "arguments, which nobody repairs")
    expect(list(reply.invalid_arguments), [0], "invalid_arguments")
    try:
        parse_arguments(reply.invalid_arguments[0])
    except ValueError:
        return
    raise AssertionError("invalid_arguments holds arguments that are valid")


def _is_split(reply: ModelResponse) -> None:
    usage = reply.usage or Usage()
    truth(usage.cache_write_tokens in (0, 10), f"cache_write_tokens: {usage.cache_write_tokens}")
    truth(usage.reasoning_tokens in (0, 5), f"reasoning_tokens: {usage.reasoning_tokens}")


_MORE: dict[str, Callable[[ModelResponse], None]] = {
    "bad_arguments": _is_bad_call,
    "cached_usage": _is_split,
    "calls": _two_ids,
    "reasoning_call": _reasons,
    "structured": _is_answer,
    "truncated": _is_cut_off,
    "truncated_call": _is_cut_call,
}

_REPLIES = {
    "text": "text, letters of every plane",
    "call": "a tool call and its arguments",
    "calls": "several calls in one reply, in order, each with an id of its own",
    "reasoning_call": "reasoning beside a call is kept",
    "structured": "an answer by a JSON schema",
    "truncated": "a reply the output limit cut off says so",
    "truncated_call": "a call the output limit cut off is never completed",
    "refusal": "a refusal is told from an answer",
    "filtered": "a reply the content filter ended says so",
    "empty": "an empty reply is one",
    "null_content": "a text that is `null` is none",
    "unknown_finish": "an unknown finish reason is kept as it came",
    "bad_arguments": "arguments that are no JSON object are kept as text, not repaired",
    "missing_id": "a call without an id gets one",
    "empty_id": "a call with an empty id gets one",
    "repeated_id": "two calls under one id stay two",
    "no_usage": "no usage is unknown, not zero",
    "null_usage": "usage of `null` is unknown, not zero",
    "cached_usage": "cached tokens are counted once, as part of the input",
}


# ------------------------------------------------------------------ failures


async def _both(bench: ModelBench, name: str) -> list[tuple[str, ModelError]]:
    """Get the error of a case, whole and streamed, and see that each was one request."""
    case = MODEL_CASES[name]
    errors = [("whole", await model_error(bench.model(case).generate(ask()), "whole"))]
    model = bench.model(case)
    if isinstance(model, StreamingModel):
        errors.append(("streamed", await model_error(assembled(model)(ask()), "streamed")))
    if name != "unreachable":
        expect(len(bench.sent()), len(errors), "requests, of which the runtime makes and counts each")
    return errors


def _fails(name: str, **attributes: object) -> Callable[[ModelBench], Awaitable[None]]:
    """Check the attributes of the error of a case, and that it gives nothing away."""

    async def body(bench: ModelBench) -> None:
        for way, error in await _both(bench, name):
            for attribute, expected in attributes.items():
                expect(getattr(error, attribute), expected, f"{way}: {attribute}")
            truth(str(error), f"{way}: the message is empty")
            for secret in (KEY, ACCOUNT):
                for said in (str(error), repr(error), str(error.detail)):
                    truth(secret not in said, f"{way}: the error gives a secret away")

    return body


async def _denies(bench: ModelBench) -> None:
    for way, error in await _both(bench, "denied"):
        expect((error.status_code, error.retryable, error.detail), (401, False, None), way)
        truth("kit denies" not in str(error), f"{way}: the message has something of the body")


async def _breaks_off(bench: ModelBench) -> None:
    for width in (None, 7):
        model = bench.model(MODEL_CASES["cut_off"], pieces=width)
        error = await model_error(assembled(model)(ask()), "streamed")
        expect(error.retryable, True, "retryable")


FAILURE_CHECKS = (
    ModelCheck(
        _fails("error_in_200"),
        name="reports_an_error_within_a_reply",
        says="an error inside a reply that says 200 is an error",
        cases=("error_in_200",),
    ),
    ModelCheck(
        _breaks_off,
        name="reports_a_stream_that_breaks_off",
        says="a stream that breaks off is no reply, and may be tried again",
        cases=("cut_off",),
        needs="stream",
    ),
    ModelCheck(
        _fails("web_page", retryable=False),
        name="reports_a_web_page",
        says="a web page is no reply",
        cases=("web_page",),
    ),
    ModelCheck(
        _fails("bad_request", status_code=400, retryable=False, request_id=REQUEST_ID),
        name="reports_a_refused_request",
        says="a refused request: status and request id, the body without keys and accounts",
        cases=("bad_request",),
    ),
    ModelCheck(
        _denies,
        name="says_nothing_of_a_denial",
        says="of a 401 nothing but that",
        cases=("denied",),
    ),
    ModelCheck(
        _fails("rate_limited", status_code=429, retryable=True, retry_after=7.0, request_id=REQUEST_ID),
        name="reports_the_wait_of_a_rate_limit",
        says="a rate limit: retryable, and after how many seconds",
        cases=("rate_limited",),
    ),
    ModelCheck(
        _fails("server_error", status_code=500, retryable=True),
        name="does_not_retry_by_itself",
        says="a failing provider is asked once: the client's own retries are off",
        cases=("server_error",),
    ),
    ModelCheck(
        _fails("unreachable", status_code=None, retryable=True),
        name="reports_an_unreachable_provider",
        says="an unreachable provider may be tried again",
        cases=("unreachable",),
    ),
)


# ------------------------------------------------------------------ streams, and more than one call


async def _streams_in_any_pieces(bench: ModelBench) -> None:
    for name in ("text", "calls"):
        case = MODEL_CASES[name]
        whole = await bench.model(case).generate(ask())
        for width in (1, 3, 64, 10**6):
            streamed = await assembled(bench.model(case, pieces=width))(ask())
            expect(streamed, whole, f"{name} in pieces of {width}")


async def _says_it_piece_by_piece(bench: ModelBench) -> None:
    model = cast(StreamingModel, bench.model(MODEL_CASES["text"]))
    texts = [delta.text async for delta in model.stream(ask()) if delta.text]
    expect("".join(texts), MODEL_CASES["text"].text, "the pieces")
    truth(len(texts) > 1, "the text came in one piece, though the provider sent several")


async def _sends_nothing_before_it_is_asked(bench: ModelBench) -> None:
    model = cast(StreamingModel, bench.model(MODEL_CASES["text"]))
    deltas = model.stream(ask())
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    expect(len(bench.sent()), 0, "requests before the first piece was asked for")
    await anext(deltas)
    expect(len(bench.sent()), 1, "requests")
    await _close(deltas)


async def _lets_go_of_a_stream(bench: ModelBench) -> None:
    for width in (None, 7):
        model = cast(StreamingModel, bench.model(MODEL_CASES["text"], pieces=width))
        deltas = model.stream(ask())
        await anext(deltas)
        await _close(deltas)
        expect(bench.unclosed(), 0, "answers left open by whoever read no further")


async def _close(deltas: object) -> None:
    truth(hasattr(deltas, "aclose"), "what stream returns has no aclose: an async generator has")
    await cast("AsyncGenerator[object]", deltas).aclose()


async def _lets_cancellation_through(bench: ModelBench) -> None:
    for streams in (False, True):
        before = len(bench.sent())
        model = bench.model(MODEL_CASES["silent"])
        if streams and not isinstance(model, StreamingModel):
            return
        get = assembled(model) if streams else model.generate
        done: list[object] = []
        scope = anyio.CancelScope()

        async def call(
            get: Callable[[ModelRequest], Awaitable[object]] = get,
            done: list[object] = done,
            scope: anyio.CancelScope = scope,
        ) -> None:
            with scope:
                done.append(await get(ask()))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                while len(bench.sent()) == before:
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
        truth(scope.cancelled_caught and not done, "cancellation was swallowed")
        expect(bench.unclosed(), 0, "answers left open")


async def _answers_many_at_once(bench: ModelBench) -> None:
    case, count = MODEL_CASES["text"], 10
    model = bench.model(*[case] * count)
    texts: list[str] = []

    async def call(number: int) -> None:
        get = assembled(model) if number % 2 and isinstance(model, StreamingModel) else model.generate
        texts.append((await get(ask())).message.text)

    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(call, number)
    expect(texts, [case.text] * count, "texts")


REPLY_CHECKS = (
    *(
        ModelCheck(
            _reads(name),
            name=f"reads_{name}",
            says=says,
            cases=(name,),
            needs="schema" if name == "structured" else None,
        )
        for name, says in _REPLIES.items()
    ),
    ModelCheck(
        _streams_in_any_pieces,
        name="streams_in_any_pieces",
        says="a stream put together is the whole reply, wherever its bytes are cut",
        cases=("text", "calls"),
        needs="stream",
    ),
    ModelCheck(
        _says_it_piece_by_piece,
        name="says_it_piece_by_piece",
        says="a stream is passed on as it comes",
        cases=("text",),
        needs="stream",
    ),
    ModelCheck(
        _sends_nothing_before_it_is_asked,
        name="sends_nothing_before_it_is_asked",
        says="nothing is sent before the first piece is asked for",
        cases=("text",),
        needs="stream",
    ),
    ModelCheck(
        _lets_go_of_a_stream,
        name="lets_go_of_a_stream",
        says="whoever reads a stream no further closes it",
        cases=("text",),
        needs="stream",
    ),
    ModelCheck(
        _lets_cancellation_through,
        name="lets_cancellation_through",
        says="cancellation passes through and closes the answer",
        cases=("silent",),
    ),
    ModelCheck(
        _answers_many_at_once,
        name="answers_many_at_once",
        says="one model serves many runs at once",
        cases=("text",),
    ),
)
