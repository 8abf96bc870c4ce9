"""What a model does to the messages it is handed changes nothing but its own view."""

from __future__ import annotations

import itertools

from overt import Agent, AssistantMessage, ModelRequest, Runtime, ToolMessage, ToolResult, tool
from overt.testing import MockModel, Reply, call, say


@tool
def echo(items: list[int]) -> ToolResult:
    """Say what came."""
    return ToolResult(str(items), metadata={"seen": items})


async def test_a_model_that_alters_what_it_is_handed_alters_nothing_else() -> None:
    requests: list[ModelRequest] = []

    def meddle(request: ModelRequest) -> Reply:
        requests.append(request)
        for message in request.messages:
            if isinstance(message, AssistantMessage):
                for c in message.tool_calls:
                    c.arguments["items"] = [9]
            elif isinstance(message, ToolMessage):
                message.metadata["seen"] = "nothing"
        return say("done") if len(request.messages) > 2 else call("echo", items=[1, 2])

    agent = Agent("a", does="x", tools=[echo])
    runtime = Runtime(agent, model=MockModel(meddle))
    result = await runtime.run("go")
    _, asked, answered, _ = runtime.transcript(result.handle)
    assert isinstance(asked, AssistantMessage)
    assert asked.tool_calls[0].arguments == {"items": [1, 2]}
    assert isinstance(answered, ToolMessage)
    assert (answered.text, answered.metadata) == ("[1, 2]", {"seen": [1, 2]})


async def test_a_message_is_the_same_object_from_turn_to_turn() -> None:
    requests: list[ModelRequest] = []

    def record(request: ModelRequest) -> Reply:
        requests.append(request)
        return call("echo", items=[len(requests)]) if len(requests) < 4 else say("done")

    await Agent("a", does="x", tools=[echo]).run("go", model=MockModel(record))
    for earlier, later in itertools.pairwise(requests):
        assert len(later.messages) == len(earlier.messages) + 2
        assert all(a is b for a, b in zip(earlier.messages, later.messages, strict=False))
