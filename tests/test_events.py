"""Typed events: one a fact, the same live and read afterwards, and what they say is what the tree says."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, get_args

import pytest
from hypothesis import HealthCheck, settings
from pydantic import TypeAdapter, ValidationError

from overt import (
    Agent,
    Allow,
    Answer,
    Ask,
    Budget,
    Completion,
    Deny,
    Extend,
    GuardrailEvent,
    LimitDecision,
    LimitInfo,
    Request,
    ResumePolicy,
    Ruling,
    Runtime,
    Status,
    TaskResult,
    ToolContext,
    ToolResult,
    Usage,
    tool,
)
from overt import events as e
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.apply import apply, begin
from overt.core.suspension import public_answer, when
from overt.core.tree import Tree
from overt.core.views import request_view
from overt.driver.events import EventFold, event_views
from overt.errors import ModelError
from overt.journal.codec import decode, plain_fields
from overt.journal.loading import Log
from overt.stores import MemoryStore
from overt.testing import MockModel, Reply, VirtualClock, call, say
from tests.core import test_machine_policy
from tests.core.sim import Sim, plan
from tests.journal.test_golden import PATHS, records

EventT = TypeVar("EventT")
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
    max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
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


# ------------------------------------------------------------------ what readers see


@tool
async def price(item: str) -> str:
    """Look up a price."""
    return f"{item}: 7"


@tool(on_replay="reuse")
async def reserve(item: str) -> ToolResult:
    """Put something aside."""
    return ToolResult(f"{item} kept", metadata={"item": item})


@tool
async def pay(ctx: ToolContext[None], amount: int) -> str:
    """Pay when somebody agrees."""
    return "paid" if (await ctx.ask(f"Pay {amount}?")).ok else "not paid"


def brief(events: Iterable[Any], *kinds: type[Any]) -> list[str]:
    return [x.kind for x in events if not kinds or isinstance(x, kinds)]


def the(kind: type[EventT], events: Iterable[Any], **fields: Any) -> EventT:
    """The one event of a class, or of those with these fields."""
    found = [x for x in events if isinstance(x, kind)]
    found = [x for x in found if all(getattr(x, n) == v for n, v in fields.items())]
    assert len(found) == 1, found
    return found[0]


async def run(
    agent: Agent[None, Any], model: MockModel, **options: Any
) -> tuple[TaskResult[Any], Runtime[Any]]:
    result, runtime = await agent.run("go", model=model, clock=VirtualClock(), **options)
    check(list(runtime._driver.log))
    return result, runtime


async def test_a_run_told_from_its_first_fact_to_its_last() -> None:
    agent = Agent("a", does="x", tools=[price, reserve])
    replies: list[Reply] = [
        ["Let me see.", call("price", item="tea"), call("reserve", item="tea"), call("nope")],
        say("7"),
    ]
    result, runtime = await run(agent, MockModel(replies))
    events = runtime.events()
    assert brief(events) == [
        "recorded",
        "spawned",
        "wake",
        "recorded",
        "turn",
        "tool_started",
        "tool_started",
        "tool_finished",
        "tool_finished",
        "tool_finished",
        "recorded",
        "turn",
        "settled",
        "closed",
        "closed",
    ]
    first = next(x for x in events if isinstance(x, e.TurnFinished))
    assert (first.message.text, first.turn, first.attempt) == ("Let me see.", 1, 1)
    assert (first.finish_reason, first.model) == ("tool_calls", "mock")
    assert first.usage == Usage(input_tokens=80, output_tokens=20, total_tokens=100)
    assert [c.id for c in first.message.tool_calls] == ["c1", "c2", "c3"]
    started = [x.call for x in events if isinstance(x, e.ToolStarted)]
    assert [(c.id, c.name, c.arguments) for c in started] == [
        ("c1", "price", {"item": "tea"}),
        ("c2", "reserve", {"item": "tea"}),
    ]
    done = the(e.ToolFinished, events, call_id="c2")
    assert (done.name, done.output, done.is_error, done.metadata) == (
        "reserve",
        "tea kept",
        False,
        {"item": "tea"},
    )
    unknown = the(e.ToolFinished, events, call_id="c3")
    assert unknown.is_error
    assert "nope" in unknown.output
    settled = the(e.HandleSettled, events)
    assert (settled.handle, settled.status, settled.limit) == (result.handle, "done", None)
    assert runtime.events(after=settled.position) == events[settled.position :]


async def test_a_replay_says_what_it_repeats_and_what_it_does_not() -> None:
    agent = Agent("a", does="x", tools=[reserve, pay, price])
    replies: list[Reply] = [
        [call("price", item="tea"), call("reserve", item="tea"), call("pay", amount=7)],
        say("bought"),
    ]
    result, runtime = await run(agent, MockModel(replies))
    opened = the(e.RequestOpened, runtime.events())
    assert (opened.call_id, opened.request.path) == ("c3", ("root", "a.1"))
    assert opened.request == result.pending, "while it is open it says what answering repeats"
    assert [r.tool for r in opened.request.replays] == ["price"]
    before = len(runtime.events())
    await runtime.resume(Answer(id=opened.request.id, ok=True, by="ada"))
    check(list(runtime._driver.log))
    events = runtime.events(after=before)
    answer = the(e.AnswerGiven, events)
    assert (answer.request_id, answer.ok, answer.by, answer.inline, answer.expired) == (
        opened.request.id,
        True,
        "ada",
        False,
        False,
    )
    assert the(e.Rewound, events).attempt == 2
    turns = [(x.turn, x.attempt) for x in events if isinstance(x, e.TurnFinished)]
    assert turns == [(1, 2), (2, 2)]
    again = the(e.ToolFinished, events, name="reserve")
    assert (again.call_id, again.output, again.reused) == ("c5", "tea kept", True)
    assert [x.call.name for x in events if isinstance(x, e.ToolStarted)] == ["price", "pay"]
    assert the(e.RequestOpened, runtime.events()).request.replays == (), "it is answered"


async def test_a_team_is_told_with_who_did_what() -> None:
    low = Agent("low", does="x", tools=[pay])
    mid = Agent("mid", does="x", team=[low])
    top = Agent("top", does="x", team=[mid])
    model = MockModel(
        {
            "top": [call("task", agent="mid", prompt="p"), say("all done")],
            "mid": [call("task", agent="low", prompt="q"), say("mid done")],
            "low": [call("pay", amount=1), say("low done")],
        }
    )
    result, runtime = await run(top, model)
    assert result.pending is not None
    await runtime.resume(Answer(id=result.pending.id, ok=True))
    check(list(runtime._driver.log))
    events = runtime.events()
    deepest = "root/top.1/mid.1/low.1"
    assert [(x.handle, x.parent) for x in events if isinstance(x, e.HandleSpawned)] == [
        ("root/top.1", "root"),
        ("root/top.1/mid.1", "root/top.1"),
        (deepest, "root/top.1/mid.1"),
    ]
    assert the(e.RequestOpened, events).handle == deepest
    tasks = [x for x in events if isinstance(x, e.ToolStarted) and x.handle == "root/top.1"]
    assert [(x.child, x.reused) for x in tasks] == [("root/top.1/mid.1", False), ("root/top.1/mid.1", True)]
    # An ancestor rewinds when nothing below it waits any more: its call has had the child's result by then.
    done = [x for x in events if isinstance(x, e.ToolFinished) and x.handle == "root/top.1"][-1]
    assert (done.name, done.output, done.child, done.reused) == ("task", "mid done", "root/top.1/mid.1", True)
    assert done.metadata["total_tokens"] == runtime.usage_tokens("root/top.1/mid.1")


async def test_rulings_are_told() -> None:
    def rule(event: GuardrailEvent) -> Ruling:
        match event.call.arguments.get("item"):
            case "gin":
                return Deny("no spirits")
            case "tea":
                return Allow()
            case item:
                return Ask(f"{item}?")

    agent = Agent("a", does="x", tools=[price], guardrails=[rule])
    items = ("gin", "tea", "rum", "ale", "mead")
    model = MockModel([[call("price", item=item) for item in items], say("done")])
    result, runtime = await run(agent, model, resume_policy=ResumePolicy.CONTINUE)
    asked = {r.prompt: r.id for r in result.pendings}
    await runtime.resume(
        [
            Answer(id=asked["rum?"], ok=False, reason="too strong"),
            Answer(id=asked["ale?"], ok=True, data={"arguments": {"item": "tea"}}),
            Answer(id=asked["mead?"], ok=True, data={"output": "sold out"}),
        ]
    )
    check(list(runtime._driver.log))
    events = runtime.events()
    denied = [
        (x.call.id, x.call.arguments, x.reason, x.declined) for x in events if isinstance(x, e.ToolDenied)
    ]
    assert denied == [
        ("c1", {"item": "gin"}, "no spirits", False),
        ("c3", {"item": "rum"}, "too strong", True),
    ]
    started = [(x.call.id, x.call.arguments) for x in events if isinstance(x, e.ToolStarted)]
    assert started == [("c2", {"item": "tea"}), ("c4", {"item": "tea"})], "the arguments that run"
    assert the(e.ToolFinished, events, call_id="c5").output == "sold out"
    turn = next(x for x in events if isinstance(x, e.TurnFinished))
    assert turn.message.tool_calls[3].arguments == {"item": "ale"}, "and those the model wrote"


async def test_verdicts_and_limits_are_told() -> None:
    gate = Completion(lambda work: (work.number == 2, f"round {work.number}"), max_attempts=3)
    agent = Agent("a", does="x", tools=[price], completion=gate, budget=Budget(max_tool_calls=1))
    tea = call("price", item="tea")
    model = MockModel(prompts=[[tea, say("one")], [tea, say("two")]])
    asked: list[LimitInfo] = []

    def on_limit(info: LimitInfo) -> LimitDecision:
        asked.append(info)
        return Extend(Budget(max_tool_calls=5))

    result, runtime = await run(agent, model, on_limit=on_limit)
    assert result.status == "done"
    events = runtime.events()
    verdicts = [x.verdict for x in events if isinstance(x, e.VerdictGiven)]
    assert [(v.ok, v.reason, v.number) for v in verdicts] == [(False, "round 1", 1), (True, "round 2", 2)]
    assert verdicts == list(result.verdicts)
    limits = [x for x in events if isinstance(x, e.LimitReached)]
    assert [(x.limit, x.limit_at, x.call_id) for x in limits] == [
        ("maxToolCalls", "root/a.1", "c2"),
        ("maxToolCalls", "root/a.1", None),
    ]
    assert (limits[1].cap, limits[1].spent) == ("1", "1")
    assert len(asked) == 1


async def test_a_stop_is_told_with_the_limit_and_a_failure_with_the_error() -> None:
    agent = Agent("a", does="x", tools=[price], budget=Budget(max_turns=1))
    model = MockModel([call("price", item="tea"), ModelError("no", type="Down", status_code=503)])
    result, runtime = await run(agent, model)
    settled = the(e.HandleSettled, runtime.events())
    assert (settled.status, settled.limit, settled.limit_at, settled.error) == (
        "incomplete",
        result.limit,
        "root/a.1",
        None,
    )
    await runtime.extend(Budget(max_turns=5))
    check(list(runtime._driver.log))
    events = runtime.events(after=settled.position)
    assert the(e.Resumed, events).stopped
    failed = the(e.HandleSettled, events)
    assert failed.error == runtime.result().error
    assert failed.error is not None
    assert failed.error.status_code == 503


async def test_expiry_and_inline_answers_are_marked() -> None:
    clock = VirtualClock()

    @tool
    async def hurry(ctx: ToolContext[None]) -> str:
        answer = await ctx.ask("Now?", expires_at=clock.now() + timedelta(seconds=5))
        return answer.reason or "fine"

    agent = Agent("a", does="x", tools=[hurry])

    async def expired(request: Request) -> Answer[Any]:
        return Answer(id=request.id, ok=False, reason="expired", by="ada")

    _, runtime = await agent.run("go", model=MockModel([call("hurry"), "x"]), clock=clock, wait_for=expired)
    answer = the(e.AnswerGiven, runtime.events())
    assert (answer.inline, answer.expired) == (True, False), "somebody only said the word"
    _, runtime = await agent.run("go", model=MockModel([call("hurry"), "x"]), clock=clock)
    await clock.advance(6)
    await runtime.recover()
    answer = the(e.AnswerGiven, runtime.events())
    assert (answer.expired, answer.ok, answer.by) == (True, False, None)


async def test_another_process_reads_the_same() -> None:
    store = MemoryStore()
    agent = Agent("a", does="x", tools=[pay])
    _, runtime = await run(agent, MockModel([call("pay", amount=7), say("x")]), store=store)
    again = await Runtime.open(agent, runtime.id, store=store, model=MockModel(["x"]), clock=VirtualClock())
    assert again.events() == runtime.events()


# ------------------------------------------------------------------ one by one


def feed(*facts: f.Fact) -> list[Any]:
    fold, at = EventFold(), 1_000_000
    return [fold.feed(number, at, fact) for number, fact in enumerate(facts, 1)]


OPENED = (
    f.RunOpened("run", "a", "rewind", plan().dump()),
    f.HandleSpawned("root/a.1", "root", "a"),
)


def test_ids_of_calls_go_on_where_a_seeded_history_ends() -> None:
    history = '[{"role":"assistant","text":"","tool_calls":[{"id":"c7","name":"t","arguments":{}}]},'
    history += '{"role":"tool","text":"","call_id":"c7","name":"t"},{"role":"user","text":"x"}]'
    events = feed(
        *OPENED,
        f.HistorySeeded("root/a.1", history),
        f.WakeStarted("root/a.1", "go"),
        f.ModelCalled("root/a.1", 1),
        f.ModelReplied("root/a.1", 1, "", (f.CallSpec("t", "{}"),)),
        f.Rewound("root/a.1"),
        f.ModelReplied("root/a.1", 2, "", (f.CallSpec("t", "{}"),)),
    )
    turns = [x for x in events if isinstance(x, e.TurnFinished)]
    assert [x.message.tool_calls[0].id for x in turns] == ["c8", "c9"]


def test_a_wake_that_never_began_is_settled_all_the_same() -> None:
    events = feed(*OPENED, f.WakeQueued("root/a.1", "go"), f.WakeDropped("root/a.1", "interrupted"))
    assert (events[-1].kind, events[-1].status) == ("settled", "interrupted")
    parked = feed(*OPENED, f.WakeStarted("root/a.1", "go"), f.WakeDropped("root/a.1", "interrupted"))
    assert (parked[-1].kind, parked[-1].fact) == ("recorded", "wake_dropped")


def test_every_kind_has_one_class_and_deltas_and_results_survive_json() -> None:
    kinds = [cls.model_fields["kind"].default for cls in CLASSES]
    assert len(set(kinds)) == len(kinds) == len(e.__all__) - 1
    head: dict[str, Any] = {"position": 3, "handle": "root/a.1", "at": when(5)}
    result = TaskResult[Any](
        text="x",
        partial="x",
        status=Status.DONE,
        output={"n": [1]},
        turns=1,
        total_tokens=1,
        own_tokens=1,
        usage=Usage(),
        own_usage=Usage(),
        handle="root/a.1",
        run_id="r",
    )
    for event in (
        e.TextDelta(**head, text="é"),
        e.ReasoningDelta(**head, text=""),
        e.ResultReady(**head, result=result),
        e.Recorded(**head, fact="item_posted", data={"text": "x"}),
    ):
        assert EVENT.validate_json(EVENT.dump_json(event)) == event


def test_an_event_cannot_be_changed_and_knows_no_other_field() -> None:
    event = feed(*OPENED)[1]
    with pytest.raises(ValidationError):
        event.position = 4
    with pytest.raises(ValidationError):
        EVENT.validate_python({**event.model_dump(), "more": 1})
    with pytest.raises(ValidationError, match="kind"):
        EVENT.validate_python({**event.model_dump(), "kind": "spawn"})
