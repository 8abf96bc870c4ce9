"""What the kit for tests raises."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.contract.kit import promise
from tests.contract.of_models import REQUEST
from tests.contract.of_stores import FITTING, create, record

from overt.errors import ModelError
from overt.stores import MemoryStore, StoreWrapper
from overt.testing import (
    MODEL_CHECKS,
    STORE_CHECKS,
    STORE_REOPEN_CHECKS,
    Cassette,
    CrashingStore,
    MockModel,
    VirtualClock,
    call,
    model_conformance,
    store_conformance,
)

WRONG: Any = 3
NAIVE = datetime(2026, 1, 1)  # what is refused

# ------------------------------------------------------------------ a process that dies


async def dead() -> CrashingStore:
    """A store whose process has died at its first append."""
    store = CrashingStore(MemoryStore(), crash_at=1, when="after")
    try:
        await create(store, record())
    except BaseException:  # noqa: BLE001  # `Crashed` is no Exception
        assert store.crashed
    return store


def dying(method: Callable[[Any], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
    async def provoke() -> object:
        return await method(await dead())

    return provoke


OPERATIONS = {"abandoned", "expire_due", "export_run", "interrupt", "pendings", "prune", "verify"}
for name in FITTING.keys() - OPERATIONS:
    promise(f"overt.testing.CrashingStore.{name} Crashed")(dying(FITTING[name]))
promise("overt.testing.CrashingStore.close Crashed")(dying(CrashingStore.close))
promise("overt.testing.CrashingStore.die Crashed")(lambda: CrashingStore(MemoryStore()).die())
promise("overt.testing.CrashingStore.hold ValueError")(lambda: CrashingStore(MemoryStore()).hold(0))
promise("overt.testing.CrashingStore ValueError")(lambda: CrashingStore(MemoryStore(), crash_at=0))

# ------------------------------------------------------------------ models


async def stream(model: Any) -> None:
    async for _ in model.stream(REQUEST):
        pass


promise("overt.testing.MockModel DefinitionError")(lambda: MockModel([], tokens=-1))
promise("overt.testing.MockModel.generate ModelError")(lambda: MockModel([]).generate(REQUEST))
promise("overt.testing.MockModel.generate BaseException")(
    lambda: MockModel([ZeroDivisionError]).generate(REQUEST)
)
promise("overt.testing.MockModel.stream ModelError")(lambda: stream(MockModel([])))
promise("overt.testing.MockModel.stream BaseException")(lambda: stream(MockModel([ZeroDivisionError])))
promise("overt.testing.call DefinitionError")(lambda: call("t", x=object()))


def tape(use: Callable[[Path], Any]) -> Callable[[], Awaitable[object]]:
    async def provoke() -> object:
        with tempfile.TemporaryDirectory() as folder:
            found = use(Path(folder) / "tape.json")
            return await found if isinstance(found, Awaitable) else found

    return provoke


def recording(path: Path) -> Cassette:
    return Cassette(path, model=MockModel(["one"]), mode="record")


async def replaying(path: Path) -> Cassette:
    """A recording of one reply."""
    with recording(path) as cassette:
        await cassette.generate(REQUEST)
    return Cassette(path, mode="replay")


async def unused(path: Path) -> None:
    with await replaying(path):
        pass


async def asked_twice(path: Path) -> object:
    cassette = await replaying(path)
    await cassette.generate(REQUEST)
    return await cassette.generate(REQUEST)


async def streamed_twice(path: Path) -> None:
    cassette = await replaying(path)
    await cassette.generate(REQUEST)
    await stream(cassette)


def nothing_recorded(path: Path) -> None:
    with recording(path):
        pass


promise("overt.testing.Cassette CassetteError")(tape(lambda path: Cassette(path, mode="replay")))
promise("overt.testing.Cassette DefinitionError")(tape(lambda path: Cassette(path, mode="record")))
promise("overt.testing.Cassette.__exit__ CassetteError")(tape(nothing_recorded))
promise("overt.testing.Cassette.__exit__ AssertionError")(tape(unused))
promise("overt.testing.Cassette.generate ModelError")(tape(asked_twice))
promise("overt.testing.Cassette.stream ModelError")(tape(streamed_twice))
promise("overt.testing.Cassette.generate CassetteError")(tape(lambda path: recording(path).generate(REQUEST)))
promise("overt.testing.Cassette.stream CassetteError")(tape(lambda path: stream(recording(path))))

# ------------------------------------------------------------------ conformance


class Forgetful(StoreWrapper):
    """A store that gives back nothing."""

    async def read(self, run_id: str, *, after: int = 0) -> Any:
        return ()


class Bench:
    """A provider that is not there."""

    not_applicable: Any = {}

    def model(self, *cases: Any, pieces: int | None = None) -> Any:
        raise ModelError("no provider")

    def sent(self) -> list[Any]:
        return []

    def unclosed(self) -> int:
        return 0


def forgetful() -> Forgetful:
    return Forgetful(MemoryStore())


READS = next(check for check in STORE_CHECKS if "read" in check.name)
promise("overt.testing.ModelCheck.__call__ AssertionError")(lambda: MODEL_CHECKS[0](Bench))
promise("overt.testing.StoreCheck.__call__ AssertionError")(lambda: READS(forgetful))
promise("overt.testing.StoreCheck.__call__ TypeError")(lambda: STORE_REOPEN_CHECKS[0](MemoryStore))
promise("overt.testing.model_conformance AssertionError")(lambda: model_conformance(Bench))
promise("overt.testing.store_conformance AssertionError")(lambda: store_conformance(forgetful))

# ------------------------------------------------------------------ time

clock = VirtualClock(datetime(2026, 1, 1, tzinfo=UTC))
promise("overt.testing.VirtualClock ValueError")(lambda: VirtualClock(NAIVE))
promise("overt.testing.VirtualClock.advance ValueError")(lambda: clock.advance(-1))
promise("overt.testing.VirtualClock.set_wall ValueError")(lambda: clock.set_wall(NAIVE))
promise("overt.testing.VirtualClock.sleep ValueError")(lambda: clock.sleep(float("nan")))
