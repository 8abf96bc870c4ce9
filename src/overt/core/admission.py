"""Slots: who may run under a handle, who waits, and who is next.

A slot is held only while a handle runs. Suspending or settling gives it to the first that waits.
"""

from __future__ import annotations

from overt.core import facts as f
from overt.core.budget import slots
from overt.core.desk import Desk
from overt.core.tree import Node

__all__ = ("go_on", "hand_over", "reopen", "start")


def _free(node: Node) -> bool:
    parent = node.parent
    return parent is None or (not parent.queue and parent.running < slots(parent))


def start(d: Desk, node: Node, prompt: str, *, closes: bool = False) -> None:
    """Admit a new wake, or queue it. Doubts of a wake that was cut off end with it: nothing would use an answer."""
    before = node.wake
    if before is not None and before.cut:
        for call in before.batch or ():
            if call.request is not None and d.tree.requests[call.request].status == "open":
                d.emit(f.RequestCancelled(node.id, call.request))
        if before.asks is not None and d.tree.requests[before.asks].status == "open":
            d.emit(f.RequestCancelled(node.id, before.asks))
    if _free(node):
        d.emit(f.WakeStarted(node.id, prompt, closes))
        d.touch(node)
    else:
        d.emit(f.WakeQueued(node.id, prompt, closes))


def go_on(d: Desk, node: Node) -> None:
    """Let a suspended wake go on, from its checkpoint if an answer asked for that."""
    assert node.wake is not None
    if node.wake.rewind_due:
        d.emit(f.Rewound(node.id))
    if _free(node):
        d.emit(f.Resumed(node.id))
        d.touch(node)
    else:
        d.emit(f.ResumeQueued(node.id))


def reopen(d: Desk, node: Node) -> None:
    """Let a stopped wake go on."""
    if _free(node):
        d.emit(f.WakeReopened(node.id))
        d.touch(node)
    else:
        d.emit(f.ReopenQueued(node.id))


def hand_over(d: Desk, parent: Node) -> None:
    """Give free slots to the children that wait, first come first served."""
    while parent.queue and parent.running < slots(parent):
        node = parent.queue[0]
        if node.queued == "wake":
            assert node.next_wake is not None
            prompt, closes = node.next_wake
            d.emit(f.WakeStarted(node.id, prompt, closes))
        elif node.queued == "resume":
            d.emit(f.Resumed(node.id))
        else:
            d.emit(f.WakeReopened(node.id))
        d.touch(node)
