"""What the facts about code that has changed since change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, cast

from overt.core import facts as f
from overt.core.batch import Call, CallState
from overt.core.moves import wake_of
from overt.core.origins import TASK, origins_of, with_agent
from overt.core.tree import RequestState, Tree, Wake
from overt.result import State

__all__ = ("HANDLERS", "delegated_to")


def _agent_renamed(tree: Tree, fact: f.AgentRenamed) -> None:
    if tree.agent == fact.old:
        tree.agent = fact.new
    for node in tree.nodes.values():
        if node.agent == fact.old:
            node.agent = fact.new
            if fact.new in tree.plan.agents:
                node.plan = tree.plan.agents[fact.new]
                node.gone = None
                node.police(tree.plan)
        if node.wake is not None and node.wake.status != "done":
            _redirect(tree, node.wake, fact.old, fact.new)


def delegated_to(wake: Wake) -> set[str]:
    """Return the agents that calls of `task` of a wake are about, by their present names."""
    # What is remembered has the name of then.
    renamed = {} if wake.origins is None else wake.origins.agents
    now = {first: name for name, first in renamed.items()}
    found: set[str] = {json.loads(call.run_args)["agent"] for call in _calls(wake) if _is_task(call)}
    for memory in wake.memory.values():
        if memory.tool == TASK and (memory.child is not None or memory.guard is not None):
            name: str = json.loads(memory.args)["agent"]
            found.add(now.get(name, name))
    return found


def _is_task(call: Call) -> bool:
    return call.task and call.name == TASK and call.error is None


def _calls(wake: Wake) -> Iterator[Call]:
    """Yield the calls of the present batch, and their copies in the checkpoint."""
    yield from wake.batch or ()
    yield from wake.checkpoint.batch or ()


def _redirect(tree: Tree, wake: Wake, old: str, new: str) -> None:
    """Calls of `task` to an agent are calls to one of another name."""
    origins_of(wake).rename_agent(old, new)

    def other(args: str) -> str:
        return with_agent(args, new) if json.loads(args)["agent"] == old else args

    for call in _calls(wake):
        if _is_task(call):
            call.args = other(call.args)
            call.edit = None if call.edit is None else other(call.edit)
    for memory in wake.memory.values():
        if memory.tool == TASK and memory.edit is not None:
            memory.edit = other(memory.edit)

    def shown(about: dict[str, Any]) -> None:
        arguments = about["arguments"]
        if about["tool"] == TASK and arguments.get("agent") == old:
            arguments["agent"] = new

    _reword(tree, wake, shown)


def _tool_renamed(tree: Tree, fact: f.ToolRenamed) -> None:
    _, wake = wake_of(tree, fact.handle)
    origins_of(wake).rename_tool(fact.old, fact.new)
    for call in _calls(wake):
        if call.name == fact.old:
            call.name = fact.new
    for memory in wake.memory.values():
        if memory.tool == fact.old:
            memory.tool = fact.new

    def shown(about: dict[str, Any]) -> None:
        if about["tool"] == fact.old:
            about["tool"] = fact.new

    _reword(tree, wake, shown)


def _arguments_upgraded(tree: Tree, fact: f.ArgumentsUpgraded) -> None:
    _, wake = wake_of(tree, fact.handle)
    before, after = fact.before, fact.after
    known = any(m.tool == fact.tool and m.args == after for m in wake.memory.values())
    origins_of(wake).upgrade(fact.tool, before, after, known=known)
    for call in _calls(wake):
        # What has run has run with what it was given.
        if call.name == fact.tool and call.state not in (CallState.DONE, CallState.FINAL):
            call.args = after if call.args == before else call.args
            call.edit = after if call.edit == before else call.edit
    for memory in wake.memory.values():
        if memory.tool == fact.tool and memory.edit == before:
            memory.edit = after

    def shown(about: dict[str, Any]) -> None:
        if about["tool"] == fact.tool and _text(about["arguments"]) == before:
            about["arguments"] = json.loads(after)

    _reword(tree, wake, shown)


def _reword(tree: Tree, wake: Wake, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the call that the questions of a wake are shown with: what binds an answer has to name what runs."""
    for request in _requests(tree, wake):
        data: dict[str, Any] = json.loads(request.question.data)
        about: object = data.get("call")
        if isinstance(about, dict):
            change(cast("dict[str, Any]", about))
            request.question = request.question._replace(data=_text(data))


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _requests(tree: Tree, wake: Wake) -> Iterator[RequestState]:
    """Yield the requests that calls of a wake have made and may still be answered or asked for."""
    ids: dict[str, None] = {}
    for memory in wake.memory.values():
        ids.update(dict.fromkeys(memory.slots))
        ids.update(dict.fromkeys(id for id in (memory.guard, memory.approval) if id is not None))
    ids.update(dict.fromkeys(c.request for c in wake.batch or () if c.request is not None))
    yield from (tree.requests[id] for id in ids)


def _question_upgraded(tree: Tree, fact: f.QuestionUpgraded) -> None:
    tree.requests[fact.request].question = fact.question


def _drift_accepted(tree: Tree, fact: f.DriftAccepted) -> None:
    node = tree.nodes[fact.handle]
    wake = node.wake
    if fact.drift == "agent":
        node.gone = f.ErrorSpec("SpecDrift", fact.what, "runtime")
    if wake is not None:
        subject = fact.tool if fact.drift == "tool" else fact.call
        if subject is not None:
            wake.accepted |= {(fact.drift, subject)}
        if fact.drift == "outputType":
            wake.stale = (wake.output, fact.what)
        elif fact.drift in ("tool", "arguments"):
            _bar(wake, fact)
    if node.state is State.SUSPENDED:
        # It may go on without an answer: nobody would use one.
        tree.ready[node.id] = node


def _bar(wake: Wake, fact: f.DriftAccepted) -> None:
    """Keep open calls from being entered; what a call waits for that is under way comes to its end."""
    for call in _calls(wake):
        named = call.name == fact.tool if fact.drift == "tool" else call.id == fact.call
        if named and call.error is None and call.state not in _OVER:
            call.error = fact.what


_OVER = (CallState.DONE, CallState.FINAL, CallState.WAITING)

HANDLERS: dict[type, Callable[[Tree, Any], None]] = {
    f.AgentRenamed: _agent_renamed,
    f.ToolRenamed: _tool_renamed,
    f.ArgumentsUpgraded: _arguments_upgraded,
    f.QuestionUpgraded: _question_upgraded,
    f.DriftAccepted: _drift_accepted,
}
