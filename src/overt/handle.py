"""A reference to one live or closed agent of a run."""

from __future__ import annotations

__all__ = ("Handle",)


class Handle:
    """One agent in the tree of a run."""

    __slots__ = ("agent", "id")

    id: str
    """Such as `root/coordinator.1/explore.2`; `n` counts all children of the parent."""
    agent: str
    """Name of its agent; empty for the root."""

    def __init__(self, id: str, *, agent: str) -> None:
        self.id = id
        self.agent = agent

    def __repr__(self) -> str:
        return f"<Handle {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and (other.id, other.agent) == (self.id, self.agent)

    def __hash__(self) -> int:
        return hash(self.id)
