"""Rules of guardrails, gates, typed answers and caps that hold whichever way a wake goes: without a driver."""

from __future__ import annotations

from typing import Any

import pytest

from overt.core import facts as f
from overt.core import inputs as i
from overt.core.effects import AskHost, AskLimit, CallModel, CallTool, CheckCalls, CheckText, Verify
from overt.message import ToolMessage
from tests.core.sim import Sim, call, plan, task

A = "root/a.1"
ALLOW = f.RulingSpec("allow")
FINAL = f.CallSpec("final_result", '{"value":1}')
TIME = {"a": f.Caps(max_wall=10.0)}


def begun(*, policy: str = "rewind", **options: Any) -> Sim:
    sim = Sim(plan(**options), policy=policy)
    sim.begin()
    return sim


def one(sim: Sim, kind: type) -> Any:
    """The only open effect of a kind."""
    (effect,) = sim.effects(kind)
    return effect


def ask(prompt: str = "may I?", data: str = "{}") -> f.RulingSpec:
    return f.RulingSpec("ask", question=f.Question("approval", prompt, data=data))


def text_ruled(sim: Sim, ruling: f.RulingSpec) -> None:
    sim.step(i.TextRuled(one(sim, CheckText).id, ruling))


def stopped_by_the_clock(sim: Sim) -> None:
    sim.now += 11_000_000
    sim.step(i.Tick())
    assert sim.result().limit == "maxWall"


def goes_on(sim: Sim) -> None:
    sim.step(i.Extend(f.Caps(max_wall=1000.0)))


def answers(sim: Sim, *, typed: bool, number: int = 1) -> None:
    """The model gives its final answer."""
    if typed:
        sim.reply("", FINAL, output=str(number))
    else:
        sim.reply(f"it is {number}")


# ------------------------------------------------------------ a final answer and a stop


@pytest.mark.parametrize("typed", [False, True])
def test_an_answer_that_was_being_judged_at_a_stop_is_judged_when_it_goes_on(typed: bool) -> None:
    sim = begun(caps=TIME, policed={"gate": 3, "typed": typed})
    answers(sim, typed=typed)
    stopped_by_the_clock(sim)
    goes_on(sim)
    sim.step(i.VerifyDone(one(sim, Verify).id, False, "not yet"))
    answers(sim, typed=typed, number=2)
    sim.step(i.VerifyDone(one(sim, Verify).id, True, "good"))
    result = sim.result()
    assert (result.status, result.turns, len(result.verdicts)) == ("done", 2, 2)
    told = [m for m in sim.node(A).messages if isinstance(m, ToolMessage)]
    assert [(m.text, m.is_error) for m in told] == ([("not yet", True), ("accepted", False)] if typed else [])


@pytest.mark.parametrize("typed", [False, True])
def test_a_rewind_to_a_stop_finds_the_answer_that_was_given_before_it(typed: bool) -> None:
    sim = begun(caps=TIME, policed={"gate": 3, "output_guards": ("o",), "typed": typed})
    answers(sim, typed=typed)
    stopped_by_the_clock(sim)
    goes_on(sim)
    sim.step(i.VerifyDone(one(sim, Verify).id, False, "not yet"))
    answers(sim, typed=typed, number=2)
    sim.step(i.VerifyDone(one(sim, Verify).id, True, "good"))
    text_ruled(sim, ask())
    sim.answer()
    assert sim.node(A).wake.attempt == 2  # type: ignore[union-attr]
    assert one(sim, Verify).number == 1
    sim.step(i.VerifyDone(one(sim, Verify).id, True, "good after all"))
    text_ruled(sim, ask())
    result = sim.result()
    assert (result.status, result.turns, len(result.verdicts)) == ("done", 2, 1)
    assert result.text == ("1" if typed else "it is 1")


# ------------------------------------------------------------ questions about a prompt or an answer


@pytest.mark.parametrize("typed", [False, True])
def test_a_replay_may_ask_otherwise_about_its_answer_as_often_as_about_a_call(typed: bool) -> None:
    sim = begun(policed={"output_guards": ("o",), "typed": typed}, max_divergences=2)
    for n in range(4):
        answers(sim, typed=typed, number=n)
        text_ruled(sim, ask("may I?", f'{{"output":{n}}}'))
        if n < 3:
            pending = sim.result().pending
            assert pending is not None
            assert pending.diverged is (n > 0)
            sim.answer()
    error = sim.result().error
    assert error is not None
    assert error.type == "ReplayDiverged"


@pytest.mark.parametrize("hosted", [False, True])
@pytest.mark.parametrize("what", ["prompt", "output"])
def test_what_was_agreed_to_is_not_asked_about_again_in_other_words(what: str, hosted: bool) -> None:
    sim = begun(policy="continue", policed={f"{what}_guards": ("o",)}, hosted=("a",) if hosted else ())
    if what == "output":
        answers(sim, typed=False)
    text_ruled(sim, ask("at noon?"))
    if hosted:
        host = one(sim, AskHost)
        sim.step(i.HostDone(host.id, i.AnswerSpec(host.request, True)))
    else:
        sim.answer()
    text_ruled(sim, ask("at one?"))
    if what == "prompt":
        answers(sim, typed=False)
    assert sim.result().status == "done"


def test_another_answer_is_asked_about_although_one_was_agreed_to() -> None:
    sim = begun(policy="continue", policed={"output_guards": ("o",), "gate": 2})
    answers(sim, typed=False)
    sim.step(i.VerifyDone(one(sim, Verify).id, True))
    text_ruled(sim, ask("may I?", '{"output":"1"}'))
    sim.answer()
    text_ruled(sim, f.RulingSpec("deny", "no"))
    sim.step(i.Recover(policy="rewind"))
    answers(sim, typed=False, number=2)
    sim.step(i.VerifyDone(one(sim, Verify).id, True))
    text_ruled(sim, ask("may I?", '{"output":"2"}'))
    assert sim.result().status == "pending"


# ------------------------------------------------------------ typed answers that are none


@pytest.mark.parametrize("asked", [False, True])
def test_an_answer_the_output_limit_cut_off_is_none_whatever_is_left_of_it(asked: bool) -> None:
    sim = begun(root=f.Caps(max_tokens=100), policed={"typed": True}, on_limit=asked)
    sim.reply("", FINAL, output="1", finish="length")
    if asked:
        sim.step(i.LimitRuled(one(sim, AskLimit).id, "extend", f.Caps(max_tokens=1000)))
    else:
        assert sim.result().limit == "maxTokens"
        sim.step(i.Extend(f.Caps(max_tokens=1000)))
    assert one(sim, CallModel)
    (told,) = [m for m in sim.node(A).messages if isinstance(m, ToolMessage)]
    assert told.text == "cut off by the output limit, not executed"


def test_a_model_is_told_why_its_answer_is_none_although_a_hook_failed_over_it() -> None:
    sim = begun(policed={"typed": True})
    sim.reply("one", refused="give a number", error=f.ErrorSpec("Boom", "in a hook", "hook"))
    assert sim.result().status == "error"
    sim.step(i.Recover())
    assert one(sim, CallModel)
    assert sim.node(A).messages[-1].text == "give a number"


# ------------------------------------------------------------ calls that were kept out


def test_a_result_a_hook_gave_is_not_forgotten_where_the_turns_were_spent() -> None:
    sim = begun(caps={"a": f.Caps(max_turns=1)}, policed={"before_tool": True})
    given = f.RulingSpec("allow", output="given", metadata='{"overridden":"before_tool"}')
    sim.reply("", call("t")._replace(ruling=given), call("ask"), ruled=True)
    assert sim.result().limit == "maxTurns"
    sim.step(i.Extend(f.Caps(max_turns=3)))
    first, second = sim.node(A).wake.batch  # type: ignore[union-attr,misc]
    assert (first.seen, second.seen) == (False, True), "which of them the hook is asked about"
    sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (given, ALLOW)))
    assert sim.call_of(one(sim, CallTool)).name == "ask"
    assert first.output == "given"


@pytest.mark.parametrize("checks", [False, True])
@pytest.mark.parametrize("why", ["turns", "hook"])
def test_a_delegation_that_strays_does_not_get_in_past_a_stop(why: str, checks: bool) -> None:
    sim = begun(caps={"a": f.Caps(max_turns=2)}, policed={"guards": ("g",)} if checks else {}, on_limit=True)
    sim.reply("", task("c", "p"), call("ask"))
    if checks:
        sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (ALLOW, ALLOW)))
    sim.reply("child", handle=f"{A}/c.1")
    sim.ask()
    sim.answer()
    if why == "hook":
        sim.reply("", task("c", "other"), error=f.ErrorSpec("Boom", "in a hook", "hook"))
        sim.step(i.Recover())
    else:
        sim.reply("", call("nope", error="unknown tool"))
        sim.reply("", task("c", "other"))
        sim.step(i.LimitRuled(one(sim, AskLimit).id, "extend", f.Caps(max_turns=9)))
    if checks:
        sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (ALLOW,)))
    error = sim.result().error
    assert error is not None
    assert error.type == "ReplayDiverged"
    assert list(sim.tree.nodes) == ["root", A, f"{A}/c.1"]
