"""An agent with tools, and what of its run must be the same whoever carries the replies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from overt import Agent, Runtime, tool
from overt.events import TextDelta
from overt.ledger import Ledger
from overt.message import (
    AssistantMessage,
    Message,
    Model,
    ModelRequest,
    ModelResponse,
    StreamingModel,
    ToolSpec,
    UserMessage,
)
from overt.models.assemble import Assembler
from overt.testing import call, say
from overt.testing.mock import Part
from tests.wire.aimock import Fixture, calls, text

__all__ = ("HANDLE", "SCRIPT", "Came", "asked", "bare", "came", "clerk", "fixtures", "run", "said")

HANDLE = "root/clerk.1"


@tool
def price(item: str) -> float:
    """Say what an item costs."""
    return {"tea": 2.5, "çay 😀": 3.25}[item]


@tool
def stock(item: str, shelf: int = 1) -> str:
    """Say how many of an item are on a shelf."""
    return f"{len(item)} on shelf {shelf}"


@tool
async def order(item: str, count: int) -> str:
    """Order some of an item."""
    return f"{count} of {item} ordered"


SCRIPT: Sequence[list[Part | str]] = [
    # Three at once, of which one raises and one is of no tool there is.
    ["Let me look.", call("price", item="tea"), call("price", item="kettle"), call("shelves")],
    [call("stock", item="çay 😀", shelf=2), call("stock", item="tea")],
    [call("order", item="tea", count=3)],
    [say("Three ordered; “çay 😀” is there.")],
]


def clerk(model: Model, **options: Any) -> Agent[None, str]:
    """The agent, with a model."""
    return Agent(
        "clerk",
        does="Orders what is short.",
        soul="Look, then order.",
        tools=[price, stock, order],
        model=model,
        **options,
    )


def fixtures(script: Sequence[list[Part | str]]) -> list[Fixture]:
    """The same replies for aimock."""
    made: list[Fixture] = []
    for reply in script:
        parts = [say(part) if isinstance(part, str) else part for part in reply]
        spoken = "".join(part.text for part in parts)
        asked = [(part.tool, dict(part.arguments or {})) for part in parts if part.tool is not None]
        made.append(calls(*asked, said=spoken) if asked else text(spoken))
    return made


@dataclass(frozen=True)
class Came:
    """What a run came to."""

    status: str
    text: str
    ledger: Ledger
    transcript: list[Message]
    facts: Counter[str]
    """How often each kind of thing happened to each handle; tools in threads end in any order."""


def came(runtime: Runtime[Any], handle: str = HANDLE) -> Came:
    """What must be the same; what only a provider understands is left out of the transcript."""
    result = runtime.result()
    transcript = [
        message.model_copy(update={"opaque": None}) if isinstance(message, AssistantMessage) else message
        for message in runtime.transcript(handle)
    ]
    facts = Counter(f"{event.handle} {event.kind}" for event in runtime.events())
    return Came(result.status, result.text, bare(runtime.ledger()), transcript, facts)


def bare(ledger: Ledger) -> Ledger:
    """A ledger without what the provider calls the models it has no price for; aimock does not say it as Google."""
    below = tuple(bare(child) for child in ledger.children)
    return ledger.model_copy(update={"unpriced": (), "children": below})


async def run(agent: Agent[None, Any], prompt: str = "go", *, streamed: bool, **options: Any) -> Runtime[Any]:
    """Run or stream an agent to its end."""
    if not streamed:
        _, runtime = await agent.run(prompt, **options)
        return runtime
    async with agent.stream(prompt, **options) as stream:
        async for _ in stream:
            pass
    return stream.runtime


async def said(agent: Agent[None, Any], prompt: str = "go") -> tuple[Runtime[Any], str]:
    """Stream an agent to its end; also what was said piece by piece."""
    async with agent.stream(prompt) as stream:
        pieces = [event.text async for event in stream if isinstance(event, TextDelta)]
    return stream.runtime, "".join(pieces)


async def asked(
    model: StreamingModel, *messages: Message, streamed: bool, tools: tuple[ToolSpec, ...] = ()
) -> ModelResponse:
    """Ask a model once."""
    request = ModelRequest(messages=messages or (UserMessage(text="go"),), tools=tools)
    if not streamed:
        return await model.generate(request)
    made = Assembler()
    async for delta in model.stream(request):
        made.add(delta)
    return made.response()
