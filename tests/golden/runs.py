"""The runs of the golden journals. Their agents stay as they are: a change here is a drift for the stored runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.golden import bought, changed, doubted, policed

from overt import (
    Agent,
    Answer,
    Budget,
    InboxItem,
    ResumePolicy,
    RetryPolicy,
    Runtime,
    TaskResult,
    ToolContext,
    tool,
)
from overt.stores import Store
from overt.testing import MockModel, Script, VirtualClock, call, raw_call, say
from overt.testing.crashing import Crashed, CrashingStore

SCRIPT: Script = {
    "clerk": [
        [say("Let me see. é😀\x00"), call("price", item="tea"), call("reserve", item="tea")],
        [call("task", agent="buyer", prompt="buy tea"), call("price", item="té")],
        [raw_call("price", '{"itm": 1}'), call("nothing")],
        say("bought"),
    ],
    "buyer": [call("pay", amount=7), say("paid", usage=None)],
}


@tool
async def price(item: str) -> str:
    """Look up a price."""
    return f"{item}: 7"


@tool(on_replay="reuse")
async def reserve(item: str) -> dict[str, object]:
    """Put something aside."""
    return {"item": item, "kept": True}


@tool
async def pay(ctx: ToolContext[None], amount: int, currency: str = "EUR") -> str:
    """Pay when somebody agrees."""

    async def quote() -> list[int]:
        return [amount, 2]

    quoted = await ctx.once("quote", quote)
    answer = await ctx.ask(f"Pay {amount} {currency}?", answer_type=bool, kind="approval")
    return f"paid {quoted[0]}" if answer.ok and answer.data else f"not paid: {answer.reason}"


BUYER = Agent("buyer", does="Pays.", tools=[pay])
CLERK = Agent(
    "clerk",
    does="Buys.",
    tools=[price, reserve],
    team=[BUYER],
    soul="Be brief.",
    budget=Budget(max_tokens=100_000),
)


def options(store: Store) -> dict[str, Any]:
    """What each of them is run and opened with."""
    return {"store": store, "model": MockModel(SCRIPT), "clock": VirtualClock()}


NO_RETRY = RetryPolicy(max_retries=0)

DATA = {"boolean": True, "integer": 4}
"""What is said where a question wants an answer of a type."""


def yes(result: TaskResult[Any]) -> Answer[Any]:
    """Agree to what a run waits for."""
    assert result.pending is not None
    wanted = (result.pending.answer_schema or {}).get("type")
    return Answer(id=result.pending.id, ok=True, data=DATA.get(str(wanted)), by="ann", reason="fine")


@dataclass(frozen=True)
class Run:
    """How a golden run begins, and how it ends when it is carried on."""

    begin: Callable[[Store], Awaitable[None]]
    ends: str
    tokens: int
    """What it has cost when it is done."""
    agent: Agent[Any, Any] = CLERK
    status: str = "done"
    options: Callable[[Store], dict[str, Any]] = options


async def _rewind_parked(store: Store) -> None:
    await CLERK.run("tea, please", run_id="rewind_parked", **options(store))


async def _continue_parked(store: Store) -> None:
    await CLERK.run(
        "tea, please", run_id="continue_parked", resume_policy=ResumePolicy.CONTINUE, **options(store)
    )


async def _cut_off(store: Store) -> None:
    try:
        await CLERK.run("tea, please", run_id="cut_off", **options(CrashingStore(store, crash_at=6)))
    except* Crashed:
        pass


async def _cut_off_continue(store: Store) -> None:
    """The process dies inside a child's tool, right after its `once` block."""
    runtime = Runtime(
        CLERK,
        run_id="cut_off_continue",
        resume_policy=ResumePolicy.CONTINUE,
        **options(CrashingStore(store, crash_at=9)),
    )
    try:
        await runtime.run("tea, please")
    except* Crashed:
        pass


async def _failed(store: Store) -> None:
    model = MockModel({"clerk": [call("price", item="tea"), ConnectionError("no line")]})
    await CLERK.run("tea, please", run_id="failed", **options(store) | {"model": model, "retry": NO_RETRY})


async def _incomplete(store: Store) -> None:
    runtime = Runtime(CLERK, run_id="incomplete", budget=Budget(max_tool_calls=2), **options(store))
    await runtime.run("tea, please")


async def _finished(store: Store) -> None:
    runtime = Runtime(CLERK, run_id="finished", **options(store))
    await runtime.resume(yes(await runtime.run("tea, please")))


async def _finished_continue(store: Store) -> None:
    runtime = Runtime(
        CLERK, run_id="finished_continue", resume_policy=ResumePolicy.CONTINUE, **options(store)
    )
    await runtime.resume(yes(await runtime.run("tea, please")))


async def _verbs(store: Store) -> None:
    runtime = Runtime(CLERK, run_id="verbs", **options(store))
    clerk = await runtime.spawn("root", "clerk", budget=Budget(max_turns=9))
    await runtime.post(clerk, InboxItem(sender="external", channel="timer", text="tick"))
    await runtime.wake(clerk, "tea, please")
    await runtime.interrupt(clerk)
    await runtime.wake(clerk, "tea, please")


# Undisturbed: 300 up to the question (two turns of the clerk, one of the buyer), then the buyer's last turn without
# usage and 200 for two more turns of the clerk. A rewind buys 300 again, one from the limit stop 100.
RUNS = {
    "rewind_parked": Run(_rewind_parked, "bought", 800),
    "continue_parked": Run(_continue_parked, "bought", 500),
    "cut_off": Run(_cut_off, "bought", 800),
    "cut_off_continue": Run(_cut_off_continue, "bought", 500),
    "failed": Run(_failed, "bought", 800),
    "incomplete": Run(_incomplete, "bought", 600),
    "finished": Run(_finished, "bought", 800),
    "finished_continue": Run(_finished_continue, "bought", 500),
    "verbs": Run(_verbs, "bought", 1100),
    # Questions about calls in the first, second and third turn: 100, 200 again after a rewind, 400 at the third, of
    # which the scribe's are 100; then 400 again, the scribe's child being found.
    "asked": Run(
        partial(policed.asked, run_id="asked", policy=ResumePolicy.REWIND),
        "wired", 1100, policed.TELLER, options=policed.options,
    ),
    "asked_continue": Run(
        partial(policed.asked, run_id="asked_continue", policy=ResumePolicy.CONTINUE),
        "wired", 500, policed.TELLER, options=policed.options,
    ),
    "replied": Run(policed.replied, "wired", 1100, policed.TELLER, options=policed.options),
    "prompt_denied": Run(
        policed.prompt_denied, "GuardrailDenied: The prompt was denied by polite: say please.", 0, policed.HERALD,
        "error", policed.options,
    ),
    # The answer is given again after a rewind.
    "output_asked": Run(policed.output_asked, "hear ye", 200, policed.HERALD, options=policed.options),
    "output_denied": Run(
        policed.output_denied, "GuardrailDenied: The final answer was denied by never: not 'psst'.", 100, policed.MUTE,
        "error", policed.options,
    ),
    "gated": Run(policed.gated, '{"count":3}', 700, policed.CHIEF, options=policed.options),
    "unsent": Run(policed.unsent, "seven", 300, policed.CLIPPER, options=policed.clipped),
    "overridden": Run(policed.overridden, "seven", 300, policed.CLIPPER, options=policed.clipped),
    "budget_asked": Run(policed.budget_asked, "dug", 200, policed.MINER, options=policed.asking),
    "budget_stopped": Run(policed.budget_stopped, "dug", 200, policed.MINER, options=policed.stopping),
    "checks_cut_off": Run(policed.checks_cut_off, "wired", 1100, policed.TELLER, options=policed.options),
    "judging_cut_off": Run(policed.judging_cut_off, '{"count":3}', 700, policed.CHIEF, options=policed.options),
    "retried": Run(bought.retried, "bought", 3000, bought.SHOPPER, options=bought.options),
    # Opened again, the model fails once more.
    "retry_cut_off": Run(bought.retry_cut_off, "bought", 4000, bought.SHOPPER, options=bought.options),
    # The question of the third turn; then, after a rewind, two turns again and the last of each.
    "upgraded": Run(
        partial(changed.upgraded, run_id="upgraded", policy=ResumePolicy.REWIND),
        "carried", 600, changed.PORTER, options=changed.now,
    ),
    "upgraded_continue": Run(
        partial(changed.upgraded, run_id="upgraded_continue", policy=ResumePolicy.CONTINUE),
        "carried", 400, changed.PORTER, options=changed.now,
    ),
    "accepted": Run(changed.accepted, "carried", 300, changed.PORTER_ALONE, options=changed.now),
    "resolved": Run(doubted.resolved, "paid", 400, doubted.PAYER, options=doubted.options),
    "limit_cut_off": Run(policed.limit_cut_off, "dug", 200, policed.MINER, options=policed.asking),
}  # fmt: skip
