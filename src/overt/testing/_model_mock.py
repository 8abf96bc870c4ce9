"""The cases of the conformance checks as a scripted model answers them."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
from pydantic import JsonValue

from overt.errors import ModelError
from overt.message import AssistantMessage, ModelRequest, ModelResponse, ToolCall
from overt.models.arguments import parse_arguments
from overt.testing._model_cases import ModelCase
from overt.testing.mock import MockModel

__all__ = ("mock_of", "response_of")


def mock_of(
    cases: Sequence[ModelCase], *, pieces: int | None = None, structured_output: bool = False
) -> MockModel:
    """Return a model that answers each request with the next case, whatever it is asked."""
    left = iter(cases)

    async def answer(_: ModelRequest) -> ModelResponse:
        case = next(left)
        if case.name == "silent":
            await anyio.sleep_forever()
        return response_of(case)

    return MockModel(answer, chunk=pieces or 8, structured_output=structured_output)


def response_of(case: ModelCase) -> ModelResponse:
    """Return what a case stands for.

    Raises:
        ModelError: It stands for a failure.
    """
    if case.fails:
        status = None if case.status == 200 else case.status
        wait = case.headers.get("retry-after")
        raise ModelError(
            f"scripted: {case.name}",
            status_code=status,
            retryable=status is not None and status >= 429,
            retry_after=None if wait is None else float(wait),
            request_id=case.headers.get("x-request-id"),
        )
    calls: list[ToolCall] = []
    invalid: dict[int, str] = {}
    for index, call in enumerate(case.calls):
        arguments: dict[str, JsonValue] = {}
        try:
            arguments = parse_arguments(call.arguments)
        except ValueError:
            invalid[index] = call.arguments
        calls.append(ToolCall(id=call.id or f"call_{index}", name=call.tool, arguments=arguments))
    opaque: dict[str, JsonValue] | None = None
    if case.reasoning is not None:
        opaque = {"mock": {"signature": f"signed: {case.reasoning}"}}
    return ModelResponse(
        message=AssistantMessage(
            text=case.text, tool_calls=tuple(calls), reasoning=case.reasoning, opaque=opaque
        ),
        usage=case.usage,
        finish_reason=case.finish,
        raw_finish_reason=case.raw_finish or case.finish,
        model="mock",
        invalid_arguments=invalid,
    )
