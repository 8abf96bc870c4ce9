"""Tools whose arguments have another form since a run was parked: the same calls, the same keys, the same answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from tests.durability.crew import RUN, facts_of

from overt import (
    Agent,
    Answer,
    Budget,
    ResumePolicy,
    Runtime,
    TaskResult,
    ToolContext,
    Upgrade,
    require_approval,
    tool,
)
from overt.core import facts as f
from overt.errors import SpecDrift
from overt.stores import MemoryStore, SQLiteStore, Store
from overt.testing import MockModel, call, say
from overt.testing.crashing import Crashed, CrashingStore

pytestmark = pytest.mark.anyio
policies = pytest.mark.parametrize("policy", list(ResumePolicy))

did: list[tuple[object, ...]] = []


@pytest.fixture(autouse=True)
def nothing_yet() -> None:
    did.clear()


# Three forms of one tool: cents as a number; with a currency beside it; an amount with its currency in one text.


async def _cents(ctx: ToolContext[None], cents: int) -> str:
    """Pay."""
    answer = await ctx.ask("Pay?")
    did.append(("pay", ctx.idempotency_key, cents))
    return f"paid {answer.data}"


async def _currency(ctx: ToolContext[None], cents: int, currency: str = "EUR") -> str:
    """Pay."""
    answer = await ctx.ask("Pay?")
    did.append(("pay", ctx.idempotency_key, cents, currency))
    return f"paid {answer.data}"


async def _amount(ctx: ToolContext[None], amount: str) -> str:
    """Pay."""
    answer = await ctx.ask("Pay?")
    did.append(("pay", ctx.idempotency_key, amount))
    return f"paid {answer.data}"


CENTS, CURRENCY, AMOUNT = (tool(fn, name="pay") for fn in (_cents, _currency, _amount))


async def _book(n: int) -> str:
    """Book."""
    did.append(("book", n))
    return "booked"


async def _book_place(n: int, place: str = "home") -> str:
    """Book."""
    did.append(("book", n, place))
    return "booked"


BOOK, BOOK_PLACE = (tool(fn, name="book", on_replay="reuse") for fn in (_book, _book_place))


def as_amount(name: str, arguments: dict[str, JsonValue]) -> dict[str, object]:
    assert name == "pay"
    return {"amount": f"{arguments['cents']} {arguments.get('currency', 'EUR')}"}


UPGRADE = Upgrade(arguments=as_amount)


def worker(*tools: Any, **options: Any) -> Agent:
    return Agent("w", does="Works.", tools=tools, **options)


async def park(store: Store, agent: Agent, policy: ResumePolicy, *calls: Any) -> str:
    model = MockModel([list(calls), say("end")])
    result, _ = await agent.run("go", model=model, store=store, run_id=RUN, resume_policy=policy)
    assert result.pending is not None
    return result.pending.id


async def carry_on(
    store: Store, agent: Agent, *calls: Any, upgrade: Upgrade | None = None, data: object = "yes"
) -> tuple[TaskResult[Any], Runtime[Any]]:
    given: dict[str, Any] = {} if upgrade is None else {"upgrade": upgrade}
    model = MockModel([list(calls), say("end")])
    runtime = await Runtime.open(agent, RUN, model=model, store=store, **given)
    (request,) = runtime.pendings()
    return await runtime.resume(Answer(id=request.id, ok=True, data=data)), runtime


async def upgrades(store: Store) -> list[tuple[str, str, str]]:
    return [(x.tool, x.before, x.after) for x in await facts_of(store) if isinstance(x, f.ArgumentsUpgraded)]


def unused(result: TaskResult[Any]) -> tuple[object, ...]:
    assert result.replay is not None
    return (*result.replay.unused_answers, *result.replay.unused_children)


@policies
async def test_a_new_parameter_with_a_default_changes_no_key(policy: ResumePolicy) -> None:
    """A replayed call has the default in its arguments: a `reuse` call does not run twice for it, none asks anew."""
    store = MemoryStore()
    await park(store, worker(BOOK, CENTS), policy, call("book", n=1), call("pay", cents=7))
    before = (await facts_of(store))[:]
    key = next(r.key for r in (await Runtime.open(worker(BOOK, CENTS), RUN, model=MockModel([]), store=store))
               ._driver.tree.requests.values())  # fmt: skip
    result, runtime = await carry_on(
        store, worker(BOOK_PLACE, CURRENCY), call("book", n=1), call("pay", cents=7)
    )
    assert (result.text, unused(result)) == ("end", ())
    assert did == [("book", 1), ("pay", key, 7, "EUR")]
    assert await upgrades(store) == [
        ("book", '{"n":1}', '{"n":1,"place":"home"}'),
        ("pay", '{"cents":7}', '{"cents":7,"currency":"EUR"}'),
    ]
    assert sum("ArgumentsUpgraded(" in line for line in runtime.trace()) == 2
    (one, _) = [
        e.data
        for e in runtime.events(after=len(before))
        if e.kind == "recorded" and e.fact == "arguments_upgraded"
    ]
    assert one == {"tool": "book", "before": '{"n":1}', "after": '{"n":1,"place":"home"}'}


@policies
async def test_arguments_the_schema_refuses(policy: ResumePolicy, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    request = await park(store, worker(CENTS), policy, call("pay", cents=7))
    with pytest.raises(SpecDrift) as caught:
        await Runtime.open(worker(AMOUNT), RUN, model=MockModel([]), store=store)
    (drift,) = caught.value.drifts
    assert (drift.kind, drift.tool, drift.call, drift.acceptable) == ("arguments", "pay", "c1", True)
    assert "upgrade=Upgrade(arguments=…)" in drift.how
    result, runtime = await carry_on(store, worker(AMOUNT), call("pay", amount="7 EUR"), upgrade=UPGRADE)
    assert (result.text, unused(result)) == ("end", ())
    assert [one[2] for one in did] == ["7 EUR"]
    # Asked about in the one form, answered in the other: the journal has both.
    asked = next(x for x in await facts_of(store) if isinstance(x, f.CallAsked))
    assert (asked.request, asked.question.data) == (
        request,
        '{"call":{"arguments":{"cents":7},"tool":"pay"}}',
    )
    assert await upgrades(store) == [("pay", '{"cents":7}', '{"amount":"7 EUR"}')]
    started = [e.call.arguments for e in runtime.events() if e.kind == "tool_started"]
    assert started == [{"cents": 7}, {"amount": "7 EUR"}]
    await store.close()


@policies
async def test_the_key_is_that_of_the_recorded_call(policy: ResumePolicy) -> None:
    """Over two upgrades, one of them by name, and a replay that makes the call in its latest form."""
    keys = []
    for last in (False, True):
        store = MemoryStore()
        await park(store, worker(CENTS), policy, call("pay", cents=7))
        if last:
            between = await Runtime.open(worker(CURRENCY), RUN, model=MockModel([]), store=store)
            assert (await between.recover()).status == "pending"
            assert between.pendings()[0].data["call"] == {
                "tool": "pay",
                "arguments": {"cents": 7, "currency": "EUR"},
            }
            named = tool(_amount, name="transfer")

            def as_transfer(name: str, arguments: dict[str, JsonValue]) -> dict[str, object]:
                assert name == "transfer"
                return as_amount("pay", arguments)

            upgrade = Upgrade(tools={"pay": "transfer"}, arguments=as_transfer)
            result, _ = await carry_on(
                store, worker(named), call("transfer", amount="7 EUR"), upgrade=upgrade
            )
        else:
            result, _ = await carry_on(store, worker(CENTS), call("pay", cents=7))
        assert (result.text, unused(result)) == ("end", ())
        keys.append(did.pop()[1])
    assert keys[0] == keys[1]


@policies
async def test_calls_that_are_one_by_now_stay_two(policy: ResumePolicy) -> None:
    """What told them apart is gone from the arguments: each keeps its key and its answer."""

    async def _plain(ctx: ToolContext[None], cents: int) -> str:
        """Pay."""
        answer = await ctx.ask("Pay?")
        did.append(("pay", ctx.idempotency_key, answer.data))
        return f"paid {answer.data}"

    def without(name: str, arguments: dict[str, JsonValue]) -> dict[str, object]:
        return {"cents": arguments["cents"]}

    store = MemoryStore()
    script = [call("pay", cents=7, currency="EUR"), call("pay", cents=7, currency="USD")]
    await park(store, worker(CURRENCY), policy, *script)
    parked = await Runtime.open(worker(CURRENCY), RUN, model=MockModel([]), store=store)
    keys = [r.key for r in parked._driver.tree.requests.values()]
    plain = worker(tool(_plain, name="pay"))
    model = MockModel([[call("pay", cents=7), call("pay", cents=7)], say("end")])
    runtime = await Runtime.open(plain, RUN, model=model, store=store, upgrade=Upgrade(arguments=without))
    pendings = runtime.pendings()
    result = await runtime.resume(
        [Answer(id=r.id, ok=True, data=n) for r, n in zip(pendings, "ab", strict=True)]
    )
    assert (result.text, unused(result)) == ("end", ())
    assert sorted(did) == sorted(("pay", key, n) for key, n in zip(keys, "ab", strict=True))


@policies
async def test_what_was_approved_with_other_arguments(policy: ResumePolicy) -> None:
    """The arguments an answer put in place are brought up to date as well, and so is what the rule is asked about."""
    plain = tool(_book_cents, name="pay")
    store = MemoryStore()
    guarded = worker(plain, CENTS_ASK, guardrails=[require_approval("pay")])
    await park(store, guarded, policy, call("pay", cents=7), call("ask_more"))
    between = await Runtime.open(
        guarded, RUN, model=MockModel([[call("pay", cents=7), call("ask_more")], say("end")]), store=store
    )
    approval = next(r for r in between.pendings() if r.data["call"]["tool"] == "pay")  # type: ignore[index,call-overload]
    edited = Answer(id=approval.id, ok=True, data={"arguments": {"cents": 5}})
    # Taken, and cut off before the approved call is entered: only the answer is there.
    from overt.core.inputs import Deliver
    from overt.driver.delivery import checked

    driver = between._driver
    await driver.acquire()
    specs = await checked(driver, [edited])
    facts = await driver.step(Deliver(specs, policy.value))
    assert facts.facts
    await driver.release()

    later = worker(tool(_book_amount, name="pay"), CENTS_ASK, guardrails=[require_approval("pay")])
    model = MockModel([[call("pay", amount="7 EUR"), call("ask_more")], say("end")])
    runtime = await Runtime.open(later, RUN, model=model, store=store, upgrade=UPGRADE)
    result = await runtime.recover()
    while result.pending is not None:
        assert result.pending.data["call"] == {"tool": "ask_more", "arguments": {}}
        result = await runtime.resume(Answer(id=result.pending.id, ok=True), policy=ResumePolicy.CONTINUE)
    assert result.text == "end"
    assert did == [("paid", "5 EUR")]


async def test_what_was_approved_with_other_arguments_before_a_replay_was_cut_off() -> None:
    """Nothing but what is remembered has them: the replayed call runs with them, in their new form."""
    store = MemoryStore()
    guarded = worker(tool(_book_cents, name="pay"), guardrails=[require_approval("pay")])
    await park(store, guarded, ResumePolicy.REWIND, call("pay", cents=7))
    crashing = CrashingStore(store, crash_at=2)
    between = await Runtime.open(guarded, RUN, model=MockModel([]), store=crashing)
    edited = Answer(id=between.pendings()[0].id, ok=True, data={"arguments": {"cents": 5}})
    with pytest.raises(BaseException) as died:  # noqa: PT011  # bare, or in a group
        await between.resume(edited)
    assert isinstance(died.value, Crashed | BaseExceptionGroup)
    assert isinstance((await facts_of(store))[-1], f.ModelCalled)
    later = worker(tool(_book_amount, name="pay"), guardrails=[require_approval("pay")])
    model = MockModel([call("pay", amount="7 EUR"), say("end")])
    runtime = await Runtime.open(later, RUN, model=model, store=store, upgrade=UPGRADE)
    assert (await runtime.recover()).text == "end"
    assert did == [("paid", "5 EUR")]


async def _book_cents(cents: int) -> str:
    """Pay."""
    did.append(("paid", cents))
    return "paid"


async def _book_amount(amount: str) -> str:
    """Pay."""
    did.append(("paid", amount))
    return "paid"


async def _ask_more(ctx: ToolContext[None]) -> str:
    """Ask."""
    return str((await ctx.ask("More?")).ok)


CENTS_ASK = tool(_ask_more, name="ask_more")


@policies
async def test_an_approval_counts_for_the_new_form(policy: ResumePolicy) -> None:
    """The rule words its question from the arguments; they are the ones that were approved, in another form."""
    store = MemoryStore()
    await park(
        store,
        worker(tool(_book_cents, name="pay"), guardrails=[require_approval("pay")]),
        policy,
        call("pay", cents=7),
    )
    later = worker(tool(_book_amount, name="pay"), guardrails=[require_approval("pay")])
    result, _ = await carry_on(store, later, call("pay", amount="7 EUR"), upgrade=UPGRADE, data=None)
    assert (result.text, unused(result)) == ("end", ())
    assert did == [("paid", "7 EUR")]


async def test_a_call_a_cap_kept_out_is_entered_in_the_new_form() -> None:
    store = MemoryStore()
    old = worker(tool(_book_cents, name="pay"), BOOK)
    model = MockModel([[call("book", n=1), call("pay", cents=7)], say("end")])
    stopped, _ = await old.run("go", model=model, store=store, run_id=RUN, budget=Budget(max_tool_calls=1))
    assert stopped.status == "incomplete"
    new = worker(tool(_book_amount, name="pay"), BOOK)
    runtime = await Runtime.open(new, RUN, model=model, store=store, upgrade=UPGRADE)
    assert (await runtime.extend(Budget(max_tool_calls=5))).text == "end"
    assert did == [("book", 1), ("paid", "7 EUR")]


def boom(name: str, arguments: dict[str, JsonValue]) -> dict[str, object]:
    raise LookupError("no such rate")


def nonsense(name: str, arguments: dict[str, JsonValue]) -> Any:
    return 3


def unfit(name: str, arguments: dict[str, JsonValue]) -> dict[str, object]:
    return {"sum": 1}


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (boom, "Upgrade.arguments raised LookupError: no such rate"),
        (nonsense, "Upgrade.arguments returned int, not a mapping"),
        (unfit, "also not as Upgrade.arguments has them: .*amount.*sum"),
    ],
)
async def test_an_upgrade_that_does_not_help_is_a_drift(fn: Any, why: str) -> None:
    store = MemoryStore()
    await park(store, worker(CENTS), ResumePolicy.REWIND, call("pay", cents=7))
    before = await facts_of(store)
    with pytest.raises(SpecDrift, match=why) as caught:
        await Runtime.open(
            worker(AMOUNT), RUN, model=MockModel([]), store=store, upgrade=Upgrade(arguments=fn)
        )
    assert [d.kind for d in caught.value.drifts] == ["arguments"]
    assert await facts_of(store) == before


async def test_the_host_is_given_a_copy_and_only_what_is_refused() -> None:
    seen: list[Any] = []

    def once(name: str, arguments: dict[str, JsonValue]) -> dict[str, object]:
        seen.append(dict(arguments))
        amount = f"{arguments.pop('cents')} EUR"
        return {"amount": amount}

    store = MemoryStore()
    await park(store, worker(BOOK, CENTS), ResumePolicy.REWIND, call("book", n=1), call("pay", cents=7))
    runtime = await Runtime.open(
        worker(BOOK_PLACE, AMOUNT), RUN, model=MockModel([]), store=store, upgrade=Upgrade(arguments=once)
    )
    assert seen == [{"cents": 7}]
    assert runtime.pendings()[0].data["call"] == {"tool": "pay", "arguments": {"cents": 7}}
    await runtime.recover()
    assert runtime.pendings()[0].data["call"] == {"tool": "pay", "arguments": {"amount": "7 EUR"}}
    again = await Runtime.open(
        worker(BOOK_PLACE, AMOUNT), RUN, model=MockModel([]), store=store, upgrade=Upgrade(arguments=once)
    )
    await again.recover()
    assert seen == [{"cents": 7}], "it is recorded, and not asked for again"
    assert len(await upgrades(store)) == 2
