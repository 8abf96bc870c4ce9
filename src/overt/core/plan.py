"""What the rules need to know of the agents: plain data, recorded in the journal when the run opens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

from overt.core.specs import Caps

__all__ = ("AgentPlan", "Plan", "load_plan")


class AgentPlan(NamedTuple):
    """One agent as the rules see it."""

    name: str
    team: tuple[str, ...] = ()
    """Names, sorted."""
    tools: Mapping[str, str] = {}
    """Tool name to `on_replay`."""
    caps: Caps = Caps()
    wait_for: bool = False
    max_output: int | None = None
    """The output limit of its model settings in tokens, if one is said."""
    guards: tuple[str, ...] = ()
    """Names of its guardrails on calls."""
    prompt_guards: tuple[str, ...] = ()
    output_guards: tuple[str, ...] = ()
    before_tool: bool = False
    """Whether a hook of its own sees calls before the guardrails."""
    gate: int | None = None
    """Rounds of its completion gate, if it has one."""
    typed: bool = False
    """Whether its final answer has to fit a type."""
    delegates: Mapping[str, str] = {}
    """Tool name to agent name, of agents that are tools."""
    resolves: tuple[str, ...] = ()
    """Names of the tools that find out themselves what became of a call in doubt, sorted."""


class Plan(NamedTuple):
    """The agents of a run and the options the rules depend on."""

    agents: Mapping[str, AgentPlan]
    root: Caps = Caps()
    wait_for: bool = False
    on_pending: bool = False
    inbox_cap: int = 8
    max_divergences: int = 2
    max_result_chars: int = 100_000
    guards: tuple[str, ...] = ()
    """Names of the guardrails on every agent's calls."""
    prompt_guards: tuple[str, ...] = ()
    output_guards: tuple[str, ...] = ()
    before_tool: bool = False
    on_limit: bool = False
    redact: tuple[str, ...] = ()
    """Names of fields whose values are not recorded."""

    def dump(self) -> str:
        """Return the plan as canonical JSON."""
        agents = {
            a.name: {
                **({"team": a.team} if a.team else {}),
                **({"tools": dict(a.tools)} if a.tools else {}),
                **({"caps": _caps(a.caps)} if _caps(a.caps) else {}),
                **({"wait_for": True} if a.wait_for else {}),
                **({"max_output": a.max_output} if a.max_output is not None else {}),
                **_said(a, 6),
            }
            for a in self.agents.values()
        }
        rest = _said(self, 2)
        value = {"agents": agents, **({"root": _caps(self.root)} if _caps(self.root) else {}), **rest}
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def load(cls, text: str) -> Plan:
        """Read what `dump` wrote."""
        value = json.loads(text)
        agents = {
            name: AgentPlan(
                name,
                tuple(a.get("team", ())),
                a.get("tools", {}),
                Caps(**a.get("caps", {})),
                a.get("wait_for", False),
                a.get("max_output"),
                **{n: _tupled(a[n]) for n in AgentPlan._fields[6:] if n in a},
            )
            for name, a in value.pop("agents").items()
        }
        root = Caps(**value.pop("root", {}))
        return cls(agents, root, **{n: _tupled(v) for n, v in value.items()})


@lru_cache(maxsize=256)
def load_plan(text: str) -> Plan:
    """Read a plan; the many runs of one agent share it."""
    return Plan.load(text)


def _said(plan: AgentPlan | Plan, start: int) -> dict[str, object]:
    """The fields from `start` on that differ from their defaults."""
    defaults: dict[str, object] = plan._field_defaults
    return {n: v for n, v in zip(plan._fields[start:], plan[start:], strict=True) if v != defaults[n]}


def _tupled(value: Any) -> Any:
    return tuple(cast("list[object]", value)) if isinstance(value, list) else value


def _caps(caps: Caps) -> dict[str, object]:
    return {n: v for n, v in zip(Caps._fields, caps, strict=True) if v is not None}
