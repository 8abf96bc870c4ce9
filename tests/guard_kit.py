"""What the tests of guardrails share: a worker whose tools note that they ran, and rules in every shape."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio

from overt import (
    Agent,
    Allow,
    Answer,
    Ask,
    Deny,
    Guardrail,
    GuardrailEvent,
    Ruling,
    Runtime,
    TaskResult,
    ToolContext,
    tool,
)
from overt.testing import MockModel, say
from tests.suspend_kit import approve

__all__ = ("Mood", "Reached", "World", "answer_all", "asking", "denying", "facts", "rule")


def rule(rulings: Mapping[str, Ruling], seen: list[str] | None = None) -> Guardrail:
    """Return a plain rule that says one thing of each tool, and allows the others."""

    def rules(event: GuardrailEvent) -> Ruling:
        if seen is not None:
            seen.append(event.call.name)
        return rulings.get(event.call.name, Allow())

    return rules


def denying(*tools: str, reason: str = "no way") -> Guardrail:
    """Return a rule that denies tools."""
    return rule(dict.fromkeys(tools, Deny(reason)))


def asking(*tools: str, prompt: str = "may it?") -> Guardrail:
    """Return a rule that asks about tools."""
    return rule(dict.fromkeys(tools, Ask(prompt)))


class Mood:
    """A rule that says one thing after another of `danger`, the last one for good; and counts."""

    def __init__(self, *rulings: Ruling, waits: bool = False) -> None:
        self.rulings = rulings
        self.asked = 0
        self.waits = waits

    @property
    def rule(self) -> Any:
        def says(event: GuardrailEvent) -> Ruling:
            if event.call.name != "danger":
                return Allow()
            self.asked += 1
            return self.rulings[min(self.asked, len(self.rulings)) - 1]

        async def says_later(event: GuardrailEvent) -> Ruling:
            await anyio.lowlevel.checkpoint()
            return says(event)

        return says_later if self.waits else says


class World:
    """What outlives the processes of a test: what ran. Each of its workers is a fresh object.

    Args:
        *replies: The worker's script, without the closing text.
        own: The worker's own rules.
        house: The run's rules.
        more: Further fields of the worker.
    """

    def __init__(
        self,
        *replies: Any,
        own: Sequence[Guardrail] = (),
        house: Sequence[Guardrail] = (),
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self.ran: list[str] = []
        self.keys: list[str] = []
        self.replies = replies
        self.own = own
        self.house = house
        self.more = dict(more or {})

    def worker(self, *, before: Sequence[Any] = (), after: Sequence[Any] = ()) -> Agent[None, str]:
        """Return the worker `w`; `before` and `after` are replies around its own."""
        world = self

        @tool
        async def danger(ctx: ToolContext, n: int = 1) -> str:
            """Do harm."""
            world.ran.append(f"danger {n}")
            world.keys.append(ctx.idempotency_key)
            return f"harm {n}"

        @tool
        async def safe(n: int = 1) -> str:
            """Do no harm."""
            world.ran.append(f"safe {n}")
            return f"fine {n}"

        @tool(on_replay="reuse")
        async def once(n: int = 1) -> str:
            """Do harm, but once."""
            world.ran.append(f"once {n}")
            return f"done {n}"

        model = MockModel([*before, *self.replies, *after, say("w is done")])
        given: dict[str, Any] = {"guardrails": list(self.own), "model": model, **self.more}
        given["tools"] = [danger, safe, once, approve, *given.get("tools", ())]
        return Agent("w", does="works", **given)

    def options(self, **more: Any) -> dict[str, Any]:
        """Return the run's options."""
        return {"guardrails": list(self.house), **more}


class Reached:
    """Where a door has led: the result, the run, and the worker in it."""

    def __init__(self, result: TaskResult[Any], runtime: Runtime[Any], handle: str) -> None:
        self.result = result
        self.runtime = runtime
        self.handle = handle

    @property
    def said(self) -> list[str]:
        """The results of the worker's calls, in order."""
        return [m.text for m in self.runtime.transcript(self.handle, uncommitted=True) if m.role == "tool"]


async def answer_all(
    result: TaskResult[Any], resume: Callable[[Answer[Any]], Awaitable[TaskResult[Any]]], *, ok: bool = True
) -> TaskResult[Any]:
    """Answer whatever is asked until nothing is."""
    for _ in range(20):
        if result.pending is None:
            return result
        result = await resume(Answer(id=result.pending.id, ok=ok, reason=None if ok else "not today"))
    raise AssertionError("it never stops asking")


def facts(runtime: Runtime[Any], *kinds: type) -> list[Any]:
    """Return the facts of some kinds in a run's journal."""
    return [fact for _, _, some in runtime._driver.log for fact in some if isinstance(fact, kinds)]
