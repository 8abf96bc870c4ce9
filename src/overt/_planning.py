"""From declarations to what a run works with: the plan the rules know, and the crew the driver asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from overt._output import OutputSpec
from overt._redaction import Redaction
from overt.agent import Agent, instructions, resolve_team
from overt.core.plan import AgentPlan, Plan
from overt.delegate import AgentTool
from overt.driver.caps import caps_of
from overt.driver.crew import Crew, House, Kit, Member, RunnableTool
from overt.errors import DefinitionError
from overt.guardrail import name_of
from overt.hooks import Hooks
from overt.message import Model, ModelSettings, SystemMessage, Usage
from overt.models import resolve
from overt.options import model_of
from overt.policy import Budget, RetryPolicy
from overt.tool import Tool
from overt.upgrade import Upgrade

if TYPE_CHECKING:
    from overt.prices import Prices

__all__ = ("crew_of", "declared", "plan_of")

NO_UPGRADE = Upgrade()
DEFAULT_RETRY = RetryPolicy.model_construct()  # as below
NO_SETTINGS = ModelSettings.model_construct()  # built the ordinary way it would cost at import


class _Declared:
    """What follows from an entry agent's declaration alone, whatever the run: made once."""

    def __init__(self, entry: Agent[Any, Any]) -> None:
        self.agents = resolve_team(entry)
        self.plans = {
            name: AgentPlan(
                name,
                tuple(sorted(member.name for member in agent.team)),
                {name: t.on_replay for name, t in _own_tools(agent).items()},
                caps_of(agent.budget),
                agent.wait_for is not None,
                None if agent.settings is None else agent.settings.max_output_tokens,
                _names(agent.guardrails),
                _names(agent.input_guardrails),
                _names(agent.output_guardrails),
                agent.hooks is not None and agent.hooks.before_tool is not None,
                None if agent.completion is None else agent.completion.max_attempts,
                agent._output is not None,
                {name: t.agent.name for name, t in _agent_tools(agent).items()},
                tuple(sorted(name for name, t in _own_tools(agent).items() if t.resolve is not None)),
            )
            for name, agent in self.agents.items()
        }
        self.kits = {name: _kit(agent, self.agents) for name, agent in self.agents.items()}
        self.watched = any(
            agent.on_metric is not None or agent.on_spawn is not None or agent.on_close is not None
            for agent in self.agents.values()
        )
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
    hooks: Hooks | None = options.get("hooks")
    rest = (
        caps_of(options.get("budget")),
        options.get("wait_for") is not None,
        options.get("on_pending") is not None,
        options.get("inbox_cap", 8),
        options.get("max_divergences", 2),
        options.get("max_result_chars", 100_000),
        _names(options.get("guardrails", ())),
        _names(options.get("input_guardrails", ())),
        _names(options.get("output_guardrails", ())),
        hooks is not None and hooks.before_tool is not None,
        options.get("on_limit") is not None,
        tuple(options.get("redact", ())),
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
        tools=_own_tools(agent),
        task=_task_tool(agent, agents) if agent.team else None,
        settings=agent.settings or NO_SETTINGS,
        wait_for=agent.wait_for,
        delegates=_agent_tools(agent),
        output=cast("OutputSpec | None", agent._output),
        completion=agent.completion,
        guards=agent.guardrails,
        prompt_guards=agent.input_guardrails,
        output_guards=agent.output_guardrails,
        hooks=agent.hooks,
        on_metric=agent.on_metric,
        on_spawn=agent.on_spawn,
        on_close=agent.on_close,
    )


def _own_tools(agent: Agent[Any, Any]) -> dict[str, RunnableTool]:
    return {t.name: cast("RunnableTool", t) for t in agent.tools if not isinstance(t, AgentTool)}


def _agent_tools(agent: Agent[Any, Any]) -> dict[str, AgentTool[Any, Any]]:
    return {t.name: t for t in agent.tools if _is_agent(t)}


def _is_agent(tool: object) -> TypeGuard[AgentTool[Any, Any]]:
    return isinstance(tool, AgentTool)


def _names(rules: Sequence[object]) -> tuple[str, ...]:
    return tuple(map(name_of, rules)) if rules else ()


def crew_of(entry: Agent[Any, Any], options: Mapping[str, Any]) -> Crew:
    """Return everyone who performs the effects of a run.

    Raises:
        DefinitionError: A model's provider is unknown, or lacks its package or key.
    """
    known = declared(entry)
    deps = options.get("deps")
    models: dict[str, Model] = {}
    chosen = {name: _model(agent, entry, options, models) for name, agent in known.agents.items()}
    _check_prices(known.agents, chosen, options)
    house = House(
        guards=tuple(options.get("guardrails", ())),
        prompt_guards=tuple(options.get("input_guardrails", ())),
        output_guards=tuple(options.get("output_guardrails", ())),
        hooks=options.get("hooks"),
        on_metric=options.get("on_metric"),
    )
    return Crew(
        members={
            name: Member(
                kit=known.kits[name],
                model=chosen[name],
                system=_system(agent, deps),
                house=house,
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
        on_limit=options.get("on_limit"),
        guardrail_timeout=options.get("guardrail_timeout", 30.0),
        retry=options.get("retry") or DEFAULT_RETRY,
        prices=options.get("prices"),
        redaction=_redaction(options.get("redact", ())),
        watched=known.watched or house.on_metric is not None,
        upgrade=options.get("upgrade") or NO_UPGRADE,
    )


def _check_prices(
    agents: Mapping[str, Agent[Any, Any]], models: Mapping[str, Model], options: Mapping[str, Any]
) -> None:
    """Refuse a cap on money over a model that has no price: what it buys would not count.

    Raises:
        DefinitionError: Says whose cap it is, and which model.
    """
    prices: Prices | None = options.get("prices")
    budget: Budget | None = options.get("budget")
    if prices is None:
        return
    capped = {name: agents[name] for name in agents if _costs(agents[name].budget)}
    under: dict[str, str] = {}
    for name, agent in capped.items():
        under |= dict.fromkeys(resolve_team(agent), f"agent {name!r}")
    if _costs(budget):
        under |= dict.fromkeys(agents, "the run")
    if not under:
        return
    from overt.prices import PricedCall

    for name, whose in under.items():
        model = models[name]
        call = PricedCall(
            provider=getattr(model, "provider", ""), model=model.name, usage=Usage(), at=datetime.now(UTC)
        )
        if prices.price(call) is None:
            provider = f" of {call.provider!r}" if call.provider else ""
            raise DefinitionError(
                f"{whose}: max_cost is set, and the prices of the run have none for model {model.name!r}{provider}, "
                f"which agent {name!r} uses"
            )


def _costs(budget: Budget | None) -> bool:
    return budget is not None and budget.max_cost is not None


def _redaction(names: Sequence[str]) -> Redaction | None:
    return Redaction(names) if names else None


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
