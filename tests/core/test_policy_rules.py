"""Rules of guardrails, gates, typed answers and caps that hold whichever way a wake goes: without a driver."""

from __future__ import annotations

from typing import Any

import pytest

from overt.core import facts as f
from overt.core import inputs as i
from overt.core.budget import next_deadline
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


def allow_all(sim: Sim) -> None:
    """The guardrails let every call they are asked about."""
    effect = one(sim, CheckCalls)
    sim.step(i.ChecksRuled(effect.id, (ALLOW,) * len(effect.calls)))


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


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("left", [(), ("h",)])
def test_a_question_a_stop_took_back_unanswered_binds_although_its_rule_is_gone(
    left: tuple[str, ...], answer: bool
) -> None:
    sim = begun(caps=TIME, policy="continue", policed={"guards": ("g", "h")})
    sim.reply("", call("t", '{"x":1}'), call("ask"))
    asked = ask("may I?", '{"call":{"arguments":{"x":1},"tool":"t"}}')
    sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (asked, ALLOW)))
    stopped_by_the_clock(sim)
    sim.step(i.Drift(plan(caps=TIME, policed={"guards": left}).dump()))
    goes_on(sim)
    if left:
        sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (ALLOW, ALLOW)))
    assert [sim.call_of(e).name for e in sim.effects(CallTool)] == ["ask"]
    sim.ret("ask")
    pending = sim.result().pending
    assert pending is not None
    assert (pending.prompt, pending.data) == ("may I?", {"call": {"tool": "t", "arguments": {"x": 1}}})
    sim.answer(ok=answer)
    if left and answer:
        sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (ALLOW,)))
    assert [sim.call_of(e).name for e in sim.effects(CallTool)] == (["t"] if answer else [])


@pytest.mark.parametrize("decision", ["extend", "suspend"])
def test_rules_are_asked_again_about_a_call_that_waited_for_a_budget(decision: str) -> None:
    sim = begun(caps={"a": f.Caps(max_tool_calls=1)}, policed={"guards": ("g",)}, on_limit=True)
    sim.reply("", call("t"), call("ask"))
    sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (ALLOW, ALLOW)))
    sim.ret("t")
    more = f.Caps(max_tool_calls=5) if decision == "extend" else None
    sim.step(i.LimitRuled(one(sim, AskLimit).id, decision, more))
    if decision == "suspend":
        sim.answer(data="4")
    sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (f.RulingSpec("deny", "not any more"),)))
    assert not sim.effects(CallTool)
    assert sim.node(A).own.tool_calls == 1


# ------------------------------------------------------------ caps, and several who meet them


def two_at_a_cap(**options: Any) -> tuple[Sim, str, str]:
    """Two children, the one with a call in flight and one kept out, the other asking about the run's tool calls."""
    sim = begun(root=f.Caps(max_tool_calls=3), on_limit=True, **options)
    sim.reply("", task("c", "p"), task("c", "q"))
    first, second = f"{A}/c.1", f"{A}/c.2"
    sim.reply("", call("t"), call("ask"), handle=first)
    sim.reply("", call("t"), handle=second)
    return sim, first, second


def test_what_was_raised_further_meanwhile_is_not_lowered_and_no_error() -> None:
    sim, first, second = two_at_a_cap()
    sim.ret("t", handle=first)
    one_of, other = sim.effects(AskLimit)
    sim.step(i.LimitRuled(one_of.id, "extend", f.Caps(max_tool_calls=30)))
    sim.step(i.LimitRuled(other.id, "extend", f.Caps(max_tool_calls=4)))
    assert sorted(e.handle for e in sim.effects(CallTool)) == [first, second]
    assert sim.tree.root.caps.max_tool_calls == 30


def test_less_than_what_was_asked_about_is_an_error_still() -> None:
    sim, _, second = two_at_a_cap()
    sim.step(i.LimitRuled(one(sim, AskLimit).id, "extend", f.Caps(max_tool_calls=2)))
    error = sim.result(second).error
    assert error is not None
    assert "2 is below it" in error.message


@pytest.mark.parametrize("how", ["on_limit", "extend"])
def test_a_call_that_was_kept_out_is_let_in_by_a_raise_for_another(how: str) -> None:
    sim, first, _ = two_at_a_cap()
    more = f.Caps(max_tool_calls=30)
    if how == "on_limit":
        sim.step(i.LimitRuled(one(sim, AskLimit).id, "extend", more))
    else:
        sim.step(i.LimitRuled(one(sim, AskLimit).id, "stop"))
        sim.step(i.Spawn("root", "c"))
        sim.step(i.Wake("root/c.2", "go"))
        sim.reply("", call("t"), handle="root/c.2")
        sim.step(i.LimitRuled(one(sim, AskLimit).id, "stop"))
        sim.step(i.Extend(more, "root"))
    sim.ret("t", handle=first)
    assert not sim.effects(AskLimit)
    assert sim.tool("ask", first)


def test_room_that_another_took_while_a_call_was_looked_at_again_is_asked_about_anew() -> None:
    sim = begun(root=f.Caps(max_tool_calls=2), on_limit=True, policed={"guards": ("g",)})
    sim.reply("", task("c", "p"), task("c", "q"))
    sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (ALLOW, ALLOW)))
    first, second = f"{A}/c.1", f"{A}/c.2"
    sim.reply("", call("t"), handle=first)
    sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (ALLOW,)))
    sim.reply("", call("t"), handle=second)
    (others,) = sim.effects(CheckCalls)
    more = f.Caps(max_tool_calls=3)
    sim.step(i.LimitRuled(one(sim, AskLimit).id, "extend", more))
    sim.step(i.ChecksRuled(others.id, (ALLOW,)))
    assert sim.tool("t", second)
    sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (ALLOW,)))
    asked = one(sim, AskLimit)
    assert (asked.handle, asked.cap, asked.spent) == (first, "3", "3")
    # What gives no room is not asked about for ever.
    sim.step(i.LimitRuled(asked.id, "extend", more))
    sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (ALLOW,)))
    assert (sim.result(first).status, sim.result(first).limit) == ("incomplete", "maxToolCalls")


def test_room_that_a_call_in_flight_took_while_it_was_asked_about_is_asked_about_anew() -> None:
    sim = begun(root=f.Caps(max_tokens=3000), on_limit=True)
    sim.reply("", task("c", "p"), task("c", "q"))
    first, second = f"{A}/c.1", f"{A}/c.2"
    sim.reply("", call("t"), handle=first, tokens=f.Tokens(3000, 0))
    sim.ret("t", handle=first)
    sim.reply("", call("t"), handle=second, tokens=f.Tokens(1000, 0))
    asked = one(sim, AskLimit)
    sim.step(i.LimitRuled(asked.id, "extend", f.Caps(max_tokens=4000)))
    again = one(sim, AskLimit)
    assert [(e.handle, e.cap, e.spent) for e in (asked, again)] == [
        (first, "3000", "3100"),
        (first, "4000", "4100"),
    ]


def test_time_that_is_gone_before_it_is_given_is_not_asked_about_for_ever() -> None:
    sim = begun(caps=TIME, on_limit=True)
    sim.reply("", call("t"))
    sim.now += 11_000_000
    sim.ret("t")
    sim.now += 5_000_000
    sim.step(i.LimitRuled(one(sim, AskLimit).id, "extend", f.Caps(max_wall=13.0)))
    assert (sim.result().status, sim.result().limit) == ("incomplete", "maxWall")


def test_time_ends_nothing_while_it_is_asked_about() -> None:
    sim = begun(caps=TIME, on_limit=True)
    sim.reply("", call("t"))
    sim.now += 11_000_000
    sim.ret("t")
    asked = one(sim, AskLimit)
    assert next_deadline(sim.tree) is None
    sim.step(i.Tick())
    assert sim.effects(AskLimit) == [asked]
    sim.step(i.LimitRuled(asked.id, "extend", f.Caps(max_wall=100.0)))
    assert one(sim, CallModel)
    assert next_deadline(sim.tree) is not None


def test_exact_seconds_are_told() -> None:
    sim = begun(caps={"a": f.Caps(max_wall=1234567.25)}, on_limit=True)
    sim.reply("", call("t"))
    sim.now += 1_234_568_000_001
    sim.ret("t")
    asked = one(sim, AskLimit)
    assert (asked.cap, asked.spent) == ("1234567.25", "1234568.002001")


def test_answers_in_one_list_all_count_where_one_of_them_ends_another() -> None:
    sim = begun(root=f.Caps(max_tool_calls=2), on_limit=True, hosted=())
    sim.reply("", task("b", "p"), call("ask"))
    below = f"{A}/b.1"
    sim.step(i.Spawn(below, "c"))
    sim.step(i.Wake(f"{below}/c.1", "x"))
    sim.reply("", call("ask"), handle=f"{below}/c.1")
    sim.step(i.LimitRuled(one(sim, AskLimit).id, "suspend"))
    sim.reply("", call("ask"), handle=below)
    sim.step(i.LimitRuled(one(sim, AskLimit).id, "suspend"))
    inner, outer = sim.open_requests()
    sim.step(i.Deliver((i.AnswerSpec(outer, False, None, "no"), i.AnswerSpec(inner, True, "5"))))
    assert {r.status for r in sim.tree.requests.values()} == {"answered"}
    assert sim.tree.root.open_requests == 0


# ------------------------------------------------------------ what approvals and edits leave


def told(sim: Sim) -> list[tuple[str, dict[str, Any]]]:
    return [(m.text, dict(m.metadata)) for m in sim.node(A).messages if isinstance(m, ToolMessage)]


@pytest.mark.parametrize("policy", ["rewind", "continue"])
@pytest.mark.parametrize("outcome", ["run", "denied", "reused"])
def test_the_model_is_told_which_arguments_ran_under_either_policy(policy: str, outcome: str) -> None:
    tool = "u" if outcome == "reused" else "t"
    sim = begun(policy=policy, policed={"guards": ("g",)})
    asked = call(tool, '{"x":1}')
    sim.reply("", asked)
    sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (ask(),)))
    sim.step(i.Deliver((i.AnswerSpec(sim.open_requests()[0], True, "{}", args='{"x":2}'),)))
    if policy == "rewind":
        sim.reply("", asked)
    denied = outcome == "denied"
    sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (f.RulingSpec("deny", "not 2") if denied else ask(),)))
    if not denied:
        sim.ret(tool, "paid")
    if outcome == "reused":
        sim.reply("", call("ask"))
        sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (ALLOW,)))
        sim.ask()
        sim.answer(policy="rewind")
        sim.reply("", asked)
    sim.reply("fin")
    changed = {"arguments": {"x": 2}}
    if denied:
        assert told(sim) == [("denied: not 2", {"denied": True, **changed})]
    else:
        note = '[run with arguments changed by whoever approved it: {"x":2}]\npaid'
        assert told(sim)[0] == (note, changed)


def test_a_reused_result_says_with_which_arguments_a_hook_had_it_run() -> None:
    sim = begun(policed={"before_tool": True})
    edited = f.RulingSpec("allow", edit='{"x":2}')
    for attempt in (1, 2):
        sim.reply("", call("u", '{"x":1}'))
        if attempt == 1:
            sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (edited,)))
            sim.ret("u", "paid")
            sim.reply("", call("ask"))
            sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (ALLOW,)))
            sim.ask()
            sim.answer()
    sim.reply("fin")
    assert told(sim) == [("paid", {"arguments": {"x": 2}})]
    replay = sim.result().replay
    assert replay is not None
    assert [c.arguments for c in replay.calls_reused] == [{"x": 2}]


def test_an_approval_before_a_stop_is_held_against_the_question_after_a_rewind_to_it() -> None:
    sim = begun(caps=TIME, policed={"guards": ("g",)}, hosted=("a",))
    sim.reply("", call("t"), call("ask"))
    sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (ask("one?"), ALLOW)))
    host = one(sim, AskHost)
    sim.step(i.HostDone(host.id, i.AnswerSpec(host.request, True)))
    stopped_by_the_clock(sim)
    goes_on(sim)
    sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (ask("in other words?"), ALLOW)))
    sim.ask()
    sim.ret("t")
    sim.step(i.HostDone(one(sim, AskHost).id))
    sim.answer()
    sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (ask("another?"), ALLOW)))
    (request,) = [r for r in sim.tree.requests.values() if r.status == "open"]
    assert (request.question.prompt, request.diverged) == ("another?", True)


@pytest.mark.parametrize("at_once", [False, True])
def test_what_a_rule_asks_is_recorded_once(at_once: bool) -> None:
    sim = begun(policed={"guards": ("g",), "prompt_guards": ("p",)})
    text_ruled(sim, ask("read this?"))
    sim.answer(policy="continue")
    text_ruled(sim, ask("read this?"))
    if at_once:
        sim.reply("", call("t")._replace(ruling=ask("do this?")), ruled=True)
    else:
        sim.reply("", call("t"))
        sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (ask("do this?"),)))
    pending = sim.result().pending
    assert pending is not None
    assert pending.prompt == "do this?"
    journal = repr([facts for _, facts in sim.log])
    assert (journal.count("read this?"), journal.count("do this?")) == (1, 1)


@pytest.mark.parametrize("policy", ["rewind", "continue"])
def test_arguments_that_were_shown_and_are_said_again_change_nothing(policy: str) -> None:
    sim = begun(policy=policy, policed={"guards": ("g",)})
    for attempt in (1, 2):
        if attempt == 1 or policy == "rewind":
            sim.reply("", call("t", '{"x":1}'))
        sim.step(i.ChecksRuled(one(sim, CheckCalls).id, (ask(),)))
        if attempt == 1:
            sim.step(i.Deliver((i.AnswerSpec(sim.open_requests()[0], True, "{}", args='{"x":1}'),)))
    sim.ret("t", "paid")
    sim.reply("fin")
    assert told(sim) == [("paid", {})]


@pytest.mark.parametrize(
    ("finish", "type"), [("refusal", "Refusal"), ("stop", "EmptyReply"), ("length", "Boom")]
)
def test_a_hook_that_failed_over_a_reply_that_is_none_is_told(finish: str, type: str) -> None:
    sim = begun(root=f.Caps(max_tokens=100), on_limit=True)
    sim.reply("", finish=finish, error=f.ErrorSpec("Boom", "in a hook", "hook"))
    assert not sim.effects(AskLimit)
    error = sim.result().error
    assert error is not None
    assert error.type == type
    assert type == "Boom" or error.detail == "a hook failed over it: Boom: in a hook"


def test_a_reply_a_stop_has_kept_is_dropped_whole_where_it_diverges() -> None:
    """What goes back to the checkpoint afterwards finds it as it is."""
    sim = begun(caps=TIME, policed={"guards": ("g",)})
    sim.reply("", call("ask"))
    allow_all(sim)
    sim.ask()
    sim.answer()
    sim.reply("", task("b", "x"))
    stopped_by_the_clock(sim)
    kept = len(sim.node(A).messages)
    goes_on(sim)
    allow_all(sim)
    error = sim.result().error
    assert error is not None
    assert error.type == "ReplayDiverged"
    sim.step(i.Recover(None))
    assert len(sim.node(A).messages) < kept
    assert sim.node(A).bytes_since >= 0
    sim.reply("", call("ask"))
    allow_all(sim)
    sim.ret("ask")
    sim.reply("done")
    assert sim.result().status == "done"


def test_a_rewind_after_a_kept_reply_was_dropped_buys_another() -> None:
    sim = begun(caps=TIME, policed={"guards": ("g",)})
    sim.reply("", call("ask"))
    allow_all(sim)
    sim.ask()
    sim.answer()
    sim.reply("", task("b", "x"))
    stopped_by_the_clock(sim)
    goes_on(sim)
    allow_all(sim)
    sim.step(i.Recover("rewind"))
    sim.reply("", call("ask"))
    allow_all(sim)
    sim.ret("ask")
    sim.reply("done")
    assert sim.result().status == "done"


def test_an_extension_that_makes_room_lets_in_who_waits() -> None:
    sim = Sim(plan(caps={"a": f.Caps(max_concurrent=1, max_model_calls=1)}, on_limit=True))
    sim.begin(closes=False)
    sim.reply("idle")
    for n in (1, 2):
        sim.step(i.Spawn(A, "b"))
        sim.step(i.Wake(f"{A}/b.{n}", "go"))
    asked = one(sim, AskLimit)
    assert sim.node(f"{A}/b.2").queued == "wake"
    sim.step(i.LimitRuled(asked.id, "extend", f.Caps(max_concurrent=2, max_model_calls=9)))
    assert sim.node(f"{A}/b.2").queued is None
    assert len(sim.effects(CallModel)) == 2
