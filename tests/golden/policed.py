"""Golden runs of guardrails, hooks, gates, limits that ask and typed output. As in `runs`, agents stay as they are."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from typing_extensions import TypedDict

from overt import (
    Agent,
    Allow,
    Answer,
    Ask,
    Attempt,
    BeforeLLM,
    BeforeTool,
    Budget,
    Completion,
    Deny,
    Extend,
    GuardrailEvent,
    Hooks,
    LimitDecision,
    LimitInfo,
    LLMOverride,
    OutputEvent,
    PromptEvent,
    ResumePolicy,
    Ruling,
    Runtime,
    Stop,
    Suspend,
    TaskResult,
    ToolOverride,
    ToolResult,
    UserMessage,
    tool,
)
from overt.stores import Store
from overt.testing import MockModel, Reply, Script, VirtualClock, call, say
from overt.testing.crashing import Crashed, CrashingStore

CHIEF_SAYS: list[Reply] = [
    [call("scout", prompt="count them"), call("rate", of="tea")],
    say("about three"),
    call("final_result", count="many"),
    call("final_result", count=1),
    call("final_result", count=2),
    call("final_result", count=3),
]
SCRIPT: Script = {
    "teller": [
        [call("wire", amount=7, to="ann"), call("wire", amount=700, to="bob"), call("rate", of="gold")],
        [call("wire", amount=900, to="eve"), call("wire", amount=1, to="mallory"), call("rate", of="té")],
        [call("wire", amount=800, to="kim"), call("task", agent="scribe", prompt="note it")],
        say("wired"),
    ],
    "scribe": [say("noted")],
    "herald": [say("hear ye")],
    "chief": lambda request: CHIEF_SAYS[sum(m.role == "assistant" for m in request.messages)],
    "scout": [say("three")],
    "clipper": [call("rate", of="tea"), call("rate", of="té"), say("seven")],
    "miner": [[call("rate", of="a"), call("rate", of="b"), call("rate", of="c")], say("dug")],
}


@tool
async def wire(amount: int, to: str, currency: str = "EUR") -> str:
    """Send money."""
    return f"sent {amount} {currency} to {to}"


@tool(on_replay="reuse")
async def rate(of: str) -> str:
    """Look up a rate."""
    return f"{of}: 7"


def options(store: Store) -> dict[str, Any]:
    """What each of them is run and opened with."""
    return {"store": store, "model": MockModel(SCRIPT), "clock": VirtualClock()}


async def until_it_dies(agent: Agent[Any, Any], prompt: str, run_id: str, given: dict[str, Any]) -> None:
    try:
        await agent.run(prompt, run_id=run_id, **given)
    except* Crashed:
        pass


def told(result: TaskResult[Any], data: object = None, *, ok: bool = True) -> list[Answer[Any]]:
    """Give the same answer to everything a run waits for."""
    return [
        Answer(id=r.id, ok=ok, data=data, by="ann", reason=None if ok else "too much")
        for r in result.pendings
    ]


# ------------------------------------------------------------------ guardrails on calls


async def large_ones(event: GuardrailEvent) -> Ruling:
    amount = event.call.arguments.get("amount", 0)
    assert isinstance(amount, int)
    return Ask(f"Wire {amount}?", kind="payment") if amount >= 500 else Allow()


def no_mallory(event: GuardrailEvent) -> Ruling:
    return Deny("we know mallory") if event.call.arguments.get("to") == "mallory" else Allow()


def gold_standard(event: BeforeTool) -> ToolOverride | None:
    if event.call.arguments == {"of": "gold"}:
        return ToolOverride(result=ToolResult("gold: 1", metadata={"fixed": True}))
    if event.call.arguments == {"of": "té"}:
        return ToolOverride(arguments={"of": "tea"})
    return None


SCRIBE = Agent("scribe", does="Notes.")
TELLER = Agent(
    "teller",
    does="Sends money.",
    tools=[wire, rate],
    team=[SCRIBE],
    guardrails=[large_ones, no_mallory],
    hooks=Hooks(before_tool=gold_standard),
)


async def checks_cut_off(store: Store) -> None:
    """The process dies while guardrails are asked."""
    await until_it_dies(TELLER, "wire it", "checks_cut_off", options(CrashingStore(store, crash_at=3)))


async def asked(store: Store, run_id: str, policy: ResumePolicy) -> None:
    """One question answered with other arguments, one refused, and left at the third."""
    runtime = Runtime(TELLER, run_id=run_id, resume_policy=policy, **options(store))
    result = await runtime.run("wire it")
    result = await runtime.resume(told(result, {"arguments": {"amount": 70, "to": "bob"}}))
    await runtime.resume(told(result, ok=False))


async def replied(store: Store) -> None:
    """One question answered with a result in the tool's place, beside one that a hook gives; left at the next."""
    runtime = Runtime(TELLER, run_id="replied", **options(store))
    await runtime.resume(told(await runtime.run("wire it"), {"output": {"wired": "by hand"}}))


# ------------------------------------------------------------------ guardrails on prompts and final answers


def polite(event: PromptEvent) -> Ruling:
    return Allow() if "please" in event.prompt else Deny("say please")


def calm(event: OutputEvent) -> Ruling:
    return Ask(f"Publish {event.text!r}?") if event.agent == "herald" else Allow()


def never(event: OutputEvent) -> Ruling:
    return Deny(f"not {event.output!r}")


HERALD = Agent("herald", does="Proclaims.", input_guardrails=[polite], output_guardrails=[calm])
MUTE = Agent("mute", does="Says nothing.", model=MockModel([say("psst")]), output_guardrails=[never])


async def prompt_denied(store: Store) -> None:
    await HERALD.run("speak", run_id="prompt_denied", **options(store))


async def output_asked(store: Store) -> None:
    await HERALD.run("speak, please", run_id="output_asked", **options(store))


async def output_denied(store: Store) -> None:
    await MUTE.run("speak", run_id="output_denied", **options(store))


# ------------------------------------------------------------------ the gate, and typed output


def enough(attempt: Attempt[Report]) -> tuple[bool, str]:
    assert attempt.output is not None
    count = attempt.output["count"]
    return count >= 3, f"{count} of 3, after {len(attempt.tool_calls)} calls"


class Report(TypedDict):
    count: int


SCOUT = Agent("scout", does="Counts.")
CHIEF = Agent(
    "chief",
    does="Reports.",
    tools=[SCOUT.as_tool(), rate],
    completion=Completion(enough, max_attempts=3),
    output_guardrails=[calm],
    output_type=Report,
    budget=Budget(max_turns=9),
)


async def gated(store: Store) -> None:
    """Text where a typed answer is due, one that does not fit, two the gate sends back, one that passes."""
    await CHIEF.run("how many?", run_id="gated", **options(store))


async def judging_cut_off(store: Store) -> None:
    """The process dies while the second round is judged."""
    await until_it_dies(CHIEF, "how many?", "judging_cut_off", options(CrashingStore(store, crash_at=9)))


# ------------------------------------------------------------------ hooks around the model


def clip(event: BeforeLLM) -> LLMOverride | None:
    if event.turn == 2:
        return LLMOverride(
            messages=[UserMessage(text="in short: é"), *event.messages[1:]], tools=event.tools[:1]
        )
    return None


def unsure(event: BeforeLLM) -> None:
    raise RuntimeError("not now")


CLIPPER = Agent("clipper", does="Shortens.", tools=[rate])


def clipped(store: Store) -> dict[str, Any]:
    return options(store) | {"hooks": Hooks(before_llm=clip)}


async def unsent(store: Store) -> None:
    """A hook that fails before anything is sent."""
    await CLIPPER.run("go", run_id="unsent", **options(store) | {"hooks": Hooks(before_llm=unsure)})


async def overridden(store: Store) -> None:
    await CLIPPER.run("go", run_id="overridden", **clipped(store))


# ------------------------------------------------------------------ limits that ask


def more(info: LimitInfo) -> LimitDecision:
    if info.limit == "maxTurns":
        return Extend(Budget(max_turns=int(info.cap) + 1))
    return Suspend("Dig on?" if info.spent == Decimal(2) else None)


def no_more(info: LimitInfo) -> LimitDecision:
    decision = more(info)
    return Stop() if isinstance(decision, Suspend) else decision


MINER = Agent("miner", does="Digs.", tools=[rate], budget=Budget(max_turns=1))


def asking(store: Store) -> dict[str, Any]:
    return options(store) | {"on_limit": more, "budget": Budget(max_tool_calls=2)}


def stopping(store: Store) -> dict[str, Any]:
    return asking(store) | {"on_limit": no_more}


async def budget_asked(store: Store) -> None:
    await MINER.run("dig", run_id="budget_asked", **asking(store))


async def limit_cut_off(store: Store) -> None:
    """The process dies while `on_limit` is asked."""
    await until_it_dies(MINER, "dig", "limit_cut_off", asking(CrashingStore(store, crash_at=3)))


async def budget_stopped(store: Store) -> None:
    await MINER.run("dig", run_id="budget_stopped", **stopping(store))
