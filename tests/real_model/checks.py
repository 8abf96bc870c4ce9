"""What holds of any run, whatever its model says."""

from __future__ import annotations

from typing import Any

from overt import Agent, Limit, Runtime, Status, TaskResult
from overt.demo.provider.spoken import balanced
from overt.journal.store import Store
from overt.message import AssistantMessage

__all__ = ("Broken", "check")


class Broken(AssertionError):
    """Something that holds of any run does not."""


def hold(truth: object, what: str) -> None:
    if not truth:
        raise Broken(what)


async def check(
    agent: Agent[None, Any], runtime: Runtime[Any], result: TaskResult[Any], *, store: Store, **options: Any
) -> None:
    """Look at a run that has come to rest, here and as another process would see it.

    Raises:
        Broken: Something does not hold.
    """
    hold(result == runtime.result(), "the result is not the latest one")
    hold(result.status in set(Status), f"unknown status {result.status!r}")
    hold((result.limit is not None) == (result.status is Status.INCOMPLETE), "limit without incomplete")
    hold(result.limit is None or result.limit in set(Limit), f"unknown limit {result.limit!r}")
    hold((result.status is Status.ERROR) == (result.error is not None), "error without its status")
    hold((result.status is Status.PENDING) == bool(result.pendings), "pending without a request")
    kind: Any = TaskResult[agent.output_type]  # type: ignore[name-defined]  # known while it runs only
    hold(kind.model_validate_json(result.model_dump_json()) == result, "the result is not its own JSON")
    _ledger(runtime, result)
    for view in runtime.list():
        transcript = runtime.transcript(view.id)
        # An adapter leaves out what says nothing.
        spoken = [m for m in transcript if not isinstance(m, AssistantMessage) or m.text or m.tool_calls]
        wrong = balanced(spoken)
        hold(wrong is None, f"the transcript of {view.id}: {wrong}")
    events = runtime.events()
    hold([event.position for event in events] == list(range(1, len(events) + 1)), "events are missing")
    damage = await store.verify(runtime.id)
    hold(not damage, f"the journal: {damage}")
    again = await Runtime.open(agent, runtime.id, store=store, **options)
    hold(again.result() == result, "opened anew it has another result")
    hold(again.ledger() == runtime.ledger(), "opened anew it has another ledger")
    hold(again.events() == events, "opened anew it has other events")


def _ledger(runtime: Runtime[Any], result: TaskResult[Any]) -> None:
    for _, account in runtime.ledger().walk():
        total = account.own
        for child in account.children:
            total = total + child.total
        hold(account.total == total, f"the ledger of {account.handle} is not the sum of what is below it")
        hold(
            account.total.total_tokens == runtime.usage_tokens(account.handle)
            if account.agent
            else account.total.total_tokens >= result.total_tokens,
            f"the ledger of {account.handle} is not what was used",
        )
    hold(result.total_tokens == runtime.usage_tokens(result.handle), "the result's tokens are others")
    calls = result.usage.model_calls
    hold(calls >= result.usage.turns, "more turns than calls")
    hold(result.usage.unreported_calls <= calls, "more calls without usage than calls")
