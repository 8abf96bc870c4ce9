"""Guardrails on calls: who is asked about what, whose word counts, and what a rule that fails does. By what ran."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import pytest

from overt import (
    Agent,
    Allow,
    Answer,
    Ask,
    Budget,
    Deny,
    GuardrailEvent,
    Ruling,
    Runtime,
    Status,
    require_approval,
    tool,
)
from overt.core import facts as f
from overt.testing import MockModel, VirtualClock, call, raw_call, say
from tests.guard_kit import Reached, World, asking, denying, facts, rule
from tests.suspend_kit import tools_said

HANDLE = "root/w.1"


async def run(world: World, **options: Any) -> Reached:
    result, runtime = await world.worker().run("go", **world.options(**options))
    return Reached(result, runtime, HANDLE)


# ------------------------------------------------------------------ whose word counts


@pytest.mark.parametrize(
    ("rulings", "outcome"),
    [
        ([Allow(), Allow()], "ran"),
        ([Allow(), Ask("a?")], "asked"),
        ([Ask("a?"), Allow()], "asked"),
        ([Ask("a?"), Deny("no")], "denied"),
        ([Deny("no"), Ask("a?")], "denied"),
        ([Deny("no"), Allow()], "denied"),
        ([Allow(), Allow(), Deny("no")], "denied"),
        ([], "ran"),
    ],
)
@pytest.mark.parametrize("waits", [False, True])
async def test_deny_beats_ask_beats_allow(rulings: list[Ruling], outcome: str, waits: bool) -> None:
    def plain(ruling: Ruling) -> Any:
        return lambda event: ruling

    def waiting(ruling: Ruling) -> Any:
        async def rules(event: GuardrailEvent) -> Ruling:
            await anyio.lowlevel.checkpoint()
            return ruling

        return rules

    make = waiting if waits else plain
    world = World(call("danger"), house=[make(r) for r in rulings])
    reached = await run(world)
    assert world.ran == (["danger 1"] if outcome == "ran" else [])
    assert reached.result.status is (Status.PENDING if outcome == "asked" else Status.DONE)
    assert reached.said == {"ran": ["harm 1"], "asked": [], "denied": ["denied: no"]}[outcome]


async def test_several_questions_are_one_request_and_several_reasons_one_denial() -> None:
    rules = [asking("danger", prompt="is it paid?"), asking("danger", prompt="is it legal?")]
    world = World(call("danger"), own=rules, house=[asking("danger", prompt="is it paid?")])
    reached = await run(world)
    assert [r.prompt for r in reached.runtime.pendings()] == ["is it paid?\nis it legal?"]
    assert world.ran == []
    world = World(call("danger"), own=[denying("danger", reason="a"), denying("danger", reason="b")])
    assert (await run(world)).said == ["denied: a; b"]
    assert world.ran == []


@pytest.mark.parametrize("waits", [False, True])
async def test_all_are_asked_before_anything_of_the_batch_is_entered(waits: bool) -> None:
    world = World([call("safe", n=1), call("danger"), call("safe", n=2)])
    order: list[str] = []

    def rules(event: GuardrailEvent) -> Ruling:
        order.append(f"{event.call.name} {event.call.arguments['n']}: {world.ran}")
        return Allow()

    async def slow_rules(event: GuardrailEvent) -> Ruling:
        await anyio.lowlevel.checkpoint()
        return rules(event)

    world.house = [slow_rules if waits else rules, denying("danger")]
    reached = await run(world)
    assert sorted(order) == ["danger 1: []", "safe 1: []", "safe 2: []"]
    assert sorted(world.ran) == ["safe 1", "safe 2"]
    assert reached.said == ["fine 1", "denied: no way", "fine 2"]


async def test_rules_that_wait_are_asked_side_by_side() -> None:
    arrived: list[str] = []
    both = anyio.Event()

    async def rules(event: GuardrailEvent) -> Ruling:
        arrived.append(event.call.name)
        if len(arrived) == 4:
            both.set()
        await both.wait()
        return Allow()

    world = World([call("danger"), call("safe")], house=[rules], own=[rules])
    with anyio.fail_after(5):
        await run(world)
    assert sorted(world.ran) == ["danger 1", "safe 1"]


# ------------------------------------------------------------------ rules of every shape


class Fixed:
    def __init__(self, ruling: Ruling) -> None:
        self.ruling = ruling

    def __call__(self, event: GuardrailEvent) -> Ruling:
        return self.ruling

    def method(self, event: GuardrailEvent) -> Ruling:
        return self.ruling


class Waiting:
    async def __call__(self, event: GuardrailEvent) -> Ruling:
        return Deny("no way")


async def coroutine(event: GuardrailEvent) -> Ruling:
    await anyio.lowlevel.checkpoint()
    return Deny("no way")


def hands_out(event: GuardrailEvent) -> Awaitable[Ruling]:
    return coroutine(event)


def two(event: GuardrailEvent, ruling: Ruling) -> Ruling:
    return ruling


@pytest.mark.parametrize(
    "no",
    [
        lambda event: Deny("no way"),
        coroutine,
        hands_out,
        partial(two, ruling=Deny("no way")),
        Fixed(Deny("no way")),
        Fixed(Deny("no way")).method,
        Waiting(),
    ],
)
@pytest.mark.parametrize("whose", ["own", "house"])
async def test_a_rule_of_any_shape_denies(no: Any, whose: str) -> None:
    world = World([call("danger"), call("safe")])
    setattr(world, whose, [lambda event: Allow() if event.call.name == "safe" else no(event)])
    reached = await run(world)
    assert world.ran == ["safe 1"]
    assert reached.said == ["denied: no way", "fine 1"]
    world = World(call("danger"))
    setattr(world, whose, [no])
    assert (await run(world)).said == ["denied: no way"]
    assert world.ran == []


class Boom(BaseException):
    """Not an Exception."""


def raises(event: GuardrailEvent) -> Ruling:
    raise ValueError("key sk-proj-abcdefghijklmnopqrstuvwxyz is bad")


def raises_base(event: GuardrailEvent) -> Ruling:
    raise Boom("deep")


async def raises_later(event: GuardrailEvent) -> Ruling:
    await anyio.lowlevel.checkpoint()
    raise ValueError("late")


async def raises_base_later(event: GuardrailEvent) -> Ruling:
    await anyio.lowlevel.checkpoint()
    raise Boom("deep")


def returns_true(event: GuardrailEvent) -> Any:
    return True


def returns_nothing(event: GuardrailEvent) -> Any:
    return None


def returns_the_class(event: GuardrailEvent) -> Any:
    return Allow


async def returns_text(event: GuardrailEvent) -> Any:
    return "allow"


def asks_badly(event: GuardrailEvent) -> Ruling:
    return Ask("")


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (raises, "guardrail 'raises' raised ValueError: key «redacted» is bad"),
        (raises_base, "guardrail 'raises_base' raised Boom: deep"),
        (raises_later, "guardrail 'raises_later' raised ValueError: late"),
        (raises_base_later, "guardrail 'raises_base_later' raised Boom: deep"),
        (returns_true, "guardrail 'returns_true' returned bool, not Allow, Deny or Ask: denied to be safe"),
        (returns_nothing, "guardrail 'returns_nothing' returned NoneType, not Allow, Deny or Ask"),
        (returns_the_class, "guardrail 'returns_the_class' returned type, not Allow, Deny or Ask"),
        (returns_text, "guardrail 'returns_text' returned str, not Allow, Deny or Ask: denied to be safe"),
        (asks_badly, "guardrail 'asks_badly' raised UsageError: "),
    ],
)
async def test_a_rule_that_fails_denies_and_is_named(broken: Any, told: str) -> None:
    asked: list[str] = []
    world = World([call("danger"), call("safe")], own=[broken, rule({}, asked)])
    reached = await run(world)
    assert world.ran == []
    assert reached.result.status is Status.DONE, "a denial is a tool result"
    assert [said.startswith(f"denied: {told}") for said in reached.said] == [True, True], reached.said
    assert asked == ["danger", "safe"], "the other rule was asked all the same"


async def test_a_rule_that_cancels_itself_denies(anyio_backend: str) -> None:
    if anyio_backend != "asyncio":
        pytest.skip("on trio nobody can make up a cancellation")

    def cancels(event: GuardrailEvent) -> Ruling:
        raise asyncio.CancelledError("mine")

    async def cancels_later(event: GuardrailEvent) -> Ruling:
        await anyio.lowlevel.checkpoint()
        raise asyncio.CancelledError("mine")

    for broken in (cancels, cancels_later):
        waited: list[str] = []

        async def waits(event: GuardrailEvent, waited: list[str] = waited) -> Ruling:
            await anyio.lowlevel.checkpoint()
            waited.append(event.call.name)
            return Allow()

        # The clock stands still: a denial that only came with the timeout would never come.
        world = World(call("danger"), own=[waits, broken])
        with anyio.fail_after(5):
            reached = await run(world, clock=VirtualClock())
        assert world.ran == []
        assert reached.said == [f"denied: guardrail '{broken.__name__}' raised CancelledError: mine"]
        assert waited == ["danger"], "the other rule was heard"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("late", [False, True])
async def test_a_rule_may_end_the_process_and_is_asked_again_after_it(
    kind: type[BaseException], late: bool
) -> None:
    entered: list[str] = []
    blocked = anyio.Event()

    def ends(event: GuardrailEvent) -> Ruling:
        entered.append(event.call.name)
        if len(entered) == 1:
            raise kind
        return Deny("not now")

    async def ends_later(event: GuardrailEvent) -> Ruling:
        await anyio.lowlevel.checkpoint()
        return ends(event)

    async def waits(event: GuardrailEvent) -> Ruling:
        await blocked.wait()
        return Allow()

    world = World(call("danger"), own=[waits, ends_later if late else ends])
    runtime = Runtime(world.worker(), **world.options())
    with pytest.raises(kind):
        await runtime.run("go")
    assert runtime.result().status is Status.INTERRUPTED
    blocked.set()
    assert (await runtime.recover()).status is Status.DONE
    assert world.ran == []
    assert tools_said(runtime.transcript(HANDLE)) == ["denied: not now"]


@pytest.mark.parametrize("how", ["waits", "swallows", "hands out"])
async def test_a_rule_that_takes_too_long_denies(how: str) -> None:
    clock = VirtualClock()

    async def slow(event: GuardrailEvent) -> Ruling:
        try:
            await anyio.sleep_forever()
        except BaseException:
            if how != "swallows":
                raise
        return Allow()

    def hands(event: GuardrailEvent) -> Awaitable[Ruling]:
        return slow(event)

    world = World([call("danger"), call("safe")])
    world.own = [hands if how == "hands out" else slow]
    name = world.own[0].__name__
    reached: list[Reached] = []

    async def work() -> None:
        reached.append(await run(world, clock=clock, guardrail_timeout=2.5))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await clock.wait_for_sleepers()
            await clock.advance(2)
            assert not reached
            await clock.advance(0.5)
    assert world.ran == []
    assert reached[0].said == [f"denied: guardrail '{name}' did not say within 2.5 s"] * 2


async def test_what_is_derived_from_a_ruling_counts_as_it() -> None:
    class Fine(Allow):
        pass

    class Never(Deny):
        pass

    world = World([call("danger"), call("safe")], own=[rule({"danger": Never("no"), "safe": Fine()})])
    reached = await run(world)
    assert world.ran == ["safe 1"]
    assert reached.said == ["denied: no", "fine 1"]


# ------------------------------------------------------------------ whose calls


async def test_the_runs_rules_hold_for_everybody_and_an_agents_own_for_its_own_calls() -> None:
    heard: dict[str, list[str]] = {"house": [], "parent": [], "child": []}

    def listen(who: str) -> Any:
        def rules(event: GuardrailEvent) -> Ruling:
            heard[who].append(f"{event.agent} {event.handle} {event.call.name}")
            return Deny("no") if who == "parent" and event.call.name == "danger" else Allow()

        return rules

    world = World(call("danger"), own=[listen("child")])
    child = world.worker()
    model = MockModel([[call("task", agent="w", prompt="p"), call("w", prompt="q")], say("end")])
    parent = Agent(
        "p", does="leads", team=[child], tools=[child.as_tool()], guardrails=[listen("parent")], model=model
    )
    await parent.run("go", guardrails=[listen("house")])
    ours = ["p root/p.1 task", "p root/p.1 w"]
    theirs = ["w root/p.1/w.1 danger", "w root/p.1/w.2 danger"]
    assert heard["parent"] == ours
    assert sorted(heard["child"]) == theirs
    assert sorted(heard["house"]) == sorted(ours + theirs)
    assert world.ran == ["danger 1", "danger 1"], "what the parent may not do the child may"


# ------------------------------------------------------------------ what a rule is shown


@tool
def pay(amount: int, notes: list[str] | None = None, currency: str = "EUR") -> str:
    """Pay."""
    return f"{amount} {currency} {notes}"


def payer(*replies: Any, rules: list[Any]) -> Agent[None, str]:
    return Agent("w", does="pays", tools=[pay], guardrails=rules, model=MockModel([*replies, say("end")]))


async def test_rules_see_the_validated_arguments_with_defaults_and_coercions() -> None:
    seen: list[GuardrailEvent] = []

    def rules(event: GuardrailEvent) -> Ruling:
        seen.append(event)
        return Allow()

    agent = payer(raw_call("pay", '{"amount": "3"}'), call("pay", amount=4.0, notes=["a"]), rules=[rules])
    _, runtime = await agent.run("go")
    assert [e.call.arguments for e in seen] == [
        {"amount": 3, "notes": None, "currency": "EUR"},
        {"amount": 4, "notes": ["a"], "currency": "EUR"},
    ]
    assert all(type(e.call.arguments["amount"]) is int for e in seen)
    assert [(e.run_id, e.handle, e.agent, e.call.name) for e in seen] == [
        (runtime.id, HANDLE, "w", "pay")
    ] * 2
    asked = [c.id for m in runtime.transcript(HANDLE) if m.role == "assistant" for c in m.tool_calls]
    assert [e.call.id for e in seen] == asked


async def test_what_a_rule_does_to_its_event_nobody_else_sees() -> None:
    seen: list[Any] = []

    def spoils(event: GuardrailEvent) -> Ruling:
        event.call.arguments["amount"] = 10**6
        notes: Any = event.call.arguments["notes"]
        notes.append("to me")
        return Ask("pay?")

    async def looks(event: GuardrailEvent) -> Ruling:
        seen.append({**event.call.arguments})
        return Allow()

    wanted = {"amount": 3, "notes": ["x"], "currency": "EUR"}
    for rules in ([spoils, looks], [looks, spoils]):
        seen.clear()
        agent = payer(call("pay", amount=3, notes=["x"]), rules=rules)
        result, runtime = await agent.run("go")
        assert seen == [wanted]
        assert result.pending is not None
        assert result.pending.data["call"] == {"tool": "pay", "arguments": wanted}
        await runtime.resume(Answer(id=result.pending.id, ok=True))
        assert tools_said(runtime.transcript(HANDLE)) == ["3 EUR ['x']"]


async def test_an_invalid_call_is_an_error_result_and_no_rule_is_asked_about_it() -> None:
    asked: list[str] = []
    replies = [
        raw_call("danger", '{"n": "many"}'),
        call("destroy"),
        raw_call("safe", "{"),
        call("danger", n=2),
        call("safe"),
    ]
    world = World(replies, house=[rule({"danger": Deny("no way")}, asked)])
    reached = await run(world)
    assert asked == ["danger", "safe"]
    assert world.ran == ["safe 1"]
    assert reached.said[3:] == ["denied: no way", "fine 1"]
    assert reached.said[1].startswith("unknown tool: 'destroy'")
    assert not any(said.startswith("denied") for said in reached.said[:3])


# ------------------------------------------------------------------ what a denial costs, and where it is written


async def test_denied_and_asked_calls_draw_no_tool_call_from_the_budget() -> None:
    world = World(
        [call("danger", n=1), call("danger", n=2), call("once"), call("safe")],
        house=[rule({"danger": Deny("no"), "once": Deny("no")})],
    )
    reached = await run(world, budget=Budget(max_tool_calls=1))
    assert reached.result.status is Status.DONE
    assert world.ran == ["safe 1"]
    assert reached.result.usage.tool_calls == 1


async def test_a_denial_is_an_error_result_and_in_the_journal_with_what_every_rule_said() -> None:
    def fine(event: GuardrailEvent) -> Ruling:
        return Allow()

    def strict(event: GuardrailEvent) -> Ruling:
        return Deny("too much")

    def wary(event: GuardrailEvent) -> Ruling:
        return Ask("sure?")

    async def wary_too(event: GuardrailEvent) -> Ruling:
        return Ask("sure?")

    for asks in (wary, wary_too):
        world = World(call("danger"), own=[fine, strict, asks])
        reached = await run(world)
        (message,) = [m for m in reached.runtime.transcript(HANDLE) if m.role == "tool"]
        assert (message.text, message.is_error, message.metadata) == (
            "denied: too much",
            True,
            {"denied": True},
        )
        said = [("fine", "allow", ""), ("strict", "deny", "too much"), (asks.__name__, "ask", "sure?")]
        recorded = [c.ruling for fact in facts(reached.runtime, f.ModelReplied) for c in fact.calls]
        recorded += [r for fact in facts(reached.runtime, f.ChecksDone) for r in fact.rulings]
        assert [[tuple(s) for s in r.said] for r in recorded if r is not None] == [said]
        (event,) = [e for e in reached.runtime.events() if e.kind == "tool_denied"]
        assert (event.call.name, event.call.arguments, event.reason, event.declined) == (
            "danger",
            {"n": 1},
            "too much",
            False,
        )
        assert [e.kind for e in reached.runtime.events() if e.kind == "tool_started"] == []
        assert any("too much" in line for line in reached.runtime.trace())


# ------------------------------------------------------------------ require_approval


async def test_approval_is_required_where_when_says_so() -> None:
    shown: list[Any] = []

    def large(arguments: Any) -> bool:
        shown.append(dict(arguments))
        return bool(arguments["n"] > 10)

    replies = [call("danger", n=3), call("danger", n=11), call("safe", n=99)]
    world = World(replies, own=[require_approval("danger", when=large)])
    reached = await run(world)
    assert shown == [{"n": 3}, {"n": 11}]
    assert sorted(world.ran) == ["danger 3", "safe 99"]
    (request,) = reached.runtime.pendings()
    assert (request.kind, request.prompt) == ("approval", "Allow danger(n=11)?")
    assert request.data["call"] == {"tool": "danger", "arguments": {"n": 11}}


@pytest.mark.parametrize("raised", [KeyError("amount"), Boom("deep")])
async def test_a_when_that_raises_denies(raised: BaseException) -> None:
    def when(arguments: Any) -> bool:
        raise raised

    world = World([call("danger"), call("safe")], own=[require_approval("danger", when=when)])
    reached = await run(world)
    assert world.ran == ["safe 1"]
    assert reached.said[0].startswith(
        f"denied: guardrail 'require_approval(danger)' raised {type(raised).__name__}"
    )


async def test_a_when_that_changes_what_it_is_shown_changes_nothing() -> None:
    def when(arguments: Any) -> bool:
        arguments["n"] = 0
        return True

    world = World(call("danger", n=7), own=[require_approval("danger", when=when)])
    reached = await run(world)
    (request,) = reached.runtime.pendings()
    assert request.prompt == "Allow danger(n=7)?"
    assert request.data["call"] == {"tool": "danger", "arguments": {"n": 7}}


KINDS: list[Callable[..., Any]] = [asking, denying]


@pytest.mark.parametrize("made", KINDS)
async def test_a_rule_on_a_call_that_gives_the_typed_output_is_not_asked(made: Any) -> None:
    """`final_result` is no tool: it is judged as an answer."""
    asked: list[str] = []
    model = MockModel([call("final_result", value=3)])
    agent = Agent(
        "w",
        does="counts",
        output_type=int,
        model=model,
        guardrails=[made("final_result"), rule({}, asked)],
    )
    result, _ = await agent.run("go")
    assert (result.status, result.output, asked) == (Status.DONE, 3, [])
