"""Under which names and arguments the calls of a wake were first made.

Keys are what the outside world has seen of a call. Where a tool, an agent or a tool's arguments have another name or
form since, the same call made anew has to come out with the same key, and every other call with another one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overt.core.tree import Wake

__all__ = ("TASK", "Origins", "identify", "is_other", "origins_of", "with_agent")

TASK = "task"
AGAIN = "\0"
"""Marks a name that was another tool's before: what bears it now is not what the keys with that name are of."""


class Origins:
    """What is called otherwise by now in one wake."""

    __slots__ = ("agents", "arguments", "tools")

    def __init__(self) -> None:
        self.tools: dict[str, str] = {}
        """Present name to the name that keys have."""
        self.agents: dict[str, str] = {}
        self.arguments: dict[tuple[str, str], tuple[str, ...]] = {}
        """Present name and arguments to the arguments that keys have: several where what differed is one by now."""

    def forms(self, tool: str, args: str, *, delegates: bool) -> tuple[str, tuple[str, ...]]:
        """Return the name and the arguments a call is known by; several arguments where several calls may be meant.

        Args:
            tool: Its present name.
            args: Canonical JSON of its arguments.
            delegates: Whether it is a call of `task`.
        """
        if delegates:
            agent = json.loads(args)["agent"]
            return tool, (with_agent(args, original(self.agents, agent)) if self.agents else args,)
        return original(self.tools, tool), self.arguments.get((tool, args)) or (args,)

    def rename_tool(self, old: str, new: str) -> None:
        """Note that a tool has another name."""
        _rename(self.tools, old, new)
        for tool, args in [known for known in self.arguments if known[0] == old]:
            self.arguments[new, args] = self.arguments.pop((tool, args))

    def rename_agent(self, old: str, new: str) -> None:
        """Note that an agent has another name."""
        _rename(self.agents, old, new)

    def upgrade(self, tool: str, before: str, after: str, *, known: bool) -> None:
        """Note that arguments have another form.

        Args:
            tool: The tool's present name.
            before: The form up to now.
            after: The form from now on.
            known: Whether there are calls that had that form from the beginning.
        """
        there = self.arguments.get((tool, after)) or ((after,) if known else ())
        moved = self.arguments.pop((tool, before), (before,))
        self.arguments[tool, after] = (*there, *(form for form in moved if form not in there))


def original(names: dict[str, str], name: str) -> str:
    """Return the name that keys have for what bears this one now."""
    found = names.get(name)
    if found is not None:
        return found
    taken = names.values()
    while name in taken:
        name += AGAIN
    return name


def _rename(names: dict[str, str], old: str, new: str) -> None:
    first = original(names, old)
    names.pop(old, None)
    names[new] = first


def with_agent(args: str, agent: str) -> str:
    """Return canonical arguments of `task` with another agent in them."""
    return json.dumps(
        json.loads(args) | {"agent": agent}, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )


def origins_of(wake: Wake) -> Origins:
    """Return what is called otherwise in a wake, to be added to; only `apply` does, and who does as it does."""
    if wake.origins is None:
        wake.origins = Origins()
    return wake.origins


def is_other(wake: Wake, tool: str, args: str, *, delegates: bool) -> bool:
    """Whether a call had another name or other arguments when it was first made; as for `identify`."""
    if wake.origins is None:
        return False
    delegates = delegates and tool == TASK
    return wake.origins.forms(tool, args, delegates=delegates) != (tool, (args,))


def identify(
    wake: Wake, tool: str, args: str, key: Callable[[str, str, int], str], *, delegates: bool
) -> tuple[str, str]:
    """Count a call of an attempt; return what equal calls are counted by, and its key.

    Args:
        wake: The wake.
        tool: The tool's present name.
        args: Canonical JSON of the arguments.
        key: Makes a key of name, arguments and occurrence.
        delegates: Whether it hands work to an agent.
    """
    name: str = tool
    forms: tuple[str, ...] = (args,)
    if wake.origins is not None:
        name, forms = wake.origins.forms(tool, args, delegates=delegates and tool == TASK)
    made: list[tuple[str, str, int]] = []
    for form in forms:
        base = f"{name}\0{form}"
        occurrence = wake.occurrences.get(base, 0) + 1
        found = key(name, form, occurrence)
        made.append((base, found, occurrence))
        if found in wake.memory:
            break
    else:
        # None that an earlier attempt has left: a further one of the first form.
        del made[1:]
    base, found, occurrence = made[-1]
    wake.occurrences[base] = occurrence
    return base, found
