"""Who works in the demo: a coordinator, a researcher and a payments clerk, and what their tools do."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, cast

from overt.agent import Agent
from overt.context import ToolContext
from overt.message import Model, ModelRequest, ToolMessage
from overt.testing import MockModel, Reply, call, say
from overt.tool import tool

__all__ = ("COORDINATOR", "JOB", "LEDGER", "MODEL", "RUN_ID", "entries", "model", "script")

RUN_ID = "order-A-1001"
MODEL = "scripted"
"""What the model that plays everybody is called."""
JOB = "Order A-1001 came five days late. Put it right."
LEDGER = "ledger.jsonl"
"""The file the tools write to: one line for each time something really happened."""

_RESEARCH = "How late was order A-1001, and why?"
_SETTLE = "Settle order A-1001: refund it and offer a voucher of 25."


def entries(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the ledger file."""
    path = folder / LEDGER
    if not path.exists():
        return []
    return [cast("dict[str, Any]", json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def _happened(ctx: ToolContext[Path], what: str, **details: object) -> None:
    line = {"what": what, **details, "attempt": ctx.attempt, "key": ctx.idempotency_key}
    with (ctx.deps / LEDGER).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())
    shown = ", ".join(f"{name}={value}" for name, value in details.items())
    with contextlib.suppress(BrokenPipeError):  # that nobody reads on is no failure of the tool
        print(f"    {ctx.agent:<11}  {what}({shown}){'' if ctx.attempt == 1 else f'  attempt {ctx.attempt}'}")


@tool
def track(ctx: ToolContext[Path], order: str) -> str:
    """Say where an order has been."""
    _happened(ctx, "track", order=order)
    return f"{order}: left the depot five days late, a lorry broke down"


@tool
def look_up(ctx: ToolContext[Path], order: str) -> str:
    """Say what was ordered and paid."""
    _happened(ctx, "look_up", order=order)
    return f"{order}: one kettle, 40.00 paid"


@tool(on_replay="reuse")
def refund(ctx: ToolContext[Path], order: str, amount: float) -> str:
    """Pay money back. It cannot be undone."""
    _happened(ctx, "refund", order=order, amount=amount)
    return f"refunded {amount:.2f} for {order}"


@tool
async def send_voucher(ctx: ToolContext[Path], order: str, amount: float) -> str:
    """Send the customer a voucher; a person is asked first."""
    answer = await ctx.ask(f"Send a voucher of {amount:.2f} for order {order}?", kind="approval")
    if not answer.ok:
        return f"no voucher: {answer.reason or 'declined'}"
    _happened(ctx, "send_voucher", order=order, amount=amount)
    return f"voucher of {amount:.2f} sent"


_RESEARCHER = Agent(
    "researcher",
    does="Finds out what happened to an order.",
    soul="Call track once, then answer in one short sentence.",
    tools=[track],
    deps_type=Path,
)
_PAYMENTS = Agent(
    "payments",
    does="Refunds orders and sends vouchers.",
    soul="Call look_up, then refund with the whole amount paid, then send_voucher: one call a reply, each once. "
    "Then say in one short sentence what was done. A declined voucher is fine: do not ask again.",
    tools=[look_up, refund, send_voucher],
    deps_type=Path,
)
COORDINATOR = Agent(
    "coordinator",
    does="Settles complaints.",
    soul="In your first reply call task twice, with exactly these words: "
    f"agent researcher, prompt {_RESEARCH!r}; agent payments, prompt {_SETTLE!r}. "
    "When both have answered, say in two short sentences what happened.",
    team=[_RESEARCHER, _PAYMENTS],
    deps_type=Path,
)


def model(name: str) -> Model | str:
    """Return the model called `name`, or the script if there is no name."""
    return name or script()


def script() -> Model:
    """Return the model that plays everybody's part. It counts nothing, so any process may go on with it."""
    return MockModel(_script, name=MODEL)


def _script(request: ModelRequest) -> Reply:
    """Answer whoever asks. It is known by its tools: over the wire nobody says its name."""
    offered = [tool.name for tool in request.tools]
    if "task" in offered:
        return _coordinator(request)
    return _researcher(request) if "track" in offered else _payments(request)


def _researcher(request: ModelRequest) -> Reply:
    if not _results(request):
        return call("track", order="A-1001")
    return say("It left five days late: a lorry broke down.")


def _payments(request: ModelRequest) -> Reply:
    """Take the steps in order, and end with what the last one said."""
    results = _results(request)
    steps = (
        call("look_up", order="A-1001"),
        call("refund", order="A-1001", amount=40.0),
        call("send_voucher", order="A-1001", amount=25.0),
    )
    if len(results) < len(steps):
        return steps[len(results)]
    return say(f"40.00 refunded; {results[-1]}.")


def _coordinator(request: ModelRequest) -> Reply:
    results = _results(request)
    if not results:
        return [
            call("task", agent="researcher", prompt=_RESEARCH),
            call("task", agent="payments", prompt=_SETTLE),
        ]
    return say(" ".join(results))


def _results(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages if isinstance(message, ToolMessage)]
