"""What the facts about model calls, tool calls and delegation change."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

from pydantic_core import from_json

from overt._frozen import trusted
from overt._text import size
from overt.core import facts as f
from overt.core.effects import AskHost, CallModel, CallTool, CheckCalls, Sleep
from overt.core.keys import call_key
from overt.core.ledger import MONEY
from overt.core.moves import (
    call_of,
    close_effect,
    draw,
    finish,
    flush,
    note_unpriced,
    open_effect,
    unhost,
    wake_of,
)
from overt.core.origins import identify
from overt.core.render import child_outcome
from overt.core.tree import Call, CallState, Memory, Node, Once, Tree, Wake
from overt.message import AssistantMessage, ToolCall

__all__ = ("HANDLERS",)


def _model_awaited(tree: Tree, fact: f.ModelAwaited) -> None:
    node, wake = wake_of(tree, fact.handle)
    wake.waiting = True
    tree.waiting.append(node)


def _model_called(tree: Tree, fact: f.ModelCalled) -> None:
    node, wake = wake_of(tree, fact.handle)
    if wake.waiting:
        wake.waiting = False
        tree.waiting.remove(node)
    if wake.batch is not None:
        flush(tree, node, wake)
        wake.set_batch(None)
    money = None if fact.money is None else Decimal(fact.money)
    open_effect(tree, CallModel(fact.effect, fact.handle, fact.left, fact.reserve, money))
    wake.model = fact.effect
    wake.final = False
    wake.capped = False
    wake.extended = wake.offers = None
    node.own.model_calls += 1
    for a in node.chain:
        a.total.model_calls += 1
        a.reserved += fact.reserve
    if money is not None:
        for a in node.chain:
            a.money_reserved = MONEY.add(a.money_reserved, money)


def _model_closed(
    node: Node,
    wake: Wake,
    effect: CallModel,
    tokens: f.Tokens | None,
    cost: Decimal | None,
    model: str,
    charge: str | None = None,
) -> None:
    """Settle a call: what nobody reported or could price takes what was reserved for it, or what that would cost."""
    wake.model = 0
    spent = effect.reserve if tokens is None else tokens.total or tokens.input + tokens.output
    for a in node.chain:
        a.reserved -= effect.reserve
        a.spent += spent
    if effect.money is not None:
        usd = cost
        if usd is None:
            usd = effect.money if charge is None else min(Decimal(charge), effect.money)
        for a in node.chain:
            a.money_reserved = MONEY.subtract(a.money_reserved, effect.money)
            a.money = MONEY.add(a.money, usd)
    elif cost is not None:
        for a in node.chain:
            a.money = MONEY.add(a.money, cost)
    if cost is None:
        note_unpriced(node, model, "no_usage" if tokens is None else "no_price")


def _model_replied(tree: Tree, fact: f.ModelReplied) -> None:
    node, wake = wake_of(tree, fact.handle)
    effect = close_effect(tree, fact.effect)
    assert isinstance(effect, CallModel)
    tokens = fact.tokens
    cost = None if fact.cost is None else Decimal(fact.cost)
    _model_closed(node, wake, effect, tokens, cost, fact.model, fact.charge)
    node.own.reply(tokens, cost)
    for a in node.chain:
        a.total.reply(tokens, cost)
    node.turns += 1
    wake.turns += 1
    wake.retries = 0
    if tokens is not None:
        node.last_input, node.last_output = tokens.input, tokens.output
        node.bytes_since = wake.bytes_kept = 0
    node.bytes_since += size(fact.text)
    wake.rebought = wake.rebuy > 0
    if wake.rebought:
        wake.rebuy -= 1
        if tree.replays is not None:
            tree.replays.turns += 1
    wake.text = fact.text
    if fact.text:
        wake.partial = fact.text
    public: list[ToolCall] = []
    if fact.calls:
        batch: list[Call] = []
        for spec in fact.calls:
            node.call_seq += 1
            call = Call(f"c{node.call_seq}", spec.name, spec.raw)
            batch.append(call)
            node.bytes_since += size(spec.raw)
            public.append(trusted(ToolCall, id=call.id, name=spec.name, arguments=from_json(spec.raw)))
            if spec.error is not None:
                call.error = spec.error
                continue
            call.args = spec.raw if spec.args is None else spec.args
            if fact.output is not None:
                call.state = CallState.FINAL
                continue
            plan = node.plan
            call.task = plan is not None and (
                spec.name in plan.delegates or (spec.name == "task" and bool(plan.team))
            )
            _identify(tree, node, wake, call)
            if fact.ruled:
                _ruled(call, spec.ruling)
        wake.set_batch(batch)
    node.messages.append(
        trusted(
            AssistantMessage,
            role="assistant",
            text=fact.text,
            tool_calls=tuple(public),
            reasoning=fact.reasoning,
            opaque=json.loads(fact.opaque) if fact.opaque else None,
        )
    )
    wake.output = fact.output
    wake.final = fact.output is not None or (
        not fact.calls and fact.finish not in f.UNFINISHED and (node.plan is None or not node.plan.typed)
    )
    wake.passed = wake.cleared = False
    wake.agreed = None


def _ruled(call: Call, ruling: f.RulingSpec | None) -> None:
    """The checks were asked about the call before the reply was recorded."""
    # A result the hook gave is acted upon with this fact, or the hook is asked again: it is kept nowhere else.
    call.seen = ruling is None or ruling.output is None
    call.cleared = ruling is None or (ruling.ruling == "allow" and ruling.output is None)
    if ruling is not None:
        call.edit = ruling.edit


def _identify(tree: Tree, node: Node, wake: Wake, call: Call) -> None:
    """Give a call its key, and the memory earlier attempts left of it."""
    if wake.origins is None:
        base = f"{call.name}\0{call.args}"
        occurrence = wake.occurrences.get(base, 0) + 1
        wake.occurrences[base] = occurrence
        key = call_key(tree.run_id, node.id, wake.number, call.name, call.args, occurrence)
    else:
        make = partial(call_key, tree.run_id, node.id, wake.number)
        base, key = identify(wake, call.name, call.args, make, delegates=call.task)
    call.base, call.key = base, key
    memory = wake.memory.get(key)
    if memory is None:
        memory = wake.memory[key] = Memory(key, call.name, call.args)
    elif memory.edit is not None:
        call.edit = memory.edit
        call.seen = call.approved = True
    memory.call = call.id
    wake.claimed.add(key)


def _model_failed(tree: Tree, fact: f.ModelFailed) -> None:
    node, wake = wake_of(tree, fact.handle)
    effect = close_effect(tree, fact.effect)
    assert isinstance(effect, CallModel)
    cost = None if fact.cost is None else Decimal(fact.cost)
    _model_unanswered(node, wake, effect, fact.tokens, cost, fact.model, fact.charge)


def _model_unanswered(
    node: Node,
    wake: Wake,
    effect: CallModel,
    tokens: f.Tokens | None = None,
    cost: Decimal | None = None,
    model: str = "",
    charge: str | None = None,
) -> None:
    _model_closed(node, wake, effect, tokens, cost, model, charge)
    node.own.call(tokens, cost)
    for a in node.chain:
        a.total.call(tokens, cost)


def _retry_awaited(tree: Tree, fact: f.RetryAwaited) -> None:
    wake = wake_of(tree, fact.handle)[1]
    open_effect(tree, Sleep(fact.effect, fact.handle, tree.now + fact.wait))
    wake.check = fact.effect
    wake.retries += 1


def _retry_due(tree: Tree, fact: f.RetryDue) -> None:
    close_effect(tree, fact.effect)


def _effect_lost(tree: Tree, fact: f.EffectLost) -> None:
    node, wake = wake_of(tree, fact.handle)
    effect = close_effect(tree, fact.effect)
    if isinstance(effect, CallModel):
        # A process that died in the first call has bought nothing that is known, and does not use up the pool for good.
        free = effect.money is not None and not tree.root.total.priced
        _model_unanswered(node, wake, effect, charge="0" if free else None)
    elif isinstance(effect, CallTool):
        call = call_of(wake, effect.call)
        call.effect = 0
        memory = wake.memory.get(call.key)
        if fact.asked and memory is not None:
            memory.unsettled = False
        in_doubt = memory is not None and memory.doubt() is not None
        call.state = CallState.CUT if in_doubt else CallState.NEW
    elif isinstance(effect, AskHost):
        unhost(tree, node, wake, effect.request)
    elif isinstance(effect, CheckCalls):
        for id in effect.calls:
            call_of(wake, id).state = CallState.NEW


def _call_entered(tree: Tree, fact: f.CallEntered) -> None:
    node, wake = wake_of(tree, fact.handle)
    call = call_of(wake, fact.call)
    open_effect(tree, CallTool(fact.effect, fact.handle, fact.call))
    call.state = CallState.ENTERED
    call.cleared = False
    wake.entered += 1
    wake.extended = None
    call.effect = fact.effect
    memory = wake.memory[call.key]
    reuse = node.plan is not None and node.plan.tools.get(call.name) == "reuse"
    memory.unsettled = reuse
    memory.ran = call.run_args
    if not call.drew and memory.finished and not reuse and tree.replays is not None:
        tree.replays.rerun.append((node.id, call.name, call.run_args, call.key))
    draw(node, call)


def _call_returned(tree: Tree, fact: f.CallReturned) -> None:
    _, wake = wake_of(tree, fact.handle)
    if fact.effect:
        close_effect(tree, fact.effect)
    if wake.failing is None:
        wake.failing = fact.error
    call, output = call_of(wake, fact.call), fact.output
    if fact.given:
        reply = wake.memory[call.key].reply
        assert reply is not None
        output = reply
    # What a call is given that cannot be entered is no result that a later attempt could be given.
    finish(wake, call, output, fact.is_error, fact.metadata, remember=call.error is None)


def _call_reused(tree: Tree, fact: f.CallReused) -> None:
    node, wake = wake_of(tree, fact.handle)
    call = call_of(wake, fact.call)
    memory = wake.memory[call.key]
    if memory.ran is not None and memory.ran not in (call.args, memory.args):
        # The hook that changed the arguments then is not asked about a call that is not entered.
        call.edit, call.seen = memory.ran, True
    finish(wake, call, memory.output, memory.is_error, memory.metadata)
    if tree.replays is not None:
        tree.replays.reused.append((node.id, call.name, call.run_args, call.key))


def _call_refused(tree: Tree, fact: f.CallRefused) -> None:
    wake = wake_of(tree, fact.handle)[1]
    call = call_of(wake, fact.call)
    call.state = CallState.REFUSED
    call.limit, call.at = fact.limit, fact.at
    wake.capped = wake.capped or fact.limit == "maxTurns"


def _once_entered(tree: Tree, fact: f.OnceEntered) -> None:
    wake = wake_of(tree, fact.handle)[1]
    memory = wake.memory[call_of(wake, fact.call).key]
    if memory.once is None:
        memory.once = {}
    memory.once[fact.label] = Once()


def _once_done(tree: Tree, fact: f.OnceDone) -> None:
    wake = wake_of(tree, fact.handle)[1]
    blocks = wake.memory[call_of(wake, fact.call).key].once
    assert blocks is not None
    once = blocks[fact.label]
    once.done, once.value, once.error = True, fact.value, fact.error


def _delegated(tree: Tree, fact: f.Delegated) -> None:
    node, wake = wake_of(tree, fact.handle)
    call = call_of(wake, fact.call)
    call.state = CallState.WAITING
    call.child = fact.child
    wake.extended = None
    memory = wake.memory[call.key]
    memory.child, memory.ran = fact.child, call.run_args
    tree.nodes[fact.child].task_call = call.id
    draw(node, call)


def _reattached(tree: Tree, fact: f.Reattached) -> None:
    wake = wake_of(tree, fact.handle)[1]
    call = call_of(wake, fact.call)
    call.state = CallState.WAITING
    call.child = fact.child
    tree.nodes[fact.child].task_call = call.id


def _child_returned(tree: Tree, fact: f.ChildReturned) -> None:
    wake = wake_of(tree, fact.handle)[1]
    output, is_error, metadata = child_outcome(tree, tree.nodes[fact.child])
    finish(wake, call_of(wake, fact.call), output, is_error, metadata)


HANDLERS: dict[type, Callable[[Tree, Any], None]] = {
    f.ModelAwaited: _model_awaited,
    f.ModelCalled: _model_called,
    f.ModelReplied: _model_replied,
    f.ModelFailed: _model_failed,
    f.RetryAwaited: _retry_awaited,
    f.RetryDue: _retry_due,
    f.EffectLost: _effect_lost,
    f.CallEntered: _call_entered,
    f.CallReturned: _call_returned,
    f.CallReused: _call_reused,
    f.CallRefused: _call_refused,
    f.Delegated: _delegated,
    f.Reattached: _reattached,
    f.ChildReturned: _child_returned,
    f.OnceEntered: _once_entered,
    f.OnceDone: _once_done,
}
