"""Two commands, two processes: one starts a run that asks a person, the other answers it.

    python examples/approval_cli.py start A-1001
    python examples/approval_cli.py answer refund-A-1001 yes

OVERT_MODEL=openai:gpt-5-mini takes a real model.
"""

from __future__ import annotations

import argparse
import os

import anyio

from overt import Agent, Answer, Model, OvertError, ResumePolicy, Runtime, ToolContext, tool
from overt.stores import SQLiteStore
from overt.testing import MockModel, call, say


@tool
async def refund(ctx: ToolContext, order: str, amount: float) -> str:
    """Pay money back; a person is asked first."""
    answer = await ctx.ask(f"Refund {amount:.2f} for {order}?", kind="approval")
    if not answer.ok:
        return f"not refunded: {answer.reason}"
    # Here the bank would be called, with ctx.idempotency_key.
    return f"refunded {amount:.2f} for {order}, approved by {answer.by}"


def model() -> Model | str:
    script = [call("refund", order="A-1001", amount=40.0), say("I have dealt with order A-1001.")]
    return os.environ.get("OVERT_MODEL") or MockModel(script)


def clerk() -> Agent:
    return Agent(
        "clerk", does="Refunds orders.", soul="Refund the order: 40.00.", tools=[refund], model=model()
    )


async def start(path: str, order: str) -> None:
    store = SQLiteStore(path)
    try:
        # A real model seldom repeats itself word for word, so an approval carries the work on.
        result, runtime = await clerk().run(
            f"Refund order {order}.",
            store=store,
            run_id=f"refund-{order}",
            resume_policy=ResumePolicy.CONTINUE,
        )
        print(f"run {runtime.id}: {result.status}: {result.text}")
    finally:
        await store.close()


async def answer(path: str, run_id: str, ok: bool, by: str) -> None:
    store = SQLiteStore(path)
    try:
        runtime = await Runtime.open(clerk(), run_id, store=store)
        for request in runtime.pendings():
            print(f"{request.kind}: {request.prompt} {'yes' if ok else 'no'}")
            await runtime.resume(Answer(id=request.id, ok=ok, reason=None if ok else "declined", by=by))
        result = runtime.result()
        print(f"run {runtime.id}: {result.status}: {result.text}")
        print(runtime.ledger())
    finally:
        await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="A refund that a person approves from another process.")
    parser.add_argument("--store", default="approvals.db", help="the file the runs are in")
    commands = parser.add_subparsers(dest="command", required=True)
    starting = commands.add_parser("start", help="start a run; it parks at the question")
    starting.add_argument("order")
    answering = commands.add_parser("answer", help="answer what a run asks")
    answering.add_argument("run_id")
    answering.add_argument("word", choices=["yes", "no"])
    answering.add_argument("--by", default="ada")
    given = parser.parse_args()
    try:
        if given.command == "start":
            anyio.run(start, given.store, given.order)
        else:
            anyio.run(answer, given.store, given.run_id, given.word == "yes", given.by)
    except OvertError as error:
        parser.exit(1, f"{type(error).__name__}: {error}\n")


if __name__ == "__main__":
    main()
