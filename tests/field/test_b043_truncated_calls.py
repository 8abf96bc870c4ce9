"""B043: a call cut off by the output limit is not run, and not taken for a bad argument. Not streamed."""

from __future__ import annotations

from typing import Any

from tests.driver.support import agent

from overt import Runtime, tool
from overt.testing import MockModel, call, raw_call, say


async def test_half_a_json_argument() -> None:
    entered: list[str] = []

    @tool
    async def write(path: str, text: str = "") -> str:
        entered.append(path)
        return "written"

    first = [raw_call("write", '{"path": "a", "te', finish="length"), call("write", path="whole")]
    replies: list[Any] = [first, say("shorter")]
    model = MockModel(lambda request: replies.pop(0))
    runtime = Runtime(agent(write), model=model)
    result = await runtime.run("go")
    assert result.status == "error"
    assert result.error is not None
    assert result.error.type == "OutputTruncated"
    assert entered == []
    assert result.usage.tool_calls == 0
    assert "invalid arguments" not in "".join(runtime.trace())
    result = await runtime.recover()
    assert result.text == "shorter"
    assert all(m.role == "user" for m in model.requests[1].messages)
