"""An answer that is an object: what does not fit is told to the model, and what comes out is typed.

    python examples/typed_output.py

OVERT_MODEL=openai:gpt-5-mini takes a real model.
"""

from __future__ import annotations

import os
from decimal import Decimal

import anyio
from pydantic import BaseModel, Field

from overt import Agent, Model, Status
from overt.testing import MockModel, call

LETTER = "Two kettles at 19.90 each, please pay within 14 days. Ames & Sons."


class Item(BaseModel):
    name: str
    count: int = Field(ge=1)
    price: Decimal


class Invoice(BaseModel):
    """What an invoice says."""

    sender: str
    items: list[Item]
    days: int

    @property
    def total(self) -> Decimal:
        return sum((item.count * item.price for item in self.items), Decimal(0))


def model() -> Model | str:
    wrong = {"name": "kettle", "count": 0, "price": "19.90"}
    script = [
        call("final_result", sender="Ames & Sons", items=[wrong]),
        call("final_result", sender="Ames & Sons", items=[{**wrong, "count": 2}], days="14"),
    ]
    return os.environ.get("OVERT_MODEL") or MockModel(script)


def reader() -> Agent[None, Invoice]:
    return Agent(
        "reader",
        does="Reads invoices.",
        soul="Read the invoice.",
        output_type=Invoice,
        model=model(),
    )


async def main() -> None:
    result, runtime = await reader().run(LETTER)
    for message in runtime.transcript(result.handle):
        if message.role == "tool" and message.is_error:
            print(message.text)
    if result.status is not Status.DONE:
        print(f"{result.status}: {result.text}")
        return
    invoice = result.unwrap()  # an Invoice, for the type checker too
    print(f"{invoice.sender}: {invoice.total} within {invoice.days} days ({result.turns} turns)")


if __name__ == "__main__":
    anyio.run(main)
