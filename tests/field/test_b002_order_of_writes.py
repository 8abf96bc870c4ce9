"""B002: whether a finished step is repeated depends on one durable record, not on which of two writes came first.

The result of a tool and the step after it are held back in the store, and the process dies before or after each. A
result that was stored is never asked for again; one that was not is in doubt, whatever else was under way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import anyio
import pytest
from tests.durability.deaths import STORES, opened_twice

from overt import Agent, Answer, Request, Runtime, Status, tool
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say
from overt.testing.crashing import CrashingStore

pytestmark = pytest.mark.anyio


def build(ran: list[str]) -> Agent[None, str]:
    @tool(on_replay="reuse")
    async def pay(n: int) -> str:
        """Pay."""
        ran.append(f"pay {n}")
        return f"receipt {n}"

    model = MockModel([[call("pay", n=1), call("pay", n=2)], call("pay", n=3), say("end")])
    return Agent("payer", does="pays", tools=[pay], model=model)


def looked_up(request: Request, ran: list[str]) -> Answer[dict[str, str]]:
    """Answer a doubt by looking at what has happened."""
    assert request.kind == "in_doubt"
    shown = request.data["call"]
    assert isinstance(shown, dict)
    arguments = shown["arguments"]
    assert isinstance(arguments, dict)
    happened = f"pay {arguments['n']}" in ran
    data = {"outcome": "succeeded", "output": "looked up"} if happened else {"outcome": "retry"}
    return Answer(id=request.id, ok=True, data=data)


async def appends_of_a_whole_run() -> int:
    store = CrashingStore(MemoryStore())
    result, _ = await build([]).run("go", store=store)
    assert result.status is Status.DONE
    return store.appends


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_every_order_gives_the_same_outcome(
    when: Literal["before", "after"], kind: str, quick: Path
) -> None:
    for crash_at in range(2, await appends_of_a_whole_run() + 1):
        ran: list[str] = []
        async with opened_twice(kind, quick / f"{crash_at}.db") as (first, second):
            store = CrashingStore(first, crash_at=crash_at, when=when)
            with pytest.raises(BaseException):  # noqa: B017, PT011  # the process is dead, whatever comes out
                await build(ran).run("go", store=store, run_id="r")
            assert store.crashed
            runtime = await Runtime.open(build(ran), "r", store=second)
            result = await runtime.recover()
            while result.status is Status.PENDING:
                result = await runtime.resume([looked_up(r, ran) for r in result.pendings])
        assert (result.status, result.text) == (Status.DONE, "end"), f"{when} append {crash_at}"
        assert sorted(ran) == ["pay 1", "pay 2", "pay 3"], f"{when} append {crash_at}: each once, {ran}"
        said = [m.text for m in runtime.transcript(result.handle) if m.role == "tool"]
        assert len(said) == 3


async def test_the_result_is_durable_before_the_step_counts() -> None:
    """While the append of a result is held back, the model has not heard of it."""
    inside, going = anyio.Event(), anyio.Event()

    @tool
    async def pay() -> str:
        """Pay."""
        inside.set()
        await going.wait()
        return "receipt"

    model = MockModel([call("pay"), say("end")])
    store = CrashingStore(MemoryStore())
    runtime = Runtime(Agent("payer", does="pays", tools=[pay], model=model), store=store)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.run, "go")
        await inside.wait()
        gate = store.hold(store.appends + 1)
        going.set()
        await gate.reached()
        await anyio.wait_all_tasks_blocked()
        assert len(model.requests) == 1
        gate.release()
    assert len(model.requests) == 2
    assert runtime.result().status is Status.DONE
