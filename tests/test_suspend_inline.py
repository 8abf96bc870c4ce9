"""Interpreters, answers to wakes that have not parked, `on_pending`, and what inline answers do not repeat."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from overt import Answer, Request, ResumePolicy, Runtime, Status, ToolContext, tool
from overt.stores import MemoryStore
from overt.testing import call, say
from overt.testing.crashing import CrashingStore
from tests.suspend_kit import agent, approve, first, no, tools_said, yes

pytestmark = pytest.mark.anyio


class Interpreter:
    """A `wait_for` that keeps what it was asked."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply
        self.asked: list[Request] = []

    async def __call__(self, request: Request) -> Answer[Any] | None:
        self.asked.append(request)
        if isinstance(self.reply, BaseException):
            raise self.reply
        return None if self.reply is None else Answer[Any](id=request.id, ok=self.reply)


ASKS = [call("approve"), say("end")]


async def test_an_inline_answer_rewinds_nothing() -> None:
    ran: list[int] = []

    @tool
    def count() -> str:
        """Count."""
        ran.append(1)
        return "counted"

    host = Interpreter(True)
    worker = agent([call("count"), call("approve"), say("end")], count, approve)
    result, runtime = await worker.run("go", wait_for=host, resume_policy=ResumePolicy.REWIND)
    assert (result.status, result.turns, ran) == (Status.DONE, 3, [1])
    (request,) = host.asked
    assert (request.replays, request.turns_again) == ((), 0), "answering inline repeats nothing"
    assert tools_said(runtime.transcript(result.handle)) == ["counted", "it: yes"]


async def test_the_nearest_interpreter_wins() -> None:
    near, middle, root = Interpreter(True), Interpreter(False), Interpreter(False)
    child = agent(ASKS, approve, name="child", wait_for=near)
    parent = agent(
        [call("task", agent="child", prompt="p"), say("end")], name="parent", team=[child], wait_for=middle
    )
    result, _ = await parent.run("go", wait_for=root)
    assert result.status is Status.DONE
    assert (len(near.asked), len(middle.asked), len(root.asked)) == (1, 0, 0)
    assert near.asked[0].path == ("root", "parent.1", "child.1")

    child = agent(ASKS, approve, name="child")
    parent = agent(
        [call("task", agent="child", prompt="p"), say("end")], name="parent", team=[child], wait_for=middle
    )
    await parent.run("go", wait_for=root)
    assert (len(middle.asked), len(root.asked)) == (1, 0)

    parent = agent([call("task", agent="child", prompt="p"), say("end")], name="parent", team=[child])
    result, _ = await parent.run("go", wait_for=root)
    assert (result.status, len(root.asked)) == (Status.DONE, 1)


WRONG_ANSWER = Answer[Any](id="req_of_something_else", ok=True)


@pytest.mark.parametrize("reply", [None, RuntimeError("no line"), "other request"], ids=str)
async def test_an_interpreter_that_passes_or_raises_parks(reply: Any) -> None:
    further = Interpreter(True)

    async def near(request: Request) -> Answer[Any] | None:
        if reply == "other request":
            return WRONG_ANSWER
        if isinstance(reply, BaseException):
            raise reply
        return None

    child = agent(ASKS, approve, name="child", wait_for=near)
    parent = agent([call("task", agent="child", prompt="p"), say("end")], name="parent", team=[child])
    result, runtime = await parent.run("go", wait_for=further)
    assert result.status is Status.PENDING
    assert further.asked == []
    assert not runtime._driver.live, "nothing runs while it is parked"
    result = await runtime.resume(yes(result))
    assert result.status is Status.DONE
    if isinstance(reply, RuntimeError):
        assert any("no line" in line for line in runtime.trace())


async def test_an_interpreter_that_does_not_fit_the_schema_parks() -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        return str((await ctx.ask("n?", answer_type=int)).data)

    async def host(request: Request) -> Answer[Any]:
        return Answer[Any](id=request.id, ok=True, data="three")

    result, runtime = await agent([call("ask"), say("end")], ask).run("go", wait_for=host)
    assert result.status is Status.PENDING
    result = await runtime.resume(yes(result, 3))
    assert tools_said(runtime.transcript(result.handle)) == ["3"]


async def test_verify_answer_refuses_an_inline_answer_too() -> None:
    result, _ = await agent(ASKS, approve).run(
        "go", wait_for=Interpreter(True), verify_answer=lambda r, a: False
    )
    assert result.status is Status.PENDING


async def test_verify_answer_that_raises_parks_an_inline_answer() -> None:
    def verify(request: Request, answer: Answer[Any]) -> bool:
        if not answer.by:
            raise ConnectionError("directory down")
        return True

    result, runtime = await agent(ASKS, approve).run("go", wait_for=Interpreter(True), verify_answer=verify)
    assert result.status is Status.PENDING
    assert any("verify_answer raised ConnectionError" in line for line in runtime.trace())
    assert (await runtime.resume(yes(result, by="ada"))).status is Status.DONE


async def test_states_of_an_inline_and_of_a_durable_answer() -> None:
    async def host(request: Request) -> Answer[Any]:
        states.append(str(runtime.inspect("root/w.1").state))
        return yes(request)

    states: list[str] = []
    runtime = Runtime(agent(ASKS, approve), wait_for=host)
    result = await runtime.run("go")
    assert result.status is Status.DONE
    assert states == ["suspended"]
    assert [str(to) for _, to in runtime.transitions("root/w.1")] == [
        "running",
        "suspended",
        "running",
        "idle",
        "closed",
    ]


async def run_beside(runtime: Runtime[str], group: Any, out: list[Any]) -> None:
    async def run() -> None:
        out.append(await runtime.run("go"))

    group.start_soon(run)


@pytest.mark.parametrize("refuse", [False, True])
async def test_resume_from_another_task_before_the_wake_parks_is_inline(refuse: bool) -> None:
    going, told = anyio.Event(), anyio.Event()
    ran: list[str] = []

    @tool
    async def slow() -> str:
        """Take its time."""
        ran.append("slow")
        await going.wait()
        return "slow"

    async def on_pending(request: Request) -> None:
        told.set()

    runtime = Runtime(
        agent([[call("approve"), call("slow")], say("end")], approve, slow), on_pending=on_pending
    )
    out: list[Any] = []
    async with anyio.create_task_group() as group:
        await run_beside(runtime, group, out)
        await told.wait()
        (request,) = runtime.pendings()
        assert (request.replays, request.turns_again) == ((), 0)
        assert str(runtime.inspect("root/w.1").state) == "running"

        async def answer() -> None:
            out.append(await runtime.resume(no(request) if refuse else yes(request)))

        group.start_soon(answer)
        while runtime.pendings():
            await anyio.lowlevel.checkpoint()
        going.set()
    assert [r.status for r in out] == [Status.DONE, Status.DONE]
    assert (out[0].turns, ran) == (2, ["slow"])
    assert tools_said(runtime.transcript("root/w.1")) == [
        "it: no (declined)" if refuse else "it: yes",
        "slow",
    ]


async def test_resume_while_the_interpreter_is_thinking() -> None:
    asked, never = anyio.Event(), anyio.Event()

    async def host(request: Request) -> Answer[Any] | None:
        asked.set()
        await never.wait()
        return None

    runtime = Runtime(agent([call("approve", what="a"), say("end")], approve), wait_for=host)
    out: list[Any] = []
    async with anyio.create_task_group() as group:
        await run_beside(runtime, group, out)
        await asked.wait()
        out.append(await runtime.resume(yes(runtime.pendings()[0])))
    assert [(r.status, r.turns) for r in out] == [(Status.DONE, 2), (Status.DONE, 2)]


async def test_an_answer_that_comes_with_the_append_that_parks() -> None:
    going, told = anyio.Event(), anyio.Event()

    @tool
    async def slow() -> str:
        """Take its time."""
        await going.wait()
        return "slow"

    async def on_pending(request: Request) -> None:
        told.set()

    store = CrashingStore(MemoryStore())
    worker = agent([[call("approve"), call("slow")], say("end")], approve, slow)
    runtime = Runtime(worker, store=store, on_pending=on_pending)
    out: list[Any] = []
    async with anyio.create_task_group() as group:
        await run_beside(runtime, group, out)
        await told.wait()
        await anyio.wait_all_tasks_blocked()
        (request,) = runtime.pendings()
        gate = store.hold(store.appends + 1)
        going.set()
        await gate.reached()

        async def answer() -> None:
            out.append(await runtime.resume(yes(request)))

        group.start_soon(answer)
        await anyio.wait_all_tasks_blocked()
        gate.release()
    # The wake was parked when the answer came: `run` says so, and the answer has gone on with it.
    assert [r.status for r in out] == [Status.DONE, Status.PENDING]
    reopened = await Runtime.open(worker, runtime.id, store=store.survivor)
    assert reopened.result().status is Status.DONE


async def test_work_that_waits_for_its_append_is_not_taken_for_cut_off() -> None:
    going, inside, told = anyio.Event(), anyio.Event(), anyio.Event()
    ran: list[str] = []

    @tool
    async def slow() -> str:
        """Take its time."""
        ran.append("slow")
        inside.set()
        await going.wait()
        return "slow"

    async def on_pending(request: Request) -> None:
        told.set()

    asker = agent(ASKS, approve, name="asker")
    busy = agent([call("slow"), say("slept")], slow, name="busy")
    both = [call("task", agent="asker", prompt="p"), call("task", agent="busy", prompt="p")]
    boss = agent([both, say("end")], name="boss", team=[asker, busy])
    store = CrashingStore(MemoryStore())
    runtime = Runtime(boss, store=store, on_pending=on_pending)
    out: list[Any] = []
    async with anyio.create_task_group() as group:
        await run_beside(runtime, group, out)
        await told.wait()
        await inside.wait()
        await anyio.wait_all_tasks_blocked()
        (request,) = runtime.pendings()
        gate = store.hold(store.appends + 1)
        going.set()
        await gate.reached()

        async def answer() -> None:
            out.append(await runtime.resume(yes(request)))

        group.start_soon(answer)
        await anyio.wait_all_tasks_blocked()
        gate.release()
    assert [r.status for r in out] == [Status.DONE, Status.DONE]
    assert out[0].usage.unreported_calls == 0
    assert ran == ["slow"]
    assert not any("the process ended" in line for line in runtime.trace())


# --------------------------------------------------------------- on_pending


async def test_on_pending_is_told_after_the_request_is_durable() -> None:
    store = MemoryStore()
    found: list[str] = []

    async def on_pending(request: Request) -> None:
        there = await Runtime.open(agent(ASKS, approve), "r", store=store)
        found.extend(r.id for r in there.pendings() if r.id == request.id)

    result, _ = await agent(ASKS, approve).run("go", store=store, run_id="r", on_pending=on_pending)
    assert found == [first(result).id]


async def test_on_pending_is_told_again_when_nobody_knows_whether_it_was() -> None:
    told: list[str] = []

    async def on_pending(request: Request) -> None:
        told.append(request.id)

    dying = CrashingStore(MemoryStore())
    runtime = Runtime(agent(ASKS, approve), store=dying, run_id="r", on_pending=on_pending)
    # create, model reply, question: the fourth append says that on_pending was told.
    dying = CrashingStore(MemoryStore(), crash_at=4)
    runtime = Runtime(agent(ASKS, approve), store=dying, run_id="r", on_pending=on_pending)
    with pytest.raises(BaseException):  # noqa: B017, PT011  # the process is dead; what comes out does not matter
        await runtime.run("go")
    assert dying.crashed
    assert len(told) == 1
    again = await Runtime.open(agent(ASKS, approve), "r", store=dying.survivor, on_pending=on_pending)
    result = await again.recover()
    assert result.status is Status.PENDING
    assert told == [first(result).id] * 2


async def test_on_pending_that_raises_costs_nothing() -> None:
    async def on_pending(request: Request) -> None:
        raise RuntimeError("mail is down")

    result, runtime = await agent(ASKS, approve).run("go", on_pending=on_pending)
    assert result.status is Status.PENDING
    assert any("mail is down" in line for line in runtime.trace())
    result = await runtime.resume(yes(result))
    assert result.status is Status.DONE


async def test_a_plain_function_answers_too() -> None:
    """Type checkers refuse it; a notebook has none, and a run that parks in silence helps nobody."""

    def plain(request: Request) -> Any:
        return Answer(id=request.id, ok=True)

    result, _ = await agent([call("approve"), say("end")], approve).run("go", wait_for=plain)
    assert result.status is Status.DONE


@pytest.mark.parametrize("wrong", [True, "yes", {"ok": True}])
async def test_an_interpreter_that_returns_no_answer_parks_and_says_so(wrong: Any) -> None:
    async def host(request: Request) -> Any:
        return wrong

    result, _ = await agent([call("approve"), say("end")], approve).run("go", wait_for=host)
    assert result.status is Status.PENDING
    assert result.error is not None
    assert (result.error.source, result.error.type) == ("wait_for", "TypeError")
    assert type(wrong).__name__ in result.error.message


@pytest.mark.parametrize("by", ["interpreter", "host"])
async def test_whoever_waits_parks_when_the_last_interpreter_leaves_one_of_two_questions(by: str) -> None:
    """An answer that comes after the wake has parked leaves it parked, with the other question open."""
    passed = anyio.Event()
    late = anyio.Event()

    async def wait_for(request: Request) -> Answer[Any] | None:
        if request.prompt == "do a?":
            passed.set()
            return None
        await late.wait()
        return Answer(id=request.id, ok=True)

    child = agent(
        [[call("approve", what="a"), call("approve", what="b")], say("both")], approve, name="child"
    )
    parent = agent([call("task", agent="child", prompt="p"), say("end")], name="parent", team=[child])
    async with Runtime(parent, wait_for=wait_for) as runtime:
        handle = await runtime.spawn("root", "parent")
        await runtime.wake(handle, "go")
        await passed.wait()
        await runtime._driver.until_holds(lambda: asked_now(runtime) == ["do b?"])
        if by == "interpreter":
            late.set()
        else:
            (_, second) = runtime.pendings()
            await runtime.resume(Answer(id=second.id, ok=True))
        result = await runtime.wait(handle)
        assert result.status is Status.PENDING
        assert [r.prompt for r in result.pendings] == ["do a?"]
        await runtime.resume(Answer(id=result.pendings[0].id, ok=True))
        assert (await runtime.wait(handle)).text == "end"


def asked_now(runtime: Runtime[Any]) -> list[str]:
    """What an interpreter is being asked."""
    return [r.question.prompt for r in runtime._driver.tree.requests.values() if r.host]


@pytest.mark.parametrize("door", ["wait_for", "on_pending"])
async def test_what_the_hosts_functions_raise_is_recorded_without_credentials(door: str) -> None:
    async def raises(request: Request) -> Any:
        raise ConnectionError("the queue refused Authorization: Bearer sk-abcdefghijklmnop1234")

    @tool
    async def act(ctx: ToolContext) -> str:
        """Act."""
        return "done" if (await ctx.ask("Do it?")).ok else "not done"

    store = MemoryStore()
    options: dict[str, Any] = {"store": store, "run_id": "r", door: raises}
    result, _ = await agent([call("act"), say("end")], act).run("go", **options)
    assert result.status == "pending"
    whole = "".join(record.text for record in await store.read("r"))
    assert "the queue refused" in whole
    assert "sk-abcdefghijklmnop1234" not in whole + str(result)
