"""How a run stands for its driver: what is still to be told, and what was cut off."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from overt.core.effects import Notify
from overt.core.tree import Tree
from overt.result import State

__all__ = ("has_cut", "has_notices")


def has_notices(tree: Tree) -> bool:
    """Whether `on_pending` is still to be told of something."""
    return any(isinstance(effect, Notify) for effect in tree.open.values())


def has_cut(tree: Tree, *, mine: AbstractSet[int], before: int) -> bool:
    """Whether the journal holds work under way that nobody here performs.

    Args:
        tree: The run.
        mine: Effects that are performed here.
        before: The first effect that is decided and waits for its append.
    """
    if not mine.isdisjoint(tree.open):
        return False
    return any(not isinstance(e, Notify) and e.id < before for e in tree.open.values()) or any(
        n.wake is not None and n.wake.cut and n.state is not State.CLOSED for n in tree.nodes.values()
    )
