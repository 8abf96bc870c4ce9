"""A batch of calls: entering tools, delegating, reusing, and what does not fit."""

from __future__ import annotations

import json

from overt.core import facts as f
from overt.core.admission import start
from overt.core.budget import admit_tool, deepest
from overt.core.desk import Desk
from overt.core.tree import Call, CallState, Node, Wake
from overt.result import State

__all__ = ("enter_new", "offers_task", "refusal")


def offers_task(node: Node) -> bool:
    """Whether `task` is offered: there is a team, and room below."""
    return node.plan is not None and bool(node.plan.team) and node.depth < deepest(node)


def enter_new(d: Desk, node: Node, wake: Wake) -> None:
    """Enter, in call order, every call that is to be entered and fits."""
    for call in wake.batch or ():
        if call.state != CallState.NEW:
            continue
        if call.error is not None:
            d.emit(f.CallReturned(node.id, call.id, 0, call.error, True))
        elif call.task:
            _delegate(d, node, wake, call)
        else:
            _enter(d, node, wake, call)


def _enter(d: Desk, node: Node, wake: Wake, call: Call) -> None:
    memory = wake.memory[call.key]
    if memory.finished and node.plan is not None and node.plan.tools.get(call.name) == "reuse":
        d.emit(f.CallReused(node.id, call.id))
        return
    if not call.drew:
        stopped = admit_tool(node)
        if stopped is not None:
            d.emit(f.CallRefused(node.id, call.id, str(stopped.limit), stopped.at))
            return
    d.emit(f.CallEntered(node.id, call.id, d.tree.next_effect))


def refusal(node: Node, call: Call) -> str | None:
    """Return why a `task` call that finds no child starts none, `None` if it would."""
    assert node.plan is not None
    agent = json.loads(call.args)["agent"]
    if not offers_task(node):
        return f"unknown tool: task. Nothing may be delegated below depth {deepest(node)}."
    if agent not in node.plan.team:
        return f"{agent!r} is not in the team. The team: {', '.join(node.plan.team)}."
    if node.caps.max_children is not None and node.child_count >= node.caps.max_children:
        return f"[maxChildren] {node.id} may have {node.caps.max_children} children and has had them."
    return None


def _delegate(d: Desk, node: Node, wake: Wake, call: Call) -> None:
    tree = d.tree
    memory = wake.memory[call.key]
    if memory.child is not None:
        d.emit(f.Reattached(node.id, call.id, memory.child))
        child = tree.nodes[memory.child]
        if child.state is State.CLOSED or (child.wake is not None and child.wake.status is not None):
            d.emit(f.ChildReturned(node.id, call.id, child.id))
        return
    args = json.loads(call.args)
    agent, prompt = args["agent"], args["prompt"]
    problem = refusal(node, call)
    if problem is not None:
        d.emit(f.CallReturned(node.id, call.id, 0, problem, True))
        return
    stopped = admit_tool(node)
    if stopped is not None:
        d.emit(f.CallRefused(node.id, call.id, str(stopped.limit), stopped.at))
        return
    child_id = f"{node.id}/{agent}.{node.child_count + 1}"
    d.emit(f.HandleSpawned(child_id, node.id, agent))
    d.emit(f.Delegated(node.id, call.id, child_id))
    start(d, tree.nodes[child_id], prompt)
