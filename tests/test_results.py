"""One result: every status, its numbers, its JSON, and what it says of limits and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import anyio
import pytest

from overt import (
    Agent,
    Answer,
    Budget,
    Ledger,
    Limit,
    ResumePolicy,
    RetryPolicy,
    Runtime,
    Status,
    TaskResult,
    ToolContext,
    tool,
)
from overt.errors import ModelError, RunStopped
from overt.stores import MemoryStore
from overt.testing import MockModel, Reply, VirtualClock, call, say

Made = tuple[TaskResult[Any], Runtime[Any]]


@tool
async def ask(ctx: ToolContext[object], prompt: str) -> str:
    answer = await ctx.ask(prompt)
    return f"answered {answer.ok}"


@tool
def work() -> str:
    return "worked"


CHILD = Agent("child", does="works", tools=[work])
LEAD = Agent("lead", does="leads", tools=[work, ask], team=[CHILD])
TEXT_AND_TASK = [say("delegating"), call("task", agent="child", prompt="p")]


def model(lead: Any, child: Any = ("ok",)) -> MockModel:
    return MockModel({"lead": lead, "child": child})


async def made_done() -> Made:
    return await LEAD.run("go", model=model([TEXT_AND_TASK, say("finished")]))


ONCE = RetryPolicy(max_retries=0)


async def made_pending() -> Made:
    return await LEAD.run("go", model=model([[say("asking"), call("ask", prompt="ok?")]]))


async def made_incomplete() -> Made:
    return await LEAD.run("go", model=model([TEXT_AND_TASK, say("no")]), budget=Budget(max_model_calls=2))


async def made_error() -> Made:
    broken = ModelError("HTTP 503", status_code=503, retryable=True)
    return await LEAD.run("go", model=model([TEXT_AND_TASK, broken]), retry=ONCE)


async def made_interrupted() -> Made:
    rt: Runtime[Any]

    @tool
    async def stop() -> str:
        await rt.interrupt()
        return "never"

    lead = Agent("lead", does="leads", tools=[stop], team=[CHILD], model=model([TEXT_AND_TASK, call("stop")]))
    rt = Runtime(lead)
    return await rt.run("go"), rt


async def made_closed() -> Made:
    rt: Runtime[Any]

    @tool
    async def close() -> str:
        await rt.close(force=True, reason="enough")
        return "never"

    lead = Agent(
        "lead", does="leads", tools=[close], team=[CHILD], model=model([TEXT_AND_TASK, call("close")])
    )
    rt = Runtime(lead)
    return await rt.run("go"), rt


async def made_timeout() -> Made:
    clock = VirtualClock()

    async def slow(request: Any) -> Any:
        await clock.sleep(100)
        return say("late")

    lead = Agent(
        "lead", does="leads", team=[CHILD], model=MockModel({"lead": [TEXT_AND_TASK], "child": slow})
    )
    rt = Runtime(lead, clock=clock)
    found: list[TaskResult[Any]] = []
    async with rt:
        handle = await rt.spawn("root", "lead")
        await rt.wake(handle, "go")

        async def wait() -> None:
            found.append(await rt.wait(handle, timeout=5))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await clock.wait_for_sleepers(2)
            await clock.advance(6)
        await rt.close(force=True)
    return found[0], rt


MAKERS: dict[Status, Callable[[], Awaitable[Made]]] = {
    Status.DONE: made_done,
    Status.PENDING: made_pending,
    Status.INCOMPLETE: made_incomplete,
    Status.INTERRUPTED: made_interrupted,
    Status.CLOSED: made_closed,
    Status.TIMEOUT: made_timeout,
    Status.ERROR: made_error,
}
each_status = pytest.mark.parametrize("status", list(Status), ids=str)


def adds_up(ledger: Ledger) -> None:
    for _, line in ledger.walk():
        total = line.own
        for child in line.children:
            total = total + child.total
        assert line.total == total, line.handle


@each_status
async def test_every_status_keeps_its_promises(status: Status) -> None:
    result, rt = await MAKERS[status]()
    assert result.status is status
    assert (result.limit is not None) is (status is Status.INCOMPLETE)
    assert (result.limit_at is not None) is (status is Status.INCOMPLETE)
    assert (result.error is not None) is (status is Status.ERROR)
    assert (result.pending is not None) is (status is Status.PENDING)
    assert (result.output is not None) is (status is Status.DONE)
    assert result.is_error is (status not in (Status.DONE, Status.PENDING))
    assert result.text
    assert result.total_tokens == result.usage.total_tokens >= result.own_tokens
    assert result.own_tokens == result.own_usage.total_tokens > 0
    assert result.turns == result.own_usage.turns
    assert result.run_id == rt.id
    adds_up(rt.ledger())


@each_status
async def test_a_result_survives_json(status: Status) -> None:
    result, _ = await MAKERS[status]()
    assert TaskResult[str].model_validate_json(result.model_dump_json()) == result


@each_status
async def test_a_result_is_frozen_and_raises_unless_done(status: Status) -> None:
    result, _ = await MAKERS[status]()
    with pytest.raises(ValueError, match="frozen"):
        result.text = "else"  # type: ignore[misc]  # what must not work
    if status is Status.DONE:
        assert result.raise_for_status() is result
        assert result.unwrap() == "finished" == result.text
        return
    for raising in (result.raise_for_status, result.unwrap):
        with pytest.raises(RunStopped) as caught:
            raising()
        assert caught.value.result is result
        assert status.value in str(caught.value)


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.TIMEOUT], ids=str)
async def test_the_total_is_what_the_runtime_says(status: Status) -> None:
    result, rt = await MAKERS[status]()
    assert result.total_tokens == rt.usage_tokens(result.handle)
    assert rt.result() == result


async def test_the_sentence_has_the_reason() -> None:
    assert "ok?" in (await made_pending())[0].text
    assert "maxModelCalls" in (await made_incomplete())[0].text
    assert "HTTP 503" in (await made_error())[0].text
    assert "enough" in (await made_closed())[0].text


async def test_children_that_failed_or_were_cut_are_in_the_total() -> None:
    fails = [call("work"), ModelError("HTTP 500")]
    result, rt = await LEAD.run("go", model=model([TEXT_AND_TASK, say("done")], fails))
    assert (result.status, result.own_tokens, result.total_tokens) == (Status.DONE, 200, 300)
    assert (result.usage.model_calls, result.usage.unreported_calls, result.usage.tool_calls) == (4, 1, 2)
    adds_up(rt.ledger())


async def test_error_info_says_what_the_provider_said() -> None:
    result, _ = await made_error()
    assert result.error is not None
    assert (result.error.type, result.error.source) == ("ModelError", "model")
    assert (result.error.status_code, result.error.retryable) == (503, True)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (say(""), "EmptyReply"),
        (say(" \n"), "EmptyReply"),
        (say("no", finish="refusal"), "Refusal"),
        (say("half", finish="content_filter"), "ContentFilter"),
        (say("hal", finish="length"), "OutputTruncated"),
        ([call("work").with_options(finish="length")], "OutputTruncated"),
    ],
)
async def test_a_reply_that_is_no_answer_is_an_error_of_its_own_type(reply: Any, kind: str) -> None:
    result, _ = await LEAD.run("go", model=model([call("work"), reply]))
    assert result.status is Status.ERROR
    assert result.error is not None
    assert result.error.type == kind
    assert (result.turns, result.total_tokens, result.usage.tool_calls) == (2, 200, 1)


# ------------------------------------------------------------ a whole life


async def test_numbers_of_a_second_wake_begin_where_the_first_ended() -> None:
    async with Runtime(LEAD, model=model([TEXT_AND_TASK, say("finished")])) as rt:
        lead = await rt.spawn("root", "lead")
        first = await rt.run_turn(lead, "one")
        second = await rt.run_turn(lead, "two")
    assert (first.turns, first.own_tokens, first.total_tokens) == (2, 200, 300)
    assert (second.turns, second.own_tokens, second.total_tokens) == (4, 400, 600)
    assert first.usage.tool_calls == 1


async def test_numbers_never_go_down_in_the_life_of_a_handle() -> None:
    """Resume with rewind, an error, recover, a limit, extend, and another runtime in between each."""
    store = MemoryStore()
    down = [True]

    def lead(request: Any) -> Any:
        turn = sum(m.role == "assistant" for m in request.messages)
        if turn == 2 and down and down.pop():
            raise ModelError("HTTP 503", retryable=True)
        return [
            TEXT_AND_TASK,
            [say("asking"), call("ask", prompt="ok?")],
            call("work"),
            call("work"),
            say("x"),
        ][turn]

    options: dict[str, Any] = {"store": store, "model": model(lead), "retry": ONCE}
    agent = Agent("lead", does="leads", tools=[work, ask], team=[CHILD], budget=Budget(max_turns=4))
    seen: list[tuple[int, ...]] = []

    def note(result: TaskResult[Any], rt: Runtime[Any]) -> None:
        adds_up(rt.ledger())
        seen.append(
            (result.turns, result.own_tokens, result.total_tokens, *result.usage.model_dump().values())
        )

    result, rt = await agent.run("go", run_id="life", **options)
    note(result, rt)
    for step, status in enumerate(("error", "incomplete", "done")):
        rt = await Runtime.open(agent, "life", **options)
        note(rt.result(), rt)
        match step:
            case 0:
                result = await rt.resume(Answer(id=rt.pendings()[0].id, ok=True))
            case 1:
                result = await rt.recover()
            case _:
                result = await rt.extend(Budget(max_turns=6))
        assert result.status == status
        note(result, rt)
    for before, after in pairwise(seen):
        assert all(b <= a for b, a in zip(before, after, strict=True)), (before, after)
    # Two turns, a rewind that buys both again, a lost call, and three more turns; the child once.
    assert (result.turns, result.own_tokens, result.total_tokens) == (7, 700, 800)
    assert result.usage.unreported_calls == 1
    assert result.output == "x"


async def test_partial_is_the_last_text_of_this_wake() -> None:
    script: list[list[Reply]] = [
        [[say("thinking"), call("work")], say("first answer")],
        [call("work"), ModelError("HTTP 503")],
        [[say("second thought"), call("work")], ModelError("HTTP 503")],
    ]
    async with Runtime(LEAD, model=MockModel(prompts=script)) as rt:
        lead = await rt.spawn("root", "lead")
        one = await rt.run_turn(lead, "1")
        two = await rt.run_turn(lead, "2")
    assert (one.partial, one.text) == ("first answer", "first answer")
    assert (two.status, two.partial) == ("error", "")


async def test_partial_while_a_second_wake_waits_for_its_slot() -> None:
    clock = VirtualClock()

    async def slow(request: Any) -> Any:
        if len(request.messages) > 1 or request.messages[-1].text == "block":
            await clock.sleep(10)
        return say("the first answer")

    async with Runtime(LEAD, model=MockModel(slow), clock=clock, budget=Budget(max_concurrent=1)) as rt:
        one = await rt.spawn("root", "lead")
        two = await rt.spawn("root", "lead")
        assert (await rt.run_turn(one, "go")).output == "the first answer"
        await rt.wake(two, "block")
        await rt.wake(one, "again")
        queued = await rt.wait(one, timeout=0)
        assert (queued.status, queued.partial, queued.output) == ("timeout", "", None)
        assert "answer" not in queued.text
        await rt.close(force=True)
    assert rt.inspect(one).state == "closed"


def test_the_vocabularies_are_closed() -> None:
    assert {s.value for s in Status} == {
        "done", "pending", "incomplete", "interrupted", "closed", "timeout", "error",
    }  # fmt: skip
    assert {x.value for x in Limit} == {
        "maxTurns", "completion", "maxTokens", "maxToolCalls", "maxWall", "maxCost", "maxModelCalls",
    }  # fmt: skip


# ------------------------------------------------------------ cancellation


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_a_cancelled_host_leaves_a_run_that_can_be_recovered(policy: ResumePolicy) -> None:
    store = MemoryStore()
    entered: list[str] = []
    inside = anyio.Event()

    @tool
    def first() -> str:
        entered.append("first")
        return "1"

    @tool
    async def hangs() -> str:
        entered.append("hangs")
        if entered.count("hangs") == 1:
            inside.set()
            await anyio.sleep_forever()
        return "2"

    agent = Agent("lead", does="x", tools=[first, hangs])
    script = model([[say("one"), call("first")], [say("two"), call("hangs")], say("done")])
    rt = Runtime(agent, model=script, store=store, run_id="cut", resume_policy=policy)
    returned: list[object] = []

    async def host() -> None:
        returned.append(await rt.run("go"))

    async with anyio.create_task_group() as group:
        group.start_soon(host)
        await inside.wait()
        group.cancel_scope.cancel()
    assert not returned
    cut = rt.result()
    assert (cut.status, cut.partial, cut.turns, cut.total_tokens) == ("interrupted", "two", 2, 200)
    assert (cut.limit, cut.error) == (None, None)
    reopened = await Runtime.open(agent, "cut", model=script, store=store)
    assert reopened.result() == cut
    result = await reopened.recover()
    assert (result.status, result.turns, result.total_tokens) == ("done", 3, 300)
    assert entered == ["first", "hangs", "hangs"]


async def test_a_503_after_an_approval_costs_nothing_twice() -> None:
    """Under CONTINUE too, where nothing at all is bought again."""
    down = [True]
    entered: list[str] = []

    @tool
    def stage() -> str:
        entered.append("stage")
        return "staged"

    @tool
    async def approve(ctx: ToolContext[object]) -> str:
        entered.append("approve")
        return str((await ctx.ask("ok?")).ok)

    def lead(request: Any) -> Any:
        turn = sum(m.role == "assistant" for m in request.messages)
        if turn == 2 and down and down.pop():
            raise ModelError("HTTP 503", retryable=True)
        return [call("stage"), call("approve"), say("shipped")][turn]

    agent = Agent("lead", does="x", tools=[stage, approve])
    result, rt = await agent.run("go", model=MockModel(lead), resume_policy=ResumePolicy.CONTINUE, retry=ONCE)
    assert result.pending is not None
    failed = await rt.resume(Answer(id=result.pending.id, ok=True))
    assert (failed.status, failed.turns, failed.total_tokens) == ("error", 2, 200)
    assert rt.inspect(failed.handle).state == "idle"
    done = await rt.recover()
    assert (done.status, done.output, done.turns, done.total_tokens) == ("done", "shipped", 3, 300)
    assert entered == ["stage", "approve", "approve"]
    assert (done.usage.model_calls, done.usage.unreported_calls) == (4, 1)


@pytest.mark.parametrize(
    ("status", "is_open"),
    [
        (Status.DONE, False),
        (Status.INTERRUPTED, False),
        (Status.CLOSED, False),
        (Status.PENDING, True),
        (Status.INCOMPLETE, True),
        (Status.ERROR, True),
    ],
)
async def test_which_runs_stay_open(status: Status, is_open: bool) -> None:
    result, rt = await MAKERS[status]()
    assert result.status is status
    assert (rt.inspect("root").state != "closed") is is_open
    assert (rt.inspect("root/lead.1").state != "closed") is is_open
    for view in rt.list():
        if view.id != "root/lead.1":
            assert view.state == "closed"
    # What is committed: a wake that is parked, failed or was ended from outside keeps nothing in the transcript.
    assert bool(rt.transcript("root/lead.1")) is (status in (Status.DONE, Status.INCOMPLETE))
