"""Budgets as hosts say them and as the rules keep them."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from overt.core.specs import Caps
from overt.errors import DefinitionError
from overt.policy import Budget

__all__ = ("budget_of", "caps_of")

NO_CAPS = Caps()


def caps_of(budget: Budget | None) -> Caps:
    """Return a budget as the rules keep it: only what was said.

    Raises:
        DefinitionError: It holds what no budget may: a copy with other numbers is not checked by anybody.
    """
    if budget is None or not budget.model_fields_set:
        return NO_CAPS
    given = {name: getattr(budget, name) for name in budget.model_fields_set}
    try:
        checked = Budget.model_validate(given)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise DefinitionError(f"a Budget with what none may have: {wrong}") from None
    said: dict[str, Any] = {name: getattr(checked, name) for name in given}
    if said.get("max_cost") is not None:
        said["max_cost"] = str(said["max_cost"])
    return Caps(**said)


def budget_of(caps: Caps) -> Budget:
    """Return caps as a public budget."""
    return Budget.model_validate({n: v for n, v in zip(Caps._fields, caps, strict=True) if v is not None})
