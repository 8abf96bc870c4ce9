"""What rules, gates, limits and typed output do is the same through a loop and a stream as through a run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from overt import (
    Agent,
    Answer,
    AnyTool,
    Ask,
    Budget,
    Completion,
    Extend,
    Hooks,
    Limit,
    LimitInfo,
    LLMOverride,
    Loop,
    ResumePolicy,
    Runtime,
    State,
    Status,
    Suspend,
    TaskResult,
    UserMessage,
    require_approval,
    tool,
)
from overt.errors import AwaitingAnswer
from overt.events import Event, ResultReady, ToolDenied, VerdictGiven
from overt.journal.store import Store
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import MockModel, call, say
from tests.guard_kit import denying
from tests.stream_kit import all_of, bare, facts, kinds
from tests.suspend_kit import yes


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Both stores there are."""
    made: Store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "runs.db")
    yield made
    await made.close()


class City(BaseModel):
    """A typed answer."""

    name: str


class Entered:
    """Tools that note that their bodies ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

        @tool
        async def refund(order: str) -> str:
            self.ran.append(f"refund {order}")
            return "refunded"

        @tool
        async def look() -> str:
            self.ran.append("look")
            return "seen"

        self.tools: list[AnyTool[Any]] = [refund, look]


def who(entered: Entered, *scripts: Any, **options: Any) -> Agent[None, str]:
    model = MockModel(prompts=list(scripts))
    return Agent("w", does="works", tools=entered.tools, model=model, **options)


async def through_loop(agent: Agent[None, Any], **options: Any) -> tuple[TaskResult[Any], Runtime[Any]]:
    loop = agent.loop(**options)
    return await loop.run("go"), loop.runtime


async def through_stream(agent: Agent[None, Any], **options: Any) -> tuple[TaskResult[Any], Runtime[Any]]:
    stream = agent.stream("go", **options)
    events = await all_of(stream)
    assert bare(facts(events)) == bare(stream.runtime.events())
    return await stream.result(), stream.runtime


async def through_loop_stream(
    agent: Agent[None, Any], **options: Any
) -> tuple[TaskResult[Any], Runtime[Any]]:
    loop = agent.loop(**options)
    await all_of(loop.stream("go"))
    return loop.result(), loop.runtime


async def through_follow(agent: Agent[None, Any], **options: Any) -> tuple[TaskResult[Any], Runtime[Any]]:
    result, runtime = await agent.run("go", **options)
    last = (await all_of(runtime.follow()))[-1]
    assert isinstance(last, ResultReady)
    assert last.result == result
    return last.result, runtime


Door = Callable[..., Any]
DOORS: list[Door] = [through_loop, through_stream, through_loop_stream, through_follow]
every_door = pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)

BATCH = [[call("look"), call("refund", order="A1"), call("look")], say("done")]


@every_door
@pytest.mark.parametrize("whose", ["agent", "run"])
async def test_a_denied_call_is_never_entered_and_its_siblings_run(
    door: Door, whose: str, store: Store
) -> None:
    entered = Entered()

    rules: dict[str, Any] = {"guardrails": [denying("refund", reason="too much")]}
    options = rules if whose == "run" else {}
    agent = who(entered, BATCH, **({} if options else rules))
    result, runtime = await door(agent, store=store, **options)
    assert (result.status, entered.ran) == (Status.DONE, ["look", "look"])
    denied = [e for e in runtime.events() if isinstance(e, ToolDenied)]
    assert [(e.call.name, e.reason, e.declined) for e in denied] == [("refund", "too much", False)]


@every_door
@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_a_rule_that_asks_parks_and_the_answer_decides(
    door: Door, policy: ResumePolicy, store: Store
) -> None:
    for ok in (True, False):
        entered = Entered()
        agent = who(entered, BATCH, guardrails=[require_approval("refund")])
        run_id = f"{door.__name__} {ok}"
        result, _ = await door(agent, store=store, run_id=run_id, resume_policy=policy)
        assert result.status is Status.PENDING
        assert "refund A1" not in entered.ran
        runtime = await Runtime.open(agent, run_id, store=store)
        answer = Answer[Any](id=result.pending.id, ok=ok)
        events = await all_of(runtime.stream(answer=answer))
        assert ("refund A1" in entered.ran) is ok
        assert runtime.result().status is Status.DONE
        assert ("tool_denied" in kinds(events)) is not ok
        declined = [e.declined for e in runtime.events() if isinstance(e, ToolDenied)]
        assert declined == ([] if ok else [True])


async def test_a_prompt_that_is_asked_about_holds_up_the_loop_and_is_named() -> None:
    loop = who(Entered(), [say("one")], [say("two")], input_guardrails=[lambda event: Ask("may it?")]).loop()
    parked = await loop.run("1")
    assert (parked.status, loop.status) == (Status.PENDING, State.SUSPENDED)
    with pytest.raises(AwaitingAnswer) as raised:
        await loop.run("2")
    assert parked.pending is not None
    assert raised.value.request_ids == (parked.pending.id,)
    assert (await loop.resume(yes(parked))).text == "one"
    denied = await loop.run("2")
    assert denied.status is Status.PENDING
    refused = await loop.resume(Answer(id=denied.pendings[0].id, ok=False))
    assert (refused.status, refused.error is not None, loop.status) == (Status.ERROR, True, State.IDLE)


@every_door
async def test_a_gate_judges_and_every_round_is_seen_and_paid(door: Door, store: Store) -> None:
    def verify(attempt: Any) -> tuple[bool, str]:
        return attempt.number == 3, f"round {attempt.number}"

    agent = who(Entered(), [say("a")], [say("b")], [say("c")], completion=Completion(verify, max_attempts=3))
    result, runtime = await door(agent, store=store)
    assert (result.status, result.text, result.total_tokens, result.turns) == (Status.DONE, "c", 300, 3)
    assert [v.ok for v in result.verdicts] == [False, False, True]
    assert [e.verdict for e in runtime.events() if isinstance(e, VerdictGiven)] == list(result.verdicts)


@every_door
async def test_a_limit_is_extended_or_asked_about(door: Door, store: Store) -> None:
    script = [[call("look")], [call("look")], say("done")]
    asked: list[LimitInfo] = []

    def extend(info: LimitInfo) -> Any:
        asked.append(info)
        return Extend(Budget(max_tokens=1000))

    agent = who(Entered(), script, budget=Budget(max_tokens=150))
    result, _ = await door(agent, store=store, run_id="extended", on_limit=extend)
    assert (result.status, result.total_tokens, len(asked)) == (Status.DONE, 300, 1)
    result, runtime = await door(agent, store=store, run_id="asked", on_limit=lambda info: Suspend("more?"))
    assert (result.status, result.total_tokens, result.pending.kind) == (Status.PENDING, 200, "budget")
    done = await runtime.resume(Answer(id=result.pending.id, ok=True, data=1000))
    # Nothing is bought twice, although the policy is to rewind.
    assert (done.status, done.total_tokens) == (Status.DONE, 300)


@every_door
async def test_a_limit_stops(door: Door, store: Store) -> None:
    agent = who(
        Entered(), [[call("look")]] * 1 + [[call("look")], [call("look")]], budget=Budget(max_tool_calls=1)
    )
    result, runtime = await door(agent, store=store)
    assert (result.status, result.limit, result.limit_at) == (
        Status.INCOMPLETE,
        Limit.MAX_TOOL_CALLS,
        "root/w.1",
    )
    assert result.total_tokens == runtime.usage_tokens("root/w.1") == runtime.ledger().total.total_tokens


@every_door
async def test_typed_output_has_its_type(door: Door, store: Store) -> None:
    model = MockModel([call("final_result", name=3), call("final_result", name="Bern")])
    agent = Agent("w", does="works", model=model, output_type=City)
    result, _ = await door(agent, store=store)
    assert result.output == City(name="Bern")


async def test_typed_output_of_each_prompt() -> None:
    model = MockModel(prompts=[[call("final_result", name="Bern")], [call("final_result", name="Basel")]])
    loop: Loop[City] = Agent("w", does="works", model=model, output_type=City).loop()
    assert (await loop.run("1")).unwrap() == City(name="Bern")
    assert (await loop.run("2")).unwrap() == City(name="Basel")


@every_door
async def test_a_hook_changes_what_is_sent(door: Door, store: Store) -> None:
    model = MockModel([say("done")])

    def before(event: Any) -> LLMOverride:
        return LLMOverride(messages=[UserMessage(text="changed")])

    agent = Agent("w", does="works", model=model, hooks=Hooks(before_llm=before))
    result, _ = await door(agent, store=store)
    assert result.status is Status.DONE
    assert [m.text for m in model.requests[0].messages] == ["changed"]


async def test_three_levels_down_everything_is_seen_with_its_path(store: Store) -> None:
    """A rule that asks, a gate that fails once, and a cap that is asked about, all in one stream after another."""
    entered = Entered()

    def verify(attempt: Any) -> tuple[bool, str]:
        return attempt.number == 2, "look again"

    low = Agent(
        "low",
        does="refunds",
        tools=entered.tools,
        model=MockModel(prompts=[[call("refund", order="A1"), say("once")], [say("twice")]]),
        guardrails=[require_approval("refund")],
        completion=Completion(verify, max_attempts=3),
        budget=Budget(max_tokens=150),
    )
    mid = Agent(
        "mid", does="delegates", team=[low], model=MockModel([call("task", agent="low", prompt="p"), "mid"])
    )
    top = Agent(
        "w", does="delegates", team=[mid], model=MockModel([call("task", agent="mid", prompt="p"), "top"])
    )

    def options() -> dict[str, Any]:
        return {"store": store, "on_limit": lambda info: Suspend(f"more than {info.cap} for {info.at}?")}

    deep = "root/w.1/mid.1/low.1"
    seen: list[Event] = []
    stream = top.stream("go", run_id="r", resume_policy=ResumePolicy.CONTINUE, **options())
    await all_of(stream, into=seen)
    asked: list[str] = []
    runtime = stream.runtime
    while (result := seen.pop().result).status is Status.PENDING:  # type: ignore[union-attr]
        assert result.pending is not None
        assert result.pending.path == tuple(deep.split("/"))
        asked.append(result.pending.kind)
        assert len(asked) < 5
        data = 10_000 if result.pending.kind == "budget" else None
        runtime = await Runtime.open(top, "r", **options())
        after = facts(seen)[-1].position
        answer = Answer[Any](id=result.pending.id, ok=True, data=data)
        await all_of(runtime.stream(answer=answer, after=after), into=seen)
    assert asked == ["approval", "budget"]
    assert (result.status, result.text, entered.ran) == (Status.DONE, "top", ["refund A1"])
    assert {e.handle for e in seen if e.kind in ("request", "verdict", "limit")} == {deep}
    assert [e.verdict.ok for e in seen if isinstance(e, VerdictGiven)] == [False, True]
    assert [e.position for e in facts(seen)] == list(range(1, len(facts(seen)) + 1))
    ledger = runtime.ledger()
    assert (
        ledger.total.total_tokens
        == sum(one.own.total_tokens for _, one in ledger.walk())
        == result.total_tokens
    )
