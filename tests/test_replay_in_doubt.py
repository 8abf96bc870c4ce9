"""In doubt: a `reuse` call or a `once` block that was entered and left without an outcome."""

from __future__ import annotations

from typing import Any, Literal

import anyio
import pytest

from overt import Agent, Request, ResumePolicy, Runtime, Status, TaskResult, ToolContext, tool
from overt.errors import InvalidAnswer
from overt.stores import MemoryStore
from overt.testing import VirtualClock, call, say
from tests.suspend_kit import agent, approve, first, no, tools_said, yes

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("policy", list(ResumePolicy))


class World:
    """A tool whose first entries never end, and what it did."""

    def __init__(
        self, kind: Literal["reuse", "once", "rerun"], *, dies: int = 1, timeout: float | None = None
    ) -> None:
        self.effects: list[str] = []
        self.attempts: list[tuple[str, int]] = []
        self.inside = anyio.Event()
        self.never = anyio.Event()
        self.dies = dies
        world = self

        async def effect() -> str:
            world.effects.append("paid")
            if len(world.effects) <= world.dies:
                world.inside.set()
                await world.never.wait()
            return f"paid {len(world.effects)}"

        @tool(on_replay="reuse" if kind == "reuse" else "rerun", timeout=timeout)
        async def pay(ctx: ToolContext) -> str:
            """Pay."""
            world.attempts.append((ctx.idempotency_key, ctx.attempt))
            return await (ctx.once("pay", effect) if kind == "once" else effect())

        self.pay = pay

    def agent(self, *before: Any) -> Agent[None, str]:
        return agent([*before, call("pay"), say("end")], self.pay, approve)


async def cut_off(world: World, worker: Agent[None, str], **options: Any) -> Runtime[str]:
    """Run until the tool is inside, then cancel the host, and open the run anew."""
    store = MemoryStore()
    runtime = Runtime(worker, store=store, run_id="r", **options)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.run, "go")
        await world.inside.wait()
        group.cancel_scope.cancel()
    assert runtime.result().status is Status.INTERRUPTED
    return await Runtime.open(worker, "r", store=store)


OUTCOMES: list[tuple[dict[str, Any], str, int]] = [
    ({"outcome": "succeeded", "output": "receipt 7"}, "receipt 7", 1),
    ({"outcome": "failed", "output": "no funds"}, "no funds", 1),
    ({"outcome": "retry"}, "paid 2", 2),
]


@BOTH
@pytest.mark.parametrize("kind", ["reuse", "once"])
@pytest.mark.parametrize(("outcome", "said", "effects"), OUTCOMES, ids=["succeeded", "failed", "retry"])
async def test_the_outcome_is_told_and_never_guessed(
    policy: ResumePolicy, kind: Literal["reuse", "once"], outcome: dict[str, Any], said: str, effects: int
) -> None:
    world = World(kind)
    runtime = await cut_off(world, world.agent(), resume_policy=policy)
    turns = runtime.result().turns
    result = await runtime.recover()
    assert result.status is Status.PENDING
    assert world.effects == ["paid"]
    request = first(result)
    assert request.kind == "in_doubt"
    assert request.data["call"] == {"tool": "pay", "arguments": {}}
    assert request.data["idempotency_key"] == world.attempts[0][0]
    assert (request.replays, request.turns_again) == ((), 0)
    assert result.turns == turns, "the model is not asked before the doubt is settled"
    result = await runtime.resume(yes(request, outcome))
    assert result.status is Status.DONE
    assert len(world.effects) == effects
    (output,) = tools_said(runtime.transcript(result.handle))
    assert said in output
    message = runtime.transcript(result.handle)[2]
    assert message.role == "tool"
    assert message.is_error is (outcome["outcome"] == "failed")
    assert len({key for key, _ in world.attempts}) == 1, "a retry has the same key"
    assert result.turns == turns + 1, "an answer about a doubt continues, under either policy"


async def test_ok_false_leaves_it_in_doubt() -> None:
    world = World("reuse")
    runtime = await cut_off(world, world.agent())
    result = await runtime.recover()
    one = first(result)
    result = await runtime.resume(no(one))
    two = first(result)
    assert (two.kind, two.id != one.id) == ("in_doubt", True)
    assert world.effects == ["paid"]
    result = await runtime.resume(yes(two, {"outcome": "succeeded", "output": "x"}))
    assert result.status is Status.DONE


@pytest.mark.parametrize("data", [None, {}, {"outcome": "perhaps"}, {"outcome": "retry", "more": 1}, "retry"])
async def test_the_answer_has_to_name_an_outcome(data: Any) -> None:
    world = World("reuse")
    runtime = await cut_off(world, world.agent())
    result = await runtime.recover()
    with pytest.raises(InvalidAnswer):
        await runtime.resume(yes(result, data))
    assert [r.id for r in runtime.pendings()] == [first(result).id]


@BOTH
async def test_a_rerun_tool_whose_process_died_runs_again_under_the_same_key(policy: ResumePolicy) -> None:
    world = World("rerun")
    runtime = await cut_off(world, world.agent(), resume_policy=policy)
    result = await runtime.recover()
    assert result.status is Status.DONE
    assert len(world.effects) == 2
    assert len({key for key, _ in world.attempts}) == 1
    assert [attempt for _, attempt in world.attempts] == [1, 1]
    assert result.turns == 2


@pytest.mark.parametrize("kind", ["reuse", "once"])
async def test_a_timeout_is_doubt(kind: Literal["reuse", "once"]) -> None:
    clock = VirtualClock()
    world = World(kind, timeout=5)
    runtime = Runtime(world.agent(), clock=clock)
    out: list[TaskResult[str]] = []

    async def run() -> None:
        out.append(await runtime.run("go"))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await world.inside.wait()
        await clock.advance(5)
    assert first(out[0]).kind == "in_doubt"
    result = await runtime.resume(yes(out[0], {"outcome": "retry"}))
    assert result.status is Status.DONE
    assert world.effects == ["paid", "paid"]


async def test_a_timeout_of_a_rerun_tool_is_an_error_result() -> None:
    clock = VirtualClock()
    world = World("rerun", timeout=5)
    runtime = Runtime(world.agent(), clock=clock)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.run, "go")
        await world.inside.wait()
        await clock.advance(5)
    assert runtime.result().status is Status.DONE
    (said,) = tools_said(runtime.transcript("root/w.1"))
    assert "timed out after 5 s" in said


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("kind", ["reuse", "once"])
async def test_an_exit_that_goes_through_is_doubt(error: type[BaseException], kind: str) -> None:
    effects: list[int] = []

    async def effect() -> str:
        effects.append(1)
        raise error

    @tool(on_replay="reuse" if kind == "reuse" else "rerun")
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        return await (ctx.once("pay", effect) if kind == "once" else effect())

    store = MemoryStore()
    worker = agent([call("pay"), say("end")], pay)
    with pytest.raises(error):
        await worker.run("go", store=store, run_id="r")
    runtime = await Runtime.open(worker, "r", store=store)
    result = await runtime.recover()
    assert first(result).kind == "in_doubt"
    result = await runtime.resume(yes(result, {"outcome": "succeeded", "output": "paid"}))
    assert result.status is Status.DONE
    assert effects == [1]


async def test_siblings_end_first_and_each_call_has_its_own_request() -> None:
    going, inside = anyio.Event(), anyio.Event()
    done: list[str] = []
    clock = VirtualClock()
    never = anyio.Event()

    @tool(on_replay="reuse", timeout=1)
    async def pay(n: int) -> str:
        """Pay."""
        await never.wait()
        return "never"

    @tool
    async def slow() -> str:
        """Take longer."""
        inside.set()
        await going.wait()
        done.append("slow")
        return "slow"

    worker = agent([[call("pay", n=1), call("slow"), call("pay", n=2)], say("end")], pay, slow)
    runtime = Runtime(worker, clock=clock)
    out: list[TaskResult[str]] = []

    async def run() -> None:
        out.append(await runtime.run("go"))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await inside.wait()
        await clock.advance(1)
        assert [r.kind for r in runtime.pendings()] == ["in_doubt", "in_doubt"]
        assert str(runtime.inspect("root/w.1").state) == "running", "the sibling still runs"
        going.set()
    (result,) = out
    assert done == ["slow"]
    shown = [r.data["call"] for r in result.pendings]
    assert shown == [{"tool": "pay", "arguments": {"n": n}} for n in (1, 2)]
    result = await runtime.resume(yes(result.pendings[0], {"outcome": "succeeded", "output": "1"}))
    assert result.status is Status.PENDING
    result = await runtime.resume(yes(result, {"outcome": "failed", "output": "2"}))
    assert tools_said(runtime.transcript(result.handle)) == ["1", "slow", "2"]


async def test_doubt_comes_before_a_rewind_and_whether_or_not_the_model_calls_again() -> None:
    world = World("reuse")
    asked: list[int] = []

    def script(request: Any) -> Any:
        asked.append(1)
        if len(asked) == 1:
            return [call("approve"), call("pay")]
        return say("I shall not pay again")

    worker = agent(script, world.pay, approve)
    told = anyio.Event()

    async def on_pending(request: Request) -> None:
        told.set()

    store = MemoryStore()
    runtime = Runtime(worker, store=store, run_id="r", on_pending=on_pending)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.run, "go")
        await world.inside.wait()
        await told.wait()
        group.cancel_scope.cancel()
    runtime = await Runtime.open(worker, "r", store=store)
    result = await runtime.recover()
    assert sorted(r.kind for r in result.pendings) == ["approval", "in_doubt"]
    approval = next(r for r in result.pendings if r.kind == "approval")
    result = await runtime.resume(yes(approval))
    assert asked == [1], "the rewind waits for the doubt"
    result = await runtime.resume(yes(result, {"outcome": "succeeded", "output": "x"}))
    assert (result.status, result.text) == (Status.DONE, "I shall not pay again")
    assert world.effects == ["paid"]


async def test_recover_under_rewind_asks_about_doubt_first() -> None:
    world = World("reuse")
    worker = world.agent(call("approve"))
    runtime = await cut_off_after_approval(world, worker)
    asked = runtime.result().turns
    result = await runtime.recover(policy=ResumePolicy.REWIND)
    assert first(result).kind == "in_doubt"
    assert result.turns == asked
    result = await runtime.resume(yes(result, {"outcome": "succeeded", "output": "x"}))
    assert result.status is Status.DONE
    assert world.effects == ["paid"], "the replay gives what the answer said"
    assert tools_said(runtime.transcript(result.handle)) == ["it: yes", "x"]
    assert result.replay is not None
    assert result.replay.attempt == 3


async def cut_off_after_approval(world: World, worker: Agent[None, str]) -> Runtime[str]:
    store = MemoryStore()
    parked, runtime = await worker.run("go", store=store, run_id="r")
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.resume, yes(parked))
        await world.inside.wait()
        group.cancel_scope.cancel()
    return await Runtime.open(worker, "r", store=store)


async def test_resume_on_a_cut_off_run_recovers_it_first() -> None:
    world = World("reuse")
    one = agent([call("approve"), say("one")], approve, name="one")
    two = agent([call("pay"), say("two")], world.pay, name="two")
    both = [call("task", agent="one", prompt="p"), call("task", agent="two", prompt="p")]
    boss = agent([both, say("end")], name="boss", team=[one, two])
    told = anyio.Event()

    async def on_pending(request: Request) -> None:
        told.set()

    store = MemoryStore()
    runtime = Runtime(boss, store=store, run_id="r", on_pending=on_pending)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.run, "go")
        await world.inside.wait()
        await told.wait()
        group.cancel_scope.cancel()
    runtime = await Runtime.open(boss, "r", store=store)
    approval = next(r for r in runtime.pendings() if r.kind == "approval")
    result = await runtime.resume(yes(approval))
    assert [r.kind for r in result.pendings] == ["in_doubt"]
    assert runtime.result().usage.turns >= 3
    result = await runtime.resume(yes(result, {"outcome": "succeeded", "output": "x"}))
    assert (result.status, result.text) == (Status.DONE, "end")
    assert tools_said(runtime.transcript(result.handle)) == ["one", "two"]


async def test_an_asking_reuse_tool_that_was_parked_is_not_in_doubt() -> None:
    entries: list[int] = []

    @tool(on_replay="reuse")
    async def pay(ctx: ToolContext) -> str:
        """Ask, then pay."""
        entries.append(1)
        return str((await ctx.ask("ok?")).ok)

    store = MemoryStore()
    worker = agent([call("pay"), say("end")], pay)
    result, _ = await worker.run("go", store=store, run_id="r")
    runtime = await Runtime.open(worker, "r", store=store)
    assert (await runtime.recover()).pendings == result.pendings
    result = await runtime.resume(yes(result))
    assert result.status is Status.DONE
    assert len(entries) == 2


async def test_an_interrupt_by_the_host_leaves_no_request() -> None:
    world = World("reuse")
    async with Runtime(world.agent()) as runtime:
        handle = await runtime.spawn(runtime.root, "w")
        await runtime.wake(handle, "go")
        await world.inside.wait()
        await runtime.interrupt(handle)
        result = await runtime.wait(handle)
        assert result.status is Status.INTERRUPTED
        await runtime.close()
