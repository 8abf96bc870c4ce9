"""B045: after an empty reply nothing empty is ever resent, and emptiness has an end of its own."""

from __future__ import annotations

from tests.driver.support import agent

from overt import Runtime, tool
from overt.message import AssistantMessage
from overt.testing import MockModel, call, say


@tool
async def t() -> str:
    return "t"


def no_empty_message(model: MockModel) -> bool:
    return all(
        m.text.strip() or m.tool_calls
        for request in model.requests
        for m in request.messages
        if isinstance(m, AssistantMessage)
    )


async def test_once() -> None:
    replies = [call("t"), say(""), say("there")]
    model = MockModel(lambda request: replies.pop(0))
    runtime = Runtime(agent(t), model=model)
    assert (await runtime.run("go")).status == "error"
    assert (await runtime.recover()).text == "there"
    assert no_empty_message(model)
    assert model.requests[1].messages == model.requests[2].messages


async def test_for_ever() -> None:
    model = MockModel(lambda request: say(""))
    runtime = Runtime(agent(t), model=model)
    for result in (await runtime.run("go"), await runtime.recover(), await runtime.recover()):
        assert result.error is not None
        assert result.error.type == "EmptyReply"
    assert len(model.requests) == 3
    assert no_empty_message(model)
