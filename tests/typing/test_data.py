"""What both type checkers infer of the data models. One mistake a line, ignored by its exact code."""

from __future__ import annotations

from typing import assert_never, assert_type

from overt import Answer, Request, Status, TaskResult


def outputs(plain: TaskResult, number: TaskResult[int]) -> None:
    assert_type(plain.output, str | None)
    assert_type(number.unwrap(), int)
    assert_type(number.raise_for_status(), TaskResult[int])
    assert_type(number.pendings, tuple[Request, ...])


def every_status(status: Status) -> int:
    match status:
        case Status.DONE | Status.PENDING:
            return 0
        case Status.INCOMPLETE | Status.INTERRUPTED | Status.CLOSED | Status.TIMEOUT | Status.ERROR:
            return 1
        case _:
            assert_never(status)


def answers(answer: Answer[int]) -> None:
    assert_type(answer.data, int | None)


def mistakes(request: Request) -> None:
    # Only mypy, through pydantic's plugin, knows of a model that is frozen by its configuration.
    Answer[int](id=1, ok=True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    request.prompt = "x"  # type: ignore[misc]


def test_every_status_is_named() -> None:
    assert [every_status(status) for status in Status].count(0) == 2
