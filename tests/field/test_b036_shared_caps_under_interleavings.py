"""B036: a cap the whole tree shares holds under every interleaving, and what was reserved is given back."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.sim import Sim, plan, task
from tests.core.sim import call as spec

from overt import Agent, Budget, tool
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.effects import CallModel, CallTool
from overt.errors import ModelError
from overt.testing import MockModel, call, say

FIRST = 1_000
"""Reserved for a handle's first model call."""


def outcomes(data: st.DataObject, sim: Sim, *, tokens: st.SearchStrategy[f.Tokens | None]) -> None:
    """End effects in an order of hypothesis' choice, well or badly, until nothing is under way."""
    cap = sim.tree.root.caps
    for _ in range(60):
        total = sim.tree.root.total
        assert cap.max_model_calls is None or total.model_calls <= cap.max_model_calls
        assert cap.max_tool_calls is None or total.tool_calls <= cap.max_tool_calls
        if not sim.tree.open:
            return
        effect = data.draw(st.sampled_from(list(sim.tree.open.values())))
        if isinstance(effect, CallTool):
            sim.step(i.ToolDone(effect.id, "ok"))
            continue
        assert isinstance(effect, CallModel)
        how = data.draw(st.sampled_from(["text", "calls", "fails", "interrupt", "crash"]))
        if how == "fails":
            sim.step(i.ModelLost(effect.id, f.ErrorSpec("Boom", "no", "model", True)))
        elif how == "interrupt" and effect.handle != "root/a.1":
            sim.step(i.Interrupt(effect.handle))
        elif how == "crash":
            sim.crash()
            sim.step(i.Recover())
        elif how == "calls":
            sim.step(i.ModelDone(effect.id, "", (spec("t"), spec("t")), data.draw(tokens)))
        else:
            sim.step(i.ModelDone(effect.id, "done", (), data.draw(tokens)))


def eight_tasks(root: f.Caps) -> Sim:
    sim = Sim(plan(root=root), checked=False)  # what is looked at here is looked at after every input
    sim.begin(closes=False)
    sim.reply("", *(task("c", str(n)) for n in range(8)))
    return sim


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_five_requests_and_eight_tasks(data: st.DataObject) -> None:
    sim = eight_tasks(f.Caps(max_model_calls=5))
    outcomes(data, sim, tokens=st.just(f.Tokens(50, 50)))
    assert sim.tree.root.total.model_calls <= 5
    assert sim.tree.root.reserved == sum(e.reserve for e in sim.effects(CallModel))
    assert not sim.tree.waiting


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_six_tool_calls_and_children_in_parallel(data: st.DataObject) -> None:
    sim = eight_tasks(f.Caps(max_tool_calls=12))
    outcomes(data, sim, tokens=st.just(f.Tokens(50, 50)))
    assert sim.tree.root.total.tool_calls <= 12
    assert sim.tree.root.total.tool_calls == sum(n.own.tool_calls for n in sim.tree.nodes.values())


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_tokens_overshoot_by_no_more_than_calls_in_flight_used_beyond_their_reservation(
    data: st.DataObject,
) -> None:
    cap = data.draw(st.integers(100, 8_000))
    sim = eight_tasks(f.Caps(max_tokens=cap))
    reserved = {e.id: e.reserve for e in sim.effects(CallModel)}
    beyond = max(100 - min(FIRST, cap), 0)
    original = sim.step

    def step(inp: i.Input) -> list[f.Fact]:
        nonlocal beyond
        facts = original(inp)
        for fact in facts:
            if isinstance(fact, f.ModelCalled):
                reserved[fact.effect] = fact.reserve
                assert fact.reserve <= cap
            elif isinstance(fact, f.ModelReplied) and fact.tokens is not None:
                beyond += max(fact.tokens.input + fact.tokens.output - reserved[fact.effect], 0)
        root = sim.tree.root
        assert root.spent <= cap + beyond
        # Whoever waits does so because of a reservation in flight, and for nothing else.
        assert not sim.tree.waiting or root.reserved > 0
        assert not sim.tree.waiting or root.spent < cap
        return facts

    sim.step = step  # type: ignore[method-assign]  # watched
    some = st.integers(1, 900)
    outcomes(data, sim, tokens=st.one_of(st.none(), st.builds(lambda i, o: f.Tokens(i, o), some, some)))
    assert sim.tree.root.reserved == sum(e.reserve for e in sim.effects(CallModel))


@settings(max_examples=10, deadline=None)
@given(
    delays=st.lists(st.integers(0, 3), min_size=8, max_size=8),
    fails=st.sets(st.integers(0, 7), max_size=3),
    turns=st.integers(1, 8),
    backend=st.sampled_from(["asyncio", "trio"]),
)
def test_in_a_real_run(delays: list[int], fails: set[int], turns: int, backend: str) -> None:
    calls: list[str] = []
    ran: list[str] = []

    @tool
    async def work(n: int) -> str:
        ran.append(str(n))
        return "ok"

    async def think(request: Any) -> Any:
        calls.append(request.handle)
        if request.agent == "lead":
            if len(request.messages) > 1:
                return say("ok")
            return [call("task", agent="worker", prompt=str(n)) for n in range(8)]
        number = int(request.messages[0].text)
        for _ in range(delays[number]):
            await anyio.lowlevel.checkpoint()
        if number in fails:
            raise ModelError("HTTP 500")
        return [call("work", n=number)] * 2

    lead = Agent("lead", does="x", team=[Agent("worker", does="x", tools=[work])])
    budget = Budget(max_model_calls=5, max_tool_calls=11)

    async def main() -> None:
        result, rt = await lead.run("go", model=MockModel(think), budget=budget, max_concurrent_turns=turns)
        assert len(calls) == 5
        assert (result.limit, result.limit_at) == ("maxModelCalls", "root")
        assert len(ran) + 8 == result.usage.tool_calls <= 11
        assert rt.remaining("root").max_model_calls == 0

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("cut", ["fails", "interrupt"])
def test_what_a_child_had_reserved_lets_a_waiting_one_go_on(cut: str) -> None:
    sim = Sim(plan(root=f.Caps(max_tokens=2_000)))
    sim.begin(closes=False)
    sim.reply("", task("c", "p"), task("c", "q"), task("c", "r"))
    # 100 spent: the first reserves 1,000, the second the 900 that are left, the third waits.
    assert [e.reserve for e in sim.effects(CallModel)] == [1_000, 900]
    assert [n.id for n in sim.tree.waiting] == ["root/a.1/c.3"]
    sim.reply("done", handle="root/a.1/c.1", tokens=f.Tokens(200, 100))
    assert [(e.handle, e.reserve) for e in sim.effects(CallModel)] == [
        ("root/a.1/c.2", 900),
        ("root/a.1/c.3", 700),
    ]
    if cut == "fails":
        sim.step(i.ModelLost(sim.effects(CallModel)[1].id, f.ErrorSpec("Boom", "no", "model")))
    else:
        sim.step(i.Interrupt("root/a.1/c.3"))
    assert sim.tree.root.reserved == 900
    assert sim.tree.root.spent == 100 + 300 + 700
