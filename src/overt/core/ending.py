"""How wakes and handles end: settled, stopped, interrupted, closed. Leaves first, always."""

from __future__ import annotations

from overt.core import facts as f
from overt.core.budget import Stopped
from overt.core.desk import Desk
from overt.core.tree import Call, CallState, Node, Wake
from overt.result import State

__all__ = ("close_tree", "cut_effects", "fail", "interrupt", "settle", "stop")


def settle(
    d: Desk,
    node: Node,
    status: str,
    *,
    stopped: Stopped | None = None,
    error: f.ErrorSpec | None = None,
    drop: bool = False,
    reason: str | None = None,
) -> None:
    """End the open wake of a handle and everything that hangs on it."""
    _end(d, node, status, stopped=stopped, error=error, drop=drop, reason=reason)
    wake = node.wake
    assert wake is not None
    if node.task_call is not None:
        _return_to_parent(d, node)
        close_tree(d, node, "closed")
    elif wake.closes and status in ("done", "interrupted"):
        close_tree(d, d.tree.root, "closed")


def stop(d: Desk, node: Node, stopped: Stopped) -> None:
    """End a wake at a limit."""
    settle(d, node, "incomplete", stopped=stopped)


def fail(d: Desk, node: Node, error: f.ErrorSpec, *, drop: bool = False) -> None:
    """End a wake with an error. With `drop`, going on buys another reply instead of the last one."""
    settle(d, node, "error", error=error, drop=drop)


def cut_effects(d: Desk, wake: Wake, why: str) -> None:
    """Close what the wake has under way."""
    for id in sorted(wake.effects):
        if id in d.tree.open:
            d.emit(f.EffectLost(d.tree.open[id].handle, id, why))


def _end(
    d: Desk,
    node: Node,
    status: str,
    *,
    stopped: Stopped | None = None,
    error: f.ErrorSpec | None = None,
    drop: bool = False,
    reason: str | None = None,
) -> None:
    wake = node.wake
    assert wake is not None
    if wake.effects:
        cut_effects(d, wake, reason or status)
    for call in wake.batch or ():
        if call.state == CallState.WAITING:
            assert call.child is not None
            close_tree(d, d.tree.nodes[call.child], "closed")
        elif call.request is not None and d.tree.requests[call.request].status == "open":
            d.emit(f.RequestCancelled(node.id, call.request))
    _cancel_own(d, node, wake)
    if wake.attempt > 1:
        _close_unclaimed(d, wake)
    if stopped is None:
        d.emit(f.WakeSettled(node.id, status, error=error, drop=drop, reason=reason))
    else:
        d.emit(f.WakeSettled(node.id, status, str(stopped.limit), stopped.at, stopped.cap))
    if node.parent is not None:
        d.touch(node.parent)
    d.touch_above(node)


def _cancel_own(d: Desk, node: Node, wake: Wake) -> None:
    """Cancel what the wake itself asks."""
    if wake.asks is not None and d.tree.requests[wake.asks].status == "open":
        d.emit(f.RequestCancelled(node.id, wake.asks))


def _close_unclaimed(d: Desk, wake: Wake) -> None:
    """A child that no call of the last attempt claimed is closed; the settling fact reports it."""
    for memory in wake.memory.values():
        if memory.child is not None and memory.key not in wake.claimed:
            child = d.tree.nodes[memory.child]
            if child.state is not State.CLOSED:
                close_tree(d, child, "closed")


def _parent_call(d: Desk, node: Node) -> Call | None:
    """The open call of the parent that waits for this handle."""
    parent = node.parent
    if parent is None or parent.wake is None or parent.wake.status not in (None, "interrupted"):
        return None
    for call in parent.wake.batch or ():
        if call.id == node.task_call and call.child == node.id and call.state == CallState.WAITING:
            return call
    return None


def _return_to_parent(d: Desk, node: Node) -> None:
    call = _parent_call(d, node)
    if call is not None:
        assert node.parent is not None
        d.emit(f.ChildReturned(node.parent.id, call.id, node.id))
        d.touch(node.parent)


def close_tree(d: Desk, node: Node, status: str, *, reason: str | None = None) -> None:
    """Close a handle and everything below it; wakes that were open end with `status`."""
    if node.state is State.CLOSED:
        return
    for child in node.children:
        close_tree(d, child, status, reason=reason)
    if node.queued == "wake":
        d.emit(f.WakeDropped(node.id, status))
    wake = node.wake
    if wake is not None:
        if wake.status is None:
            _end(d, node, status, reason=reason)
        else:
            for call in wake.batch or ():
                if call.request is not None and d.tree.requests[call.request].status == "open":
                    d.emit(f.RequestCancelled(node.id, call.request))
            _cancel_own(d, node, wake)
    if node.task_call is not None:
        _return_to_parent(d, node)
    if d.tree.nodes[node.id].state is not State.CLOSED:
        d.emit(f.HandleClosed(node.id, reason))
    if node.parent is not None:
        d.touch(node.parent)


def interrupt(d: Desk, node: Node, *, reason: str | None = None) -> None:
    """End the wakes of a handle and everything below it. Children of `task` calls are closed with that."""
    if node.state is State.CLOSED:
        return
    for child in node.children:
        if child.task_call is not None:
            close_tree(d, child, "interrupted", reason=reason)
        else:
            interrupt(d, child, reason=reason)
    if d.tree.nodes[node.id].state is State.CLOSED:
        return  # with a child whose wake closes the tree
    if node.queued in ("wake", "reopen"):
        d.emit(f.WakeDropped(node.id, "interrupted"))
        if node.task_call is not None:
            close_tree(d, node, "interrupted", reason=reason)
    elif node.wake is not None and node.wake.status is None:
        settle(d, node, "interrupted", reason=reason)
    elif node.wake is not None and node.wake.cut:
        _give_up(d, node, node.wake, reason=reason)


def _give_up(d: Desk, node: Node, wake: Wake, *, reason: str | None) -> None:
    """End a wake that was cut off: nobody will recover it."""
    for call in wake.batch or ():
        if call.request is not None and d.tree.requests[call.request].status == "open":
            d.emit(f.RequestCancelled(node.id, call.request))
    _cancel_own(d, node, wake)
    d.emit(f.WakeGivenUp(node.id, reason))
    if node.task_call is not None:
        _return_to_parent(d, node)
        close_tree(d, node, "interrupted")
    elif wake.closes:
        close_tree(d, d.tree.root, "closed")
