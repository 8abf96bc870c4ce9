"""Going on after a cancellation, a crash, a failure or a limit."""

from __future__ import annotations

from decimal import Decimal

from overt.core import facts as f
from overt.core.admission import reopen
from overt.core.budget import CAP_OF, slots, turn_cap
from overt.core.desk import Desk
from overt.core.effects import AskHost, Notify
from overt.core.ending import cut_effects
from overt.core.inputs import Cancel, Extend, Recover
from overt.core.suspension import ask_doubt, host_again, look_again
from overt.core.tree import CallState, Node, Tree, Wake
from overt.errors import HandleClosed, UnknownHandle, UsageError
from overt.result import State

__all__ = ("cancel", "check_raise", "extend", "recover")


def cancel(d: Desk, inp: Cancel) -> None:
    """Close the journal off: what runs is interrupted and can be recovered, what is parked stays parked."""
    for node in reversed(list(d.tree.root.below())):
        wake = node.wake
        if wake is None or wake.status is not None:
            continue
        if (
            node.state is State.SUSPENDED
            and not wake.hosts
            and node.queued is None
            and not _waits_for_cut(d, wake)
        ):
            continue
        cut_effects(d, wake, inp.why)
        _ask_doubts(d, node, wake, host=False)
        d.emit(f.WakeSettled(node.id, "interrupted", cut=True, reason=inp.why))


def _waits_for_cut(d: Desk, wake: Wake) -> bool:
    for call in wake.batch or ():
        if call.state == CallState.WAITING and call.child is not None:
            child = d.tree.nodes[call.child].wake
            if child is not None and child.cut:
                return True
    return False


def _ask_doubts(d: Desk, node: Node, wake: Wake, *, host: bool) -> None:
    for call in wake.batch or ():
        if call.state == CallState.CUT:
            ask_doubt(d, node, wake, call, host=host)


def recover(d: Desk, inp: Recover) -> None:
    """Go on with every wake whose own call was cut off, and with failed ones; leaves first."""
    tree = d.tree
    if not (tree.open or tree.cut or tree.ready or tree.root.live or (inp.failed and _failed(tree.root))):
        return
    d.emit(f.ResumeBegun(inp.verb, dead=True))
    hosts: list[str] = []
    tell: list[str] = []
    for effect in list(tree.open.values()):
        if isinstance(effect, AskHost):
            hosts.append(effect.request)
        elif isinstance(effect, Notify):
            tell.append(effect.request)
        d.emit(f.EffectLost(effect.handle, effect.id, "the process ended"))
    for node in reversed(list(tree.root.below())):
        wake = node.wake
        if wake is None or node.state is State.CLOSED or node.queued in ("wake", "reopen"):
            continue
        was_cut = wake.cut
        diverged = wake.error is not None and wake.error.type == "ReplayDiverged" and not wake.drop
        if was_cut or (inp.failed and wake.status == "error"):
            if was_cut:
                hosts += [
                    c.request
                    for c in wake.batch or ()
                    if c.request is not None and c.state == CallState.ASKED
                ]
                if wake.asks is not None:
                    hosts.append(wake.asks)
            reopen(d, node)
        elif wake.status is not None:
            continue
        if node.state is State.SUSPENDED:
            d.touch(node)
            continue
        _ask_doubts(d, node, wake, host=True)
        if diverged or (
            inp.policy == "rewind" and not any(c.state == CallState.WAITING for c in wake.batch or ())
        ):
            d.emit(f.RewindAsked(node.id))
        d.touch(node)
    for id in dict.fromkeys(hosts + tell):
        request = tree.requests[id]
        if request.status == "open" and not request.host:
            host_again(d, request)
    for node in tree.nodes.values():
        if node.queue:
            d.touch(node)


def _failed(root: Node) -> bool:
    return any(
        n.wake is not None and n.wake.status == "error" and n.state is not State.CLOSED for n in root.below()
    )


def extend(d: Desk, inp: Extend) -> None:
    """Raise caps, and go on with the wakes they stopped."""
    tree = d.tree
    entry = tree.entry
    if inp.handle is not None:
        if inp.handle not in tree.nodes:
            raise UnknownHandle(f"run {tree.run_id} has no handle {inp.handle!r}")
        target = tree.nodes[inp.handle]
    else:
        if entry is None or entry.wake is None or entry.wake.limit_at is None:
            hint = _asked_instead(tree, None) or "; say which handle's caps to raise"
            raise UsageError(f"extend: the run did not stop at a limit{hint}")
        target = tree.nodes[entry.wake.limit_at]
    if target.state is State.CLOSED:
        raise HandleClosed(f"{target.id} is closed")
    for name, value in zip(f.Caps._fields, inp.caps, strict=True):
        if value is not None:
            check_raise(target, name, value)
    stopped = [
        n
        for n in tree.nodes.values()
        if n.state is not State.CLOSED
        and n.wake is not None
        and n.wake.status == "incomplete"
        and n.queued is None
        and (n.wake.limit_at == target.id or n is target)
    ]
    if not stopped:
        raise UsageError(f"extend: nothing stopped at a cap of {target.id}{_asked_instead(tree, target.id)}")
    if inp.caps != f.Caps():
        raised = f.BudgetRaised(target.id, inp.caps)
    elif all(n.wake is not None and n.wake.limit == "completion" for n in stopped):
        # A gate has no cap: going on is one more round of it.
        raised = None
    else:
        raise UsageError("extend: the budget sets no cap; give the new total of the one that stopped the run")
    d.emit(f.ResumeBegun("extend"))
    if raised is not None:
        d.emit(raised)
    for limit, name in CAP_OF.items():
        if getattr(inp.caps, name) is not None:
            look_again(d, target, limit)
    for node in stopped:
        reopen(d, node)
        wake = node.wake
        if wake is not None and wake.status is None:
            _ask_doubts(d, node, wake, host=True)


def _asked_instead(tree: Tree, at: str | None) -> str:
    asked = [r.id for r in tree.requests.values() if r.status == "open" and r.at and at in (None, r.at)]
    return f"; it asks instead: answer request {', '.join(asked)}" if asked else ""


def check_raise(node: Node, name: str, value: object, *, who: str = "extend") -> None:
    """Refuse to lower a cap, or to set one where there is none.

    Raises:
        UsageError: Says which.
    """
    present: object = getattr(node.caps, name)
    if name == "max_turns":
        present = turn_cap(node)
    elif name == "max_concurrent":
        present = slots(node)
    elif name == "max_depth":
        present = 3 if node.caps.max_depth is None else node.caps.max_depth
    if present is None:
        raise UsageError(f"{who}: {node.id} has no {name}; setting one would be lowering it")
    if Decimal(str(value)) < Decimal(str(present)):
        raise UsageError(f"{who}: {name} of {node.id} is {present}; {value} is below it (say the new total)")
