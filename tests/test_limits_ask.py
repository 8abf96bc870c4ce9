"""Limits that ask: what `on_limit` is asked, what it may say, and the question a person is asked instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple, cast

import anyio
import anyio.lowlevel
import pytest

from overt import (
    Agent,
    Answer,
    Budget,
    Completion,
    Extend,
    LimitDecision,
    LimitInfo,
    Replay,
    Request,
    ResumePolicy,
    Runtime,
    Stop,
    Suspend,
    TaskResult,
    UsageError,
    tool,
)
from overt.errors import AlreadyAnswered, AwaitingAnswer, InvalidAnswer, StoreError
from overt.message import ModelRequest
from overt.stores import MemoryStore
from overt.testing import MockModel, VirtualClock, call, say
from overt.testing.crashing import Crashed, CrashingStore
from tests.suspend_kit import approve, first, no, tools_said, yes
from tests.test_budget_wall import driven

W = "root/w.1"
both = pytest.mark.parametrize("policy", list(ResumePolicy))
NOTHING_AGAIN = Replay(
    attempt=1, turns_bought_again=0, calls_rerun=(), calls_reused=(), unused_answers=(), unused_children=()
)


class Asked:
    """An `on_limit` that says what it is told to, the last again and again, and remembers what it was asked."""

    def __init__(self, *says: Any, sync: bool = True) -> None:
        self.says = says
        self.infos: list[LimitInfo] = []
        self.sync = sync

    def __call__(self, info: LimitInfo) -> Any:
        self.infos.append(info)
        says = self.says[min(len(self.infos), len(self.says)) - 1]
        if callable(says) and not isinstance(says, type):
            says = says(info)
        return self._raised(says) if self.sync else self._later(says)

    def _raised(self, says: Any) -> Any:
        if isinstance(says, BaseException):
            raise says
        return says

    async def _later(self, says: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return self._raised(says)

    @property
    def told(self) -> list[tuple[str, str, float, float, str]]:
        return [(i.limit.value, i.at, float(i.cap), float(i.spent), i.handle) for i in self.infos]


class Case(NamedTuple):
    """A cap that is spent, and what there is to see of it."""

    limit: str
    field: str
    cap: float
    spent: int
    before: list[int]  # calls that ran before it was asked about
    bought: int  # replies bought before


CASES = [
    Case("maxTurns", "max_turns", 2, 2, [1, 2], 2),
    Case("maxTokens", "max_tokens", 150, 200, [1, 2, 3, 4], 2),
    Case("maxToolCalls", "max_tool_calls", 3, 3, [1, 2, 3], 2),
    Case("maxModelCalls", "max_model_calls", 2, 2, [1, 2, 3, 4], 2),
    Case("maxWall", "max_wall", 15, 20, [1, 2, 3, 4], 2),
]
each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.limit)


class World:
    """A worker that calls a tool twice in each of two replies, and then says that it is done."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.clock = VirtualClock()
        self.model = MockModel([[call("t", n=1), call("t", n=2)], [call("t", n=3), call("t", n=4)], "done"])
        self.store = MemoryStore()

        @tool
        async def t(n: int) -> str:
            self.ran.append(n)
            # Not slept: what is in flight when the time is over is ended, unasked.
            self.clock.set_wall(self.clock.now() + timedelta(seconds=5))
            return f"t{n}"

        self.t = t

    def agent(self, case: Case | None = None, **options: Any) -> Agent[None, str]:
        budget = None if case is None else Budget.model_validate({case.field: case.cap})
        return Agent("w", does="works", tools=[self.t], model=self.model, budget=budget, **options)

    async def run(self, case: Case, **options: Any) -> tuple[TaskResult[str], Runtime[str]]:
        return await self.agent(case).run("go", clock=self.clock, store=self.store, run_id="r", **options)

    def noting(self, ran: list[list[int]], says: Callable[[LimitInfo], LimitDecision]) -> Any:
        """Note what has run whenever it is asked."""

        def on_limit(info: LimitInfo) -> LimitDecision:
            ran.append(self.ran[:])
            return says(info)

        return on_limit

    def is_done(self, result: TaskResult[Any]) -> None:
        """Everything was done, and nothing twice."""
        assert (result.status, result.text, result.error) == ("done", "done", None)
        assert self.ran == [1, 2, 3, 4]
        assert len(self.model.requests) == result.turns == result.usage.model_calls == 3
        assert (result.usage.tool_calls, result.total_tokens) == (4, 300)


def plus(more: int) -> Callable[[LimitInfo], Extend]:
    fields = {case.limit: case.field for case in CASES}
    return lambda info: Extend(Budget.model_validate({fields[info.limit]: int(info.cap) + more}))


@each
@pytest.mark.parametrize("sync", [True, False])
async def test_stop_is_as_if_nobody_had_been_asked(case: Case, sync: bool) -> None:
    world, asked = World(), Asked(Stop(), sync=sync)
    result, rt = await world.run(case, on_limit=asked)
    assert asked.told == [(case.limit, W, case.cap, case.spent, W)]
    assert (result.status, result.limit, result.limit_at) == ("incomplete", case.limit, W)
    assert (world.ran, len(world.model.requests)) == (case.before, case.bought)
    assert (await World().run(case))[0] == result
    result = await rt.extend(Budget.model_validate({case.field: 900}))
    world.is_done(result)
    assert len(asked.infos) == 1


@each
@pytest.mark.parametrize("sync", [True, False])
async def test_extend_goes_on_with_exactly_what_was_open(case: Case, sync: bool) -> None:
    world = World()
    ran: list[list[int]] = []
    asked = Asked(world.noting(ran, plus(100)), sync=sync)
    result, _ = await world.run(case, on_limit=asked)
    world.is_done(result)
    assert (asked.told, ran) == ([(case.limit, W, case.cap, case.spent, W)], [case.before])
    assert result.replay is None


@each
@both
async def test_suspend_asks_a_person_and_the_answer_goes_on(case: Case, policy: ResumePolicy) -> None:
    world, asked = World(), Asked(Suspend())
    result, rt = await world.run(case, on_limit=asked, resume_policy=policy)
    assert (result.status, result.limit) == ("pending", None)
    assert (world.ran, len(world.model.requests)) == (case.before, case.bought)
    request = first(result)
    assert (request.kind, request.path, request.expires_at, request.diverged) == (
        "budget", ("root", "w.1"), None, False,
    )  # fmt: skip
    assert request.data["limit"] == {
        "limit": case.limit, "at": W, "handle": W, "cap": case.cap, "spent": case.spent
    }  # fmt: skip
    assert all(said in request.prompt for said in (case.limit, W, str(case.cap), str(case.spent)))
    assert request.answer_schema is not None
    kind = "number" if case.limit == "maxWall" else "integer"
    assert (request.answer_schema["type"], request.answer_schema["exclusiveMinimum"]) == (kind, 0)
    assert (request.replays, request.turns_again) == ((), 0)
    assert rt.transcript(W) == ()

    result = await rt.resume(yes(result, 100))
    world.is_done(result)
    assert result.replay == NOTHING_AGAIN
    assert len(asked.infos) == 1
    # The amount is added to the cap.
    left = {"max_tool_calls": 99, "max_model_calls": 99, "max_wall": 95}.get(case.field)
    assert left is None or getattr(rt.remaining(W), case.field) == left


@each
async def test_a_refusal_stops_at_the_limit_and_extend_still_goes_on(case: Case) -> None:
    world = World()
    result, rt = await world.run(case, on_limit=Asked(Suspend("more?")))
    assert first(result).prompt == "more?"
    result = await rt.resume(no(result))
    assert (result.status, result.limit, result.limit_at) == ("incomplete", case.limit, W)
    assert (world.ran, len(world.model.requests)) == (case.before, case.bought)
    assert (await World().run(case))[0].text == result.text
    world.is_done(await rt.extend(Budget.model_validate({case.field: 900})))


@each
@pytest.mark.parametrize("whose", ["agent", "run"])
async def test_an_interpreter_answers_it_at_once(case: Case, whose: str) -> None:
    told: list[str] = []

    async def wait_for(request: Request) -> Answer[Any]:
        told.append(request.kind)
        return yes(request, 100) if answer else no(request)

    for answer in (True, False):
        world = World()
        options: dict[str, Any] = {"clock": world.clock, "on_limit": Asked(Suspend())}
        if whose == "agent":
            result, _ = await world.agent(case, wait_for=wait_for).run("go", **options)
        else:
            result, _ = await world.agent(case).run("go", wait_for=wait_for, **options)
        if answer:
            world.is_done(result)
        else:
            assert (result.status, result.limit, world.ran) == ("incomplete", case.limit, case.before)
    assert told == ["budget", "budget"]


@pytest.mark.parametrize(
    ("says", "kind", "message"),
    [
        (None, "TypeError", "on_limit returned NoneType, not Stop, Extend or Suspend"),
        (True, "TypeError", "on_limit returned bool"),
        (Stop, "TypeError", "on_limit returned type"),
        (Budget(max_tokens=9), "TypeError", "on_limit returned Budget"),
        (RuntimeError("no idea"), "RuntimeError", "no idea"),
        (Extend(Budget(max_tool_calls=2)), "UsageError", "max_tool_calls of root/w.1 is 3; 2 is below it"),
        (Extend(Budget(max_tokens=900)), "UsageError", "root/w.1 has no max_tokens"),
        (Extend(Budget(max_tool_calls=9, max_turns=1)), "UsageError", "max_turns of root/w.1 is 6"),
    ],
    ids=str,
)
@pytest.mark.parametrize("sync", [True, False])
async def test_what_it_may_not_say_is_an_error_and_recover_asks_again(
    says: Any, kind: str, message: str, sync: bool
) -> None:
    world, asked = World(), Asked(says, plus(9), sync=sync)
    result, rt = await world.run(CASES[2], on_limit=asked)
    assert result.error is not None
    assert (result.status, result.error.source, result.error.type) == ("error", "hook", kind)
    assert message in result.error.message
    assert rt.remaining(W).max_tool_calls == 0
    result = await rt.recover()
    world.is_done(result)
    assert asked.told == [("maxToolCalls", W, 3, 3, W)] * 2


@each
@pytest.mark.parametrize("help_", ["nothing", "the same cap", "another cap"])
async def test_what_does_not_help_stops_after_one_question(case: Case, help_: str) -> None:
    said = {
        "nothing": Budget(),
        "the same cap": Budget.model_validate({case.field: case.cap}),
        "another cap": Budget(max_children=9, max_depth=5),
    }[help_]
    world, asked = World(), Asked(Extend(said))
    budget = Budget.model_validate({case.field: case.cap, "max_children": 1})
    result, rt = await Agent("w", does="works", tools=[world.t], model=world.model, budget=budget).run(
        "go", clock=world.clock, on_limit=asked
    )
    assert (result.status, result.limit, result.limit_at) == ("incomplete", case.limit, W)
    assert (world.ran, len(world.model.requests), len(asked.infos)) == (case.before, case.bought, 1)
    world.is_done(await rt.extend(Budget.model_validate({case.field: 900})))


async def test_an_amount_that_is_too_small_is_asked_about_anew() -> None:
    world = World()
    asked = Asked(Suspend())
    result, rt = await world.run(CASES[1], on_limit=asked)
    cap = int(asked.infos[0].cap)
    before = first(result)
    result = await rt.resume(yes(result, 50))
    again = first(result)
    assert (again.id != before.id, [int(info.cap) for info in asked.infos]) == (True, [cap, cap + 50])
    result = await rt.resume(no(again))
    assert (result.status, result.limit) == ("incomplete", "maxTokens")
    world.is_done(await rt.extend(Budget(max_tokens=201)))


async def test_it_is_asked_again_when_what_it_gave_is_spent() -> None:
    world, asked = World(), Asked(plus(1))
    result, _ = await world.run(CASES[2]._replace(cap=1), on_limit=asked)
    world.is_done(result)
    assert asked.told == [("maxToolCalls", W, n, n, W) for n in (1, 2, 3)]


async def test_two_caps_on_turns_are_asked_about_one_after_the_other() -> None:
    """What the first answer does not reach stays out: the calls of a reply at the cap are not entered."""
    world = World()
    ran: list[list[int]] = []
    asked = Asked(world.noting(ran, lambda _: Suspend()))
    agent = Agent("w", does="x", tools=[world.t], model=world.model, budget=Budget(max_turns=1))
    options: dict[str, Any] = {"on_limit": asked, "budget": Budget(max_turns=1), "clock": world.clock}
    result, rt = await agent.run("go", **options)
    assert first(result).data["limit"]["at"] == "root"  # type: ignore[index,call-overload]  # JSON
    result = await rt.resume(yes(result, 5))
    assert first(result).data["limit"]["at"] == W  # type: ignore[index,call-overload]  # JSON
    world.is_done(await rt.resume(yes(result, 5)))
    assert ran == [[], []]
    assert asked.told == [("maxTurns", "root", 1, 1, W), ("maxTurns", W, 1, 1, W)]


@pytest.mark.parametrize("data", [0, -5, 1.5, "100", None, True, {"amount": 5}, 10**16], ids=repr)
async def test_an_answer_is_an_amount(data: Any) -> None:
    world = World()
    result, rt = await world.run(CASES[1], on_limit=Asked(Suspend()))
    with pytest.raises(InvalidAnswer):
        await rt.resume(yes(result, data))
    assert rt.result() == result
    world.is_done(await rt.resume(yes(result, 100)))


async def test_seconds_are_told_and_given_to_the_last_digit() -> None:
    world, asked = World(), Asked(Suspend())
    result, rt = await world.run(CASES[4]._replace(cap=9.0000005), on_limit=asked)
    (info,) = asked.infos
    assert (str(info.cap), str(info.spent)) == ("9.0000005", "10")
    world.is_done(await rt.resume(yes(result, 11.5)))
    assert rt.remaining(W).max_wall == pytest.approx(0.5)


def team(tools: Mapping[str, list[Any]], **scripts: Any) -> Agent[None, str]:
    """A lead over a mid over a worker, each with the tools and the script given for it."""
    made: Agent[None, str] | None = None
    for name in ("worker", "mid", "lead"):
        made = Agent(
            name, does="works", tools=tools.get(name, []), model=MockModel(scripts[name]),
            team=[] if made is None else [made],
        )  # fmt: skip
    assert made is not None
    return made


def models(agent: Agent[Any, Any]) -> int:
    """Replies that were bought from the models of a team."""
    assert isinstance(agent.model, MockModel)
    return len(agent.model.requests) + sum(map(models, agent.team))


@both
@pytest.mark.parametrize("reopened", [True, False])
async def test_three_levels_down_at_a_cap_of_the_run(policy: ResumePolicy, reopened: bool) -> None:
    ran: list[str] = []

    @tool
    def t(n: str) -> str:
        ran.append(n)
        return n

    agent = team(
        {"lead": [t], "worker": [t]},
        lead=[[call("t", n="lead"), call("task", agent="mid", prompt="p")], "lead done"],
        mid=[call("task", agent="worker", prompt="p"), "mid done"],
        worker=[[call("t", n="one"), call("t", n="two")], "worker done"],
    )
    asked, cap = Asked(Suspend()), Budget(max_tool_calls=4)
    options: dict[str, Any] = {"on_limit": asked, "store": MemoryStore(), "budget": cap}
    result, rt = await agent.run("go", run_id="r", resume_policy=policy, **options)
    deep = "root/lead.1/mid.1/worker.1"
    assert asked.told == [("maxToolCalls", "root", 4, 4, deep)]
    request = first(result)
    assert request.path == tuple(deep.split("/"))
    limit = {"limit": "maxToolCalls", "at": "root", "handle": deep, "cap": 4, "spent": 4}
    assert request.data["limit"] == limit
    assert (request.replays, request.turns_again) == ((), 0)
    assert [r.kind for r in rt.pendings()] == ["budget"]
    assert sorted(ran) == ["lead", "one"]
    if reopened:
        rt = await Runtime.open(agent, "r", **{**options, "on_limit": Asked(Stop())})
    result = await rt.resume(yes(request, 1))
    assert (result.status, result.text, result.handle) == ("done", "lead done", "root/lead.1")
    assert (sorted(ran), models(agent), result.turns) == (["lead", "one", "two"], 6, 2)
    assert result.replay == NOTHING_AGAIN
    assert (result.usage.tool_calls, result.total_tokens) == (5, 600)


def pair(t: Any) -> Agent[None, str]:
    child = MockModel([[call("t", n=1)], "child done"])
    lead = MockModel([[call("task", agent="c", prompt="one"), call("task", agent="c", prompt="two")], "told"])
    return Agent("lead", does="leads", model=lead, team=[Agent("c", does="x", tools=[t], model=child)])


@both
@pytest.mark.parametrize("order", ["together", "enough for both", "the first", "the second", "refused"])
async def test_two_that_wait_at_one_cap(policy: ResumePolicy, order: str) -> None:
    ran: list[str] = []

    @tool
    def t(n: int) -> str:
        ran.append("x")
        return str(n)

    agent = pair(t)
    options: dict[str, Any] = {"on_limit": Asked(Suspend()), "budget": Budget(max_tool_calls=2)}
    result, rt = await agent.run("go", resume_policy=policy, **options)
    one, two = result.pendings
    assert [r.data["limit"] for r in (one, two)] == [
        {"limit": "maxToolCalls", "at": "root", "handle": f"root/lead.1/c.{n}", "cap": 2, "spent": 2}
        for n in (1, 2)
    ]
    told = ["child done", "child done"]
    if order == "together":
        result = await rt.resume([yes(two, 1), yes(one, 1)])
    elif order == "enough for both":
        result = await rt.resume(yes(one, 90))
    else:
        before, after = (two, one) if order == "the second" else (one, two)
        result = await rt.resume(yes(before, 1))
        # The other question was about a cap of 2; it is taken back, and asked anew about the one of 3.
        (again,) = result.pendings
        assert (result.status, ran, again.path, again.id != after.id) == ("pending", ["x"], after.path, True)
        assert again.data["limit"] == {**cast("Any", after.data["limit"]), "cap": 3, "spent": 3}
        with pytest.raises(AlreadyAnswered):
            await rt.resume(yes(after, 1))
        result = await rt.resume(no(again) if order == "refused" else yes(again, 1))
        if order == "refused":
            told = ["child done", "[incomplete] Stopped at maxToolCalls (3) of root without a final answer."]
    assert (result.status, result.text) == ("done", "told")
    assert tools_said(rt.transcript("root/lead.1")) == told
    assert ran == ["x"] * told.count("child done")
    assert result.replay == NOTHING_AGAIN
    assert models(agent) == 2 + 2 + told.count("child done")


async def test_an_extension_is_for_everyone_below_the_cap() -> None:
    asked = Asked(lambda info: Extend(Budget(max_tool_calls=int(info.spent) + 1)))
    result, rt = await pair(World().t).run("go", on_limit=asked, budget=Budget(max_tool_calls=2))
    assert (result.status, rt.remaining("root").max_tool_calls) == ("done", 0)
    assert {told[4] for told in asked.told} == {"root/lead.1/c.1", "root/lead.1/c.2"}


async def test_a_child_that_stops_is_told_and_its_parent_is_asked_for_itself() -> None:
    asked = Asked(Stop(), Extend(Budget(max_model_calls=9)))
    agent = team(
        {}, lead=[call("task", agent="mid", prompt="p"), "lead done"], mid=["never"], worker=["never"]
    )
    result, rt = await agent.run("go", on_limit=asked, budget=Budget(max_model_calls=1))
    whose = [(told[1], told[4]) for told in asked.told]
    assert whose == [("root", "root/lead.1/mid.1"), ("root", "root/lead.1")]
    assert result.text == "lead done"
    assert tools_said(rt.transcript("root/lead.1"))[0].startswith("[incomplete] Stopped at maxModelCalls (1)")


@both
async def test_beside_an_approval(policy: ResumePolicy) -> None:
    """The budget is answered without a replay; the approval before it replays, or not, as its policy says."""
    ran: list[int] = []

    @tool
    def t(n: int) -> str:
        ran.append(n)
        return str(n)

    model = MockModel([[call("t", n=1), call("approve")], call("t", n=2), "done"])
    agent = Agent("w", does="x", tools=[t, approve], model=model, budget=Budget(max_model_calls=2))
    result, rt = await agent.run("go", on_limit=Asked(Suspend()), resume_policy=policy)
    result = await rt.resume(yes(result))
    again = policy is ResumePolicy.REWIND
    request = first(result)
    assert (request.kind, request.replays, request.turns_again) == ("budget", (), 0)
    assert len(model.requests) == 2
    result = await rt.resume(yes(request, 9))
    assert (result.status, ran) == ("done", [1, 1, 2] if again else [1, 2])
    assert (len(model.requests), result.turns) == ((4, 4) if again else (3, 3))
    assert result.replay is not None
    assert result.replay.calls_rerun == ()


async def test_extend_while_a_person_is_asked_says_to_answer() -> None:
    world = World()
    result, rt = await world.run(CASES[2], on_limit=Asked(Suspend()))
    for handle in (None, W):
        with pytest.raises(UsageError, match=f"answer request {first(result).id}"):
            await rt.extend(Budget(max_tool_calls=9), handle=handle)
    assert rt.result() == result
    world.is_done(await rt.resume(yes(result, 9)))


async def test_an_interrupt_takes_the_question_back() -> None:
    result, rt = await World().run(CASES[2], on_limit=Asked(Suspend()))
    await rt.interrupt()
    assert (rt.result().status, rt.pendings()) == ("interrupted", ())
    with pytest.raises(AlreadyAnswered):
        await rt.resume(yes(result, 9))


async def test_a_gate_and_the_end_of_the_time_in_a_call_are_not_asked_about() -> None:
    asked = Asked(Extend(Budget(max_wall=99)))
    gate = Completion(lambda attempt: (False, "no"), max_attempts=1)
    result, _ = await Agent("w", does="x", model=MockModel(["a"]), completion=gate).run("go", on_limit=asked)
    assert result.limit == "completion"
    clock = VirtualClock()
    slow = MockModel(["a"], think_time=20, clock=clock)
    agent = Agent("w", does="x", model=slow, budget=Budget(max_wall=15))
    rt = Runtime(agent, clock=clock, on_limit=asked)
    result = await driven(clock, rt.run("go"), 15, 5)
    assert (result.limit, asked.infos) == ("maxWall", [])


async def test_a_call_that_waits_for_what_is_reserved_asks_once_it_is_spent() -> None:
    """Two at once under one cap: the second waits for the first, whose reply leaves nothing."""
    go_on = anyio.Event()
    waits = anyio.Event()

    async def script(request: ModelRequest) -> Any:
        if request.agent == "lead":
            prompts = [call("task", agent="c", prompt=str(n)) for n in (1, 2)]
            return "told" if len(request.messages) > 1 else prompts
        if request.messages[0].text == "1" and not go_on.is_set():
            waits.set()
            await go_on.wait()
        return say("done", tokens=1_000)

    model = MockModel(script)
    agent = Agent("lead", does="x", model=model, team=[Agent("c", does="x")])
    asked = Asked(Extend(Budget(max_tokens=9_000)))
    rt = Runtime(agent, model=model, on_limit=asked, budget=Budget(max_tokens=1_100))
    async with anyio.create_task_group() as group:
        group.start_soon(rt.run, "go")
        await waits.wait()
        assert (len(model.requests), asked.infos) == (2, [])
        go_on.set()
    assert (rt.result().text, asked.told) == ("told", [("maxTokens", "root", 1100, 1100, "root/lead.1/c.2")])


async def test_a_loop_asks_at_its_own_pools_and_at_the_turns_of_each_prompt() -> None:
    asked = Asked(Extend(Budget(max_tokens=400)), Suspend(), Extend(Budget(max_turns=3)))
    model = MockModel(prompts=[["a"], ["b"], ["c"], ["d"], [call("nope"), call("nope"), "e"]])
    loop = Agent("w", does="x", model=model, budget=Budget(max_tokens=200, max_turns=2)).loop(on_limit=asked)
    assert [(await loop.run(text)).status for text in "1234"] == ["done"] * 4
    assert asked.told == [("maxTokens", W, 200, 200, W)]
    result = await loop.run("5")
    assert (result.status, loop.status) == ("pending", "suspended")
    with pytest.raises(AwaitingAnswer):
        await loop.run("6")
    result = await loop.resume(yes(result, 9_000))
    assert (result.status, result.text, result.turns) == ("done", "e", 7)
    assert asked.told[1:] == [("maxTokens", W, 400, 400, W), ("maxTurns", W, 2, 2, W)]
    assert len(model.requests) == 7


@pytest.mark.parametrize("says", ["extend", "suspend"])
@pytest.mark.parametrize("when", ["before", "after"])
@both
async def test_a_process_that_dies_anywhere(says: str, when: Any, policy: ResumePolicy) -> None:
    """However often it is begun anew, it comes to the same end, and only what was cut off is bought again."""
    at = 0
    while True:
        at += 1
        world = World()
        store = CrashingStore(world.store, crash_at=at, when=when)
        asked = Asked(Suspend() if says == "suspend" else plus(100))
        agent = world.agent(CASES[2])
        options: dict[str, Any] = {"on_limit": asked, "clock": world.clock}
        rt = Runtime(agent, store=store, run_id="r", resume_policy=policy, **options)
        try:
            result = await rt.run("go")
            while result.status == "pending":
                result = await rt.resume(yes(result, 100))
        except (Crashed, StoreError, BaseExceptionGroup):
            assert store.crashed
        if not store.crashed:
            break
        if at == 1 and when == "before":
            continue
        rt = await Runtime.open(agent, "r", store=store.survivor, **options)
        result = await (rt.recover() if rt._driver.tree.entry is not None else rt.run("go"))
        while result.status == "pending":
            result = await rt.resume(yes(result, 100))
        assert (result.status, result.text) == ("done", "done")
        assert len(world.model.requests) in (3, 4)
        assert sorted(set(world.ran)) == [1, 2, 3, 4]
        assert len(world.ran) <= 5
        assert len(asked.infos) in (1, 2)
    assert at > 8


async def test_a_host_cancelled_while_it_is_asked_can_go_on() -> None:
    world, begun = World(), anyio.Event()

    async def on_limit(info: LimitInfo) -> LimitDecision:
        if not begun.is_set():
            begun.set()
            await anyio.sleep_forever()
        return plus(9)(info)

    rt = Runtime(world.agent(CASES[2]), on_limit=on_limit, clock=world.clock)
    async with anyio.create_task_group() as group:
        group.start_soon(rt.run, "go")
        await begun.wait()
        group.cancel_scope.cancel()
    assert rt.result().status == "interrupted"
    world.is_done(await rt.recover())
