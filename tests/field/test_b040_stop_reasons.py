"""B040: a deadline and a caller's cancel are told apart, and both keep turns, usage and messages."""

from __future__ import annotations

from typing import Any, assert_never

import anyio
import pytest

from overt import Agent, Budget, Runtime, Status, TaskResult
from overt.testing import MockModel, VirtualClock, call, say


def what_happened(result: TaskResult[Any]) -> str:
    match result.status:
        case Status.DONE:
            return "answered"
        case Status.PENDING:
            return "asks"
        case Status.INCOMPLETE:
            return f"limit {result.limit}"
        case Status.INTERRUPTED:
            return "cancelled"
        case Status.CLOSED:
            return "closed"
        case Status.TIMEOUT:
            return "still running"
        case Status.ERROR:
            return "failed"
        case _:
            assert_never(result.status)


SCRIPT: list[Any] = [[say("one"), call("nope")], [say("two"), call("nope")], "three"]


async def stopped(how: str) -> tuple[TaskResult[Any], Runtime[Any], VirtualClock]:
    clock = VirtualClock()
    agent = Agent("a", does="x", budget=Budget(max_wall=25 if how == "deadline" else None))
    rt = Runtime(agent, model=MockModel(SCRIPT, think_time=10, clock=clock), clock=clock)
    async with anyio.create_task_group() as group:
        group.start_soon(rt.run, "go")
        await clock.advance(22)
        if how == "cancel":
            group.cancel_scope.cancel()
        elif how == "interrupt":
            await rt.interrupt()
        else:
            await clock.advance(4)
    return rt.result(), rt, clock


@pytest.mark.parametrize(
    ("how", "told"), [("deadline", "limit maxWall"), ("cancel", "cancelled"), ("interrupt", "cancelled")]
)
async def test_what_is_told_and_kept(how: str, told: str) -> None:
    result, rt, _ = await stopped(how)
    assert what_happened(result) == told
    assert (result.turns, result.total_tokens, result.own_tokens, result.partial) == (2, 200, 200, "two")
    assert (result.usage.model_calls, result.usage.unreported_calls) == (3, 1)
    said = [e.message.text for e in rt.events() if e.kind == "turn"]
    assert said == ["one", "two"]


async def test_a_cancelled_run_goes_on_from_its_messages() -> None:
    _, rt, clock = await stopped("cancel")
    done: list[TaskResult[Any]] = []

    async def recover() -> None:
        done.append(await rt.recover())

    async with anyio.create_task_group() as group:
        group.start_soon(recover)
        await clock.advance(11)
    assert (done[0].output, done[0].turns) == ("three", 3)
    assert [m.text for m in rt.transcript("root/a.1") if m.role == "assistant"] == ["one", "two", "three"]
