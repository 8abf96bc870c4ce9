"""How a wake moves: what a running or suspended handle does next."""

from __future__ import annotations

from overt.core import facts as f
from overt.core.admission import go_on, hand_over
from overt.core.budget import Admitted, Stopped, Waits, admit_model, plain, turn_cap, turn_stop, wall_left
from overt.core.calls import enter_new
from overt.core.conclude import conclude
from overt.core.desk import Desk
from overt.core.ending import fail, settle
from overt.core.inputs import ModelDone, ModelLost
from overt.core.limits import at_limit
from overt.core.policing import act_on, denied_text, unasked
from overt.core.suspension import ask_doubt
from overt.core.tree import Call, CallState, Node, Wake
from overt.result import Limit, State

__all__ = ("consider_all", "is_ready", "lost", "replied")


READY = (CallState.NEW, CallState.DONE, CallState.REFUSED, CallState.FINAL)
"""Where every call of a parked wake that may go on stands."""


def consider_all(d: Desk) -> None:
    """Look at every touched handle until nothing moves any more."""
    while d.touched:
        _consider(d, d.touched.pop(0))
        if not d.touched and d.tree.waiting:
            _retry_waiting(d)


def _consider(d: Desk, node: Node) -> None:
    if node.queue:
        hand_over(d, node)
    wake = node.wake
    if wake is None or wake.status is not None:
        return
    if node.gone is not None:
        fail(d, node, node.gone)
        return
    if wake.accepted or wake.stale is not None:
        _drop_questions(d, node, wake)
    if node.state is State.RUNNING:
        _advance(d, node, wake)
    elif is_ready(node):
        go_on(d, node)


def is_ready(node: Node) -> bool:
    """Whether a handle is parked and waits for nothing any more."""
    wake = node.wake
    return (
        wake is not None
        and node.state is State.SUSPENDED
        and node.queued is None
        and wake.asks is None
        and all(c.state in READY for c in wake.batch or ())
    )


def _drop_questions(d: Desk, node: Node, wake: Wake) -> None:
    """Take back what is asked about a call that cannot be entered, and about an answer that goes back to the model."""
    for call in wake.batch or ():
        if (
            call.error is not None
            and call.state == CallState.ASKED
            and call.request is not None
            # Whether something has happened is asked all the same.
            and d.tree.requests[call.request].question.kind != "in_doubt"
        ):
            d.emit(f.RequestCancelled(node.id, call.request))
            d.emit(f.CallReturned(node.id, call.id, 0, call.error, True))
    if _is_stale(wake) and wake.asks is not None and d.tree.requests[wake.asks].about == "output":
        d.emit(f.RequestCancelled(node.id, wake.asks))


def _is_stale(wake: Wake) -> bool:
    return wake.final and wake.stale is not None and wake.stale[0] == wake.output


def _advance(d: Desk, node: Node, wake: Wake) -> None:
    if wake.model or wake.waiting or wake.check:
        return
    if wake.asks is not None:
        _park(d, node)
        return
    if wake.declined is not None:
        what, reason = wake.declined
        fail(d, node, denied_text(what, f"declined: {reason}"))
        return
    if wake.final and not wake.rewind_due:
        if wake.stale is None or not _is_stale(wake):
            conclude(d, node, wake)
            return
        d.emit(f.OutputRefused(node.id, wake.stale[1]))
    if wake.batch is not None:
        for c in wake.batch:
            if c.state == CallState.CUT:
                ask_doubt(d, node, wake, c)
        if not wake.rewind_due and wake.failing is None:
            enter_new(d, node, wake)
        # What strayed has ended the wake.
        if wake.status is not None or not _drained(d, node, wake):
            return
    if wake.rewind_due:
        d.emit(f.Rewound(node.id))
        d.touch(node)
        return
    if wake.failing is not None:
        fail(d, node, wake.failing)
        return
    if wake.unchecked:
        d.emit(f.TextCheckAsked(node.id, d.tree.next_effect, "prompt"))
        return
    _call_model(d, node, wake)


def _park(d: Desk, node: Node) -> None:
    d.emit(f.WakeParked(node.id))
    if node.parent is not None:
        d.touch(node.parent)
    d.touch_above(node)


def _drained(d: Desk, node: Node, wake: Wake) -> bool:
    """Whether every call of the batch has its result; parks or stops the wake where that is what is left to do."""
    asked = waits = False
    refused: Call | None = None
    for call in wake.batch or ():
        state = call.state
        if state == CallState.ENTERED or state == CallState.CUT or state == CallState.CHECKING:
            return False
        if state == CallState.WAITING:
            assert call.child is not None
            child = d.tree.nodes[call.child]
            if child.state is not State.SUSPENDED or child.live:
                return False
            waits = True
        elif state == CallState.ASKED:
            asked = True
        elif state == CallState.REFUSED and refused is None:
            refused = call
    # What a hook has failed over is not asked about first; but a child's work is not thrown away for it.
    if waits or (asked and wake.failing is None):
        _park(d, node)
        return False
    if refused is not None and not wake.rewind_due and wake.failing is None:
        assert refused.limit is not None
        assert refused.at is not None
        if refused.limit == Limit.MAX_TURNS:
            at_limit(d, node, wake, turn_stop(node))
        else:
            cap = d.tree.nodes[refused.at].caps.max_tool_calls
            at_limit(d, node, wake, Stopped(Limit(refused.limit), refused.at, str(cap)))
        return False
    return True


def _call_model(d: Desk, node: Node, wake: Wake) -> None:
    match admit_model(d.tree, node):
        case Stopped() as stopped:
            at_limit(d, node, wake, stopped)
        case _ if wake.turns >= turn_cap(node):
            at_limit(d, node, wake, turn_stop(node))
        case Waits():
            if not wake.waiting:
                d.emit(f.ModelAwaited(node.id))
        case Admitted(reserve, left, money):
            usd = None if money is None else plain(money)
            d.emit(f.ModelCalled(node.id, d.tree.next_effect, reserve, left, usd))


def _retry_waiting(d: Desk) -> None:
    for node in list(d.tree.waiting):
        wake = node.wake
        if wake is not None and wake.waiting:
            _call_model(d, node, wake)


def lost(d: Desk, inp: ModelLost, node: Node, wake: Wake) -> None:
    """A model call failed: post it, then wait for another attempt, or fail with it."""
    d.emit(f.ModelFailed(node.id, inp.effect, inp.error, inp.tokens, inp.cost, inp.model, inp.charge))
    if inp.wait is not None and _has_room(d, node, inp.wait):
        d.emit(f.RetryAwaited(node.id, d.tree.next_effect, inp.wait))
    else:
        fail(d, node, inp.error)


def _has_room(d: Desk, node: Node, wait: int) -> bool:
    """Whether another attempt could be made after the wait; what cannot is not waited for."""
    left = wall_left(d.tree, node)
    return (left is None or wait < left) and not isinstance(admit_model(d.tree, node), Stopped)


REPLY_ERRORS = {
    "refusal": ("Refusal", "The model refused to answer."),
    "content_filter": ("ContentFilter", "The provider's content filter held back the reply."),
    "length": ("OutputTruncated", "The reply was cut off by the output limit; nothing of it was executed."),
}


def replied(d: Desk, inp: ModelDone, node: Node, wake: Wake) -> None:
    """A model replied: post it, then go on with its calls, its text, or what is wrong with it."""
    calls = inp.calls
    if inp.finish == "length":
        calls = tuple(c._replace(args=None, error="cut off by the output limit, not executed") for c in calls)
    d.emit(
        f.ModelReplied(
            node.id,
            inp.effect,
            inp.text,
            _recorded(calls) if inp.ruled else calls,
            inp.tokens,
            inp.cost,
            inp.finish,
            inp.model,
            inp.reasoning,
            inp.opaque,
            inp.ruled,
            None if inp.finish in REPLY_ERRORS else inp.output,
            inp.charge,
        )
    )
    if inp.finish == "length":
        verdict = admit_model(d.tree, node)
        if isinstance(verdict, Stopped) and verdict.limit is Limit.MAX_TOKENS:
            if inp.error is not None:
                fail(d, node, inp.error)
            else:
                at_limit(d, node, wake, verdict)
            return
    # What a hook made of a reply that is none comes with it.
    also = None if inp.error is None else f"a hook failed over it: {inp.error.type}: {inp.error.message}"
    if inp.finish in REPLY_ERRORS:
        type, message = REPLY_ERRORS[inp.finish]
        fail(d, node, f.ErrorSpec(type, message, "model", detail=also), drop=True)
    elif not calls and not inp.text.strip():
        empty = "The model replied with neither text nor calls."
        fail(d, node, f.ErrorSpec("EmptyReply", empty, "model", True, detail=also), drop=True)
    elif wake.final:
        if inp.error is not None:
            fail(d, node, inp.error)
        elif node.gated:
            d.touch(node)
        else:
            settle(d, node, "done")
    elif not calls:
        # Noted before a hook's error, too: whoever goes on after that goes on from here.
        d.emit(f.OutputRefused(node.id, inp.refused or "the final answer does not fit"))
        if inp.error is not None:
            fail(d, node, inp.error)
        d.touch(node)
    elif wake.turns >= turn_cap(node):
        stopped = turn_stop(node)
        for call in wake.batch or ():
            d.emit(f.CallRefused(node.id, call.id, str(Limit.MAX_TURNS), stopped.at))
        if inp.error is not None:
            fail(d, node, inp.error)
        else:
            at_limit(d, node, wake, stopped)
    elif inp.error is not None:
        fail(d, node, inp.error)
    else:
        if inp.ruled and wake.batch is not None:
            ruled = [(c, s.ruling) for c, s in zip(wake.batch, calls, strict=True) if s.ruling]
            if ruled:
                act_on(d, node, wake, ruled)
        d.touch(node)


def _recorded(calls: tuple[f.CallSpec, ...]) -> tuple[f.CallSpec, ...]:
    return tuple(c if c.ruling is None else c._replace(ruling=unasked(c.ruling)) for c in calls)
