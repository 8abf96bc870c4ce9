"""What the rules need to know of the agents: plain data, recorded in the journal when the run opens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from overt.core.facts import Caps

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


class Plan(NamedTuple):
    """The agents of a run and the options the rules depend on."""

    agents: Mapping[str, AgentPlan]
    root: Caps = Caps()
    wait_for: bool = False
    on_pending: bool = False
    inbox_cap: int = 8
    max_divergences: int = 2
    max_result_chars: int = 100_000

    def dump(self) -> str:
        """Return the plan as canonical JSON."""
        agents = {
            a.name: {
                **({"team": a.team} if a.team else {}),
                **({"tools": dict(a.tools)} if a.tools else {}),
                **({"caps": _caps(a.caps)} if _caps(a.caps) else {}),
                **({"wait_for": True} if a.wait_for else {}),
                **({"max_output": a.max_output} if a.max_output is not None else {}),
            }
            for a in self.agents.values()
        }
        rest = {n: v for n, v in zip(self._fields[2:], self[2:], strict=True) if v != self._field_defaults[n]}
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
            )
            for name, a in value.pop("agents").items()
        }
        return cls(agents, Caps(**value.pop("root", {})), **value)


@lru_cache(maxsize=256)
def load_plan(text: str) -> Plan:
    """Read a plan; the many runs of one agent share it."""
    return Plan.load(text)


def _caps(caps: Caps) -> dict[str, object]:
    return {n: v for n, v in zip(Caps._fields, caps, strict=True) if v is not None}
