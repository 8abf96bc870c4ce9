"""B039: a limit is a result that keeps what was done; going on repeats none of it."""

from __future__ import annotations

from overt import Agent, Budget, Runtime, tool
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say


async def test_two_turns_then_four() -> None:
    effects: list[str] = []

    @tool
    def send(to: str) -> str:
        effects.append(to)
        return f"sent to {to}"

    agent = Agent("a", does="x", tools=[send], budget=Budget(max_turns=2))
    model = MockModel([[say("sending"), call("send", to="ann")], call("send", to="bob"), "both sent"])
    store = MemoryStore()
    first, rt = await agent.run("go", model=model, store=store, run_id="r")
    assert (first.status, first.limit, first.limit_at) == ("incomplete", "maxTurns", "root/a.1")
    assert (first.turns, first.total_tokens, first.usage.tool_calls) == (2, 200, 1)
    assert effects == ["ann"]
    assert [m.text for m in rt.transcript("root/a.1")] == [
        "go", "sending", "sent to ann", "", "not run (maxTurns)",
    ]  # fmt: skip
    again = await Runtime.open(agent, "r", model=model, store=store)
    assert again.result() == first
    second = await again.extend(Budget(max_turns=4))
    assert (second.status, second.output, second.limit) == ("done", "both sent", None)
    assert effects == ["ann", "bob"]
    assert (second.turns, second.total_tokens, second.usage.tool_calls) == (3, 300, 2)
