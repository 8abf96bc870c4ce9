"""What the doors, the verbs and the views of a run raise."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import anyio
from pydantic import BaseModel
from tests.contract.kit import (
    ENTRY,
    NOW,
    OTHER,
    UNTIL,
    asks,
    clerk,
    done,
    driven,
    moved_on,
    parked,
    parked_loop,
    promise,
    script,
    yes,
)  # fmt: skip

from overt import (
    Agent,
    Answer,
    Budget,
    InboxItem,
    Loop,
    Request,
    RunStream,
    Runtime,
    TaskResult,
    ToolContext,
    tool,
)
from overt.errors import StoreError
from overt.stores import MemoryStore, Record
from overt.testing import MockModel, VirtualClock, call

# ------------------------------------------------------------------ an agent's doors

with_deps = Agent("clerk", does="d", deps_type=int)
WITH_OPTIONS: dict[str, Callable[..., object]] = {
    "overt.Agent.run": lambda agent, **options: agent.run("go", **options),
    "overt.Agent.run_sync": lambda agent, **options: agent.run_sync("go", **options),
    "overt.Agent.stream": lambda agent, **options: agent.stream("go", **options),
    "overt.Agent.loop": lambda agent, **options: agent.loop(**options),
    "overt.AgentTool.__call__": lambda agent, **options: agent.as_tool()("go", **options),
    "overt.Loop": Loop,
    "overt.Runtime": Runtime,
}
OPENING: dict[str, Callable[..., Awaitable[object]]] = {
    "overt.Runtime.open": Runtime.open,
    "overt.Loop.open": Loop.open,
}


def bind(make: Callable[..., object], *given: Any, **options: Any) -> Callable[[], object]:
    return lambda: make(*given, **options)


for path, door in WITH_OPTIONS.items():
    promise(f"{path} DefinitionError")(bind(door, clerk, model=script(), inbox_cap=-1))
    promise(f"{path} MissingDeps")(bind(door, with_deps, model=script()))
    promise(f"{path} NoModel")(bind(door, clerk))


@promise("overt.Agent.run UsageError")
async def no_text() -> object:
    given: Any = 3
    return await clerk.run(given, model=script())


@promise("overt.AgentTool.__call__ UsageError")
async def no_text_for_a_tool() -> object:
    given: Any = 3
    return await clerk.as_tool()(given, model=script())


@promise("overt.Agent.stream UsageError")
def no_text_for_a_stream() -> object:
    given: Any = 3
    return clerk.stream(given, model=script())


@promise("overt.Agent.run_sync UsageError")
async def in_a_loop() -> object:
    return clerk.run_sync("go", model=script())


async def taken() -> MemoryStore:
    """A store that has a run `r`."""
    store = MemoryStore()
    await parked(store)
    return store


async def closed() -> MemoryStore:
    store = MemoryStore()
    await store.close()
    return store


def robbed(store: MemoryStore) -> Agent[None, str]:
    """An agent whose run is taken by force while it works."""

    @tool
    async def rob() -> str:
        """Take the run."""
        await store.claim("r", owner=OTHER, now=NOW, until=UNTIL, force=True)
        return "robbed"

    return Agent("clerk", does="d", tools=[rob])


async def run_of(store: MemoryStore, agent: Agent[None, str] = clerk) -> object:
    return await agent.run("go", store=store, run_id="r", model=MockModel([call("rob"), "done"]))


async def call_of(store: MemoryStore, agent: Agent[None, str] = clerk) -> object:
    return await agent.as_tool()("go", store=store, run_id="r", model=MockModel([call("rob"), "done"]))


async def runtime_of(store: MemoryStore, agent: Agent[None, str] = clerk) -> object:
    return await Runtime(agent, store=store, run_id="r", model=MockModel([call("rob"), "done"])).run("go")


async def loop_of(store: MemoryStore, agent: Agent[None, str] = clerk) -> object:
    return await agent.loop(store=store, run_id="r", model=MockModel([call("rob"), "done"])).run("go")


Run = Callable[..., Awaitable[object]]


def on(make: Callable[[], Awaitable[MemoryStore]], run: Run) -> Callable[[], Awaitable[object]]:
    async def provoke() -> object:
        return await run(await make())

    return provoke


def robbing(run: Run) -> Callable[[], Awaitable[object]]:
    async def provoke() -> object:
        store = MemoryStore()
        return await run(store, robbed(store))

    return provoke


RUNS: dict[str, Run] = {
    "overt.Agent.run": run_of,
    "overt.AgentTool.__call__": call_of,
    "overt.Runtime.run": runtime_of,
    "overt.Loop.run": loop_of,
}
for path, run in RUNS.items():
    promise(f"{path} RunExists")(on(taken, run))
    promise(f"{path} StoreError")(on(closed, run))
    promise(f"{path} RunConflict")(robbing(run))


def run_sync_of(make: Callable[[], Awaitable[MemoryStore]]) -> Callable[[], object]:
    return lambda: clerk.run_sync("go", store=anyio.run(make), run_id="r", model=script())


promise("overt.Agent.run_sync RunExists")(run_sync_of(taken))
promise("overt.Agent.run_sync StoreError")(run_sync_of(closed))


@promise("overt.Agent.run_sync RunConflict")
def robbed_sync() -> object:
    store = MemoryStore()
    return robbed(store).run_sync("go", store=store, run_id="r", model=MockModel([call("rob"), "done"]))


@promise("overt.Runtime.run UsageError")
async def run_twice() -> object:
    return await (await done()).run("again")


# ------------------------------------------------------------------ opening


async def damaged(text: str) -> MemoryStore:
    """A run whose journal goes on with something else."""
    store = MemoryStore()
    claim = await store.create(
        "r", [Record(1, 1, text=text)], agent="clerk", owner=OTHER, now=NOW, until=UNTIL
    )
    await store.release("r", epoch=claim.epoch)
    return store


def opening(open_: Run, store: Callable[[], Awaitable[MemoryStore]]) -> Callable[[], Awaitable[object]]:
    async def provoke() -> object:
        return await open_(clerk, "r", store=await store(), model=script())

    return provoke


async def gone_on() -> MemoryStore:
    store = await taken()
    await moved_on(store)
    return store


async def nothing_there() -> MemoryStore:
    return MemoryStore()


async def garbage() -> MemoryStore:
    return await damaged("{}")


async def newer_format() -> MemoryStore:
    return await damaged('{"v":99,"facts":[]}')


for path, open_ in OPENING.items():
    promise(f"{path} UsageError")(bind(open_, clerk, "r", model=script()))
    promise(f"{path} RunNotFound")(opening(open_, nothing_there))
    promise(f"{path} StoreError")(opening(open_, closed))
    promise(f"{path} SpecDrift")(opening(open_, gone_on))
    promise(f"{path} JournalCorrupt")(opening(open_, garbage))
    promise(f"{path} UnsupportedSchema")(opening(open_, newer_format))

    def of_parked(open_: Run, agent: Agent[Any, Any], **options: Any) -> Callable[[], Awaitable[object]]:
        async def provoke() -> object:
            return await open_(agent, "r", store=await taken(), **options)

        return provoke

    same_with_deps = Agent("clerk", does="d", tools=[asks], deps_type=int)
    promise(f"{path} DefinitionError")(of_parked(open_, clerk, model=script(), inbox_cap=-1))
    promise(f"{path} MissingDeps")(of_parked(open_, same_with_deps, model=script()))
    promise(f"{path} NoModel")(of_parked(open_, clerk))


# ------------------------------------------------------------------ verbs

Verb = Callable[[Any, Request], Any]
MORE = Budget(max_tokens=9_000)
ON_BOTH: dict[str, Verb] = {
    "resume": lambda it, request: it.resume(yes(request)),
    "recover": lambda it, request: it.recover(),
    "extend": lambda it, request: it.extend(MORE),
    "close": lambda it, request: it.close(),
}
OF_RUNTIME: dict[str, Verb] = ON_BOTH | {
    "spawn": lambda it, request: it.spawn("root", "clerk"),
    "post": lambda it, request: it.post(ENTRY, InboxItem(text="x")),
    "wake": lambda it, request: it.wake(ENTRY, "x"),
    "run_turn": lambda it, request: it.run_turn(ENTRY, "x"),
    "interrupt": lambda it, request: it.interrupt(),
}
OF_LOOP: dict[str, Verb] = ON_BOTH | {"run": lambda it, request: it.run("x")}
VERBS = {("Runtime", name): verb for name, verb in OF_RUNTIME.items()}
VERBS |= {("Loop", name): verb for name, verb in OF_LOOP.items()}


def after(
    kind: str, verb: Verb, then: Callable[[MemoryStore], Awaitable[None]]
) -> Callable[[], Awaitable[object]]:
    """A verb on a parked run, after something has happened to it elsewhere."""

    async def provoke() -> object:
        store = MemoryStore()
        it, request = await (parked(store) if kind == "Runtime" else parked_loop(store))
        await then(store)
        return await verb(it, request)

    return provoke


for (kind, name), verb in VERBS.items():
    if (kind, name) != ("Loop", "run"):  # of a run that is new, above
        promise(f"overt.{kind}.{name} RunConflict")(after(kind, verb, driven))
        promise(f"overt.{kind}.{name} StoreError")(after(kind, verb, MemoryStore.close))
    promise(f"overt.{kind}.{name} SpecDrift")(after(kind, verb, moved_on))


def sync(
    answer: Callable[[Request], Answer[Any]],
    then: Callable[[MemoryStore], Awaitable[None]] | None = None,
    *,
    clock: VirtualClock | None = None,
) -> object:
    """`resume_sync` of a parked run."""
    store = MemoryStore()

    async def prepare() -> tuple[Runtime[str], Request]:
        runtime, request = await parked(store, clock=clock)
        if then is not None:
            await then(store)
        return runtime, request

    runtime, request = anyio.run(prepare)
    return runtime.resume_sync(answer(request))


for error, then in (("RunConflict", driven), ("StoreError", MemoryStore.close), ("SpecDrift", moved_on)):
    promise(f"overt.Runtime.resume_sync {error}")(bind(sync, yes, then))


@promise("overt.Runtime.resume_sync UsageError")
async def resume_in_a_loop() -> object:
    runtime, request = await parked()
    return runtime.resume_sync(yes(request))


def other(request: Request) -> Answer[bool]:
    return Answer(id="req_other", ok=True)


def unfit(request: Request) -> Answer[str]:
    return Answer(id=request.id, ok=True, data="perhaps")


promise("overt.Runtime.resume_sync UnknownRequest")(bind(sync, other))
promise("overt.Runtime.resume_sync InvalidAnswer")(bind(sync, unfit))
for kind, make in (("Runtime", parked), ("Loop", parked_loop)):

    def resumed(
        make: Any, answer: Callable[[Request], Any], times: int = 1
    ) -> Callable[[], Awaitable[object]]:
        async def provoke() -> object:
            it, request = await make()
            for _ in range(times - 1):
                await it.resume(answer(request))
            return await it.resume(answer(request))

        return provoke

    promise(f"overt.{kind}.resume UnknownRequest")(resumed(make, other))
    promise(f"overt.{kind}.resume InvalidAnswer")(resumed(make, unfit))
    promise(f"overt.{kind}.resume AlreadyAnswered")(resumed(make, yes, times=2))
    promise(f"overt.{kind}.resume UsageError")(resumed(make, lambda request: "yes"))


@promise("overt.Runtime.resume_sync AlreadyAnswered")
def answered_twice() -> object:
    runtime, request = anyio.run(parked)
    runtime.resume_sync(yes(request))
    return runtime.resume_sync(yes(request))


@tool
async def asks_for_an_hour(ctx: ToolContext) -> str:
    """Ask, for an hour."""
    await ctx.ask("May I?", expires_at=NOW + timedelta(hours=1))
    return "asked"


async def too_late(*, loop: bool) -> tuple[Any, Request]:
    """A run whose question has expired."""
    clock = VirtualClock(NOW)
    agent = Agent("clerk", does="d", tools=[asks_for_an_hour])
    it: Any = agent.loop(model=MockModel([call("asks_for_an_hour"), "done"]), clock=clock)
    result: TaskResult[str] = await it.run("go")
    await clock.advance(3601)
    assert result.pending is not None
    return (it if loop else it.runtime), result.pending


@promise("overt.Runtime.resume RequestExpired")
async def answered_too_late() -> object:
    it, request = await too_late(loop=False)
    return await it.resume(Answer(id=request.id, ok=True))


@promise("overt.Loop.resume RequestExpired")
async def answered_too_late_in_a_loop() -> object:
    it, request = await too_late(loop=True)
    return await it.resume(Answer(id=request.id, ok=True))


@promise("overt.Runtime.resume_sync RequestExpired")
def answered_too_late_without_a_loop() -> object:
    async def prepare() -> tuple[Any, Request]:
        return await too_late(loop=False)

    it, request = anyio.run(prepare)
    return it.resume_sync(Answer(id=request.id, ok=True))


# ------------------------------------------------------------------ misuse of one verb

unstarted = Runtime(clerk, model=script(), run_id="r")
unstarted_loop = Loop(clerk, model=script(), run_id="r")
promise("overt.Runtime.recover UsageError")(lambda: unstarted.recover())
promise("overt.Runtime.interrupt UsageError")(lambda: unstarted.interrupt())
promise("overt.Runtime.result UsageError")(lambda: unstarted.result())
promise("overt.Loop.recover UsageError")(lambda: unstarted_loop.recover())
promise("overt.Loop.result UsageError")(lambda: unstarted_loop.result())


def of(make: Callable[[], Awaitable[Any]], verb: Callable[[Any], object]) -> Callable[[], Awaitable[object]]:
    """A verb or view of what `make` gives, which may be a pair with a request."""

    async def provoke() -> object:
        made = await make()
        found = verb(made[0] if isinstance(made, tuple) else made)
        return await found if isinstance(found, Awaitable) else found

    return provoke


NOBODY = "root/nobody.1"
UNKNOWN: dict[str, Callable[[Runtime[str]], object]] = {
    "close": lambda run: run.close(NOBODY),
    "extend": lambda run: run.extend(MORE, handle=NOBODY),
    "handle": lambda run: run.handle(NOBODY),
    "inspect": lambda run: run.inspect(NOBODY),
    "interrupt": lambda run: run.interrupt(NOBODY),
    "post": lambda run: run.post(NOBODY, InboxItem(text="x")),
    "remaining": lambda run: run.remaining(NOBODY),
    "run_turn": lambda run: run.run_turn(NOBODY, "x"),
    "spawn": lambda run: run.spawn(NOBODY, "clerk"),
    "tool_result": lambda run: run.tool_result(NOBODY, "c"),
    "transcript": lambda run: run.transcript(NOBODY),
    "transitions": lambda run: run.transitions(NOBODY),
    "usage_tokens": lambda run: run.usage_tokens(NOBODY),
    "wait": lambda run: run.wait(NOBODY),
    "wake": lambda run: run.wake(NOBODY, "x"),
}
for name, view in UNKNOWN.items():
    promise(f"overt.Runtime.{name} UnknownHandle")(of(parked, view))
promise("overt.Loop.extend UnknownHandle")(of(parked_loop, lambda loop: loop.extend(MORE, handle=NOBODY)))
promise("overt.Runtime.extend HandleClosed")(of(done, lambda run: run.extend(MORE, handle=ENTRY)))
promise("overt.Runtime.extend UsageError")(of(parked, lambda run: run.extend(MORE)))
promise("overt.Loop.extend UsageError")(of(parked_loop, lambda loop: loop.extend(MORE)))
promise("overt.Runtime.spawn HandleClosed")(of(done, lambda run: run.spawn(ENTRY, "clerk")))
promise("overt.Runtime.spawn SpawnRefused")(of(parked, lambda run: run.spawn(ENTRY, "nobody")))
promise("overt.Runtime.wake AwaitingAnswer")(of(parked, lambda run: run.wake(ENTRY, "x")))
promise("overt.Runtime.wake HandleClosed")(of(done, lambda run: run.wake(ENTRY, "x")))
promise("overt.Runtime.wake UsageError")(of(parked, lambda run: run.wake(ENTRY, 3)))
promise("overt.Runtime.run_turn AwaitingAnswer")(of(parked, lambda run: run.run_turn(ENTRY, "x")))
promise("overt.Runtime.run_turn HandleClosed")(of(done, lambda run: run.run_turn(ENTRY, "x")))
promise("overt.Runtime.run_turn UsageError")(of(parked, lambda run: run.run_turn(ENTRY, 3)))
promise("overt.Runtime.wait UsageError")(of(parked, lambda run: run.wait(ENTRY, timeout=-1)))
promise("overt.Runtime.tool_result UsageError")(of(parked, lambda run: run.tool_result(ENTRY, "c")))
promise("overt.Runtime.stream UsageError")(of(parked, lambda run: run.stream("x", policy="rewind")))
promise("overt.Runtime.follow UsageError")(of(parked, lambda run: run.follow(after=-1)))
promise("overt.Loop.run AwaitingAnswer")(of(parked_loop, lambda loop: loop.run("x")))
promise("overt.Loop.run UsageError")(of(parked_loop, lambda loop: loop.run(3)))
promise("overt.Loop.run DefinitionError")(of(parked_loop, lambda loop: loop.run("x", model=3)))
promise("overt.Loop.stream UsageError")(of(parked_loop, lambda loop: loop.stream(3)))
promise("overt.Loop.stream DefinitionError")(of(parked_loop, lambda loop: loop.stream("x", model=3)))


async def closed_loop() -> Loop[str]:
    loop, _ = await parked_loop()
    await loop.close()
    return loop


promise("overt.Loop.run HandleClosed")(of(closed_loop, lambda loop: loop.run("x")))
promise("overt.Loop.extend HandleClosed")(of(closed_loop, lambda loop: loop.extend(MORE, handle=ENTRY)))


@promise("overt.Runtime.__aenter__ UsageError")
async def entered_twice() -> None:
    runtime, _ = await parked()
    async with runtime, runtime:
        pass


def breaking() -> Runtime[str]:
    """A run whose store breaks while it works."""
    store = MemoryStore()

    @tool
    async def breaks() -> str:
        """Break the store."""
        await store.close()
        return "broken"

    agent = Agent("clerk", does="d", tools=[breaks])
    return Runtime(agent, store=store, model=MockModel([call("breaks"), "done"]))


@promise("overt.Runtime.wait StoreError")
async def waited_for_nothing() -> object:
    async with breaking() as runtime:
        await runtime.spawn("root", "clerk")
        await runtime.wake(ENTRY, "go")
        return await runtime.wait(ENTRY)


@promise("overt.Runtime.__aexit__ StoreError")
async def failed_behind_the_host() -> None:
    async with breaking() as runtime:
        await runtime.spawn("root", "clerk")
        await runtime.wake(ENTRY, "go")
        with contextlib.suppress(StoreError):
            await runtime.wait(ENTRY)


class Small(BaseModel):
    """An output."""

    x: int


class Large(BaseModel):
    """Another one."""

    x: int
    y: int


async def stored_small() -> MemoryStore:
    store = MemoryStore()
    agent = Agent("clerk", does="d", output_type=Small)
    await agent.run("go", store=store, run_id="r", model=MockModel([call("final_result", x=3)]))
    return store


large = Agent("clerk", does="d", output_type=Large)


@promise("overt.Runtime.result SpecDrift")
async def stored_otherwise() -> object:
    return (await Runtime.open(large, "r", store=await stored_small(), model=script())).result()


@promise("overt.Loop.result SpecDrift")
async def stored_otherwise_by_a_loop() -> object:
    return (await Loop.open(large, "r", store=await stored_small(), model=script())).result()


@promise("overt.TaskResult.raise_for_status RunStopped")
async def stopped() -> object:
    runtime, _ = await parked()
    return runtime.result().raise_for_status()


@promise("overt.TaskResult.unwrap RunStopped")
async def stopped_unwrapped() -> object:
    runtime, _ = await parked()
    return runtime.result().unwrap()


# ------------------------------------------------------------------ streams


@promise("overt.RunStream UsageError")
async def no_position() -> object:
    runtime, _ = await parked()
    return RunStream(runtime, work=runtime.recover, after=-1)


@promise("overt.RunStream.__aenter__ UsageError")
async def stream_entered_twice() -> None:
    stream = clerk.stream("go", model=script())
    async with stream, stream:
        pass


@promise("overt.RunStream.__aiter__ UsageError")
async def read_outside() -> object:
    return aiter(clerk.stream("go", model=script()))


@promise("overt.RunStream.__anext__ UsageError")
async def next_outside() -> object:
    return await anext(clerk.stream("go", model=script()))


@promise("overt.RunStream.result UsageError")
async def result_outside() -> object:
    return await clerk.stream("go", model=script()).result()


@promise("overt.RunStream.__anext__ OvertError")
async def stopped_for_the_reader() -> None:
    async with clerk.stream("go", model=script(), store=await taken(), run_id="r") as stream:
        await anext(stream)


@promise("overt.RunStream.result OvertError")
async def stopped_for_the_result() -> object:
    async with clerk.stream("go", model=script(), store=await taken(), run_id="r") as stream:
        return await stream.result()


@promise("overt.RunStream.__aexit__ OvertError")
async def stopped_unread() -> None:
    async with breaking().stream("go") as stream:
        await anext(stream)
        await anyio.wait_all_tasks_blocked()
