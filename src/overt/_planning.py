"""From declarations to what a run works with: the plan the rules know, and the crew the driver asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast

from overt.agent import Agent, instructions, resolve_team
from overt.core.facts import Caps
from overt.core.plan import AgentPlan, Plan
from overt.driver.crew import Crew, Kit, Member, RunnableTool
from overt.errors import DefinitionError
from overt.message import Model, ModelSettings, SystemMessage
from overt.models import resolve
from overt.options import model_of
from overt.policy import Budget
from overt.tool import Tool

__all__ = ("budget_of", "caps_of", "crew_of", "declared", "plan_of")

NO_SETTINGS = ModelSettings.model_construct()  # built the ordinary way it would cost at import
NO_CAPS = Caps()


def caps_of(budget: Budget | None) -> Caps:
    """Return a budget as the rules keep it: only what was said."""
    if budget is None or not budget.model_fields_set:
        return NO_CAPS
    said: dict[str, Any] = {name: getattr(budget, name) for name in budget.model_fields_set}
    if said.get("max_cost") is not None:
        said["max_cost"] = str(said["max_cost"])
    return Caps(**said)


def budget_of(caps: Caps) -> Budget:
    """Return caps as a public budget."""
    return Budget.model_validate({n: v for n, v in zip(Caps._fields, caps, strict=True) if v is not None})


class _Declared:
    """What follows from an entry agent's declaration alone, whatever the run: made once."""

    def __init__(self, entry: Agent[Any, Any]) -> None:
        self.agents = resolve_team(entry)
        self.plans = {
            name: AgentPlan(
                name,
                tuple(sorted(member.name for member in agent.team)),
                {tool.name: cast(RunnableTool, tool).on_replay for tool in agent.tools},
                caps_of(agent.budget),
                agent.wait_for is not None,
                None if agent.settings is None else agent.settings.max_output_tokens,
            )
            for name, agent in self.agents.items()
        }
        self.kits = {name: _kit(agent, self.agents) for name, agent in self.agents.items()}
        self.dumped: dict[tuple[object, ...], tuple[Plan, str]] = {}


def declared(entry: Agent[Any, Any]) -> _Declared:
    """Return what follows from the declaration of an entry agent.

    Raises:
        DefinitionError: Its teams do not resolve.
    """
    found = entry._declared
    if not isinstance(found, _Declared):
        found = _Declared(entry)
        # Kept with the agent and gone with it; an agent's declaration never changes.
        object.__setattr__(entry, "_declared", found)
    return found


def plan_of(entry: Agent[Any, Any], options: Mapping[str, Any]) -> tuple[Plan, str]:
    """Return what the rules need to know of the agents and options of a run, and its text in the journal."""
    known = declared(entry)
    rest = (
        caps_of(options.get("budget")),
        options.get("wait_for") is not None,
        options.get("on_pending") is not None,
        options.get("inbox_cap", 8),
        options.get("max_divergences", 2),
        options.get("max_result_chars", 100_000),
    )
    found = known.dumped.get(rest)
    if found is None:
        plan = Plan(known.plans, *rest)
        # Bounded, because options are the host's; in practice there is one combination.
        if len(known.dumped) >= 32:
            known.dumped.clear()
        found = known.dumped[rest] = (plan, plan.dump())
    return found


def _kit(agent: Agent[Any, Any], agents: Mapping[str, Agent[Any, Any]]) -> Kit:
    return Kit(
        name=agent.name,
        tools={tool.name: cast(RunnableTool, tool) for tool in agent.tools},
        task=_task_tool(agent, agents) if agent.team else None,
        settings=agent.settings or NO_SETTINGS,
        wait_for=agent.wait_for,
    )


def crew_of(entry: Agent[Any, Any], options: Mapping[str, Any]) -> Crew:
    """Return everyone who performs the effects of a run.

    Raises:
        DefinitionError: A model's provider is unknown, or lacks its package or key.
    """
    known = declared(entry)
    deps = options.get("deps")
    models: dict[str, Model] = {}
    return Crew(
        members={
            name: Member(
                kit=known.kits[name], model=_model(agent, entry, options, models), system=_system(agent, deps)
            )
            for name, agent in known.agents.items()
        },
        deps=deps,
        wait_for=options.get("wait_for"),
        on_pending=options.get("on_pending"),
        verify_answer=options.get("verify_answer"),
        max_concurrent_turns=options.get("max_concurrent_turns", 8),
        shutdown=options.get("shutdown", 0.2),
        claim=options.get("claim", 30.0),
    )


def _model(
    agent: Agent[Any, Any], entry: Agent[Any, Any], options: Mapping[str, Any], models: dict[str, Model]
) -> Model:
    chosen = model_of(agent, entry=entry, options=options)
    if not isinstance(chosen, str):
        return chosen
    # Told now, not at the first turn: an unknown provider or a missing key.
    if chosen not in models:
        models[chosen] = resolve(chosen)
    return models[chosen]


def _system(agent: Agent[Any, Any], deps: object) -> Callable[[], SystemMessage | None]:
    if agent.soul is None and agent.soul_file is None:
        return _nothing

    @lru_cache(maxsize=1)
    def make() -> SystemMessage | None:
        text = instructions(agent, deps)
        return None if text is None else SystemMessage(text=text)

    return make


def _nothing() -> None:
    return None


def _task_tool(agent: Agent[Any, Any], agents: Mapping[str, Agent[Any, Any]]) -> RunnableTool:
    team = sorted({member.name for member in agent.team})
    lines = [f"- {name}: {agents[name].does}" for name in team]
    description = (
        "Hand work to a member of the team and wait for its result. It starts with an empty transcript: the prompt "
        "has to say everything it needs to know.\nThe team:\n" + "\n".join(lines)
    )
    return cast(RunnableTool, Tool(_task, name="task", description=description))


def _task(agent: str, prompt: str) -> str:
    """Delegate.

    Args:
        agent: Name of the member.
        prompt: What it is to do.
    """
    raise DefinitionError("task is performed by the runtime")
