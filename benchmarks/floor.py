"""The floor: the loop somebody writes by hand, without validation, journal, budget or cancellation.

It appends dicts to a list, parses the arguments the model gave as JSON text, and calls the tool. What overt costs is
told as a multiple of it, so that the numbers of two machines can be compared.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from time import process_time
from typing import Any

__all__ = ("ChildModel", "FloorModel", "Tools", "loop")

Reply = dict[str, Any]
Tools = Mapping[str, Callable[..., Awaitable[str]]]


class FloorModel:
    """Asks for one tool `turns` times, then for `last` if there is one, then answers. Constant time a call."""

    def __init__(
        self,
        turns: int,
        *,
        tool: str = "noop",
        last: str | None = None,
        marks: Collection[int] = (),
        think: float = 0.0,
    ) -> None:
        self.turns = turns
        self.tool = tool
        self.last = last
        self.marks = marks
        self.think = think
        self.stamps: dict[int, float] = {}
        """CPU time when each marked turn began."""

    async def __call__(self, messages: list[Reply]) -> Reply:
        turn = (len(messages) - 1) // 2
        if turn in self.marks:
            self.stamps[turn] = process_time()
        if self.think:
            await asyncio.sleep(self.think)
        usage = {"in": 10, "out": 5}
        tool = self.tool if turn < self.turns else self.last if turn == self.turns else None
        if tool is None:
            return {"role": "assistant", "content": "done", "usage": usage}
        call = {"id": f"call_{turn}", "name": tool, "arguments": json.dumps({"x": turn})}
        return {"role": "assistant", "content": None, "usage": usage, "tool_calls": [call]}


class ChildModel:
    """Answers at once."""

    async def __call__(self, messages: list[Reply]) -> Reply:
        return {"role": "assistant", "content": "child done", "usage": {"in": 7, "out": 3}}


async def loop(
    model: Callable[[list[Reply]], Awaitable[Reply]],
    tools: Tools,
    messages: list[Reply],
    *,
    usage: list[int],
    gated: str | None = None,
) -> str | None:
    """Run to the answer; `None` when the model asks for the tool that needs an approval."""
    while True:
        reply = await model(messages)
        usage[0] += reply["usage"]["in"]
        usage[1] += reply["usage"]["out"]
        messages.append(reply)
        calls = reply.get("tool_calls")
        if not calls:
            text: str = reply["content"]
            return text
        for call in calls:
            if call["name"] == gated:
                return None
            out = await tools[call["name"]](**json.loads(call["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": out})
