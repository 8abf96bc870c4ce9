"""A golden run whose tools look up what became of their calls. As in `runs`, agents stay as they are."""

from __future__ import annotations

from typing import Any

from overt import (
    Agent,
    Answer,
    Doubt,
    Request,
    Resolution,
    Runtime,
    Succeeded,
    ToolContext,
    ToolResult,
    tool,
)
from overt.stores import Store
from overt.testing import MockModel, Script, VirtualClock, call, say
from overt.testing.crashing import Crashed, CrashingStore

SCRIPT: Script = {
    "payer": [call("pay", amount=7), call("pay", amount=9), call("book", seat="é4"), say("paid")],
}


def look_up(doubt: Doubt) -> Resolution | None:
    if doubt.arguments == {"amount": 7}:
        raise ConnectionError("no line")
    if doubt.once is not None:
        return Succeeded(["é4", {"kept": True}])
    return Succeeded(ToolResult("paid 9", metadata={"found": True}))


@tool(on_replay="reuse", resolve=look_up)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(resolve=look_up)
async def book(ctx: ToolContext, seat: str) -> str:
    """Book a seat."""

    async def reserve() -> list[object]:
        return [seat, {"kept": False}]

    return str(await ctx.once("seat", reserve))


PAYER = Agent("payer", does="Pays.", tools=[pay, book])


async def by_hand(request: Request) -> Answer[Any] | None:
    return Answer(id=request.id, ok=True, data={"outcome": "succeeded", "output": "paid 7"}, by="bob")


def options(store: Store) -> dict[str, Any]:
    """What it is run and opened with."""
    return {"store": store, "model": MockModel(SCRIPT), "clock": VirtualClock(), "wait_for": by_hand}


async def resolved(store: Store) -> None:
    """A doubt that a host settled past a lookup that failed, one that a lookup settled, and one being looked up."""
    dying = CrashingStore(store, crash_at=3)
    try:
        await PAYER.run("pay", run_id="resolved", **options(dying))
    except* Crashed:
        pass
    for at in (6, 6, 3):
        try:
            runtime = await Runtime.open(PAYER, "resolved", **options(CrashingStore(store, crash_at=at)))
            await runtime.recover()
        except* Crashed:
            pass
