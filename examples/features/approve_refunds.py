"""Refunds of more than 100 need a person: one is lowered, one refused, and the small one is paid at once.

    python examples/approve_refunds.py

The tool does not know of any of this; the rule is the agent's. OVERT_MODEL=openai:gpt-5-mini takes a real model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import anyio
from pydantic import JsonValue

from overt import Agent, Answer, Model, Request, Runtime, Status, ToolContext, require_approval, tool
from overt.testing import MockModel, call, say

LATE = {"A-1001": 40.0, "A-1002": 250.0, "A-1003": 900.0}


@tool(on_replay="reuse")
async def refund(ctx: ToolContext[list[str]], order: str, amount: float) -> str:
    """Pay money back."""
    ctx.deps.append(f"{order} {amount:.2f}")
    return f"refunded {amount:.2f} for {order}"


def is_large(arguments: Mapping[str, JsonValue]) -> bool:
    return float(str(arguments["amount"])) > 100


def model() -> Model | str:
    payments = [call("refund", order=order, amount=amount) for order, amount in LATE.items()]
    return os.environ.get("OVERT_MODEL") or MockModel(
        [payments, say("Two orders are refunded, A-1003 is not.")]
    )


def clerk() -> Agent[list[str], str]:
    return Agent(
        "clerk",
        does="Refunds orders.",
        soul=f"Call refund for each of these orders, all in one reply: {LATE}. Then say what was done.",
        tools=[refund],
        guardrails=[require_approval("refund", when=is_large)],
        model=model(),
        deps_type=list[str],
    )


def decide(request: Request) -> Answer[object]:
    """Be the person: up to 500 a refund of 200 will do, above it there is none."""
    shown = request.data["call"]
    assert isinstance(shown, dict)
    arguments = shown["arguments"]
    assert isinstance(arguments, dict)
    if float(str(arguments["amount"])) > 500:
        return Answer(id=request.id, ok=False, reason="not without a manager", by="ada")
    # Arguments in an answer are validated, shown to every rule again, and run in place of the model's.
    return Answer(id=request.id, ok=True, data={"arguments": {**arguments, "amount": 200}}, by="ada")


def outcomes(runtime: Runtime[str], handle: str) -> list[str]:
    """What the model was told of each call."""
    told = [message.text for message in runtime.transcript(handle) if message.role == "tool"]
    return [text.replace("\n", " ") for text in told]


async def main() -> None:
    paid: list[str] = []
    result, runtime = await clerk().run("Refund what came late.", deps=paid)
    while result.status is Status.PENDING:
        answers = [decide(request) for request in result.pendings]
        for request, answer in zip(result.pendings, answers, strict=True):
            print(f"{request.prompt} {answer.data if answer.ok else answer.reason}")
        # A list of answers applies whole or not at all.
        result = await runtime.resume(answers)
    print(f"{result.status}: {result.text}")
    print("the model was told:", *outcomes(runtime, result.handle), sep="\n  ")
    print(f"paid: {', '.join(paid)}")


if __name__ == "__main__":
    anyio.run(main)
