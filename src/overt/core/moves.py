"""The small steps facts have in common: states and slots, effects, transcripts, results of calls."""

from __future__ import annotations

from overt._text import size
from overt.core.effects import AskLimit, CallTool, CheckText, Effect, Sleep, Verify
from overt.core.lifecycle import TRANSITIONS, Move
from overt.core.render import batch_messages, committed
from overt.core.tree import Call, CallState, Node, Tree, Wake
from overt.result import State

__all__ = (
    "call_of",
    "close_effect",
    "dequeue",
    "draw",
    "finish",
    "flush",
    "move",
    "note_unpriced",
    "open_effect",
    "queue",
    "roll_back",
    "unhost",
    "wake_of",
)


def move(tree: Tree, node: Node, move: Move) -> None:
    """Change a handle's state, and keep the counts along its ancestors."""
    old = node.state
    new = TRANSITIONS[old, move]
    node.state = new
    node.transitions.append((old, new))
    if new is State.RUNNING:
        if node.parent is not None:
            node.parent.running += 1
        now = tree.now
        for a in node.chain:
            if a.active == 0:
                a.wall_since = now
            a.active += 1
            a.live += 1
    elif old is State.RUNNING:
        if node.parent is not None:
            node.parent.running -= 1
        now = tree.now
        for a in node.chain:
            a.active -= 1
            a.live -= 1
            if a.active == 0:
                a.wall += now - a.wall_since


def queue(node: Node, kind: str) -> None:
    """Let a handle wait for a slot of its parent."""
    assert node.parent is not None
    node.queued = kind
    node.parent.queue.append(node)
    for a in node.chain:
        a.live += 1


def dequeue(node: Node) -> None:
    """Take a handle out of its parent's queue, if it is in it."""
    if node.queued is not None:
        assert node.parent is not None
        node.queued = None
        node.parent.queue.remove(node)
        for a in node.chain:
            a.live -= 1


def open_effect(tree: Tree, effect: Effect) -> None:
    """Note an effect that has been issued."""
    tree.open[effect.id] = effect
    tree.next_effect = effect.id + 1
    wake = tree.nodes[effect.handle].wake
    if wake is not None:
        wake.effects.add(effect.id)


def close_effect(tree: Tree, id: int) -> Effect | None:
    """Forget an effect that is over; `None` where it was over already."""
    effect = tree.open.pop(id, None)
    if effect is not None:
        wake = tree.nodes[effect.handle].wake
        if wake is not None:
            wake.effects.discard(id)
            if isinstance(effect, CallTool):
                wake.entered -= 1
            elif isinstance(effect, (CheckText, AskLimit, Verify, Sleep)):
                wake.check = 0
    return effect


def wake_of(tree: Tree, handle: str) -> tuple[Node, Wake]:
    """Return a handle and its wake, which has to be there."""
    node = tree.nodes[handle]
    wake = node.wake
    assert wake is not None
    return node, wake


def call_of(wake: Wake, id: str) -> Call:
    """Return the call of an id in the batch.

    Raises:
        KeyError: The batch has none.
    """
    call = wake.by_id.get(id)
    if call is not None:
        return call
    raise KeyError(id)


def flush(tree: Tree, node: Node, wake: Wake) -> None:
    """Put the results of the batch into the transcript, in call order."""
    results = batch_messages(tree, wake.batch or (), wake.limit or wake.status or "")
    for call, message in zip(wake.batch or (), results, strict=True):
        # Also where it is not too long by itself, but with what was put before it.
        if call.state == CallState.DONE and message.text != call.output:
            node.results[call.id] = call.output
    node.messages += results
    node.bytes_since += sum(size(m.text) for m in results)


def roll_back(tree: Tree, node: Node, wake: Wake) -> None:
    """Leave only what is committed in the transcript."""
    node.messages = committed(tree, node, wake)


def note_unpriced(node: Node, model: str, why: str) -> None:
    """Remember of which model a call could not be priced."""
    if node.unpriced is None:
        node.unpriced = {}
    key = (model, why)
    node.unpriced[key] = node.unpriced.get(key, 0) + 1


def draw(node: Node, call: Call) -> None:
    """Draw one tool call along the ancestors, once an attempt."""
    if not call.drew:
        call.drew = True
        node.own.tool_calls += 1
        for a in node.chain:
            a.total.tool_calls += 1


def finish(
    wake: Wake, call: Call, output: str, is_error: bool, metadata: str | None, *, remember: bool = True
) -> None:
    """Give a call its result, and remember it for the attempts that follow."""
    call.state = CallState.DONE
    call.effect = 0
    call.output = output
    call.is_error = is_error
    call.metadata = metadata
    memory = wake.memory.get(call.key) if remember else None
    if memory is not None:
        call.changed = memory.edit is not None
        memory.finished = True
        memory.finished_in = wake.attempt
        memory.unsettled = False
        memory.output = output
        memory.is_error = is_error
        memory.metadata = metadata


def unhost(tree: Tree, node: Node, wake: Wake, request: str) -> None:
    """End the asking of a host that has not answered a request yet."""
    state = tree.requests[request]
    if state.host:
        close_effect(tree, state.host)
        state.host = 0
        wake.hosts -= 1
        for a in node.chain:
            a.live -= 1
