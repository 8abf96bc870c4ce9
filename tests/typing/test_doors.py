"""What type checkers see of loops and streams. Checked, never run: each mistake carries its code."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, assert_type

from pydantic import BaseModel

from overt import (
    Agent,
    Answer,
    Budget,
    Event,
    Loop,
    Message,
    ResumePolicy,
    RunStream,
    Runtime,
    State,
    TaskResult,
)
from overt.stores import MemoryStore

if TYPE_CHECKING:

    class Db:
        """Deps of some tools."""

    class Out(BaseModel):
        """A typed output."""

        x: int

    plain = Agent("a", does="d")
    with_db = Agent("a", does="d", deps_type=Db, output_type=Out)
    store = MemoryStore()

    async def loops(answer: Answer[int]) -> None:
        loop = with_db.loop(deps=Db(), budget=Budget(max_tokens=3))
        assert_type(loop, Loop[Out])
        assert_type(plain.loop(), Loop[str])
        assert_type(Loop(with_db, deps=Db()), Loop[Out])
        assert_type(await Loop.open(with_db, "id", store=store, deps=Db()), Loop[Out])
        assert_type(await Loop.open(plain, "id", store=store), Loop[str])
        assert_type(await loop.run("p", model="x:y"), TaskResult[Out])
        assert_type(await loop.resume(answer), TaskResult[Out])
        assert_type(await loop.resume([answer], policy=ResumePolicy.CONTINUE), TaskResult[Out])
        assert_type(await loop.recover(), TaskResult[Out])
        assert_type(await loop.extend(Budget(max_tokens=4)), TaskResult[Out])
        assert_type(loop.result().unwrap(), Out)
        assert_type(loop.stream("p"), RunStream[Out])
        assert_type(loop.runtime, Runtime[Out])
        assert_type(loop.status, State)
        assert_type(loop.turns, int)
        assert_type(loop.transcript(), tuple[Message, ...])

    async def streams(runtime: Runtime[Out], answer: Answer[int]) -> None:
        async with with_db.stream("p", deps=Db()) as stream:
            assert_type(stream, RunStream[Out])
            async for event in stream:
                assert_type(event, Event)
                if event.kind == "text":
                    assert_type(event.text, str)
                elif event.kind == "result":
                    assert_type(event.result, TaskResult[Any])
        assert_type(await stream.result(), TaskResult[Out])
        assert_type(stream.runtime, Runtime[Out])
        assert_type(plain.stream("p"), RunStream[str])
        assert_type(runtime.stream("p"), RunStream[Out])
        assert_type(runtime.stream(answer=answer), RunStream[Out])
        assert_type(runtime.stream(answer=[answer], policy=ResumePolicy.REWIND, after=3), RunStream[Out])
        assert_type(runtime.follow(after=3), RunStream[Out])
        events: AsyncIterator[Event] = stream
        assert events

    async def misuse(loop: Loop[Out], runtime: Runtime[Out], answer: Answer[Any]) -> None:
        with_db.loop(deps="db")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        plain.loop(histry=[])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        await loop.run("p", "x:y")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        await loop.run("p", model=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await loop.resume("yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        loop.status = State.IDLE  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
        runtime.stream(answer="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        runtime.stream("p", answer)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        runtime.follow(after="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        iter(plain.stream("p"))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
        loop.run("p")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
