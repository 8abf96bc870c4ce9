"""Bookkeeping: what each fact changes in the tree. Decides nothing and refuses no valid journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from pydantic import TypeAdapter

from overt.core import facts as f
from overt.core.effects import AskHost, CallModel, CallTool, Effect, Notify
from overt.core.keys import idempotency_key
from overt.core.lifecycle import TRANSITIONS, Move
from overt.core.plan import Plan
from overt.core.render import bounded, child_outcome, user_text
from overt.core.tree import (
    Call,
    CallState,
    Checkpoint,
    Item,
    Memory,
    Node,
    Once,
    Replays,
    RequestState,
    Tree,
    Wake,
)
from overt.message import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from overt.result import State

__all__ = ("apply", "apply_all", "begin")

MESSAGES: TypeAdapter[list[Message]] = TypeAdapter(list[Message])


def apply_all(tree: Tree, facts: Iterable[f.Fact], at: int) -> None:
    """Apply the facts of one record, which happened at `at` (microseconds since 1970)."""
    begin(tree, at)
    for fact in facts:
        apply(tree, fact)


def begin(tree: Tree, at: int) -> None:
    """Move the tree's time on; a clock that was set back stands still instead."""
    tree.before = tree.now
    tree.now = max(tree.now, at)


def apply(tree: Tree, fact: f.Fact) -> None:
    """Apply one fact."""
    tree.seq += 1
    HANDLERS[type(fact)](tree, fact)


# --------------------------------------------------------------- small moves


def _move(tree: Tree, node: Node, move: Move) -> None:
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


def _queue(node: Node, kind: str) -> None:
    assert node.parent is not None
    node.queued = kind
    node.parent.queue.append(node)
    for a in node.chain:
        a.live += 1


def _dequeue(node: Node) -> None:
    if node.queued is not None:
        assert node.parent is not None
        node.queued = None
        node.parent.queue.remove(node)
        for a in node.chain:
            a.live -= 1


def _open(tree: Tree, effect: Effect) -> None:
    tree.open[effect.id] = effect
    tree.next_effect = effect.id + 1
    wake = tree.nodes[effect.handle].wake
    if wake is not None:
        wake.effects.add(effect.id)


def _close(tree: Tree, id: int) -> Effect | None:
    effect = tree.open.pop(id, None)
    if effect is not None:
        wake = tree.nodes[effect.handle].wake
        if wake is not None:
            wake.effects.discard(id)
    return effect


def _wake(tree: Tree, handle: str) -> tuple[Node, Wake]:
    node = tree.nodes[handle]
    wake = node.wake
    assert wake is not None
    return node, wake


def _call(wake: Wake, id: str) -> Call:
    for call in wake.batch or ():
        if call.id == id:
            return call
    raise KeyError(id)


def _flush(tree: Tree, node: Node, wake: Wake) -> None:
    """Put the results of the batch into the transcript, in call order."""
    limit = tree.plan.max_result_chars
    size = 0
    for call in wake.batch or ():
        if call.state == CallState.DONE:
            text, is_error = call.output, call.is_error
            metadata: dict[str, Any] = json.loads(call.metadata) if call.metadata else {}
        else:
            text, is_error, metadata = f"not run ({call.limit or wake.limit or wake.status})", True, {}
        if len(text) > limit:
            node.results[call.id] = text
            text = bounded(text, limit)
        size += len(text)
        node.messages.append(
            ToolMessage.model_construct(
                role="tool", text=text, call_id=call.id, name=call.name, is_error=is_error, metadata=metadata
            )
        )
    node.bytes_since += size


def _draw(node: Node, call: Call) -> None:
    """Draw one tool call along the ancestors, once an attempt."""
    if not call.drew:
        call.drew = True
        node.own.tool_calls += 1
        for a in node.chain:
            a.total.tool_calls += 1


def _finish(wake: Wake, call: Call, output: str, is_error: bool, metadata: str | None) -> None:
    call.state = CallState.DONE
    call.effect = 0
    call.output = output
    call.is_error = is_error
    call.metadata = metadata
    memory = wake.memory.get(call.key)
    if memory is not None:
        memory.finished = True
        memory.finished_in = wake.attempt
        memory.unsettled = False
        memory.output = output
        memory.is_error = is_error
        memory.metadata = metadata


# --------------------------------------------------------------- the run


def _run_opened(tree: Tree, fact: f.RunOpened) -> None:
    tree.run_id = fact.run_id
    tree.agent = fact.agent
    tree.policy = fact.policy
    tree.plan = Plan.load(fact.plan)
    tree.root.caps = tree.plan.root
    tree.nodes["root"] = tree.root


def _plan_changed(tree: Tree, fact: f.PlanChanged) -> None:
    tree.plan = Plan.load(fact.plan)
    for node in tree.nodes.values():
        if node.agent in tree.plan.agents:
            node.plan = tree.plan.agents[node.agent]


def _handle_spawned(tree: Tree, fact: f.HandleSpawned) -> None:
    parent = tree.nodes[fact.parent]
    plan = tree.plan.agents[fact.agent]
    node = Node(fact.handle, parent, fact.agent, fact.caps or plan.caps, plan)
    parent.children.append(node)
    parent.child_count += 1
    tree.nodes[node.id] = node
    if tree.entry is None and parent is tree.root:
        tree.entry = node


def _history_seeded(tree: Tree, fact: f.HistorySeeded) -> None:
    node = tree.nodes[fact.handle]
    node.messages = MESSAGES.validate_json(fact.messages)
    node.committed = len(node.messages)
    node.bytes_since = len(fact.messages)


def _item_posted(tree: Tree, fact: f.ItemPosted) -> None:
    tree.nodes[fact.handle].inbox.append(Item(fact.sender, fact.channel, fact.text))


def _budget_raised(tree: Tree, fact: f.BudgetRaised) -> None:
    node = tree.nodes[fact.handle]
    said: dict[str, Any] = {n: v for n, v in zip(f.Caps._fields, fact.caps, strict=True) if v is not None}
    node.caps = node.caps._replace(**said)


def _resume_begun(tree: Tree, fact: f.ResumeBegun) -> None:
    tree.replays = Replays(fact.verb)
    if fact.dead:
        for node in tree.nodes.values():
            if node.active:
                node.wall += tree.before - node.wall_since
                node.wall_since = tree.now


# --------------------------------------------------------------- wakes


def _wake_queued(tree: Tree, fact: f.WakeQueued) -> None:
    node = tree.nodes[fact.handle]
    node.next_wake = (fact.prompt, fact.closes)
    _queue(node, "wake")


def _wake_dropped(tree: Tree, fact: f.WakeDropped) -> None:
    node = tree.nodes[fact.handle]
    assert node.next_wake is not None
    wake = Wake(node.wakes + 1, *node.next_wake)
    wake.status = fact.status
    node.wakes += 1
    node.wake = wake
    node.next_wake = None
    _dequeue(node)


def _wake_started(tree: Tree, fact: f.WakeStarted) -> None:
    node = tree.nodes[fact.handle]
    before = node.wake
    _dequeue(node)
    node.next_wake = None
    node.wakes += 1
    wake = node.wake = Wake(node.wakes, fact.prompt, fact.closes)
    if before is not None and before.status == "error":
        wake.items += before.items
    wake.items += node.inbox
    node.inbox.clear()
    del node.messages[node.committed :]
    wake.checkpoint = Checkpoint(node.committed, {})
    text = user_text(fact.prompt, wake.items, {a.id for a in node.chain})
    wake.user = UserMessage.model_construct(role="user", text=text, parts=())
    node.messages.append(wake.user)
    node.bytes_since += len(text)
    _move(tree, node, Move.ADMIT)


def _wake_parked(tree: Tree, fact: f.WakeParked) -> None:
    _move(tree, tree.nodes[fact.handle], Move.PARK)


def _resume_queued(tree: Tree, fact: f.ResumeQueued) -> None:
    _queue(tree.nodes[fact.handle], "resume")


def _resumed(tree: Tree, fact: f.Resumed) -> None:
    node = tree.nodes[fact.handle]
    _dequeue(node)
    _move(tree, node, Move.RESUME)


def _reopen_queued(tree: Tree, fact: f.ReopenQueued) -> None:
    _queue(tree.nodes[fact.handle], "reopen")


def _wake_reopened(tree: Tree, fact: f.WakeReopened) -> None:
    node, wake = _wake(tree, fact.handle)
    _dequeue(node)
    if wake.drop:
        for call in wake.batch or ():
            _forget_occurrence(wake, call)
        wake.batch = None
        node.messages.pop()
    elif wake.flushed:
        del node.messages[len(node.messages) - wake.flushed :]
        for call in wake.batch or ():
            if call.state == CallState.REFUSED:
                call.state, call.limit, call.at = CallState.NEW, None, None
    wake.flushed = 0
    wake.status = wake.limit = wake.limit_at = wake.limit_cap = wake.error = None
    wake.cut = wake.drop = False
    _move(tree, node, Move.REOPEN)


def _rewind_asked(tree: Tree, fact: f.RewindAsked) -> None:
    _wake(tree, fact.handle)[1].rewind_due = True


def _rewound(tree: Tree, fact: f.Rewound) -> None:
    node, wake = _wake(tree, fact.handle)
    if tree.replays is not None:
        tree.replays.turns += wake.turns - wake.turns_kept
    wake.attempt += 1
    wake.turns = wake.turns_kept = 0
    wake.rewind_due = False
    checkpoint = wake.checkpoint
    del node.messages[checkpoint.messages :]
    if checkpoint.prompt:
        assert wake.user is not None
        node.messages.append(wake.user)
    wake.occurrences = dict(checkpoint.occurrences)
    wake.batch = None if checkpoint.batch is None else [c.copy() for c in checkpoint.batch]
    wake.claimed = {c.key for c in wake.batch or () if c.key}
    wake.partial = ""
    node.bytes_since = sum(len(m.text) for m in node.messages)


def _wake_settled(tree: Tree, fact: f.WakeSettled) -> None:
    node, wake = _wake(tree, fact.handle)
    wake.status = fact.status
    wake.limit, wake.limit_at, wake.limit_cap = fact.limit, fact.at, fact.cap
    wake.error, wake.reason, wake.cut, wake.drop = fact.error, fact.reason, fact.cut, fact.drop
    if wake.waiting:
        wake.waiting = False
        tree.waiting.remove(node)
    if fact.status == "done":
        node.committed = len(node.messages)
    elif fact.status == "incomplete":
        _commit_stop(tree, node, wake)
    elif fact.status in ("interrupted", "closed") and not fact.cut:
        del node.messages[node.committed :]
        node.inbox[:0] = wake.items
        wake.items = []
    if not fact.cut:
        _report_unused(tree, wake)
    _dequeue(node)
    _move(tree, node, Move.SETTLE)


def _commit_stop(tree: Tree, node: Node, wake: Wake) -> None:
    """A limit stop keeps the work: it moves the checkpoint, and the transcript is balanced."""
    kept = len(node.messages)
    if wake.batch is not None:
        _flush(tree, node, wake)
        wake.flushed = len(node.messages) - kept
    batch = None
    if wake.batch is not None:
        batch = tuple(c.copy() for c in wake.batch)
        for c in batch:
            if c.state == CallState.REFUSED:
                c.state, c.limit, c.at = CallState.NEW, None, None
    wake.checkpoint = Checkpoint(kept, dict(wake.occurrences), batch, prompt=False)
    wake.turns_kept = wake.turns
    node.committed = len(node.messages)


def _report_unused(tree: Tree, wake: Wake) -> None:
    if wake.attempt == 1:
        return
    for memory in wake.memory.values():
        if memory.key in wake.claimed:
            continue
        wake.unused_answers += [
            r for r in memory.slots if tree.requests[r].status == "answered" and r not in wake.unused_answers
        ]
        if memory.child is not None:
            wake.unused_children.append(memory.child)
    if tree.replays is not None:
        tree.replays.unused_answers += wake.unused_answers
        tree.replays.unused_children += wake.unused_children


def _handle_closed(tree: Tree, fact: f.HandleClosed) -> None:
    node = tree.nodes[fact.handle]
    node.closed_reason = fact.reason
    _dequeue(node)
    _move(tree, node, Move.CLOSE)


# --------------------------------------------------------------- model calls


def _model_awaited(tree: Tree, fact: f.ModelAwaited) -> None:
    node, wake = _wake(tree, fact.handle)
    wake.waiting = True
    tree.waiting.append(node)


def _model_called(tree: Tree, fact: f.ModelCalled) -> None:
    node, wake = _wake(tree, fact.handle)
    if wake.waiting:
        wake.waiting = False
        tree.waiting.remove(node)
    if wake.batch is not None:
        _flush(tree, node, wake)
        wake.batch = None
    _open(tree, CallModel(fact.effect, fact.handle, fact.left, fact.reserve))
    wake.model = fact.effect
    node.own.model_calls += 1
    for a in node.chain:
        a.total.model_calls += 1
        a.reserved += fact.reserve


def _model_closed(tree: Tree, node: Node, wake: Wake, effect: CallModel, spent: int) -> None:
    wake.model = 0
    for a in node.chain:
        a.reserved -= effect.reserve
        a.spent += spent


def _model_replied(tree: Tree, fact: f.ModelReplied) -> None:
    node, wake = _wake(tree, fact.handle)
    effect = _close(tree, fact.effect)
    assert isinstance(effect, CallModel)
    tokens = fact.tokens
    _model_closed(
        tree, node, wake, effect, effect.reserve if tokens is None else tokens.total or tokens.input + tokens.output
    )
    cost = None if fact.cost is None else Decimal(fact.cost)
    node.own.reply(tokens, cost)
    for a in node.chain:
        a.total.reply(tokens, cost)
    node.turns += 1
    wake.turns += 1
    if tokens is not None:
        node.last_input, node.last_output = tokens.input, tokens.output
    node.bytes_since = len(fact.text)
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
            node.bytes_since += len(spec.raw)
            public.append(ToolCall.model_construct(id=call.id, name=spec.name, arguments=json.loads(spec.raw)))
            if spec.error is not None:
                call.error = spec.error
                continue
            call.args = spec.raw if spec.args is None else spec.args
            call.task = spec.name == "task" and node.plan is not None and bool(node.plan.team)
            _identify(tree, node, wake, call)
        wake.batch = batch
    node.messages.append(
        AssistantMessage.model_construct(
            role="assistant",
            text=fact.text,
            tool_calls=tuple(public),
            reasoning=fact.reasoning,
            opaque=json.loads(fact.opaque) if fact.opaque else None,
        )
    )


def _identify(tree: Tree, node: Node, wake: Wake, call: Call) -> None:
    """Give a call its key, and the memory earlier attempts left of it."""
    base = f"{call.name}\0{call.args}"
    occurrence = wake.occurrences.get(base, 0) + 1
    wake.occurrences[base] = occurrence
    key = call.key = idempotency_key(tree.run_id, node.id, wake.number, call.name, call.args, occurrence)
    if key not in wake.memory:
        wake.memory[key] = Memory(key, call.name, call.args)
    wake.claimed.add(key)


def _forget_occurrence(wake: Wake, call: Call) -> None:
    if call.key:
        base = f"{call.name}\0{call.args}"
        wake.occurrences[base] -= 1
        wake.claimed.discard(call.key)


def _model_failed(tree: Tree, fact: f.ModelFailed) -> None:
    node, wake = _wake(tree, fact.handle)
    effect = _close(tree, fact.effect)
    assert isinstance(effect, CallModel)
    _model_unanswered(tree, node, wake, effect)


def _model_unanswered(tree: Tree, node: Node, wake: Wake, effect: CallModel) -> None:
    _model_closed(tree, node, wake, effect, effect.reserve)
    node.own.lost()
    for a in node.chain:
        a.total.lost()


def _effect_lost(tree: Tree, fact: f.EffectLost) -> None:
    node, wake = _wake(tree, fact.handle)
    effect = _close(tree, fact.effect)
    if isinstance(effect, CallModel):
        _model_unanswered(tree, node, wake, effect)
    elif isinstance(effect, CallTool):
        call = _call(wake, effect.call)
        call.effect = 0
        memory = wake.memory.get(call.key)
        in_doubt = memory is not None and memory.doubt() is not None
        call.state = CallState.CUT if in_doubt else CallState.NEW
    elif isinstance(effect, AskHost):
        _unhost(tree, node, wake, effect.request)


# --------------------------------------------------------------- tool calls


def _call_entered(tree: Tree, fact: f.CallEntered) -> None:
    node, wake = _wake(tree, fact.handle)
    call = _call(wake, fact.call)
    _open(tree, CallTool(fact.effect, fact.handle, fact.call))
    call.state = CallState.ENTERED
    call.effect = fact.effect
    memory = wake.memory[call.key]
    reuse = node.plan is not None and node.plan.tools.get(call.name) == "reuse"
    memory.unsettled = reuse
    if not call.drew and memory.finished and not reuse and tree.replays is not None:
        tree.replays.rerun.append((node.id, call.name, call.args, call.key))
    _draw(node, call)


def _call_returned(tree: Tree, fact: f.CallReturned) -> None:
    _, wake = _wake(tree, fact.handle)
    if fact.effect:
        _close(tree, fact.effect)
    _finish(wake, _call(wake, fact.call), fact.output, fact.is_error, fact.metadata)


def _call_reused(tree: Tree, fact: f.CallReused) -> None:
    node, wake = _wake(tree, fact.handle)
    call = _call(wake, fact.call)
    memory = wake.memory[call.key]
    _finish(wake, call, memory.output, memory.is_error, memory.metadata)
    if tree.replays is not None:
        tree.replays.reused.append((node.id, call.name, call.args, call.key))


def _call_refused(tree: Tree, fact: f.CallRefused) -> None:
    call = _call(_wake(tree, fact.handle)[1], fact.call)
    call.state = CallState.REFUSED
    call.limit, call.at = fact.limit, fact.at


def _once_entered(tree: Tree, fact: f.OnceEntered) -> None:
    wake = _wake(tree, fact.handle)[1]
    wake.memory[_call(wake, fact.call).key].once[fact.label] = Once()


def _once_done(tree: Tree, fact: f.OnceDone) -> None:
    wake = _wake(tree, fact.handle)[1]
    once = wake.memory[_call(wake, fact.call).key].once[fact.label]
    once.done, once.value, once.error = True, fact.value, fact.error


# --------------------------------------------------------------- delegation


def _delegated(tree: Tree, fact: f.Delegated) -> None:
    node, wake = _wake(tree, fact.handle)
    call = _call(wake, fact.call)
    call.state = CallState.WAITING
    call.child = fact.child
    wake.memory[call.key].child = fact.child
    tree.nodes[fact.child].task_call = call.id
    _draw(node, call)


def _reattached(tree: Tree, fact: f.Reattached) -> None:
    wake = _wake(tree, fact.handle)[1]
    call = _call(wake, fact.call)
    call.state = CallState.WAITING
    call.child = fact.child
    tree.nodes[fact.child].task_call = call.id


def _child_returned(tree: Tree, fact: f.ChildReturned) -> None:
    wake = _wake(tree, fact.handle)[1]
    output, is_error, metadata = child_outcome(tree, tree.nodes[fact.child])
    _finish(wake, _call(wake, fact.call), output, is_error, metadata)


# --------------------------------------------------------------- suspension


def _call_asked(tree: Tree, fact: f.CallAsked) -> None:
    node, wake = _wake(tree, fact.handle)
    call = _call(wake, fact.call)
    if fact.effect:
        _close(tree, fact.effect)
    call.state = CallState.ASKED
    call.effect = 0
    call.request = fact.request
    memory = wake.memory[call.key]
    memory.asked += 1
    request = RequestState(fact.request, node.id, wake.number, call.id, call.key, fact.question)
    request.slot, request.once, request.diverged, request.asked_at = fact.slot, fact.once, fact.diverged, tree.now
    if fact.question.kind != "in_doubt":
        memory.slots = [*memory.slots[: fact.slot], fact.request]
        memory.unsettled = False
    tree.requests[fact.request] = request
    for a in node.chain:
        a.open_requests += 1


def _diverged(tree: Tree, fact: f.Diverged) -> None:
    _wake(tree, fact.handle)[1].divergences += 1


def _host_asked(tree: Tree, fact: f.HostAsked) -> None:
    node, wake = _wake(tree, fact.handle)
    _open(tree, AskHost(fact.effect, fact.handle, fact.request, fact.by))
    tree.requests[fact.request].host = fact.effect
    wake.hosts += 1
    for a in node.chain:
        a.live += 1


def _unhost(tree: Tree, node: Node, wake: Wake, request: str) -> None:
    state = tree.requests[request]
    if state.host:
        _close(tree, state.host)
        state.host = 0
        wake.hosts -= 1
        for a in node.chain:
            a.live -= 1


def _host_passed(tree: Tree, fact: f.HostPassed) -> None:
    node, wake = _wake(tree, fact.handle)
    effect = tree.open[fact.effect]
    assert isinstance(effect, AskHost)
    _unhost(tree, node, wake, effect.request)


def _notify_asked(tree: Tree, fact: f.NotifyAsked) -> None:
    _open(tree, Notify(fact.effect, fact.handle, fact.request))


def _notified(tree: Tree, fact: f.Notified) -> None:
    _close(tree, fact.effect)


def _end_request(tree: Tree, node: Node, wake: Wake, request: RequestState, status: str) -> None:
    _unhost(tree, node, wake, request.id)
    request.status = status
    request.answered_at = tree.now
    for a in node.chain:
        a.open_requests -= 1


def _answer_given(tree: Tree, fact: f.AnswerGiven) -> None:
    node, wake = _wake(tree, fact.handle)
    request = tree.requests[fact.request]
    _end_request(tree, node, wake, request, "answered")
    request.answer = fact
    call = _call(wake, request.call)
    call.request = None
    if request.question.kind == "in_doubt":
        _resolve_doubt(wake, call, request, fact)
        return
    call.state = CallState.NEW
    if fact.policy == "rewind" and request.question.kind != "budget":
        for a in node.chain:
            if a.state is State.SUSPENDED and a.wake is not None:
                a.wake.rewind_due = True


def _resolve_doubt(wake: Wake, call: Call, request: RequestState, fact: f.AnswerGiven) -> None:
    memory = wake.memory[call.key]
    if not fact.ok:
        call.state = CallState.CUT
        return
    data: dict[str, Any] = json.loads(fact.data or "{}")
    outcome, output = data["outcome"], data.get("output")
    call.state = CallState.NEW
    if request.once is not None:
        if outcome == "retry":
            del memory.once[request.once]
        else:
            once = memory.once[request.once]
            once.done = True
            if outcome == "succeeded":
                once.value = json.dumps(output, separators=(",", ":"), ensure_ascii=False)
            else:
                once.error = "" if output is None else str(output)
        return
    memory.unsettled = False
    if outcome != "retry":
        text = output if isinstance(output, str) else json.dumps(output, separators=(",", ":"), ensure_ascii=False)
        _finish(wake, call, "" if output is None else text, outcome == "failed", None)


def _request_cancelled(tree: Tree, fact: f.RequestCancelled) -> None:
    node, wake = _wake(tree, fact.handle)
    _end_request(tree, node, wake, tree.requests[fact.request], "cancelled")


HANDLERS: dict[type, Callable[[Tree, Any], None]] = {
    f.RunOpened: _run_opened,
    f.PlanChanged: _plan_changed,
    f.HandleSpawned: _handle_spawned,
    f.HistorySeeded: _history_seeded,
    f.ItemPosted: _item_posted,
    f.WakeQueued: _wake_queued,
    f.WakeDropped: _wake_dropped,
    f.WakeStarted: _wake_started,
    f.ModelAwaited: _model_awaited,
    f.ModelCalled: _model_called,
    f.ModelReplied: _model_replied,
    f.ModelFailed: _model_failed,
    f.EffectLost: _effect_lost,
    f.CallEntered: _call_entered,
    f.CallReturned: _call_returned,
    f.CallReused: _call_reused,
    f.CallRefused: _call_refused,
    f.CallAsked: _call_asked,
    f.Diverged: _diverged,
    f.HostAsked: _host_asked,
    f.HostPassed: _host_passed,
    f.NotifyAsked: _notify_asked,
    f.Notified: _notified,
    f.AnswerGiven: _answer_given,
    f.RequestCancelled: _request_cancelled,
    f.WakeParked: _wake_parked,
    f.ResumeBegun: _resume_begun,
    f.RewindAsked: _rewind_asked,
    f.Rewound: _rewound,
    f.ResumeQueued: _resume_queued,
    f.Resumed: _resumed,
    f.ReopenQueued: _reopen_queued,
    f.WakeReopened: _wake_reopened,
    f.Delegated: _delegated,
    f.Reattached: _reattached,
    f.ChildReturned: _child_returned,
    f.OnceEntered: _once_entered,
    f.OnceDone: _once_done,
    f.BudgetRaised: _budget_raised,
    f.WakeSettled: _wake_settled,
    f.HandleClosed: _handle_closed,
}
