"""Asking: by return value and by `ctx.ask`, once and several times, in threads and task groups, and refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from overt import Answer, ResumePolicy, Runtime, Status, ToolContext, ToolResult, pending, tool
from overt.stores import MemoryStore
from overt.testing import call, say
from tests.suspend_kit import agent, approve, first, no, tools_said, yes

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("policy", list(ResumePolicy))
ASKING = [call("ask"), say("end")]


@BOTH
async def test_both_ways_of_asking_suspend_and_go_on(policy: ResumePolicy) -> None:
    @tool
    async def ask(ctx: ToolContext, what: str) -> str:
        """Ask."""
        answer = await ctx.ask(f"do {what}?", kind="approval")
        return f"{what}: {'yes' if answer.ok else 'no'}"

    for asker in (ask, approve):
        worker = agent([call(asker.name, what="this"), say("end")], asker)
        result, runtime = await worker.run("go", resume_policy=policy)
        assert result.status is Status.PENDING
        request = first(result)
        assert (request.kind, request.prompt) == ("approval", "do this?")
        assert request.data == {"call": {"tool": asker.name, "arguments": {"what": "this"}}}
        assert request.path == ("root", "w.1")
        assert result.text == "Waiting for an answer to: do this?"
        result = await runtime.resume(yes(request))
        assert result.status is Status.DONE
        assert tools_said(runtime.transcript(result.handle)) == ["this: yes"]


@BOTH
async def test_the_whole_answer_reaches_the_tool_a_refusal_too(policy: ResumePolicy) -> None:
    seen: list[Answer[Any]] = []
    entries: list[int] = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        entries.append(len(ctx.answers))
        seen.append(await ctx.ask("well?", kind="input", url="https://x", data={"k": [1]}))
        assert ctx.answer == ctx.answers[-1] == seen[-1]
        return "heard"

    result, runtime = await agent(ASKING, ask).run("go", resume_policy=policy)
    request = first(result)
    assert (request.url, request.data["k"]) == ("https://x", [1])
    given = Answer[Any](id=request.id, ok=False, data={"why": ["late"]}, reason="not today", by="ada")
    result = await runtime.resume(given)
    (heard,) = seen
    assert (heard.ok, heard.data, heard.reason, heard.by) == (False, {"why": ["late"]}, "not today", "ada")
    assert heard.at is not None
    assert heard.at.tzinfo is not None
    assert entries == [0, 1], "a tool that asks runs from its first line for every answer"
    assert result.status is Status.DONE


@BOTH
async def test_the_nth_question_gets_the_nth_answer(policy: ResumePolicy) -> None:
    before: list[str] = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        before.append("entered")
        one = await ctx.ask("same words")
        two = await ctx.ask("same words")
        three = await ctx.ask("other words")
        assert [a.data for a in ctx.answers] == [1, 2, 3]
        return f"{one.data} {two.data} {three.data}"

    result, runtime = await agent(ASKING, ask).run("go", resume_policy=policy)
    ids = []
    for n in (1, 2, 3):
        (request,) = result.pendings
        assert not request.diverged
        ids.append(request.id)
        result = await runtime.resume(yes(request, n))
    assert len(set(ids)) == 3
    assert result.status is Status.DONE
    assert tools_said(runtime.transcript(result.handle)) == ["1 2 3"]
    assert len(before) == 4


@BOTH
async def test_a_sync_tool_asks_twice_by_return_value(policy: ResumePolicy) -> None:
    @tool
    def ask(ctx: ToolContext) -> ToolResult:
        """Ask."""
        if len(ctx.answers) < 2:
            return pending(kind="input", prompt=f"number {len(ctx.answers) + 1}?")
        return ToolResult(str([a.data for a in ctx.answers]))

    result, runtime = await agent(ASKING, ask).run("go", resume_policy=policy)
    for n in (1, 2):
        assert first(result).prompt == f"number {n}?"
        assert not first(result).diverged
        result = await runtime.resume(yes(result, n))
    assert tools_said(runtime.transcript(result.handle)) == ["[1, 2]"]


CHANGES: list[dict[str, Any]] = [
    {"prompt": "changed?"},
    {"kind": "authorization"},
    {"url": "https://b"},
    {"data": {"amount": 2}},
    {"answer_type": str},
    {},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: next(iter(c), "nothing"))
async def test_an_answer_is_bound_to_what_was_asked(change: dict[str, Any]) -> None:
    asked: dict[str, Any] = {
        "prompt": "ok?", "kind": "input", "url": "https://a", "data": {"amount": 1}, "answer_type": int,
    }  # fmt: skip

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        fields = dict(asked)
        return str((await ctx.ask(fields.pop("prompt"), **fields)).data)

    result, runtime = await agent(ASKING, ask).run("go")
    old = first(result)
    asked.update(change)
    result = await runtime.resume(yes(old, 7))
    if not change:
        assert result.status is Status.DONE
        assert result.replay is not None
        assert result.replay.unused_answers == ()
        return
    new = first(result)
    assert new.diverged
    assert new.id != old.id
    data = "x" if "answer_type" in change else 8
    result = await runtime.resume(yes(new, data))
    assert tools_said(runtime.transcript(result.handle)) == [str(data)]
    assert result.replay is not None
    assert result.replay.unused_answers == (old.id,)


async def test_another_expiry_is_the_same_question() -> None:
    times = iter([datetime.now(UTC) + timedelta(days=n) for n in (1, 2)])

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        return str((await ctx.ask("ok?", expires_at=next(times))).ok)

    result, runtime = await agent(ASKING, ask).run("go")
    result = await runtime.resume(yes(result))
    assert result.status is Status.DONE


async def test_a_changed_question_has_a_new_id_and_is_asked_at_most_twice() -> None:
    prompts = iter(f"question {n}" for n in range(9))

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        return str((await ctx.ask(next(prompts))).ok)

    result, runtime = await agent(ASKING, ask).run("go")
    ids = [first(result).id]
    for _ in range(2):
        result = await runtime.resume(yes(result))
        assert first(result).diverged
        ids.append(first(result).id)
    assert len(set(ids)) == 3
    result = await runtime.resume(yes(result))
    assert result.status is Status.ERROR
    assert result.error is not None
    assert result.error.type == "ReplayDiverged"
    assert "question 3" in result.text
    assert "question 2" in result.text


async def test_ids_are_stable_in_one_run_and_unique_across_runs() -> None:
    worker = agent(
        [[call("approve", what="a"), call("approve", what="b"), call("approve", what="a")], say("end")],
        approve,
    )
    ids: dict[str, list[str]] = {}
    store = MemoryStore()
    for run_id in ("one", "two"):
        result, runtime = await worker.run("go", run_id=run_id, store=store)
        ids[run_id] = [r.id for r in result.pendings]
        again = await Runtime.open(worker, run_id, store=store)
        assert [r.id for r in again.pendings()] == ids[run_id]
        result = await runtime.resume(no(result.pendings[1]))
        assert [r.id for r in result.pendings] == [ids[run_id][0], ids[run_id][2]]
    assert len({*ids["one"], *ids["two"]}) == 6
    same, _ = await worker.run("go", run_id="one")
    assert [r.id for r in same.pendings] == ids["one"], "the id is derived, not drawn"


async def test_ids_stay_over_replays() -> None:
    @tool
    async def ask(ctx: ToolContext, n: int) -> str:
        """Ask."""
        await ctx.ask("ok?")
        await ctx.ask("sure?")
        return "done"

    worker = agent([[call("ask", n=1), call("ask", n=2)], say("end")], ask)
    store = MemoryStore()
    result, runtime = await worker.run("go", store=store)
    seen = {r.id for r in result.pendings}
    for request in result.pendings:
        result = await runtime.resume(yes(request))
    assert seen.isdisjoint(r.id for r in result.pendings)
    assert not any(r.diverged for r in result.pendings)
    result = await runtime.resume([yes(r) for r in result.pendings])
    assert result.status is Status.DONE
    assert result.replay is not None
    assert result.replay.attempt == 3


async def test_ask_inside_a_task_group_of_the_tool() -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        heard: dict[str, Any] = {}

        async def one(name: str) -> None:
            heard[name] = (await ctx.ask(f"{name}?")).data

        async with anyio.create_task_group() as group:
            group.start_soon(one, "a")
            await checkpoint()
            group.start_soon(one, "b")
        return str(sorted(heard.items()))

    result, runtime = await agent(ASKING, ask).run("go")
    assert first(result).prompt == "a?"
    result = await runtime.resume(yes(result, 1))
    assert first(result).prompt == "b?"
    assert not first(result).diverged
    result = await runtime.resume(yes(result, 2))
    assert tools_said(runtime.transcript(result.handle)) == ["[('a', 1), ('b', 2)]"]


async def test_two_tasks_that_ask_at_once_ask_one_after_the_other() -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        heard: list[Any] = [None, None]

        async def one(n: int) -> None:
            heard[n] = (await ctx.ask("which?")).data

        async with anyio.create_task_group() as group:
            group.start_soon(one, 0)
            group.start_soon(one, 1)
        return str(sorted(heard))

    result, runtime = await agent(ASKING, ask).run("go")
    for n in (1, 2):
        (request,) = result.pendings
        assert not request.diverged
        result = await runtime.resume(yes(request, n))
    assert tools_said(runtime.transcript(result.handle)) == ["[1, 2]"]


async def test_ask_inside_once_is_refused() -> None:
    ran: list[str] = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""

        async def block() -> int:
            ran.append("before")
            await ctx.ask("ok?")
            return 1

        return str(await ctx.once("pay", block))

    result, runtime = await agent(ASKING, ask).run("go")
    assert result.status is Status.DONE
    (said,) = tools_said(runtime.transcript(result.handle))
    assert "ask inside once('pay')" in said
    assert ran == ["before"]


def returns() -> str:
    return "swallowed"


def raises() -> str:
    raise RuntimeError("hidden")


@pytest.mark.parametrize("then", [returns, raises])
async def test_a_swallowed_suspension_is_reported(then: Callable[[], str]) -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        try:
            await ctx.ask("ok?")
        except BaseException:  # noqa: BLE001  # what a careless tool does
            return then()
        return "asked"

    result, runtime = await agent(ASKING, ask).run("go")
    assert result.status is Status.DONE
    assert runtime.pendings() == ()
    (said,) = tools_said(runtime.transcript(result.handle))
    assert "swallowed the suspension of ctx.ask" in said


async def test_a_suspension_passes_except_exception_and_runs_finally() -> None:
    cleaned: list[str] = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        try:
            return str((await ctx.ask("ok?")).ok)
        except Exception:  # noqa: BLE001  # what a tool may do
            return "caught"
        finally:
            cleaned.append("x")

    result, runtime = await agent(ASKING, ask).run("go")
    assert result.status is Status.PENDING
    assert cleaned == ["x"]
    result = await runtime.resume(yes(result))
    assert tools_said(runtime.transcript(result.handle)) == ["True"]


async def test_once_left_by_the_tools_own_timeout_is_in_doubt_and_not_run_again() -> None:
    ran: list[int] = []
    never = anyio.Event()

    @tool
    async def pay(ctx: ToolContext) -> str:
        """Pay."""

        async def block() -> str:
            ran.append(1)
            await never.wait()
            return "paid"

        for _ in range(2):
            with anyio.move_on_after(0):
                return await ctx.once("pay", block)
        return "gave up"

    result, runtime = await agent([call("pay"), say("end")], pay).run("go")
    assert ran == [1]
    request = first(result)
    assert (request.kind, request.data["once"]) == ("in_doubt", "pay")
    result = await runtime.resume(yes(request, {"outcome": "succeeded", "output": "paid after all"}))
    assert tools_said(runtime.transcript(result.handle)) == ["paid after all"]
    assert ran == [1]
