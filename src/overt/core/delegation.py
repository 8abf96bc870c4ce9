"""Whom a call delegates to, and whether it may."""

from __future__ import annotations

import json

from overt.core.budget import deepest
from overt.core.tree import Call, Node

__all__ = ("offers_delegates", "offers_task", "refusal", "target")


def offers_task(node: Node) -> bool:
    """Whether `task` is offered: there is a team, and room below."""
    return node.plan is not None and bool(node.plan.team) and node.depth < deepest(node)


def offers_delegates(node: Node) -> bool:
    """Whether agents that are tools are offered: there is room below."""
    return node.depth < deepest(node)


def target(node: Node, call: Call) -> tuple[str, str]:
    """Return agent and prompt of a call that delegates."""
    assert node.plan is not None
    args = json.loads(call.run_args)
    return node.plan.delegates.get(call.name) or args["agent"], args["prompt"]


def refusal(node: Node, call: Call) -> str | None:
    """Return why a call that finds no child starts none, `None` if it would."""
    assert node.plan is not None
    agent, _ = target(node, call)
    if node.depth >= deepest(node):
        return f"unknown tool: {call.name}. Nothing may be delegated below depth {deepest(node)}."
    if call.name not in node.plan.delegates and agent not in node.plan.team:
        return f"{agent!r} is not in the team. The team: {', '.join(node.plan.team)}."
    if node.caps.max_children is not None and node.child_count >= node.caps.max_children:
        return f"[maxChildren] {node.id} may have {node.caps.max_children} children and has had them."
    return None
