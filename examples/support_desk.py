"""A support desk: small refunds are paid at once, a person decides on large ones, and no refund is paid twice.

    python examples/support_desk.py

Four tickets over a long weekend, each day a process of its own. One refund is approved lower, and the process is killed
when the money has gone; one is declined; one nobody answers in time. OVERT_MODEL=openai:gpt-5-mini takes a real model.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
from pydantic import TypeAdapter

from overt import (
    Agent,
    Allow,
    Answer,
    Ask,
    Budget,
    Deny,
    Doubt,
    GuardrailEvent,
    ModelRequest,
    Resolution,
    ResumePolicy,
    Retry,
    Ruling,
    Runtime,
    Succeeded,
    TaskResult,
    ToolContext,
    tool,
)
from overt.stores import SQLiteStore
from overt.testing import MockModel, Part, call, say

ORDERS = {"A-1001": 40.0, "A-1002": 250.0, "A-1003": 900.0, "A-1004": 150.0}
LIMIT = 100.0  # more than this needs a person, who has the weekend to answer
TICKETS = {
    "ticket-1": "Order A-1001 came late: 40 back, please.",
    "ticket-2": "Order A-1002 came broken: 250 back, please.",
    "ticket-3": "Order A-1003 came broken: 900 back, please.",
    "ticket-4": "Order A-1004 has not come at all: 150 back, please.",
}
PAID = TypeAdapter(dict[str, str])


class Payments:
    """The payment service: it pays once for a key, and can be asked what became of one."""

    def __init__(self, folder: Path, *, dies: bool = False) -> None:
        self.folder, self.file, self.dies = folder, folder / "payments.json", dies

    def paid(self) -> dict[str, str]:
        return PAID.validate_json(self.file.read_bytes()) if self.file.exists() else {}

    def refund(self, key: str, order: str, amount: float) -> str:
        paid = self.paid()
        paid.setdefault(key, f"{order} {amount:.2f}")
        self.file.write_bytes(PAID.dump_json(paid))
        if self.dies:  # to try out what a crash does: the money is gone, and nobody has been told
            print("  the process is killed", flush=True)
            os._exit(137)
        return paid[key]


@tool
async def find_order(order: str) -> str:
    """Look up what was paid for an order, such as A-1001."""
    return f"{order}: {ORDERS[order]:.2f} euros paid" if order in ORDERS else f"there is no order {order!r}"


async def is_paid(doubt: Doubt[Payments]) -> Resolution:
    """Ask the payment service what became of a refund that was cut off."""
    receipt = doubt.deps.paid().get(doubt.idempotency_key)
    return Succeeded(f"refunded: {receipt}") if receipt else Retry()


@tool(on_replay="reuse", resolve=is_paid)
async def refund(ctx: ToolContext[Payments], order: str, amount: float) -> str:
    """Pay money back for an order, in euros. It cannot be undone; a person has to agree to large refunds.

    Args:
        order: The order, such as A-1001.
        amount: What the customer gets back; at most what was paid.
    """
    return f"refunded: {ctx.deps.refund(ctx.idempotency_key, order, amount)}"


def refunds(event: GuardrailEvent) -> Ruling:
    """What the shop allows. `require_approval("refund", when=…)` does the asking, too, but without an end to it."""
    if event.call.name != "refund":
        return Allow()
    order, amount = str(event.call.arguments["order"]), float(str(event.call.arguments["amount"]))
    if not 0 < amount <= ORDERS.get(order, 0):
        return Deny(f"for {order} at most {ORDERS.get(order, 0):.2f} can be refunded")
    if amount <= LIMIT:
        return Allow()
    return Ask(f"Refund {amount:.2f} for {order}?", expires_at=datetime.now(UTC) + timedelta(days=3))


def script(request: ModelRequest) -> Part:
    order = next(re.findall(r"A-\d+", one.text)[0] for one in request.messages if one.role == "user")
    told = [message.text for message in request.messages if message.role == "tool"]
    if len(told) < 2:
        return call("refund", order=order, amount=ORDERS[order]) if told else call("find_order", order=order)
    return say("It is on its way." if "refunded" in told[1] else f"We are sorry, no refund ({told[1]}).")


support = Agent(
    "support",
    does="Answers customers and refunds orders.",
    soul="You answer one customer's message. Look the order up with find_order. If it came broken, late or not at all, "
    "call refund once, with what the customer asks for or else what was paid. If the refund is declined or denied, do "
    "not try again. Then write to the customer in one or two sentences: which amount was refunded, or that none was.",
    tools=[find_order, refund],
    guardrails=[refunds],
    budget=Budget(max_turns=8, max_tokens=50_000),
    model=os.environ.get("OVERT_MODEL") or MockModel(script),
    deps_type=Payments,
)


async def opened(store: SQLiteStore, payments: Payments, ticket: str) -> Runtime[str]:
    return await Runtime.open(support, ticket, store=store, deps=payments)


def show(result: TaskResult[str]) -> None:
    print(f"  {result.run_id}: {result.status}: {result.text}")


async def friday(store: SQLiteStore, payments: Payments) -> None:
    """Four customers write, and those who get money back at once get it."""
    policy = ResumePolicy.CONTINUE  # under REWIND the model is asked again, and may word the call otherwise
    for ticket, text in TICKETS.items():
        runtime = Runtime(support, store=store, run_id=ticket, deps=payments, resume_policy=policy)
        show(await runtime.run(text))
    for pending in await store.pendings():
        asked = pending.request
        print(f"  {asked.data['call']}: a yes repeats {asked.turns_again} turns, {len(asked.replays)} calls")


async def saturday(store: SQLiteStore, payments: Payments) -> None:
    """Ada agrees to less than was asked for; the process is killed when that is paid."""
    runtime = await opened(store, Payments(payments.folder, dies=True), "ticket-2")
    # Given arguments are validated, shown to every rule again, and run in place of those that were asked for.
    lower = {"arguments": {"order": "A-1002", "amount": 200}}
    for request in runtime.pendings():
        show(await runtime.resume(Answer(id=request.id, ok=True, data=lower, by="ada")))


async def sunday(store: SQLiteStore, payments: Payments) -> None:
    """What was cut off goes on, without a person: the service knows of the payment. Ben declines another."""
    for info in await store.abandoned(datetime.now(UTC)):
        show(await (await opened(store, payments, info.run_id)).recover())
    runtime = await opened(store, payments, "ticket-3")
    for request in runtime.pendings():
        show(await runtime.resume(Answer(id=request.id, ok=False, reason="ask a manager", by="ben")))


async def tuesday(store: SQLiteStore, payments: Payments) -> None:
    """What nobody answered has expired; a timer goes on with it. Then there is the bill."""
    await store.expire_due(datetime.now(UTC) + timedelta(days=4))
    for info in await store.runs(status="ready"):
        show(await (await opened(store, payments, info.run_id)).recover())
    for info in await store.runs():
        result = (await opened(store, payments, info.run_id)).result()
        print(f"  {info.run_id}: {result.turns} turns, {result.total_tokens} tokens")
    print(f"  paid: {', '.join(payments.paid().values())}")


DAYS = {"Friday": friday, "Saturday": saturday, "Sunday": sunday, "Tuesday": tuesday}


async def play(day: str, folder: Path) -> None:
    store = SQLiteStore(folder / "tickets.db")
    try:
        await DAYS[day](store, Payments(folder))
    finally:
        await store.close()


def main() -> None:
    if sys.argv[1:]:
        anyio.run(play, sys.argv[1], Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        for day in DAYS:
            print(day, flush=True)
            code = subprocess.run([sys.executable, __file__, day, folder], check=False).returncode
            if code not in (0, 137):
                sys.exit(code)


if __name__ == "__main__":
    main()
