"""How a run stands for its driver: what is still to be told, and what was cut off."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from overt.core.effects import Notify
from overt.core.tree import Tree

__all__ = ("has_cut", "has_notices")


def has_notices(tree: Tree, *, mine: AbstractSet[int], before: int, below: str) -> bool:
    """Whether `on_pending` is being told, here, of something in a handle or below it."""
    return any(
        isinstance(effect, Notify)
        and (effect.id in mine or effect.id >= before)
        and (below == "root" or f"{effect.handle}/".startswith(f"{below}/"))
        for effect in tree.open.values()
    )


def has_cut(tree: Tree, *, mine: AbstractSet[int], before: int) -> bool:
    """Whether the journal holds work under way that nobody here performs.

    Args:
        tree: The run.
        mine: Effects that are performed here.
        before: The first effect that is decided and waits for its append.
    """
    if not mine.isdisjoint(tree.open):
        return False
    return bool(tree.cut) or any(effect.id < before for effect in tree.open.values())
