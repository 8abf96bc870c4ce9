"""The queue's consumer: starts runs, lets them park, goes on from answers, and recovers what another process left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, assert_never

from pydantic import BaseModel, JsonValue
from tests.typing.host.billing import Bill, bill_of
from typing_extensions import Unpack

from overt import (
    Agent,
    Answer,
    Budget,
    Extend,
    LimitInfo,
    Model,
    Options,
    Prices,
    Request,
    ResumePolicy,
    Runtime,
    Stop,
    Store,
    TaskResult,
    ToolContext,
    tool,
)
from overt.errors import AlreadyAnswered, InvalidAnswer, RequestExpired, RunConflict, RunExists, StoreError


class Payments(Protocol):
    """The payment service: refunds are found again by key."""

    async def refund(self, order: str, cents: int, *, key: str) -> str:
        """Pay back, at most once for a key; return the receipt."""
        ...


@dataclass(frozen=True)
class Shop:
    payments: Payments
    orders: Mapping[str, int]


class Decision(BaseModel):
    order: str
    refunded_cents: int


@tool
def price_of(ctx: ToolContext[Shop], order: str) -> int:
    """Look up what was paid for an order, in cents."""
    return ctx.deps.orders[order]


@tool
async def refund(ctx: ToolContext[Shop], order: str, cents: int) -> str:
    """Pay an order back, when somebody agrees."""
    agreed = await ctx.ask(f"Refund {cents} cents of {order}?", answer_type=bool, kind="approval")
    if not (agreed.ok and agreed.data):
        return f"declined: {agreed.reason or 'no'}"

    async def pay() -> str:
        return await ctx.deps.payments.refund(order, cents, key=ctx.idempotency_key)

    return await ctx.once("pay", pay)


clerk = Agent(
    "clerk",
    does="Decides about refunds.",
    tools=[price_of, refund],
    deps_type=Shop,
    output_type=Decision,
)


@dataclass(frozen=True)
class Start:
    run_id: str
    prompt: str


@dataclass(frozen=True)
class Resume:
    run_id: str
    answer: Answer[JsonValue]


@dataclass(frozen=True)
class Sweep:
    now: datetime


Job = Start | Resume | Sweep


@dataclass(frozen=True)
class Rejected:
    """A job that changed nothing, and whether it may be tried again later."""

    why: str
    again: bool


@dataclass
class Consumer:
    """Works jobs off, in whichever process: all state is in the store."""

    store: Store
    shop: Shop
    model: Model | str
    prices: Prices
    asked: list[Request] = field(default_factory=list[Request])
    unreadable: list[str] = field(default_factory=list[str])

    async def work(self, job: Job) -> list[Bill | Rejected]:
        match job:
            case Start(run_id=run_id, prompt=prompt):
                return [await self._start(run_id, prompt)]
            case Resume(run_id=run_id, answer=answer):
                return [await self._resume(run_id, answer)]
            case Sweep(now=now):
                await self.store.expire_due(now, on_error=self._unreadable)
                stranded = [
                    *await self.store.abandoned(now),
                    *await self.store.runs(status=("ready", "cut_off")),
                ]
                return [await self._recover(info.run_id) for info in stranded if info.agent == clerk.name]
            case _:
                assert_never(job)

    def _options(self, **more: Unpack[Options[Shop]]) -> Options[Shop]:
        return {
            "store": self.store,
            "deps": self.shop,
            "model": self.model,
            "prices": self.prices,
            "on_pending": self._on_pending,
            "on_limit": self._on_limit,
            **more,
        }

    async def _start(self, run_id: str, prompt: str) -> Bill | Rejected:
        try:
            options = self._options(
                run_id=run_id, resume_policy=ResumePolicy.CONTINUE, budget=Budget(max_tokens=1_000)
            )
            result, runtime = await clerk.run(prompt, **options)
        except RunExists:
            return Rejected("begun already", again=False)
        return self._billed(result, runtime)

    async def _resume(self, run_id: str, answer: Answer[JsonValue]) -> Bill | Rejected:
        try:
            runtime = await self._open(run_id)
            return self._billed(await runtime.resume(answer), runtime)
        except AlreadyAnswered as error:
            return Rejected(
                "answered already" if error.same else f"{error.answer.by} said otherwise", again=False
            )
        except RequestExpired as error:
            return Rejected(f"too late since {error.expires_at:%H:%M}", again=False)
        except InvalidAnswer as error:
            return Rejected("; ".join(error.places), again=False)
        except RunConflict as error:
            return Rejected(f"{error.owner} is at it until {error.until}", again=True)

    async def _recover(self, run_id: str) -> Bill | Rejected:
        try:
            runtime = await self._open(run_id)
            return self._billed(await runtime.recover(), runtime)
        except RunConflict:
            return Rejected("another consumer was quicker", again=False)

    async def _open(self, run_id: str) -> Runtime[Decision]:
        return await Runtime.open(clerk, run_id, **self._options())

    def _billed(self, result: TaskResult[Decision], runtime: Runtime[Decision]) -> Bill:
        if result.output is not None:
            assert result.output.refunded_cents <= self.shop.orders[result.output.order]
        return bill_of(result, runtime.ledger())

    async def _on_pending(self, request: Request) -> None:
        self.asked.append(request)

    def _on_limit(self, info: LimitInfo) -> Extend | Stop:
        return Extend(Budget(max_tokens=2_000)) if info.at == "root" and info.cap < 2_000 else Stop()

    def _unreadable(self, run_id: str, error: StoreError) -> None:
        self.unreadable.append(f"{run_id}: {error}")
