"""By whichever door a call comes, it is not entered while a rule says no or nobody has said yes. By what ran."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from overt import Agent, Allow, Answer, Ask, Deny, GuardrailEvent, ResumePolicy, Ruling, Runtime, Status, tool
from overt.errors import RunNotFound
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import MockModel, call, raw_call, say
from overt.testing.crashing import CrashingStore
from tests.guard_kit import Reached, World, asking, denying, rule

Door = Callable[[World, Path], Awaitable[list[Reached]]]
BELOW = "root/p.1/w.1"


async def by_run(world: World, at: Path) -> list[Reached]:
    result, runtime = await world.worker().run("go", **world.options())
    return [Reached(result, runtime, "root/w.1")]


async def by_loop(world: World, at: Path) -> list[Reached]:
    """The second prompt of a loop: the calls of the first are made again."""
    loop = world.worker().loop(**world.options())
    first = await loop.run("go")
    reached = [Reached(first, loop.runtime, "root/w.1")]
    if first.status is Status.DONE:
        reached.append(Reached(await loop.run("go on"), loop.runtime, "root/w.1"))
    return reached


async def by_stream(world: World, at: Path) -> list[Reached]:
    async with world.worker().stream("go", **world.options()) as stream:
        result = await stream.result()
    return [Reached(result, stream.runtime, "root/w.1")]


async def by_verbs(world: World, at: Path) -> list[Reached]:
    runtime = Runtime(world.worker(), **world.options())
    handle = await runtime.spawn("root", "w")
    result = await runtime.run_turn(handle, "go")
    return [Reached(result, runtime, "root/w.1")]


def above(world: World, how: str, **replies: Any) -> Agent[None, str]:
    """An agent `p` that has the worker do it, by `task` or as a tool."""
    worker = world.worker(**replies)
    delegates = call("task", agent="w", prompt="go") if how == "task" else call("w", prompt="go")
    model = MockModel([delegates, say("end")])
    if how == "task":
        return Agent("p", does="leads", team=[worker], model=model)
    return Agent("p", does="leads", tools=[worker.as_tool()], model=model)


async def by_task(world: World, at: Path) -> list[Reached]:
    result, runtime = await above(world, "task").run("go", **world.options())
    return [Reached(result, runtime, BELOW)]


async def by_as_tool(world: World, at: Path) -> list[Reached]:
    result, runtime = await above(world, "as_tool").run("go", **world.options())
    return [Reached(result, runtime, BELOW)]


async def by_function(world: World, at: Path) -> list[Reached]:
    store = MemoryStore()
    result = await world.worker().as_tool()("go", **world.options(store=store, run_id="r"))
    runtime = await Runtime.open(world.worker(), "r", **world.options(store=store))
    return [Reached(result, runtime, "root/w.1")]


async def answered(world: World, runtime: Runtime[Any], policy: ResumePolicy) -> Any:
    """Say yes to what the worker's own tool asks, and to nothing else."""
    for _ in range(10):
        for request in runtime.pendings():
            if request.prompt.startswith("do "):
                await runtime.resume(Answer(id=request.id, ok=True), policy=policy)
                break
        else:
            break
    return runtime.result()


AROUND: dict[str, Any] = {
    "before": [call("approve", what="a")],
    "after": [call("approve", what="b")],
}
"""The worker parks before its own calls, and once more after them: they are made anew, and replayed."""


def by_resume(policy: ResumePolicy) -> Door:
    async def door(world: World, at: Path) -> list[Reached]:
        runtime = Runtime(world.worker(**AROUND), **world.options())
        await runtime.run("go")
        return [Reached(await answered(world, runtime, policy), runtime, "root/w.1")]

    return door


def by_another_process(policy: ResumePolicy, how: str = "alone") -> Door:
    def built(world: World) -> Agent[None, str]:
        return world.worker(**AROUND) if how == "alone" else above(world, how, **AROUND)

    async def door(world: World, at: Path) -> list[Reached]:
        store = SQLiteStore(at / "runs.db")
        _, runtime = await built(world).run("go", **world.options(store=store, run_id="r"))
        # Every answer in a process of its own.
        while True:
            await store.close()
            store = SQLiteStore(at / "runs.db")
            runtime = await Runtime.open(built(world), "r", **world.options(store=store))
            asked = [r for r in runtime.pendings() if r.prompt.startswith("do ")]
            if not asked:
                return [Reached(runtime.result(), runtime, "root/w.1" if how == "alone" else BELOW)]
            await runtime.resume(Answer(id=asked[0].id, ok=True), policy=policy)

    return door


When = Literal["before", "after"]


def by_recovery(how: str, policy: ResumePolicy | None = None, whens: tuple[When, ...] = ("after",)) -> Door:
    """The process dies at any append, and another one goes on."""

    def built(world: World) -> Agent[None, str]:
        return world.worker() if how == "alone" else above(world, how)

    async def crashed(world: World, store: CrashingStore) -> bool:
        try:
            await built(world).run("go", **world.options(store=store, run_id="r"))
        except BaseException:
            if not store.crashed:
                raise
        return store.crashed

    async def door(world: World, at: Path) -> list[Reached]:
        reached: list[Reached] = []
        for n in range(1, 100):
            for when in whens:
                store = CrashingStore(MemoryStore(), crash_at=n, when=when)
                if not await crashed(world, store):
                    assert n > 3
                    return reached
                options = world.options(store=store.survivor)
                try:
                    runtime = await Runtime.open(built(world), "r", **options)
                except RunNotFound:
                    continue
                if runtime._driver.tree.entry is None:
                    continue
                result = await runtime.recover(policy=policy)
                reached.append(Reached(result, runtime, "root/w.1" if how == "alone" else BELOW))
        raise AssertionError("it never ends")

    return door


DOORS: dict[str, Door] = {
    "run": by_run,
    "loop": by_loop,
    "stream": by_stream,
    "verbs": by_verbs,
    "task": by_task,
    "as_tool": by_as_tool,
    "function": by_function,
    "resume-rewind": by_resume(ResumePolicy.REWIND),
    "resume-continue": by_resume(ResumePolicy.CONTINUE),
    "process-rewind": by_another_process(ResumePolicy.REWIND),
    "process-continue": by_another_process(ResumePolicy.CONTINUE),
    "process-task": by_another_process(ResumePolicy.REWIND, "task"),
    "process-as_tool": by_another_process(ResumePolicy.CONTINUE, "as_tool"),
    "recover": by_recovery("alone", whens=("before", "after")),
    "recover-rewind": by_recovery("alone", ResumePolicy.REWIND),
    "recover-task": by_recovery("task"),
}
doors = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS.keys())


def own_calls(reached: Reached) -> list[str]:
    """What the worker's calls said in the last prompt, without those that only park it."""
    messages = reached.runtime.transcript(reached.handle, uncommitted=True)
    start = max(at for at, m in enumerate(messages) if m.role == "user")
    said = [m.text for m in messages[start:] if m.role == "tool"]
    return [text for text in said if not text.startswith(("a: ", "b: "))]


# ------------------------------------------------------------------ denied


async def no_later(event: GuardrailEvent) -> Ruling:
    await anyio.lowlevel.checkpoint()
    return Deny("no way") if event.call.name in ("danger", "once") else Allow()


def broken(event: GuardrailEvent) -> Ruling:
    if event.call.name in ("danger", "once"):
        raise ValueError("no way")
    return Allow()


@doors
@pytest.mark.parametrize(
    "rules",
    [
        {"own": [denying("danger", "once")]},
        {"house": [denying("danger", "once")]},
        {"own": [no_later], "house": [broken]},
    ],
    ids=["own", "house", "waits"],
)
async def test_what_is_denied_is_never_entered(door: Door, rules: dict[str, Any], tmp_path: Path) -> None:
    replies = [
        call("safe", n=1),
        call("danger", n=1),
        call("once", n=1),
        call("destroy"),
        raw_call("danger", '{"n": "x"}'),
        call("safe", n=2),
    ]
    world = World(replies, **rules)
    for reached in await door(world, tmp_path):
        assert reached.result.status is Status.DONE
        said = own_calls(reached)
        assert [said[0], said[5]] == ["fine 1", "fine 2"], "the others run, and results keep their order"
        assert ["no way" in said[1], "no way" in said[2]] == [True, True]
        assert said[3].startswith("unknown tool: 'destroy'")
        assert "no way" not in said[4]
        assert [e.call.name for e in reached.runtime.events() if e.kind == "tool_started"].count(
            "danger"
        ) == 0
    assert set(world.ran) == {"safe 1", "safe 2"}


# ------------------------------------------------------------------ asked


@doors
async def test_what_nobody_agreed_to_is_never_entered(door: Door, tmp_path: Path) -> None:
    replies = [call("safe", n=1), call("danger"), call("safe", n=2)]
    world = World(replies, call("safe", n=3), own=[asking("danger", "once")])
    for reached in await door(world, tmp_path):
        assert reached.result.status is Status.PENDING
        (request,) = reached.runtime.pendings()
        assert (request.prompt, "/".join(request.path)) == ("may it?", reached.handle)
        assert request.data["call"] == {"tool": "danger", "arguments": {"n": 1}}
        assert set(world.ran) == {"safe 1", "safe 2"}, "and the wake waits for it"


@doors
@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_what_was_declined_is_never_entered(door: Door, policy: ResumePolicy, tmp_path: Path) -> None:
    seen: list[str] = []
    rules = rule({"danger": Ask("may it?"), "once": Ask("may it?")}, seen)
    world = World([call("safe", n=1), call("danger"), call("once"), call("safe", n=2)], house=[rules])
    for reached in await door(world, tmp_path):
        runtime = reached.runtime
        assert len(runtime.pendings()) == 2
        asked = {name: seen.count(name) for name in ("danger", "once")}
        for request in runtime.pendings():
            answer = Answer[Any](id=request.id, ok=False, reason="not today")
            result = await runtime.resume(answer, policy=policy)
        result = await answered(world, runtime, policy)
        assert result.status is Status.DONE
        assert own_calls(reached) == ["fine 1", "declined: not today", "declined: not today", "fine 2"]
        assert {name: seen.count(name) for name in asked} == asked, "no rule is asked about it again"
    assert set(world.ran) == {"safe 1", "safe 2"}


@doors
@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_what_was_agreed_to_is_entered(door: Door, policy: ResumePolicy, tmp_path: Path) -> None:
    """The doors do lead there: else the tests above would say nothing."""
    world = World([call("safe", n=1), call("danger"), call("safe", n=2)], own=[asking("danger")])
    for reached in await door(world, tmp_path):
        world.ran.clear()
        (request,) = reached.runtime.pendings()
        result = await reached.runtime.resume(Answer(id=request.id, ok=True), policy=policy)
        result = await answered(world, reached.runtime, policy)
        assert result.status is Status.DONE
        assert own_calls(reached) == ["fine 1", "harm 1", "fine 2"]
        assert set(world.ran) - {"safe 1", "safe 2"} == {"danger 1"}
        assert len(set(world.keys)) == 1 or door is by_loop
        world.keys.clear()


# ------------------------------------------------------------------ delegations


def delegating(ran: list[str], how: str) -> dict[str, Any]:
    """A team of one for the worker, or one that is its tool; both do harm when they are let."""

    @tool
    async def harm() -> str:
        """Do harm."""
        ran.append("harm")
        return "harm"

    below = Agent("below", does="harms", tools=[harm], model=MockModel([call("harm"), say("harmed")]))
    return {"team": [below]} if how == "task" else {"tools": [below.as_tool()]}


@doors
@pytest.mark.parametrize("how", ["task", "below"])
@pytest.mark.parametrize("ruling", ["deny", "ask"])
async def test_a_delegation_is_a_call_too(door: Door, how: str, ruling: str, tmp_path: Path) -> None:
    delegates = call("task", agent="below", prompt="p") if how == "task" else call("below", prompt="p")

    def rules(event: GuardrailEvent) -> Ruling:
        # The call that leads to the worker is none of this rule's.
        if event.agent != "w" or event.call.name != how:
            return Allow()
        return Deny("no way") if ruling == "deny" else Ask("may it?")

    world = World([call("safe"), delegates], house=[rules])
    world.more = delegating(world.ran, how)
    for reached in await door(world, tmp_path):
        runtime = reached.runtime
        if ruling == "ask":
            assert reached.result.status is Status.PENDING
            (request,) = runtime.pendings()
            assert "harm" not in world.ran
            await runtime.resume(Answer(id=request.id, ok=False, reason="not today"))
            await answered(world, runtime, ResumePolicy.REWIND)
        assert runtime.result().status is Status.DONE
        assert own_calls(reached) == [
            "fine 1",
            "denied: no way" if ruling == "deny" else "declined: not today",
        ]
        assert [h.agent for h in runtime.list()].count("below") == 0
        assert runtime.result().usage.tool_calls == runtime.ledger().total.tool_calls
    assert set(world.ran) == {"safe 1"}
