"""Telling whether the code of this process still fits a stored run."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from overt.core.tree import CallState, Node, Tree, Wake
from overt.driver.crew import Crew, Member
from overt.errors import SpecDrift
from overt.result import State

__all__ = ("check_drift",)

AGENT = "agent"
"""Stands for `on_replay` of a tool that is an agent."""


def check_drift(tree: Tree, crew: Crew, entry: str, given: Collection[str]) -> None:
    """Refuse code that cannot carry on what is open.

    Args:
        tree: The run.
        crew: Who performs its effects in this process.
        entry: Name of the entry agent.
        given: Names of the options that were given; `None` as a value counts.

    Raises:
        SpecDrift: An agent or tool in use is gone, its `on_replay` changed, a type no longer takes what there is, or
            guardrails the run was started with were not given again.
    """
    if tree.agent != entry:
        raise SpecDrift(
            f"run {tree.run_id} was started with agent {tree.agent!r}, not {entry!r}: open it with that"
        )
    using = [
        node
        for node in tree.nodes.values()
        if node is not tree.root and node.state is not State.CLOSED and (node.queued or _may_go_on(node.wake))
    ]
    if using:
        _check_rules(tree, given)
    for node in using:
        if node.agent not in crew.members:
            raise SpecDrift(
                f"run {tree.run_id}: agent {node.agent!r} of {node.id} is no longer in the team; "
                "add it, or close the run"
            )
    for node in using:
        if node.wake is not None and _may_go_on(node.wake):
            _check_tools(tree, node, node.wake, crew.members[node.agent])


def _check_rules(tree: Tree, given: Collection[str]) -> None:
    """A rule that was forgotten would let in what the run was started not to let in, and nobody would be told."""
    plan = tree.plan
    for option, names in (
        ("guardrails", plan.guards),
        ("input_guardrails", plan.prompt_guards),
        ("output_guardrails", plan.output_guards),
    ):
        if names and option not in given:
            raise SpecDrift(
                f"run {tree.run_id} was started with {option}={', '.join(names)}: give them again, "
                f"or {option}=[] to go on without"
            )


def _may_go_on(wake: Wake | None) -> bool:
    return wake is not None and (wake.cut or wake.status in (None, "error", "incomplete"))


def _check_tools(tree: Tree, node: Node, wake: Wake, member: Member) -> None:
    """Every tool this wake has used counts: a replay enters it again, or is given what it returned."""
    where = f"run {tree.run_id}: tool {{!r}} of agent {node.agent!r}"
    plan: Mapping[str, str] = {}
    if node.plan is not None:
        plan = {**node.plan.tools, **dict.fromkeys(node.plan.delegates, AGENT)}
    used = {memory.tool for memory in wake.memory.values()}
    for name in sorted(used - ({"task"} if member.task is not None else set())):
        what = f"while the wake that used it in {node.id} is open"
        if member.tool(name) is None:
            raise SpecDrift(f"{where.format(name)} is gone {what}; add it, or close the run")
        before = plan.get(name)
        now = member.tools[name].on_replay if name in member.tools else AGENT
        if before is not None and before != now:
            raise SpecDrift(f"{where.format(name)} was {before!r} and is {now!r} {what}")
    for call in wake.batch or ():
        if call.error is not None or call.task or call.state in (CallState.DONE, CallState.FINAL):
            continue
        try:
            member.tools[call.name].canonical(call.run_args)
        except (ValueError, TypeError) as error:
            raise SpecDrift(
                f"{where.format(call.name)} no longer takes the arguments of its open call {call.id} in {node.id}: "
                f"{error}"
            ) from error
    if wake.output is not None:
        try:
            if member.output is None:
                raise TypeError("it answers in text")
            member.output.load(wake.output)
        except (ValueError, TypeError) as error:
            raise SpecDrift(
                f"run {tree.run_id}: the answer {node.id} has given, which is still looked at, no longer fits the "
                f"output_type of {node.agent!r}: {error}"
            ) from error
