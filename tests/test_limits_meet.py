"""Limits that ask: several that are asked about one cap at a time, and what each may say then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from overt import (
    Agent,
    Allow,
    Budget,
    Extend,
    GuardrailEvent,
    LimitInfo,
    ResumePolicy,
    Suspend,
    TaskResult,
    tool,
)
from overt.testing import MockModel, call
from tests.suspend_kit import yes

CHILD = "root/lead.1/c"


class Pair:
    """Two workers at a cap on tool calls that their delegation has spent."""

    def __init__(self, *, calls: int = 1) -> None:
        self.ran: list[str] = []

        @tool
        async def t(n: int) -> str:
            self.ran.append(str(n))
            return str(n)

        self.tool = t
        self.model = MockModel([[call("t", n=n) for n in range(calls)], "child done"])
        lead = MockModel(
            [[call("task", agent="c", prompt="one"), call("task", agent="c", prompt="two")], "told"]
        )
        self.lead = Agent("lead", does="leads", model=lead, team=[self.worker()])

    def worker(self, **options: Any) -> Agent[None, str]:
        return Agent("c", does="x", tools=[self.tool], model=self.model, **options)

    async def run(self, on_limit: Any, **options: Any) -> Any:
        return await self.lead.run("go", budget=Budget(max_tool_calls=2), on_limit=on_limit, **options)

    def is_done(self, result: TaskResult[Any], runtime: Any, *, calls: int) -> None:
        assert result.text == "told"
        told = [m.text for m in runtime.transcript("root/lead.1") if m.role == "tool"]
        assert told == ["child done", "child done"]
        assert len(self.ran) == 2 * calls


class Together:
    """Says nothing before both have been asked; then the new total it would say to either alone."""

    def __init__(self, says: Callable[[LimitInfo], Extend]) -> None:
        self.says = says
        self.asked: list[tuple[str, int]] = []
        self.both = anyio.Event()

    async def __call__(self, info: LimitInfo) -> Extend:
        self.asked.append((info.handle, int(info.cap)))
        if len(self.asked) == 2:
            self.both.set()
        await self.both.wait()
        return self.says(info)


async def test_a_total_that_another_has_used_up_is_asked_about_anew() -> None:
    pair = Pair()
    together = Together(lambda info: Extend(Budget(max_tool_calls=int(info.cap) + 1)))
    result, rt = await pair.run(together)
    pair.is_done(result, rt, calls=1)
    assert sorted(together.asked[:2]) == [(f"{CHILD}.1", 2), (f"{CHILD}.2", 2)]
    # The second to be heard found the cap where it wanted it, and nothing left.
    assert [cap for _, cap in together.asked[2:]] == [3]


async def test_a_total_below_what_another_has_raised_it_to_meanwhile_lowers_nothing() -> None:
    pair = Pair(calls=2)
    asked: list[tuple[str, int]] = []
    other_is_through = anyio.Event()

    async def on_limit(info: LimitInfo) -> Extend:
        asked.append((info.handle, int(info.cap)))
        if len(asked) == 1:
            await other_is_through.wait()
        return Extend(Budget(max_tool_calls=int(info.cap) + 1))

    def closed(_: object, __: str) -> None:
        other_is_through.set()

    agent = pair.lead.with_team(pair.worker(on_close=closed))
    result, rt = await agent.run("go", budget=Budget(max_tool_calls=2), on_limit=on_limit)
    pair.is_done(result, rt, calls=2)
    first, second = asked[0][0], asked[1][0]
    assert asked == [(first, 2), (second, 2), (second, 3), (first, 4), (first, 5)]


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_an_amount_that_another_has_used_up_is_asked_about_anew(policy: ResumePolicy) -> None:
    pair = Pair(calls=2)
    result, rt = await pair.run(lambda _: Suspend(), resume_policy=policy)
    one, two = result.pendings
    result = await rt.resume([yes(one, 1), yes(two, 1)])
    assert (result.status, pair.ran) == ("pending", ["0", "1"])
    (again,) = result.pendings
    assert again.data["limit"] == {
        "limit": "maxToolCalls", "at": "root", "cap": 4, "spent": 4, "handle": f"{CHILD}.2",
    }  # fmt: skip
    result = await rt.resume(yes(again, 2))
    pair.is_done(result, rt, calls=2)


async def test_room_that_another_takes_while_a_call_is_looked_at_again_is_asked_about_anew() -> None:
    pair = Pair()
    asked: list[tuple[str, int]] = []
    taken, raised = anyio.Event(), anyio.Event()

    async def look(event: GuardrailEvent) -> Allow:
        if event.handle == f"{CHILD}.2":
            # It is let in by what the other has had the cap raised by.
            await raised.wait()
        elif asked:
            raised.set()
            await taken.wait()
        return Allow()

    def on_limit(info: LimitInfo) -> Extend:
        asked.append((info.handle, int(info.cap)))
        return Extend(Budget(max_tool_calls=int(info.cap) + 1))

    def closed(_: object, __: str) -> None:
        taken.set()

    agent = pair.lead.with_team(pair.worker(guardrails=[look], on_close=closed))
    result, rt = await agent.run("go", budget=Budget(max_tool_calls=2), on_limit=on_limit)
    pair.is_done(result, rt, calls=1)
    assert asked == [(f"{CHILD}.1", 2), (f"{CHILD}.1", 3)]


async def test_an_amount_is_added_to_the_turns_that_hold_where_nobody_said_any() -> None:
    pair = Pair()
    model = MockModel([call("t", n=n) for n in range(20)])
    agent = Agent("w", does="x", tools=[pair.tool], model=model)
    result, runtime = await agent.run("go", on_limit=lambda info: Suspend())
    assert (result.status, result.turns) == ("pending", 6)
    result = await runtime.resume(yes(result, 2))
    assert (result.status, result.turns) == ("pending", 8)
