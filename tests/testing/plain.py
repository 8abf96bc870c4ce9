"""A provider with a wire of its own, an adapter for it, and the bench on which the adapter is checked.

The answer whole is one JSON object, `{"text": …, "calls": […], "thought": …, "end": …, "usage": …}`; streamed it is one
object a line: pieces of text, pieces of calls, and the rest with `end`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import anyio
import anyio.lowlevel
from pydantic import JsonValue

from overt import (
    AssistantMessage,
    Message,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolCallDelta,
    ToolMessage,
    Usage,
    UserMessage,
)
from overt.errors import ModelError
from overt.models._failures import connection_failure, error_body, loads, status_failure, unreadable
from overt.models._wire import clean_json, names_of, output_limit, read_call, wire_name
from overt.testing import ModelCase

__all__ = ("PlainBench", "PlainModel")

Body = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


Send = Callable[[Body], AbstractAsyncContextManager[Answer]]


class PlainModel:
    """The adapter. Each broken one overrides a piece of it."""

    structured_output = True

    def __init__(self, send: Send) -> None:
        self.send = send

    @property
    def name(self) -> str:
        return "plain"

    async def generate(self, request: ModelRequest) -> ModelResponse:
        body = self.body(request)
        try:
            async with self.send(body) as answer:
                text = b"".join([chunk async for chunk in answer.chunks]).decode()
        except OSError as error:
            failure = connection_failure(type(error).__name__, str(error))
        else:
            self.refuse(answer, text)
            return self.read(json.loads(text), request)
        raise failure

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        failure: ModelError | None = None
        names = names_of(request)
        try:
            async with self.send({**self.body(request), "stream": True}) as answer:
                rest = b""
                async for chunk in answer.chunks:
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        self.refuse(answer, line.decode())
                        yield self.piece(json.loads(line), names)
                if rest:
                    self.refuse(answer, rest.decode())
        except OSError as error:
            failure = connection_failure(type(error).__name__, str(error))
        if failure is not None:
            raise failure

    def refuse(self, answer: Answer, text: str) -> None:
        if answer.status != 200:
            raise status_failure("PlainError", answer.status, text, headers=answer.headers)
        body = loads(text)
        if not isinstance(body, dict):
            raise unreadable("is not a JSON object", text)
        if "error" in body:
            raise error_body(body["error"], text)

    def body(self, request: ModelRequest) -> Body:
        settings = request.settings
        body: Body = {"messages": [wire for message in request.messages for wire in self.message(message)]}
        if request.tools:
            body["tools"] = [
                {"name": wire_name(tool.name), "about": tool.description, "schema": dict(tool.input_schema)}
                for tool in request.tools
            ]
        given = {
            "warmth": settings.temperature,
            "limit": output_limit(request, settings),
            "choice": settings.tool_choice,
            "parallel": settings.parallel_tool_calls,
            "stop": [*settings.stop] or None,
            "answer": None if request.output_schema is None else dict(request.output_schema),
        }
        body |= {key: value for key, value in given.items() if value is not None}
        cleaned: Any = clean_json({**body, **settings.extra})
        return dict(cleaned)

    def message(self, message: Message) -> list[Body]:
        match message:
            case AssistantMessage():
                if not message.text and not message.tool_calls:
                    return []
                calls = [
                    {"id": call.id, "name": wire_name(call.name), "arguments": dict(call.arguments)}
                    for call in message.tool_calls
                ]
                return [{"by": "model", "text": message.text, "calls": calls, **self.thought(message)}]
            case ToolMessage():
                return [
                    {"by": "tool", "id": message.call_id, "text": message.text, "failed": message.is_error}
                ]
            case UserMessage():
                parts = [part.model_dump(exclude_none=True) for part in message.parts]
                return [{"by": "user", "text": message.text, "parts": parts}]
            case _:
                return [{"by": "system", "text": message.text}]

    def thought(self, message: AssistantMessage) -> Body:
        own = (message.opaque or {}).get("plain")
        return {} if own is None else {"thought": own}

    def read(self, body: Body, request: ModelRequest) -> ModelResponse:
        calls: list[ToolCall] = []
        invalid: dict[int, str] = {}
        for index, item in enumerate(body["calls"]):
            call, wrong = read_call(index, item.get("id"), item["tool"], item["arguments"], names_of(request))
            calls.append(call)
            if wrong is not None:
                invalid[index] = wrong
        end = self.end(body)
        thought = body["thought"]
        return ModelResponse(
            message=AssistantMessage(
                text=body["text"] or "",
                tool_calls=tuple(calls),
                reasoning=None if thought is None else thought["text"],
                opaque=None if thought is None else {"plain": thought},
            ),
            usage=self.usage(body.get("usage")),
            finish_reason=end,
            raw_finish_reason=body["end"],
            model="plain-1",
            invalid_arguments=invalid,
        )

    def piece(self, line: Body, names: Mapping[str, str]) -> ModelDelta:
        call = line.get("call")
        thought = line.get("thought")
        return ModelDelta(
            text=line.get("text"),
            reasoning=None if thought is None else thought["text"],
            tool_call=None
            if call is None
            else ToolCallDelta(
                index=call["at"],
                id=call.get("id") or None,
                name=call.get("tool"),
                arguments=call["arguments"],
            ),
            usage=self.usage(line.get("usage")),
            finish_reason=self.end(line) if "end" in line else None,
            raw_finish_reason=line.get("end"),
            model="plain-1",
            opaque=None if thought is None else {"plain": thought},
        )

    def end(self, body: Body) -> Any:
        known = ("stop", "tool_calls", "length", "content_filter", "refusal")
        return body["end"] if body["end"] in known else "unknown"

    def usage(self, said: Any) -> Usage | None:
        if said is None or said["in"] is None:
            return None
        return Usage(
            input_tokens=said["in"],
            output_tokens=said["out"],
            total_tokens=said["in"] + said["out"],
            cached_tokens=said["cached"],
            cache_write_tokens=said["written"],
            reasoning_tokens=said["thought"],
        )


class PlainBench:
    """The provider: answers what the cases say."""

    not_applicable: Mapping[str, str] = MappingProxyType({})

    def __init__(self, kind: type[PlainModel] = PlainModel) -> None:
        self.kind = kind
        self.bodies: list[JsonValue] = []
        self.open = 0

    def model(self, *cases: ModelCase, pieces: int | None = None) -> PlainModel:
        left = iter(cases)

        def send(body: Body) -> AbstractAsyncContextManager[Answer]:
            self.bodies.append(json.loads(json.dumps(body)))
            return answer(next(left), streamed="stream" in body)

        @asynccontextmanager
        async def answer(case: ModelCase, *, streamed: bool) -> AsyncIterator[Answer]:
            if case.name == "silent":
                await anyio.sleep_forever()
            if case.name == "unreachable":
                raise ConnectionRefusedError("nobody listens")
            self.open += 1
            try:
                lines = [case.body] if case.body is not None else _lines(case, streamed=streamed)
                async with aclosing(_chunks([line.encode() for line in lines], pieces)) as chunks:
                    yield Answer(case.status, case.headers, chunks)
            finally:
                self.open -= 1

        return self.kind(send)

    def sent(self) -> Sequence[JsonValue]:
        return self.bodies

    def unclosed(self) -> int:
        return self.open


async def _chunks(lines: Sequence[bytes], size: int | None) -> AsyncGenerator[bytes]:
    whole = b"".join(lines)
    for chunk in lines if size is None else [whole[at : at + size] for at in range(0, len(whole), size)]:
        await anyio.lowlevel.checkpoint()
        yield chunk


def _lines(case: ModelCase, *, streamed: bool) -> list[str]:
    if case.name == "error_in_200":
        return [_dumps({"error": {"message": "kit has failed"}}) + "\n"]
    usage = case.usage
    said: Body | None = None
    if usage is not None:
        said = {
            "in": usage.input_tokens,
            "out": usage.output_tokens,
            "cached": usage.cached_tokens,
            "written": usage.cache_write_tokens,
            "thought": usage.reasoning_tokens,
        }
    elif case.name == "null_usage":
        said = {"in": None}
    thought = None if case.reasoning is None else {"text": case.reasoning, "signature": "kit-signature"}
    end = {"end": case.raw_finish or case.finish, **({} if said is None else {"usage": said})}
    calls: list[Body] = [
        {"id": call.id, "tool": call.tool, "arguments": call.arguments} for call in case.calls
    ]
    text = None if case.name == "null_content" else case.text
    if not streamed:
        return [_dumps({"text": text, "calls": calls, "thought": thought, **end})]
    found: list[Body] = [{"text": case.text[at : at + 4]} for at in range(0, len(case.text), 4)]
    if case.name == "cut_off":
        found = found[:2]
        return [_dumps(line) + "\n" for line in found]
    if thought is not None:
        found.insert(0, {"thought": thought})
    for index, call in enumerate(calls):
        head, tail = call["arguments"][:5], call["arguments"][5:]
        found.append({"call": {"at": index, **call, "arguments": head}})
        found.append({"call": {"at": index, "arguments": tail}})
    return [_dumps(line) + "\n" for line in [*found, end]]


def _dumps(body: Body) -> str:
    return json.dumps(body, ensure_ascii=False)
