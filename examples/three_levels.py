"""Three levels, three processes, one run: asked, denied, out of budget, killed, sent back twice, and done.

    python examples/three_levels.py

A desk hands a complaint to a case worker, who hands the payments to a cashier. One refund is made, one is denied by a
rule, and one asks a person: the run parks, and the process ends. A second process answers with a lower amount, is asked
for more tokens, and is killed with `kill -9` in the middle of a sentence. A third one goes on from the file: the
completion gate sends the letter back twice and then takes it. The models are scripts; no key and no network are needed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
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
    Ledger,
    LimitInfo,
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
from overt.events import (
    AnswerGiven,
    HandleSettled,
    HandleSpawned,
    RequestOpened,
    TextDelta,
    ToolDenied,
    ToolFinished,
    TurnFinished,
    VerdictGiven,
)
from overt.stores import SQLiteStore
from overt.testing import MockModel, call, say

RUN_ID = "complaint-7"
ACCOUNT = "DE-4711"
LETTERS = (
    "Dear Ms Ames, your orders are refunded.",
    "Dear Ms Ames, we are sorry. Your orders are refunded.",
    "Dear Ms Ames, we are sorry. We have paid you 240.00. We could not refund A-1003.",
)

# ---------------------------------------------------------------- the team


class Bank:
    """Keeps a list of payments in a file, which outlives every process."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "bank.jsonl"

    def pay(self, key: str, order: str, amount: float) -> None:
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "order": order, "amount": amount}) + "\n")

    def paid(self) -> list[str]:
        lines = [json.loads(line) for line in self.file.read_text("utf-8").splitlines()]
        return [f"{line['order']} {line['amount']:.2f}" for line in lines]


@tool
async def find_orders(customer: str) -> str:
    """List a customer's late orders."""
    return f"{customer}: A-1001 for 40.00, A-1002 for 250.00, A-1003 for 900.00; account {ACCOUNT}"


@tool(on_replay="reuse")
async def refund(ctx: ToolContext[Bank], order: str, amount: float, account: str) -> str:
    """Pay money back. It cannot be undone."""
    ctx.deps.pay(ctx.idempotency_key, order, amount)
    return f"refunded {amount:.2f}"


def known_account(event: GuardrailEvent) -> Ruling:
    """Deny every payment to an account that is not the customer's."""
    given = event.call.arguments.get("account", ACCOUNT)
    return Allow() if given == ACCOUNT else Deny(f"{given} is not the customer's account")


def complete(attempt: Attempt[str]) -> tuple[bool, str]:
    """Judge the letter: it says sorry, how much was paid, and what was not."""
    for needed in ("sorry", "240.00", "A-1003"):
        if needed not in attempt.text:
            return False, f"The letter does not mention {needed!r}."
    return True, "sorry, the sum and the refund that was denied"


cashier = Agent(
    "cashier",
    does="Pays refunds.",
    tools=[refund],
    guardrails=[
        require_approval("refund", when=lambda given: float(str(given["amount"])) > 100),
        known_account,
    ],
    deps_type=Bank,
)
case_worker = Agent(
    "case_worker", does="Looks into complaints.", tools=[find_orders], team=[cashier], deps_type=Bank
)
desk = Agent(
    "desk",
    does="Answers customers.",
    team=[case_worker],
    completion=Completion(complete, max_attempts=3),
    deps_type=Bank,
)


def model() -> MockModel:
    """Everything the models say; what the gate answers is a further prompt of the desk."""
    payments = [
        call("refund", order="A-1001", amount=40, account=ACCOUNT),
        call("refund", order="A-1002", amount=250, account=ACCOUNT),
        call("refund", order="A-1003", amount=900, account="XX-13"),
    ]
    return MockModel(
        prompts=[
            {
                "desk": [
                    call("task", agent="case_worker", prompt="Ms Ames: three late orders"),
                    say(LETTERS[0]),
                ],
                "case_worker": [
                    call("find_orders", customer="Ames"),
                    call("task", agent="cashier", prompt="Refund A-1001, A-1002 and A-1003"),
                    say("Two refunds are paid, the third was denied."),
                ],
                "cashier": [payments, say("A-1001 and A-1002 are paid; A-1003 was denied.")],
            },
            {"desk": [say(LETTERS[1])]},
            {"desk": [say(LETTERS[2])]},
        ]
    )


def ask_for_more(info: LimitInfo) -> Suspend:
    """Ask a person wherever a cap is spent, instead of stopping."""
    return Suspend()


# ---------------------------------------------------------------- a reader of the stream


class Screen:
    """Prints what happens, each handle at its depth."""

    def __init__(self) -> None:
        self.said = ""
        """The reply that is being printed."""

    def show(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            if not self.said:
                self.line(event.handle, "writes: ", end="")
            self.said += event.text
            print(event.text, end="", flush=True)
            return
        if self.said:
            print(flush=True)
            self.said = ""
        for text in told(event):
            self.line(event.handle, text)

    def line(self, handle: str, text: str, *, end: str = "\n") -> None:
        depth = handle.count("/")
        name = handle.rsplit("/", 1)[-1]
        print(f"{'  ' * depth}{name}: {text}", end=end, flush=True)


def told(event: Event) -> Iterator[str]:
    """Say what an event means to somebody who watches."""
    match event:
        case HandleSpawned():
            yield "begins"
        case TurnFinished(message=message) if message.tool_calls:
            yield f"calls {', '.join(asked.name for asked in message.tool_calls)}"
        case ToolFinished(name=name, output=output, child=None):
            yield f"{name} returned: {output}"
        case ToolDenied(call=denied, reason=reason):
            yield f"DENIED {denied.name} of {denied.arguments['order']}: {reason}"
        case RequestOpened(request=request):
            yield f"ASKS ({request.kind}): {request.prompt}"
        case AnswerGiven(data=data, by=by):
            yield f"ANSWERED by {by}: {data}"
        case VerdictGiven(verdict=verdict):
            yield f"JUDGED, round {verdict.number}: {'passed' if verdict.ok else 'sent back'}. {verdict.reason}"
        case HandleSettled(status=status):
            yield f"is {status}"
        case _:
            pass


# ---------------------------------------------------------------- the three processes


def options(folder: Path, store: SQLiteStore) -> Options[Bank]:
    """What each process gives the run. What is in the journal, such as the caps, is taken from there once it runs."""
    return {
        "store": store,
        "run_id": RUN_ID,
        "deps": Bank(folder),
        "model": model(),
        "budget": Budget(max_tokens=600),
        "on_limit": ask_for_more,
        # An approval carries the work on; nothing that was done or bought is repeated.
        "resume_policy": ResumePolicy.CONTINUE,
    }


async def watch(stream: RunStream[str], *, dies_at: str | None = None) -> TaskResult[str]:
    """Print a stream to its end, or until a model has said `dies_at`: there the process kills itself."""
    screen = Screen()
    async with stream:
        async for event in stream:
            screen.show(event)
            if dies_at is not None and dies_at in screen.said:
                os.kill(os.getpid(), signal.SIGKILL)
    return await stream.result()


async def start(folder: Path, store: SQLiteStore) -> None:
    """Run until a person is asked, three levels down; the question comes up with its path."""
    result = await watch(desk.stream("Ms Ames complains about three late orders.", **options(folder, store)))
    assert result.pending is not None
    print(f"{result.status}: waits for {'/'.join(result.pending.path)}; nothing runs any more")


async def answer(folder: Path, store: SQLiteStore) -> None:
    """Approve a lower amount, grant more tokens, and die in the middle of a sentence."""
    runtime = await Runtime.open(desk, RUN_ID, **options(folder, store))
    lower = {"arguments": {"order": "A-1002", "amount": 200, "account": ACCOUNT}}
    result = await watch(runtime.stream(answer=agreed(runtime.pendings()[0], lower)))
    assert result.pending is not None
    await watch(runtime.stream(answer=agreed(result.pending, 500)), dies_at="sorry. Your")


async def finish(folder: Path, store: SQLiteStore) -> None:
    """Go on with what was cut off, to the end."""
    runtime = await Runtime.open(desk, RUN_ID, **options(folder, store))
    result = await watch(runtime.stream())
    print(f"\n{result.status}: {result.text}\n")
    ledger = runtime.ledger()
    print(ledger)
    print(bill(ledger))
    lost = result.usage.unreported_calls
    print(
        f"{result.usage.model_calls} model calls, of which {lost} was lost with its process and bought again"
    )
    print(f"The bank has paid: {', '.join(Bank(folder).paid())}")


def agreed(request: Request, data: object) -> Answer[object]:
    return Answer(id=request.id, ok=True, data=data, by="ada")


def bill(root: Ledger) -> str:
    """Add up what each handle says it spent itself."""
    own = [ledger.own.total_tokens for _, ledger in root.walk() if ledger.agent]
    agrees = sum(own) == root.total.total_tokens
    return f"{' + '.join(map(str, own))} = {sum(own)} tokens, {'as' if agrees else 'NOT AS'} the run says"


PARTS = {"start": start, "answer": answer, "finish": finish}


async def play(part: str, folder: Path) -> None:
    store = SQLiteStore(folder / "run.db")
    try:
        await PARTS[part](folder, store)
    finally:
        await store.close()


def main() -> None:
    if sys.argv[1:]:
        anyio.run(play, sys.argv[1], Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        for number, part in enumerate(PARTS, start=1):
            with subprocess.Popen([sys.executable, __file__, part, folder]) as child:
                print(f"{'' if number == 1 else chr(10)}Process {number}, pid {child.pid}", flush=True)
                code = child.wait()
            if code == -signal.SIGKILL:
                print(f"\nProcess {number} was killed with signal {-code}", flush=True)
            elif code != 0:
                sys.exit(code)


if __name__ == "__main__":
    main()
