"""Doubt, cancelled questions and expiries across stops, failures and interrupts: the rules without a driver."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from overt.core import facts as f
from overt.core import inputs as i
from overt.core.decide import decide
from overt.core.effects import CallModel, CallTool
from overt.core.tree import Tree
from overt.core.views import answers_of
from overt.message import ToolMessage
from overt.result import State
from tests.core.sim import Sim, call, plan, task

A, B1, B2 = "root/a.1", "root/a.1/b.1", "root/a.1/b.2"
SUCCEEDED = '{"outcome":"succeeded","output":"receipt"}'
MORE = f.Caps(max_wall=1000.0)


def begun(**options: Any) -> Sim:
    sim = Sim(plan(**options))
    sim.begin()
    return sim


def stopped_by_the_clock(sim: Sim, handle: str | None = None) -> None:
    sim.now += 11_000_000
    sim.step(i.Tick())
    assert (sim.result(handle).status, sim.result(handle).limit) == ("incomplete", "maxWall")


def entries(sim: Sim, tool: str) -> int:
    """How often calls of a tool were entered."""
    names: dict[tuple[str, str], str] = {}
    replies: Counter[str] = Counter()
    found = 0
    for fact in (fact for _, facts in sim.log for fact in facts):
        if isinstance(fact, f.ModelReplied):
            for spec in fact.calls:
                replies[fact.handle] += 1
                names[fact.handle, f"c{replies[fact.handle]}"] = spec.name
        elif isinstance(fact, f.CallEntered):
            found += names[fact.handle, fact.call] == tool
    return found


def kinds(sim: Sim) -> list[str]:
    return [r.kind for r in sim.result().pendings]


def tool_messages(sim: Sim, handle: str) -> list[ToolMessage]:
    return [m for m in sim.node(handle).messages if isinstance(m, ToolMessage)]


def drain(sim: Sim) -> None:
    """Have every model say `fin` and every tool return until nothing is under way."""
    while work := sim.effects(CallModel) + sim.effects(CallTool):
        effect = work[0]
        if isinstance(effect, CallModel):
            sim.step(i.ModelDone(effect.id, "fin", (), f.Tokens(1, 1)))
        else:
            sim.step(i.ToolDone(effect.id, "ok"))


# ------------------------------------------------------------ doubt and a stop


def doubt_beside_a_slow_call(**options: Any) -> Sim:
    sim = begun(**options)
    sim.reply("", call("u"), call("t"))
    sim.step(i.ToolLost(sim.tool("u").id, "timed out", True, "timed out"))
    assert kinds(sim) == ["in_doubt"]
    return sim


def asked_once_more_and_settled(sim: Sim) -> None:
    sim.ret("t")
    assert kinds(sim) == ["in_doubt"]
    assert entries(sim, "u") == 1
    sim.answer(data=SUCCEEDED)
    sim.reply("end")
    assert sim.result().status == "done"
    assert entries(sim, "u") == 1
    assert [m.text for m in tool_messages(sim, A)] == ["receipt", "ok"]


def test_a_doubt_that_a_stop_cancelled_is_asked_again_after_extend() -> None:
    sim = doubt_beside_a_slow_call(root=f.Caps(max_wall=10.0))
    stopped_by_the_clock(sim)
    assert sim.open_requests() == []
    assert "In doubt" in sim.result().text
    assert "u({})" in sim.result().text
    sim.step(i.Extend(MORE))
    asked_once_more_and_settled(sim)


def test_a_doubt_beside_a_refused_call_outlives_the_stop() -> None:
    sim = begun(root=f.Caps(max_tool_calls=1))
    sim.reply("", call("u"), call("t"))
    sim.step(i.ToolLost(sim.tool("u").id, "timed out", True, "timed out"))
    # The doubt is asked first; the stop comes with what was refused.
    sim.answer(data=SUCCEEDED)
    assert sim.result().limit == "maxToolCalls"
    assert "In doubt" not in sim.result().text
    sim.step(i.Extend(f.Caps(max_tool_calls=9)))
    sim.ret("t")
    sim.reply("end")
    assert (sim.result().status, entries(sim, "u")) == ("done", 1)


@pytest.mark.parametrize("crash", [False, True])
def test_a_doubt_outlives_a_failed_wake(crash: bool) -> None:
    """The reply after a delegation diverges while the doubt is open beside it: here, a failing question."""
    sim = begun(max_divergences=0)
    sim.reply("", call("ask", '{"x":1}'))
    sim.ask()
    sim.answer()
    sim.reply("", call("u"), call("ask", '{"x":2}'))
    sim.step(i.ToolLost(sim.tool("u").id, "timed out", True, "timed out"))
    sim.ask()
    result = sim.result()
    assert result.error is not None
    assert result.error.type == "ReplayDiverged"
    assert "In doubt" in result.text
    assert sim.open_requests() == []
    if crash:
        sim.crash()
    entered = sum(isinstance(x, f.CallEntered) for _, facts in sim.log for x in facts)
    sim.step(i.Recover())
    # Whatever replays, the doubt is raised before it, and `u` is not entered for it.
    assert kinds(sim) == ["in_doubt"]
    assert sim.effects(CallModel) == []
    assert sim.effects(CallTool) == []
    assert sum(isinstance(x, f.CallEntered) for _, facts in sim.log for x in facts) == entered


def test_a_call_cut_by_a_stop_does_not_wedge_a_rewind_to_that_stop() -> None:
    sim = begun(root=f.Caps(max_wall=10.0))
    sim.reply("", call("u"))
    stopped_by_the_clock(sim)
    assert [m.text for m in tool_messages(sim, A)] == ["entered, outcome unknown (maxWall)"]
    sim.step(i.Extend(MORE))
    assert kinds(sim) == ["in_doubt"]
    sim.answer(data=SUCCEEDED)
    sim.reply("", call("ask"))
    sim.ask()
    facts = sim.names(sim.answer())
    assert "Rewound" in facts
    assert facts[-1] == "ModelCalled"
    sim.reply("end")
    assert (sim.result().status, entries(sim, "u")) == ("done", 1)
    assert [m.text for m in tool_messages(sim, A)] == ["receipt"]


def test_extend_that_queues_asks_the_doubt_when_it_is_admitted() -> None:
    sim = begun(root=f.Caps(max_concurrent=1), caps={"a": f.Caps(max_wall=10.0)})
    sim.reply("", call("u"))
    stopped_by_the_clock(sim)
    sim.step(i.Spawn("root", "c", anywhere=True))
    sim.step(i.Wake("root/c.2", "x"))
    assert sim.names(sim.step(i.Extend(MORE)))[-1] == "ReopenQueued"
    assert sim.open_requests() == []
    sim.reply("done", handle="root/c.2")
    assert kinds(sim) == ["in_doubt"]
    assert sim.result().status == "pending"
    assert entries(sim, "u") == 1


def test_a_question_cancelled_by_a_stop_is_asked_once_more_and_its_answer_reaches_the_call() -> None:
    sim = Sim(plan(root=f.Caps(max_wall=10.0)), policy="continue")
    sim.begin()
    sim.reply("", call("ask"), call("t"))
    sim.ask()
    stopped_by_the_clock(sim)
    sim.step(i.Extend(MORE))
    sim.ret("t")
    sim.ask()
    assert sim.result().status == "pending"
    sim.answer()
    entry = sim.node(A)
    assert entry.wake is not None
    found = answers_of(sim.tree, entry, sim.call_of(sim.tool("ask")).key)
    assert [answer.ok for _, answer in found] == [True]
    sim.ret("ask")
    sim.reply("end")
    assert (sim.result().status, len(sim.tree.requests)) == ("done", 2)


# ------------------------------------------------------------ a child in doubt


def test_a_parent_is_told_what_its_child_left_in_doubt() -> None:
    sim = begun(caps={"b": f.Caps(max_wall=10.0)})
    sim.reply("", task("b", "p"))
    sim.reply("", call("u"), handle=B1)
    stopped_by_the_clock(sim, B1)
    sim.reply("end", handle=A)
    (message,) = tool_messages(sim, A)
    assert message.text.startswith("[incomplete] ")
    assert "In doubt" in message.text
    assert "u({})" in message.text
    assert message.metadata["in_doubt"] == ["u({})"]
    (cut,) = tool_messages(sim, B1)
    assert cut.text == "entered, outcome unknown (maxWall)"
    assert cut.is_error


def test_nothing_in_doubt_is_not_mentioned() -> None:
    sim = begun(caps={"b": f.Caps(max_wall=10.0)})
    sim.reply("", task("b", "p"))
    sim.reply("", call("t"), handle=B1)
    stopped_by_the_clock(sim, B1)
    sim.reply("end", handle=A)
    (message,) = tool_messages(sim, A)
    assert "doubt" not in message.text
    assert "in_doubt" not in message.metadata
    assert [m.text for m in tool_messages(sim, B1)] == ["not run (maxWall)"]


# ------------------------------------------------------------ expiry, closing, interrupting


@pytest.mark.parametrize("drive", [False, True])
def test_what_expired_goes_on_when_another_branch_is_answered_in_a_live_run(drive: bool) -> None:
    sim = begun()
    sim.reply("", task("b", "x"), task("b", "y"), task("c", "z"))
    sim.reply("", call("ask"), handle=B1)
    sim.ask(handle=B1, expires_at=sim.now + 1_000_000)
    sim.reply("", call("ask"), handle=B2)
    sim.ask(handle=B2)
    (other,) = [r.id for r in sim.tree.requests.values() if r.handle == B2]
    sim.now += 5_000_000
    sim.step(i.Expire(drive=drive))
    assert (sim.node(B1).state is State.SUSPENDED) is not drive
    sim.answer(other)
    assert sim.node(B1).state is State.RUNNING
    drain(sim)
    assert (sim.result().status, sim.tree.root.live, sim.open_requests()) == ("done", 0, [])


@pytest.mark.parametrize("crash", [False, True])
def test_a_run_whose_cut_child_was_closed_is_pending(crash: bool) -> None:
    sim = begun()
    sim.reply("", task("b", "x"), task("c", "y"))
    sim.step(i.Cancel("host"))
    assert sim.result().status == "interrupted"
    sim.step(i.Close(B1))
    if crash:
        sim.crash()
    sim.step(i.Recover())
    sim.reply("ok", handle="root/a.1/c.2")
    sim.reply("", call("ask"))
    sim.ask()
    result = sim.result()
    assert (result.status, len(result.pendings)) == ("pending", 1)


@pytest.mark.parametrize("closes", [False, True])
def test_an_interrupt_after_a_cancellation_ends_the_run_for_good(closes: bool) -> None:
    sim = Sim(plan())
    sim.begin(closes=closes)
    sim.reply("", call("u"))
    sim.step(i.Cancel("host"))
    assert (sim.result().status, len(sim.open_requests())) == ("interrupted", 1)
    sim.step(i.Interrupt(A, "told to"))
    assert (sim.result().status, sim.open_requests(), sim.tree.root.open_requests) == ("interrupted", [], 0)
    assert (sim.node(A).state is State.CLOSED) is closes
    before = len(sim.log)
    sim.step(i.Recover())
    assert len(sim.log) == before, "recover revives nothing"
    assert sim.result().status == "interrupted"


def test_an_interrupt_for_good_returns_the_inbox_and_takes_a_new_prompt() -> None:
    sim = Sim(plan())
    sim.step(i.Spawn("root", "a"))
    sim.step(i.Post(A, "external", "note", "read me"))
    sim.step(i.Wake(A, "go"))
    sim.reply("", call("t"))
    sim.step(i.Cancel("host"))
    sim.step(i.Interrupt(A, "told to"))
    assert [item.text for item in sim.node(A).inbox] == ["read me"]
    assert sim.node(A).messages == []
    sim.step(i.Wake(A, "again"))
    sim.reply("end")
    assert sim.result().status == "done"


# ------------------------------------------------------------ divergence, partial


def test_a_diverging_delegation_does_not_use_up_the_questions_allowance() -> None:
    sim = begun(max_divergences=1)
    sim.reply("", task("b", "x"))
    sim.reply("fin", handle=B1)
    sim.reply("", call("ask"))
    sim.ask()
    sim.answer()
    sim.reply("", task("b", "other"))
    result = sim.result()
    assert result.error is not None
    assert result.error.type == "ReplayDiverged"
    sim.step(i.Recover())
    sim.reply("", task("b", "x"))
    sim.reply("", call("ask"))
    sim.step(i.ToolAsked(sim.tool("ask").id, f.Question("approval", "other words?"), 0))
    pending = sim.result().pending
    assert pending is not None
    assert (sim.result().status, pending.prompt, pending.diverged) == ("pending", "other words?", True)


def test_partial_is_not_the_text_of_a_reply_that_was_dropped() -> None:
    sim = begun(caps={"a": f.Caps(max_turns=3)})
    sim.reply("first", call("t"))
    sim.ret("t")
    sim.reply("half a sent", finish="length")
    assert sim.result().partial == "half a sent"
    sim.step(i.Recover())
    assert sim.result().partial == "first"
    sim.reply("", call("t"))
    assert (sim.result().limit, sim.result().partial) == ("maxTurns", "first")


# ------------------------------------------------------------ what one input costs


def steps_of(tree: Tree, inp: i.Input, now: int) -> int:
    """Instructions that run while an input is decided: calls alone would not see a loop that makes none."""
    count = 0

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        decide(tree, inp, now)
    finally:
        sys.settrace(before)
    return count


class Quick(Sim):
    """Neither invariants nor encoding: only the rules."""

    now: int

    def step(self, inp: i.Input) -> list[f.Fact]:
        self.now += 1_000
        return decide(self.tree, inp, self.now)


def many_parked(handles: int) -> Quick:
    sim = Quick(plan(root=f.Caps(max_concurrent=10_000, max_wall=1e9), on_pending=False), checked=False)
    for n in range(1, handles + 1):
        handle = f"root/c.{n}"
        sim.step(i.Spawn("root", "c", anywhere=True))
        sim.step(i.Wake(handle, "x"))
        sim.reply("", call("ask"))
        sim.ask()
    sim.step(i.Spawn("root", "c", anywhere=True))
    sim.step(i.Wake(f"root/c.{handles + 1}", "x"))
    sim.reply("", call("t"))
    return sim


def deliver(sim: Quick) -> i.Input:
    return i.Deliver((i.AnswerSpec(sim.open_requests()[-1], True),))


def deliver_in_a_parked_run(sim: Quick) -> i.Input:
    sim.ret("t")
    sim.reply("done")
    assert sim.tree.root.live == 0
    return deliver(sim)


INPUTS: dict[str, Callable[[Quick], i.Input]] = {
    "tick": lambda _: i.Tick(),
    "expire": lambda _: i.Expire(),
    "deliver": deliver,
    "deliver, parked": deliver_in_a_parked_run,
    "tool done": lambda sim: i.ToolDone(sim.tool("t").id, "ok"),
}


@pytest.mark.parametrize("name", INPUTS)
def test_what_an_input_costs_does_not_grow_with_the_handles_that_are_parked(name: str) -> None:
    counts: list[int] = []
    for handles in (5, 50, 500):  # the first pays for what is loaded once
        sim = many_parked(handles)
        assert len(sim.open_requests()) == handles
        inp = INPUTS[name](sim)
        counts.append(steps_of(sim.tree, inp, sim.now + 1_000))
    _, few, many = counts
    assert few > 20
    assert many == few


def test_the_question_of_a_doubt_names_the_call() -> None:
    sim = doubt_beside_a_slow_call(root=f.Caps(max_wall=10.0))
    stopped_by_the_clock(sim)
    first = next(iter(sim.tree.requests.values()))
    sim.step(i.Extend(MORE))
    (again,) = [sim.tree.requests[r] for r in sim.open_requests()]
    assert again.id != first.id
    assert json.loads(again.question.data) == json.loads(first.question.data)
