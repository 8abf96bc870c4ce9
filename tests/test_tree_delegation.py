"""`task`: fresh children, one message each, and everything that goes wrong below as an error result."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from overt import Agent, Answer, Budget, ResumePolicy, ToolContext, ToolMessage, tool
from overt.errors import ModelError
from overt.testing import MockModel, VirtualClock, call, say


@tool
async def ask(ctx: ToolContext[object], prompt: str) -> str:
    return f"answered {(await ctx.ask(prompt)).ok}"


@tool
def look() -> str:
    return "seen"


EXPLORE = Agent("explore", does="explores things", tools=[look, ask])
WRITE = Agent("write", does="writes things")
LEAD = Agent("lead", does="leads", tools=[look], team=[WRITE, EXPLORE])


def task(agent: str, prompt: str) -> Any:
    return call("task", agent=agent, prompt=prompt)


def results(messages: Any) -> list[ToolMessage]:
    return [m for m in messages if isinstance(m, ToolMessage)]


async def test_a_child_has_a_fresh_transcript_and_its_own_tools() -> None:
    model = MockModel(
        {
            "lead": [[say("secret"), call("look")], task("explore", "find it"), say("done")],
            "explore": ["found"],
        }
    )
    result, rt = await LEAD.run("a secret prompt", model=model)
    (asked,) = [r for r in model.requests if r.agent == "explore"]
    assert [m.text for m in asked.messages] == ["find it"]
    assert [t.name for t in asked.tools] == ["look", "ask"]
    assert [t.name for t in model.requests[0].tools] == ["look", "task"]
    assert [m.text for m in rt.transcript("root/lead.1/explore.1")] == ["find it", "found"]
    assert [m.text for m in results(rt.transcript(result.handle))] == ["seen", "found"]
    assert rt.inspect("root/lead.1/explore.1").state == "closed"


async def test_the_description_lists_the_team_sorted_and_nobody_else() -> None:
    model = MockModel(["x"])
    await LEAD.run("go", model=model)
    (spec,) = [t for t in model.requests[0].tools if t.name == "task"]
    assert spec.description.endswith("The team:\n- explore: explores things\n- write: writes things")
    assert set(spec.input_schema["properties"]) == {"agent", "prompt"}  # type: ignore[arg-type]  # JSON


async def test_an_agent_without_a_team_is_not_offered_task() -> None:
    model = MockModel([task("explore", "x"), "ok"])
    result, rt = await EXPLORE.run("go", model=model)
    assert [t.name for t in model.requests[0].tools] == ["look", "ask"]
    (message,) = results(rt.transcript(result.handle))
    assert message.is_error
    assert "unknown tool: 'task'" in message.text


@pytest.mark.parametrize("name", ["nobody", "lead", "", "Explore", "explore "])
async def test_names_out_of_the_team_are_error_results_that_list_it(name: str) -> None:
    result, rt = await LEAD.run("go", model=MockModel([[task(name, "x"), call("look")], "ok"]))
    first, second = results(rt.transcript(result.handle))
    assert first.is_error
    assert "explore, write" in first.text
    assert not second.is_error
    assert len(rt.list()) == 1
    assert result.usage.tool_calls == 1


async def test_the_same_text_twice_is_two_children() -> None:
    script = {"lead": [[task("write", "w"), task("write", "w")], task("write", "w"), "ok"], "write": ["text"]}
    result, rt = await LEAD.run("go", model=MockModel(script))
    assert [v.id for v in rt.list()][1:] == [f"root/lead.1/write.{n}" for n in (1, 2, 3)]
    assert (result.own_tokens, result.total_tokens, result.usage.tool_calls) == (300, 600, 3)


def failing(status: str) -> Any:
    return {
        "done": ["fine"],
        "error": [call("look"), ModelError("HTTP 500")],
        "incomplete": [[say("thinking"), call("look")]] * 2,
    }[status]


@pytest.mark.parametrize("status", ["done", "error", "incomplete"])
async def test_each_child_gives_its_parent_exactly_one_message(status: str) -> None:
    explore = Agent("explore", does="x", tools=[look], budget=Budget(max_turns=2))
    lead = Agent("lead", does="leads", team=[explore])
    model = MockModel({"lead": [task("explore", "x"), "ok"], "explore": failing(status)})
    result, rt = await lead.run("go", model=model)
    assert result.output == "ok"
    (message,) = results(rt.transcript(result.handle))
    assert message.name == "task"
    assert message.is_error is (status != "done")
    assert message.text.startswith("fine" if status == "done" else f"[{status}] ")
    child = rt.ledger().children[0].children[0]
    assert message.metadata == {
        "agent": "explore",
        "handle": "root/lead.1/explore.1",
        "status": status,
        "limit": "maxTurns" if status == "incomplete" else None,
        "turns": child.own.turns,
        "total_tokens": child.total.total_tokens,
    }
    assert result.total_tokens == 200 + child.total.total_tokens


@pytest.mark.parametrize("verb", ["interrupt", "close"])
async def test_a_child_ended_by_the_host_is_an_error_result_too(verb: str) -> None:
    inside = anyio.Event()

    async def hang(request: Any) -> Any:
        inside.set()
        await anyio.sleep_forever()

    from overt import Runtime

    rt = Runtime(LEAD, model=MockModel({"lead": [task("write", "x"), "went on"], "write": hang}))
    found: list[Any] = []

    async def host() -> None:
        found.append(await rt.run("go"))

    async with anyio.create_task_group() as group:
        group.start_soon(host)
        await inside.wait()
        await getattr(rt, verb)("root/lead.1/write.1", **({"force": True} if verb == "close" else {}))
    (result,) = found
    assert result.output == "went on"
    (message,) = results(rt.transcript(result.handle))
    status = {"interrupt": "interrupted", "close": "closed"}[verb]
    assert message.is_error
    assert message.text.startswith(f"[{status}] ")
    assert message.metadata["status"] == status
    assert (result.usage.model_calls, result.usage.unreported_calls) == (3, 1)
    assert result.total_tokens == rt.usage_tokens(result.handle) == 200


async def test_parallel_children_overlap_and_results_keep_call_order() -> None:
    both = anyio.Event()
    inside: list[str] = []

    async def explore(request: Any) -> Any:
        prompt = request.messages[-1].text
        inside.append(prompt)
        if len(inside) == 2:
            both.set()
        await both.wait()
        return say(f"found {prompt}")

    model = MockModel(
        {"lead": [[task("explore", "a"), call("look"), task("explore", "b")], "ok"], "explore": explore}
    )
    with anyio.fail_after(10):
        result, rt = await LEAD.run("go", model=model)
    assert [m.text for m in results(rt.transcript(result.handle))] == ["found a", "seen", "found b"]


async def test_one_failing_sibling_costs_the_others_nothing() -> None:
    def explore(request: Any) -> Any:
        if request.messages[-1].text == "bad":
            raise ModelError("HTTP 500")
        return say("good")

    model = MockModel({"lead": [[task("explore", "bad"), task("explore", "a")], "ok"], "explore": explore})
    result, rt = await LEAD.run("go", model=model)
    first, second = results(rt.transcript(result.handle))
    assert (first.is_error, second.is_error, second.text) == (True, False, "good")


# ------------------------------------------------------------ depth and recursion


def deep(**budget: Any) -> Agent[None, str]:
    agent = Agent("deep", does="nests", budget=Budget(**budget))
    return agent.with_team(agent)


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
async def test_task_is_not_offered_at_the_deepest_level(depth: int) -> None:
    model = MockModel([task("deep", "down"), "up"])
    result, rt = await deep(max_depth=depth).run("go", model=model)
    assert result.output == "up"
    assert len(rt.list()) == depth
    offered = {r.handle.count("/"): [t.name for t in r.tools] for r in model.requests}
    assert offered == {n: ["task"] if n < depth else [] for n in range(1, depth + 1)}
    deepest = rt.list()[-1].id
    (message,) = results(rt.transcript(deepest))
    assert message.is_error
    assert "task" in message.text
    assert result.total_tokens == 200 * depth


async def test_the_least_depth_of_the_chain_counts() -> None:
    model = MockModel([task("deep", "down"), "up"])
    _, rt = await deep(max_depth=5).run("go", model=model, budget=Budget(max_depth=2))
    assert len(rt.list()) == 2
    assert rt.remaining("root/deep.1").max_depth == 2


async def test_children_past_the_cap_are_refused_as_a_result() -> None:
    lead = Agent("lead", does="x", team=[WRITE], budget=Budget(max_children=2))
    model = MockModel({"lead": [[task("write", p) for p in "abc"], "ok"], "write": ["text"]})
    result, rt = await lead.run("go", model=model)
    third = results(rt.transcript(result.handle))[2]
    assert third.is_error
    assert "maxChildren" in third.text
    assert len(rt.list()) == 3
    assert rt.remaining(result.handle).max_children == 0


# ------------------------------------------------------------ pending children


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_a_pending_child_makes_its_parents_pending(policy: ResumePolicy) -> None:
    model = MockModel(
        {
            "lead": [[task("explore", "a"), task("write", "b")], "ok"],
            "explore": [call("ask", prompt="may I?"), "explored"],
            "write": ["written"],
        }
    )
    result, rt = await LEAD.run("go", model=model, resume_policy=policy)
    assert (result.status, len(result.pendings)) == ("pending", 1)
    assert result.pending is not None
    assert result.pending.path == ("root", "lead.1", "explore.1")
    assert {v.id.rsplit("/", 1)[-1]: v.state for v in rt.list()} == {
        "lead.1": "suspended",
        "explore.1": "suspended",
        "write.2": "closed",
    }
    done = await rt.resume(Answer(id=result.pending.id, ok=True))
    assert (done.status, done.handle, done.output) == ("done", result.handle, "ok")
    assert len(rt.list()) == 3
    assert [m.text for m in results(rt.transcript(done.handle))] == ["explored", "written"]
    assert rt.usage_tokens("root/lead.1/write.2") == 100
    assert done.total_tokens == rt.usage_tokens(done.handle) >= result.total_tokens


# ------------------------------------------------------------ turns of the tree at once


@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_concurrent_turns_bound_model_calls_and_nothing_else(turns: int) -> None:
    """Six tools are inside at once under a gate of fewer turns, and never more models than the gate lets in."""
    now, most = [0], [0]
    tools_inside: list[str] = []
    all_in = anyio.Event()

    @tool
    async def together(ctx: ToolContext[object]) -> str:
        tools_inside.append(ctx.handle)
        if len(tools_inside) == 6:
            all_in.set()
        await all_in.wait()
        return "met"

    async def think(request: Any) -> Any:
        now[0] += 1
        most[0] = max(most[0], now[0])
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        now[0] -= 1
        turn = sum(m.role == "assistant" for m in request.messages)
        if request.agent == "lead":
            return [[task("meet", str(n)) for n in range(6)], say("ok")][turn]
        return [call("together"), say("did")][turn]

    lead = Agent("lead", does="x", team=[Agent("meet", does="x", tools=[together])])
    with anyio.fail_after(10):
        result, _ = await lead.run("go", model=MockModel(think), max_concurrent_turns=turns)
    assert result.output == "ok"
    assert most[0] == min(turns, 6)
    assert result.usage.model_calls == 14


async def test_parents_never_starve_their_children() -> None:
    lead = Agent("lead", does="x", budget=Budget(max_depth=4))
    lead = lead.with_team(lead)
    with anyio.fail_after(10):
        model = MockModel([[task("lead", "a"), task("lead", "b")], "ok"])
        result, rt = await lead.run("go", model=model, max_concurrent_turns=1)
    assert result.output == "ok"
    assert len(rt.list()) == 15


async def test_cancelled_holders_and_waiters_of_the_gate_leak_nothing() -> None:
    """Interrupt one that thinks and one that waits to think; the gate has all its places afterwards."""
    from overt import Runtime

    clock = VirtualClock()
    inside: list[str] = []
    news = anyio.Event()

    async def think(request: Any) -> Any:
        inside.append(request.handle)
        news.set()
        if request.messages[-1].text == "hang":
            await anyio.sleep_forever()
        return say("thought")

    async with Runtime(WRITE, model=MockModel(think), clock=clock, max_concurrent_turns=1) as rt:
        handles = [await rt.spawn("root", "write") for _ in range(3)]
        for _ in range(3):
            for handle in handles:
                await rt.wake(handle, "hang")
            with anyio.fail_after(10):
                await news.wait()
            holder = inside[-1]
            waiting = [h.id for h in handles if h.id != holder]
            await rt.interrupt(waiting[0])
            news = anyio.Event()
            await rt.interrupt(holder)
            with anyio.fail_after(10):
                await news.wait()
            assert inside[-1] == waiting[1]
            news = anyio.Event()
            await rt.interrupt(waiting[1])
        with anyio.fail_after(10):
            for handle in handles:
                assert (await rt.run_turn(handle, "quick")).output == "thought"
        assert rt.remaining(handles[0]).max_turns == 6
