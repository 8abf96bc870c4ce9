"""Billing: what a run cost, by handle, and who pays for what it came to. Money is Decimal; unknown is not zero."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import assert_never

from overt import ErrorInfo, Ledger, Limit, State, Status, TaskResult, Unpriced


@dataclass(frozen=True, kw_only=True)
class Line:
    """One handle of the run: what it spent itself."""

    handle: str
    agent: str
    turns: int
    tokens: int
    open: bool


@dataclass(frozen=True, kw_only=True)
class Bill:
    """A run's bill. `amount` is `None` while something in it has no price; `at_least` is what has one."""

    run_id: str
    lines: tuple[Line, ...]
    tokens: int
    amount: Decimal | None
    at_least: Decimal
    unpriced: tuple[str, ...]
    payer: str
    note: str


def bill_of(result: TaskResult[object], ledger: Ledger) -> Bill:
    """Make the bill of a result of any output type."""
    lines = tuple(
        Line(
            handle=account.handle,
            agent=account.agent,
            turns=account.own.turns,
            tokens=account.own.total_tokens,
            open=still_open(account.state),
        )
        for depth, account in ledger.walk()
        if depth > 0  # the root has no agent and spends nothing
    )
    assert sum(line.tokens for line in lines) == ledger.total.total_tokens
    payer, note = settlement(result)
    return Bill(
        run_id=result.run_id,
        lines=lines,
        tokens=ledger.total.total_tokens,
        amount=ledger.cost,
        at_least=ledger.priced,
        unpriced=tuple(f"{one.calls} calls of {one.model}: {why(one)}" for one in ledger.unpriced),
        payer=payer,
        note=note,
    )


def settlement(result: TaskResult[object]) -> tuple[str, str]:
    status = result.status
    match status:
        case Status.DONE:
            return "customer", "delivered"
        case Status.PENDING:
            return "nobody yet", f"{len(result.pendings)} open questions"
        case Status.INCOMPLETE:
            assert result.limit is not None
            return "customer", f"{limit_in_words(result.limit)} of {result.limit_at}"
        case Status.INTERRUPTED | Status.CLOSED:
            return "customer", "called off"
        case Status.TIMEOUT:
            return "nobody yet", "still running"
        case Status.ERROR:
            assert result.error is not None
            return at_fault(result.error), result.error.message
        case _:
            assert_never(status)


def limit_in_words(limit: Limit) -> str:
    match limit:
        case Limit.MAX_TURNS | Limit.MAX_MODEL_CALLS:
            return "cap on model calls"
        case Limit.MAX_TOKENS:
            return "cap on tokens"
        case Limit.MAX_TOOL_CALLS:
            return "cap on actions"
        case Limit.MAX_WALL:
            return "cap on time"
        case Limit.MAX_COST:
            return "cap on money"
        case Limit.COMPLETION:
            return "quality gate"
        case _:
            assert_never(limit)


def at_fault(error: ErrorInfo) -> str:
    match error.source:
        case "model":
            return "provider"
        case "tool" | "wait_for" | "guardrail" | "completion" | "hook":
            return "us"
        case "store" | "runtime":
            return "us, and somebody is paged"
        case _:
            assert_never(error.source)


def why(unpriced: Unpriced) -> str:
    match unpriced.reason:
        case "no_price":
            return "the price list does not have it"
        case "no_usage":
            return "the provider told no usage"
        case _:
            assert_never(unpriced.reason)


def still_open(state: State) -> bool:
    match state:
        case State.IDLE | State.RUNNING | State.SUSPENDED:
            return True
        case State.CLOSED:
            return False
        case _:
            assert_never(state)
