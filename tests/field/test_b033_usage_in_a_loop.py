"""B033, the loop's half: a reply without usage is unknown, not free, and every attempt is counted."""

from __future__ import annotations

from typing import Any

import pytest

from overt import Agent, Budget, Limit, RetryPolicy, Status, Usage
from overt.errors import ModelError
from overt.testing import MockModel, say

pytestmark = pytest.mark.anyio

NO_USAGE = say("silent", usage=None)
NO_NUMBERS = say("empty", usage=Usage())


def talker(*scripts: object, **options: Any) -> Agent[None, str]:
    answers = list(scripts)

    def script(request: object) -> Any:
        return answers.pop(0)

    return Agent("w", does="works", model=MockModel(script), **options)


async def test_what_is_not_reported_is_counted_as_that() -> None:
    made = talker(say("one"), NO_USAGE, NO_NUMBERS, ModelError("down", retryable=True), say("five"))
    loop = made.loop(retry=RetryPolicy(max_retries=0))
    one = await loop.run("1")
    assert (one.total_tokens, one.usage.unreported_calls) == (100, 0)
    two = await loop.run("2")
    assert (two.status, two.text, two.total_tokens, two.usage.unreported_calls) == (
        Status.DONE,
        "silent",
        100,
        1,
    )
    three = await loop.run("3")
    # The provider reported: nothing. That is a number.
    assert (three.total_tokens, three.usage.unreported_calls, three.cost) == (100, 1, None)
    four = await loop.run("4")
    assert (four.status, four.usage.model_calls, four.usage.unreported_calls) == (Status.ERROR, 4, 2)
    five = await loop.recover()
    assert (five.status, five.total_tokens) == (Status.DONE, 200)
    assert (five.usage.model_calls, five.usage.turns, five.usage.unreported_calls) == (5, 4, 2)
    entry = loop.runtime.ledger().children[0]
    assert (entry.own, entry.total) == (five.own_usage, five.usage)
    assert loop.runtime.ledger().total == five.usage


async def test_the_printed_ledger_does_not_pass_it_over_in_silence() -> None:
    loop = talker(say("one"), NO_USAGE, NO_USAGE).loop()
    await loop.run("1")
    assert "unknown" not in str(loop.runtime.ledger())
    await loop.run("2")
    assert str(loop.runtime.ledger()).endswith("\n1 model call reported no usage: what it used is unknown.")
    await loop.run("3")
    ledger = loop.runtime.ledger()
    assert str(ledger).endswith("\n2 model calls reported no usage: what they used is unknown.")
    assert "2 model calls reported no usage" in ledger._repr_html_()


async def test_a_token_budget_holds_back_what_such_a_call_had_reserved() -> None:
    """So a provider that reports nothing does not make a budget endless."""
    loop = talker(*[NO_USAGE] * 20, budget=Budget(max_tokens=3000)).loop()
    results = [await loop.run(str(n)) for n in range(20)]
    stopped = next(result for result in results if result.status is Status.INCOMPLETE)
    assert (stopped.limit, stopped.limit_at, stopped.total_tokens) == (Limit.MAX_TOKENS, "root/w.1", 0)
    assert stopped.usage.unreported_calls == stopped.usage.model_calls > 1
    assert loop.runtime.remaining("root/w.1").max_tokens == 0
