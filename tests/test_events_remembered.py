"""What events take from earlier facts, over replays, stops and doubts. `check` holds each against the tree."""

from __future__ import annotations

from typing import Any

from overt import Agent, Answer, Ask, Budget, GuardrailEvent, Hooks, Ruling, ToolOverride
from overt import events as e
from overt.core import facts as f
from overt.core import inputs as i
from overt.core.effects import CallModel, Verify
from overt.driver.events import event_views
from overt.guardrail import Allow
from overt.testing import MockModel, call, say
from tests.core.sim import Sim, plan, task
from tests.core.sim import call as asks
from tests.test_events import check, log_of, price, run, the

CHILD = "root/a.1/b.1"


def finished(sim: Sim, **fields: Any) -> list[e.ToolFinished]:
    found = [x for x in check(log_of(sim)) if isinstance(x, e.ToolFinished)]
    return [x for x in found if all(getattr(x, n) == v for n, v in fields.items())]


def ask_and_rewind(sim: Sim) -> None:
    """Have the tool that asks park the wake, and answer, so that it rewinds."""
    sim.ask()
    sim.answer()


def test_the_second_of_two_equal_calls_keeps_its_own_result() -> None:
    sim = Sim(plan())
    sim.begin()
    for _ in range(2):
        sim.reply("", asks("u"), asks("u", '{"x":1.0}'), asks("u"), asks("ask"))
        if sim.open_requests() == [] and len(sim.log) < 8:
            for output in ("first", "float", "second"):
                sim.ret("u", output)
            ask_and_rewind(sim)
    assert [x.output for x in finished(sim, reused=True)] == ["first", "float", "second"]


def test_a_number_written_otherwise_is_the_same_call() -> None:
    sim = Sim(plan())
    sim.begin()
    sim.reply("", asks("u", '{"x":1.0}'), asks("ask"))
    sim.ret("u", "one")
    ask_and_rewind(sim)
    sim.reply("", asks("u", '{"x":1}'), asks("ask"))
    assert [x.output for x in finished(sim, reused=True)] == ["one"]


def test_what_came_before_a_limit_stop_is_not_counted_anew() -> None:
    sim = Sim(plan(caps={"a": f.Caps(max_turns=1)}))
    sim.begin()
    sim.reply("", asks("u"))
    assert sim.result().status == "incomplete"
    sim.step(i.Extend(f.Caps(max_turns=9)))
    sim.ret("u", "of the stop")
    sim.reply("", asks("u"), asks("ask"))
    sim.ret("u", "after it")
    ask_and_rewind(sim)
    sim.reply("", asks("u"), asks("ask"))
    assert [x.output for x in finished(sim, reused=True)] == ["of the stop", "after it"]


def test_calls_of_a_reply_that_was_dropped_do_not_count() -> None:
    sim = Sim(plan())
    sim.begin()
    sim.reply("", asks("u"), finish="content_filter")
    assert sim.result().status == "error"
    sim.step(i.Recover(None, failed=True))
    sim.reply("", asks("u"), asks("ask"))
    sim.ret("u", "kept")
    ask_and_rewind(sim)
    sim.reply("", asks("u"), asks("ask"))
    assert [x.output for x in finished(sim, reused=True)] == ["kept"]


def in_child(sim: Sim, *calls: f.CallSpec) -> None:
    sim.begin()
    sim.reply("", task("b", "p"))
    sim.reply("", *calls, handle=CHILD)


def test_a_childs_result_says_what_of_it_is_in_doubt() -> None:
    sim = Sim(plan())
    in_child(sim, asks("u", '{"x":1}'), asks("t"))
    sim.step(i.OnceBegin(sim.tool("t").id, "block"))
    sim.step(i.Interrupt(CHILD, "told to"))
    (done,) = finished(sim, child=CHILD)
    assert done.is_error
    assert 'In doubt, entered and left without an outcome: u({"x":1}), t({})' in done.output
    assert done.metadata["in_doubt"] == ['u({"x":1})', "t({})"]


def test_a_doubt_somebody_settled_is_none() -> None:
    sim = Sim(plan())
    in_child(sim, asks("u"), asks("t"))
    for name, label in (("u", None), ("t", "block")):
        effect = sim.tool(name).id
        if label is not None:
            sim.step(i.OnceBegin(effect, label))
        sim.step(i.ToolLost(effect, "cut off", False, ""))
    for request in sim.open_requests():
        sim.answer(request, data='{"outcome":"succeeded","output":"it did"}')
    sim.ret("t")
    sim.step(i.ModelLost(sim.effects(CallModel, CHILD)[0].id, f.ErrorSpec("Boom", "no", "model")))
    (done,) = finished(sim, child=CHILD)
    assert done.output == "[error] Boom: no"


def test_a_childs_result_has_the_last_verdict_of_its_attempt_or_none() -> None:
    for again in (False, True):
        sim = Sim(plan(caps={"b": f.Caps(max_turns=3)}, policed={"gate": 3}))
        sim.begin()
        sim.reply("", task("b", "p"))
        sim.reply("no good", handle=CHILD)
        sim.step(i.VerifyDone(sim.effects(Verify)[0].id, False, "try harder"))
        sim.reply("", asks("ask"), handle=CHILD)
        if again:
            ask_and_rewind(sim)
            sim.reply("", asks("t"), handle=CHILD)
            sim.ret("t")
            sim.reply("", asks("t"), handle=CHILD)
            sim.ret("t")
        else:
            sim.ret("ask")
        sim.reply("", asks("t"), handle=CHILD)
        done = finished(sim, child=CHILD)[-1]
        assert done.output.startswith("[incomplete] Stopped at maxTurns (3)")
        assert ("The completion gate's last verdict: try harder" in done.output) is not again


def test_a_childs_typed_output_is_its_result_until_it_is_sent_back() -> None:
    sim = Sim(plan(policed={"gate": 3, "typed": True}))
    sim.begin()
    sim.reply("", task("b", "p"))
    sim.reply("it is 1", handle=CHILD, output="1")
    sim.step(i.VerifyDone(sim.effects(Verify)[0].id, False, "try harder"))
    sim.reply("it is 2", handle=CHILD, output="2")
    sim.step(i.VerifyDone(sim.effects(Verify)[0].id, True, "good"))
    assert [x.output for x in finished(sim, child=CHILD)] == ["2"]


def hooked(event: Any) -> ToolOverride | None:
    return ToolOverride(arguments={"item": "cocoa"}) if event.call.arguments["item"] == "tea" else None


async def test_arguments_a_hook_changed_are_those_that_start() -> None:
    agent = Agent("a", does="x", tools=[price], hooks=Hooks(before_tool=hooked))
    batch = [call("price", item="tea"), call("price", item="rum")]
    _, runtime = await run(agent, MockModel([batch, say("done")]))
    started = [x.call.arguments for x in runtime.events() if isinstance(x, e.ToolStarted)]
    assert started == [{"item": "cocoa"}, {"item": "rum"}]


async def test_arguments_an_approver_changed_start_in_every_attempt() -> None:
    def rule(event: GuardrailEvent) -> Ruling:
        return Ask("Really?") if event.call.arguments["item"] == "ale" else Allow()

    agent = Agent("a", does="x", tools=[price], guardrails=[rule])
    result, runtime = await run(agent, MockModel([call("price", item="ale"), say("done")]))
    assert result.pending is not None
    await runtime.resume(Answer(id=result.pending.id, ok=True, data={"arguments": {"item": "tea"}}))
    events = check(list(runtime._driver.log))
    assert the(e.Rewound, events).attempt == 2
    assert the(e.ToolStarted, events).call.arguments == {"item": "tea"}


def test_events_past_a_position_need_all_before_it() -> None:
    sim = Sim(plan())
    in_child(sim, asks("u"))
    sim.ret("u")
    log = log_of(sim)
    whole = list(event_views(log, 0))
    for after in range(len(whole) + 1):
        assert list(event_views(log, after)) == whole[after:]


async def test_arguments_an_approver_changed_start_after_a_rewind_to_a_limit_stop() -> None:
    agent = Agent(
        "a", does="x", tools=[price], guardrails=[lambda event: Ask("Really?")], budget=Budget(max_turns=1)
    )
    _, runtime = await run(agent, MockModel([call("price", item="ale"), say("done")]))
    result = await runtime.extend(Budget(max_turns=9))
    assert result.pending is not None
    await runtime.resume(Answer(id=result.pending.id, ok=True, data={"arguments": {"item": "tea"}}))
    events = check(list(runtime._driver.log))
    assert the(e.ToolStarted, events).call.arguments == {"item": "tea"}
