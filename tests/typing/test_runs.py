"""What type checkers see of runs. Checked, never run: each mistake carries the code it must be reported with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, assert_never, assert_type

from pydantic import BaseModel

from overt import (
    Agent,
    Answer,
    Budget,
    Event,
    Handle,
    HandleView,
    Ledger,
    Limit,
    Loop,
    Message,
    Options,
    PostResult,
    Request,
    ResumePolicy,
    Runtime,
    State,
    Status,
    TaskResult,
)
from overt.stores import MemoryStore, SQLiteStore, Store
from overt.testing import CrashingStore, MockModel, VirtualClock, call, say, store_conformance


def every_limit(limit: Limit) -> str:
    match limit:
        case Limit.MAX_TURNS | Limit.MAX_TOKENS | Limit.MAX_TOOL_CALLS | Limit.MAX_WALL:
            return "budget"
        case Limit.MAX_COST | Limit.MAX_MODEL_CALLS:
            return "budget"
        case Limit.COMPLETION:
            return "gate"
        case _:
            assert_never(limit)


def every_state(state: State) -> bool:
    match state:
        case State.IDLE | State.CLOSED:
            return False
        case State.RUNNING | State.SUSPENDED:
            return True
        case _:
            assert_never(state)


def test_every_limit_and_state_is_named() -> None:
    assert {every_limit(limit) for limit in Limit} == {"budget", "gate"}
    assert [every_state(state) for state in State].count(True) == 2


if TYPE_CHECKING:

    class Db:
        """Deps of some tools."""

    class Out(BaseModel):
        """A typed output."""

        x: int

    def some_statuses(status: Status) -> int:
        match status:
            case Status.DONE | Status.PENDING:
                return 0
            case _:
                assert_never(status)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    def some_limits(limit: Limit) -> int:
        match limit:
            case Limit.COMPLETION:
                return 0
            case _:
                assert_never(limit)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    def some_states(state: State) -> int:
        match state:
            case State.IDLE:
                return 0
            case _:
                assert_never(state)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    plain = Agent("a", does="d")
    with_db = Agent("a", does="d", deps_type=Db, output_type=Out)
    store = MemoryStore()

    async def doors(answer: Answer[int], answers: Sequence[Answer[str]]) -> None:
        result, runtime = await with_db.run("p", deps=Db())
        assert_type(result, TaskResult[Out])
        assert_type(runtime, Runtime[Out])
        assert_type(await runtime.resume(answer), TaskResult[Out])
        assert_type(await runtime.resume(answers, policy=ResumePolicy.CONTINUE), TaskResult[Out])
        assert_type(runtime.resume_sync(answer), TaskResult[Out])
        assert_type(await runtime.recover(force=True), TaskResult[Out])
        assert_type(await runtime.extend(Budget(max_tokens=1)), TaskResult[Out])
        assert_type(runtime.result(), TaskResult[Out])
        assert_type(result.output, Out | None)
        assert_type(result.unwrap(), Out)
        assert_type(result.limit, Limit | None)
        assert_type(result.pending, Request | None)
        opened = await Runtime.open(with_db, "id", store=store, deps=Db())
        assert_type(opened, Runtime[Out])
        assert_type(await Runtime.open(plain, "id", store=store), Runtime[str])
        assert_type(Runtime(with_db, deps=Db()), Runtime[Out])
        assert_type(Runtime(plain), Runtime[str])
        assert_type(with_db.run_sync("p", deps=Db()), tuple[TaskResult[Out], Runtime[Out]])

    async def verbs(runtime: Runtime[Out]) -> None:
        async with runtime as same:
            assert_type(same, Runtime[Out])
        handle = await runtime.spawn("root", "a")
        assert_type(handle, Handle)
        assert_type(await runtime.wake(handle), PostResult)
        assert_type(await runtime.wait(handle, timeout=1), TaskResult[object])
        assert_type(await runtime.run_turn(handle, "p"), TaskResult[object])
        assert_type(runtime.list(), tuple[HandleView, ...])
        assert_type(runtime.ledger(), Ledger)
        assert_type(runtime.events(after=3), tuple[Event, ...])
        assert_type(runtime.transcript("root"), tuple[Message, ...])
        assert_type(runtime.transitions("root"), tuple[tuple[State, State], ...])
        assert_type(runtime.id, str)
        assert_type(runtime.policy, ResumePolicy)

    async def loops(answer: Answer[int]) -> None:
        loop = with_db.loop(deps=Db(), store=store)
        assert_type(loop, Loop[Out])
        assert_type(plain.loop(), Loop[str])
        assert_type(await loop.run("p", model="x:y"), TaskResult[Out])
        assert_type(await loop.resume(answer, policy=ResumePolicy.CONTINUE), TaskResult[Out])
        assert_type(await loop.recover(), TaskResult[Out])
        assert_type(await loop.extend(Budget(max_tokens=1)), TaskResult[Out])
        assert_type(loop.result().unwrap(), Out)
        assert_type(loop.runtime, Runtime[Out])
        assert_type(loop.status, State)
        assert_type(loop.turns, int)
        assert_type(await Loop.open(with_db, "id", store=store, deps=Db()), Loop[Out])
        with_db.loop(deps=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with_db.loop(None, deps=Db())  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
        await loop.run("p", "x:y")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        await loop.run("p", deps=Db())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        loop.turns = 1  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]

    async def options() -> None:
        given: Options[Db] = {"deps": Db(), "inbox_cap": 2, "clock": VirtualClock(), "model": "x:y"}
        await with_db.run("p", **given)
        given["inbox_cap"] = "2"  # type: ignore[typeddict-item]  # pyright: ignore[reportGeneralTypeIssues]
        given["inbox"] = 2  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportGeneralTypeIssues]
        other: Options[int] = {"deps": 1}
        await with_db.run("p", **other)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await with_db.run(prompt=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await with_db.run("p", deps=Db(), storre=store)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        await with_db.run("p", deps=Db(), budget=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await plain.run("p", clock=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await plain.run("p", None)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
        Runtime(plain, max_turns=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        Runtime(with_db, deps="db")  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
        await Runtime.open(plain)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        await Runtime.open(plain, run_id="id")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    async def misuse(runtime: Runtime[Out], answer: Answer[Any]) -> None:
        await runtime.resume("yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await runtime.resume(answer, "rewind")  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
        await runtime.resume(answer, policy="rewind")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await runtime.recover(True)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
        await runtime.extend({"max_tokens": 3})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await runtime.spawn("root", plain)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        runtime.id = "x"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
        runtime.resume(answer)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]

    def text(runtime: Runtime[Out]) -> Runtime[str]:
        return runtime  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    async def testing() -> None:
        scripted = MockModel({"a": [[say("text"), call("tool", x=1)], "end"]}, clock=VirtualClock())
        await plain.run("p", model=scripted, store=CrashingStore(store, crash_at=3))
        stores: list[Store] = [store, SQLiteStore("runs.db")]
        await store_conformance(MemoryStore)
        await store_conformance(stores.pop, reopen=lambda old: old)
        say("text", tokens="7")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        MockModel("text", names="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        CrashingStore(store, when="never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
