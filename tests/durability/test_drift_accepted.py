"""Going on although the code does not fit: recorded before anything runs, and what each kind then means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.durability.crew import RUN, facts_of

from overt import (
    Agent,
    Allow,
    Answer,
    Ask,
    Attempt,
    Budget,
    Completion,
    GuardrailEvent,
    OutputEvent,
    ResumePolicy,
    Ruling,
    Runtime,
    TaskResult,
    ToolContext,
    ToolMessage,
    tool,
)
from overt.core import facts as f
from overt.errors import SpecDrift
from overt.stores import MemoryStore, SQLiteStore, Store
from overt.testing import MockModel, call, raw_call, say
from overt.testing.crashing import Crashed, CrashingStore

pytestmark = pytest.mark.anyio
policies = pytest.mark.parametrize("policy", list(ResumePolicy))


async def _pay(ctx: ToolContext[None], n: int) -> str:
    """Pay."""
    return f"paid {(await ctx.ask('ok?')).data}"


async def _count(n: int) -> str:
    """Count."""
    return f"counted {n}"


PAY, COUNT = tool(_pay, name="pay"), tool(_count, name="count")


def worker(*tools: Any, **options: Any) -> Agent[Any, Any]:
    return Agent("w", does="Works.", tools=tools, **options)


def results(runtime: Runtime[Any], handle: str) -> list[tuple[str, bool]]:
    return [
        (m.text, m.is_error)
        for m in runtime.transcript(handle, uncommitted=True)
        if isinstance(m, ToolMessage)
    ]


async def accepted(store: Store) -> list[tuple[str, str | None, str | None]]:
    return [(x.drift, x.tool, x.call) for x in await facts_of(store) if isinstance(x, f.DriftAccepted)]


# ------------------------------------------------------------------ all of them at once


async def test_every_drift_is_listed_in_one_error() -> None:
    def one(*tools: Any, name: str = "b") -> Agent[Any, Any]:
        return Agent(name, does="Works.", tools=tools)

    async def numbers(n: list[int]) -> str:
        """Count."""
        return ""

    def rule(event: GuardrailEvent) -> Ruling:
        return Allow()

    store = MemoryStore()
    team = [one(PAY, name="a"), one(PAY, COUNT, name="b"), one(PAY, name="c"), one(PAY, COUNT, name="d")]
    helpers: dict[str, Any] = {
        "a": [call("pay", n=1)],
        "b": [[call("count", n=1), call("pay", n=2)]],
        "c": [call("pay", n=3)],
        "d": [[call("count", n=1), call("pay", n=4)]],
    }
    model = MockModel({"lead": [[call("task", agent=x, prompt="p") for x in helpers]], **helpers})
    lead = Agent("lead", does="Leads.", team=team)
    result, _ = await lead.run("go", model=model, store=store, run_id=RUN, guardrails=[rule])
    assert len(result.pendings) == 4
    before = await facts_of(store)
    changed = Agent(
        "lead",
        does="Leads.",
        team=[one(COUNT, name="b"), one(tool(numbers, name="pay"), name="c"),
              one(PAY, tool(_count, name="count", on_replay="reuse"), name="d")],
    )  # fmt: skip
    with pytest.raises(SpecDrift) as caught:
        await Runtime.open(changed, RUN, model=model, store=store)
    found = caught.value.drifts
    assert [(d.kind, d.handle, d.agent, d.tool, d.call, d.acceptable) for d in found] == [
        ("guardrails", None, None, None, None, False),
        ("agent", "root/lead.1/a.1", "a", None, None, True),
        ("tool", "root/lead.1/b.2", "b", "pay", None, True),
        ("arguments", "root/lead.1/c.3", "c", "pay", "c1", True),
        ("onReplay", "root/lead.1/d.4", "d", "count", None, True),
    ]
    text = str(caught.value)
    assert text.startswith(
        f"run {RUN} does not fit in 5 places:\n- it was started with guardrails=rule; give them"
    )
    assert len(text.splitlines()) == 6
    assert all(d.what in text and d.how in text for d in found)
    # What cannot be accepted is what is left to say of them.
    with pytest.raises(SpecDrift, match="guardrails=rule") as caught:
        await Runtime.open(changed, RUN, model=model, store=store, on_drift="accept")
    assert [d.kind for d in caught.value.drifts] == ["guardrails"]
    assert await facts_of(store) == before
    runtime = await Runtime.open(changed, RUN, model=model, store=store, on_drift="accept", guardrails=[])
    assert await facts_of(store) == before, "opening wrote something"
    await runtime._driver.acquire()
    await runtime._driver.release()
    assert len(await accepted(store)) == 4
    # It is the run's from then on: nobody has to accept it again, and it is not recorded again.
    again = await Runtime.open(changed, RUN, model=model, store=store, guardrails=[])
    left = await again.recover()
    assert [r.path[-1] for r in left.pendings] == ["d.4"]
    assert len(await accepted(store)) == 4


@pytest.mark.parametrize("on_drift", ["refuse", "accept"])
async def test_the_run_of_another_agent_is_never_taken(on_drift: Any) -> None:
    store = MemoryStore()
    model = MockModel([call("pay", n=1), say("end")])
    await worker(PAY).run("go", model=model, store=store, run_id=RUN)
    other = Agent("boss", does="Leads.", tools=[PAY])
    with pytest.raises(SpecDrift, match="another agent's run cannot be accepted") as caught:
        await Runtime.open(other, RUN, model=model, store=store, on_drift=on_drift)
    assert [(d.kind, d.agent, d.acceptable) for d in caught.value.drifts] == [("entry", "w", False)]


# ------------------------------------------------------------------ a tool that is gone


@policies
@pytest.mark.parametrize("how", ["recover", "answer"])
async def test_a_tool_that_is_gone(policy: ResumePolicy, how: str, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    script = MockModel([[call("count", n=1), call("pay", n=7)], say("end")])
    result, _ = await worker(PAY, COUNT).run(
        "go", model=script, store=store, run_id=RUN, resume_policy=policy
    )
    request = result.pending
    assert request is not None
    # A replay does without the tool, because it is not offered.
    later = MockModel([call("count", n=1), say("without")])
    runtime = await Runtime.open(worker(COUNT), RUN, model=later, store=store, on_drift="accept")
    if how == "recover":
        done: TaskResult[Any] = await runtime.recover()
    else:
        done = await runtime.resume(Answer(id=request.id, ok=True, data="x"))
    assert (done.status, done.text) == ("done", "without")
    told = results(runtime, "root/w.1")
    if how == "answer" and policy is ResumePolicy.REWIND:
        assert told == [("counted 1", False)]
    else:
        assert told[0] == ("counted 1", False)
        assert told[1][1]
        assert "tool 'pay' of agent 'w' is gone" in told[1][0]
    facts = await facts_of(store)
    at = next(n for n, x in enumerate(facts) if isinstance(x, f.DriftAccepted))
    assert await accepted(store) == [("tool", "pay", None)]
    assert not any(isinstance(x, f.CallEntered | f.ModelCalled) for x in facts[at - 1 : at + 1])
    entered = [x for x in facts[at:] if isinstance(x, f.CallEntered)]
    assert len(entered) == (how == "answer" and policy is ResumePolicy.REWIND), (
        "only what is there is entered"
    )
    assert any("DriftAccepted" in line and "is gone" in line for line in runtime.trace())
    (event,) = [e for e in runtime.events() if e.kind == "recorded" and e.fact == "drift_accepted"]
    assert (event.data["drift"], event.data["tool"]) == ("tool", "pay")
    cancelled = [e.request_id for e in runtime.events() if e.kind == "request_cancelled"]
    assert cancelled == ([request.id] if how == "recover" else [])
    await store.close()


@policies
async def test_a_tool_that_comes_back_leaves_what_was_told(policy: ResumePolicy) -> None:
    """The error is no result of the tool: a later call of it is entered."""
    store = MemoryStore()
    booked: list[int] = []

    async def _book(ctx: ToolContext[None], n: int) -> str:
        """Book."""
        await ctx.ask("ok?")
        booked.append(n)
        return f"booked {n}"

    book = tool(_book, name="book", on_replay="reuse")
    first = MockModel([[call("book", n=1), call("pay", n=7)]])
    result, _ = await worker(book, PAY).run("go", model=first, store=store, run_id=RUN, resume_policy=policy)
    assert len(result.pendings) == 2
    without = await Runtime.open(worker(PAY), RUN, model=first, store=store, on_drift="accept")
    left = await without.recover()
    assert [r.data["call"] for r in left.pendings] == [{"tool": "pay", "arguments": {"n": 7}}]
    batch = [call("book", n=1), call("pay", n=7)]
    more = [] if policy is ResumePolicy.REWIND else [call("book", n=1)]
    back = MockModel([batch, *more, say("end")])
    runtime = await Runtime.open(worker(book, PAY), RUN, model=back, store=store)
    done: TaskResult[Any] = await runtime.resume(Answer(id=left.pendings[0].id, ok=True, data="x"))
    assert done.pending is not None
    assert done.pending.data["call"] == {"tool": "book", "arguments": {"n": 1}}
    done = await runtime.resume(Answer(id=done.pending.id, ok=True, data="y"), policy=ResumePolicy.CONTINUE)
    assert (done.text, booked) == ("end", [1])


@policies
async def test_what_a_tool_that_is_gone_may_have_done_is_asked_all_the_same(policy: ResumePolicy) -> None:
    store = MemoryStore()

    @tool(on_replay="reuse")
    async def book() -> str:
        """Book."""
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await worker(book).run(
            "go", model=MockModel([call("book")]), store=store, run_id=RUN, resume_policy=policy
        )
    runtime = await Runtime.open(
        worker(COUNT), RUN, model=MockModel([call("book"), say("end")]), store=store, on_drift="accept"
    )
    result = await runtime.recover()
    assert result.pending is not None
    assert result.pending.kind == "in_doubt"
    done = await runtime.resume(Answer(id=result.pending.id, ok=True, data={"outcome": "retry"}))
    assert done.text == "end"
    ((text, is_error),) = results(runtime, "root/w.1")
    assert is_error
    assert "'book' of agent 'w' is gone" in text


async def test_a_call_that_a_cap_kept_out() -> None:
    store = MemoryStore()
    script = MockModel([[call("count", n=1), call("pay", n=7)], say("end")])
    result, _ = await worker(COUNT, PAY).run(
        "go", model=script, store=store, run_id=RUN, budget=Budget(max_tool_calls=1)
    )
    assert result.status == "incomplete"
    runtime = await Runtime.open(worker(COUNT), RUN, model=script, store=store, on_drift="accept")
    done = await runtime.extend(Budget(max_tool_calls=9))
    assert done.text == "end"
    assert [is_error for _, is_error in results(runtime, "root/w.1")] == [False, True]


# ------------------------------------------------------------------ an agent that is gone


@policies
@pytest.mark.parametrize("how", ["recover", "answer"])
async def test_an_agent_that_is_gone(policy: ResumePolicy, how: str) -> None:
    """Its wake fails, what is below it is closed, and its parent hears of it."""
    store = MemoryStore()
    deepest = Agent("c", does="Pays.", tools=[PAY])
    script = MockModel(
        {
            "lead": [call("task", agent="b", prompt="p"), say("end")],
            "b": [call("task", agent="c", prompt="q"), say("ok")],
            "c": [call("pay", n=1), say("paid")],
        }
    )
    lead = Agent("lead", does="Leads.", team=[Agent("b", does="Helps.", team=[deepest])])
    result, _ = await lead.run("go", model=script, store=store, run_id=RUN, resume_policy=policy)
    assert result.pending is not None
    without = Agent("lead", does="Leads.", team=[deepest])
    runtime = await Runtime.open(without, RUN, model=script, store=store, on_drift="accept")
    if how == "recover":
        done: TaskResult[Any] = await runtime.recover()
    else:
        # The answer is recorded, and of no use: its call is closed with the wake above it.
        answer = Answer(id=result.pending.id, ok=True, data="x")
        done = await runtime.resume(answer, policy=ResumePolicy.CONTINUE)
    assert (done.status, done.text) == ("done", "end")
    ((text, is_error),) = results(runtime, "root/lead.1")
    assert is_error
    assert text.startswith("[error] SpecDrift: agent 'b' of root/lead.1/b.1 is no longer in the team")
    child = next(e for e in runtime.events() if e.kind == "settled" and e.handle == "root/lead.1/b.1")
    assert child.error is not None
    assert (child.error.type, child.error.source) == ("SpecDrift", "runtime")
    assert not runtime.pendings()
    facts = await facts_of(store)
    at = next(n for n, x in enumerate(facts) if isinstance(x, f.DriftAccepted))
    bought = [x.handle for x in facts[at:] if isinstance(x, f.ModelCalled)]
    assert set(bought) <= {"root/lead.1", "root/lead.1/b.1/c.1"}, "nothing was bought for whoever is gone"


async def test_an_agent_that_comes_back_goes_on() -> None:
    store = MemoryStore()
    script = MockModel(
        {"lead": [call("task", agent="b", prompt="p"), say("end")], "b": [call("pay", n=1), say("ok")]}
    )
    lead = Agent("lead", does="Leads.", team=[Agent("b", does="Helps.", tools=[PAY])])
    await lead.run("go", model=script, store=store, run_id=RUN)
    without = await Runtime.open(
        Agent("lead", does="Leads."), RUN, model=script, store=store, on_drift="accept"
    )
    # Taken, and nothing set going.
    await without._driver.acquire()
    await without._driver.release()
    assert await accepted(store) == [("tool", "task", None), ("agent", None, None)]
    runtime = await Runtime.open(lead, RUN, model=script, store=store)
    done = await runtime.resume(Answer(id=runtime.pendings()[0].id, ok=True, data="x"))
    assert (done.status, done.text) == ("done", "end")
    assert results(runtime, "root/lead.1") == [("ok", False)]


# ------------------------------------------------------------------ arguments a schema refuses


async def _pay_list(ctx: ToolContext[None], n: list[int]) -> str:
    """Pay."""
    return f"paid {(await ctx.ask('ok?')).data}"


@policies
async def test_arguments_that_are_refused(policy: ResumePolicy) -> None:
    store = MemoryStore()
    script = MockModel([[call("pay", n=7), call("count", n=1)], say("end")])
    await worker(PAY, COUNT).run("go", model=script, store=store, run_id=RUN, resume_policy=policy)
    runtime = await Runtime.open(
        worker(tool(_pay_list, name="pay"), COUNT), RUN, model=script, store=store, on_drift="accept"
    )
    done = await runtime.recover()
    assert (done.status, done.text) == ("done", "end")
    told = results(runtime, "root/w.1")
    assert "tool 'pay' of agent 'w' no longer takes the arguments of its open call c1" in told[0][0]
    assert told[0][0].endswith("invalid arguments for pay: n: Input should be a valid array")
    assert told[0][1]
    assert told[1] == ("counted 1", False)
    assert await accepted(store) == [("arguments", "pay", "c1")]


async def test_a_call_whose_result_a_replay_would_not_find_again() -> None:
    """Under `rewind` a `reuse` call made anew in another form would be a second one: refused, unless accepted."""
    booked: list[Any] = []

    async def _book(n: int) -> str:
        """Book."""
        booked.append(n)
        return "booked"

    async def _book_list(n: list[int]) -> str:
        """Book."""
        booked.append(n)
        return "booked"

    store = MemoryStore()
    book, other = (
        tool(_book, name="book", on_replay="reuse"),
        tool(_book_list, name="book", on_replay="reuse"),
    )
    script = MockModel([[call("book", n=1), call("pay", n=7)], say("end")])
    for policy in ResumePolicy:
        await worker(book, PAY).run("go", model=script, store=store, run_id=policy, resume_policy=policy)
    later = MockModel([[call("book", n=[1]), call("pay", n=7)], say("end")])
    parked = await Runtime.open(worker(other, PAY), "continue", model=later, store=store)
    assert (await parked.resume(Answer(id=parked.pendings()[0].id, ok=True, data="x"))).text == "end"
    with pytest.raises(SpecDrift, match="no longer takes the arguments of the call c1") as caught:
        await Runtime.open(worker(other, PAY), "rewind", model=later, store=store)
    assert "a replay then makes that call anew, as another one" in caught.value.drifts[0].how
    taken = await Runtime.open(worker(other, PAY), "rewind", model=later, store=store, on_drift="accept")
    await taken.recover()
    runtime = await Runtime.open(worker(other, PAY), "rewind", model=later, store=store)
    done = await runtime.resume(Answer(id=runtime.pendings()[0].id, ok=True, data="x"))
    assert (done.text, booked) == ("end", [1, 1, [1]])


# ------------------------------------------------------------------ on_replay


@policies
@pytest.mark.parametrize(("before", "now"), [("rerun", "reuse"), ("reuse", "rerun")])
async def test_the_new_on_replay_counts_from_now_on(policy: ResumePolicy, before: Any, now: Any) -> None:
    counted: list[int] = []

    async def _counting(n: int) -> str:
        """Count."""
        counted.append(n)
        return f"counted {n}"

    store = MemoryStore()
    script = MockModel([[call("count", n=1), call("pay", n=7)], say("end")])
    old, new = (tool(_counting, name="count", on_replay=how) for how in (before, now))
    await worker(old, PAY).run("go", model=script, store=store, run_id=RUN, resume_policy=policy)
    runtime = await Runtime.open(worker(new, PAY), RUN, model=script, store=store, on_drift="accept")
    done = await runtime.resume(Answer(id=runtime.pendings()[0].id, ok=True, data="x"))
    assert done.text == "end"
    again = policy is ResumePolicy.REWIND and now == "rerun"
    assert counted == ([1, 1] if again else [1])


async def test_an_agent_and_a_tool_do_not_stand_for_each_other() -> None:
    store = MemoryStore()
    helper = Agent("b", does="Helps.", tools=[PAY])
    script = MockModel({"w": [call("b", prompt="p"), say("end")], "b": [call("pay", n=1), say("ok")]})
    await worker(helper.as_tool()).run("go", model=script, store=store, run_id=RUN)

    @tool(name="b")
    async def plain(prompt: str) -> str:
        """Help."""
        return prompt

    changed = Agent("w", does="Works.", tools=[plain], team=[helper])
    with pytest.raises(SpecDrift, match="was 'agent' and is 'rerun'") as caught:
        await Runtime.open(changed, RUN, model=script, store=store, on_drift="accept")
    assert not caught.value.drifts[0].acceptable


# ------------------------------------------------------------------ a final answer that is still looked at


class Short(BaseModel):
    title: str


class Long(BaseModel):
    title: str
    pages: int


def look(event: OutputEvent) -> Ruling:
    return Ask(f"Publish {event.text}?")


@policies
@pytest.mark.parametrize("how", ["recover", "answer"])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("was", [Short, str])
async def test_an_answer_that_no_longer_fits_goes_back_to_the_model(
    policy: ResumePolicy, how: str, native: bool, was: Any
) -> None:
    store = MemoryStore()

    def gives(**data: Any) -> Any:
        return say(json.dumps(data)) if native else call("final_result", **data)

    def model(*replies: Any) -> MockModel:
        return MockModel(list(replies), structured_output=native)

    def later(good: Any) -> MockModel:
        """After a user message that says why an answer is none a script begins anew, after a result it goes on."""
        return model(good) if native or was is str else model(gives(title="t"), good)

    def made(kind: Any, script: MockModel) -> Agent[Any, Any]:
        return Agent("w", does="Writes.", output_type=kind, output_guardrails=[look], model=script)

    first = say("t") if was is str else gives(title="t")
    result, _ = await made(was, model(first)).run("go", store=store, run_id=RUN, resume_policy=policy)
    assert result.pending is not None
    changed = made(Long, later(gives(title="t", pages=7)))
    with pytest.raises(SpecDrift, match="no longer fits the output_type of 'w'"):
        await Runtime.open(changed, RUN, store=store)
    runtime = await Runtime.open(changed, RUN, store=store, on_drift="accept")
    if how == "recover":
        again = await runtime.recover()
    else:
        again = await runtime.resume(Answer(id=result.pending.id, ok=True))
    assert again.pending is not None
    assert again.pending.id != result.pending.id
    assert again.pending.data == {"output": {"title": "t", "pages": 7}}
    done = await runtime.resume(Answer(id=again.pending.id, ok=True), policy=ResumePolicy.CONTINUE)
    assert done.output == Long(title="t", pages=7)
    assert await accepted(store) == [("outputType", None, None)]


async def test_an_answer_that_no_longer_fits_while_it_was_judged() -> None:
    store = CrashingStore(MemoryStore())

    def judge(attempt: Attempt[Any]) -> tuple[bool, str]:
        return True, ""

    def made(kind: Any, *replies: Any) -> Agent[Any, Any]:
        gate = Completion(judge, max_attempts=2)
        return Agent("w", does="Writes.", output_type=kind, completion=gate, model=MockModel(list(replies)))

    appends: list[int] = []

    async def count(attempt: Attempt[Any]) -> tuple[bool, str]:
        appends.append(store.appends)
        return True, ""

    script = [call("final_result", title="t")]
    gate = Completion(count, max_attempts=2)
    await Agent("w", does="Writes.", output_type=Short, completion=gate, model=MockModel(script)).run(
        "go", store=store
    )
    store = CrashingStore(MemoryStore(), crash_at=appends[0] + 1)
    with pytest.raises(BaseException) as died:  # noqa: PT011  # bare, or in a group
        await made(Short, *script).run("go", store=store, run_id=RUN)
    assert isinstance(died.value, Crashed | BaseExceptionGroup)
    changed = made(Long, call("final_result", title="t"), call("final_result", title="t", pages=7))
    runtime = await Runtime.open(changed, RUN, store=store.survivor, on_drift="accept")
    done = await runtime.recover()
    assert (done.status, done.output, done.turns) == ("done", Long(title="t", pages=7), 2)
    assert [v.ok for v in done.verdicts] == [True]


async def test_invalid_calls_of_the_run_are_no_drift() -> None:
    """What was never a call of a tool does not have to be one now."""
    store = MemoryStore()
    script = MockModel([[raw_call("count", '{"m":1}'), call("nothing"), call("pay", n=1)], say("end")])
    await worker(PAY, COUNT).run("go", model=script, store=store, run_id=RUN)
    runtime = await Runtime.open(worker(PAY), RUN, model=script, store=store)
    assert runtime.pendings()
