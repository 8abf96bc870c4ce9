"""A second prompt on the same handle: the numbers are the handle's life, they never go down."""

from __future__ import annotations

import anyio

from overt import Agent, Runtime
from overt.testing import MockModel, say

assistant = Agent(
    "assistant",
    does="answers",
    model=MockModel(
        prompts=[[say("the first answer")], [say("the second answer")]], name="m-parent", tokens=100
    ),
)


async def main() -> None:
    async with Runtime(assistant) as runtime:
        handle = await runtime.spawn(runtime.root, "assistant")
        first = await runtime.run_turn(handle, "one")
        print("first ", first.status, first.text, "total_tokens", first.total_tokens, "turns", first.turns)
        second = await runtime.run_turn(handle, "two")
        print(
            "second", second.status, second.text, "total_tokens", second.total_tokens, "turns", second.turns
        )
        await runtime.close()


if __name__ == "__main__":
    anyio.run(main)
