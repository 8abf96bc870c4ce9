"""What a `before_llm` hook does to the messages it is shown is a fact, or has no effect."""

from __future__ import annotations

from typing import Any, cast

from overt import Agent, BeforeLLM, Hooks, LLMOverride, ModelRequest, Runtime, TaskResult, tool
from overt.core import facts as f
from overt.testing import MockModel, call, say
from overt.testing.mock import Reply
from tests.guard_kit import facts


@tool
async def t(x: int = 1) -> str:
    return f"ran {x}"


async def hooked(hook: Any, *replies: Reply) -> tuple[TaskResult[str], Runtime[str], list[list[Any]]]:
    """Run an agent with a hook; the third value is what its model was sent, turn by turn."""
    sent: list[list[Any]] = []

    def model(request: ModelRequest) -> Reply:
        sent.append([m.model_dump() for m in request.messages])
        return replies[len(sent) - 1]

    agent = Agent("a", does="works", tools=[t], hooks=Hooks(before_llm=hook))
    result, runtime = await agent.run("go", model=MockModel(model))
    return result, runtime, sent


def overwritten(event: BeforeLLM) -> None:
    for message in event.messages:
        if message.role == "assistant":
            message.tool_calls[0].arguments["x"] = 99
        elif message.role == "tool":
            message.metadata["forged"] = True


async def test_what_is_changed_in_place_and_not_given_back_reaches_nobody() -> None:
    result, runtime, sent = await hooked(overwritten, call("t", x=1), call("t", x=2), say("fin"))
    assert result.status == "done"
    assert [call["arguments"] for m in sent[-1] for call in m.get("tool_calls", ())] == [{"x": 1}, {"x": 2}]
    assert not facts(runtime, f.Overridden)
    assert not any(m.metadata for m in runtime.transcript(result.handle) if m.role == "tool")


async def test_what_is_changed_in_place_and_given_back_is_a_fact() -> None:
    def hook(event: BeforeLLM) -> LLMOverride:
        overwritten(event)
        return LLMOverride(messages=event.messages)

    result, runtime, sent = await hooked(hook, call("t", x=1), say("fin"))
    assert result.status == "done"
    (changed,) = facts(runtime, f.Overridden)
    assert '"x":99' in changed.messages
    assert '"x":99' in sent[-1][1].__repr__().replace("'", '"').replace(": ", ":")
    (asked,) = [m for m in runtime.transcript(result.handle) if m.role == "assistant" and m.tool_calls]
    assert asked.tool_calls[0].arguments == {"x": 99}


async def test_a_message_that_is_no_json_is_the_hooks_failure() -> None:
    def hook(event: BeforeLLM) -> LLMOverride | None:
        for message in event.messages:
            if message.role == "tool":
                message.metadata["it"] = cast("Any", object())
        return LLMOverride(messages=event.messages)

    result, _, sent = await hooked(hook, call("t"), say("fin"))
    assert result.error is not None
    assert result.error.source == "hook"
    assert len(sent) == 1
