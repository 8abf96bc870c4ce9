"""Random teams, rules, answers and crashes: what ran is compared with what was said of it before it ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import anyio
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from overt import (
    Agent,
    Allow,
    Answer,
    Ask,
    Deny,
    GuardrailEvent,
    ModelRequest,
    ResumePolicy,
    Ruling,
    Runtime,
    ToolContext,
    tool,
)
from overt.errors import RunNotFound
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say
from overt.testing.crashing import CrashingStore


class Plan(NamedTuple):
    """What one example is about."""

    lead: list[list[int]]
    """Batches of calls: numbers are arguments, 9 delegates."""
    member: list[list[int]]
    rulings: dict[int, list[str]]
    """What the rules say of an argument, one thing after another, the last for good."""
    house: list[str]
    """What the run's rule says, call after call, over and over."""
    waits: bool
    drifts: list[int]
    """What is added to the arguments, reply after reply, over and over."""
    answers: list[str]
    policy: ResumePolicy
    crashes: list[int]
    """At which append each process dies."""


words = st.sampled_from(["allow", "allow", "allow", "deny", "ask", "ask"])
batches = st.lists(
    st.lists(st.sampled_from([0, 1, 1, 2, 3, 9]), min_size=1, max_size=3), min_size=1, max_size=3
)
plans = st.builds(
    Plan,
    lead=batches,
    member=batches,
    rulings=st.fixed_dictionaries({n: st.lists(words, min_size=1, max_size=3) for n in (0, 1, 2, 3, 4, 9)}),
    house=st.lists(st.sampled_from(["allow", "allow", "allow", "deny", "ask"]), min_size=1, max_size=4),
    waits=st.booleans(),
    drifts=st.sampled_from([[0], [0], [0, 0, 0, 1], [0, 1]]),
    answers=st.lists(st.sampled_from(["yes", "yes", "no", "edit", "reply", "leave"]), min_size=1, max_size=8),
    policy=st.sampled_from(list(ResumePolicy)),
    crashes=st.lists(st.integers(2, 9), max_size=2),
)


class World:
    """What outlives the processes, and what has to hold whenever a tool runs."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.asked: dict[tuple[int, str], int] = {}
        self.housed = 0
        self.bought = 0
        self.said: dict[tuple[str, str], dict[str, tuple[str, int]]] = {}
        """What each rule said last of a call since it was last entered, and of which argument."""
        self.agreed: dict[str, int] = {}
        """By key: the argument somebody said yes to."""
        self.refused: set[str] = set()
        self.ran: list[str] = []
        self.broken: list[str] = []

    def enter(self, ctx: ToolContext, n: int) -> None:
        """A tool has been entered."""
        key = ctx.idempotency_key
        said = self.said.pop((ctx.handle, ctx.call.id), {})
        where = f"{ctx.handle} {ctx.call.id} act({n})"
        self.ran.append(where)
        # Noted, not asserted: what a tool raises is a result to the model.
        if set(said) != {"own", "house"}:
            self.broken.append(f"{where}: not every rule was asked right before: {said}")
        for name, (verdict, about) in said.items():
            if about != n:
                self.broken.append(f"{where}: {name} was asked about {about}")
            if verdict == "deny":
                self.broken.append(f"{where}: {name} denied it")
            if verdict == "ask" and self.agreed.get(key) != n:
                self.broken.append(f"{where}: {name} asked, and nobody agreed")
        if key in self.refused:
            self.broken.append(f"{where}: somebody said no, or did it himself")

    def rule(self, name: str) -> Any:
        def says(event: GuardrailEvent) -> Ruling:
            n = event.call.arguments.get("n", 9)
            assert isinstance(n, int)
            if name == "house":
                word = self.plan.house[self.housed % len(self.plan.house)]
                self.housed += 1
            else:
                at = self.asked[n, event.handle] = self.asked.get((n, event.handle), 0) + 1
                words = self.plan.rulings[n]
                word = words[min(at, len(words)) - 1]
            self.said.setdefault((event.handle, event.call.id), {})[name] = (word, n)
            rulings: dict[str, Ruling] = {"allow": Allow(), "deny": Deny("no"), "ask": Ask(f"{name}?")}
            return rulings[word]

        async def says_later(event: GuardrailEvent) -> Ruling:
            await anyio.lowlevel.checkpoint()
            return says(event)

        return says_later if self.plan.waits else says

    def team(self) -> Agent[None, str]:
        world = self

        @tool
        async def act(ctx: ToolContext, n: int) -> str:
            """Act."""
            world.enter(ctx, n)
            return f"acted {n}"

        def model(batches: Sequence[Sequence[int]]) -> MockModel:
            def script(request: ModelRequest) -> Any:
                turn = sum(m.role == "assistant" for m in request.messages)
                if turn >= len(batches):
                    return say("end")
                more = world.plan.drifts[world.bought % len(world.plan.drifts)]
                world.bought += 1
                return [
                    call("task", agent="b", prompt="p") if n == 9 else call("act", n=n + more)
                    for n in batches[turn]
                ]

            return MockModel(script)

        own = [self.rule("own")]
        member = Agent("b", does="acts", tools=[act], guardrails=own, model=model([
            [n for n in batch if n != 9] or [0] for batch in self.plan.member
        ]))  # fmt: skip
        return Agent(
            "a", does="leads", tools=[act], team=[member], guardrails=own, model=model(self.plan.lead)
        )

    def answer(self, runtime: Runtime[Any], how: str) -> Answer[Any] | None:
        """Say something to the first open request, and note it."""
        request = runtime.pendings()[0]
        key = runtime._driver.tree.requests[request.id].key
        arguments: Any = request.data["call"]
        arguments = arguments["arguments"]
        if how == "leave":
            return None
        if how == "no":
            self.refused.add(key)
            return Answer(id=request.id, ok=False)
        self.refused.discard(key)
        if how == "reply":
            self.refused.add(key)
            return Answer(id=request.id, ok=True, data={"output": "by hand"})
        self.agreed[key] = arguments.get("n", 9)
        if how == "edit" and "n" in arguments:
            self.agreed[key] = 4
            return Answer(id=request.id, ok=True, data={"arguments": {"n": 4}})
        return Answer(id=request.id, ok=True)


async def live(world: World) -> None:
    plan = world.plan
    store = MemoryStore()
    crashes = list(plan.crashes)
    answers = list(plan.answers)
    house = [world.rule("house")]
    started = False

    async def process() -> bool:
        """Work until nothing is left to do here; say whether there is something to do in another one."""
        nonlocal started
        # What a process was told that has died is worth nothing to the next.
        world.said.clear()
        dying = CrashingStore(store, crash_at=crashes.pop(0) if crashes else None, when="after")
        try:
            if not started:
                result, _ = await world.team().run(
                    "go", store=dying, run_id="r", resume_policy=plan.policy, guardrails=house
                )
                started = True
                return result.pending is not None
            runtime = await Runtime.open(world.team(), "r", store=dying, guardrails=house)
            result = await runtime.recover()
            if result.pending is None or not answers:
                return False
            said = world.answer(runtime, answers.pop(0))
            if said is not None:
                await runtime.resume(said)
        except RunNotFound:
            started = False
        except BaseException:
            if not dying.crashed:
                raise
            started = True
        return True

    for _ in range(30):
        if not await process():
            return


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=plans)
def test_nothing_runs_that_a_rule_denies_or_nobody_agreed_to(plan: Plan) -> None:
    world = World(plan)
    anyio.run(live, world)
    note("\n".join(world.ran))
    assert world.broken == []
