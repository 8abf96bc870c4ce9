"""Lists of a run whose agents were renamed: nothing is wrong with them, and its requests are found by the new name."""

from __future__ import annotations

import pytest

from overt import Agent, Answer, Runtime, ToolContext, Upgrade, tool
from overt.stores import MemoryStore
from overt.testing import MockModel, Script, call, say
from tests.operations.kit import START

pytestmark = pytest.mark.anyio


async def test_verify_finds_nothing_wrong_after_a_rename() -> None:
    @tool
    async def refund(ctx: ToolContext, euros: int) -> str:
        """Pay back."""
        return str((await ctx.ask(f"Refund {euros}?")).ok)

    def crew(top: str, name: str) -> Agent[None, str]:
        both = [call("refund", euros=1), call("refund", euros=2)]
        script: Script = {top: [call("task", agent=name, prompt="go"), say("fin")], name: [both, say("k")]}
        return Agent(top, does="b", team=[Agent(name, does="k", tools=[refund])], model=MockModel(script))

    store = MemoryStore()
    await crew("boss", "clerk").run("A", store=store, run_id="q")
    names = Upgrade(agents={"clerk": "cashier", "boss": "chief"})
    runtime = await Runtime.open(crew("chief", "cashier"), "q", store=store, upgrade=names)
    result = await runtime.resume(Answer(id=runtime.pendings()[0].id, ok=True))
    assert result.status == "pending"
    assert await store.verify() == ()
    assert [one.agent for one in await store.pendings(agent="cashier")] == ["cashier"]
    other = MemoryStore()
    await other.import_run(await store.export_run("q"), now=START)
    assert await other.verify() == ()
