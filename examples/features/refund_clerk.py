"""A refund that happens once: over a replay, over a question, and over a process that stops in the middle of it.

    python examples/refund_clerk.py

The run is cut off just after the bank has taken the order and before it has said so. Nobody can know from the journal
whether the money is gone, so `recover` asks; the answer is looked up at the bank under the idempotency key.
OVERT_MODEL=openai:gpt-5-mini takes a real model.
"""

from __future__ import annotations

import os

import anyio

from overt import Agent, Answer, Model, Request, Runtime, ToolContext, tool
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say


class Bank:
    """Pays once for a key, and hangs on the first call."""

    def __init__(self) -> None:
        self.paid: dict[str, float] = {}
        self.letters = 0
        self.has_paid = anyio.Event()

    async def pay(self, key: str, amount: float) -> None:
        self.paid.setdefault(key, amount)
        if not self.has_paid.is_set():
            self.has_paid.set()
            await anyio.sleep_forever()  # the connection is lost here


@tool(on_replay="reuse")
async def refund(ctx: ToolContext[Bank], order: str, amount: float) -> str:
    """Pay money back. It cannot be undone."""
    await ctx.deps.pay(ctx.idempotency_key, amount)
    return f"refunded {amount:.2f} for {order}"


@tool
async def write_letter(ctx: ToolContext[Bank], order: str) -> str:
    """Write to the customer; a person reads the letter first."""

    async def draft() -> str:
        ctx.deps.letters += 1
        return f"Dear customer, order {order} is refunded."

    letter = await ctx.once("draft", draft)  # before the question, and still once
    answer = await ctx.ask(f"Send: {letter}", kind="approval")
    return "sent" if answer.ok else "not sent"


def model() -> Model | str:
    script = [
        call("refund", order="A-1001", amount=40.0),
        call("write_letter", order="A-1001"),
        say("Refunded, and the customer knows."),
    ]
    return os.environ.get("OVERT_MODEL") or MockModel(script)


def clerk() -> Agent[Bank, str]:
    return Agent(
        "clerk",
        does="Refunds orders.",
        soul="Call refund with amount 40, then write_letter, one call a reply, each once. Then say what was done.",
        tools=[refund, write_letter],
        model=model(),
        deps_type=Bank,
    )


def decide(request: Request, bank: Bank) -> Answer[object]:
    """Clear a doubt at the bank; approve everything else."""
    if request.kind != "in_doubt":
        return Answer(id=request.id, ok=True, by="ada")
    if request.data["idempotency_key"] in bank.paid:
        data = {"outcome": "succeeded", "output": "refunded 40.00 for A-1001"}
    else:
        data = {"outcome": "retry"}
    return Answer(id=request.id, ok=True, data=data, by="the bank's statement")


async def main() -> None:
    bank, store = Bank(), MemoryStore()
    first = Runtime(clerk(), store=store, run_id="refund-1", deps=bank)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run, "Refund order A-1001.")
        await bank.has_paid.wait()
        tasks.cancel_scope.cancel()
    print(f"cut off: {first.result().status}, paid {len(bank.paid)} time")

    runtime = await Runtime.open(clerk(), "refund-1", store=store, deps=bank)
    result = await runtime.recover()
    while result.pending is not None:
        print(f"{result.pending.kind}: {result.pending.prompt}")
        result = await runtime.resume(decide(result.pending, bank))
    print(f"{result.status}: {result.text}")
    if result.replay is not None:
        print(f"not repeated by the answer: {[reused.tool for reused in result.replay.calls_reused]}")
    print(f"paid {len(bank.paid)} time, {bank.letters} draft")


if __name__ == "__main__":
    anyio.run(main)
