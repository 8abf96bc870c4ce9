"""The rules: one input in, the facts it leads to out.

`decide` is synchronous and total. It knows no clock, randomness, environment, file, network, logger or user code:
everything of the kind arrives in an input or in the time it is given. It refuses before its first fact, or decides
the input to the end and applies its facts as it goes. What an input leads to is one atomic append.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from overt.core import facts as f
from overt.core import inputs as i
from overt.core.admission import start
from overt.core.apply import begin
from overt.core.budget import Stopped, asked_for_time, deepest, wall_spent
from overt.core.conclude import verified
from overt.core.desk import Desk, Refused
from overt.core.effects import (
    AskHost,
    AskLimit,
    CallModel,
    CallTool,
    CheckCalls,
    CheckText,
    Notify,
    Sleep,
    Verify,
)
from overt.core.ending import close_tree, fail, interrupt, stop
from overt.core.lifecycle import VERBS, Reaction
from overt.core.limits import limit_ruled
from overt.core.policing import checks_ruled, text_ruled
from overt.core.recovery import cancel, extend, recover
from overt.core.suspension import ask_doubt, deliver, expire, host_done, tool_asked
from overt.core.tree import Call, Node, Tree, Wake
from overt.core.work import consider_all, lost, replied
from overt.errors import AwaitingAnswer, HandleClosed, SpawnRefused, UnknownHandle
from overt.result import Limit, State

__all__ = ("decide",)


def decide(tree: Tree, inp: i.Input, now: int) -> list[f.Fact]:
    """Decide one input at time `now` (microseconds since 1970) and apply what follows.

    An outcome of an effect that is no longer open leads to nothing: what closed the effect has counted it.

    Raises:
        UsageError: The input is misuse; the tree is unchanged.
        Refused: The input is refused with a value; the tree is unchanged.
    """
    d = Desk(tree)
    times = tree.now, tree.before
    begin(tree, now)
    try:
        RULES[type(inp)](d, inp)
        consider_all(d)
    except BaseException:
        if not d.facts:
            tree.now, tree.before = times
        raise
    if not d.facts:
        tree.now, tree.before = times
    return d.facts


def _node(d: Desk, handle: str) -> Node:
    node = d.tree.nodes.get(handle)
    if node is None:
        raise UnknownHandle(f"run {d.tree.run_id} has no handle {handle!r}")
    return node


def _react(node: Node, verb: str) -> bool:
    """Look the pair up; say whether there is something to do."""
    reaction = VERBS[node.state, verb]
    if reaction is Reaction.RAISES:
        if node.state is State.CLOSED:
            raise HandleClosed(f"{node.id} is closed; it can be read and nothing else")
        ids = _open_below(node)
        raise AwaitingAnswer(
            f"{node.id} is suspended and waits for an answer to {', '.join(ids) or 'nothing that is open'}: "
            "resume(Answer(id=…, ok=…)), or interrupt or close it",
            request_ids=ids,
        )
    if reaction is Reaction.REFUSED:
        raise Refused(f"{node.id} is {node.state}")
    return reaction is Reaction.TAKEN


def _open_below(node: Node) -> list[str]:
    ids: list[str] = []
    for n in node.below():
        if n.wake is not None:
            ids += [c.request for c in n.wake.batch or () if c.request is not None]
            ids += [n.wake.asks] if n.wake.asks is not None else []
    return ids


# --------------------------------------------------------------- verbs


def _open_run(d: Desk, inp: i.Open) -> None:
    d.emit(f.RunOpened(inp.run_id, inp.agent, inp.policy, inp.plan))


def _take_over(d: Desk, inp: i.TakeOver) -> None:
    if d.tree.root.active:
        d.emit(f.DriverLost())


def _drift(d: Desk, inp: i.Drift) -> None:
    # The names first: the plan has the new ones. What was accepted last: it is about the plan there is now.
    for renamed in inp.renamed:
        d.emit(renamed)
    if inp.plan != d.tree.plan.dump():
        d.emit(f.PlanChanged(inp.plan))
    for upgraded in inp.upgraded:
        d.emit(upgraded)
    for accepted in inp.accepted:
        d.emit(accepted)


def _spawn(d: Desk, inp: i.Spawn) -> None:
    parent = _node(d, inp.parent)
    _react(parent, "spawn")
    team = tuple(d.tree.plan.agents) if inp.anywhere or parent.plan is None else parent.plan.team
    if inp.agent not in team:
        listed = ", ".join(team) or "nobody"
        raise SpawnRefused(
            f"{inp.agent!r} is not in the team of {parent.id}; the team: {listed}", limit="team"
        )
    if parent.depth + 1 > deepest(parent):
        raise SpawnRefused(f"{parent.id} is at depth {parent.depth} of {deepest(parent)}", limit="maxDepth")
    cap = parent.caps.max_children
    if cap is not None and parent.child_count >= cap:
        raise SpawnRefused(f"{parent.id} may have {cap} children and has had them", limit="maxChildren")
    id = f"{parent.id}/{inp.agent}.{parent.child_count + 1}"
    d.emit(f.HandleSpawned(id, parent.id, inp.agent, inp.caps))
    if inp.history is not None:
        d.emit(f.HistorySeeded(id, inp.history))


def _post(d: Desk, inp: i.Post) -> None:
    node = _node(d, inp.handle)
    _react(node, "post")
    if len(node.inbox) >= d.tree.plan.inbox_cap:
        raise Refused(f"the inbox of {node.id} is full ({d.tree.plan.inbox_cap} items)")
    d.emit(f.ItemPosted(node.id, inp.sender, inp.channel, inp.text))


def _wake(d: Desk, inp: i.Wake) -> None:
    node = _node(d, inp.handle)
    if node is d.tree.root:
        raise UnknownHandle("root has no agent; spawn a handle below it and wake that")
    _react(node, "wake")
    if node.queued is not None:
        raise Refused(f"{node.id} has a wake that waits for a slot")
    start(d, node, inp.prompt, closes=inp.closes)


def _interrupt(d: Desk, inp: i.Interrupt) -> None:
    node = _node(d, inp.handle)
    if _react(node, "interrupt") or node.live or node.open_requests or d.tree.cut or d.tree.ready:
        interrupt(d, node, reason=inp.reason)


def _close(d: Desk, inp: i.Close) -> None:
    node = _node(d, inp.handle)
    if _react(node, "close"):
        close_tree(d, node, "closed", reason=inp.reason)


def _expire(d: Desk, inp: i.Expire) -> None:
    expire(d, drive=inp.drive)


def _tick(d: Desk, inp: i.Tick) -> None:
    tree = d.tree
    expire(d, drive=True)
    for node in sorted(tree.walled, key=lambda n: n.depth):
        cap = node.caps.max_wall
        if cap is None or not node.active or wall_spent(tree, node, tree.now) < cap * 1e6:
            continue
        if asked_for_time(tree, node):
            continue
        stopped = Stopped(Limit.MAX_WALL, node.id, f"{cap:g} s")
        for n in reversed(list(node.below())):
            if n.state is State.RUNNING:
                stop(d, n, stopped)


# --------------------------------------------------------------- outcomes


def _model_done(d: Desk, inp: i.ModelDone) -> None:
    effect = d.tree.open.get(inp.effect)
    if isinstance(effect, CallModel):
        node, wake = _at(d, effect.handle)
        replied(d, inp, node, wake)


def _model_lost(d: Desk, inp: i.ModelLost) -> None:
    effect = d.tree.open.get(inp.effect)
    if isinstance(effect, CallModel):
        lost(d, inp, *_at(d, effect.handle))


def _slept(d: Desk, inp: i.Slept) -> None:
    effect = d.tree.open.get(inp.effect)
    if isinstance(effect, Sleep):
        d.emit(f.RetryDue(effect.handle, inp.effect))
        d.touch(d.tree.nodes[effect.handle])


def _model_unsent(d: Desk, inp: i.ModelUnsent) -> None:
    effect = d.tree.open.get(inp.effect)
    if isinstance(effect, CallModel):
        node, _ = _at(d, effect.handle)
        d.emit(f.ModelSkipped(node.id, inp.effect, inp.error))
        fail(d, node, inp.error)


def _override(d: Desk, inp: i.Override) -> None:
    effect = d.tree.open.get(inp.effect)
    if isinstance(effect, CallModel):
        d.emit(f.Overridden(effect.handle, inp.effect, inp.messages, inp.tools))


def _checks_ruled(d: Desk, inp: i.ChecksRuled) -> None:
    effect = d.tree.open.get(inp.effect)
    if isinstance(effect, CheckCalls):
        checks_ruled(d, inp, *_at(d, effect.handle), effect.calls)


def _text_ruled(d: Desk, inp: i.TextRuled) -> None:
    effect = d.tree.open.get(inp.effect)
    if isinstance(effect, CheckText):
        text_ruled(d, inp, *_at(d, effect.handle), effect.what)


def _limit_ruled(d: Desk, inp: i.LimitRuled) -> None:
    effect = d.tree.open.get(inp.effect)
    if isinstance(effect, AskLimit):
        limit_ruled(d, inp, *_at(d, effect.handle), effect)


def _verify_done(d: Desk, inp: i.VerifyDone) -> None:
    effect = d.tree.open.get(inp.effect)
    if isinstance(effect, Verify):
        verified(d, inp, *_at(d, effect.handle), effect.number)


def _at(d: Desk, handle: str) -> tuple[Node, Wake]:
    node = d.tree.nodes[handle]
    assert node.wake is not None
    return node, node.wake


def _tool(d: Desk, id: int) -> tuple[Node, Wake, Call] | None:
    effect = d.tree.open.get(id)
    if not isinstance(effect, CallTool):
        return None
    node, wake = _at(d, effect.handle)
    for call in wake.batch or ():
        if call.id == effect.call:
            return node, wake, call
    return None


def _tool_done(d: Desk, inp: i.ToolDone) -> None:
    if (found := _tool(d, inp.effect)) is not None:
        node, wake, call = found
        if not _left_block(d, inp.effect, node, wake, call):
            d.emit(
                f.CallReturned(
                    node.id, call.id, inp.effect, inp.output, inp.is_error, inp.metadata, inp.error
                )
            )
        # While others are inside their tools nothing follows from one result; a large batch is not looked at N times.
        if not wake.entered:
            d.touch(node)


def _tool_asked(d: Desk, inp: i.ToolAsked) -> None:
    if (found := _tool(d, inp.effect)) is None or _left_block(d, inp.effect, *found):
        return
    node = found[0]
    if inp.error is not None:
        d.emit(f.EffectLost(node.id, inp.effect, "a recorded question could not be upgraded", asked=True))
        fail(d, node, inp.error)
    else:
        tool_asked(d, inp, *found)


def _question_fits(d: Desk, inp: i.QuestionFits) -> None:
    if (found := _tool(d, inp.effect)) is not None:
        d.emit(f.QuestionUpgraded(found[0].id, inp.request, inp.question))


def _left_block(d: Desk, effect: int, node: Node, wake: Wake, call: Call) -> bool:
    """Whether a tool came to its end with a `once` block left without an outcome; asks about it then."""
    if not wake.memory[call.key].doubt():
        return False
    d.emit(f.EffectLost(node.id, effect, "a once block was left without an outcome"))
    ask_doubt(d, node, wake, call)
    return True


def _tool_lost(d: Desk, inp: i.ToolLost) -> None:
    if (found := _tool(d, inp.effect)) is None:
        return
    node, wake, call = found
    if inp.timed_out and wake.memory[call.key].doubt() is None:
        d.emit(f.CallReturned(node.id, call.id, inp.effect, inp.text, True))
    else:
        d.emit(f.EffectLost(node.id, inp.effect, inp.why))
        ask_doubt(d, node, wake, call)
    d.touch(node)


def _once_begin(d: Desk, inp: i.OnceBegin) -> None:
    if (found := _tool(d, inp.effect)) is not None:
        node, _, call = found
        d.emit(f.OnceEntered(node.id, call.id, inp.label))


def _once_end(d: Desk, inp: i.OnceEnd) -> None:
    if (found := _tool(d, inp.effect)) is not None:
        node, _, call = found
        d.emit(f.OnceDone(node.id, call.id, inp.label, inp.value, inp.error))


def _host_done(d: Desk, inp: i.HostDone) -> None:
    effect = d.tree.open.get(inp.effect)
    if isinstance(effect, AskHost):
        host_done(d, inp, d.tree.requests[effect.request], effect.by)


def _notify_done(d: Desk, inp: i.NotifyDone) -> None:
    effect = d.tree.open.get(inp.effect)
    if isinstance(effect, Notify):
        d.emit(f.Notified(effect.handle, inp.effect, inp.error))


RULES: dict[type, Callable[[Desk, Any], None]] = {
    i.Open: _open_run,
    i.TakeOver: _take_over,
    i.Drift: _drift,
    i.Spawn: _spawn,
    i.Post: _post,
    i.Wake: _wake,
    i.Interrupt: _interrupt,
    i.Close: _close,
    i.Cancel: cancel,
    i.Deliver: deliver,
    i.Expire: _expire,
    i.Extend: extend,
    i.Recover: recover,
    i.Tick: _tick,
    i.ModelDone: _model_done,
    i.ModelLost: _model_lost,
    i.Slept: _slept,
    i.ToolDone: _tool_done,
    i.ToolAsked: _tool_asked,
    i.QuestionFits: _question_fits,
    i.ToolLost: _tool_lost,
    i.OnceBegin: _once_begin,
    i.OnceEnd: _once_end,
    i.HostDone: _host_done,
    i.NotifyDone: _notify_done,
    i.ModelUnsent: _model_unsent,
    i.Override: _override,
    i.ChecksRuled: _checks_ruled,
    i.TextRuled: _text_ruled,
    i.LimitRuled: _limit_ruled,
    i.VerifyDone: _verify_done,
}
