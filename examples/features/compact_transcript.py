"""A long job on a short transcript: what is old becomes a summary, and the journal still has all of it.

    python examples/compact_transcript.py

OVERT_MODEL=openai:gpt-5-mini takes a real model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import anyio

from overt import Agent, BeforeLLM, Budget, Hooks, LLMOverride, Message, Model, ModelRequest, compactor, tool
from overt.testing import MockModel, Part, call, say

PAGES = 6


@tool
async def read_page(number: int) -> str:
    """Read a page of the report."""
    return f"page {number}: " + "nothing unusual was found in this part of the books. " * 8


def script(request: ModelRequest) -> Part:
    """Read the page after the one that was read last; a function, since a summary takes the place of what it counts."""
    last = request.messages[-1].text
    read = int(last.split()[1].rstrip(":")) if last.startswith("page ") else 0
    return call("read_page", number=read + 1) if read < PAGES else say("Six pages, nothing unusual.")


def summarize(messages: Sequence[Message]) -> str:
    """Say in a line what is left out; a model could be asked here."""
    # An earlier summary is among the messages, so that its pages are found again.
    pages = sorted(
        {int(number) for message in messages for number in re.findall(r"page (\d+)", message.text)}
    )
    return f"Nothing unusual in {', '.join(f'page {number}' for number in pages)}."


shorten = compactor(max_tokens=300, keep_tail=2, summarize=summarize)


async def before_llm(event: BeforeLLM) -> LLMOverride | None:
    """Shorten, and say what was sent."""
    override = await shorten(event)
    sent = event.messages if override is None or override.messages is None else override.messages
    how = "" if override is None else f", compacted from {len(event.messages)}"
    print(f"turn {event.turn}: {len(sent)} messages, {sum(len(m.text) for m in sent)} characters{how}")
    return override


def model() -> Model | str:
    return os.environ.get("OVERT_MODEL") or MockModel(script)


def auditor() -> Agent:
    return Agent(
        "auditor",
        does="Reads reports.",
        soul=f"Call read_page for pages 1 to {PAGES}, one a reply. Then sum up in one sentence.",
        tools=[read_page],
        hooks=Hooks(before_llm=before_llm),
        budget=Budget(max_turns=10),
        model=model(),
    )


async def main() -> None:
    result, runtime = await auditor().run("Read the report.")
    print(f"{result.status}: {result.text}")
    print(f"transcript: {[message.role for message in runtime.transcript(result.handle)]}")
    whole = [event for event in runtime.events() if event.kind == "tool_finished"]
    print(f"journal: {len(whole)} pages, {sum(len(event.output) for event in whole)} characters")


if __name__ == "__main__":
    anyio.run(main)
