"""Where an input is worked off: facts are applied as they are decided, and handles are looked at again."""

from __future__ import annotations

from overt.core import facts as f
from overt.core.apply import apply
from overt.core.tree import Node, Tree

__all__ = ("Desk", "Refused")


class Refused(Exception):
    """The input is refused with a value, not an error; raised before the first fact."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Desk:
    """One input under way.

    `emit` applies a fact and keeps it; `touch` asks for a handle to be looked at again once the current rule is
    through, which is how a settled child moves its parent on without any rule calling itself.
    """

    __slots__ = ("facts", "touched", "tree")

    def __init__(self, tree: Tree) -> None:
        self.tree: Tree = tree
        self.facts: list[f.Fact] = []
        self.touched: list[Node] = []

    def emit(self, fact: f.Fact) -> None:
        """Decide a fact."""
        self.facts.append(fact)
        apply(self.tree, fact)

    def touch(self, node: Node) -> None:
        """Have the handle looked at again."""
        if node not in self.touched:
            self.touched.append(node)

    def touch_above(self, node: Node) -> None:
        """Have every ancestor looked at again, the nearest first."""
        for a in node.chain[1:]:
            if a.wake is not None and a.wake.status is None:
                self.touch(a)
