"""What the facts about guardrails, limits that ask, the gate, typed output and hooks change."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

from pydantic import ConfigDict, TypeAdapter

from overt._frozen import trusted
from overt._text import size
from overt.core import facts as f
from overt.core.batch import Call, CallState
from overt.core.budget import cap_now, spent_now
from overt.core.effects import AskLimit, CallModel, CheckCalls, CheckText, Verify
from overt.core.ledger import MONEY
from overt.core.moves import call_of, close_effect, finish, open_effect, wake_of
from overt.core.tree import Node, RequestState, Tree, Wake
from overt.message import AssistantMessage, Message, UserMessage
from overt.result import Limit

__all__ = ("HANDLERS", "MESSAGE", "go_past", "reopen_call")

MESSAGE: TypeAdapter[Message] = TypeAdapter(Message, config=ConfigDict(defer_build=True))


def _checks_asked(tree: Tree, fact: f.ChecksAsked) -> None:
    _, wake = wake_of(tree, fact.handle)
    open_effect(tree, CheckCalls(fact.effect, fact.handle, fact.calls))
    for id in fact.calls:
        call_of(wake, id).state = CallState.CHECKING


def _checks_done(tree: Tree, fact: f.ChecksDone) -> None:
    _, wake = wake_of(tree, fact.handle)
    effect = close_effect(tree, fact.effect)
    assert isinstance(effect, CheckCalls)
    for id, ruling in zip(effect.calls, fact.rulings, strict=True):
        call = call_of(wake, id)
        call.state = CallState.NEW
        # A result a hook gave is not seen through until the call has it: a limit may come in between.
        call.seen = call.seen or ruling.output is None
        call.cleared = ruling.ruling in ("allow", "approved") and ruling.output is None
        if ruling.edit is not None:
            call.edit = ruling.edit


def _call_denied(tree: Tree, fact: f.CallDenied) -> None:
    _, wake = wake_of(tree, fact.handle)
    call = call_of(wake, fact.call)
    word = "declined" if fact.declined else "denied"
    # Not in the call's memory: nothing has run that a later attempt could be given the result of.
    finish(wake, call, f"{word}: {fact.reason}", True, json.dumps({word: True}), remember=False)
    call.approved = False


def _text_check_asked(tree: Tree, fact: f.TextCheckAsked) -> None:
    _, wake = wake_of(tree, fact.handle)
    open_effect(tree, CheckText(fact.effect, fact.handle, fact.what))
    wake.check = fact.effect


def _text_checked(tree: Tree, fact: f.TextChecked) -> None:
    _, wake = wake_of(tree, fact.handle)
    close_effect(tree, fact.effect)
    wake.agreed = None
    if _agreed_before(tree, wake, fact.what):
        wake.claimed.add(f"@{fact.what}")
    if fact.ruling.ruling in ("allow", "approved"):
        if fact.what == "prompt":
            wake.unchecked = False
        else:
            wake.cleared = True


def _agreed_before(tree: Tree, wake: Wake, what: str) -> bool:
    """Whether this very prompt or final answer is one that somebody agreed to, in whatever attempt."""
    if wake.approvals is None or what not in wake.approvals:
        return False
    shown = json.loads(tree.requests[wake.approvals[what]].question.data).get(what)
    if what == "prompt":
        return wake.user is not None and shown == wake.user.text
    return bool(shown == (wake.text if wake.output is None else json.loads(wake.output)))


def _wake_asked(tree: Tree, fact: f.WakeAsked) -> None:
    node, wake = wake_of(tree, fact.handle)
    request = RequestState(fact.request, node.id, wake.number, "", fact.about, fact.question)
    request.about, request.diverged, request.asked_at = fact.about, fact.diverged, tree.now
    request.limit, request.at = fact.limit, fact.at
    if wake.approvals is not None and fact.about in wake.approvals:
        kept = dict(wake.approvals)
        wake.replaced = (*wake.replaced, kept.pop(fact.about))
        wake.approvals = kept
    tree.requests[fact.request] = request
    wake.asks = fact.request
    wake.asked += 1
    if fact.question.expires_at is not None:
        tree.expiring[request.id] = request
    for a in node.chain:
        a.open_requests += 1


def _limit_asked(tree: Tree, fact: f.LimitAsked) -> None:
    node, wake = wake_of(tree, fact.handle)
    if wake.waiting:
        wake.waiting = False
        tree.waiting.remove(node)
    open_effect(tree, AskLimit(fact.effect, fact.handle, fact.limit, fact.at, fact.cap, fact.spent))
    wake.check = fact.effect


def _limit_decided(tree: Tree, fact: f.LimitDecided) -> None:
    _, wake = wake_of(tree, fact.handle)
    effect = close_effect(tree, fact.effect)
    assert isinstance(effect, AskLimit)
    if fact.decision == "extend":
        go_past(tree, wake, effect)


def go_past(tree: Tree, wake: Wake, asked: AskLimit) -> None:
    """Let the wake try again where a cap stopped it.

    If that does not help it stops, unless the cap is no longer what was asked about: what others have raised they may
    have used up as well.
    """
    at, limit = tree.nodes[asked.at], Limit(asked.limit)
    if Decimal(cap_now(at, limit)) == Decimal(asked.cap):
        # Time goes by while somebody thinks, too: who gives less than that takes would be asked for ever.
        spent = spent_now(tree, at, wake, limit) if limit is Limit.MAX_WALL else asked.spent
        wake.extended = (asked.limit, asked.at, spent)
    wake.capped = True
    for call in wake.batch or ():
        if call.state == CallState.REFUSED:
            reopen_call(call)


def reopen_call(call: Call) -> None:
    """Let a call in that a cap has kept out."""
    call.state = CallState.NEW
    call.limit = call.at = None
    # It may have taken months: whoever allowed it then is asked again.
    call.cleared = False


def _verify_asked(tree: Tree, fact: f.VerifyAsked) -> None:
    _, wake = wake_of(tree, fact.handle)
    open_effect(tree, Verify(fact.effect, fact.handle, fact.number))
    wake.check = fact.effect


def _judged(tree: Tree, fact: f.Judged) -> None:
    node, wake = wake_of(tree, fact.handle)
    close_effect(tree, fact.effect)
    wake.verdicts.append((fact.ok, fact.reason, fact.number))
    if fact.ok:
        wake.passed = True
    else:
        _send_back(node, wake, fact.reason)


def _send_back(node: Node, wake: Wake, reason: str) -> None:
    """Tell the model why its final answer is none."""
    wake.final = False
    wake.output = None
    for call in wake.batch or ():
        if call.state == CallState.FINAL:
            finish(wake, call, reason, True, None, remember=False)
            return
    node.messages.append(trusted(UserMessage, role="user", text=reason, parts=()))
    node.bytes_since += size(reason)


def _output_refused(tree: Tree, fact: f.OutputRefused) -> None:
    node, wake = wake_of(tree, fact.handle)
    _send_back(node, wake, fact.reason)


def _overridden(tree: Tree, fact: f.Overridden) -> None:
    node, wake = wake_of(tree, fact.handle)
    wake.offers = fact.tools
    if fact.messages is None:
        return
    if wake.full is None:
        wake.full = node.messages[: wake.checkpoint.messages]
        wake.full_input = node.last_input
    before = node.messages
    parts = cast("list[object]", json.loads(fact.messages))
    after: list[Message] = [
        before[part] if isinstance(part, int) else MESSAGE.validate_python(part) for part in parts
    ]
    grown = sum(map(_bytes, after)) - sum(map(_bytes, before))
    if node.last_input:
        node.last_input = max(node.last_input + grown // 4, 1)
    node.messages = after


def _bytes(message: Message) -> int:
    if isinstance(message, AssistantMessage):
        return size(message.text) + sum(size(json.dumps(c.arguments)) for c in message.tool_calls)
    return size(message.text)


def _model_skipped(tree: Tree, fact: f.ModelSkipped) -> None:
    node, wake = wake_of(tree, fact.handle)
    effect = close_effect(tree, fact.effect)
    assert isinstance(effect, CallModel)
    wake.model = 0
    node.own.model_calls -= 1
    for a in node.chain:
        a.total.model_calls -= 1
        a.reserved -= effect.reserve
        if effect.money is not None:
            a.money_reserved = MONEY.subtract(a.money_reserved, effect.money)


HANDLERS: dict[type, Callable[[Tree, Any], None]] = {
    f.ChecksAsked: _checks_asked,
    f.ChecksDone: _checks_done,
    f.CallDenied: _call_denied,
    f.TextCheckAsked: _text_check_asked,
    f.TextChecked: _text_checked,
    f.WakeAsked: _wake_asked,
    f.LimitAsked: _limit_asked,
    f.LimitDecided: _limit_decided,
    f.VerifyAsked: _verify_asked,
    f.Judged: _judged,
    f.OutputRefused: _output_refused,
    f.Overridden: _overridden,
    f.ModelSkipped: _model_skipped,
}
