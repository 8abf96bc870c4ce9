"""What a result says of the replay: what was bought and run again, when it was."""

from __future__ import annotations

from overt.core import facts as f
from overt.core import inputs as i
from overt.core.effects import CallModel
from overt.core.views import request_view
from overt.result import Replay
from tests.core.sim import Sim, call, plan, task

A = "root/a.1"


def parked_after_a_tool(*, closes: bool = True) -> Sim:
    sim = Sim(plan())
    sim.begin(closes=closes)
    sim.reply("", call("t"))
    sim.ret("t")
    sim.reply("", call("ask"))
    sim.ask()
    return sim


def replay_of(sim: Sim) -> Replay:
    replay = sim.result().replay
    assert replay is not None
    return replay


def bought_and_run(sim: Sim) -> tuple[int, list[str]]:
    replay = replay_of(sim)
    return replay.turns_bought_again, [c.tool for c in replay.calls_rerun]


def test_a_first_run_has_no_replay() -> None:
    assert parked_after_a_tool().result().replay is None


def test_turns_are_counted_as_they_are_bought() -> None:
    sim = parked_after_a_tool()
    sim.answer()
    assert bought_and_run(sim) == (0, [])
    sim.reply("", call("t"))
    assert bought_and_run(sim) == (1, ["t"])
    sim.ret("t")
    sim.reply("", call("ask"))
    assert bought_and_run(sim) == (2, ["t"])
    sim.ret("ask")
    sim.reply("fin")
    assert bought_and_run(sim) == (2, ["t"]), "the turn after them is a new one"


def test_a_resume_that_failed_bought_nothing_and_recover_says_what_it_buys() -> None:
    sim = parked_after_a_tool()
    sim.answer()
    sim.step(i.ModelLost(sim.effects(CallModel)[0].id, f.ErrorSpec("Busy", "503", "model", True)))
    assert sim.result().status == "error"
    assert bought_and_run(sim) == (0, [])
    sim.step(i.Recover())
    sim.reply("", call("t"))
    sim.ret("t")
    sim.reply("", call("ask"))
    sim.ret("ask")
    sim.reply("fin")
    assert sim.result().status == "done"
    assert bought_and_run(sim) == (2, ["t"])


def test_a_resume_beside_running_work_has_its_replay() -> None:
    sim = parked_after_a_tool()
    sim.step(i.Spawn("root", "c", anywhere=True))
    sim.step(i.Wake("root/c.2", "x"))
    sim.answer()
    sim.reply("", call("t"), handle=A)
    assert bought_and_run(sim) == (1, ["t"])


def test_a_later_prompt_has_no_replay() -> None:
    sim = parked_after_a_tool(closes=False)
    sim.answer()
    sim.reply("", call("t"))
    sim.ret("t")
    sim.reply("", call("ask"))
    sim.ret("ask")
    sim.reply("fin")
    assert bought_and_run(sim) == (2, ["t"])
    sim.step(i.Wake(A, "again"))
    sim.reply("ok")
    assert sim.result().replay is None


def test_recover_on_a_parked_run_writes_nothing_and_keeps_the_replay() -> None:
    sim = parked_after_a_tool()
    sim.answer()
    sim.reply("", call("t"))
    sim.ret("t")
    sim.reply("", call("ask", '{"x":2}'))
    sim.ask(prompt="and now?")
    before = bought_and_run(sim)
    assert before == (2, ["t"])
    assert sim.step(i.Recover()) == []
    assert bought_and_run(sim) == before


def test_a_request_can_be_read_as_it_will_be_once_parked() -> None:
    sim = Sim(plan())
    sim.begin()
    sim.reply("", call("t"))
    sim.ret("t")
    sim.reply("", call("ask"), call("t", '{"x":1}'))
    sim.ask()
    (id,) = sim.open_requests()
    now = request_view(sim.tree, sim.tree.requests[id])
    assert (now.replays, now.turns_again) == ((), 0), "an answer now is an inline one"
    later = request_view(sim.tree, sim.tree.requests[id], parked=True)
    assert ([c.arguments for c in later.replays], later.turns_again) == ([{}], 2)
    sim.ret("t")
    assert sim.result().status == "pending"
    parked = request_view(sim.tree, sim.tree.requests[id])
    assert ([c.arguments for c in parked.replays], parked.turns_again) == ([{}, {"x": 1}], 2)


def test_a_wake_that_waited_for_a_slot_does_not_take_the_report_with_it() -> None:
    """With one slot the last of a team starts in the moment nothing else runs; that is no new work of the host."""
    sim = Sim(plan(caps={"a": f.Caps(max_concurrent=1)}))
    sim.begin(closes=False)
    sim.reply("", task("b", "p"), task("b", "q"))
    sim.reply("", call("t"), handle="root/a.1/b.1")
    sim.ret("t")
    sim.reply("", call("ask"), handle="root/a.1/b.1")
    sim.ask()
    sim.reply("", call("ask"), handle="root/a.1/b.2")
    sim.ask()
    assert len(sim.open_requests()) == 2
    sim.step(i.Deliver(tuple(i.AnswerSpec(r, True) for r in sim.open_requests())))
    running, waiting = sim.node("root/a.1/b.1"), sim.node("root/a.1/b.2")
    assert (running.state, waiting.queued) == ("running", "resume")
    sim.step(i.Spawn("root/a.1", "c"))
    sim.step(i.Wake("root/a.1/c.3", "more"))
    assert sim.node("root/a.1/c.3").queued == "wake"
    sim.reply("", call("t"), handle="root/a.1/b.1")
    sim.ret("t")
    sim.reply("done", handle="root/a.1/b.1")
    sim.reply("done", handle="root/a.1/b.2")
    assert sim.node("root/a.1/c.3").state == "running"
    assert sim.tree.replays is not None
    assert sim.tree.replays.rerun
