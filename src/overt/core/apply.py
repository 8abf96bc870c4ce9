"""Bookkeeping: what each fact changes in the tree. Decides nothing and refuses no valid journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from overt._text import size
from overt.core import facts as f
from overt.core.apply_calls import HANDLERS as CALLS
from overt.core.apply_policy import HANDLERS as POLICY
from overt.core.apply_policy import reopen_call
from overt.core.apply_requests import HANDLERS as REQUESTS
from overt.core.apply_upgrade import HANDLERS as UPGRADES
from overt.core.apply_wakes import HANDLERS as WAKES
from overt.core.batch import CallState
from overt.core.plan import AgentPlan, load_plan
from overt.core.tree import (
    Item,
    Node,
    Replays,
    Tree,
    Wake,
)
from overt.message import AssistantMessage, Message, ToolMessage
from overt.result import Limit

__all__ = ("apply", "apply_all", "begin")

MESSAGES: TypeAdapter[list[Message]] = TypeAdapter(list[Message], config=ConfigDict(defer_build=True))


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


def _run_opened(tree: Tree, fact: f.RunOpened) -> None:
    tree.run_id = fact.run_id
    tree.agent = fact.agent
    tree.policy = fact.policy
    tree.plan = load_plan(fact.plan)
    tree.root.caps = tree.plan.root
    if tree.root.caps.max_wall is not None:
        tree.has_wall = True
        tree.walled.append(tree.root)
    tree.nodes["root"] = tree.root


def _plan_changed(tree: Tree, fact: f.PlanChanged) -> None:
    tree.plan = load_plan(fact.plan)
    for node in tree.nodes.values():
        if node.agent in tree.plan.agents:
            node.plan = tree.plan.agents[node.agent]
            node.gone = None
            node.police(tree.plan)
            if node.wake is not None and node.wake.accepted:
                _regain(node.wake, node.plan)


OVER = (CallState.DONE, CallState.FINAL)


def _regain(wake: Wake, plan: AgentPlan) -> None:
    """A tool that is back can be missed again; what was told that it is gone stays so."""
    told = {call.name for call in wake.batch or () if call.error is not None and call.state not in OVER}
    wake.accepted = frozenset(
        (kind, subject)
        for kind, subject in wake.accepted
        if kind != "tool" or subject in told or (subject not in plan.tools and subject not in plan.delegates)
    )


def _handle_spawned(tree: Tree, fact: f.HandleSpawned) -> None:
    parent = tree.nodes[fact.parent]
    plan = tree.plan.agents[fact.agent]
    node = Node(fact.handle, parent, fact.agent, fact.caps or plan.caps, plan)
    if node.caps.max_wall is not None:
        tree.has_wall = True
        tree.walled.append(node)
    node.police(tree.plan)
    parent.children.append(node)
    parent.child_count += 1
    tree.nodes[node.id] = node
    if tree.entry is None and parent is tree.root:
        tree.entry = node


def _history_seeded(tree: Tree, fact: f.HistorySeeded) -> None:
    node = tree.nodes[fact.handle]
    node.messages = MESSAGES.validate_json(fact.messages)
    node.bytes_since = size(fact.messages)
    # Ids of ours that the history brings along are not given out again.
    for message in node.messages:
        ids = [message.call_id] if isinstance(message, ToolMessage) else []
        ids += [c.id for c in message.tool_calls] if isinstance(message, AssistantMessage) else []
        for id in ids:
            if id[:1] == "c" and id[1:].isdecimal() and len(id) < 12:
                node.call_seq = max(node.call_seq, int(id[1:]))


def _item_posted(tree: Tree, fact: f.ItemPosted) -> None:
    tree.nodes[fact.handle].inbox.append(Item(fact.sender, fact.channel, fact.text))


def _budget_raised(tree: Tree, fact: f.BudgetRaised) -> None:
    node = tree.nodes[fact.handle]
    said: dict[str, Any] = {n: v for n, v in zip(f.Caps._fields, fact.caps, strict=True) if v is not None}
    node.caps = node.caps._replace(**said)
    if "max_tool_calls" in said:
        _let_in(node)


def _let_in(raised: Node) -> None:
    """Calls a cap has kept out may be entered once it is raised, whoever had it raised."""
    for node in raised.below():
        wake = node.wake
        if wake is None or wake.status is not None or wake.check or wake.asks is not None:
            continue  # it goes on with what it is told of the cap itself
        for call in wake.batch or ():
            if (
                call.state == CallState.REFUSED
                and call.at == raised.id
                and call.limit == Limit.MAX_TOOL_CALLS
            ):
                reopen_call(call)


def _resume_begun(tree: Tree, fact: f.ResumeBegun) -> None:
    tree.replays = Replays(fact.verb)
    if fact.dead:
        _leave_out(tree)


def _driver_lost(tree: Tree, fact: f.DriverLost) -> None:
    _leave_out(tree)


def _leave_out(tree: Tree) -> None:
    """Count no running time between the record before and this one."""
    for node in tree.nodes.values():
        if node.active:
            node.wall += max(tree.before - node.wall_since, 0)
            node.wall_since = tree.now


HANDLERS: dict[type, Callable[[Tree, Any], None]] = {
    f.RunOpened: _run_opened,
    f.PlanChanged: _plan_changed,
    f.HandleSpawned: _handle_spawned,
    f.HistorySeeded: _history_seeded,
    f.ItemPosted: _item_posted,
    f.ResumeBegun: _resume_begun,
    f.DriverLost: _driver_lost,
    f.BudgetRaised: _budget_raised,
    **WAKES,
    **CALLS,
    **REQUESTS,
    **POLICY,
    **UPGRADES,
}
