"""Three levels, three processes, one run: asked, denied, out of budget, killed, sent back twice, and done.

    python examples/three_levels.py

A desk hands a complaint to a case worker, who hands the payments to a cashier. One refund is made, one is denied by a
rule, and one asks a person: the run parks, and the process ends. A second process answers with a lower amount, is asked
for more model calls, and is killed with `kill -9` in the middle of a sentence. A third one goes on from the file: the
completion gate sends the letter back twice and then takes it. OVERT_MODEL=openai:gpt-5-mini takes a real model; then it
depends on what that does whether there is anything to ask, to deny, or to send back.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import anyio

from overt import (
    Agent,
    Allow,
    Answer,
    Attempt,
    Budget,
    Completion,
    Deny,
    Event,
    GuardrailEvent,
    LimitInfo,
    Model,
    Options,
    Request,
    ResumePolicy,
    Ruling,
    RunStream,
    Runtime,
    Suspend,
    TaskResult,
    ToolContext,
    require_approval,
    tool,
)
from overt.stores import SQLiteStore
from overt.testing import MockModel, Script, call, say

RUN_ID, ACCOUNT = "complaint-7", "DE-4711"
COMPLAINT = "Customer 7: three late orders, I want my money back. That of A-1003 to account XX-13, please."


class Bank:
    """Keeps a list of payments in a file, which outlives every process."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "bank.jsonl"

    def pay(self, key: str, order: str, amount: float) -> None:
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, order, amount]) + "\n")

    def paid(self) -> dict[str, float]:
        lines = map(json.loads, self.file.read_text("utf-8").splitlines() if self.file.exists() else [])
        return {str(order): float(amount) for _, order, amount in lines}


@tool
async def find_orders(customer: str) -> str:
    """List the late orders of a customer, what each cost, and the account they were paid from."""
    return f"customer {customer}: A-1001 for 40.00, A-1002 for 250.00, A-1003 for 900.00; account {ACCOUNT}"


@tool(on_replay="reuse")
async def refund(ctx: ToolContext[Bank], order: str, amount: float, account: str) -> str:
    """Pay money back to an account. It cannot be undone; a person has to agree to large amounts."""
    ctx.deps.pay(ctx.idempotency_key, order, amount)
    return f"refunded {amount:.2f}"


def known_account(event: GuardrailEvent) -> Ruling:
    given = event.call.arguments.get("account", ACCOUNT)
    return Allow() if given == ACCOUNT else Deny(f"{given} is not the customer's account")


def is_large(arguments: Mapping[str, float]) -> bool:
    return arguments["amount"] > 100


def complete(attempt: Attempt[str]) -> tuple[bool, str]:
    """Judge the letter: it says sorry, how much was paid, and what was not."""
    assert isinstance(attempt.deps, Bank)
    for needed in ("sorry", f"{sum(attempt.deps.paid().values()):.2f}", "A-1003"):
        if needed not in attempt.text:
            return False, f"The letter does not mention {needed!r}. Write it again, all of it."
    return True, "sorry, the sum and the refund that was denied"


cashier = Agent(
    "cashier",
    does="Pays refunds. Give it order, amount and account of each.",
    soul="Call refund once for each refund you are given, all in one reply. Do not repeat one that was denied or "
    "declined. Then report in one sentence which were paid, with their amounts, and which were not.",
    tools=[refund],
    guardrails=[require_approval("refund", when=is_large), known_account],
    deps_type=Bank,
)
case_worker = Agent(
    "case_worker",
    does="Looks into complaints and has refunds paid. Give it the whole complaint.",
    soul="Look the customer's orders up with find_orders. Then have the cashier pay all refunds, with one task, each "
    "to the account the customer wants. Then report in one sentence what was paid and what was not.",
    tools=[find_orders],
    team=[cashier],
    deps_type=Bank,
)
desk = Agent(
    "desk",
    does="Answers customers.",
    soul="Hand the complaint to the case_worker with task, once, word for word. Then write the customer a letter of "
    "two or three sentences, and nothing else.",
    team=[case_worker],
    completion=Completion(complete, max_attempts=4),
    deps_type=Bank,
)


def model() -> Model | str:
    """Everything the models say; what the gate answers is a further prompt of the desk."""
    amounts = {"A-1001": (40, ACCOUNT), "A-1002": (250, ACCOUNT), "A-1003": (900, "XX-13")}
    letters = (
        "Dear customer, your orders are refunded.",
        "Dear customer, we are sorry. Your orders are refunded.",
        "Dear customer, we are sorry. We have paid you 240.00. We could not refund A-1003.",
    )
    payments = [call("refund", order=key, amount=value, account=to) for key, (value, to) in amounts.items()]
    hand_over = call("task", agent="cashier", prompt="Refund A-1001, A-1002 and A-1003")
    first: Mapping[str, Script] = {
        "desk": [call("task", agent="case_worker", prompt=COMPLAINT), say(letters[0])],
        "case_worker": [
            call("find_orders", customer="7"),
            hand_over,
            say("Two are paid, the third was denied."),
        ],
        "cashier": [payments, say("A-1001 and A-1002 are paid; A-1003 was denied.")],
    }
    again: list[Script] = [{"desk": [say(letter)]} for letter in letters[1:]]
    return os.environ.get("OVERT_MODEL") or MockModel(prompts=[first, *again])


def ask_for_more(info: LimitInfo) -> Suspend:
    """Ask a person wherever a cap is spent, instead of stopping."""
    return Suspend()


def decide(request: Request) -> Answer[object]:
    """Be the person: grant ten more calls, and refund 200 where more is asked for."""
    data: object = 10
    if request.kind != "budget":
        data = {"arguments": {"order": "A-1002", "amount": 200, "account": ACCOUNT}}
    return Answer(id=request.id, ok=True, data=data, by="ada")


def told(event: Event) -> str | None:
    """What an event means to somebody who watches."""
    match event.kind:
        case "turn" if event.message.tool_calls:
            return f"calls {', '.join(asked.name for asked in event.message.tool_calls)}"
        case "tool_finished" if event.child is None:
            return f"{event.name} returned: {event.output}"
        case "tool_denied":
            return f"DENIED {event.call.name} of {event.call.arguments['order']}: {event.reason}"
        case "request":
            return f"ASKS ({event.request.kind}): {event.request.prompt}"
        case "answer":
            return f"ANSWERED by {event.by}: {event.data}"
        case "verdict":
            judged = "passed" if event.verdict.ok else "sent back"
            return f"JUDGED, round {event.verdict.number}, {judged}: {event.verdict.reason}"
        case "settled":
            return f"is {event.status}"
        case _:
            return None


async def watch(stream: RunStream[str], *, dies: bool = False) -> TaskResult[str]:
    """Print a stream, each handle at its depth; where it `dies`, in the middle of a letter that was sent back."""
    said, sent_back = "", False
    async with stream:
        async for event in stream:
            head = f"{'  ' * event.handle.count('/')}{event.handle.rsplit('/', 1)[-1]}:"
            if event.kind == "text":
                print(event.text if said else f"{head} writes: {event.text}", end="", flush=True)
                said += event.text
                if dies and sent_back and len(said) > 30:
                    os.kill(os.getpid(), signal.SIGKILL)
                continue
            if said:
                print(flush=True)
            said, sent_back = "", sent_back or event.kind == "verdict"
            if text := told(event):
                print(head, text, flush=True)
    return await stream.result()


def options(folder: Path, store: SQLiteStore) -> Options[Bank]:
    """What each process gives the run. Caps and policy are in the journal once it runs, and taken from there."""
    return {
        "store": store,
        "run_id": RUN_ID,
        "deps": Bank(folder),
        "model": model(),
        "budget": Budget(max_turns=12, max_model_calls=6),
        "on_limit": ask_for_more,
        # An approval carries the work on; nothing that was done or bought is repeated.
        "resume_policy": ResumePolicy.CONTINUE,
    }


async def play(number: int, folder: Path) -> None:
    store = SQLiteStore(folder / "run.db")
    if number == 1:
        result = await watch(desk.stream(COMPLAINT, **options(folder, store)))
        print(f"{result.status}: {result.text}")
        return await store.close()
    runtime = await Runtime.open(desk, RUN_ID, **options(folder, store))
    result = await watch(
        runtime.stream(), dies=number == 2
    )  # what was cut off goes on; what is parked stays so
    while result.pending is not None:
        result = await watch(runtime.stream(answer=decide(result.pending)), dies=number == 2)
    if number == 3:
        print(f"\n{result.status}: {result.text}\n\n{runtime.ledger()}")
        lost = result.usage.unreported_calls
        print(f"{result.usage.model_calls} model calls, of which {lost} was lost with its process")
        print(
            "The bank has paid:",
            ", ".join(f"{order} {amount:.2f}" for order, amount in Bank(folder).paid().items()),
        )
    return await store.close()


def main() -> None:
    if sys.argv[1:]:
        anyio.run(play, int(sys.argv[1]), Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        for number in (1, 2, 3):
            with subprocess.Popen([sys.executable, __file__, str(number), folder]) as child:
                print(f"Process {number}, pid {child.pid}", flush=True)
                code = child.wait()
            if code == -signal.SIGKILL:
                print(f"\nProcess {number} was killed with signal {-code}", flush=True)
            elif code != 0:
                sys.exit(code)


if __name__ == "__main__":
    main()
