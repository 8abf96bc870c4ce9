"""What is about to happen is in the store before it happens, and what is in the store is the state."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.core.sim import tree_snapshot
from tests.durability.crew import LEAD, RUN, Host, World, check, facts_of
from tests.durability.spies import Watched, failing

from overt import (
    Agent,
    Answer,
    Budget,
    Request,
    ResumePolicy,
    Runtime,
    ToolContext,
    tool,
)
from overt.core import facts as f
from overt.core.apply import apply_all
from overt.core.tree import Tree
from overt.errors import StoreError
from overt.journal.codec import decode
from overt.message import ModelRequest, ModelResponse, ToolMessage
from overt.stores import MemoryStore
from overt.testing import MockModel, VirtualClock, call, say
from overt.testing.crashing import CrashingStore

pytestmark = pytest.mark.anyio
policies = pytest.mark.parametrize("policy", list(ResumePolicy))


class Order:
    """User code that looks into the store whenever it is reached."""

    def __init__(self, policy: ResumePolicy, *, inline: bool) -> None:
        self.store = Watched(MemoryStore())
        self.reached: set[str] = set()
        self.policy = policy
        self.inline = inline
        inner = MockModel([[call("work", n=1), call("gate")], say("end")])
        order = self

        class Looking:
            name = "looking"

            async def generate(self, request: ModelRequest) -> ModelResponse:
                order.model(request)
                return await inner.generate(request)

        @tool
        async def work(ctx: ToolContext[None], n: int) -> str:
            """Work."""
            assert order.has(f.CallEntered, call=ctx.call.id)

            async def block() -> int:
                assert order.has(f.OnceEntered, label="block")
                order.reached.add("once")
                return n

            await ctx.once("block", block)
            assert order.has(f.OnceDone, label="block", value="1")
            order.reached.add("tool")
            return "worked"

        @tool
        async def gate(ctx: ToolContext[None]) -> str:
            """Ask."""
            assert order.has(f.CallEntered, call=ctx.call.id)
            answer = await ctx.ask("May I?")
            assert order.has(f.AnswerGiven, request=answer.id, ok=True, data='"yes"', by="ann")
            order.reached.add("answer")
            return "passed"

        options: dict[str, Any] = {"wait_for": self.wait_for} if inline else {"on_pending": self.on_pending}
        self.runtime = Runtime(
            Agent("a", does="Works.", tools=[work, gate]),
            model=Looking(),
            store=self.store,
            clock=VirtualClock(),
            resume_policy=policy,
            **options,
        )

    def has(self, kind: type[f.Fact], **fields: object) -> bool:
        return any(
            isinstance(x, kind) and all(getattr(x, name) == value for name, value in fields.items())
            for x in self.store.durable
        )

    def model(self, request: ModelRequest) -> None:
        assert isinstance(self.store.durable[-1], f.ModelCalled)
        for message in request.messages:
            if isinstance(message, ToolMessage):
                assert self.has(f.CallReturned, call=message.call_id, output=message.text)
                self.reached.add("result")

    async def on_pending(self, request: Request) -> None:
        assert self.has(f.CallAsked, request=request.id)
        self.reached.add("told")

    async def wait_for(self, request: Request) -> Answer[Any]:
        assert self.has(f.CallAsked, request=request.id)
        self.reached.add("told")
        return Answer(id=request.id, ok=True, data="yes", by="ann")


@policies
@pytest.mark.parametrize("inline", [True, False])
async def test_everything_is_durable_before_it_leaves(policy: ResumePolicy, inline: bool) -> None:
    order = Order(policy, inline=inline)
    result = await order.runtime.run("go")
    if not inline:
        assert result.pending is not None, result.text
        result = await order.runtime.resume(Answer(id=result.pending.id, ok=True, data="yes", by="ann"))
    assert result.text == "end", result.text
    errors = [x.output for x in order.store.durable if isinstance(x, f.CallReturned) and x.is_error]
    assert not errors, errors
    assert order.reached == {"tool", "once", "result", "told", "answer"}


@policies
async def test_the_fold_is_the_live_tree_at_every_append(policy: ResumePolicy) -> None:
    store = MemoryStore()
    host = Host(World(), store, policy)
    shadow, looked = Tree(), 0
    runtime: Runtime[str]

    async def compare(_: list[f.Fact]) -> None:
        nonlocal looked
        for rec in await store.read(RUN, after=shadow.seq):
            at, facts = decode(RUN, rec)
            apply_all(shadow, facts, at)
        assert tree_snapshot(shadow) == tree_snapshot(runtime._driver.tree)
        looked += 1

    host.store = Watched(store, after=compare)
    runtime = Runtime(LEAD, run_id=RUN, **host.options())
    result = await runtime.run("sell")
    while result.status != "done":
        if result.pending is not None:
            result = await runtime.resume(host.answer(result.pending))
        else:
            result = await runtime.extend(Budget(max_turns=4))
        if result.pending is not None:
            # And in fresh objects: a fold of everything so far.
            host.store = store
            other = await Runtime.open(LEAD, RUN, **host.options())
            assert tree_snapshot(other._driver.tree) == tree_snapshot(runtime._driver.tree)
            assert other.result() == result
            assert other.trace() == runtime.trace()
    assert looked > 15


@policies
async def test_an_append_that_is_slow_changes_nothing(policy: ResumePolicy) -> None:
    """Whichever append is held back, and whatever else finishes meanwhile, the outcome is the same."""
    calm_world, calm_store = World(), CrashingStore(MemoryStore())
    calm = await Host(calm_world, calm_store, policy).run()
    quiet = await facts_of(calm_store)
    for at in range(1, calm_store.appends + 1):
        world, store, clock = World(), CrashingStore(MemoryStore()), VirtualClock()
        gate = store.hold(at)
        found = []

        async def run(host: Host) -> None:
            found.append(await host.run())  # noqa: B023  # awaited in the same round

        async with anyio.create_task_group() as group:
            group.start_soon(run, Host(world, store, policy))
            await gate.reached()
            await clock.advance(0)  # everything else runs until it waits for something
            gate.release()
        assert (found[0].text, found[0].usage) == (calm.text, calm.usage), f"append {at}"
        assert sorted(world.effects) == sorted(calm_world.effects), f"append {at}"
        check(world, found[0], await facts_of(store), quiet)


@policies
async def test_an_append_that_fails_stops_the_runtime_until_it_is_reopened(policy: ResumePolicy) -> None:
    calm_store = CrashingStore(MemoryStore())
    await Host(World(), calm_store, policy).run()
    quiet = await facts_of(calm_store)
    for at in range(1, calm_store.appends + 1):
        world, inner = World(), MemoryStore()
        host = Host(world, failing(inner, at), policy)
        with pytest.raises(StoreError, match="disk is full"):
            await host.run()
        host.store = inner
        result = await host.run()
        check(world, result, await facts_of(inner), quiet)


async def test_a_stopped_runtime_accepts_nothing_and_its_effects_are_cancelled() -> None:
    inner = MemoryStore()
    cancelled: list[str] = []
    began = anyio.Event()

    @tool
    async def long() -> str:
        """Take for ever."""
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append("long")
        return ""

    @tool
    async def short() -> str:
        """Return when the other one is under way."""
        await began.wait()
        return "short"

    agent = Agent("a", does="Works.", tools=[long, short])
    options: dict[str, Any] = {
        "model": MockModel([[call("long"), call("short")], say("end")]),
        "clock": VirtualClock(),
    }
    runtime = Runtime(agent, run_id=RUN, store=failing(inner, 3), **options)
    with anyio.fail_after(5), pytest.raises(StoreError, match="disk is full"):
        await runtime.run("go")
    assert cancelled == ["long"]
    before = await facts_of(inner)
    for verb in (
        lambda: runtime.recover(),
        lambda: runtime.interrupt(),
        lambda: runtime.close(),
        lambda: runtime.wake("root/a.1", "again"),
        lambda: runtime.resume(Answer(id="req_x", ok=True)),
        lambda: runtime.extend(Budget(max_turns=9)),
        lambda: runtime.spawn("root", "a"),
    ):
        with pytest.raises(StoreError, match="disk is full"):
            await verb()
    assert await facts_of(inner) == before
    # What can be read is what is stored, not what was decided on the way to the append that failed.
    assert [x for _, _, facts in runtime._driver.log for x in facts] == before
    opened = await Runtime.open(agent, RUN, store=inner, **options)
    assert tree_snapshot(runtime._driver.tree) == tree_snapshot(opened._driver.tree)
    # The claim is given up: whoever opens it again need not wait until it runs out.
    assert (await inner.info(RUN)).owner is None
