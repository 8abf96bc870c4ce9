"""Typed events: one a fact, the same live and read afterwards, and what they say is what the tree says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, settings
from pydantic import TypeAdapter

from overt import events as e
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.apply import apply, begin
from overt.core.suspension import public_answer, when
from overt.core.tree import Tree
from overt.core.views import request_view
from overt.driver.events import EventFold, event_views
from overt.driver.loading import Log
from overt.journal.codec import decode, plain_fields
from tests.core import test_machine_policy
from tests.core.sim import Sim
from tests.journal.test_golden import PATHS, records

EVENT: TypeAdapter[Any] = TypeAdapter(e.Event)
CLASSES: tuple[type[Any], ...] = get_args(get_args(e.Event)[0])
DELTAS = (e.TextDelta, e.ReasoningDelta)


def log_of(sim: Sim) -> Log:
    log, position = Log(), 1
    for at, facts in sim.log:
        log.append((position, at, facts))
        position += len(facts)
    return log


def uncomputed(event: Any) -> Any:
    """An event without what a request says of the moment it is read at."""
    if not isinstance(event, e.RequestOpened):
        return event
    request = event.request.model_copy(update={"replays": (), "turns_again": 0})
    return event.model_copy(update={"request": request})


def check(log: Log) -> list[Any]:
    """Hold the events of a journal against the tree after each fact, and against reading it in parts."""
    tree, fold, found = Tree(), EventFold(), []
    for position, at, facts in log:
        begin(tree, at)
        for offset, fact in enumerate(facts):
            apply(tree, fact)
            event = fold.feed(position + offset, at, fact)
            against_tree(tree, fact, event)
            assert event.position == tree.seq
            assert event.handle == getattr(fact, "handle", "root")
            assert event.at == when(at)
            found.append(event)
    assert [x.position for x in found] == list(range(1, tree.seq + 1)), "one event a fact, in their order"
    assert list(event_views(log, 0)) == found
    assert list(event_views(log, tree.seq // 2)) == found[tree.seq // 2 :]
    text = EVENT_LIST.dump_json(found)
    assert EVENT_LIST.validate_json(text) == found, "an event does not survive JSON"
    return found


EVENT_LIST: TypeAdapter[list[Any]] = TypeAdapter(list[e.Event])


def against_tree(tree: Tree, fact: f.Fact, event: Any) -> None:
    node = tree.nodes[event.handle]
    wake = node.wake
    match event:
        case e.WakeBegan():
            assert wake is not None
            assert (event.prompt, event.number) == (wake.prompt, wake.number)
        case e.TurnFinished():
            assert wake is not None
            assert event.message == node.messages[-1]
            assert (event.turn, event.attempt) == (wake.turns, wake.attempt)
        case e.ToolStarted():
            assert wake is not None
            call = wake.by_id[event.call.id]
            assert (event.call.name, event.call.arguments) == (call.name, json.loads(call.run_args))
            assert event.child == call.child
        case e.ToolFinished():
            assert wake is not None
            call = wake.by_id[event.call_id]
            assert (event.name, event.output, event.is_error) == (call.name, call.output, call.is_error)
            assert event.metadata == json.loads(call.metadata or "{}")
            assert event.child == call.child
        case e.RequestOpened():
            request = request_view(tree, tree.requests[event.request.id], parked=True)
            assert event.request == request.model_copy(update={"replays": (), "turns_again": 0})
        case e.AnswerGiven():
            answer = public_answer(tree.requests[event.request_id])
            assert (event.ok, event.data, event.reason, event.by, event.at) == (
                answer.ok,
                answer.data,
                answer.reason,
                answer.by,
                answer.at,
            )
        case e.HandleSettled():
            assert wake is not None
            assert (event.status, event.limit, event.limit_at) == (wake.status, wake.limit, wake.limit_at)
            assert (event.error is None) == (wake.error is None)
        case e.Rewound():
            assert wake is not None
            assert event.attempt == wake.attempt
        case e.Recorded():
            data = plain_fields(fact)
            data.pop("handle", None)
            assert (f.FACTS[event.fact], event.data) == (type(fact), data)
        case _:
            pass


# ------------------------------------------------------------------ every run


class Streamed(test_machine_policy.PolicedMachine):
    """The core's random runs, read while they happen."""

    def __init__(self) -> None:
        super().__init__()
        self.live: list[Any] = []
        self.feed = EventFold()
        self.read = 0

    def step(self, inp: i.Input) -> None:
        super().step(inp)
        self.follow()

    def follow(self) -> None:
        log = log_of(self.sim)
        for position, at, facts in log[self.read :]:
            for offset, fact in enumerate(facts):
                self.live.append(self.feed.feed(position + offset, at, fact, tree=self.sim.tree))
        self.read = len(log)

    def teardown(self) -> None:
        self.follow()
        afterwards = check(log_of(self.sim))
        assert [uncomputed(x) for x in self.live] == afterwards, "who reads later sees something else"


Streamed.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStreamed = Streamed.TestCase


def golden(path: Path) -> Log:
    return [(rec.position, *decode("run", rec)) for rec in records(path)]


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_stored_journals_read_as_events(path: Path) -> None:
    check(golden(path))


def test_most_classes_are_seen_in_the_stored_journals() -> None:
    seen = {type(x) for path in PATHS for x in event_views(golden(path), 0)}
    never = {*DELTAS, e.ResultReady, e.ToolDenied, e.VerdictGiven}
    assert {cls for cls in CLASSES if cls not in seen} <= never | {e.LimitReached, e.RequestCancelled}
