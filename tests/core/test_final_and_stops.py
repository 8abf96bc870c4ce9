"""A typed final answer, given through its tool, that a limit stops before it is judged."""

from __future__ import annotations

from overt.core import facts as f
from overt.core import inputs as i
from overt.core.effects import Verify
from tests.core.sim import Sim, call, plan


def stopped_while_judged() -> Sim:
    sim = Sim(plan(caps={"a": f.Caps(max_wall=1.0)}, policed={"gate": 2, "typed": True}))
    sim.begin(closes=False)
    sim.reply("", call("final_result", '{"v":1}'), output="1")
    assert sim.effects(Verify)
    sim.now += 2_000_000
    sim.step(i.Tick())
    assert (sim.result().status, sim.result().limit) == ("incomplete", "maxWall")
    return sim


def test_it_is_judged_when_the_wake_goes_on() -> None:
    sim = stopped_while_judged()
    sim.step(i.Extend(f.Caps(max_wall=60.0)))
    sim.step(i.VerifyDone(sim.effects(Verify)[0].id, False, "not yet"))
    sim.reply("", call("final_result", '{"v":2}'), output="2")
    sim.step(i.VerifyDone(sim.effects(Verify)[0].id, True, "good"))
    assert (sim.result().status, sim.result().text) == ("done", "2")


def test_a_rewind_to_the_stop_has_it_judged_again() -> None:
    """The stop moved the checkpoint behind it: it is not bought again."""
    sim = stopped_while_judged()
    sim.step(i.Extend(f.Caps(max_wall=60.0)))
    sim.crash()
    sim.step(i.Cancel("the host was cancelled"))
    sim.step(i.Recover("rewind"))
    sim.step(i.VerifyDone(sim.effects(Verify)[0].id, True, "good"))
    assert (sim.result().status, sim.result().text) == ("done", "1")
