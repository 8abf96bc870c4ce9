"""A batch of calls: entering tools, delegating, reusing, and what does not fit."""

from __future__ import annotations

from overt.core import facts as f
from overt.core.admission import start
from overt.core.budget import admit_tool, turn_cap, turn_stop
from overt.core.delegation import refusal, target
from overt.core.desk import Desk
from overt.core.policing import ask_checks, settled_before
from overt.core.replay import match_delegations
from overt.core.tree import Call, CallState, Node, Wake
from overt.result import Limit, State

__all__ = ("enter_new",)


def enter_new(d: Desk, node: Node, wake: Wake) -> None:
    """Enter, in call order, every call that is to be entered and fits."""
    over = wake.capped and wake.turns >= turn_cap(node)
    if node.checks:
        unseen = [
            c
            for c in wake.batch or ()
            if c.state == CallState.NEW and (c.drew or not over) and _unseen(node, wake, c)
        ]
        if unseen:
            # Nothing of the batch happens before all of it has been looked at.
            ask_checks(d, node, unseen)
            return
    # Where rules are asked first, what they deny delegates nothing.
    elif wake.attempt > 1 and not over and match_delegations(d, node, wake, wake.batch or ()):
        return
    for call in wake.batch or ():
        if call.state != CallState.NEW:
            continue
        if over and not call.drew:
            # Whatever let the wake go on has not raised the cap that keeps these out.
            d.emit(f.CallRefused(node.id, call.id, str(Limit.MAX_TURNS), turn_stop(node).at))
            continue
        if call.error is not None:
            d.emit(f.CallReturned(node.id, call.id, 0, call.error, True))
        elif wake.memory[call.key].guard is not None and settled_before(d, node, wake, call):
            continue
        elif call.task:
            _delegate(d, node, wake, call)
        else:
            _enter(d, node, wake, call)


def _unseen(node: Node, wake: Wake, call: Call) -> bool:
    """Whether hook and guardrails have to be asked before the call is entered.

    Not where it is given what there is already: nothing is entered that a rule could deny.
    """
    if call.cleared or call.error is not None:
        return False
    memory = wake.memory[call.key]
    if memory.declined is not None or memory.reply is not None:
        return False
    if call.task:
        return memory.child is None
    return not (memory.finished and node.plan is not None and node.plan.tools.get(call.name) == "reuse")


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


def _delegate(d: Desk, node: Node, wake: Wake, call: Call) -> None:
    tree = d.tree
    memory = wake.memory[call.key]
    if memory.child is not None:
        d.emit(f.Reattached(node.id, call.id, memory.child))
        child = tree.nodes[memory.child]
        if child.state is State.CLOSED or (child.wake is not None and child.wake.status is not None):
            d.emit(f.ChildReturned(node.id, call.id, child.id))
        return
    agent, prompt = target(node, call)
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
