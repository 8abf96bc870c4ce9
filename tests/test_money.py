"""What a run cost, what could not be priced, and a cap on money that holds."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal, Inexact, localcontext
from typing import Any

import anyio
import pytest
from pydantic import ValidationError

from overt import (
    Agent,
    Budget,
    GenAIPrices,
    Limit,
    Price,
    PricedCall,
    PriceTable,
    ResumePolicy,
    RetryPolicy,
    Runtime,
    Status,
    TaskResult,
    ToolContext,
    Unpriced,
    Usage,
    tool,
)
from overt.errors import DefinitionError, ModelError
from overt.message import ModelRequest
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import MockModel, VirtualClock, call, say
from tests.driver.support import agent

AT = datetime(2026, 12, 1, tzinfo=UTC)
TABLE = PriceTable({"mock": Price(input=Decimal(1), output=Decimal(10))})
"""A dollar for a million tokens in, ten for a million out."""
SPENT = Usage(input_tokens=1_000_000, output_tokens=100_000, total_tokens=1_100_000)
"""Two dollars."""
ZERO, TWO = Decimal(0), Decimal(2)


def priced(usage: Usage, **call: Any) -> PricedCall:
    return PricedCall(**{"provider": "p", "model": "m", "usage": usage, "at": AT, **call})


@tool
async def look() -> str:
    """Look."""
    return "seen"


# ------------------------------------------------------------------ prices


def test_each_token_is_priced_once() -> None:
    price = Price(
        input=Decimal(3),
        output=Decimal(15),
        cached=Decimal("0.3"),
        cache_write=Decimal("3.75"),
        reasoning=Decimal(20),
    )
    usage = Usage(
        input_tokens=1000, cached_tokens=600, cache_write_tokens=100, output_tokens=200, reasoning_tokens=50
    )
    want = Decimal(3) * 300 + Decimal("0.3") * 600 + Decimal("3.75") * 100 + 15 * 150 + 20 * 50
    assert price.of(usage) == want / 1_000_000
    plain = Price(input=Decimal(3), output=Decimal(15))
    assert plain.of(usage) == Decimal(3 * 1000 + 15 * 200) / 1_000_000
    assert price.of(Usage()) == 0


def test_parts_that_are_more_than_the_whole_never_make_a_price_negative() -> None:
    price = Price(
        input=Decimal(3), output=Decimal(1), cached=Decimal(0), cache_write=Decimal(0), reasoning=Decimal(0)
    )
    assert (
        price.of(
            Usage(input_tokens=5, cached_tokens=9, cache_write_tokens=9, output_tokens=1, reasoning_tokens=7)
        )
        == 0
    )


def test_a_model_is_looked_up_with_its_provider_and_without() -> None:
    one, two, three = (Price(input=Decimal(n), output=Decimal(n)) for n in (1, 2, 3))
    table = PriceTable({"p:m": one, "m": two, "m-2026": three})
    usage = Usage(input_tokens=1_000_000)
    assert table.price(priced(usage)) == 1
    assert table.price(priced(usage, provider="q")) == 2
    assert table.price(priced(usage, model="latest", replied="m-2026")) == 3
    assert table.price(priced(usage, model="other")) is None
    assert PriceTable({}, otherwise=table).price(priced(usage)) == 1


@pytest.mark.parametrize("bad", [-1, Decimal("NaN"), Decimal("Infinity")])
def test_a_price_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(ValidationError):
        Price(input=bad, output=Decimal(1))


def test_a_table_says_which_price_is_none() -> None:
    with pytest.raises(
        DefinitionError, match=r"the price of 'm' has to be a Price\(input=…, output=…\), not int"
    ):
        PriceTable({"m": 3})  # type: ignore[dict-item]  # what is tested
    with pytest.raises(DefinitionError, match="no name"):
        PriceTable({" ": Price(input=Decimal(1), output=Decimal(1))})


def test_the_package_knows_models_of_providers() -> None:
    prices = GenAIPrices()
    usage = Usage(input_tokens=1_000_000, cached_tokens=400_000, output_tokens=0)
    full = prices.price(priced(Usage(input_tokens=1_000_000), provider="openai", model="gpt-5-mini"))
    part = prices.price(priced(usage, provider="openai", model="gpt-5-mini"))
    assert full is not None
    assert part is not None
    assert 0 < part < full
    assert prices.price(priced(usage, provider="openai", model="x", replied="gpt-5-mini")) == part
    assert prices.price(priced(usage, provider="openai", model="no-such-model")) is None
    assert prices.price(priced(usage, provider="no-such-provider", model="gpt-5-mini")) is None
    written = Usage(input_tokens=1_000_000, cache_write_tokens=1_000_000)
    claude = prices.price(priced(written, provider="anthropic", model="claude-opus-4-1"))
    assert claude is not None
    assert claude > (
        prices.price(priced(Usage(input_tokens=1_000_000), provider="anthropic", model="claude-opus-4-1"))
        or 0
    )


# ------------------------------------------------------------------ what a run cost


async def test_the_cost_of_a_tree_is_what_its_calls_cost() -> None:
    child = Agent("child", does="helps", tools=[look])
    lead = Agent("lead", does="leads", team=[child])
    model = MockModel(
        {
            "lead": [
                call("task", agent="child", prompt="p").with_options(usage=SPENT),
                say("done", usage=SPENT),
            ],
            "child": [call("look").with_options(usage=SPENT), say("seen", usage=SPENT)],
        }
    )
    result, rt = await lead.run("go", model=model, prices=TABLE)
    assert (result.cost, result.priced, result.unpriced) == (Decimal(8), Decimal(8), ())
    ledger = rt.ledger()
    assert ledger.cost == 8
    assert [below.cost for _, below in ledger.walk()] == [8, 8, 4]
    assert "total USD" in str(ledger)
    assert str(ledger).splitlines()[-1].endswith(" 4")
    assert sum(e.cost or 0 for e in rt.events() if e.kind == "turn") == 8


async def test_without_prices_there_is_no_cost_and_it_says_of_what() -> None:
    result, rt = await agent(look).run("go", model=MockModel([call("look"), say("x")]))
    assert (result.cost, result.priced) == (None, ZERO)
    assert result.unpriced == (Unpriced(model="mock", calls=2, reason="no_price"),)
    assert "USD" not in str(rt.ledger())
    assert TaskResult[str].model_validate_json(result.model_dump_json()) == result


async def test_what_could_not_be_priced_is_named_beside_the_rest() -> None:
    child = Agent("child", does="helps", model=MockModel([say("x")], name="house"))
    lead = Agent("lead", does="leads", team=[child])
    model = MockModel(
        [call("task", agent="child", prompt="p").with_options(usage=SPENT), say("a", usage=None)]
    )
    result, rt = await lead.run("go", model=model, prices=TABLE)
    assert (result.cost, result.priced) == (None, TWO)
    assert result.unpriced == (
        Unpriced(model="house", calls=1, reason="no_price"),
        Unpriced(model="mock", calls=1, reason="no_usage"),
    )
    text = str(rt.ledger())
    assert (
        "Not all could be priced: 1 of house (no price), 1 of mock (no usage). The rest cost 2 USD." in text
    )
    assert ">= 2" in text


async def test_a_failed_attempt_that_was_charged_is_priced() -> None:
    replies: list[Any] = [ModelError("busy", retryable=True, usage=SPENT), say("x", usage=SPENT)]
    model = MockModel(lambda request: replies.pop(0))
    result, _ = await agent().run("go", model=model, prices=TABLE, retry=RetryPolicy(base=0))
    assert (result.cost, result.usage.model_calls) == (Decimal(4), 2)
    replies[:] = [ModelError("busy", retryable=True), say("x", usage=SPENT)]
    result, _ = await agent().run("go", model=model, prices=TABLE, retry=RetryPolicy(base=0))
    assert (result.cost, result.priced) == (None, TWO)
    assert result.unpriced == (Unpriced(model="mock", calls=1, reason="no_usage"),)


async def test_money_is_counted_alike_whatever_the_host_reckons_with() -> None:
    usage = Usage(input_tokens=1_234_567, output_tokens=7, total_tokens=1_234_574)
    found: list[tuple[Decimal | None, Decimal | None]] = []
    for digits in (28, 3):
        model = MockModel([call("look").with_options(usage=usage), say("x", usage=usage)])
        with localcontext() as context:
            context.prec = digits
            context.traps[Inexact] = digits > 3
            result, rt = await agent(look).run(
                "go", model=model, prices=TABLE, budget=Budget(max_cost=Decimal("12.345678901"))
            )
            found.append((result.cost, rt.remaining("root/a.1").max_cost))
    assert found == [(Decimal("2.469274"), Decimal("9.876404901"))] * 2


class Broken:
    def __init__(self, what: object) -> None:
        self.what = what

    def price(self, call: PricedCall) -> Decimal | None:
        if isinstance(self.what, Exception):
            raise self.what
        return self.what  # type: ignore[return-value]  # what is tested


@pytest.mark.parametrize("what", [RuntimeError("down"), 1.5, Decimal(-1), Decimal("NaN")], ids=repr)
async def test_prices_that_fail_cost_no_reply(what: object, caplog: pytest.LogCaptureFixture) -> None:
    result, _ = await agent().run("go", model=MockModel([say("x")]), prices=Broken(what))
    assert (result.status, result.cost, result.unpriced[0].reason) == ("done", None, "no_price")
    assert "the prices of the run failed for model 'mock'" in caplog.text


async def test_cost_is_carried_over_to_another_process(tmp_path: Any) -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        answer = await ctx.ask("ok?")
        return str(answer.ok)

    model = MockModel([call("ask").with_options(usage=SPENT), say("x", usage=SPENT)])
    store = SQLiteStore(tmp_path / "runs.db")
    options: Any = {"store": store, "model": model, "prices": TABLE}
    made = agent(ask)
    parked, _ = await made.run("go", run_id="r", resume_policy=ResumePolicy.CONTINUE, **options)
    assert (parked.status, parked.cost) == ("pending", TWO)
    rt = await Runtime.open(made, "r", **options)
    assert rt.result().cost == 2
    assert parked.pending is not None
    from overt import Answer

    done = await rt.resume(Answer[Any](id=parked.pending.id, ok=True))
    assert (done.status, done.cost) == ("done", Decimal(4))
    await store.close()


# ------------------------------------------------------------------ the cap


async def test_a_cap_on_money_stops_before_the_next_call() -> None:
    model = MockModel([call("look").with_options(usage=SPENT)] * 9)
    made = agent(look, budget=Budget(max_cost=Decimal(4), max_turns=9))
    result, rt = await made.run("go", model=model, prices=TABLE)
    assert (result.status, result.limit, result.limit_at) == (Status.INCOMPLETE, Limit.MAX_COST, "root/a.1")
    assert (result.cost, result.turns) == (Decimal(4), 2)
    assert rt.remaining("root/a.1").max_cost == 0
    assert "4 USD" in result.text
    more = await rt.extend(Budget(max_cost=Decimal(5)))
    # Anything left admits one more call; it may cost more than is left.
    assert (more.limit, more.cost) == (Limit.MAX_COST, Decimal(6))


async def test_zero_admits_nothing() -> None:
    result, _ = await agent().run(
        "go", model=MockModel([say("x")]), prices=TABLE, budget=Budget(max_cost=Decimal(0))
    )
    assert (result.limit, result.usage.model_calls, result.cost) == (Limit.MAX_COST, 0, ZERO)


async def test_calls_at_once_overshoot_by_no_more_than_their_reservations_were_wrong() -> None:
    """Twenty children want a dollar each of five: calls are let in for what is left, not all at once."""
    child = Agent("child", does="helps")
    lead = Agent("lead", does="leads", team=[child], budget=Budget(max_concurrent=20))
    one = Usage(input_tokens=1_000_000, total_tokens=1_000_000)
    most = 0
    inside = 0

    async def says(request: ModelRequest) -> Any:
        nonlocal most, inside
        if request.agent == "lead":
            calls = [call("task", agent="child", prompt=str(n)) for n in range(20)]
            return [calls[0].with_options(usage=one), *calls[1:]] if len(request.messages) < 3 else say("x")
        inside += 1
        most = max(most, inside)
        await anyio.lowlevel.checkpoint()
        inside -= 1
        return say("x", usage=one)

    result, _ = await lead.run(
        "go", model=MockModel(says), prices=TABLE, budget=Budget(max_cost=Decimal(6)), max_concurrent_turns=20
    )
    assert result.limit is Limit.MAX_COST
    assert result.cost is not None
    # A child's first call is taken for 1,000 tokens, a thousandth of what it costs, so the estimate is far too low.
    assert result.cost >= 6
    assert most > 1


async def test_while_nothing_is_priced_a_call_reserves_all_there_is() -> None:
    made = Agent("a", does="works")
    entered: list[str] = []
    clock = VirtualClock()

    async def says(request: ModelRequest) -> Any:
        entered.append(request.handle)
        await clock.sleep(1)
        return say("x", usage=SPENT)

    rt = Runtime(made, model=MockModel(says), prices=TABLE, budget=Budget(max_cost=Decimal(100)), clock=clock)
    async with rt:
        handles = [await rt.spawn("root", "a") for _ in range(3)]
        for handle in handles:
            await rt.wake(handle, "go")
        await clock.wait_for_sleepers(1)
        assert len(entered) == 1
        await clock.advance(1)
        # The rate is known now, and both that waited fit.
        await clock.wait_for_sleepers(2)
        assert len(entered) == 3
        await clock.advance(1)
        for handle in handles:
            assert (await rt.wait(handle)).status == "done"
    assert rt.ledger().cost == 6


async def test_a_call_that_cannot_be_priced_spends_what_was_reserved() -> None:
    replies: list[Any] = [call("look").with_options(usage=SPENT), call("look").with_options(usage=None)] * 9
    model = MockModel(lambda request: replies.pop(0))
    made = agent(look, budget=Budget(max_cost=Decimal(6), max_turns=9))
    result, rt = await made.run("go", model=model, prices=TABLE)
    assert (result.limit, result.cost) == (Limit.MAX_COST, None)
    assert rt.remaining("root/a.1").max_cost == 0
    assert result.turns < 9


async def test_a_provider_that_is_busy_at_the_first_call_does_not_use_up_the_money() -> None:
    replies: list[Any] = [ModelError("busy", retryable=True), say("x", usage=SPENT)]
    result, rt = await agent().run(
        "go",
        model=MockModel(lambda request: replies.pop(0)),
        prices=TABLE,
        budget=Budget(max_cost=Decimal(5)),
        retry=RetryPolicy(base=0),
    )
    assert (result.status, result.cost, result.priced) == (Status.DONE, None, TWO)
    # The first call of a handle is taken for 1,000 tokens of input.
    assert rt.remaining("root/a.1").max_cost == Decimal("2.999")


async def test_a_process_that_dies_in_the_first_call_does_not_use_up_the_money_for_good() -> None:
    store, made, budget = MemoryStore(), agent(), Budget(max_cost=Decimal(5))
    clock = VirtualClock()
    slow = MockModel([say("x", usage=SPENT)], think_time=10.0, clock=clock)
    rt = Runtime(made, model=slow, prices=TABLE, budget=budget, clock=clock, store=store, run_id="r")
    async with anyio.create_task_group() as group:
        group.start_soon(rt.run, "go")
        await clock.wait_for_sleepers(2)  # the model, and the renewal of the claim
        group.cancel_scope.cancel()
    model = MockModel([say("x", usage=SPENT)])
    again = await Runtime.open(made, "r", model=model, prices=TABLE, budget=budget, store=store)
    result = await again.recover()
    assert (result.status, result.priced, result.cost) == (Status.DONE, TWO, None)
    assert again.remaining("root/a.1").max_cost == 3


async def test_a_request_that_cannot_be_sent_gives_back_what_was_reserved() -> None:
    replies: list[Any] = [DefinitionError("cannot be sent"), say("x", usage=SPENT)]
    model = MockModel(lambda request: replies.pop(0))
    result, rt = await agent().run("go", model=model, prices=TABLE, budget=Budget(max_cost=Decimal(5)))
    assert (result.status, result.cost, rt.remaining("root/a.1").max_cost) == (Status.ERROR, ZERO, Decimal(5))
    assert (await rt.recover()).cost == TWO


async def test_calls_that_report_no_usage_stop_at_the_cap_all_the_same() -> None:
    model = MockModel([call("look").with_options(usage=None)] * 9)
    budget = Budget(max_cost=Decimal("0.0025"), max_turns=9)
    result, rt = await agent(look, budget=budget).run("go", model=model, prices=TABLE)
    assert (result.limit, result.cost, result.priced) == (Limit.MAX_COST, None, ZERO)
    assert 1 < result.turns < 9
    assert rt.remaining("root/a.1").max_cost == 0


async def test_a_cap_without_prices_is_refused_before_anything_happens() -> None:
    model = MockModel(["x"])
    for options in ({"budget": Budget(max_cost=Decimal(1))}, {}):
        made = agent(**({} if options else {"budget": Budget(max_cost=Decimal(1))}))
        with pytest.raises(DefinitionError, match="max_cost needs prices"):
            await made.run("go", model=model, **options)  # type: ignore[arg-type]  # a plain dict
    assert not model.requests


async def test_a_cap_over_a_model_without_a_price_names_it() -> None:
    house = MockModel(["x"], name="house")
    child = Agent("child", does="helps", model=house)
    lead = Agent("lead", does="leads", team=[child], budget=Budget(max_cost=Decimal(1)))
    with pytest.raises(
        DefinitionError, match=r"agent 'lead': max_cost .* model 'house', which agent 'child' uses"
    ):
        await lead.run("go", model=MockModel(["x"]), prices=TABLE)
    free = Agent("lead", does="leads", team=[child])
    with pytest.raises(DefinitionError, match=r"the run: max_cost .* model 'house'"):
        await free.run("go", model=MockModel(["x"]), prices=TABLE, budget=Budget(max_cost=Decimal(1)))
    capped = Agent("child", does="helps", budget=Budget(max_cost=Decimal(1)))
    other = Agent("lead", does="leads", team=[capped], model=house)
    result, _ = await other.run("go", model=MockModel(["x"]), prices=TABLE)
    assert result.status == "done", "what is not under the cap needs no price"


@pytest.mark.parametrize("wrong", [3, PriceTable])
async def test_an_option_that_prices_nothing_is_refused(wrong: Any) -> None:
    with pytest.raises(DefinitionError, match="option 'prices' has to be an object with a method price"):
        await agent().run("go", model=MockModel(["x"]), prices=wrong)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_law_of_the_ledger_holds_for_money(seed: int) -> None:
    chance = random.Random(seed)
    child = Agent("child", does="helps", tools=[look])
    lead = Agent("lead", does="leads", team=[child], tools=[look])

    def says(request: ModelRequest) -> Any:
        usage = Usage(input_tokens=chance.randrange(10**6), output_tokens=chance.randrange(10**5))
        usage = usage.model_copy(update={"total_tokens": usage.input_tokens + usage.output_tokens})
        if chance.random() < 0.5:
            return say("x", usage=usage)
        if request.agent == "lead" and chance.random() < 0.7:
            return [
                call("task", agent="child", prompt=str(n)).with_options(usage=usage if not n else None)
                for n in range(2)
            ]
        return call("look").with_options(usage=usage)

    result, rt = await lead.run(
        "go", model=MockModel(says), prices=TABLE, budget=Budget(max_cost=Decimal(9), max_turns=30)
    )
    for _, ledger in rt.ledger().walk():
        turns = [e for e in rt.events() if e.kind == "turn" and e.handle.startswith(ledger.handle)]
        assert ledger.priced == sum((e.cost or Decimal(0) for e in turns), Decimal(0))
        assert (ledger.cost is None) == any(e.cost is None for e in turns)
    assert result.priced == rt.ledger().priced
