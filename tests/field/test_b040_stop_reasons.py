"""B040: a deadline and a caller's cancel are told apart, and both keep turns, usage and messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_never

import anyio
import pytest
from tests.field.apart import apart

from overt import Agent, Budget, Options, Runtime, Status, TaskResult
from overt.message import ModelRequest, ModelResponse
from overt.stores import MemoryStore, SQLiteStore, Store
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


class Thinking:
    """A model that takes ten seconds, and tells when it has been asked."""

    name = "thinking"

    def __init__(self, clock: VirtualClock) -> None:
        self.inner = MockModel(SCRIPT, think_time=10, clock=clock)
        self.asked = [anyio.Event() for _ in SCRIPT]

    async def generate(self, request: ModelRequest) -> ModelResponse:
        for event in self.asked[len(self.inner.requests) :][:1]:
            event.set()
        return await self.inner.generate(request)


def build(how: str, clock: VirtualClock, store: Store) -> tuple[Agent[None, str], Options]:
    agent = Agent("a", does="x", budget=Budget(max_wall=25 if how == "deadline" else None))
    return agent, {"model": Thinking(clock), "clock": clock, "store": store}


async def stopped(how: str, store: Store | None = None) -> tuple[TaskResult[Any], Runtime[Any], VirtualClock]:
    clock = VirtualClock()
    agent, options = build(how, clock, store or MemoryStore())
    options["run_id"] = "r"
    rt = Runtime(agent, **options)
    model = options["model"]
    assert isinstance(model, Thinking)
    async with anyio.create_task_group() as group:
        group.start_soon(rt.run, "go")
        for asked, seconds in zip(model.asked, (10, 10, 2), strict=True):
            await asked.wait()
            await clock.advance(seconds)
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


Seen = tuple[str, str, tuple[int, int, int, int, str], list[str]]


def seen(result: TaskResult[Any], rt: Runtime[Any]) -> Seen:
    numbers = (result.turns, result.total_tokens, result.own_tokens, result.usage.model_calls, result.partial)
    said = [e.message.text for e in rt.events() if e.kind == "turn"]
    return what_happened(result), result.text, numbers, said


async def stopped_in_a_file(how: str, path: Path) -> Seen:
    store = SQLiteStore(path)
    result, rt, _ = await stopped(how, store)
    await store.close()
    return seen(result, rt)


async def found_in_a_file(how: str, path: Path) -> Seen:
    store = SQLiteStore(path)
    agent, options = build(how, VirtualClock(), store)
    rt = await Runtime.open(agent, "r", **options)
    await store.close()
    return seen(rt.result(), rt)


@pytest.mark.parametrize(("how", "told"), [("deadline", "limit maxWall"), ("cancel", "cancelled")])
async def test_another_process_is_told_the_same(how: str, told: str, tmp_path: Path) -> None:
    here = await stopped_in_a_file(how, tmp_path / "runs.db")
    assert (here[0], here[3]) == (told, ["one", "two"])
    assert await apart(found_in_a_file, how, tmp_path / "runs.db") == here


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
