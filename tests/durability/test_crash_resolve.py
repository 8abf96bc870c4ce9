"""A process that dies at any append of a run whose tools look up their calls: nothing twice, and nobody is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any, Literal

import pytest
from tests.durability.crew import facts_of
from tests.durability.deaths import is_crash
from tests.suspend_kit import first, tools_said, yes

from overt import (
    Agent,
    Doubt,
    Failed,
    Request,
    Resolution,
    ResumePolicy,
    Retry,
    Runtime,
    Succeeded,
    TaskResult,
    ToolContext,
    tool,
)
from overt.core import facts as f
from overt.errors import RunNotFound
from overt.stores import MemoryStore, Store
from overt.testing import MockModel, Script, call, say
from overt.testing.crashing import CrashingStore

pytestmark = pytest.mark.anyio
RUN = "run"
When = Literal["before", "after"]
WHENS: tuple[When, ...] = ("before", "after")
policies = pytest.mark.parametrize("policy", list(ResumePolicy))
SCRIPT: Script = {
    "lead": [
        [call("pay", n=1), call("book", n=2), call("task", agent="clerk", prompt="pay")],
        [call("pay", n=1), call("pay", n=4)],
        say("end"),
    ],
    "clerk": [call("pay", n=3), say("paid")],
}
SAID = ["paid 1", "booked 2", "paid", "paid 1", "paid 4"]


class Bank:
    """What is outside: it outlives every process, and takes no key twice for what it did already."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.receipts: dict[str, str] = {}
        self.asked: list[Doubt[Bank]] = []
        self.told: list[str] = []
        self.says: Callable[[Doubt[Bank]], Resolution | None] = self.truth

    def do(self, key: str, what: str) -> str:
        self.done[key] += 1
        self.receipts[key] = what
        return what

    def truth(self, doubt: Doubt[Bank]) -> Resolution | None:
        receipt = self.receipts.get(doubt.idempotency_key)
        return Retry() if receipt is None else Succeeded(receipt)


async def look_up(doubt: Doubt[Bank]) -> Resolution | None:
    doubt.deps.asked.append(doubt)
    return doubt.deps.says(doubt)


@tool(on_replay="reuse", resolve=look_up)
async def pay(ctx: ToolContext[Bank], n: int) -> str:
    """Pay."""
    return ctx.deps.do(ctx.idempotency_key, f"paid {n}")


@tool(resolve=look_up)
async def book(ctx: ToolContext[Bank], n: int) -> str:
    """Book."""

    async def seat() -> str:
        return ctx.deps.do(ctx.idempotency_key, f"booked {n}")

    return await ctx.once("seat", seat)


CLERK = Agent("clerk", does="Pays.", deps_type=Bank, tools=[pay])
LEAD = Agent("lead", does="Leads.", deps_type=Bank, tools=[pay, book], team=[CLERK])


async def process(bank: Bank, store: Store, policy: ResumePolicy) -> tuple[TaskResult[str], Runtime[str]]:
    """One process: it begins the run, or goes on with it."""

    async def on_pending(request: Request) -> None:
        bank.told.append(request.id)

    options: dict[str, Any] = {
        "store": store,
        "deps": bank,
        "model": MockModel(SCRIPT),
        "on_pending": on_pending,
    }
    try:
        runtime = await Runtime.open(LEAD, RUN, **options)
    except RunNotFound:
        runtime = Runtime(LEAD, run_id=RUN, resume_policy=policy, **options)
        return await runtime.run("go"), runtime
    return await runtime.recover(), runtime


async def dies(bank: Bank, inner: Store, policy: ResumePolicy, at: int, when: When) -> bool:
    """Let a process die at its n-th append; say whether it came to it."""
    store = CrashingStore(inner, crash_at=at, when=when)
    try:
        await process(bank, store, policy)
    except BaseException as error:
        if not is_crash(error):
            raise
    return store.crashed


async def ends(bank: Bank, store: Store, policy: ResumePolicy) -> None:
    """The next process ends it as if nothing had been."""
    result, runtime = await process(bank, store, policy)
    assert (result.status, result.text, result.error) == ("done", "end", None)
    assert tools_said(runtime.transcript("root/lead.1")) == SAID
    assert sorted(bank.done.values()) == [1] * 5, "nothing twice, nothing lost"
    assert bank.told == []
    for fact in await facts_of(store):
        if isinstance(fact, f.AnswerGiven):
            assert fact.by == "resolve"


@policies
async def test_a_crash_at_every_append(policy: ResumePolicy) -> None:
    looked = 0
    for when in WHENS:
        at = 0
        while True:
            at += 1
            bank, store = Bank(), MemoryStore()
            if not await dies(bank, store, policy, at, when):
                break
            try:
                await ends(bank, store, policy)
            except BaseException as error:
                error.add_note(f"crashed {when} append {at}")
                raise
            looked += len(bank.asked)
        assert at > 10
    assert looked >= 8, "too few crashes left anything in doubt"


@policies
async def test_a_lookup_that_dies_with_its_process_is_asked_again(policy: ResumePolicy) -> None:
    """After a crash that left doubts, the process that recovers dies at each of its own appends as well."""
    again = 0
    for earlier, at, when in product(range(2, 12), range(1, 9), WHENS):
        bank, store = Bank(), MemoryStore()
        await dies(bank, store, policy, earlier, "before")
        await dies(bank, store, policy, at, when)
        try:
            await ends(bank, store, policy)
        except BaseException as error:
            error.add_note(f"crashed before append {earlier}, then {when} append {at}")
            raise
        asked = Counter((doubt.idempotency_key, doubt.once) for doubt in bank.asked)
        again += any(times > 1 for times in asked.values())
    assert again, "no lookup was asked again: this test has lost its subject"


Kind = Literal["reuse", "once"]


async def killed(kind: Kind, policy: ResumePolicy) -> tuple[Bank, MemoryStore, str]:
    """A run whose process died between an effect of the lead's and its record, and the key of that."""
    what = "booked 2" if kind == "once" else "paid 1"
    for at in range(2, 20):
        bank, store = Bank(), MemoryStore()
        await dies(bank, store, policy, at, "before")
        keys = [key for key, receipt in bank.receipts.items() if receipt == what]
        done = [
            fact
            for fact in await facts_of(store)
            if (isinstance(fact, f.CallReturned) and fact.output == what) or isinstance(fact, f.OnceDone)
        ]
        if keys and not any(isinstance(fact, f.OnceDone) is (kind == "once") for fact in done):
            return bank, store, keys[0]
    raise AssertionError("no such place")


@policies
@pytest.mark.parametrize("kind", ["reuse", "once"])
@pytest.mark.parametrize("said", [Succeeded("by bank"), Failed("no funds"), Retry(), None], ids=repr)
async def test_killed_between_effect_and_record(
    said: Resolution | None, kind: Kind, policy: ResumePolicy
) -> None:
    bank, store, key = await killed(kind, policy)
    bank.says = lambda doubt: said if doubt.idempotency_key == key else bank.truth(doubt)
    result, runtime = await process(bank, store, policy)
    assert [d.once for d in bank.asked if d.idempotency_key == key] == ["seat" if kind == "once" else None]
    effects = 1
    if said is None:
        request = first(result)
        assert (result.status, request.kind, bank.told) == ("pending", "in_doubt", [request.id])
        assert request.data["idempotency_key"] == key
        result = await runtime.resume(yes(request, {"outcome": "succeeded", "output": "by hand"}))
    elif isinstance(said, Retry):
        effects = 2
    assert result.status == "done"
    assert bank.done[key] == effects
    told = tools_said(runtime.transcript("root/lead.1"))[1 if kind == "once" else 0]
    match said:
        case Succeeded():
            assert told == "by bank"
        case Failed():
            assert told == "no funds"
        case Retry():
            assert told in SAID
        case None:
            assert told == "by hand"
