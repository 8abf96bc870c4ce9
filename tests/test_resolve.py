"""A tool that finds out itself what became of a call of it that was left in doubt."""

from __future__ import annotations

import json
import threading
from contextvars import ContextVar
from decimal import Decimal
from functools import partial
from typing import Any, Literal

import anyio
import anyio.lowlevel
import pytest

from overt import (
    Agent,
    Answer,
    Doubt,
    Failed,
    Request,
    ResumePolicy,
    Retry,
    Runtime,
    Succeeded,
    ToolContext,
    ToolResult,
    pending,
    tool,
)
from overt.errors import DefinitionError
from overt.events import AnswerGiven, Recorded
from overt.stores import MemoryStore
from overt.testing import call, say
from tests.suspend_kit import agent, approve, first, no, tools_said, yes

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("policy", list(ResumePolicy))
Kind = Literal["reuse", "once"]
KINDS = pytest.mark.parametrize("kind", ["reuse", "once"])


class World:
    """A tool whose first entry never ends, and a lookup that says what it is told to, the last again and again."""

    def __init__(
        self, kind: Kind, *says: Any, timeout: float | None = None, sync: bool = False, dies: int = 1
    ) -> None:
        self.says = says
        self.paid: list[str] = []
        """Idempotency keys under which the money has gone."""
        self.doubts: list[Doubt[Any]] = []
        self.inside = anyio.Event()
        world = self

        def look(doubt: Doubt[Any]) -> Any:
            world.doubts.append(doubt)
            said = world.says[min(len(world.doubts), len(world.says)) - 1]
            said = said(doubt) if callable(said) else said
            if isinstance(said, BaseException):
                raise said
            return said

        async def look_later(doubt: Doubt[Any]) -> Any:
            await anyio.lowlevel.checkpoint()
            return look(doubt)

        @tool(
            on_replay="reuse" if kind == "reuse" else "rerun",
            timeout=timeout,
            resolve=look if sync else look_later,
        )
        async def pay(ctx: ToolContext[Any], amount: int = 7) -> str:
            """Pay."""

            async def effect() -> str:
                world.paid.append(ctx.idempotency_key)
                if len(world.paid) <= dies:
                    world.inside.set()
                    await anyio.sleep_forever()
                return f"paid {len(world.paid)}"

            return await (ctx.once("money", effect) if kind == "once" else effect())

        self.pay = pay

    def agent(self, *before: Any, **options: Any) -> Agent[Any, str]:
        return agent([*before, call("pay"), say("end")], self.pay, approve, **options)


async def cut_off(world: World, worker: Agent[Any, str], **options: Any) -> Runtime[str]:
    """Run until the tool is inside, then cancel the host, and open the run anew."""
    store = MemoryStore()
    runtime = Runtime(worker, store=store, run_id="r", **options)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.run, "go")
        await world.inside.wait()
        group.cancel_scope.cancel()
    assert world.doubts == [], "nothing is asked of a run that is being left"
    options.pop("resume_policy", None)
    return await Runtime.open(worker, "r", store=store, **options)


def trail(runtime: Runtime[Any]) -> list[tuple[str, str | None]]:
    """Who was asked, who passed and who answered, as the events tell it."""
    found: list[tuple[str, str | None]] = []
    for event in runtime.events():
        if isinstance(event, AnswerGiven):
            found.append(("answered", event.by))
        elif isinstance(event, Recorded) and event.fact == "host_asked":
            found.append(("asked", str(event.data["by"])))
        elif isinstance(event, Recorded) and event.fact == "host_passed":
            error = event.data.get("error")
            found.append(("passed", None if error is None else str(error)))
    return found


OUTCOMES: list[tuple[Any, str, int, bool]] = [
    (Succeeded("receipt 7"), "receipt 7", 1, False),
    (Failed("no funds"), "no funds", 1, True),
    (Retry(), "paid 2", 2, False),
]
each = pytest.mark.parametrize(
    ("said", "told", "effects", "is_error"), OUTCOMES, ids=["ok", "failed", "retry"]
)


# ------------------------------------------------------------ what it says


@BOTH
@KINDS
@each
@pytest.mark.parametrize("sync", [True, False])
async def test_it_settles_the_doubt_and_nobody_is_asked(
    policy: ResumePolicy, kind: Kind, said: Any, told: str, effects: int, is_error: bool, sync: bool
) -> None:
    world = World(kind, said, sync=sync)
    asked: list[Request] = []

    async def on_pending(request: Request) -> None:
        asked.append(request)

    async def wait_for(request: Request) -> Answer[Any] | None:
        asked.append(request)
        return None

    worker = world.agent()
    runtime = await cut_off(
        world, worker, resume_policy=policy, on_pending=on_pending, wait_for=wait_for, deps="the bank"
    )
    turns = runtime.result().turns
    result = await runtime.recover()
    assert (result.status, result.text, result.pendings, result.error) == ("done", "end", (), None)
    assert (len(world.paid), len(set(world.paid))) == (effects, 1), "a retry has the same key"
    assert tools_said(runtime.transcript(result.handle)) == [told]
    (message,) = [m for m in runtime.transcript(result.handle) if m.role == "tool"]
    assert message.is_error is is_error
    assert result.turns == turns + 1, "nothing is bought again"
    assert asked == []
    (doubt,) = world.doubts
    assert (doubt.tool, doubt.arguments, doubt.idempotency_key) == ("pay", {"amount": 7}, world.paid[0])
    assert (doubt.once, doubt.attempt) == ("money" if kind == "once" else None, 1)
    assert (doubt.deps, doubt.run_id, doubt.handle) == ("the bank", "r", "root/w.1")
    assert trail(runtime) == [("asked", "resolve"), ("answered", "resolve")]


@KINDS
async def test_where_it_cannot_tell_a_person_is_asked_as_without_it(kind: Kind) -> None:
    world = World(kind, None)
    told: list[str] = []

    async def on_pending(request: Request) -> None:
        told.append(request.id)

    runtime = await cut_off(world, world.agent(), on_pending=on_pending)
    result = await runtime.recover()
    request = first(result)
    assert (result.status, request.kind, result.error) == ("pending", "in_doubt", None)
    assert told == [request.id]
    assert (await runtime.recover()).pendings == result.pendings
    assert len(world.doubts) == 1, "a parked doubt waits for a person"
    result = await runtime.resume(yes(result, {"outcome": "succeeded", "output": "by hand"}, by="ann"))
    assert (result.status, tools_said(runtime.transcript(result.handle))) == ("done", ["by hand"])
    assert trail(runtime) == [("asked", "resolve"), ("passed", None), ("answered", "ann")]


async def test_a_person_who_leaves_it_in_doubt_is_asked_again_and_it_is_not() -> None:
    world = World("reuse", None)
    runtime = await cut_off(world, world.agent())
    result = await runtime.recover()
    result = await runtime.resume(no(result))
    assert (first(result).kind, len(world.doubts)) == ("in_doubt", 1)


@pytest.mark.parametrize("whose", ["agent", "run"])
async def test_wait_for_comes_after_it(whose: str) -> None:
    world = World("reuse", None)
    seen: list[int] = []

    async def wait_for(request: Request) -> Answer[Any] | None:
        seen.append(len(world.doubts))
        return yes(request, {"outcome": "succeeded", "output": "from the host"}, by="host")

    options: dict[str, Any] = {"wait_for": wait_for}
    worker = world.agent(**(options if whose == "agent" else {}))
    runtime = await cut_off(world, worker, **({} if whose == "agent" else options))
    result = await runtime.recover()
    assert (result.status, seen) == ("done", [1])
    assert tools_said(runtime.transcript(result.handle)) == ["from the host"]
    by = "root/w.1" if whose == "agent" else "root"
    assert trail(runtime) == [("asked", "resolve"), ("passed", None), ("asked", by), ("answered", "host")]


async def test_a_wait_for_that_passes_too_parks_the_run_once_both_have() -> None:
    world = World("reuse", ConnectionError("bank is down, token=sk-abcdefghijklmnop1234567890"))
    told: list[int] = []

    async def wait_for(request: Request) -> Answer[Any] | None:
        return None

    async def on_pending(request: Request) -> None:
        told.append(len(trail(runtime)))

    runtime = await cut_off(world, world.agent(), wait_for=wait_for, on_pending=on_pending)
    result = await runtime.recover()
    assert (result.status, first(result).kind, told) == ("pending", "in_doubt", [4])
    kinds = [what if what != "passed" else bool(error) for what, error in trail(runtime)]
    assert kinds == ["asked", True, "asked", False]
    assert result.error is not None
    assert (result.error.type, result.error.source) == ("ConnectionError", "tool")
    assert "bank is down" in result.error.message
    whole = "".join(str(record.text) for record in await runtime._driver.tenure.store.read("r"))
    assert "sk-abcdefghijklmnop1234567890" not in whole + str(result)


async def test_what_was_wrong_is_told_of_the_last_time_it_was_asked() -> None:
    world = World("reuse", ValueError("not yet"), None)
    asked = anyio.Event()

    async def wait_for(request: Request) -> Answer[Any] | None:
        if len(world.doubts) == 1:
            asked.set()
            await anyio.sleep_forever()
        return None

    runtime = await cut_off(world, world.agent(), wait_for=wait_for)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.recover)
        await asked.wait()
        group.cancel_scope.cancel()
    result = await runtime.recover()
    assert (result.status, len(world.doubts), result.error) == ("pending", 2, None)


WRONG: list[tuple[Any, str]] = [
    (ValueError("cannot reach it"), "ValueError: cannot reach it"),
    (BaseExceptionGroup("g", [OSError("a")]), "OSError: a"),
    (lambda _: "happened", "returned str, not Succeeded, Failed, Retry or None"),
    (lambda _: Succeeded, "returned type, not Succeeded, Failed, Retry or None"),
    (Succeeded(object()), "object"),
    (Succeeded(float("nan")), "NaN"),
    (Failed({1: object()}), "object"),
    (Succeeded(pending(kind="approval", prompt="?")), "gave a result that asks"),
]


@KINDS
@pytest.mark.parametrize(("said", "why"), WRONG, ids=[why[:12] for _, why in WRONG])
async def test_one_that_fails_never_loses_the_doubt(kind: Kind, said: Any, why: str) -> None:
    if kind == "once" and "asks" in why:
        return
    world = World(kind, said)
    runtime = await cut_off(world, world.agent())
    result = await runtime.recover()
    assert (result.status, first(result).kind) == ("pending", "in_doubt")
    assert result.error is not None
    assert result.error.source == "tool"
    assert why in f"{result.error.type}: {result.error.message}"
    result = await runtime.resume(yes(result, {"outcome": "retry"}))
    assert (result.status, len(set(world.paid))) == ("done", 1)


# ------------------------------------------------------------ outputs


@BOTH
async def test_what_is_said_of_a_call_is_what_the_tool_would_have_returned(policy: ResumePolicy) -> None:
    outputs: list[tuple[Any, str, bool, dict[str, Any]]] = [
        (Succeeded({"b": Decimal("1.50"), "a": {2, 1}}), '{"a":[1,2],"b":"1.50"}', False, {}),
        (Succeeded(), "null", False, {}),
        (Succeeded("half \ud800"), "half \ufffd", False, {}),
        (Succeeded(ToolResult("r", metadata={"id": 7})), "r", False, {"id": 7}),
        (Succeeded(ToolResult("refused", is_error=True)), "refused", True, {}),
        (Failed(ToolResult("refused", metadata={"code": "é"})), "refused", True, {"code": "é"}),
        (Failed(["x"]), '["x"]', True, {}),
    ]
    for said, text, is_error, metadata in outputs:
        world = World("reuse", said)
        runtime = await cut_off(world, world.agent(), resume_policy=policy)
        result = await runtime.recover()
        message = runtime.transcript(result.handle)[2]
        assert message.role == "tool"
        assert (message.text, message.is_error, message.metadata) == (text, is_error, metadata)


@KINDS
async def test_named_fields_are_left_out_of_what_it_says_of_a_call_and_kept_in_a_block(kind: Kind) -> None:
    """A call is given its result as if the tool had returned it; a block's value is what the tool goes on with."""
    receipt = json.dumps({"receipt": 7, "card": "4242"})
    world = World(
        kind, Succeeded(ToolResult(receipt, metadata={"card": "4242"}) if kind == "reuse" else receipt)
    )
    runtime = await cut_off(world, world.agent(), redact=["card"])
    result = await runtime.recover()
    assert result.status == "done"
    shown = tools_said(runtime.transcript(result.handle))
    assert json.loads(shown[0])["receipt"] == 7
    journal = "".join(runtime.trace()) + repr(runtime.events())
    # The block's value is recorded as it is, and what the tool makes of it is a result again.
    assert ("4242" in journal) == (kind == "once")
    assert "4242" not in shown[0]


async def test_a_replay_gives_what_it_said_with_its_metadata() -> None:
    world = World("reuse", Succeeded(ToolResult("r", metadata={"id": 7})))
    script = [call("pay"), call("approve"), say("end")]
    runtime = await cut_off(world, agent(script, world.pay, approve))
    result = await runtime.recover()
    assert first(result).kind == "approval"
    result = await runtime.resume(yes(result))
    assert (result.status, len(world.paid)) == ("done", 1)
    message = runtime.transcript(result.handle)[2]
    assert message.role == "tool"
    assert (message.text, message.metadata) == ("r", {"id": 7})
    finished = [e for e in runtime.events() if e.kind == "tool_finished" and e.name == "pay"]
    assert [(e.output, e.metadata, e.reused) for e in finished] == [("r", {"id": 7}, True)]


@pytest.mark.parametrize("typed", [True, False])
async def test_what_is_said_of_a_block_is_its_value(typed: bool) -> None:
    values: list[Any] = []
    inside = anyio.Event()
    said: Any = Decimal("1.50") if typed else {"n": [1, None, "\ud800"]}

    async def decimal() -> Decimal:
        inside.set()
        await anyio.sleep_forever()
        return Decimal(0)

    async def plain() -> Any:
        return await decimal()

    @tool(resolve=lambda _: Succeeded(said))
    async def price(ctx: ToolContext) -> str:
        """Look up a price."""
        values.append(await ctx.once("price", decimal if typed else plain))
        return "priced"

    store = MemoryStore()
    worker = agent([call("price"), say("end")], price)
    async with anyio.create_task_group() as group:
        group.start_soon(Runtime(worker, store=store, run_id="r").run, "go")
        await inside.wait()
        group.cancel_scope.cancel()
    result = await (await Runtime.open(worker, "r", store=store)).recover()
    assert (result.status, values) == ("done", [Decimal("1.50") if typed else {"n": [1, None, "\ufffd"]}])


@BOTH
async def test_blocks_are_asked_about_one_by_one_and_the_tool_goes_on_with_their_values(
    policy: ResumePolicy,
) -> None:
    asked: list[str] = []
    inside = anyio.Event()
    dies = ["one", "two"]

    async def look(doubt: Doubt) -> Succeeded:
        asked.append(str(doubt.once))
        return Succeeded(f"{doubt.once} done")

    async def block(label: str) -> str:
        if label in dies:
            inside.set()
            await anyio.sleep_forever()
        return f"{label} new"

    @tool(on_replay="reuse", resolve=look)
    async def buy(ctx: ToolContext) -> str:
        """Buy."""
        said: dict[str, str] = {}

        async def one(label: str) -> None:
            said[label] = await ctx.once(label, partial(block, label))

        async with anyio.create_task_group() as group:
            group.start_soon(one, "one")
            group.start_soon(one, "two")
        return ", ".join(said[label] for label in ("one", "two"))

    store = MemoryStore()
    worker = agent([call("buy"), say("end")], buy)
    runtime = Runtime(worker, store=store, run_id="r", resume_policy=policy)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.run, "go")
        await inside.wait()
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    runtime = await Runtime.open(worker, "r", store=store)
    result = await runtime.recover()
    assert (sorted(asked), result.status) == (["one", "two"], "done")
    assert tools_said(runtime.transcript(result.handle)) == ["one done, two done"]


# ------------------------------------------------------------ declared


async def test_a_tool_that_cannot_be_asked_so_is_refused_where_it_is_declared() -> None:
    def two(doubt: Doubt, more: int) -> None: ...

    def none() -> None: ...

    def named(*, doubt: Doubt) -> None: ...

    def pay() -> str:
        return ""

    wrong: list[tuple[Any, str]] = [
        ("look", "resolve has to be a function of the doubt, not str"),
        (two, "resolve has to be a function of one Doubt: missing a required argument: 'more'"),
        (none, "resolve has to be a function of one Doubt: too many positional arguments"),
        (named, "resolve has to be a function of one Doubt: too many positional arguments"),
    ]
    declare: Any = tool
    for resolve, why in wrong:
        with pytest.raises(DefinitionError) as caught:
            declare(pay, resolve=resolve)
        assert str(caught.value) == f"tool 'pay': {why}"
        with pytest.raises(DefinitionError):
            declare(resolve=resolve)(pay)


async def test_whatever_can_be_called_with_a_doubt_will_do() -> None:
    class Lookup:
        def __init__(self, told: str) -> None:
            self.told = told

        def __call__(self, doubt: Doubt) -> Succeeded:
            return Succeeded(self.told)

        async def method(self, doubt: Doubt, more: int = 0) -> Succeeded:
            return Succeeded(self.told)

    class Async(Lookup):
        async def __call__(self, doubt: Doubt) -> Succeeded:  # type: ignore[override]  # it is to be awaited
            return Succeeded(self.told)

    async def part(told: str, doubt: Doubt) -> Succeeded:
        return Succeeded(told)

    ways: list[Any] = [
        Lookup("x"),
        Lookup("x").method,
        Async("x"),
        partial(part, "x"),
        lambda d: part("x", d),
    ]
    for resolve in ways:
        world = World("reuse")
        paying = tool(world.pay.__wrapped__, on_replay="reuse", resolve=resolve)
        assert paying.resolve is resolve
        runtime = await cut_off(world, agent([call("pay"), say("end")], paying))
        result = await runtime.recover()
        assert tools_said(runtime.transcript(result.handle)) == ["x"]


VARIABLE: ContextVar[str] = ContextVar("VARIABLE", default="the host's")


@pytest.mark.parametrize("sync", [True, False])
async def test_it_runs_beside_the_host_as_other_code_of_the_tool_does(sync: bool) -> None:
    seen: list[tuple[str, bool]] = []
    here = threading.get_ident()

    def look(doubt: Doubt[Any]) -> Succeeded:
        seen.append((VARIABLE.get(), threading.get_ident() == here))
        VARIABLE.set("the lookup's")
        return Succeeded("x")

    world = World("reuse", look, sync=sync)
    runtime = await cut_off(world, world.agent())
    VARIABLE.set("the task's")
    result = await runtime.recover()
    assert (result.status, seen) == ("done", [("the task's", not sync)])
    assert VARIABLE.get() == "the task's"
