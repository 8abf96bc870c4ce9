"""What a model call reserves: a pure function of the facts, the same in every process."""

from __future__ import annotations

import pytest

from overt.core import facts as f
from overt.core import inputs as i
from overt.core.effects import CallModel
from tests.core.sim import Sim, call, plan

WIDE = "漢"  # three bytes


def begun(prompt: str = "go", *, output: int | None = None, tokens: int = 10**6, **options: object) -> Sim:
    made = plan(root=f.Caps(max_tokens=tokens), **options)
    agents = {name: agent._replace(max_output=output) for name, agent in made.agents.items()}
    sim = Sim(made._replace(agents=agents))
    sim.begin(prompt)
    return sim


def reserved(sim: Sim) -> int:
    (effect,) = sim.effects(CallModel)
    assert isinstance(effect, CallModel)
    return effect.reserve


@pytest.mark.parametrize("prompt", ["go", WIDE * 4_000])
def test_of_a_first_call_nothing_is_known(prompt: str) -> None:
    assert reserved(begun(prompt)) == 1_000


@pytest.mark.parametrize(("output", "out"), [(None, 30), (7, 7)])
def test_a_later_call(output: int | None, out: int) -> None:
    """Last input, a quarter token a byte of the reply, its calls and their results, and what may come out."""
    sim = begun(output=output)
    sim.reply("é" * 10, call("t", '{"x":1}'), call("u", "{}"), tokens=f.Tokens(200, 30))
    sim.ret("t", WIDE * 100)
    sim.ret("u", "y" * 50)
    appended = 20 + len('{"x":1}') + len("{}") + 300 + 50
    assert reserved(sim) == 200 + appended // 4 + out


def test_it_is_the_last_call_that_counts() -> None:
    sim = begun()
    sim.reply("", call("t", "{}"), tokens=f.Tokens(200, 30))
    sim.ret("t", "x" * 400)
    sim.reply("", call("t", "{}"), tokens=f.Tokens(500, 11))
    sim.ret("t", "x" * 40)
    assert reserved(sim) == 500 + 42 // 4 + 11


def test_it_is_clamped_to_what_is_left() -> None:
    sim = begun(tokens=600)
    assert reserved(sim) == 600
    sim.reply("", call("t"), tokens=f.Tokens(400, 50))
    sim.ret("t")
    (effect,) = sim.effects(CallModel)
    assert (effect.reserve, effect.left) == (150, 150)


def test_unreported_usage_keeps_counting() -> None:
    sim = begun()
    sim.reply("", call("t", "{}"), tokens=f.Tokens(200, 30))
    sim.ret("t", WIDE * 100)
    sim.reply("z" * 8, call("t", "{}"), tokens=None)
    sim.ret("t", "x" * 40)
    assert reserved(sim) == 200 + (2 + 300 + 8 + 2 + 40) // 4 + 30


def test_a_rewind_does_not_count_the_prompt_twice() -> None:
    sim = begun("x" * 40_000)
    sim.reply("", call("ask"), tokens=f.Tokens(10_000, 5))
    sim.ask()
    sim.answer()
    assert reserved(sim) == 10_000 + 5


def test_a_rewind_keeps_counting_a_prompt_no_input_covers() -> None:
    sim = Sim(plan(root=f.Caps(max_tokens=10**6)))
    sim.begin(closes=False)
    sim.reply("w" * 12, tokens=f.Tokens(200, 30))
    sim.step(i.Wake("root/a.1", WIDE * 100))
    before = reserved(sim)
    assert before == 200 + (12 + 300) // 4 + 30
    sim.step(i.ModelLost(sim.effects(CallModel)[0].id, f.ErrorSpec("Busy", "503", "model", True)))
    sim.step(i.Recover("rewind"))
    assert reserved(sim) == before


def test_a_reply_that_is_dropped_no_longer_counts() -> None:
    sim = begun()
    sim.reply(WIDE * 100, call("t", '{"x":1}'), tokens=f.Tokens(200, 30), finish="length")
    assert sim.result().status == "error"
    sim.step(i.Recover())
    assert reserved(sim) == 200 + 30


def test_results_before_a_stop_are_counted_once_after_it() -> None:
    sim = begun(tokens=300)
    sim.reply("", call("t", "{}"), tokens=f.Tokens(290, 30))
    sim.ret("t", "x" * 400)
    assert sim.result().limit == "maxTokens"
    sim.step(i.Extend(f.Caps(max_tokens=10**6)))
    assert reserved(sim) == 290 + (2 + 400) // 4 + 30


def test_a_result_counts_as_the_model_is_shown_it() -> None:
    sim = begun(max_result_chars=100)
    sim.reply("", call("t", "{}"), tokens=f.Tokens(200, 30))
    sim.ret("t", "x" * 10_000)
    bounded = sim.node("root/a.1").messages[-1].text
    assert "10000 characters" in bounded
    assert len(bounded) <= 100
    assert reserved(sim) == 200 + (2 + len(bounded.encode())) // 4 + 30


def test_a_reservation_is_the_same_after_a_crash() -> None:
    sim = begun()
    sim.reply("", call("t", "{}"), tokens=f.Tokens(200, 30))
    sim.ret("t", WIDE * 100)
    before = reserved(sim)
    sim.crash()
    sim.step(i.Recover())
    assert reserved(sim) == before
