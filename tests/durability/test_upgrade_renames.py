"""Tools and agents that have another name since a run was parked: the same calls, the same keys, the same children."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.durability.crew import RUN, facts_of

from overt import (
    Agent,
    Answer,
    Budget,
    ResumePolicy,
    Runtime,
    TaskResult,
    ToolContext,
    ToolMessage,
    Upgrade,
    require_approval,
    tool,
)
from overt.core import facts as f
from overt.errors import DefinitionError, SpecDrift
from overt.stores import MemoryStore, SQLiteStore, Store
from overt.testing import MockModel, VirtualClock, call, say

pytestmark = pytest.mark.anyio
policies = pytest.mark.parametrize("policy", list(ResumePolicy))


class World:
    """What tools have done, and under which key."""

    def __init__(self) -> None:
        self.did: list[tuple[str, str]] = []

    def tool(self, does: str, name: str, *, asks: bool = False, **options: Any) -> Any:
        async def act(ctx: ToolContext[None], n: int) -> str:
            if asks:
                answer = await ctx.ask("Do it?", data={"n": n})
                self.did.append((does, ctx.idempotency_key))
                return f"{does} {answer.data}"
            self.did.append((does, ctx.idempotency_key))
            return does

        return tool(act, name=name, description="Acts.", **options)

    def keys(self, does: str) -> list[str]:
        return [key for what, key in self.did if what == does]


def crew(world: World, *, book: str, look: str, pay: str, helper: str, lead: str = "lead") -> Agent:
    """A team whose names change: a `reuse` tool, a `rerun` tool, and a helper whose tool asks."""
    below = Agent(helper, does="Pays.", tools=[world.tool("pay", pay, asks=True)])
    tools = [world.tool("book", book, on_replay="reuse"), world.tool("look", look)]
    return Agent(lead, does="Leads.", tools=tools, team=[below])


def model(*, book: str, look: str, pay: str, helper: str, lead: str = "lead") -> MockModel:
    return MockModel(
        {
            lead: [
                [call(book, n=1), call(look, n=2)],
                [call("task", agent=helper, prompt="p"), call(look, n=2)],
                say("end"),
            ],
            helper: [call(pay, n=7), say("paid")],
        }
    )


OLD = {"book": "book", "look": "look", "pay": "pay", "helper": "b"}
NEW = {"book": "reserve", "look": "inspect", "pay": "transfer", "helper": "payer"}
UPGRADE = Upgrade(
    tools={"book": "reserve", "look": "inspect", "pay": "transfer"}, agents={"b": "payer", "old": "lead"}
)


async def parked(world: World, store: Store, policy: ResumePolicy) -> None:
    result, _ = await crew(world, **OLD).run(
        "go", model=model(**OLD), store=store, run_id=RUN, resume_policy=policy
    )
    assert result.status == "pending"


def yes(runtime: Runtime[Any]) -> Answer[Any]:
    return Answer(id=runtime.pendings()[0].id, ok=True, data="yes")


@policies
async def test_a_run_goes_on_under_the_new_names(policy: ResumePolicy, tmp_path: Path) -> None:
    world = World()
    store = SQLiteStore(tmp_path / "runs.db")
    await parked(world, store, policy)
    before = list(world.did)
    with pytest.raises(SpecDrift) as caught:
        await Runtime.open(crew(world, **NEW), RUN, model=model(**NEW), store=store)
    assert [(d.kind, d.handle, d.agent, d.tool) for d in caught.value.drifts] == [
        ("tool", "root/lead.1", "lead", "book"),
        ("tool", "root/lead.1", "lead", "look"),
        ("agent", "root/lead.1/b.1", "b", None),
    ]
    recorded = await facts_of(store)
    runtime = await Runtime.open(crew(world, **NEW), RUN, model=model(**NEW), store=store, upgrade=UPGRADE)
    assert await facts_of(store) == recorded, "opening wrote something"
    result = await runtime.resume(yes(runtime))
    assert (result.status, result.text) == ("done", "end")
    assert [view.id for view in runtime.list()] == ["root/lead.1", "root/lead.1/b.1"], "the child was found"
    assert runtime.inspect("root/lead.1/b.1").agent == "payer"
    # The outside world has seen these keys: under the new names they are the same.
    assert len(world.keys("book")) == 1
    assert set(world.keys("look")) == {key for what, key in before if what == "look"}
    assert len(world.keys("look")) == (2 if policy is ResumePolicy.CONTINUE else 4)
    assert len(set(world.keys("look"))) == 2
    assert len(world.keys("pay")) == 1
    assert result.replay is not None
    assert not result.replay.unused_answers
    assert not result.replay.unused_children
    assert {c.tool for c in result.replay.calls_rerun} <= {"inspect"}
    assert [c.tool for c in result.replay.calls_reused] == ["reserve"] * (policy is ResumePolicy.REWIND)
    # All of it can be read.
    new = (await facts_of(store))[len(recorded) :]
    renamed: list[f.Fact] = [
        f.AgentRenamed("b", "payer"),
        f.ToolRenamed("root/lead.1", "book", "reserve"),
        f.ToolRenamed("root/lead.1", "look", "inspect"),
        f.ToolRenamed("root/lead.1/b.1", "pay", "transfer"),
    ]
    assert new[:4] == renamed
    assert isinstance(new[4], f.PlanChanged)
    assert sum("ToolRenamed(old='book', new='reserve')" in line for line in runtime.trace()) == 1
    seen = [e.data for e in runtime.events() if e.kind == "recorded" and e.fact == "tool_renamed"]
    assert seen[0] == {"old": "book", "new": "reserve"}
    finished = [e.name for e in runtime.events(after=len(recorded)) if e.kind == "tool_finished"]
    assert "transfer" in finished
    assert not {"book", "look", "pay"} & set(finished)
    await store.close()


@policies
async def test_requests_show_the_new_name_once_the_run_is_taken(policy: ResumePolicy) -> None:
    world, store = World(), MemoryStore()
    await parked(world, store, policy)
    runtime = await Runtime.open(crew(world, **NEW), RUN, model=model(**NEW), store=store, upgrade=UPGRADE)
    (request,) = runtime.pendings()
    assert request.data["call"] == {"tool": "pay", "arguments": {"n": 7}}
    await runtime.recover()
    (again,) = runtime.pendings()
    assert (again.id, again.prompt) == (request.id, request.prompt)
    assert again.data == {"call": {"tool": "transfer", "arguments": {"n": 7}}, "n": 7}
    assert {c.tool for c in again.replays} == ({"inspect"} if policy is ResumePolicy.REWIND else set())
    assert (await runtime.resume(yes(runtime))).text == "end"


@policies
async def test_the_transcript_keeps_what_was_said(policy: ResumePolicy) -> None:
    """Call and result of one exchange bear one name, or a provider refuses them."""
    store, world = MemoryStore(), World()
    await parked(world, store, policy)
    runtime = await Runtime.open(crew(world, **NEW), RUN, model=model(**NEW), store=store, upgrade=UPGRADE)
    await runtime.resume(yes(runtime))
    for handle in ("root/lead.1", "root/lead.1/b.1"):
        said: dict[str, str] = {}
        for message in runtime.transcript(handle):
            if message.role == "assistant":
                said |= {c.id: c.name for c in message.tool_calls}
            elif isinstance(message, ToolMessage):
                assert said[message.call_id] == message.name
        names = {"book", "look", "task", "pay"} if policy is ResumePolicy.CONTINUE else set(NEW.values())
        assert set(said.values()) <= names | {"task"}


CHAIN = {"book": "reserve", "reserve": "hold", "look": "inspect", "pay": "transfer"}


@policies
@pytest.mark.parametrize("at_once", [True, False])
async def test_chains(policy: ResumePolicy, at_once: bool) -> None:
    """book became reserve, later hold: taken by a process of each release, or by one of the last alone."""
    world, store = World(), MemoryStore()
    await parked(world, store, policy)
    if not at_once:
        between = await Runtime.open(
            crew(world, **NEW), RUN, model=model(**NEW), store=store, upgrade=UPGRADE
        )
        assert (await between.recover()).status == "pending"
    last = NEW | {"book": "hold", "helper": "cashier"}
    upgrade = Upgrade(tools=CHAIN, agents={"b": "payer", "payer": "cashier"})
    runtime = await Runtime.open(crew(world, **last), RUN, model=model(**last), store=store, upgrade=upgrade)
    result = await runtime.resume(yes(runtime))
    assert (result.status, result.text) == ("done", "end")
    assert len(world.keys("book")) == 1
    assert len(set(world.keys("look"))) == 2
    assert len(runtime.list()) == 2
    assert runtime.inspect("root/lead.1/b.1").agent == "cashier"
    hops = [x for x in await facts_of(store) if isinstance(x, f.ToolRenamed) and x.new in ("reserve", "hold")]
    steps = [("book", "hold")] if at_once else [("book", "reserve"), ("reserve", "hold")]
    assert [(x.old, x.new) for x in hops] == steps


async def test_taken_twice_it_is_recorded_once() -> None:
    world, store = World(), MemoryStore()
    await parked(world, store, ResumePolicy.REWIND)
    for _ in range(3):
        runtime = await Runtime.open(
            crew(world, **NEW), RUN, model=model(**NEW), store=store, upgrade=UPGRADE
        )
        assert (await runtime.recover()).status == "pending"
    facts = await facts_of(store)
    assert sum(isinstance(x, f.ToolRenamed) for x in facts) == 3
    assert sum(isinstance(x, f.AgentRenamed) for x in facts) == 1


async def test_what_the_run_never_used_and_what_is_still_there_are_left_alone() -> None:
    world, store = World(), MemoryStore()
    await parked(world, store, ResumePolicy.REWIND)
    before = await facts_of(store)
    upgrade = Upgrade(tools={"nothing": "look", "look": "inspect"}, agents={"nobody": "b", "lead": "boss"})
    runtime = await Runtime.open(crew(world, **OLD), RUN, model=model(**OLD), store=store, upgrade=upgrade)
    await runtime.recover()
    assert await facts_of(store) == before


async def test_a_name_that_is_in_use_is_not_given_to_another() -> None:
    world, store = World(), MemoryStore()
    await parked(world, store, ResumePolicy.REWIND)
    merged = Agent("lead", does="Leads.", tools=[world.tool("look", "look")], team=[Agent("b", does="Pays.")])
    upgrade = Upgrade(tools={"book": "look", "pay": "transfer"})
    with pytest.raises(SpecDrift, match="'book' cannot be called 'look' from now on") as caught:
        await Runtime.open(merged, RUN, model=model(**OLD), store=store, upgrade=upgrade, on_drift="accept")
    (drift,) = caught.value.drifts
    assert (drift.kind, drift.acceptable, drift.tool) == ("rename", False, "book")
    assert "leave 'book' out of Upgrade(tools=…)" in drift.how


async def test_two_agents_do_not_become_one() -> None:
    store = MemoryStore()
    pay = World().tool("pay", "pay", asks=True)
    two = [Agent("b", does="Pays.", tools=[pay]), Agent("c", does="Pays.", tools=[pay])]
    script = MockModel(
        {
            "lead": [[call("task", agent="b", prompt="p"), call("task", agent="c", prompt="p")], say("end")],
            "b": [call("pay", n=1), say("b")],
            "c": [call("pay", n=1), say("c")],
        }
    )
    await Agent("lead", does="Leads.", team=two).run("go", model=script, store=store, run_id=RUN)
    one = Agent("lead", does="Leads.", team=two[1:])
    with pytest.raises(SpecDrift, match="agent 'b' cannot be called 'c'") as caught:
        await Runtime.open(one, RUN, model=script, store=store, upgrade=Upgrade(agents={"b": "c"}))
    assert [d.kind for d in caught.value.drifts] == ["rename"]
    both = Agent("lead", does="Leads.", team=[Agent("d", does="Pays.", tools=[pay])])
    with pytest.raises(SpecDrift, match="agent 'c' cannot be called 'd'"):
        await Runtime.open(both, RUN, model=script, store=store, upgrade=Upgrade(agents={"b": "d", "c": "d"}))


@policies
async def test_a_new_tool_under_the_old_name_is_another(policy: ResumePolicy) -> None:
    """The old name comes back as something else: its calls have keys of their own, and none of the old results."""
    world, store = World(), MemoryStore()

    def made(*tools: Any) -> Agent:
        return Agent("lead", does="Leads.", tools=[*tools, world.tool("pay", "pay", asks=True)])

    first = MockModel([[call("book", n=1), call("pay", n=7)], say("end")])
    booking = world.tool("book", "book", on_replay="reuse")
    await made(booking).run("go", model=first, store=store, run_id=RUN, resume_policy=policy)
    renamed = world.tool("book", "reserve", on_replay="reuse")
    second = MockModel([[call("reserve", n=1), call("pay", n=7)], say("end")])
    upgrade = Upgrade(tools={"book": "reserve"})
    between = await Runtime.open(made(renamed), RUN, model=second, store=store, upgrade=upgrade)
    assert (await between.recover()).status == "pending"
    read = world.tool("read a book", "book", on_replay="reuse")
    # A replay makes the new call first: it is given neither the old one's key nor its result.
    batch = [call("book", n=1), call("reserve", n=1), call("pay", n=7)]
    third = MockModel([batch, [call("book", n=1), call("reserve", n=1)], say("end")])
    runtime = await Runtime.open(made(renamed, read), RUN, model=third, store=store)
    result = await runtime.resume(yes(runtime))
    assert (result.status, result.text) == ("done", "end")
    # The second `reserve` is a second booking; the new `book` is neither.
    assert len(world.keys("book")) == len(set(world.keys("book"))) == 2
    assert len(world.keys("read a book")) == (2 if policy is ResumePolicy.REWIND else 1)
    assert not set(world.keys("read a book")) & set(world.keys("book"))


@policies
async def test_the_entry_agent_of_a_finished_run_and_of_a_loop(policy: ResumePolicy) -> None:
    store = MemoryStore()
    old = Agent("old", does="Counts.", output_type=int, model=MockModel([call("final_result", value=3)]))
    result, _ = await old.run("go", store=store, run_id="done", resume_policy=policy)
    assert result.output == 3
    new = Agent("new", does="Counts.", output_type=int, model=MockModel([call("final_result", value=4)]))
    upgrade = Upgrade(agents={"old": "new"})
    with pytest.raises(SpecDrift, match=r"started with agent 'old', not 'new'.*Upgrade\(agents="):
        await Runtime.open(new, "done", store=store)
    runtime = await Runtime.open(new, "done", store=store, upgrade=upgrade)
    assert runtime.result().output == 3
    await runtime.recover()
    assert runtime.result().output == 3

    talk = Agent("old", does="Talks.", model=MockModel([say("one")])).loop(store=store, run_id="loop")
    await talk.run("1")
    from overt import Loop

    again = await Loop.open(
        Agent("new", does="Talks.", model=MockModel([say("two")])), "loop", store=store, upgrade=upgrade
    )
    two = await again.run("2")
    assert (two.text, two.handle, two.turns) == ("two", "root/old.1", 2)
    assert again.runtime.inspect("root/old.1").agent == "new"
    assert (await again.run("3")).handle == "root/old.1"


@policies
async def test_an_agent_that_is_a_tool_has_two_names(policy: ResumePolicy) -> None:
    world, store = World(), MemoryStore()

    def made(name: str) -> Agent:
        helper = Agent(name, does="Pays.", tools=[world.tool("pay", "pay", asks=True)])
        return Agent("lead", does="Leads.", tools=[helper.as_tool()])

    def says(name: str) -> MockModel:
        return MockModel({"lead": [call(name, prompt="p"), say("end")], name: [call("pay", n=1), say("ok")]})

    await made("b").run("go", model=says("b"), store=store, run_id=RUN, resume_policy=policy)
    upgrade = Upgrade(tools={"b": "payer"}, agents={"b": "payer"})
    runtime = await Runtime.open(made("payer"), RUN, model=says("payer"), store=store, upgrade=upgrade)
    result = await runtime.resume(yes(runtime))
    assert (result.status, result.text) == ("done", "end")
    assert len(runtime.list()) == 2
    assert len(world.keys("pay")) == 1


@policies
async def test_what_a_rule_has_let_pass_is_let_pass_under_the_new_name(policy: ResumePolicy) -> None:
    """Also where the approved delegation has not begun: the approval is found under both names."""
    world, store = World(), MemoryStore()

    def made(book: str, helper: str) -> Agent:
        return Agent(
            "lead",
            does="Leads.",
            tools=[world.tool("book", book)],
            team=[Agent(helper, does="Helps.")],
            guardrails=[require_approval(book, "task")],
        )

    def says(book: str, helper: str) -> MockModel:
        return MockModel(
            {
                "lead": [[call(book, n=1), call("task", agent=helper, prompt="p")], say("end")],
                helper: [say("ok")],
            }
        )

    result, _ = await made("book", "b").run(
        "go", model=says("book", "b"), store=store, run_id=RUN, resume_policy=policy
    )
    assert len(result.pendings) == 2
    upgrade = Upgrade(tools={"book": "reserve"}, agents={"b": "payer"})
    runtime = await Runtime.open(
        made("reserve", "payer"), RUN, model=says("reserve", "payer"), store=store, upgrade=upgrade
    )
    result = await runtime.resume([Answer(id=r.id, ok=True) for r in result.pendings])
    assert (result.status, result.text) == ("done", "end")
    assert [view.id for view in runtime.list()] == ["root/lead.1", "root/lead.1/payer.1"]
    assert len(world.keys("book")) == 1
    assert not any(r.diverged for r in runtime.pendings())


async def test_what_a_limit_stop_has_left_open_is_replayed_under_the_new_name() -> None:
    """The stop is what a rewind goes back to: its open calls are renamed with those of the batch."""
    world, store = World(), MemoryStore()

    def made(book: str, pay: str) -> Agent:
        tools = [world.tool("book", book, on_replay="reuse"), world.tool("pay", pay, asks=True)]
        return Agent("lead", does="Leads.", tools=tools)

    def says(book: str, pay: str) -> MockModel:
        return MockModel([[call(book, n=1), call(pay, n=7)], say("end")])

    stopped, _ = await made("book", "pay").run(
        "go", model=says("book", "pay"), store=store, run_id=RUN, budget=Budget(max_tool_calls=1)
    )
    assert stopped.status == "incomplete"
    upgrade = Upgrade(tools={"book": "reserve", "pay": "transfer"})
    runtime = await Runtime.open(
        made("reserve", "transfer"), RUN, model=says("reserve", "transfer"), store=store, upgrade=upgrade
    )
    result = await runtime.extend(Budget(max_tool_calls=9))
    assert result.pending is not None
    result = await runtime.resume(yes(runtime))
    assert (result.status, result.text, result.replay is not None) == ("done", "end", True)
    assert [what for what, _ in world.did] == ["book", "pay"]
    assert any(isinstance(x, f.Rewound) for x in await facts_of(store))


async def test_a_doubt_is_settled_under_the_new_name() -> None:
    world, store = World(), MemoryStore()

    class Died(BaseException):
        pass

    async def book(ctx: ToolContext[None], n: int) -> str:
        """Book."""
        world.did.append(("book", ctx.idempotency_key))
        raise KeyboardInterrupt

    old = Agent("lead", does="Books.", tools=[tool(book, on_replay="reuse")])
    with pytest.raises(KeyboardInterrupt):
        await old.run("go", model=MockModel([call("book", n=1)]), store=store, run_id=RUN)
    new = Agent("lead", does="Books.", tools=[world.tool("book", "reserve", on_replay="reuse")])
    runtime = await Runtime.open(
        new,
        RUN,
        model=MockModel([call("reserve", n=1), say("end")]),
        store=store,
        upgrade=Upgrade(tools={"book": "reserve"}),
    )
    result = await runtime.recover()
    assert result.pending is not None
    assert result.pending.kind == "in_doubt"
    assert result.pending.data["call"] == {"tool": "reserve", "arguments": {"n": 1}}
    result = await runtime.resume(Answer(id=result.pending.id, ok=True, data={"outcome": "retry"}))
    assert result.text == "end"
    assert len(world.keys("book")) == 2
    assert len(set(world.keys("book"))) == 1


async def test_an_answer_may_change_the_arguments_of_a_renamed_tool() -> None:
    world, store = World(), MemoryStore()

    def made(name: str) -> Agent:
        tools = [world.tool("book", name)]
        return Agent("lead", does="Books.", tools=tools, guardrails=[require_approval(name)])

    result, _ = await made("book").run(
        "go", model=MockModel([call("book", n=1), say("end")]), store=store, run_id=RUN
    )
    assert result.pending is not None
    runtime = await Runtime.open(
        made("reserve"),
        RUN,
        model=MockModel([call("reserve", n=1), say("end")]),
        store=store,
        upgrade=Upgrade(tools={"book": "reserve"}),
    )
    answer = Answer(id=result.pending.id, ok=True, data={"arguments": {"n": 5}})
    done: TaskResult[Any] = await runtime.resume(answer)
    assert done.text == "end"
    assert len(world.did) == 1


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"tools": {"a": "a"}}, "leads from 'a' back to 'a'"),
        ({"agents": {"a": "b", "b": "a"}}, "leads from 'a' back to 'a'"),
        ({"tools": {"x": "a", "a": "b", "b": "c", "c": "a"}}, "back to 'a'"),
        ({"tools": {"a": ""}}, "'' *, which is no name"),
        ({"tools": {1: "a"}}, "1, which is no name"),
        ({"tools": {"a": ["b"]}}, "which is no name"),
        ({"tools": "ab"}, "maps old names to new ones"),
        ({"arguments": 3}, "arguments has to be a function"),
        ({"questions": "x"}, "questions has to be a function"),
    ],
)
async def test_an_upgrade_that_is_none_is_refused(given: Any, what: str) -> None:
    with pytest.raises(DefinitionError, match=what):
        Upgrade(**given)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"upgrade": {"tools": {}}}, "has to be an Upgrade"),
        ({"on_drift": "ignore"}, "'refuse' or 'accept'"),
        ({"upgrade": Upgrade(arguments=lambda tool: {})}, "has to take 2 arguments"),  # type: ignore[arg-type,misc]
    ],
)
async def test_options_of_the_wrong_kind_are_refused(options: Any, what: str) -> None:
    with pytest.raises(DefinitionError, match=what):
        Runtime(Agent("a", does="Acts.", model=MockModel([say("x")])), **options)


async def test_an_upgrade_cannot_be_changed() -> None:
    names = {"a": "b"}
    upgrade = Upgrade(tools=names)
    names["a"] = "c"
    assert upgrade.tools == {"a": "b"}
    with pytest.raises(TypeError):
        upgrade.tools["a"] = "c"  # type: ignore[index]
    clock = VirtualClock()
    result, _ = await Agent("a", does="Acts.", model=MockModel([say("x")])).run(
        "go", upgrade=upgrade, on_drift="accept", clock=clock
    )
    assert result.text == "x", "a run that begins has nothing to upgrade"


async def test_an_interrupt_that_was_asked_for_comes_after_the_new_names() -> None:
    """What another process has asked for is obeyed by code that knows the run by its present names."""
    world, store = World(), MemoryStore()
    await parked(world, store, ResumePolicy.REWIND)
    before = await facts_of(store)
    await store.ask_interrupt(RUN, reason="enough")
    runtime = await Runtime.open(crew(world, **NEW), RUN, model=model(**NEW), store=store, upgrade=UPGRADE)
    result = await runtime.recover()
    assert result.status == "interrupted"
    new = (await facts_of(store))[len(before) :]
    cancelled = next(n for n, x in enumerate(new) if isinstance(x, f.RequestCancelled))
    renamed = [n for n, x in enumerate(new) if isinstance(x, f.AgentRenamed | f.ToolRenamed | f.PlanChanged)]
    assert len(renamed) == 5
    assert max(renamed) < cancelled
