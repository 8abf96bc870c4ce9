"""A tree of three levels with every rule there is, and a host that answers whatever it asks until it is done."""

from __future__ import annotations

import json
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from anyio.lowlevel import checkpoint
from pydantic import BaseModel
from tests.durability.crew import Counting, Outcome, World, check_entries

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
    GuardrailEvent,
    Hooks,
    Ledger,
    LimitDecision,
    LimitInfo,
    LLMOverride,
    OutputEvent,
    PromptEvent,
    Request,
    ResumePolicy,
    Ruling,
    RunStream,
    Runtime,
    Suspend,
    TaskResult,
    ToolContext,
    ToolOverride,
    UserMessage,
    tool,
)
from overt.clock import Clock
from overt.core import facts as f
from overt.errors import AlreadyAnswered, RunNotFound
from overt.stores import Store
from overt.testing import MockModel, Script, VirtualClock, call, say

RUN = "run"
TOKENS = 100
HERE: ContextVar[World] = ContextVar("HERE")
"""The world, for rules and hooks, which are handed no deps."""
Mode = Literal["rewind", "continue", "inline"]
MODES: tuple[Mode, ...] = ("rewind", "continue", "inline")
"""How questions are answered: after the run has parked, under one of the policies, or at once."""

SCRIPT: Script = {
    "coordinator": [
        [
            call("look", what="prices"),
            call("charge", order="A1"),
            call("task", agent="researcher", prompt="dig"),
            call("wipe", what="prices"),
        ],
        call("final_result", count=1),
        call("final_result", count=2),
        call("final_result", count=3),
    ],
    "researcher": [
        [call("look", what="seats"), call("look", what="TABLES"), call("clerk", prompt="pay")],
        [call("look", what="chairs"), call("look", what="lamps")],
        say("dug"),
    ],
    "clerk": [
        [
            call("refund", order="A1", amount=50),
            call("refund", order="A2", amount=60),
            call("wipe", what="books"),
            call("letter", to="ann"),
            call("refund", order="A3", amount=70),
        ],
        [call("refund", order="A4", amount=80), call("refund", order="A5", amount=1)],
        say("paid"),
    ],
}


@tool
async def look(ctx: ToolContext[World], what: str) -> str:
    """Look something up."""
    ctx.deps.enter(ctx)
    ctx.deps.do(ctx, f"look {what}")
    await checkpoint()
    return f"{what} are fine"


@tool(on_replay="reuse")
async def charge(ctx: ToolContext[World], order: str) -> str:
    """Take the money."""
    ctx.deps.enter(ctx)
    await checkpoint()
    ctx.deps.do(ctx, f"charge {order}")
    await checkpoint()
    return "charged"


@tool(on_replay="reuse")
async def refund(ctx: ToolContext[World], order: str, amount: int) -> str:
    """Give money back."""
    ctx.deps.enter(ctx)
    await checkpoint()
    ctx.deps.do(ctx, f"refund {order} {amount}")
    return "refunded"


@tool
async def wipe(ctx: ToolContext[World], what: str) -> str:
    """Delete everything."""
    ctx.deps.enter(ctx)
    ctx.deps.do(ctx, f"wipe {what}")
    return "gone"


@tool
async def letter(ctx: ToolContext[World], to: str) -> str:
    """Write a letter, and send it when somebody agrees."""
    ctx.deps.enter(ctx)

    async def draft() -> str:
        await checkpoint()
        ctx.deps.do(ctx, f"draft {to}")
        return f"Dear {to}"

    text = await ctx.once("draft", draft)
    answer = await ctx.ask(f"Send {text!r}?", kind="input")
    ctx.deps.do(ctx, f"send {to} {answer.data}")
    return "sent"


def here(place: str) -> None:
    """Come to a place in code that is no tool."""
    HERE.get().at(place)


def never_wipe(event: GuardrailEvent) -> Ruling:
    here(f"ruling never_wipe {event.call.name}")
    return Deny("nothing is deleted") if event.call.name == "wipe" else Allow()


async def large_refunds(event: GuardrailEvent) -> Ruling:
    await checkpoint()
    here(f"ruling large_refunds {event.call.name}")
    amount = event.call.arguments.get("amount", 0)
    assert isinstance(amount, int)
    return Ask(f"Refund {event.call.arguments['order']}: {amount}?") if amount >= 50 else Allow()


def lower(event: BeforeTool) -> ToolOverride | None:
    here(f"hook before {event.call.name}")
    if event.call.arguments.get("what") == "TABLES":
        return ToolOverride(arguments={"what": "tables"})
    return None


def shorten(event: BeforeLLM) -> LLMOverride | None:
    here(f"hook before turn {event.turn}")
    if event.turn < 2:
        return None
    return LLMOverride(messages=[UserMessage(text="go on"), *event.messages[1:]])


def known(event: PromptEvent) -> Ruling:
    here(f"ruling prompt {event.prompt}")
    return Allow() if event.prompt == "dig" else Deny("what is that?")


class Report(BaseModel):
    """What the run comes to."""

    count: int


async def third_time(attempt: Attempt[Report]) -> tuple[bool, str]:
    here(f"judging {attempt.text}")
    await checkpoint()
    here(f"judged {attempt.text}")
    assert attempt.output is not None
    assert [c.name for c, r in attempt.tool_calls if not r.is_error] == ["look", "charge", "task"]
    return attempt.output.count >= 3, f"{attempt.output.count} of 3"


def published(event: OutputEvent) -> Ruling:
    here(f"ruling output {event.text}")
    assert isinstance(event.output, Report)
    return Ask(f"Publish {event.output.count}?")


CLERK = Agent(
    "clerk",
    does="Pays.",
    tools=[refund, wipe, letter],
    guardrails=[large_refunds, never_wipe],
    hooks=Hooks(before_llm=shorten),
    deps_type=World,
)
RESEARCHER = Agent(
    "researcher",
    does="Digs.",
    tools=[look, CLERK.as_tool()],
    input_guardrails=[known],
    hooks=Hooks(before_tool=lower),
    budget=Budget(max_tool_calls=6),
    deps_type=World,
)
COORDINATOR = Agent(
    "coordinator",
    does="Leads.",
    tools=[look, charge, wipe],
    team=[RESEARCHER],
    guardrails=[never_wipe],
    completion=Completion(third_time, max_attempts=3),
    output_guardrails=[published],
    output_type=Report,
    budget=Budget(max_turns=2),
    deps_type=World,
)


def ask_for_more(info: LimitInfo) -> LimitDecision:
    here(f"limit {info.limit} {info.handle}")
    return Suspend()


@dataclass
class Host:
    """A process of its own: fresh objects on a store that others have used, or will."""

    world: World
    store: Store
    mode: Mode
    outcome: Outcome = "retry"
    rewinds: bool = False
    """Whether a crash is recovered from by a replay."""
    streams: bool = False
    """Whether it reads along."""
    run_id: str = RUN
    force: bool = False
    """Whether it takes the run from whoever has it."""
    clock: Clock = field(default_factory=VirtualClock)

    def options(self) -> dict[str, Any]:
        HERE.set(self.world)

        async def on_pending(request: Request) -> None:
            self.world.at(f"telling {request.prompt}")
            self.world.told.append(request.id)
            self.world.note("told", request.id)
            self.world.at(f"told {request.prompt}")

        async def wait_for(request: Request) -> Answer[Any]:
            await checkpoint()
            self.world.at(f"asking for {request.prompt}")
            self.world.told.append(request.id)
            self.world.note("told", request.id)
            answer = self.answer(request)
            self.world.at(f"hearing of {request.prompt}")
            return answer

        policy = ResumePolicy.CONTINUE if self.mode == "continue" else ResumePolicy.REWIND
        given: dict[str, Any] = (
            {"wait_for": wait_for} if self.mode == "inline" else {"on_pending": on_pending}
        )
        return given | {
            "store": self.store,
            "deps": self.world,
            "model": Counting(MockModel(SCRIPT, tokens=TOKENS), self.world),
            "resume_policy": policy,
            "on_limit": ask_for_more,
            "clock": self.clock,
        }

    async def open(self) -> Runtime[Report]:
        """Find the run."""
        return await Runtime.open(COORDINATOR, self.run_id, **self.options())

    async def run(self) -> tuple[TaskResult[Report], Runtime[Report]]:
        """Start the run or find it, and answer what it asks until it is done."""
        try:
            runtime = await self.open()
        except RunNotFound:
            runtime = Runtime(COORDINATOR, run_id=self.run_id, **self.options())
            result = await self._start(runtime)
        else:
            result = await self._recover(runtime)
        for _ in range(30):
            if result.status == "done":
                return result, runtime
            if result.status != "pending":
                raise AssertionError(f"[{result.status}] {result.text}")
            answers = [self.answer(request) for request in result.pendings]
            self.world.at(f"answering {result.pendings[0].prompt}")
            result = await self._resume(runtime, answers)
        raise AssertionError("the run goes round in circles")

    async def _start(self, runtime: Runtime[Report]) -> TaskResult[Report]:
        return await (self._read(runtime.stream("sell")) if self.streams else runtime.run("sell"))

    async def _recover(self, runtime: Runtime[Report]) -> TaskResult[Report]:
        policy = ResumePolicy.REWIND if self.rewinds else None
        if self.streams:
            return await self._read(runtime.stream(policy=policy))
        return await runtime.recover(policy=policy, force=self.force)

    async def _resume(self, runtime: Runtime[Report], answers: list[Answer[Any]]) -> TaskResult[Report]:
        return await (self._read(runtime.stream(answer=answers)) if self.streams else runtime.resume(answers))

    async def _read(self, stream: RunStream[Report]) -> TaskResult[Report]:
        async with stream:
            return await stream.result()

    def answer(self, request: Request) -> Answer[Any]:
        known = self.world.answered[request.id] = Answer(id=request.id, ok=True)
        self.world.note("answer", known.model_dump_json())
        data: object = None
        if request.kind == "in_doubt":
            output = "Dear ann" if "once" in request.data else "as it was"
            data = (
                {"outcome": "retry"}
                if self.outcome == "retry"
                else {"outcome": "succeeded", "output": output}
            )
        elif request.kind == "budget":
            data = 2 if "maxTurns" in request.prompt else 9
        elif request.kind == "input":
            data = "now"
        elif request.prompt == "Refund A1: 50?":
            data = {"arguments": {"order": "A1", "amount": 5}}
        elif request.prompt == "Refund A2: 60?":
            return Answer(id=request.id, ok=False, reason="too much", by="ann")
        elif request.prompt == "Refund A3: 70?":
            data = {"output": "in cash"}
        return Answer(id=request.id, ok=True, data=data, by="ann")


DONE = (
    "look prices", "look seats", "look tables", "look chairs", "look lamps", "charge A1", "refund A1 5",
    "refund A4 80", "refund A5 1", "draft ann", "send ann now",
)  # fmt: skip
"""Everything that has to happen, and nothing else may."""
ONCE = {
    "charge A1": None,
    "refund A1 5": None,
    "refund A4 80": None,
    "refund A5 1": None,
    "draft ann": "draft",
}
"""What happens at most once unless somebody says it may happen again; the label of a `once` block."""


TRANSCRIPTS = {
    "root/coordinator.1": ["sell", "", "", "", ""],
    "root/coordinator.1/researcher.1": ["dig", "", "", "dug"],
    "root/coordinator.1/researcher.1/clerk.1": ["go on", "", "", "paid"],
}
"""What a handle was asked, as its hook left it, and each of its replies."""


def questions(facts: list[f.Fact], *, budgets: bool) -> dict[str, tuple[str, str]]:
    """Every request but doubts: whose it is and what it asks."""
    return {
        x.request: (x.handle, x.question.prompt)
        for x in facts
        if isinstance(x, (f.CallAsked, f.WakeAsked))
        and (x.question.kind != "in_doubt" and (budgets or x.question.kind != "budget"))
    }


def check(
    world: World,
    result: TaskResult[Report],
    runtime: Runtime[Report],
    facts: list[f.Fact],
    quiet: list[f.Fact],
    *,
    replayed: bool = False,
) -> None:
    """What no crash may change.

    Args:
        world: What has happened outside.
        result: Of the process that came to the end.
        runtime: The same.
        facts: The whole journal.
        quiet: The journal of a run nobody disturbed.
        replayed: Whether more was replayed than in that: it spends more, and may meet a cap once more.
    """
    assert result.output == Report(count=3)
    assert result.text == '{"count":3}'
    _check_effects(world, facts)
    check_entries(world, facts)
    _check_questions(world, facts, quiet, budgets=not replayed)
    # The gate: a round is judged once, whatever the verifier was asked again for.
    assert [(v.number, v.ok, v.reason) for v in result.verdicts] == [
        (1, False, "1 of 3"), (2, False, "2 of 3"), (3, True, "3 of 3"),
    ]  # fmt: skip
    # Money: what was handed out is counted or known to be unreported, and the books agree.
    usage = result.usage
    assert result.total_tokens == usage.turns * TOKENS == runtime.usage_tokens("root")
    assert usage.model_calls == usage.turns + usage.unreported_calls
    assert usage.turns <= world.replies <= world.asked_model <= usage.model_calls
    _check_ledger(runtime.ledger())
    assert not [x for x in facts if isinstance(x, f.Diverged)]
    assert result.replay is None or (result.replay.unused_answers, result.replay.unused_children) == ((), ())
    assert len(runtime.list()) == 3
    assert [event.position for event in runtime.events()] == list(range(1, len(facts) + 1))
    for handle, replies in TRANSCRIPTS.items():
        shown = [(m.role, m.text) for m in runtime.transcript(handle) if m.role != "tool"]
        assert shown == [("user", replies[0]), *(("assistant", text) for text in replies[1:])]


def _check_effects(world: World, facts: list[f.Fact]) -> None:
    done = {what for _, what, _ in world.effects}
    assert done <= set(DONE), "a call that was denied, declined or replaced was entered"
    doubted = {_key(x) for x in facts if isinstance(x, f.CallAsked) and x.question.kind == "in_doubt"}
    # What was in doubt may have been said to have happened although it had not.
    assert set(DONE) - done <= (set(ONCE) if doubted else set())
    keys: dict[str, set[str]] = {}
    for _, what, key in world.effects:
        keys.setdefault(what, set()).add(key)
    assert all(len(found) == 1 for found in keys.values()), keys
    retried = {x.request for x in facts if isinstance(x, f.AnswerGiven) and '"retry"' in (x.data or "")}
    for what, once in ONCE.items():
        allowed = sum(
            isinstance(x, f.CallAsked) and x.request in retried and x.once == once and _key(x) in keys[what]
            for x in facts
        )
        assert world.times(what) <= 1 + allowed, (what, world.effects)


def _key(doubt: f.CallAsked) -> str:
    return str(json.loads(doubt.question.data)["idempotency_key"])


def _check_questions(world: World, facts: list[f.Fact], quiet: list[f.Fact], *, budgets: bool) -> None:
    asked = [x.request for x in facts if isinstance(x, (f.CallAsked, f.WakeAsked))]
    assert len(asked) == len(set(asked))
    doubted = any(isinstance(x, f.CallAsked) and x.question.kind == "in_doubt" for x in facts)
    found, wanted = questions(facts, budgets=budgets), questions(quiet, budgets=budgets)
    assert sorted(found.values()) == sorted(wanted.values()), "a question was asked again, or not at all"
    # A doubt counts among the questions of its call, so that a later one has another number.
    assert doubted or found == wanted
    assert set(asked) <= set(world.told)
    given = Counter(x.request for x in facts if isinstance(x, f.AnswerGiven))
    assert given == Counter(asked), "an answer was lost, or taken twice"


def _check_ledger(root: Ledger) -> None:
    for _, ledger in root.walk():
        whole = ledger.own
        for child in ledger.children:
            whole += child.total
        assert whole == ledger.total, ledger.handle


async def again(runtime: Runtime[Report], world: World) -> None:
    """A host that does not know whether its answers got through gives them again: no harm."""
    for answer in world.answered.values():
        try:
            await runtime.resume(answer)
        except AlreadyAnswered:
            continue
        raise AssertionError("an answer was taken twice")
