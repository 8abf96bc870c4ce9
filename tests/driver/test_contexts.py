"""What rules, hooks and policies set in context variables stays with them, whether or not they wait for anything."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import pytest

from overt import Allow, Budget, Completion, Extend, Hooks, tool
from tests.driver.support import agent, calling

who: ContextVar[str] = ContextVar("who", default="host")
HOOKS = ("before_llm", "after_llm", "before_tool", "after_tool")
RULES = ("guardrails", "input_guardrails", "output_guardrails")


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("where", [*RULES, *HOOKS, "on_limit", "completion"])
async def test_it_reaches_neither_a_tool_nor_the_host(where: str, waits: bool) -> None:
    seen: list[str] = []

    @tool
    async def t() -> str:
        seen.append(who.get())
        return "t"

    def plain(_: Any) -> Any:
        who.set("somebody else")
        if where in RULES:
            return Allow()
        return {"on_limit": Extend(Budget(max_turns=9)), "completion": (True, "good")}.get(where)

    async def waiting(given: Any) -> Any:
        return plain(given)

    fn = waiting if waits else plain
    fields: dict[str, Any] = {where: [fn]} if where in RULES else {}
    if where in HOOKS:
        fields["hooks"] = Hooks(**{where: fn})
    elif where == "completion":
        fields["completion"] = Completion(fn, max_attempts=1)
    elif where == "on_limit":
        fields["budget"] = Budget(max_turns=1)
    options: dict[str, Any] = {"on_limit": fn} if where == "on_limit" else {}
    result, _ = await agent(t, **fields).run("go", model=calling("t"), **options)
    assert result.status == "done"
    assert (seen, who.get()) == (["host"], "host")
