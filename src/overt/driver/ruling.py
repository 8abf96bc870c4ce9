"""Performing what user code rules on: calls, prompts, answers, caps, the completion gate."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from overt.core import inputs as i
from overt.core.effects import AskLimit, CheckCalls, CheckText, Verify
from overt.driver.judging import perform_limit, perform_verify
from overt.driver.rulings import perform_checks, perform_text

if TYPE_CHECKING:
    from overt.driver.loop import Driver

__all__ = ("perform_rule",)


def perform_rule(
    driver: Driver, effect: CheckCalls | CheckText | AskLimit | Verify, before: int
) -> Awaitable[i.Input]:
    """Perform one effect, and return what came of it."""
    if isinstance(effect, CheckCalls):
        return perform_checks(driver, effect, before)
    if isinstance(effect, CheckText):
        return perform_text(driver, effect, before)
    if isinstance(effect, AskLimit):
        return perform_limit(driver, effect, before)
    return perform_verify(driver, effect, before)
