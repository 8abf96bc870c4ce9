"""Telling whether the code of this process still fits a stored run, and what is recorded where it differs."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from overt.core import facts as f
from overt.core import inputs as i
from overt.core.apply_upgrade import delegated_to
from overt.core.tree import Node, Tree, Wake
from overt.driver.crew import Crew, Member
from overt.driver.upgrading import one_line, upgraded
from overt.errors import SpecDrift
from overt.result import State
from overt.upgrade import Drift, Upgrade

__all__ = ("drifts", "fit", "refusal")

AGENT = "agent"
"""Stands for `on_replay` of a tool that is an agent."""

OR_ACCEPT = 'or go on with on_drift="accept": '


def drifts(tree: Tree, crew: Crew, entry: str, given: Collection[str], upgrade: Upgrade) -> tuple[Drift, ...]:
    """Return every place where code does not fit a run; the tree is not changed.

    Args:
        tree: The run.
        crew: Who performs its effects in this process.
        entry: Name of the entry agent.
        given: Names of the options that were given; `None` as a value counts.
        upgrade: What the host says of the change.
    """
    return tuple(_Survey(tree, crew, entry, given, upgrade).found)


def fit(
    tree: Tree,
    *,
    crew: Crew,
    plan: str,
    entry: str,
    given: Collection[str],
    upgrade: Upgrade,
    accept: bool,
) -> i.Drift | None:
    """Return what is to be recorded of how the code of this process differs, `None` for nothing.

    Args:
        tree: The run.
        crew: Who performs its effects in this process.
        plan: The plan of this process.
        entry: Name of the entry agent.
        given: Names of the options that were given.
        upgrade: What the host says of the change.
        accept: Whether the host goes on in spite of what does not fit.

    Raises:
        SpecDrift: It cannot carry on what is open; lists every place.
    """
    survey = _Survey(tree, crew, entry, given, upgrade)
    refused = [one for one in survey.found if not (accept and one.acceptable)]
    if refused:
        raise refusal(tree.run_id, refused)
    accepted = tuple(
        f.DriftAccepted(one.handle or "root", one.what, one.kind, one.tool, one.call) for one in survey.found
    )
    if not (survey.renamed or survey.upgraded or accepted) and tree.plan.dump() == plan:
        return None
    return i.Drift(plan, tuple(survey.renamed), tuple(survey.upgraded), accepted)


def refusal(run_id: str, found: Iterable[Drift]) -> SpecDrift:
    """Return the error that lists drifts, each with how to go on."""
    found = tuple(found)
    if len(found) == 1:
        return SpecDrift(f"run {run_id}: {found[0]}", drifts=found)
    lines = "\n".join(f"- {one}" for one in found)
    return SpecDrift(f"run {run_id} does not fit in {len(found)} places:\n{lines}", drifts=found)


class _Survey:
    """One look at a run and the code that is to carry it on."""

    def __init__(self, tree: Tree, crew: Crew, entry: str, given: Collection[str], upgrade: Upgrade) -> None:
        self.tree: Tree = tree
        self.members = crew.members
        self.upgrade: Upgrade = upgrade
        self.found: list[Drift] = []
        self.renamed: list[f.AgentRenamed | f.ToolRenamed] = []
        self.upgraded: list[f.ArgumentsUpgraded] = []
        self._agents: dict[str, str] = {}
        """Agents that have another name now."""
        self._clashing: set[str] = set()
        """Agents that cannot have the name they were to have."""
        if not self._is_entry(entry):
            # Of another agent nothing else would fit either.
            self._wrong_entry(entry)
            return
        using = [
            node
            for node in tree.nodes.values()
            if node is not tree.root
            and node.state is not State.CLOSED
            and (node.queued or _may_go_on(node.wake))
        ]
        if using:
            self._rules(given)
        self._rename_agents()
        for node in using:
            member = self.members.get(self._agents.get(node.agent, node.agent))
            if member is None:
                self._agent_gone(node)
            elif node.wake is not None and _may_go_on(node.wake):
                self._tools(node, node.wake, member)
                self._output(node, node.wake, member)

    # ----------------------------------------------------------- the run

    def _is_entry(self, entry: str) -> bool:
        agent = self.tree.agent
        return agent == entry or (agent not in self.members and self.upgrade.agent(agent) == entry)

    def _wrong_entry(self, entry: str) -> None:
        agent = self.tree.agent
        self.found.append(
            Drift(
                kind="entry",
                what=f"it was started with agent {agent!r}, not {entry!r}",
                how=f"open it with that, or say upgrade=Upgrade(agents={{{agent!r}: {entry!r}}}) if that is its "
                "name now; another agent's run cannot be accepted",
                acceptable=False,
                agent=agent,
            )
        )

    def _rules(self, given: Collection[str]) -> None:
        """A rule that was forgotten would let in what the run was started not to let in, and nobody would be told."""
        plan = self.tree.plan
        for option, names in (
            ("guardrails", plan.guards),
            ("input_guardrails", plan.prompt_guards),
            ("output_guardrails", plan.output_guards),
        ):
            if names and option not in given:
                self.found.append(
                    Drift(
                        kind="guardrails",
                        what=f"it was started with {option}={', '.join(names)}",
                        how=f"give them again, or {option}=[] to go on without",
                        acceptable=False,
                    )
                )

    # ----------------------------------------------------------- agents

    def _rename_agents(self) -> None:
        """A handle that is idle goes by the new name as well: it may be woken again."""
        here = [
            n for n in self.tree.nodes.values() if n is not self.tree.root and n.state is not State.CLOSED
        ]
        if not here:
            return
        known = {node.agent for node in here} | {self.tree.agent}
        for node in here:
            if node.wake is not None and _may_go_on(node.wake):
                known |= delegated_to(node.wake)
        for old in sorted(known - self.members.keys()):
            new = self.upgrade.agent(old)
            if new not in self.members:
                continue
            if new in known or new in self._agents.values():
                self._clashing.add(old)
                self.found.append(_clash("agents", "agent", old, new, f"run {self.tree.run_id}", agent=old))
                continue
            self._agents[old] = new
            self.renamed.append(f.AgentRenamed(old, new))

    def _agent_gone(self, node: Node) -> None:
        if node.gone is not None or node.agent in self._clashing:
            return
        self.found.append(
            Drift(
                kind="agent",
                what=f"agent {node.agent!r} of {node.id} is no longer in the team",
                how=f"add it, say what it is called now with upgrade=Upgrade(agents={{{node.agent!r}: …}}), close "
                f"the run, {OR_ACCEPT}the handle's wake then fails, and whoever waits for it is told",
                acceptable=True,
                handle=node.id,
                agent=node.agent,
            )
        )

    # ----------------------------------------------------------- tools

    def _tools(self, node: Node, wake: Wake, member: Member) -> None:
        """Every tool this wake has used counts: a replay enters it again, or is given what it returned."""
        plan: dict[str, str] = {}
        if node.plan is not None:
            plan = {**node.plan.tools, **dict.fromkeys(node.plan.delegates, AGENT)}
        used = {memory.tool for memory in wake.memory.values()}
        new_names: set[str] = set()
        for name in sorted(used):
            now = name
            if member.tool(name) is None:
                now = self.upgrade.tool(name)
                if member.tool(now) is None:
                    self._tool_gone(node, wake, name)
                    continue
                if now in used or now in new_names:
                    self.found.append(
                        _clash(
                            "tools", "tool", name, now, node.id, handle=node.id, agent=node.agent, tool=name
                        )
                    )
                    continue
                new_names.add(now)
                self.renamed.append(f.ToolRenamed(node.id, name, now))
            if member.tool(now) is member.task:
                continue
            before = plan.get(name)
            on_replay = member.tools[now].on_replay if now in member.tools else AGENT
            if before is not None and before != on_replay:
                self._on_replay(node, now, before, on_replay)
            if now in member.tools and AGENT not in (before, on_replay):
                self._arguments(node, wake, member, name, now)

    def _tool_gone(self, node: Node, wake: Wake, name: str) -> None:
        if ("tool", name) in wake.accepted:
            return
        self.found.append(
            Drift(
                kind="tool",
                what=f"tool {name!r} of agent {node.agent!r} is gone while the wake that used it in {node.id} is open",
                how=f"add it, say what it is called now with upgrade=Upgrade(tools={{{name!r}: …}}), close the run, "
                f"{OR_ACCEPT}its open calls then get an error result",
                acceptable=True,
                handle=node.id,
                agent=node.agent,
                tool=name,
            )
        )

    def _on_replay(self, node: Node, name: str, before: str, now: str) -> None:
        other = AGENT in (before, now)
        self.found.append(
            Drift(
                kind="onReplay",
                what=f"tool {name!r} of agent {node.agent!r} was {before!r} and is {now!r} while the wake that used "
                f"it in {node.id} is open",
                how="give it back, or close the run; a tool that runs an agent and one that does not cannot stand "
                "for each other"
                if other
                else f"give it back, close the run, {OR_ACCEPT}{now!r} then counts from now on",
                acceptable=not other,
                handle=node.id,
                agent=node.agent,
                tool=name,
            )
        )

    def _arguments(self, node: Node, wake: Wake, member: Member, name: str, now: str) -> None:
        changed, refused = upgraded(self.tree, wake, name, now, member.tools[now], self.upgrade)
        self.upgraded += [f.ArgumentsUpgraded(node.id, now, before, after) for before, after in changed]
        for one in refused:
            if ("arguments", one.call) in wake.accepted:
                continue
            which = "its open call" if one.open else "the call"
            then = (
                "that call then gets an error result"
                if one.open
                else "a replay then makes that call anew, as another one"
            )
            self.found.append(
                Drift(
                    kind="arguments",
                    what=f"tool {now!r} of agent {node.agent!r} no longer takes the arguments of {which} {one.call} "
                    f"in {node.id}: {one.why}",
                    how=f"take them, bring them up to date with upgrade=Upgrade(arguments=…), close the run, "
                    f"{OR_ACCEPT}{then}",
                    acceptable=True,
                    handle=node.id,
                    agent=node.agent,
                    tool=now,
                    call=one.call,
                )
            )

    # ----------------------------------------------------------- answers

    def _output(self, node: Node, wake: Wake, member: Member) -> None:
        """A final answer that somebody has still to look at is read again as the type there is now."""
        if wake.stale is not None and wake.stale[0] == wake.output:
            return
        try:
            if wake.output is not None:
                if member.output is None:
                    raise TypeError("it answers in text")
                member.output.load(wake.output)
            elif wake.final and member.output is not None:
                raise TypeError("the answer is text")
        except (ValueError, TypeError) as error:
            why = one_line(error)
            self.found.append(
                Drift(
                    kind="outputType",
                    what=f"the answer {node.id} has given, which is still looked at, no longer fits the output_type "
                    f"of {node.agent!r}: {why}",
                    how=f"take it, close the run, {OR_ACCEPT}the answer then goes back to the model, which gives "
                    "another",
                    acceptable=True,
                    handle=node.id,
                    agent=node.agent,
                )
            )


def _may_go_on(wake: Wake | None) -> bool:
    return wake is not None and (wake.cut or wake.status in (None, "error", "incomplete"))


def _clash(
    field: str,
    what: str,
    old: str,
    new: str,
    where: str,
    *,
    handle: str | None = None,
    agent: str | None = None,
    tool: str | None = None,
) -> Drift:
    return Drift(
        kind="rename",
        what=f"{what} {old!r} cannot be called {new!r} from now on: {where} has used {new!r} too, as another {what}",
        how=f"leave {old!r} out of Upgrade({field}=…), or add {old!r} again until the run is done; "
        "two cannot be taken for one",
        acceptable=False,
        handle=handle,
        agent=agent,
        tool=tool,
    )
