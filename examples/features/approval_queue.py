"""One approval queue for the runs of several services: listed, answered, expired, and removed when they are old.

    python examples/approval_queue.py

Two services start runs in one file and know nothing of each other. A desk that has started none of them works off what
they ask, and a job goes over the file now and then.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import anyio

from overt import Agent, Answer, ResumePolicy, Runtime, ToolContext, tool
from overt.stores import PendingRequest, SQLiteStore, Store
from overt.testing import MockModel, VirtualClock, call, say

PATH = "queue.db"
DAY = timedelta(days=1)


@tool(on_replay="reuse")
async def pay(ctx: ToolContext[datetime], whom: str, amount: int) -> str:
    """Pay somebody, when a person has agreed within two days."""
    until = ctx.deps + 2 * DAY
    answer = await ctx.ask(f"Pay {amount} to {whom}?", kind="approval", expires_at=until)
    return f"paid {whom}, approved by {answer.by}" if answer.ok else f"{whom} is not paid: {answer.reason}"


def payer(name: str, *payments: tuple[str, int]) -> Agent[datetime]:
    script = [*(call("pay", whom=whom, amount=amount) for whom, amount in payments), say("That is all.")]
    return Agent(name, does="Pays.", tools=[pay], model=MockModel(script), deps_type=datetime)


# What a process needs to go on with a run of each kind; here the scripts are told apart by the run.
AGENTS: dict[str, Callable[[str], Agent[datetime]]] = {
    "refunds": lambda run_id: payer("refunds", (f"the customer of {run_id}", 40)),
    "invoices": lambda run_id: payer("invoices", ("the printer", 900), ("the carrier", 70)),
}


async def service(name: str, *run_ids: str, clock: VirtualClock) -> None:
    """Start runs; each parks at its first question, and the process may end."""
    store = SQLiteStore(PATH)
    for run_id in run_ids:
        result, _ = await AGENTS[name](run_id).run(
            "Pay what is due.",
            store=store,
            run_id=run_id,
            deps=clock.now(),
            clock=clock,
            resume_policy=ResumePolicy.CONTINUE,
        )
        print(f"{name} started {run_id}: {result.status}")
    await store.close()


async def opened(store: Store, entry: str, run_id: str, clock: VirtualClock) -> Runtime[str]:
    agent = AGENTS[entry](run_id)
    return await Runtime.open(agent, run_id, store=store, deps=clock.now(), clock=clock)


def decide(pending: PendingRequest) -> Answer[object] | None:
    """Be the person: agree to what is small, and leave the rest for somebody else."""
    shown = pending.request.data["call"]
    assert isinstance(shown, dict)
    arguments = shown["arguments"]
    assert isinstance(arguments, dict)
    small = int(str(arguments["amount"])) < 100
    return Answer(id=pending.request.id, ok=True, by="ada") if small else None


async def desk(store: Store, clock: VirtualClock) -> None:
    """Show the queue, oldest first, and answer what can be answered."""
    for pending in await store.pendings(kind="approval"):
        answer = decide(pending)
        print(f"  {pending.run_id}: {pending.request.prompt} {'yes' if answer else 'left for later'}")
        if answer is not None:
            runtime = await opened(store, pending.entry, pending.run_id, clock)
            result = await runtime.resume(answer)
            print(f"    {pending.run_id}: {result.status}")


async def job(store: Store, clock: VirtualClock) -> None:
    """What a timer does: expire, go on with what may go on, remove what is old."""
    now = clock.now()
    expired = await store.expire_due(now)
    print(f"  expired in {', '.join(expired) or 'none'}")
    # Also those that another job had expired when it died, and those whose driver did.
    for info in (*await store.runs(status="ready"), *await store.abandoned(now)):
        runtime = await opened(store, info.agent, info.run_id, clock)
        result = await runtime.recover()
        told = [message.text for message in runtime.transcript(result.handle, uncommitted=True)]
        print(f"    {info.run_id}: {result.status} ({told[2]})")
    removed = await store.prune(now - 30 * DAY, now=now)
    print(f"  removed {', '.join(sorted(removed)) or 'none'}")


async def main() -> None:
    clock = VirtualClock()
    await service("refunds", "refund-1", "refund-2", clock=clock)
    await service("invoices", "march", clock=clock)
    store = SQLiteStore(PATH)
    for days in (1, 2, 29):
        await clock.advance(days * DAY.total_seconds())
        print(f"{clock.now():%B %d}")
        await job(store, clock)
        await desk(store, clock)
    print("left:", ", ".join(f"{info.run_id} {info.status}" for info in await store.runs()))
    assert await store.verify() == ()
    await store.close()


if __name__ == "__main__":
    anyio.run(main)
