"""Pools: tokens, model calls and tool calls, for the handle's life and its subtree; which cap was binding."""

from __future__ import annotations

from typing import Any

import pytest

from overt import (
    Agent,
    Answer,
    Budget,
    Limit,
    ResumePolicy,
    Runtime,
    ToolContext,
    ToolMessage,
    tool,
)
from overt.errors import ModelError, UsageError
from overt.message import Usage
from overt.stores import MemoryStore
from overt.testing import MockModel, call, raw_call, say

ran: list[int] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool
def t(n: int) -> str:
    ran.append(n)
    return f"ran {n}"


@tool(on_replay="reuse")
def u(n: int) -> str:
    ran.append(n)
    return f"ran {n}"


@tool
async def ask(ctx: ToolContext[object], n: int) -> str:
    ran.append(n)
    return f"answered {(await ctx.ask(f'ok {n}?')).ok}"


def agent(**budget: Any) -> Agent[None, str]:
    return Agent("a", does="works", tools=[t, u, ask], budget=Budget(**budget))


def batch(*numbers: int, name: str = "t") -> list[Any]:
    return [call(name, n=n) for n in numbers]


def results(rt: Runtime[Any], handle: str = "root/a.1") -> list[ToolMessage]:
    return [m for m in rt.transcript(handle) if isinstance(m, ToolMessage)]


# ------------------------------------------------------------ each limit by its name


@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        ({"max_turns": 2}, "maxTurns"),
        ({"max_tokens": 200}, "maxTokens"),
        ({"max_tokens": 150}, "maxTokens"),
        ({"max_model_calls": 2}, "maxModelCalls"),
        ({"max_tool_calls": 1}, "maxToolCalls"),
    ],
)
@pytest.mark.parametrize("where", ["own", "root"])
async def test_each_stop_names_its_limit_and_whose_it_is(
    budget: dict[str, Any], limit: str, where: str
) -> None:
    model = MockModel([[say("one"), *batch(1)], [say("two"), *batch(2)], "three"])
    options: dict[str, Any] = {} if where == "own" else {"budget": Budget(**budget)}
    own = budget if where == "own" else {}
    result, rt = await agent(**own).run("go", model=model, **options)
    assert (result.status, result.limit) == ("incomplete", limit)
    assert result.limit_at == ("root" if where == "root" else "root/a.1")
    assert result.limit in list(Limit)
    assert limit in result.text
    assert (result.partial, result.turns, result.total_tokens) == ("two", 2, 200)
    assert len(results(rt)) == 2


async def test_of_several_binding_caps_the_one_nearest_the_root_is_told() -> None:
    lead = Agent(
        "lead", does="x", team=[agent(max_model_calls=1, max_turns=1)], budget=Budget(max_tokens=200)
    )
    model = MockModel({"lead": [call("task", agent="a", prompt="p"), "ok"], "a": [batch(1)] * 3})
    result, rt = await lead.run("go", model=model, budget=Budget(max_model_calls=2))
    assert (result.limit, result.limit_at) == ("maxModelCalls", "root")
    (message,) = results(rt, "root/lead.1")
    assert message.text.startswith("[incomplete]")
    assert message.metadata["limit"] == "maxTurns"


@pytest.mark.parametrize(
    ("own", "root", "limit", "at"),
    [
        ({"max_tokens": 200}, {"max_model_calls": 2}, "maxModelCalls", "root"),
        ({"max_model_calls": 2}, {"max_tokens": 200}, "maxTokens", "root"),
        ({"max_tokens": 200}, {"max_model_calls": 3}, "maxTokens", "root/a.1"),
        ({"max_turns": 0}, {"max_tokens": 0}, "maxTokens", "root"),
        ({"max_tokens": 0}, {"max_wall": 0}, "maxWall", "root"),
        ({"max_wall": 0}, {"max_tokens": 0}, "maxTokens", "root"),
    ],
)
async def test_two_caps_spent_at_once(own: Any, root: Any, limit: str, at: str) -> None:
    model = MockModel([batch(1), batch(2), "three"])
    result, _ = await agent(**own).run("go", model=model, budget=Budget(**root))
    assert (result.limit, result.limit_at) == (limit, at)


# ------------------------------------------------------------ tool calls


async def test_a_batch_that_does_not_fit_runs_in_order_up_to_the_cap() -> None:
    model = MockModel([batch(1, 2), batch(3, 4, 5), "done"])
    result, rt = await agent(max_tool_calls=4).run("go", model=model)
    assert (result.status, result.limit) == ("incomplete", "maxToolCalls")
    assert sorted(ran) == [1, 2, 3, 4]
    assert [m.text for m in results(rt)] == ["ran 1", "ran 2", "ran 3", "ran 4", "not run (maxToolCalls)"]
    assert results(rt)[-1].is_error
    assert result.turns == 2
    assert rt.remaining("root/a.1").max_tool_calls == 0
    done = await rt.extend(Budget(max_tool_calls=5))
    assert done.output == "done"
    assert sorted(ran) == [1, 2, 3, 4, 5]
    assert [m.text for m in results(rt)] == [f"ran {n}" for n in range(1, 6)]
    assert (done.turns, done.total_tokens) == (3, 300)


async def test_with_no_tool_call_left_the_model_may_still_answer() -> None:
    result, _ = await agent(max_tool_calls=2).run("go", model=MockModel([batch(1, 2), "done"]))
    assert (result.status, result.output) == ("done", "done")
    assert result.usage.tool_calls == 2


async def test_never_done_past_a_refused_call() -> None:
    model = MockModel([batch(1, 2), "done"])
    result, rt = await agent(max_tool_calls=1).run("go", model=model)
    assert result.status == "incomplete"
    assert len(model.requests) == 1
    again = await rt.extend(Budget(max_tool_calls=1))
    assert again.status == "incomplete"
    assert ran == [1]


async def test_what_draws_no_tool_call() -> None:
    """An unknown tool, invalid arguments, a name out of the team, and a call that asked and is entered again."""
    lead = Agent("a", does="x", tools=[t, ask], team=[Agent("b", does="x")], budget=Budget(max_tool_calls=2))
    script = [
        [
            call("nope"),
            call("t", n="x"),
            raw_call("t", "{"),
            call("task", agent="zz", prompt="p"),
            call("ask", n=1),
        ],
        [*batch(2), call("nope")],
        "done",
    ]
    result, rt = await lead.run("go", model=MockModel(script), resume_policy=ResumePolicy.CONTINUE)
    assert (result.status, result.usage.tool_calls) == ("pending", 1)
    done = await rt.resume(Answer(id=rt.pendings()[0].id, ok=True))
    assert (done.output, done.usage.tool_calls) == ("done", 2)
    assert ran == [1, 1, 2]


async def test_task_draws_on_the_caller_and_the_childs_calls_on_the_child() -> None:
    child = agent()
    lead = Agent("lead", does="x", team=[child])
    model = MockModel({"lead": [call("task", agent="a", prompt="p"), "ok"], "a": [batch(1, 2), "ok"]})
    result, rt = await lead.run("go", model=model)
    assert (result.own_usage.tool_calls, result.usage.tool_calls) == (1, 3)
    assert rt.ledger().children[0].children[0].own.tool_calls == 2


async def test_a_replay_draws_again_but_not_for_what_is_reused_or_reattached() -> None:
    child = Agent("b", does="x")
    lead = Agent("a", does="x", tools=[t, u, ask], team=[child])
    first = [*batch(1), *batch(2, name="u"), call("task", agent="b", prompt="p"), call("ask", n=3)]
    model = MockModel({"a": [first, "done"], "b": ["text"]})
    result, rt = await lead.run("go", model=model)
    assert result.usage.tool_calls == 4
    done = await rt.resume(Answer(id=rt.pendings()[0].id, ok=True))
    assert done.output == "done"
    assert sorted(ran) == [1, 1, 2, 3, 3]
    # Again: `t` and `ask`. Not: the reused `u` and the reattached `task`.
    assert done.usage.tool_calls == 6


async def test_a_replay_from_a_limit_stop_draws_for_what_it_enters_again() -> None:
    agent_ = agent(max_tool_calls=2)
    model = MockModel([[*batch(1, name="ask"), *batch(2, 3)], "done"])
    result, rt = await agent_.run("go", model=model)
    assert result.status == "pending"
    stopped = await rt.resume(Answer(id=rt.pendings()[0].id, ok=True), policy=ResumePolicy.CONTINUE)
    assert (stopped.limit, stopped.usage.tool_calls) == ("maxToolCalls", 2)
    done = await rt.extend(Budget(max_tool_calls=3))
    assert (done.output, done.usage.tool_calls) == ("done", 3)
    assert sorted(ran) == [1, 1, 2, 3]


async def test_delegations_that_did_not_fit_are_started_when_the_wake_goes_on() -> None:
    lead = Agent("a", does="x", tools=[t], team=[Agent("b", does="x")], budget=Budget(max_tool_calls=2))
    tasks = [call("task", agent="b", prompt=p) for p in "pqr"]
    result, rt = await lead.run("go", model=MockModel({"a": [[*tasks, *batch(1)], "done"], "b": ["text"]}))
    assert (result.limit, len(rt.list()), ran) == ("maxToolCalls", 3, [])
    assert [m.text for m in results(rt)] == ["text", "text"] + ["not run (maxToolCalls)"] * 2
    done = await rt.extend(Budget(max_tool_calls=4))
    assert (done.output, len(rt.list()), ran) == ("done", 4, [1])
    assert [m.text for m in results(rt)] == ["text", "text", "text", "ran 1"]
    assert done.total_tokens == 500


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_a_limit_stop_moves_the_checkpoint(policy: ResumePolicy) -> None:
    model = MockModel([batch(1), batch(2), [*batch(3), *batch(4, name="ask")], "done"])
    result, rt = await agent(max_turns=2).run("go", model=model, resume_policy=policy)
    assert (result.limit, ran) == ("maxTurns", [1])
    parked = await rt.extend(Budget(max_turns=9))
    assert (parked.status, sorted(ran)) == ("pending", [1, 2, 3, 4])
    ran.clear()
    done = await rt.resume(Answer(id=rt.pendings()[0].id, ok=True))
    assert done.output == "done"
    # The turn before the stop is kept under both; what came after it is replayed under REWIND.
    assert sorted(ran) == ([2, 3, 4] if policy is ResumePolicy.REWIND else [4])
    assert [m.text for m in results(rt)] == ["ran 1", "ran 2", "ran 3", "answered True"]
    assert done.turns == (5 if policy is ResumePolicy.REWIND else 4)


# ------------------------------------------------------------ tokens


async def test_a_reply_cut_off_by_the_clamp_is_a_limit_and_not_a_failure() -> None:
    model = MockModel([say("hal", finish="length"), "whole"])
    result, rt = await agent(max_tokens=100).run("go", model=model)
    assert (result.status, result.limit, result.partial) == ("incomplete", "maxTokens", "hal")
    result, rt = await agent(max_tokens=100).run(
        "go", model=MockModel([[say("x", finish="length"), *batch(1)], "done"])
    )
    assert (result.status, result.limit, ran) == ("incomplete", "maxTokens", [])
    done = await rt.extend(Budget(max_tokens=1_000))
    assert (done.output, ran) == ("done", [])
    assert "cut off" in results(rt)[0].text


async def test_remaining_counts_what_is_reserved_for_calls_in_flight() -> None:
    seen: list[Any] = []
    rt: Runtime[Any]

    def think(request: Any) -> Any:
        seen.append((rt.remaining("root/a.1").max_tokens, rt.remaining("root/a.1").max_model_calls))
        return batch(1) if len(seen) == 1 else "done"

    rt = Runtime(agent(max_tokens=1_500, max_model_calls=5), model=MockModel(think))
    await rt.run("go")
    assert seen[0] == (500, 4)
    assert seen[1][1] == 3
    assert 1_200 < seen[1][0] < 1_400
    assert rt.remaining("root/a.1").max_tokens == 1_300


async def test_a_model_call_is_admitted_while_anything_is_left() -> None:
    result, _ = await agent(max_tokens=101).run("go", model=MockModel([batch(1), "done"]))
    assert (result.status, result.total_tokens) == ("done", 200)
    result, _ = await agent(max_tokens=100).run("go", model=MockModel([batch(1), "done"]))
    assert (result.status, result.total_tokens) == ("incomplete", 100)


async def test_the_output_limit_is_clamped_to_what_is_left() -> None:
    model = MockModel([batch(1), "done"])
    await agent(max_tokens=1000).run("go", model=model, budget=Budget(max_tokens=250))
    assert [r.max_output_tokens for r in model.requests] == [250, 150]
    model = MockModel(["done"])
    await agent().run("go", model=model)
    assert model.requests[0].max_output_tokens is None


async def test_a_call_without_usage_becomes_pool_spend() -> None:
    model = MockModel([[*batch(1), say("", usage=None)], "done"])
    result, rt = await agent(max_tokens=1000).run("go", model=model)
    assert (result.status, result.limit) == ("incomplete", "maxTokens")
    assert (result.total_tokens, result.usage.unreported_calls, result.turns) == (0, 1, 1)
    assert rt.remaining("root/a.1").max_tokens == 0


async def test_a_lost_call_becomes_pool_spend_and_counts_as_unreported() -> None:
    down = [True]

    def think(request: Any) -> Any:
        if len(request.messages) > 1 and down and down.pop():
            raise ModelError("HTTP 503")
        return "done" if len(request.messages) > 1 else batch(1)

    result, rt = await agent(max_tokens=1000).run("go", model=MockModel(think))
    assert (result.status, result.total_tokens, result.usage.unreported_calls) == ("error", 100, 1)
    left = rt.remaining("root/a.1").max_tokens
    assert left is not None
    assert 700 < left < 900
    done = await rt.recover()
    assert (done.status, done.total_tokens) == ("done", 200)
    assert rt.remaining("root/a.1").max_tokens == left - 100


async def test_parallel_children_overshoot_by_no_more_than_was_in_flight() -> None:
    lead = Agent("lead", does="x", team=[Agent("b", does="x")])
    tasks = [call("task", agent="b", prompt=str(n)) for n in range(5)]
    model = MockModel({"lead": [tasks, "ok"], "b": [say("text", tokens=400)]})
    result, rt = await lead.run("go", model=model, budget=Budget(max_tokens=600))
    # 100 for the lead; the first child reserves the 500 that are left, the others wait for it, and one more fits.
    assert (result.status, result.limit, result.limit_at) == ("incomplete", "maxTokens", "root")
    assert result.total_tokens == 900
    assert rt.remaining("root").max_tokens == 0
    assert [m.is_error for m in rt.transcript("root/lead.1") if isinstance(m, ToolMessage)].count(False) == 2


# ------------------------------------------------------------ turns


async def test_turns_are_per_attempt_of_a_wake() -> None:
    model = MockModel([call("ask", n=1), batch(2), "done"])
    _, rt = await agent(max_turns=3).run("go", model=model)
    done = await rt.resume(Answer(id=rt.pendings()[0].id, ok=True))
    assert (done.status, done.turns) == ("done", 4)
    async with Runtime(agent(max_turns=2), model=MockModel([batch(1), "done"])) as verbs:
        handle = await verbs.spawn("root", "a")
        assert (await verbs.run_turn(handle, "one")).status == "done"
        assert (await verbs.run_turn(handle, "two")).status == "done"


async def test_six_turns_unless_told_otherwise() -> None:
    result, _ = await Agent("a", does="x", tools=[t]).run("go", model=MockModel(lambda _: batch(1)))
    assert (result.limit, result.turns, len(ran)) == ("maxTurns", 6, 5)


async def test_a_reply_at_the_turn_cap_that_asks_for_tools_is_incomplete_and_enters_nothing() -> None:
    model = MockModel([[say("almost"), *batch(1), call("nope")]])
    result, rt = await agent(max_turns=1).run("go", model=model)
    assert (result.status, result.limit, result.partial) == ("incomplete", "maxTurns", "almost")
    assert ran == []
    assert [m.text for m in results(rt)] == ["not run (maxTurns)"] * 2


async def test_a_reply_at_the_turn_cap_that_answers_is_done() -> None:
    result, _ = await agent(max_turns=1).run("go", model=MockModel(["done"]))
    assert result.status == "done"


async def test_no_turn_at_all() -> None:
    result, _ = await agent(max_turns=0).run("go", model=MockModel(["done"]))
    assert (result.status, result.limit, result.turns) == ("incomplete", "maxTurns", 0)


# ------------------------------------------------------------ remaining and extend


async def test_remaining_is_the_least_along_the_ancestors_also_after_reopening() -> None:
    store = MemoryStore()
    a = agent(max_tokens=5_000, max_tool_calls=9, max_turns=2)
    options: dict[str, Any] = {"model": MockModel([batch(1), batch(2)]), "store": store}
    budget = Budget(max_tokens=1_000, max_model_calls=7)
    result, rt = await a.run("go", budget=budget, run_id="r", **options)
    left = rt.remaining(result.handle)
    assert (left.max_tokens, left.max_tool_calls, left.max_model_calls) == (800, 8, 5)
    assert (left.max_cost, left.max_wall, left.max_children) == (None, None, None)
    root = rt.remaining("root")
    assert (root.max_tokens, root.max_tool_calls, root.max_model_calls) == (800, None, 5)
    for given in (options, {**options, "budget": budget}):
        again = await Runtime.open(a, "r", **given)
        assert (again.remaining(result.handle), again.remaining("root")) == (left, root)


@pytest.mark.parametrize("named", [False, True])
async def test_extend_goes_on_in_a_second_runtime_entering_exactly_the_open_calls(named: bool) -> None:
    store = MemoryStore()
    options: dict[str, Any] = {"model": MockModel([batch(1, 2, 3), batch(4), "done"]), "store": store}
    first, _ = await agent().run("go", run_id="r", budget=Budget(max_tool_calls=2), **options)
    assert (first.limit, first.limit_at, sorted(ran)) == ("maxToolCalls", "root", [1, 2])
    rt = await Runtime.open(agent(), "r", **options)
    assert rt.result() == first
    second = await rt.extend(Budget(max_tool_calls=3), handle="root" if named else None)
    assert (second.limit, sorted(ran)) == ("maxToolCalls", [1, 2, 3])
    rt = await Runtime.open(agent(), "r", **options)
    third = await rt.extend(Budget(max_tool_calls=20))
    assert (third.output, sorted(ran)) == ("done", [1, 2, 3, 4])
    assert (third.turns, third.total_tokens, third.usage.tool_calls) == (3, 300, 4)
    assert third.limit is None


async def test_extend_raises_only_and_only_what_is_set() -> None:
    result, rt = await agent(max_tool_calls=1, max_tokens=900).run(
        "go", model=MockModel([batch(1, 2), "done"])
    )
    events = len(rt.events())
    for budget in (
        Budget(max_tool_calls=0),
        Budget(max_tool_calls=5, max_tokens=800),
        Budget(max_tool_calls=5, max_turns=5),
        Budget(max_model_calls=100),
    ):
        with pytest.raises(UsageError, match="extend"):
            await rt.extend(budget)
    with pytest.raises(UsageError, match="nothing stopped"):
        await rt.extend(Budget(max_concurrent=9), handle="root")
    # What the root has where nobody said anything is what a budget has.
    with pytest.raises(UsageError, match="max_concurrent of root is 8; 7"):
        await rt.extend(Budget(max_concurrent=7), handle="root")
    with pytest.raises(UsageError, match="max_depth of root is 3; 2"):
        await rt.extend(Budget(max_depth=2), handle="root")
    assert len(rt.events()) == events
    assert rt.result() == result
    assert rt.remaining(result.handle).max_tokens == 800
    done = await rt.extend(Budget(max_tool_calls=2))
    assert done.status == "done"
    with pytest.raises(UsageError):
        await rt.extend(Budget(max_tool_calls=9))


async def test_extend_of_turns_goes_on_in_the_same_attempt() -> None:
    model = MockModel([batch(1), batch(2), batch(3), "done"])
    result, rt = await agent(max_turns=2).run("go", model=model)
    assert (result.limit, ran) == ("maxTurns", [1])
    done = await rt.extend(Budget(max_turns=4))
    assert (done.output, done.turns, ran) == ("done", 4, [1, 2, 3])
    assert [m.text for m in results(rt)] == ["ran 1", "ran 2", "ran 3"]


async def test_another_prompt_goes_on_from_a_balanced_transcript() -> None:
    model = MockModel(prompts=[[batch(1, 2)], ["after"]])
    async with Runtime(agent(max_tool_calls=1), model=model) as rt:
        handle = await rt.spawn("root", "a")
        assert (await rt.run_turn(handle, "one")).limit == "maxToolCalls"
        after = await rt.run_turn(handle, "two")
    assert (after.output, after.limit) == ("after", None)
    assert [m.text for m in model.requests[-1].messages] == [
        "one",
        "",
        "ran 1",
        "not run (maxToolCalls)",
        "two",
    ]


def test_usage_adds_up_in_every_field() -> None:
    one = Usage(input_tokens=1, output_tokens=2, cached_tokens=1, reasoning_tokens=1, total_tokens=3, turns=1)
    assert (one + one).model_dump() == {name: 2 * value for name, value in one.model_dump().items()}


async def test_the_run_may_say_turns_for_every_handle() -> None:
    """It takes the place of the default, and of an agent's own cap where that is more."""
    model = MockModel([call("t", n=n) for n in range(8)] + ["done"])
    result, _ = await Agent("a", does="x", tools=[t]).run("go", model=model, budget=Budget(max_turns=20))
    assert (result.status, result.turns) == ("done", 9)
    result, rt = await agent(max_turns=7).run("go", model=model, budget=Budget(max_turns=3))
    assert (result.limit, result.limit_at, result.turns) == ("maxTurns", "root", 3)
    result = await rt.extend(Budget(max_turns=5))
    assert (result.limit, result.limit_at, result.turns) == ("maxTurns", "root", 5)
    result, _ = await agent(max_turns=2).run("go", model=model, budget=Budget(max_turns=3))
    assert (result.limit, result.limit_at, result.turns) == ("maxTurns", "root/a.1", 2)
