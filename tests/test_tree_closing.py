"""Interrupt and close: leaves first, requests cancelled, what is closed stays readable."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from overt import Agent, Runtime, ToolContext, tool
from overt.errors import AlreadyAnswered
from overt.request import Answer
from overt.testing import MockModel, VirtualClock, call, say


@tool
async def ask(ctx: ToolContext[object], prompt: str) -> str:
    return f"answered {(await ctx.ask(prompt)).ok}"


LEAF = Agent("leaf", does="answers", tools=[ask])
MID = Agent("mid", does="passes on", team=[LEAF])
TOP = Agent("top", does="leads", team=[MID])


def nested(leaf: Any) -> MockModel:
    return MockModel(
        {
            "top": [call("task", agent="mid", prompt="m"), "top done"],
            "mid": [
                [call("task", agent="leaf", prompt="a"), call("task", agent="leaf", prompt="b")],
                "mid done",
            ],
            "leaf": leaf,
        }
    )


def closed_in_order(rt: Runtime[Any]) -> list[str]:
    return [line.split()[3] for line in rt.trace() if " HandleClosed" in line]


class Hang:
    def __init__(self, count: int) -> None:
        self.count = count
        self.inside = anyio.Event()
        self.left = 0

    async def __call__(self, request: Any) -> Any:
        self.count -= 1
        if not self.count:
            self.inside.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.left += 1


@pytest.mark.parametrize("verb", ["interrupt", "close"])
async def test_ending_the_top_ends_the_leaves_first(verb: str) -> None:
    hang = Hang(2)
    rt = Runtime(TOP, model=nested(hang))
    found: list[Any] = []

    async def host() -> None:
        found.append(await rt.run("go"))

    async with anyio.create_task_group() as group:
        group.start_soon(host)
        await hang.inside.wait()
        if verb == "interrupt":
            await rt.interrupt()
        else:
            await rt.close(force=True)
    assert hang.left == 2
    (result,) = found
    assert result.status == {"interrupt": "interrupted", "close": "closed"}[verb]
    top = "root/top.1"
    order = closed_in_order(rt)
    assert sorted(order) == sorted(["root", *(v.id for v in rt.list())])
    for id in order:
        assert all(order.index(below) < order.index(id) for below in order if below.startswith(f"{id}/"))
    assert (result.turns, result.own_tokens, result.total_tokens) == (1, 100, 200)
    assert (result.usage.model_calls, result.usage.unreported_calls) == (4, 2)
    assert rt.usage_tokens(top) == 200


async def test_closing_a_branch_leaves_the_others_alone() -> None:
    hang = Hang(2)
    async with Runtime(TOP, model=nested(hang)) as rt:
        top = await rt.spawn("root", "top")
        other = await rt.spawn("root", "mid")
        await rt.wake(top, "go")
        await hang.inside.wait()
        await rt.close(f"{top.id}/mid.1/leaf.1", force=True, reason="enough")
        assert rt.inspect(f"{top.id}/mid.1/leaf.2").state == "running"
        assert rt.inspect(f"{top.id}/mid.1").state == "running"
        assert rt.inspect(other).state == "idle"
        await rt.close(top, force=True)
        assert rt.inspect(other).state == "idle"
        assert (await rt.wait(top)).status == "closed"


async def test_close_waits_for_what_settles_in_time_and_interrupts_the_rest() -> None:
    clock = VirtualClock()

    async def think(request: Any) -> Any:
        await clock.sleep(0.1 if request.messages[-1].text == "quick" else 100)
        return say("done")

    async with Runtime(LEAF, model=MockModel(think), clock=clock, shutdown=0.5) as rt:
        quick, slow = await rt.spawn("root", "leaf"), await rt.spawn("root", "leaf")
        await rt.wake(quick, "quick")
        await rt.wake(slow, "slow")
        closed = anyio.Event()

        async def close() -> None:
            await rt.close(reason="closing time")
            closed.set()

        async with anyio.create_task_group() as group:
            group.start_soon(close)
            await clock.wait_for_sleepers(3)
            await clock.advance(0.4)
            assert not closed.is_set()
            assert rt.inspect(slow).state == "running"
            await clock.advance(0.2)
            assert closed.is_set()
        first, second = await rt.wait(quick), await rt.wait(slow)
    assert (first.status, first.output) == ("done", "done")
    assert second.status == "closed"
    assert "closing time" in second.text
    assert second.usage.unreported_calls == 1


async def test_close_returns_as_soon_as_everything_has_settled() -> None:
    clock = VirtualClock()
    gate = anyio.Event()

    async def think(request: Any) -> Any:
        await gate.wait()
        return say("done")

    async with Runtime(LEAF, model=MockModel(think), clock=clock) as rt:
        handle = await rt.spawn("root", "leaf")
        await rt.wake(handle, "go")
        async with anyio.create_task_group() as group:
            group.start_soon(rt.close)
            await clock.wait_for_sleepers(1)
            gate.set()
        assert (await rt.wait(handle)).status == "done"
        assert rt.inspect(handle).state == "closed"
    assert clock.monotonic() == 0


@pytest.mark.parametrize("verb", ["interrupt", "close"])
async def test_ending_what_is_suspended_cancels_its_requests(verb: str) -> None:
    result, rt = await TOP.run("go", model=nested([call("ask", prompt="may I?"), "leaf done"]))
    assert [p.path[-1] for p in result.pendings] == ["leaf.1", "leaf.2"]
    ids = [p.id for p in result.pendings]
    await getattr(rt, verb)()
    after = rt.result()
    assert after.status == {"interrupt": "interrupted", "close": "closed"}[verb]
    assert after.pendings == ()
    assert rt.pendings() == ()
    with pytest.raises(AlreadyAnswered) as caught:
        await rt.resume(Answer(id=ids[0], ok=True))
    assert caught.value.answer.reason == "cancelled"


@pytest.mark.parametrize("verb", ["interrupt", "close"])
async def test_ending_one_suspended_child_moves_its_parent_on_when_nothing_else_waits(verb: str) -> None:
    result, rt = await TOP.run("go", model=nested([call("ask", prompt="may I?"), "leaf done"]))
    await getattr(rt, verb)(result.handle + "/mid.1/leaf.1")
    still = rt.result()
    assert (still.status, len(still.pendings)) == ("pending", 1)
    assert rt.inspect(result.handle + "/mid.1").state == "suspended"
    await getattr(rt, verb)(result.handle + "/mid.1/leaf.2")
    done = rt.result()
    assert (done.status, done.output) == ("done", "top done")
    texts = [m.text for m in rt.transcript(result.handle + "/mid.1") if m.role == "tool"]
    status = {"interrupt": "interrupted", "close": "closed"}[verb]
    assert [t.split("]")[0] for t in texts] == [f"[{status}"] * 2


async def test_interrupting_what_does_nothing_does_nothing() -> None:
    async with Runtime(TOP, model=nested(["leaf done"])) as rt:
        top = await rt.spawn("root", "top")
        before = len(rt.events())
        await rt.interrupt(top)
        assert len(rt.events()) == before
        await rt.run_turn(top, "go")
        before = len(rt.events())
        await rt.interrupt(top)
        assert len(rt.events()) == before
        assert rt.inspect(top).state == "idle"


async def test_a_closed_run_stays_readable() -> None:
    result, rt = await TOP.run("go", model=nested(["leaf done"]))
    assert {v.state for v in rt.list()} == {"closed"}
    assert rt.result() == result
    assert rt.usage_tokens(result.handle) == result.total_tokens == 600
    assert [m.text for m in rt.transcript(result.handle)] == ["go", "", "mid done", "top done"]
    assert str(rt.ledger())
    assert rt.events()
    await rt.close()
    assert rt.result() == result
