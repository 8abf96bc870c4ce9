"""What the benchmarks run: a scripted model that costs nothing, one tool, and the agents that have them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from time import process_time
from typing import Any

from overt import Agent, Budget, ToolContext, ToolResult, pending, tool
from overt.message import AssistantMessage, ModelRequest, ModelResponse, ToolCall, Usage

__all__ = ("Child", "Script", "approver", "coordinator", "worker")

USAGE = Usage(input_tokens=10, output_tokens=5, total_tokens=15)
CHILD_USAGE = Usage(input_tokens=7, output_tokens=3, total_tokens=10)
MANY = Budget(max_turns=100_000)


class Script:
    """Asks for one tool `turns` times, then for `last` if there is one, then answers. Constant time a call.

    It keeps nothing of a run: what it says is a function of the length of the transcript, so one object serves any
    number of runs, and a run that is opened again.
    """

    name = "script"

    def __init__(
        self,
        turns: int,
        *,
        arguments: Callable[[int], dict[str, Any]] = lambda turn: {"x": turn},
        tool: str = "noop",
        last: str | None = None,
        marks: Collection[int] = (),
        think: float = 0.0,
    ) -> None:
        self.turns = turns
        self.arguments = arguments
        self.tool = tool
        self.last = last
        self.marks = marks
        self.think = think
        self.stamps: dict[int, float] = {}
        """CPU time when each marked turn began."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        turn = (len(request.messages) - 1) // 2
        if turn in self.marks:
            self.stamps[turn] = process_time()
        if self.think:
            await asyncio.sleep(self.think)
        name = self.tool if turn < self.turns else self.last if turn == self.turns else None
        if name is None:
            return ModelResponse(message=AssistantMessage(text="done"), usage=USAGE)
        call = ToolCall(id=f"call_{turn}", name=name, arguments=self.arguments(turn))
        return ModelResponse(
            message=AssistantMessage(tool_calls=(call,)), usage=USAGE, finish_reason="tool_calls"
        )


class Child:
    """Answers at once."""

    name = "child-script"

    async def generate(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse(message=AssistantMessage(text="child done"), usage=CHILD_USAGE)


@tool
async def noop(x: int) -> str:
    """Do nothing."""
    return "ok"


@tool
async def danger(ctx: ToolContext, x: int) -> str | ToolResult:
    """Do something somebody has to approve."""
    if ctx.answer is None:
        return pending(kind="approval", prompt=f"Do {x}?")
    return "ok"


worker = Agent("worker", does="Calls a tool.", tools=[noop], budget=MANY)
approver = Agent("approver", does="Calls tools, one of which asks.", tools=[noop, danger], budget=MANY)
coordinator = Agent(
    "coordinator",
    does="Delegates.",
    team=[Agent("child", does="Answers.", model=Child())],
    budget=MANY,
)
