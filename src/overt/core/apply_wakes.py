"""What the facts about wakes and handles change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from overt._frozen import trusted
from overt._text import size
from overt.core import facts as f
from overt.core.lifecycle import Move
from overt.core.moves import (
    dequeue,
    flush,
    move,
    queue,
    roll_back,
    wake_of,
)
from overt.core.render import user_text
from overt.core.tree import Call, CallState, Checkpoint, Item, Node, Tree, Wake
from overt.message import AssistantMessage, UserMessage

__all__ = ("HANDLERS",)


def _wake_queued(tree: Tree, fact: f.WakeQueued) -> None:
    node = tree.nodes[fact.handle]
    node.next_wake = (fact.prompt, fact.closes)
    queue(node, "wake")


def _wake_dropped(tree: Tree, fact: f.WakeDropped) -> None:
    node = tree.nodes[fact.handle]
    if node.queued == "wake":
        assert node.next_wake is not None
        node.inbox[:0] = _supersede(tree, node)
        wake = Wake(node.wakes + 1, *node.next_wake)
        wake.status = fact.status
        node.wakes += 1
        node.wake = wake
        node.next_wake = None
    dequeue(node)


def _supersede(tree: Tree, node: Node) -> list[Item]:
    """Give up a wake that could have gone on, for a new one; return the inbox items that were kept with it."""
    before = node.wake
    tree.cut.pop(node.id, None)
    if before is None or not (before.status == "error" or before.cut):
        return []
    roll_back(tree, node, before)
    return before.items


def _wake_started(tree: Tree, fact: f.WakeStarted) -> None:
    node = tree.nodes[fact.handle]
    # Asked before it leaves the queue: what waited for a slot was under way already.
    fresh = tree.root.live == 0
    dequeue(node)
    kept = _supersede(tree, node)
    node.next_wake = None
    node.wakes += 1
    if fresh:
        # New work of the host: what the last resume repeated is not said of it.
        tree.replays = None
    wake = node.wake = Wake(node.wakes, fact.prompt, fact.closes)
    wake.items = kept + node.inbox
    node.inbox.clear()
    wake.checkpoint = Checkpoint(len(node.messages), {})
    wake.unchecked = node.prompted
    text = user_text(fact.prompt, wake.items, {a.id for a in node.chain})
    wake.user = trusted(UserMessage, role="user", text=text, parts=())
    node.messages.append(wake.user)
    node.bytes_since += size(text)
    wake.bytes_kept = node.bytes_since
    move(tree, node, Move.ADMIT)


def _wake_parked(tree: Tree, fact: f.WakeParked) -> None:
    move(tree, tree.nodes[fact.handle], Move.PARK)


def _resume_queued(tree: Tree, fact: f.ResumeQueued) -> None:
    tree.ready.pop(fact.handle, None)
    queue(tree.nodes[fact.handle], "resume")


def _resumed(tree: Tree, fact: f.Resumed) -> None:
    node = tree.nodes[fact.handle]
    tree.ready.pop(node.id, None)
    dequeue(node)
    move(tree, node, Move.RESUME)


def _reopen_queued(tree: Tree, fact: f.ReopenQueued) -> None:
    queue(tree.nodes[fact.handle], "reopen")


def _wake_reopened(tree: Tree, fact: f.WakeReopened) -> None:
    node, wake = wake_of(tree, fact.handle)
    dequeue(node)
    wake.retries = 0
    if wake.drop:
        # The turn it stood for is still to be bought again.
        wake.rebuy += wake.rebought
        wake.rebought = False
        wake.final = False
        for call in wake.batch or ():
            _forget_occurrence(wake, call)
            node.bytes_since -= size(call.raw)
        kept = wake.full is None and len(node.messages) == wake.checkpoint.messages
        wake.set_batch(None)
        node.bytes_since -= size(node.messages.pop().text)
        if kept:
            _drop_from_checkpoint(node, wake)
        wake.partial = _last_text(node, wake)
    else:
        if wake.flushed:
            # The results come again with the batch, which is still there.
            node.bytes_since -= sum(size(m.text) for m in node.messages[-wake.flushed :])
            del node.messages[-wake.flushed :]
        # What was stopped at a question asks again: the end of the wake cancelled its request.
        _open_again(
            wake,
            (
                c
                for c in wake.batch or ()
                if wake.flushed or (c.request is not None and tree.requests[c.request].status == "cancelled")
            ),
        )
    wake.flushed = 0
    wake.status = wake.limit = wake.limit_at = wake.limit_cap = wake.error = None
    wake.cut = wake.drop = False
    wake.capped = True
    wake.extended = None
    tree.cut.pop(node.id, None)
    move(tree, node, Move.REOPEN)


def _drop_from_checkpoint(node: Node, wake: Wake) -> None:
    """A stop has kept the reply that is dropped, before anything of it happened: the checkpoint lies before it now."""
    checkpoint = wake.checkpoint
    dropped = {call.key for call in checkpoint.batch or ()}
    wake.claimed -= dropped
    wake.checkpoint = checkpoint._replace(
        messages=len(node.messages),
        occurrences=dict(wake.occurrences),
        batch=None,
        claimed=checkpoint.claimed - dropped,
    )
    wake.bytes_kept = node.bytes_since


def _last_text(node: Node, wake: Wake) -> str:
    for message in reversed(node.messages[0 if wake.full is not None else wake.checkpoint.messages :]):
        if isinstance(message, AssistantMessage) and message.text:
            return message.text
    return ""


def _rewind_asked(tree: Tree, fact: f.RewindAsked) -> None:
    wake_of(tree, fact.handle)[1].rewind_due = True


def _rewound(tree: Tree, fact: f.Rewound) -> None:
    node, wake = wake_of(tree, fact.handle)
    wake.rebuy += wake.turns - wake.turns_kept
    wake.attempt += 1
    wake.turns = wake.turns_kept = wake.retries = 0
    wake.rewind_due = False
    checkpoint = wake.checkpoint
    if wake.full is not None:
        node.messages = list(wake.full)
        node.last_input = max(node.last_input, wake.full_input)
        wake.full = None
    else:
        del node.messages[checkpoint.messages :]
    wake.unchecked = node.prompted
    wake.final, wake.output = checkpoint.final, checkpoint.output
    wake.passed = wake.cleared = False
    wake.agreed = wake.extended = wake.offers = wake.failing = None
    wake.verdicts = []
    if checkpoint.prompt:
        assert wake.user is not None
        node.messages.append(wake.user)
    wake.occurrences = dict(checkpoint.occurrences)
    wake.set_batch(None if checkpoint.batch is None else [c.copy() for c in checkpoint.batch])
    wake.claimed = set(checkpoint.claimed)
    for call in wake.batch or ():
        call.drew = call.state == CallState.DONE
        call.cleared = False
        if call.state == CallState.CUT and wake.memory[call.key].doubt() is None:
            call.state = CallState.NEW
        memory = wake.memory.get(call.key)
        edit = None if memory is None else memory.edit
        if call.state != CallState.DONE:
            call.approved = edit is not None
        if edit is not None:
            # Approved with other arguments since the stop: those run, not the ones the checkpoint has.
            call.edit, call.seen = edit, True
    wake.partial = ""
    if wake.final:
        wake.text = wake.partial = checkpoint.text
    node.bytes_since = wake.bytes_kept


def _wake_settled(tree: Tree, fact: f.WakeSettled) -> None:
    node, wake = wake_of(tree, fact.handle)
    wake.status = fact.status
    wake.limit, wake.limit_at, wake.limit_cap = fact.limit, fact.at, fact.cap
    wake.error, wake.reason, wake.cut, wake.drop = fact.error, fact.reason, fact.cut, fact.drop
    tree.ready.pop(node.id, None)
    if fact.cut:
        tree.cut[node.id] = node
    if wake.waiting:
        wake.waiting = False
        tree.waiting.remove(node)
    if fact.status == "incomplete":
        _commit_stop(tree, node, wake)
    elif fact.status == "done":
        if wake.batch is not None:
            # The call that gave the typed output gets its result, so that the transcript is balanced.
            flush(tree, node, wake)
            wake.set_batch(None)
        wake.full = None
    elif fact.status == "error":
        wake.failing = None
    elif fact.status in ("interrupted", "closed") and not fact.cut:
        roll_back(tree, node, wake)
        node.inbox[:0] = wake.items
        wake.items = []
    if not fact.cut:
        _report_unused(tree, wake)
    dequeue(node)
    move(tree, node, Move.SETTLE)


def _commit_stop(tree: Tree, node: Node, wake: Wake) -> None:
    """A limit stop keeps the work: it moves the checkpoint, and the transcript is balanced."""
    kept = len(node.messages)
    wake.bytes_kept = node.bytes_since
    if wake.batch is not None:
        flush(tree, node, wake)
        wake.flushed = len(node.messages) - kept
    batch = None
    if wake.batch is not None:
        batch = tuple(c.copy() for c in wake.batch)
        _open_again(wake, batch)
    wake.checkpoint = Checkpoint(
        kept,
        dict(wake.occurrences),
        batch,
        False,
        frozenset(wake.claimed),
        wake.final,
        wake.text if wake.final else "",
        wake.output,
    )
    wake.full = None
    wake.turns_kept = wake.turns


def _open_again(wake: Wake, batch: Iterable[Call]) -> None:
    """Calls that were left open at a stop are to be entered when the wake goes on."""
    for c in batch:
        if c.state not in (CallState.DONE, CallState.CUT, CallState.FINAL):
            m = wake.memory.get(c.key)
            c.state = CallState.CUT if m is not None and m.doubt() is not None else CallState.NEW
            c.limit, c.at, c.request = None, None, None
            c.cleared = False


def _report_unused(tree: Tree, wake: Wake) -> None:
    wake.unused_answers, wake.unused_children = [], []
    if wake.attempt == 1 and not wake.divergences and not wake.strayed:
        return
    wake.unused_answers += wake.replaced
    wake.unused_answers += [r for what, r in (wake.approvals or {}).items() if f"@{what}" not in wake.claimed]
    for memory in wake.memory.values():
        wake.unused_answers += memory.replaced
        if memory.key in wake.claimed:
            continue
        asked = memory.slots if memory.guard is None else (memory.guard, *memory.slots)
        wake.unused_answers += [
            r for r in asked if tree.requests[r].status == "answered" and r not in wake.unused_answers
        ]
        if memory.child is not None:
            wake.unused_children.append(memory.child)
    if tree.replays is not None:
        tree.replays.unused_answers += wake.unused_answers
        tree.replays.unused_children += wake.unused_children


def _given_up(tree: Tree, fact: f.WakeGivenUp) -> None:
    node, wake = wake_of(tree, fact.handle)
    roll_back(tree, node, wake)
    node.inbox[:0] = wake.items
    wake.items = []
    wake.cut = False
    wake.reason = fact.reason
    tree.cut.pop(node.id, None)


def _handle_closed(tree: Tree, fact: f.HandleClosed) -> None:
    node = tree.nodes[fact.handle]
    node.closed_reason = fact.reason
    tree.cut.pop(node.id, None)
    dequeue(node)
    move(tree, node, Move.CLOSE)


def _forget_occurrence(wake: Wake, call: Call) -> None:
    if call.key:
        wake.occurrences[call.base] -= 1
        wake.claimed.discard(call.key)


HANDLERS: dict[type, Callable[[Tree, Any], None]] = {
    f.WakeQueued: _wake_queued,
    f.WakeDropped: _wake_dropped,
    f.WakeStarted: _wake_started,
    f.WakeParked: _wake_parked,
    f.RewindAsked: _rewind_asked,
    f.Rewound: _rewound,
    f.ResumeQueued: _resume_queued,
    f.Resumed: _resumed,
    f.ReopenQueued: _reopen_queued,
    f.WakeReopened: _wake_reopened,
    f.WakeSettled: _wake_settled,
    f.HandleClosed: _handle_closed,
    f.WakeGivenUp: _given_up,
}
