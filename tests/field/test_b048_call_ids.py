"""B048: whatever ids a provider gives its calls, each has one of ours and one result, also after a reload."""

from __future__ import annotations

import pytest
from tests.driver.support import agent

from overt import Answer, Runtime, ToolContext, pending, tool
from overt.message import AssistantMessage, ModelRequest, ToolMessage
from overt.stores import MemoryStore
from overt.testing import MockModel, Part, call, raw_call, say


@tool
async def asks(ctx: ToolContext) -> object:
    return "asked" if ctx.answer else pending(kind="approval", prompt="?")


@pytest.mark.parametrize("id", ["", "same", " ", "\ud800"])
async def test_ids_that_are_none(id: str) -> None:
    entered: list[int] = []

    @tool
    async def t(n: int) -> str:
        entered.append(n)
        return f"t{n}"

    def replies(request: ModelRequest) -> list[Part] | Part:
        turn = sum(m.role == "assistant" for m in request.messages)
        if turn == 3:
            return say("done")
        batch = [call("t", n=10 * turn).with_options(id=id), call("t", n=10 * turn + 1).with_options(id=id)]
        return [*batch, raw_call("", "{}", id=id)] if turn < 2 else [*batch, call("asks").with_options(id=id)]

    store, model = MemoryStore(), MockModel(replies)
    runtime = Runtime(agent(t, asks), model=model, store=store, resume_policy="continue")  # type: ignore[arg-type]  # its value
    result = await runtime.run("go")
    assert result.pending is not None
    again = await Runtime.open(agent(t, asks), runtime.id, model=model, store=store)
    assert (await again.resume(Answer(id=result.pending.id, ok=True))).text == "done"
    assert entered == [0, 1, 10, 11, 20, 21]
    messages = model.requests[-1].messages
    calls = [c for m in messages if isinstance(m, AssistantMessage) for c in m.tool_calls]
    answers = [m for m in messages if isinstance(m, ToolMessage)]
    assert [c.id for c in calls] == [m.call_id for m in answers]
    assert len({c.id for c in calls}) == len(calls) == 9
    nameless = [m for m in answers if m.name == ""]
    assert len(nameless) == 2
    assert all(m.is_error and "without a name" in m.text and len(m.text) < 200 for m in nameless)
