"""A tree with one of everything, the world outside it, and a host that goes on until it is done."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from anyio.lowlevel import checkpoint

from overt import (
    Agent,
    Answer,
    Attempt,
    Budget,
    Completion,
    Request,
    ResumePolicy,
    Runtime,
    TaskResult,
    ToolContext,
    tool,
)
from overt.clock import Clock
from overt.core import facts as f
from overt.errors import AlreadyAnswered, RunNotFound
from overt.journal.codec import decode
from overt.message import ModelRequest, ModelResponse
from overt.stores import Store
from overt.testing import MockModel, Reply, Script, VirtualClock, call, say

RUN = "run"
TOKENS = 100
Outcome = Literal["retry", "succeeded"]


def go_on(_: str) -> None:
    """Stop nowhere."""


@dataclass
class World:
    """What outlives every process: effects done, replies bought, questions told, answers given."""

    effects: list[tuple[str, str, str]] = field(default_factory=list)
    """Handle, what was done, idempotency key."""
    entered: list[str] = field(default_factory=list)
    """The handle of each call whose tool was entered."""
    asked_model: int = 0
    replies: int = 0
    told: list[str] = field(default_factory=list)
    answered: dict[str, Answer[Any]] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    path: Path | None = None
    """Where it is written down for other processes."""
    at: Callable[[str], None] = go_on
    """Told of each place a process comes to; what it raises is the end of the process."""

    def enter(self, ctx: ToolContext[World]) -> None:
        """What a tool does first."""
        self.entered.append(ctx.handle)
        self.note("enters", ctx.handle, ctx.call.name)
        self.at(f"entering {ctx.call.name}")

    def do(self, ctx: ToolContext[World], what: str) -> None:
        self.at(f"before {what}")
        self.effects.append((ctx.handle, what, ctx.idempotency_key))
        self.note("effect", *self.effects[-1])
        self.at(f"after {what}")

    def note(self, *what: str) -> None:
        """Write down for other processes what this one has done."""
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([os.getpid(), *what]) + "\n")

    @classmethod
    def read(cls, path: Path) -> World:
        """What other processes have written down, and where this one goes on writing."""
        world = cls(path=path)
        for _, kind, *rest in notes(path):
            if kind == "effect":
                world.effects.append((rest[0], rest[1], rest[2]))
            elif kind == "enters":
                world.entered.append(rest[0])
            elif kind == "told":
                world.told.append(rest[0])
            elif kind == "answer":
                answer = Answer[Any].model_validate_json(rest[0])
                world.answered[answer.id] = answer
            world.asked_model += kind == "asked"
            world.replies += kind == "reply"
        return world

    def times(self, what: str) -> int:
        return sum(one[1] == what for one in self.effects)


def notes(path: Path) -> list[list[Any]]:
    """What processes have written down, in order: who, what kind of thing, and which."""
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    )


class Counting:
    """A model that tells the world what it handed out."""

    def __init__(self, inner: MockModel, world: World) -> None:
        self.inner = inner
        self.world = world

    @property
    def name(self) -> str:
        return self.inner.name

    async def generate(self, request: ModelRequest) -> ModelResponse:
        self.world.at(f"asking {request.agent}")
        self.world.asked_model += 1
        self.world.note("asked")
        reply = await self.inner.generate(request)
        await checkpoint()
        self.world.at(f"hearing {request.agent}")
        self.world.replies += 1
        self.world.note("reply")
        self.world.at(f"heard {request.agent}")
        return reply


LEADING: Sequence[Reply] = [
    [call("look", what="prices"), call("charge", order="A1"), call("task", agent="worker", prompt="book")],
    call("publish", what="offer"),
    say("offered"),
    say("published"),
]


def leading(request: ModelRequest) -> Reply:
    """Count its own replies: what the gate says would begin a list anew."""
    return LEADING[sum(message.role == "assistant" for message in request.messages)]


SCRIPT: Script = {
    "lead": leading,
    "worker": [[call("look", what="seats"), call("book", seat="12a")], say("booked")],
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


@tool
async def book(ctx: ToolContext[World], seat: str) -> str:
    """Hold a seat, then book it when somebody agrees."""
    ctx.deps.enter(ctx)

    async def hold() -> str:
        await checkpoint()
        ctx.deps.do(ctx, f"hold {seat}")
        return f"held {seat}"

    held = await ctx.once("hold", hold)
    answer = await ctx.ask(f"Book {seat}?", kind="approval")
    ctx.deps.do(ctx, f"book {seat} {answer.data}")
    return f"{held}, booked"


@tool
async def publish(ctx: ToolContext[World], what: str) -> str:
    """Publish when somebody agrees."""
    ctx.deps.enter(ctx)
    answer = await ctx.ask(f"Publish {what}?", kind="approval")
    ctx.deps.do(ctx, f"publish {what} {answer.data}")
    return "published"


def is_published(attempt: Attempt[str]) -> tuple[bool, str]:
    """The gate; it sends the first text back."""
    world = attempt.deps
    assert isinstance(world, World)
    world.at(f"judging {attempt.text}")
    verdict = attempt.text == "published", "say that it is published"
    world.at(f"judged {attempt.text}")
    return verdict


WORKER = Agent("worker", does="Books.", tools=[look, book], deps_type=World)
LEAD = Agent(
    "lead",
    does="Leads.",
    tools=[look, charge, publish],
    team=[WORKER],
    completion=Completion(is_published, max_attempts=2),
    budget=Budget(max_turns=2),
    deps_type=World,
)


@dataclass
class Host:
    """A process of its own: fresh objects on a store that others have used, or will."""

    world: World
    store: Store
    policy: ResumePolicy
    outcome: Outcome = "retry"
    run_id: str = RUN
    yes: str = "yes"
    """What it says to a question."""
    force: bool = False
    """Whether it takes the run from whoever has it."""
    clock: Clock = field(default_factory=VirtualClock)

    def options(self) -> dict[str, Any]:
        async def on_pending(request: Request) -> None:
            self.world.at(f"telling {request.prompt}")
            self.world.told.append(request.id)
            self.world.note("told", request.id)
            self.world.at(f"told {request.prompt}")

        return {
            "store": self.store,
            "deps": self.world,
            "model": Counting(MockModel(SCRIPT, tokens=TOKENS), self.world),
            "resume_policy": self.policy,
            "on_pending": on_pending,
            "clock": self.clock,
        }

    async def open(self) -> Runtime[str]:
        """Find the run."""
        return await Runtime.open(LEAD, self.run_id, **self.options())

    async def start(self) -> TaskResult[str]:
        """Start the run, and leave it where it stops."""
        return await Runtime(LEAD, run_id=self.run_id, **self.options()).run("sell")

    async def run(self) -> TaskResult[str]:
        """Start the run or find it, and do what it waits for until it is done."""
        try:
            runtime = await self.open()
        except RunNotFound:
            runtime = Runtime(LEAD, run_id=self.run_id, **self.options())
            result = await runtime.run("sell")
        else:
            if not self.force:
                await self.redeliver(runtime)
            result = await runtime.recover(force=self.force)
        for _ in range(30):
            if result.status == "done":
                return result
            if result.status == "pending":
                answers = [self.answer(request) for request in result.pendings]
                self.world.answered |= {a.id: a for a in answers}
                for answer in answers:
                    self.world.note("answer", answer.model_dump_json())
                self.world.at(f"answering {result.pendings[0].prompt}")
                result = await runtime.resume(answers)
            elif result.status == "incomplete":
                assert result.limit_at == "root/lead.1"
                self.world.at("extending")
                result = await runtime.extend(Budget(max_turns=4))
            else:
                raise AssertionError(f"[{result.status}] {result.text}")
        raise AssertionError("the run goes round in circles")

    async def redeliver(self, runtime: Runtime[str]) -> None:
        """A host that does not know whether its answer got through gives it again: no harm."""
        open_ids = {r.id for r in runtime.pendings()}
        for id, answer in self.world.answered.items():
            if id not in open_ids:
                with pytest.raises(AlreadyAnswered) as already:
                    await runtime.resume(answer)
                assert already.value.same

    def answer(self, request: Request) -> Answer[Any]:
        if request.kind == "in_doubt":
            if request.id not in self.world.doubts:
                self.world.doubts.append(request.id)
            data: dict[str, object] = {"outcome": self.outcome}
            if self.outcome == "succeeded":
                data["output"] = "held 12a" if "once" in request.data else "charged"
            return Answer(id=request.id, ok=True, data=data)
        return Answer(id=request.id, ok=True, data=self.yes, by="ann")


async def facts_of(store: Store, run_id: str = RUN) -> list[f.Fact]:
    """The whole journal."""
    return [fact for rec in await store.read(run_id) for fact in decode(run_id, rec)[1]]


def tool_of(asked: f.CallAsked) -> str:
    """The tool of the call that asks."""
    return str(json.loads(asked.question.data)["call"]["tool"])


def check_entries(world: World, facts: list[f.Fact]) -> None:
    """No tool is entered that is not in the journal as entered, once for each time."""
    recorded = Counter(x.handle for x in facts if isinstance(x, f.CallEntered))
    assert not Counter(world.entered) - recorded, (world.entered, recorded)


def check(world: World, result: TaskResult[str], facts: list[f.Fact], calm: list[f.Fact]) -> None:
    """What no crash may change; `calm` is the journal of a run nobody disturbed."""
    assert result.text == "published"
    # Effects: once, or in doubt and then repeated under the same key.
    keys: dict[tuple[str, str], set[str]] = {}
    for handle, what, key in world.effects:
        keys.setdefault((handle, what), set()).add(key)
    assert all(len(found) == 1 for found in keys.values()), keys
    check_entries(world, facts)
    asked = [x for x in facts if isinstance(x, f.CallAsked)]
    doubts = [x for x in asked if x.question.kind == "in_doubt"]
    for what, once in (("charge A1", None), ("hold 12a", "hold")):
        allowed = sum(
            any(
                isinstance(x, f.AnswerGiven) and x.request == d.request and '"retry"' in (x.data or "")
                for x in facts
            )
            for d in doubts
            if d.once == once
        )
        assert world.times(what) <= 1 + allowed, (what, world.effects)
    assert world.times("book 12a yes") >= 1
    assert world.times("publish offer yes") >= 1
    # The gate: each round is judged once, whatever the verifier was asked again for.
    assert [(v.number, v.ok) for v in result.verdicts] == [(1, False), (2, True)]
    # Questions: the same ones, each told, each answered once. A doubt counts among the questions of its call.
    ids = {x.request: (x.handle, x.question.prompt) for x in asked if x.question.kind != "in_doubt"}
    wanted = {x.request: (x.handle, x.question.prompt) for x in calm if isinstance(x, f.CallAsked)}
    assert sorted(ids.values()) == sorted(wanted.values()), "a question that was recorded was asked again"
    doubted = {(x.handle, tool_of(x)) for x in doubts}
    assert all(x.request in wanted for x in asked if (x.handle, tool_of(x)) not in doubted)
    assert {x.request for x in asked} <= set(world.told)
    given = Counter(x.request for x in facts if isinstance(x, f.AnswerGiven))
    assert given == Counter(x.request for x in asked), "an answer was lost, or taken twice"
    # Money: what was handed out is counted or known to be unreported.
    usage = result.usage
    assert result.total_tokens == usage.turns * TOKENS
    assert usage.model_calls == usage.turns + usage.unreported_calls
    assert usage.turns <= world.replies <= world.asked_model <= usage.model_calls
    assert not [x for x in facts if isinstance(x, f.Diverged)]
    assert result.replay is None or (result.replay.unused_answers, result.replay.unused_children) == ((), ())
