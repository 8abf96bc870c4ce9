"""What the facts about questions and answers change."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from overt.core import facts as f
from overt.core.apply_policy import reopen_call
from overt.core.effects import RESOLVER, AskHost, Notify
from overt.core.moves import (
    call_of,
    close_effect,
    finish,
    open_effect,
    unhost,
    wake_of,
)
from overt.core.render import reply_of
from overt.core.tree import Call, CallState, Memory, Node, RequestState, Tree, Wake
from overt.result import State

__all__ = ("HANDLERS",)


def _call_asked(tree: Tree, fact: f.CallAsked) -> None:
    node, wake = wake_of(tree, fact.handle)
    call = call_of(wake, fact.call)
    if fact.effect:
        close_effect(tree, fact.effect)
    call.state = CallState.ASKED
    call.cleared = False
    call.effect = 0
    call.request = fact.request
    memory = wake.memory[call.key]
    memory.asked += 1
    request = RequestState(fact.request, node.id, wake.number, call.id, call.key, fact.question)
    request.slot, request.once, request.diverged, request.asked_at = (
        fact.slot,
        fact.once,
        fact.diverged,
        tree.now,
    )
    if fact.guard:
        request.guard = True
        if memory.guard is not None and tree.requests[memory.guard].status == "answered":
            memory.replaced = (*memory.replaced, memory.guard)
        memory.guard, memory.approval, memory.edit, memory.reply = fact.request, None, None, None
    elif fact.question.kind != "in_doubt":
        memory.replaced += tuple(
            r for r in memory.slots[fact.slot :] if tree.requests[r].status == "answered"
        )
        memory.slots = (*memory.slots[: fact.slot], fact.request)
        memory.unsettled = False
    tree.requests[fact.request] = request
    if fact.question.expires_at is not None:
        tree.expiring[request.id] = request
    for a in node.chain:
        a.open_requests += 1


def _diverged(tree: Tree, fact: f.Diverged) -> None:
    if fact.question:
        wake_of(tree, fact.handle)[1].divergences += 1
    else:
        wake_of(tree, fact.handle)[1].strayed = True


def _host_asked(tree: Tree, fact: f.HostAsked) -> None:
    node, wake = wake_of(tree, fact.handle)
    open_effect(tree, AskHost(fact.effect, fact.handle, fact.request, fact.by))
    tree.requests[fact.request].host = fact.effect
    wake.hosts += 1
    for a in node.chain:
        a.live += 1


def _host_passed(tree: Tree, fact: f.HostPassed) -> None:
    node, wake = wake_of(tree, fact.handle)
    effect = tree.open[fact.effect]
    assert isinstance(effect, AskHost)
    unhost(tree, node, wake, effect.request)
    if effect.by == RESOLVER:
        tree.requests[effect.request].resolve_error = fact.error
    else:
        tree.requests[effect.request].host_error = fact.error


def _notify_asked(tree: Tree, fact: f.NotifyAsked) -> None:
    open_effect(tree, Notify(fact.effect, fact.handle, fact.request))


def _notified(tree: Tree, fact: f.Notified) -> None:
    close_effect(tree, fact.effect)


def _end_request(tree: Tree, node: Node, wake: Wake, request: RequestState, status: str) -> None:
    unhost(tree, node, wake, request.id)
    tree.expiring.pop(request.id, None)
    request.status = status
    request.answered_at = tree.now
    for a in node.chain:
        a.open_requests -= 1


def _answer_given(tree: Tree, fact: f.AnswerGiven) -> None:
    node, wake = wake_of(tree, fact.handle)
    request = tree.requests[fact.request]
    _end_request(tree, node, wake, request, "answered")
    request.answer = fact
    if node.state is State.SUSPENDED:
        tree.ready[node.id] = node
    if request.about is not None:
        _wake_answered(tree, node, wake, request, fact)
        return
    call = call_of(wake, request.call)
    call.request = None
    if request.question.kind == "in_doubt":
        _resolve_doubt(wake, call, request, fact)
        return
    call.state = CallState.NEW
    if request.guard:
        _ruled_by_answer(wake.memory[call.key], call, request, fact)
    _rewind(node, request, fact)


def _rewind(node: Node, request: RequestState, fact: f.AnswerGiven) -> None:
    if fact.policy == "rewind" and request.question.kind != "budget":
        for a in node.chain:
            if a.state is State.SUSPENDED and a.wake is not None:
                a.wake.rewind_due = True


def _wake_answered(tree: Tree, node: Node, wake: Wake, request: RequestState, fact: f.AnswerGiven) -> None:
    wake.asks = None
    assert request.about is not None
    if request.about == "budget":
        _look_again(wake)
        return
    if fact.ok:
        wake.approvals = {**(wake.approvals or {}), request.about: request.id}
        wake.agreed = request.about
    else:
        wake.declined = (request.about, fact.reason or "no reason given")
    _rewind(node, request, fact)


def _ruled_by_answer(memory: Memory, call: Call, request: RequestState, fact: f.AnswerGiven) -> None:
    if not fact.ok:
        memory.declined = fact.reason or "no reason given"
        return
    memory.approval = request.id
    call.approved = call.seen = True
    data = None if fact.data is None else json.loads(fact.data)
    if fact.args is not None:
        # The arguments that were shown, said again, change nothing.
        if fact.args != call.run_args:
            memory.edit = call.edit = fact.args
    else:
        memory.reply = reply_of(data)


def _resolve_doubt(wake: Wake, call: Call, request: RequestState, fact: f.AnswerGiven) -> None:
    memory = wake.memory[call.key]
    if not fact.ok:
        call.state = CallState.CUT
        return
    data: dict[str, Any] = json.loads(fact.data or "{}")
    outcome, output = data["outcome"], data.get("output")
    call.state = CallState.NEW
    if request.once is not None:
        assert memory.once is not None
        if outcome == "retry":
            del memory.once[request.once]
        else:
            once = memory.once[request.once]
            once.done = True
            if outcome == "succeeded":
                once.value = json.dumps(output, separators=(",", ":"), ensure_ascii=False)
            else:
                once.error = "" if output is None else str(output)
        if memory.doubt():
            call.state = CallState.CUT
        return
    memory.unsettled = False
    if outcome != "retry":
        text = (
            output
            if isinstance(output, str)
            else json.dumps(output, separators=(",", ":"), ensure_ascii=False)
        )
        metadata = data.get("metadata")
        finish(
            wake,
            call,
            "" if output is None else text,
            outcome == "failed",
            None if metadata is None else json.dumps(metadata, separators=(",", ":"), ensure_ascii=False),
        )


def _look_again(wake: Wake) -> None:
    """A cap the wake asked about has been raised; where it is spent all the same, it asks anew."""
    wake.extended = None
    wake.capped = True
    for call in wake.batch or ():
        if call.state == CallState.REFUSED:
            reopen_call(call)


def _request_cancelled(tree: Tree, fact: f.RequestCancelled) -> None:
    node, wake = wake_of(tree, fact.handle)
    _end_request(tree, node, wake, tree.requests[fact.request], "cancelled")
    if wake.asks == fact.request:
        wake.asks = None
        if tree.requests[fact.request].about == "budget" and wake.status is None:
            _look_again(wake)


HANDLERS: dict[type, Callable[[Tree, Any], None]] = {
    f.CallAsked: _call_asked,
    f.Diverged: _diverged,
    f.HostAsked: _host_asked,
    f.HostPassed: _host_passed,
    f.NotifyAsked: _notify_asked,
    f.Notified: _notified,
    f.AnswerGiven: _answer_given,
    f.RequestCancelled: _request_cancelled,
}
