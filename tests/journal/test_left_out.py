"""What a journal leaves out of a run's plan means what it meant when it was written."""

from __future__ import annotations

from overt import Agent
from overt._planning import plan_of
from overt.core.plan import Plan
from overt.testing import MockModel

LEFT_OUT = {"inbox_cap": 8, "max_divergences": 2, "max_result_chars": 100_000}


def test_a_number_that_is_left_out_stays_what_it_was() -> None:
    # Only what differs from these is written: another default would change every stored run.
    defaults: dict[str, object] = Plan._field_defaults
    assert {name: value for name, value in defaults.items() if type(value) is int} == LEFT_OUT


def test_a_run_that_is_told_nothing_leaves_them_out() -> None:
    plan, *_ = plan_of(Agent("a", does="d", model=MockModel([])), {})
    assert {name: getattr(plan, name) for name in LEFT_OUT} == LEFT_OUT
