"""What a replay finds of earlier attempts, where it strays, and what is left in doubt: the rules without a driver."""

from __future__ import annotations

from overt.core import facts as f
from overt.core import inputs as i
from overt.core.effects import AskHost, CallTool
from overt.core.tree import Wake
from overt.request import Request
from overt.result import State
from tests.core.sim import Sim, call, plan, task

A, B1, B2 = "root/a.1", "root/a.1/b.1", "root/a.1/b.2"


def begun(**options: object) -> Sim:
    sim = Sim(plan(**options))
    sim.begin()
    return sim


def asks(sim: Sim, prompt: str, *, slot: int = 0, name: str = "ask") -> Request:
    """Have the open `name` ask its question number `slot`, and return the request that is new."""
    before = set(sim.tree.requests)
    sim.step(i.ToolAsked(sim.tool(name).id, f.Question("approval", prompt), slot))
    (new,) = set(sim.tree.requests) - before
    return next(r for r in sim.result().pendings if r.id == new)


def wake_of(sim: Sim, handle: str) -> Wake:
    wake = sim.node(handle).wake
    assert wake is not None
    return wake


def child_done(sim: Sim) -> None:
    """A child asks, is answered after the run has parked, and is done; the parent is about to replay."""
    sim.reply("", task("b", "p"))
    sim.reply("", call("ask"), handle=B1)
    sim.ask(handle=B1)
    sim.answer()
    sim.reply("", call("ask"), handle=B1)
    sim.ret("ask")
    sim.reply("child done", handle=B1)
    assert wake_of(sim, A).attempt == 2


def moved_checkpoint() -> Sim:
    """An inline answer, a stop at the turn cap, and after it a durable answer: the wake replays from the stop."""
    sim = begun(caps={"a": f.Caps(max_turns=2)})
    sim.reply("", call("ask", '{"x":1}'), call("u"))
    sim.ask()
    sim.answer()
    sim.ret("ask")
    sim.ret("u")
    sim.reply("", call("t"))
    assert sim.result().limit == "maxTurns"
    sim.step(i.Extend(f.Caps(max_turns=20)))
    sim.ret("t")
    sim.reply("", call("ask", '{"x":2}'))
    sim.ask()
    return sim


def test_what_the_checkpoint_keeps_is_claimed() -> None:
    sim = moved_checkpoint()
    sim.answer()
    sim.ret("t")
    sim.reply("", call("ask", '{"x":2}'))
    sim.ret("ask")
    sim.reply("", task("b", "new"))
    assert sim.node(B1).state is State.RUNNING, "the answer before the checkpoint is used, nothing diverges"
    sim.reply("child", handle=B1)
    sim.reply("end")
    replay = sim.result().replay
    assert replay is not None
    assert (replay.unused_answers, replay.unused_children) == ((), ())


def test_replays_leave_out_what_the_checkpoint_keeps() -> None:
    sim = moved_checkpoint()
    request = sim.result().pending
    assert request is not None
    # The call that was open at the stop runs again; `ask` with x=1 is in the transcript that is kept.
    assert [(c.tool, c.arguments) for c in request.replays] == [("t", {})]
    assert request.turns_again == 1


def test_a_refused_delegation_is_nothing_that_runs_again() -> None:
    sim = begun()
    sim.reply("", task("zz", "p"))
    sim.reply("", call("ask"))
    sim.ask()
    request = sim.result().pending
    assert request is not None
    assert request.replays == ()
    assert request.turns_again == 2


def test_a_question_cancelled_by_a_stop_is_asked_again_unmarked() -> None:
    sim = begun(caps={"a": f.Caps(max_wall=1.0)})
    sim.reply("", call("ask"), call("t"))
    first = asks(sim, "ok?")
    sim.now += 2_000_000
    sim.step(i.Tick())
    assert sim.result().limit == "maxWall"
    assert sim.tree.requests[first.id].status == "cancelled"
    sim.step(i.Extend(f.Caps(max_wall=100.0)))
    again = asks(sim, "ok?")
    assert not again.diverged
    assert again.id != first.id


def test_an_answer_whose_question_was_replaced_is_reported_unused() -> None:
    sim = begun()
    sim.reply("", call("ask"))
    first = asks(sim, "one")
    sim.answer()
    sim.reply("", call("ask"))
    second = asks(sim, "two")
    assert second.diverged
    assert second.id != first.id
    sim.answer(second.id)
    sim.reply("", call("ask"))
    sim.ret("ask")
    sim.reply("done")
    replay = sim.result().replay
    assert replay is not None
    assert replay.unused_answers == (first.id,)


def test_a_delegation_in_other_words_is_not_started() -> None:
    sim = begun()
    child_done(sim)
    sim.reply("", call("t"), task("b", "other"))
    result = sim.result()
    assert result.error is not None
    assert result.error.type == "ReplayDiverged"
    assert '"prompt":"p"' in result.text
    assert '"prompt":"other"' in result.text
    assert sim.node(A).child_count == 1
    assert not sim.effects(CallTool), "nothing of the batch was entered"
    assert result.replay is not None
    assert result.replay.unused_children == (B1,)
    sim.step(i.Recover())
    sim.reply("", task("b", "p"))
    sim.reply("end")
    result = sim.result()
    assert result.status == "done"
    assert result.replay is not None
    assert result.replay.unused_children == ()
    assert sim.node(A).child_count == 1


def test_divergence_is_judged_when_the_whole_batch_is_matched() -> None:
    sim = begun()
    child_done(sim)
    sim.reply("", task("b", "other"), task("b", "p"))
    assert sim.result().error is None
    assert sim.node(B2).state is State.RUNNING


def test_a_name_out_of_the_team_is_an_error_result_in_a_replay_too() -> None:
    sim = begun()
    child_done(sim)
    sim.reply("", task("zz", "p"))
    assert sim.result().error is None
    assert "not in the team" in sim.node(A).messages[-1].text


def test_questions_past_max_divergences_fail_and_recover_asks_the_model_again() -> None:
    sim = begun(max_divergences=1)
    sim.reply("", call("ask", '{"x":1}'))
    sim.ask()
    sim.answer()
    sim.reply("", call("ask", '{"x":2}'), call("ask", '{"x":3}'), call("u"))
    first, second, _ = sim.effects(CallTool)
    sim.step(i.ToolAsked(first.id, f.Question("approval", "two"), 0))
    assert next(r for r in sim.tree.requests.values() if r.status == "open").diverged
    sim.step(i.ToolAsked(second.id, f.Question("approval", "three"), 0))
    result = sim.result()
    assert result.error is not None
    assert result.error.type == "ReplayDiverged"
    assert "three" in result.text
    assert '{"x":1}' in result.text
    assert sim.open_requests() == []
    # `u` is a reuse tool that was cut off: its doubt comes before anything else, then the model is asked again.
    sim.step(i.Recover())
    (doubt,) = sim.result().pendings
    assert doubt.kind == "in_doubt"
    sim.answer(doubt.id, data='{"outcome":"succeeded","output":"o"}')
    assert wake_of(sim, A).attempt == 3
    sim.reply("", call("ask", '{"x":1}'))
    sim.ret("ask")
    sim.reply("end")
    assert sim.result().status == "done"


def test_a_reuse_tool_that_would_diverge_is_not_in_doubt() -> None:
    sim = begun(max_divergences=0)
    sim.reply("", call("ask"))
    sim.ask()
    sim.answer()
    sim.reply("", call("u"))
    sim.step(i.ToolAsked(sim.tool("u").id, f.Question("approval", "new"), 0))
    assert sim.result().status == "error"
    sim.step(i.Recover())
    assert sim.result().pendings == ()
    sim.reply("", call("ask"))
    sim.ret("ask")
    sim.reply("end")
    assert sim.result().status == "done"


def test_what_expired_goes_on_with_an_answer_in_another_branch() -> None:
    sim = begun()
    sim.reply("", task("b", "p"), task("b", "q"))
    for handle in (B1, B2):
        sim.reply("", call("ask"), handle=handle)
    sim.ask(handle=B1, expires_at=sim.now + 10_000)
    sim.ask(handle=B2)
    other = next(r.id for r in sim.tree.requests.values() if r.handle == B2)
    sim.now += 50_000
    sim.step(i.Expire(drive=False))
    sim.answer(other)
    assert sim.node(B1).state is State.RUNNING


def test_an_inline_answer_after_the_expiry_is_the_expiry() -> None:
    sim = begun(hosted=("a",))
    sim.reply("", call("ask"))
    sim.ask(expires_at=sim.now + 10_000)
    sim.now += 50_000
    (effect,) = sim.effects(AskHost)
    sim.step(i.HostDone(effect.id, i.AnswerSpec(effect.request, True)))
    answer = sim.tree.requests[effect.request].answer
    assert answer is not None
    assert (answer.ok, answer.reason) == (False, "expired")


def test_a_tool_that_ends_with_a_block_left_open_is_in_doubt() -> None:
    for ending in ("returns", "asks"):
        sim = begun()
        sim.reply("", call("t"))
        effect = sim.tool("t").id
        sim.step(i.OnceBegin(effect, "pay"))
        if ending == "returns":
            sim.step(i.ToolDone(effect, "gave up"))
        else:
            sim.step(i.ToolAsked(effect, f.Question("approval", "well?"), 0))
        (doubt,) = sim.result().pendings
        assert doubt.kind == "in_doubt"
        assert doubt.data["once"] == "pay"
        sim.answer(doubt.id, data='{"outcome":"retry"}')
        effect = sim.tool("t").id
        sim.step(i.OnceBegin(effect, "pay"))
        sim.step(i.OnceEnd(effect, "pay", "1"))
        sim.ret("t")
        sim.reply("end")
        assert sim.result().status == "done"


def test_two_blocks_of_one_call_are_doubted_one_after_the_other() -> None:
    sim = begun()
    sim.reply("", call("t"))
    effect = sim.tool("t").id
    sim.step(i.OnceBegin(effect, "one"))
    sim.step(i.OnceBegin(effect, "two"))
    sim.crash()
    sim.step(i.Recover())
    for label in ("one", "two"):
        (doubt,) = sim.result().pendings
        assert doubt.data["once"] == label
        assert not sim.effects(CallTool)
        sim.answer(doubt.id, data='{"outcome":"retry"}')
    assert sim.effects(CallTool)
