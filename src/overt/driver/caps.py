"""Budgets as hosts say them and as the rules keep them."""

from __future__ import annotations

from typing import Any

from overt.core.specs import Caps
from overt.policy import Budget

__all__ = ("budget_of", "caps_of")

NO_CAPS = Caps()


def caps_of(budget: Budget | None) -> Caps:
    """Return a budget as the rules keep it: only what was said."""
    if budget is None or not budget.model_fields_set:
        return NO_CAPS
    said: dict[str, Any] = {name: getattr(budget, name) for name in budget.model_fields_set}
    if said.get("max_cost") is not None:
        said["max_cost"] = str(said["max_cost"])
    return Caps(**said)


def budget_of(caps: Caps) -> Budget:
    """Return caps as a public budget."""
    return Budget.model_validate({n: v for n, v in zip(Caps._fields, caps, strict=True) if v is not None})
