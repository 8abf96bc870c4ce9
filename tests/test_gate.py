"""The completion gate: who judges that an agent that says it is done is done, and what comes of it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest

from overt import (
    Agent,
    Allow,
    Attempt,
    BeforeTool,
    Budget,
    Completion,
    Deny,
    Hooks,
    OutputEvent,
    ResumePolicy,
    Ruling,
    Runtime,
    TaskResult,
    ToolMessage,
    ToolOverride,
    UserMessage,
    require_approval,
    tool,
)
from overt.errors import StoreError
from overt.message import ModelRequest
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import MockModel, call, say
from overt.testing.crashing import Crashed, CrashingStore
from tests.suspend_kit import approve, first, no, tools_said, yes

W = "root/w.1"
both = pytest.mark.parametrize("policy", list(ResumePolicy))

NO, YES = (False, "not yet"), (True, "good")


class Judge:
    """Says what it is told to, the last again and again, and remembers what it saw."""

    def __init__(self, *says: Any) -> None:
        self.says = says
        self.seen: list[Attempt[Any]] = []

    async def __call__(self, attempt: Attempt[Any]) -> tuple[bool, str]:
        self.seen.append(attempt)
        says: Any = self.says[min(len(self.seen), len(self.says)) - 1]
        if isinstance(says, BaseException):
            raise says
        said: tuple[bool, str] = says
        return said

    @property
    def texts(self) -> list[tuple[int, str]]:
        return [(attempt.number, attempt.text) for attempt in self.seen]


def used(attempt: Attempt[Any]) -> list[tuple[str, dict[str, Any], str]]:
    """Tools, arguments and results an attempt shows."""
    return [(made.name, made.arguments, got.output) for made, got in attempt.tool_calls]


def rounds(*scripts: Any, **options: Any) -> MockModel:
    """A model with one script a round: the gate's feedback is a user message."""
    return MockModel(prompts=[one if isinstance(one, list) else [one] for one in scripts], **options)


def worker(model: MockModel, judge: Any, *tools: Any, attempts: int = 3, **options: Any) -> Agent[None, str]:
    gate = Completion(judge, max_attempts=attempts)
    return Agent("w", does="works", model=model, tools=list(tools), completion=gate, **options)


def verdicts(result: TaskResult[Any]) -> list[tuple[int, bool, str]]:
    return [(one.number, one.ok, one.reason) for one in result.verdicts]


@tool
def t(n: int) -> str:
    if n < 0:
        raise ValueError("below zero")
    return f"t{n}"


async def test_it_is_done_once_it_passes_and_every_round_is_in_the_ledger() -> None:
    judge = Judge((False, "too short"), (False, "too long"), YES)
    model = rounds(say("a", tokens=70), [call("t", n=1).with_options(tokens=30), say("aaa", tokens=40)], "aa")
    result, rt = await worker(model, judge, t).run("write")
    assert (result.status, result.text, result.output) == ("done", "aa", "aa")
    assert verdicts(result) == [(1, False, "too short"), (2, False, "too long"), (3, True, "good")]
    assert judge.texts == [(1, "a"), (2, "aaa"), (3, "aa")]
    assert (result.turns, result.total_tokens, result.own_tokens) == (4, 240, 240)
    assert (result.usage.model_calls, result.usage.tool_calls) == (4, 1)
    assert rt.ledger().total.total_tokens == 240
    said = [(m.role, m.text) for m in rt.transcript(W)]
    assert said == [
        ("user", "write"), ("assistant", "a"), ("user", "too short"), ("assistant", ""), ("tool", "t1"),
        ("assistant", "aaa"), ("user", "too long"), ("assistant", "aa"),
    ]  # fmt: skip
    # What was judged is what the model is shown when it is sent back.
    assert [m.text for m in model.requests[1].messages] == ["write", "a", "too short"]


@pytest.mark.parametrize("attempts", [1, 3])
async def test_after_the_last_round_it_is_incomplete(attempts: int) -> None:
    judge = Judge(*[(False, f"no {n}") for n in range(1, 9)])
    result, rt = await worker(rounds("a"), judge, attempts=attempts).run("write")
    assert (result.status, result.limit, result.limit_at) == ("incomplete", "completion", W)
    assert (result.partial, result.output, result.error) == ("a", None, None)
    assert verdicts(result) == [(n, False, f"no {n}") for n in range(1, attempts + 1)]
    assert f"no {attempts}" in result.text
    assert (result.turns, result.total_tokens) == (attempts, attempts * 100)
    assert rt.inspect(W).state == "idle"


async def test_after_it_was_given_up_another_round_can_be_had() -> None:
    judge = Judge(NO, NO, YES)
    agent = worker(rounds("a", "b", "c"), judge, attempts=2)
    result, rt = await agent.run("write")
    assert result.limit == "completion"
    result = await rt.extend(Budget(max_turns=9))
    assert (result.status, result.text, result.turns) == ("done", "c", 3)
    assert verdicts(result) == [(1, *NO), (2, *NO), (3, *YES)]


async def test_the_feedback_on_a_typed_answer_is_the_result_of_its_call() -> None:
    judge = Judge((False, "too small"), YES)
    model = MockModel([call("final_result", value=1), call("final_result", value=2)])
    agent = Agent(
        "w", does="works", model=model, output_type=int, completion=Completion(judge, max_attempts=2)
    )
    result, rt = await agent.run("guess")
    assert (result.status, result.output, result.text) == ("done", 2, "2")
    assert judge.texts == [(1, "1"), (2, "2")]
    told = [(m.text, m.is_error) for m in rt.transcript(W) if isinstance(m, ToolMessage)]
    assert told == [("too small", True), ("accepted", False)]
    assert sum(isinstance(m, UserMessage) for m in rt.transcript(W)) == 1
    assert [m.text for m in model.requests[1].messages] == ["guess", "", "too small"]


@dataclass
class Point:
    x: int
    y: int = 0


@pytest.mark.parametrize("native", [True, False])
async def test_it_judges_the_object(native: bool) -> None:
    judge = Judge((False, "more"), YES)
    if native:
        model = rounds('{"x": 1}', '{"x": 2}')
        model.structured_output = True
    else:
        model = MockModel([call("final_result", x=1), call("final_result", x=2)])
    gate = Completion(judge, max_attempts=3)
    agent = Agent("w", does="works", model=model, output_type=Point, completion=gate)
    result, _ = await agent.run("where")
    assert [attempt.output for attempt in judge.seen] == [Point(1), Point(2)]
    assert judge.texts == [(1, '{"x":1,"y":0}'), (2, '{"x":2,"y":0}')]
    assert result.unwrap() == Point(2)
    assert result.output is not judge.seen[1].output


# ------------------------------------------------------------------ other limits, other stops


@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        (Budget(max_turns=2), "maxTurns"),
        (Budget(max_tokens=200), "maxTokens"),
        (Budget(max_model_calls=2), "maxModelCalls"),
        (Budget(max_tool_calls=0), "maxToolCalls"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_another_limit_meanwhile_tells_both(budget: Budget, limit: str) -> None:
    judge = Judge((False, "where is t?"), YES)
    agent = worker(rounds("a", [call("t", n=1), "b"]), judge, t, budget=budget)
    result, rt = await agent.run("write")
    assert (result.status, result.limit, result.limit_at) == ("incomplete", limit, W)
    assert limit in result.text
    assert "where is t?" in result.text
    assert verdicts(result) == [(1, False, "where is t?")]
    result = await rt.extend(Budget.model_validate(dict.fromkeys(budget.model_fields_set, 900)))
    assert (result.status, result.text) == ("done", "b")
    assert verdicts(result) == [(1, False, "where is t?"), (2, *YES)]
    assert (result.turns, result.usage.tool_calls) == (3, 1)


async def test_rounds_count_as_turns_and_a_last_turn_is_judged() -> None:
    judge = Judge(NO)
    result, _ = await worker(rounds("a"), judge, attempts=9, budget=Budget(max_turns=3)).run("write")
    assert (result.limit, result.turns, len(judge.seen)) == ("maxTurns", 3, 3)
    judge = Judge(NO, YES)
    result, _ = await worker(rounds("a", "b"), judge, budget=Budget(max_turns=2)).run("write")
    assert (result.status, result.text) == ("done", "b")


@pytest.mark.parametrize(
    ("script", "budget", "status", "why"),
    [
        ([say("I will not", finish="refusal")], None, "error", "Refusal"),
        ([say("half a", finish="length")], None, "error", "OutputTruncated"),
        ([say("", tokens=5)], None, "error", "EmptyReply"),
        ([say("x", finish="content_filter")], None, "error", "ContentFilter"),
        ([RuntimeError("down")], None, "error", "RuntimeError"),
        ([[say("done!"), call("t", n=1)]], Budget(max_turns=1), "incomplete", "maxTurns"),
        ([[say("done!"), call("t", n=1)]], Budget(max_tool_calls=0), "incomplete", "maxToolCalls"),
        ([[say("done!"), call("approve")]], None, "pending", None),
    ],
)
async def test_a_stop_with_its_own_reason_is_never_judged(
    script: Any, budget: Budget | None, status: str, why: str | None
) -> None:
    judge = Judge(YES)
    agent = worker(MockModel(script), judge, t, approve, budget=budget)
    result, _ = await agent.run("write")
    told = result.limit if result.error is None else result.error.type
    assert (result.status, told, judge.seen, result.verdicts) == (status, why, [], ())


async def test_an_error_in_a_later_round_has_the_verdicts() -> None:
    agent = worker(rounds("a", RuntimeError("down")), Judge(NO))
    result, rt = await agent.run("write")
    assert (result.status, verdicts(result)) == ("error", [(1, *NO)])
    await rt.close()
    assert verdicts(rt.result()) == [(1, *NO)]


@both
async def test_a_question_meanwhile_and_what_the_answer_does_to_the_rounds(policy: ResumePolicy) -> None:
    asked: list[int] = []

    def judge(attempt: Attempt[Any]) -> tuple[bool, str]:
        asked.append(attempt.number)
        return bool(attempt.tool_calls), f"judged {len(asked)}"

    model = rounds("draft", [call("approve"), "final"])
    result, rt = await worker(model, judge, approve).run("write", resume_policy=policy)
    assert (result.status, verdicts(result)) == ("pending", [(1, False, "judged 1")])
    result = await rt.resume(yes(result))
    assert (result.status, result.text) == ("done", "final")
    if policy is ResumePolicy.REWIND:
        assert verdicts(result) == [(1, False, "judged 2"), (2, True, "judged 3")]
        assert (asked, result.turns, result.total_tokens) == ([1, 1, 2], 5, 500)
    else:
        assert verdicts(result) == [(1, False, "judged 1"), (2, True, "judged 2")]
        assert (asked, result.turns, result.total_tokens) == ([1, 2], 3, 300)


async def test_it_judges_the_work_of_all_rounds_as_it_was_done() -> None:
    def doubled(event: BeforeTool) -> ToolOverride | None:
        if event.call.arguments.get("n") == 3:
            return ToolOverride(arguments={"n": 30})
        return None

    judge = Judge(NO, YES)
    model = MockModel(
        prompts=[
            [[call("t", n=1), call("t", n=-1), call("t", n=2)], [call("nope"), call("t", n="x")], "a"],
            [[call("t", n=1), call("t", n=3), call("task", agent="help", prompt="p")], "b"],
        ]
    )
    agent = worker(
        model, judge, t,
        team=[Agent("help", does="helps", model=MockModel(["helped"]))],
        guardrails=[require_approval("t", when=lambda args: args["n"] == 2)],
        hooks=Hooks(before_tool=doubled),
    )  # fmt: skip
    result, rt = await agent.run("go", resume_policy=ResumePolicy.CONTINUE)
    result = await rt.resume(yes(result, {"arguments": {"n": 20}}))
    assert result.text == "b"
    early = [("t", {"n": 1}, "t1"), ("t", {"n": -1}, "ValueError: below zero"), ("t", {"n": 20}, "t20")]
    assert used(judge.seen[0]) == early
    assert [got.is_error for _, got in judge.seen[0].tool_calls] == [False, True, False]
    task = ("task", {"agent": "help", "prompt": "p"}, "helped")
    assert used(judge.seen[1]) == [*early, ("t", {"n": 1}, "t1"), ("t", {"n": 30}, "t30"), task]
    assert judge.seen[1].tool_calls[-1][1].metadata["handle"] == f"{W}/help.1"
    assert len({made.id for made, _ in judge.seen[1].tool_calls}) == 6


async def test_what_was_not_done_is_not_judged_as_done() -> None:
    def deny(event: Any) -> Ruling:
        return Deny("never") if event.call.arguments == {"n": 1} else Allow()

    judge = Judge(YES)
    model = MockModel([[call("t", n=1), call("t", n=2), call("nope")], "a"])
    agent = worker(model, judge, t, guardrails=[deny, require_approval("t")])
    result, rt = await agent.run("go", resume_policy=ResumePolicy.CONTINUE)
    result = await rt.resume(no(result))
    assert (result.text, judge.seen[0].tool_calls) == ("a", ())


@both
async def test_work_of_an_earlier_attempt_counts_only_if_it_was_carried(policy: ResumePolicy) -> None:
    bought: list[int] = []

    def script(request: ModelRequest) -> Any:
        replies = sum(m.role == "assistant" for m in request.messages)
        if replies == 0:
            bought.append(1)
            return [call("t", n=len(bought)), call("approve")]
        return say("a")

    judge = Judge(YES)
    result, rt = await worker(MockModel(script), judge, t, approve).run("go", resume_policy=policy)
    await rt.resume(yes(result))
    n = 2 if policy is ResumePolicy.REWIND else 1
    assert used(judge.seen[0]) == [("t", {"n": n}, f"t{n}"), ("approve", {"what": "it"}, "it: yes")]


@both
async def test_work_before_a_limit_stop_counts_after_a_rewind_to_it(policy: ResumePolicy) -> None:
    judge = Judge(YES)
    model = MockModel([[call("t", n=1), call("t", n=2)], call("approve"), "a"])
    agent = worker(model, judge, t, approve, budget=Budget(max_tool_calls=1))
    result, rt = await agent.run("go", resume_policy=policy)
    assert result.limit == "maxToolCalls"
    result = await rt.resume(yes(await rt.extend(Budget(max_tool_calls=9))))
    assert result.text == "a"
    assert used(judge.seen[0]) == [
        ("t", {"n": 1}, "t1"), ("t", {"n": 2}, "t2"), ("approve", {"what": "it"}, "it: yes")
    ]  # fmt: skip


async def test_what_a_verifier_does_to_what_it_is_shown_alters_nothing() -> None:
    def spoil(attempt: Attempt[Any]) -> tuple[bool, str]:
        attempt.tool_calls[0][0].arguments["n"] = 99
        return attempt.number == 2, "again"

    result, rt = await worker(rounds([call("t", n=1), "a"], "b"), spoil, t).run("go")
    made = next(m for m in rt.transcript(W) if m.role == "assistant")
    assert (result.status, made.tool_calls[0].arguments) == ("done", {"n": 1})


# ------------------------------------------------------------------ verifiers


async def test_a_plain_function_judges_in_a_thread_and_holds_up_nobody() -> None:
    begun = anyio.Event()
    go_on = threading.Event()
    threads: list[int] = []

    def judge(attempt: Attempt[Any]) -> tuple[bool, str]:
        threads.append(threading.get_ident())
        anyio.from_thread.run_sync(begun.set)
        return go_on.wait(20), "waited"

    found: list[TaskResult[str]] = []

    async def host() -> None:
        found.append((await worker(rounds("a"), judge).run("go"))[0])

    async with anyio.create_task_group() as group:
        group.start_soon(host)
        with anyio.fail_after(20):
            await begun.wait()
        go_on.set()
    assert verdicts(found[0]) == [(1, True, "waited")]
    assert threads != [threading.get_ident()]


def test_it_judges_in_a_run_without_a_loop() -> None:
    result, _ = worker(rounds("a", "b"), lambda attempt: (attempt.number == 2, "once more")).run_sync("go")
    assert (result.text, verdicts(result)) == ("b", [(1, False, "once more"), (2, True, "once more")])


@pytest.mark.parametrize("plain", [True, False])
async def test_a_verifier_that_raises_is_no_verdict_and_is_asked_again(plain: bool) -> None:
    says = Judge(NO, ConnectionError("checker at http://u:secret@h is down"), NO, YES)

    def aloud(attempt: Attempt[Any]) -> tuple[bool, str]:
        return anyio.from_thread.run(says, attempt)

    model = rounds("a", "b", "c")
    result, rt = await worker(model, aloud if plain else says).run("go")
    assert result.error is not None
    assert (result.status, result.error.source, result.error.type) == (
        "error", "completion", "ConnectionError",
    )  # fmt: skip
    assert "is down" in result.error.message
    assert (verdicts(result), result.limit) == ([(1, *NO)], None)
    assert (result.turns, result.total_tokens) == (2, 200)
    result = await rt.recover()
    assert (result.status, result.text) == ("done", "c")
    assert verdicts(result) == [(1, *NO), (2, *NO), (3, *YES)]
    assert says.texts == [(1, "a"), (2, "b"), (2, "b"), (3, "c")]
    assert len(model.requests) == result.turns == 3


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(
    "value", [None, True, "yes", (1, "x"), (True, None), (True,), (True, "x", 1), [True, "x"]], ids=repr
)
async def test_a_verifier_that_returns_something_else_is_an_error_that_says_so(
    value: Any, plain: bool
) -> None:
    async def my_check(attempt: Attempt[Any]) -> Any:
        return value

    def my_plain_check(attempt: Attempt[Any]) -> Any:
        return value

    result, _ = await worker(rounds("a"), my_plain_check if plain else my_check).run("go")
    assert result.error is not None
    assert (result.status, result.error.source, result.error.type) == ("error", "completion", "TypeError")
    assert repr(value) in result.error.message
    assert "_check" in result.error.message
    assert result.verdicts == ()


@pytest.mark.parametrize("door", ["task", "as_tool"])
async def test_it_travels_through_a_delegation(door: str) -> None:
    inner, outer = Judge((False, "thin")), Judge(YES)
    scout = Agent("scout", does="looks", model=rounds("x"), completion=Completion(inner, max_attempts=2))
    asks = call("task", agent="scout", prompt="look") if door == "task" else call("scout", prompt="look")
    lead = worker(
        MockModel([asks, "told"]), outer,
        *([] if door == "task" else [scout.as_tool()]),
        team=[scout] if door == "task" else [],
    )  # fmt: skip
    result, rt = await lead.run("go")
    assert (result.status, result.text, verdicts(result)) == ("done", "told", [(1, *YES)])
    (told,) = tools_said(rt.transcript(W))
    assert told.startswith("[incomplete] ")
    assert "thin" in told
    (_, got) = outer.seen[0].tool_calls[0]
    assert (got.is_error, got.metadata["limit"], got.metadata["turns"]) == (True, "completion", 2)
    assert (result.total_tokens, result.own_tokens, rt.usage_tokens(f"{W}/scout.1")) == (400, 200, 200)


async def test_it_judges_an_agent_called_as_a_function() -> None:
    result = await worker(rounds("a", "b"), Judge(NO, YES)).as_tool()("write")
    assert (result.text, verdicts(result)) == ("b", [(1, *NO), (2, *YES)])


async def test_it_judges_every_prompt_of_a_loop() -> None:
    judge = Judge(NO, NO, YES, NO, YES)
    loop = worker(rounds("a", "b", "c", "d", "e"), judge, attempts=2).loop()
    result = await loop.run("one")
    assert (result.limit, verdicts(result)) == ("completion", [(1, *NO), (2, *NO)])
    result = await loop.run("two")
    assert (result.status, result.text, verdicts(result)) == ("done", "d", [(1, *YES)])
    result = await loop.run("three")
    assert (result.status, verdicts(result)) == ("done", [(1, *NO), (2, *YES)])
    assert [number for number, _ in judge.texts] == [1, 2, 1, 1, 2]
    assert (result.turns, result.total_tokens) == (5, 500)


def appended(store: CrashingStore, then: Callable[[int], None]) -> Callable[[Attempt[Any]], Awaitable[Any]]:
    async def look(attempt: Attempt[Any]) -> tuple[bool, str]:
        then(store.appends)
        return attempt.number == 2, "again"

    return look


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("round_", [1, 2])
async def test_a_process_that_dies_while_it_judges_buys_nothing_again(
    typed: bool, round_: int, tmp_path: Path
) -> None:
    model = rounds([call("t", n=1), "1"], "2")
    if typed:
        model = MockModel([call("t", n=1), call("final_result", value=1), call("final_result", value=2)])

    def made(judge: Any) -> Agent[None, Any]:
        gate = Completion(judge, max_attempts=3)
        if typed:
            return Agent("w", does="works", model=model, tools=[t], completion=gate, output_type=int)
        return Agent("w", does="works", model=model, tools=[t], completion=gate)

    dry = CrashingStore(MemoryStore())
    at: list[int] = []
    await made(appended(dry, at.append)).run("go", store=dry)
    inner = SQLiteStore(tmp_path / "runs.db")
    dying = CrashingStore(inner, crash_at=at[round_ - 1] + 1)
    asked: list[int] = []
    model.requests.clear()
    with pytest.raises((Crashed, StoreError, BaseExceptionGroup)):
        await made(appended(dying, asked.append)).run("go", store=dying, run_id="r")
    assert len(asked) == round_
    judge = Judge(*[(n == 2, "again") for n in range(round_, 3)])
    rt = await Runtime.open(made(judge), "r", store=inner)
    assert rt.result().status == "interrupted"
    result = await rt.recover()
    await inner.close()
    assert (result.status, result.text, result.turns) == ("done", "2", 3)
    assert verdicts(result) == [(1, False, "again"), (2, True, "again")]
    assert len(model.requests) == 3
    assert [number for number, _ in judge.texts] == list(range(round_, 3))
    assert used(judge.seen[0]) == [("t", {"n": 1}, "t1")]
    assert (result.usage.model_calls, result.usage.unreported_calls) == (3, 0)


@both
async def test_another_process_goes_on_with_the_rounds(policy: ResumePolicy) -> None:
    store = MemoryStore()

    def made(judge: Judge) -> Agent[None, str]:
        return worker(rounds("a", [call("approve"), "b"], "c"), judge, approve)

    await made(Judge(NO)).run("go", store=store, run_id="r", resume_policy=policy)
    judge = Judge(*([NO] if policy is ResumePolicy.REWIND else []), NO, YES)
    rt = await Runtime.open(made(judge), "r", store=store)
    assert verdicts(rt.result()) == [(1, *NO)]
    result = await rt.resume(yes(rt.result()))
    assert (result.text, verdicts(result)) == ("c", [(1, *NO), (2, *NO), (3, *YES)])
    assert judge.texts[-2:] == [(2, "b"), (3, "c")]


@pytest.mark.parametrize("door", ["task", "as_tool"])
@both
async def test_another_process_goes_on_below_a_delegation(policy: ResumePolicy, door: str) -> None:
    store = MemoryStore()

    def made(judge: Judge) -> Agent[None, str]:
        scout = worker(rounds("a", [call("approve"), "b"]), judge, approve)
        asks = call("task", agent="w", prompt="p") if door == "task" else call("w", prompt="p")
        lead = Agent("lead", does="leads", model=MockModel([asks, "told"]))
        if door == "task":
            return lead.with_team(scout)
        return Agent("lead", does="leads", model=lead.model, tools=[scout.as_tool()])

    result, rt = await made(Judge(NO)).run("go", store=store, run_id="r", resume_policy=policy)
    assert first(result).path == ("root", "lead.1", "w.1")
    judge = Judge(*([NO] if policy is ResumePolicy.REWIND else []), YES)
    rt = await Runtime.open(made(judge), "r", store=store)
    result = await rt.resume(yes(rt.result()))
    assert (result.text, result.verdicts) == ("told", ())
    assert tools_said(rt.transcript("root/lead.1")) == ["b"]
    assert judge.texts[-1] == (2, "b")


@pytest.mark.parametrize("plain", [True, False])
async def test_a_host_cancelled_while_it_judges_can_go_on(plain: bool) -> None:
    begun = anyio.Event()
    never = threading.Event()
    asked: list[int] = []

    async def slow(attempt: Attempt[Any]) -> tuple[bool, str]:
        asked.append(attempt.number)
        if len(asked) == 1:
            begun.set()
            await anyio.sleep_forever()
        return True, "good"

    def blocked(attempt: Attempt[Any]) -> tuple[bool, str]:
        asked.append(attempt.number)
        if len(asked) == 1:
            anyio.from_thread.run_sync(begun.set)
            never.wait(20)
        return True, "good"

    model = rounds("a")
    rt = Runtime(worker(model, blocked if plain else slow))
    try:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(rt.run, "go")
                await begun.wait()
                group.cancel_scope.cancel()
    finally:
        never.set()
    result = rt.result()
    assert (result.status, result.verdicts, result.turns) == ("interrupted", (), 1)
    result = await rt.recover()
    assert (result.status, verdicts(result), asked) == ("done", [(1, *YES)], [1, 1])
    assert len(model.requests) == 1


async def test_guardrails_see_what_the_gate_has_passed() -> None:
    seen: list[str] = []

    def guard(event: OutputEvent) -> Ruling:
        seen.append(event.text)
        return Deny("secret") if event.text == "b" else Allow()

    agent = worker(rounds("a", "b"), Judge(NO, YES), output_guardrails=[guard])
    result, _ = await agent.run("go")
    assert result.error is not None
    assert (result.status, result.error.type, result.error.source) == (
        "error", "GuardrailDenied", "guardrail",
    )  # fmt: skip
    assert (seen, verdicts(result)) == (["b"], [(1, *NO), (2, *YES)])
