"""What `on_pending` is told, and who waits for it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from overt import Request, Runtime, Status, tool
from overt.stores import MemoryStore
from overt.testing import call, say
from tests.suspend_kit import agent, approve, first, yes

pytestmark = pytest.mark.anyio


async def test_a_wait_is_not_for_what_another_handle_is_told() -> None:
    told, go = anyio.Event(), anyio.Event()

    async def on_pending(_: Request) -> None:
        told.set()
        await go.wait()

    team = [agent([call("approve"), say("s")], approve, name="asker"), agent([say("q")], name="quick")]
    runtime = Runtime(agent([say("x")], team=team), on_pending=on_pending)
    async with runtime:
        asker = await runtime.spawn(runtime.root, "asker")
        quick = await runtime.spawn(runtime.root, "quick")
        await runtime.wake(asker, "x")
        await told.wait()
        await runtime.wake(quick, "x")
        result = await runtime.wait(quick)
        assert result.status is Status.DONE
        # Its own handle is waited for until the host has been told.
        ended: list[Any] = []

        async def wait() -> None:
            ended.append(await runtime.wait(asker))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert ended == []
            go.set()
        assert ended[0].status is Status.PENDING


async def test_a_wait_is_not_for_what_a_dead_process_was_telling() -> None:
    store, telling = MemoryStore(), anyio.Event()

    async def hangs(_: Request) -> None:
        telling.set()
        await anyio.sleep_forever()

    told: list[str] = []

    async def tells(request: Request) -> None:
        told.append(request.id)

    never = anyio.Event()

    @tool
    async def hang() -> str:
        """Work on and on."""
        await never.wait()
        return "ok"

    team = [agent([say("q")], name="quick"), agent([call("hang"), say("s")], hang, name="busy")]
    worker = agent([call("approve"), say("end")], approve, team=team)
    dead = Runtime(worker, store=store, on_pending=hangs)
    async with anyio.create_task_group() as group:
        group.start_soon(dead.run, "go")
        await telling.wait()
        group.cancel_scope.cancel()
    runtime = await Runtime.open(worker, dead.id, store=store, on_pending=tells)
    async with runtime:
        busy = await runtime.spawn(runtime.root, "busy")
        quick = await runtime.spawn(runtime.root, "quick")
        await runtime.wake(busy, "x")
        await runtime.wake(quick, "x")
        assert (await runtime.wait(quick)).status is Status.DONE
        assert runtime.inspect(busy).state == "running"
        never.set()
        await runtime.wait(busy)
    (request,) = runtime.pendings()
    result = await runtime.recover()
    assert (result.status, told) == (Status.PENDING, [request.id]), "at least once"
    result = await runtime.resume(yes(request))
    assert result.status is Status.DONE


async def test_it_is_told_what_an_answer_repeats_once_the_run_has_parked() -> None:
    told: list[Request] = []
    heard = anyio.Event()

    async def on_pending(request: Request) -> None:
        told.append(request)
        heard.set()

    @tool
    def stage() -> str:
        """Stage."""
        return "staged"

    @tool
    async def slow() -> str:
        """Return when the host has heard of the question beside it."""
        await heard.wait()
        return "ok"

    worker = agent([call("stage"), [call("approve"), call("slow")], say("end")], stage, slow, approve)
    result, _ = await worker.run("go", on_pending=on_pending)
    request = first(result)
    (early,) = told
    assert early.turns_again == request.turns_again == 2
    assert [c.tool for c in early.replays] == ["stage"]
    assert [c.tool for c in request.replays] == ["stage", "slow"]


async def test_recover_on_a_parked_run_writes_nothing_and_keeps_the_replay() -> None:
    both = [call("approve", what="a"), call("approve", what="b")]
    result, runtime = await agent([both[0], both, say("end")], approve).run("go")
    result = await runtime.resume(yes(result))
    assert result.status is Status.PENDING
    assert result.replay is not None
    assert result.replay.turns_bought_again == 1
    before = runtime.events()
    again = await runtime.recover()
    assert runtime.events() == before
    assert again == result
