"""What a model call costs, and whether a failed one is made again."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import TYPE_CHECKING

from overt.core import facts as f
from overt.core import inputs as i
from overt.core.effects import CallModel, Sleep
from overt.core.tree import Node
from overt.driver.metering import LOG
from overt.message import Model, Usage
from overt.policy import may_succeed_later

if TYPE_CHECKING:
    from overt.driver.loop import Driver

__all__ = ("charge_of", "cost_of", "perform_sleep", "retries", "wait_before")


def retries(status: int | None, error: BaseException) -> bool:
    """Whether what a host's own model raised is worth another attempt: by its status, or because nobody answered."""
    if status is not None:
        return may_succeed_later(status)
    return isinstance(error, (ConnectionError, TimeoutError))


def wait_before(driver: Driver, node: Node, error: f.ErrorSpec) -> int | None:
    """Return the microseconds to wait before the next attempt, `None` where there is to be none."""
    policy, wake = driver.crew.retry, node.wake
    if not error.retryable or wake is None or wake.retries >= policy.max_retries:
        return None
    seconds = policy.wait(wake.retries + 1, retry_after=error.retry_after, chance=random.random())
    return None if seconds is None else round(seconds * 1e6)


def cost_of(driver: Driver, model: Model, usage: Usage | None, replied: str) -> str | None:
    """Return what a call cost in USD; `None` where that is not known."""
    prices = driver.crew.prices
    if prices is None or usage is None:
        return None
    from overt.prices import PricedCall  # loaded by the first run that has prices

    try:
        call = PricedCall(
            provider=getattr(model, "provider", ""),
            model=model.name,
            replied=replied,
            usage=usage,
            at=driver.clock.now(),
        )
        cost = prices.price(call)
        if cost is None:
            return None
        if not isinstance(cost, Decimal):  # pyright: ignore[reportUnnecessaryIsInstance]  # a host's own prices
            raise TypeError(f"price() returned {type(cost).__name__}, not a Decimal")
        if not cost.is_finite() or cost < 0:
            raise ValueError(f"price() returned {cost}")
    except Exception:  # noqa: BLE001  # logged with its traceback just below
        # What a host's table raises is no reason to lose a reply that was paid for; the call then has no price.
        LOG.exception("the prices of the run failed for model %r", model.name)
        return None
    return format(cost, "f")


def charge_of(driver: Driver, model: Model, effect: CallModel, cost: str | None) -> str | None:
    """Return what to take from a pool of money for a call whose cost is not known: the tokens it reserved, as input.

    Nothing has been priced when the first call of a run is made, so it reserves all there is; were it to take that, a
    provider that is busy once would use up the pool.
    """
    if effect.money is None or cost is not None:
        return None
    return cost_of(driver, model, Usage(input_tokens=effect.reserve, total_tokens=effect.reserve), "")


async def perform_sleep(driver: Driver, effect: Sleep) -> i.Input:
    """Wait until a model call is to be made again."""
    # Once, whatever the clock says then: one that was set back would keep the call waiting for it to catch up.
    await driver.clock.sleep(max(effect.until - driver.now(), 0) / 1e6)
    return i.Slept(effect.id)
