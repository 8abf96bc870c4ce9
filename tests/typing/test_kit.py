"""What type checkers see of the kit for tests. Each mistake carries the code it is reported with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, assert_type

from overt import ModelRequest, ModelResponse
from overt.stores import EncryptedStore, MemoryStore, Store
from overt.testing import (
    MODEL_CASES,
    MODEL_CHECKS,
    STORE_CHECKS,
    STORE_REOPEN_CHECKS,
    CaseCall,
    Cassette,
    CassetteError,
    Crashed,
    CrashingStore,
    Gate,
    MockModel,
    ModelBench,
    ModelCase,
    ModelCheck,
    Part,
    Reply,
    Script,
    StoreCheck,
    VirtualClock,
    call,
    model_conformance,
    raw_call,
    say,
    store_conformance,
)

if TYPE_CHECKING:

    async def later(request: ModelRequest) -> Reply:
        return [say(request.agent), call("t", x=1)]

    def scripts() -> None:
        script: Script = {"clerk": ["one", call("t"), raw_call("t", "{")], "boss": later}
        assert_type(call("t", x=1), Part)
        assert_type(say("x", tokens=3).with_options(usage=None), Part)
        MockModel(script, tokens=3, think_time=0.5)
        MockModel(prompts=[["one"], lambda request: request.agent])
        MockModel([3])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
        MockModel(["one"], 3)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
        call("t", 1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        raw_call("t")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        say("x", finish="done")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    async def clocks(clock: VirtualClock) -> None:
        await clock.advance(3)
        clock.advance(3)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
        await clock.advance("3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    async def crashes() -> None:
        store = CrashingStore(MemoryStore(), crash_at=3, when="after")
        assert_type(store.hold(2), Gate)
        assert_type(store.survivor, Store)
        CrashingStore(MemoryStore(), when="during")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        EncryptedStore(store, "key", "old")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        try:
            await store.read("r")
        except Crashed as error:
            assert_type(error, Crashed)
        store.die()

    async def conforms(bench: ModelBench, check: StoreCheck, other: ModelCheck) -> None:
        assert_type(await model_conformance(lambda: bench), Mapping[str, str])
        await store_conformance(MemoryStore, reopen=lambda store: store)
        await check(MemoryStore)
        await other(lambda: bench)
        assert_type(STORE_CHECKS + STORE_REOPEN_CHECKS, tuple[StoreCheck, ...])
        assert_type(MODEL_CHECKS, tuple[ModelCheck, ...])
        assert_type(MODEL_CASES, Mapping[str, ModelCase])
        ModelCase(name="n", says="s", calls=(CaseCall(arguments="{"),), finish="tool_calls")
        await store_conformance(MemoryStore())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await model_conformance(bench)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        MODEL_CASES["text"].status = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]

    async def tapes(path: Path, request: ModelRequest) -> None:
        with Cassette(path, model=MockModel([]), mode="record") as tape:
            assert_type(tape, Cassette)
            assert_type(await tape.generate(request), ModelResponse)
        Cassette(path, mode="write")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        raise CassetteError("none")
