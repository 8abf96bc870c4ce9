"""The life of a handle: every state with every verb and every move; what is refused leaves no trace."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from overt.core import facts as f
from overt.core import inputs as i
from overt.core.desk import Refused
from overt.core.effects import CallModel
from overt.core.lifecycle import TRANSITIONS, VERBS, Move, Reaction, diagram
from overt.core.moves import move
from overt.core.tree import Node, Tree
from overt.errors import AwaitingAnswer, HandleClosed, UsageError
from overt.result import State
from tests.core.sim import Sim, call, plan, tree_snapshot

HANDLE = "root/a.1"
INPUTS: dict[str, i.Input] = {
    "spawn": i.Spawn(HANDLE, "b"),
    "post": i.Post(HANDLE, "external", "external", "hello"),
    "wake": i.Wake(HANDLE, "again"),
    "interrupt": i.Interrupt(HANDLE, "told to"),
    "close": i.Close(HANDLE, "told to"),
}
PAIRS = list(itertools.product(State, INPUTS))


def sim_in(state: State) -> Sim:
    """A run whose only handle is in `state`, with a host that keeps the tree open."""
    sim = Sim(plan())
    sim.step(i.Spawn("root", "a"))
    if state is State.IDLE:
        return sim
    if state is State.CLOSED:
        sim.step(i.Close(HANDLE))
        return sim
    sim.step(i.Wake(HANDLE, "go"))
    if state is State.SUSPENDED:
        sim.reply("", call("ask"))
        sim.ask()
    assert sim.node(HANDLE).state is state
    return sim


def test_the_table_has_every_pair() -> None:
    assert set(VERBS) == set(PAIRS)


@pytest.mark.parametrize(("state", "verb"), PAIRS)
def test_each_verb_in_each_state_does_what_the_table_says(state: State, verb: str) -> None:
    sim = sim_in(state)
    before = tree_snapshot(sim.tree)
    reaction = VERBS[state, verb]
    if reaction is Reaction.RAISES:
        with pytest.raises(HandleClosed if state is State.CLOSED else AwaitingAnswer):
            sim.step(INPUTS[verb])
    elif reaction is Reaction.REFUSED:
        with pytest.raises(Refused):
            sim.step(INPUTS[verb])
    else:
        facts = sim.step(INPUTS[verb])
        assert bool(facts) is (reaction is Reaction.TAKEN)
    assert (tree_snapshot(sim.tree) == before) is (reaction is not Reaction.TAKEN)


@pytest.mark.parametrize(
    ("state", "verb", "after"),
    [
        (State.IDLE, "wake", State.RUNNING),
        (State.IDLE, "close", State.CLOSED),
        (State.RUNNING, "interrupt", State.IDLE),
        (State.RUNNING, "close", State.CLOSED),
        (State.SUSPENDED, "interrupt", State.IDLE),
        (State.SUSPENDED, "close", State.CLOSED),
        *[(state, "post", state) for state in State if state is not State.CLOSED],
        *[(state, "spawn", state) for state in State if state is not State.CLOSED],
    ],
)
def test_where_a_verb_that_is_taken_leads(state: State, verb: str, after: State) -> None:
    sim = sim_in(state)
    sim.step(INPUTS[verb])
    assert sim.node(HANDLE).state is after


def handle_in(state: State) -> tuple[Tree, Node]:
    sim = sim_in(state)
    return sim.tree, sim.node(HANDLE)


@pytest.mark.parametrize(("state", "step"), list(itertools.product(State, Move)))
def test_each_move_in_each_state_leads_where_the_table_says_or_nowhere(state: State, step: Move) -> None:
    tree, node = handle_in(state)
    before = tree_snapshot(tree)
    to = TRANSITIONS.get((state, step))
    if to is None:
        with pytest.raises(KeyError):
            move(tree, node, step)
        assert tree_snapshot(tree) == before
    else:
        move(tree, node, step)
        assert node.state is to
        assert node.transitions[-1] == (state, to)


def test_nothing_leads_out_of_closed() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] is State.CLOSED]


def test_only_an_answer_an_expiry_interrupt_or_close_lead_out_of_suspended() -> None:
    assert {step for state, step in TRANSITIONS if state is State.SUSPENDED} == {Move.RESUME, Move.SETTLE}
    taken = {verb for (state, verb), r in VERBS.items() if state is State.SUSPENDED and r is Reaction.TAKEN}
    assert taken - {"interrupt", "close"} == {"post", "spawn"}
    for verb in ("post", "spawn"):
        sim = sim_in(State.SUSPENDED)
        sim.step(INPUTS[verb])
        assert sim.node(HANDLE).state is State.SUSPENDED


WAYS_OUT: dict[str, tuple[Callable[[Sim], object], State]] = {
    "answer": (lambda sim: sim.answer(), State.RUNNING),
    "expiry": (lambda sim: expire(sim), State.RUNNING),
    "interrupt": (lambda sim: sim.step(i.Interrupt(HANDLE)), State.IDLE),
    "close": (lambda sim: sim.step(i.Close(HANDLE)), State.CLOSED),
}


def expire(sim: Sim) -> None:
    sim.now += 1_000_000
    sim.step(i.Expire())


@pytest.mark.parametrize("way", WAYS_OUT)
def test_each_way_out_of_suspended(way: str) -> None:
    sim = Sim(plan())
    sim.begin(closes=False)
    sim.reply("", call("ask"))
    sim.ask(expires_at=sim.now + 500_000)
    act, after = WAYS_OUT[way]
    act(sim)
    assert sim.node(HANDLE).state is after
    assert not sim.open_requests()


UNKNOWN: list[i.Input] = [
    i.Spawn("root/zz.1", "a"),
    i.Post("root/zz.1", "external", "external", "x"),
    i.Wake("root/zz.1", "x"),
    i.Wake("root", "x"),
    i.Interrupt("root/zz.1"),
    i.Close("root/zz.1"),
    i.Extend(f.Caps(max_turns=9)),
    i.Extend(f.Caps(max_turns=9), "root/zz.1"),
    i.Extend(f.Caps(max_turns=9), HANDLE),
    i.Spawn(HANDLE, "nobody"),
    i.Deliver((i.AnswerSpec("req_x", True),)),
    i.Deliver(()),
]


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("inp", UNKNOWN, ids=lambda x: f"{type(x).__name__}-{x[0]}")
def test_misuse_raises_and_leaves_no_trace(state: State, inp: i.Input) -> None:
    sim = sim_in(state)
    before, seq, now = tree_snapshot(sim.tree), sim.tree.seq, sim.tree.now
    with pytest.raises(UsageError):
        sim.step(inp)
    assert tree_snapshot(sim.tree) == before
    assert (sim.tree.seq, sim.tree.now) == (seq, now)


STALE: list[i.Input] = [
    i.ModelDone(99, "late"),
    i.ModelLost(99, f.ErrorSpec("Late", "late", "model")),
    i.ToolDone(99, "late"),
    i.ToolAsked(99, f.Question("input", "late?"), 0),
    i.ToolLost(99, "late"),
    i.OnceBegin(99, "l"),
    i.OnceEnd(99, "l", "1"),
    i.HostDone(99),
    i.NotifyDone(99),
    i.Tick(),
    i.Expire(),
]


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("inp", STALE, ids=lambda x: type(x).__name__)
def test_an_outcome_of_what_is_no_longer_open_leads_to_nothing(state: State, inp: i.Input) -> None:
    sim = sim_in(state)
    before = tree_snapshot(sim.tree)
    assert sim.step(inp) == []
    assert tree_snapshot(sim.tree) == before


def test_a_late_reply_to_an_interrupted_wake_changes_nothing() -> None:
    sim = Sim(plan())
    sim.begin(closes=False)
    late = sim.effects(CallModel)[0]
    sim.step(i.Interrupt(HANDLE))
    assert sim.step(i.ModelDone(late.id, "late", (), f.Tokens(50, 50))) == []
    assert sim.result().status == "interrupted"
    assert sim.node(HANDLE).own.unreported == 1


def test_the_diagram_shows_every_transition_once() -> None:
    lines = diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    for (source, step), target in TRANSITIONS.items():
        assert lines.count(f"    {source} --> {target}: {step}") == 1
    assert len(lines) == 1 + 1 + len(TRANSITIONS) + 1
