"""Delivering answers: what is refused before anything changes, lists, schemas, who may answer, and copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal

import anyio
import pytest
from pydantic import BaseModel, Field

from overt import Answer, Request, ResumePolicy, Runtime, Status, ToolContext, UsageError, tool
from overt.errors import AlreadyAnswered, InvalidAnswer, OvertError, UnknownRequest
from overt.stores import MemoryStore
from overt.testing import call, say
from overt.testing.mock import Script
from tests.suspend_kit import agent, approve, first, no, tools_said, yes

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("policy", list(ResumePolicy))
THREE: Script = [[call("approve", what=x) for x in "abc"], say("end")]


async def parked(
    policy: ResumePolicy = ResumePolicy.REWIND, **options: Any
) -> tuple[list[Request], Runtime[str]]:
    result, runtime = await agent(THREE, approve).run("go", resume_policy=policy, **options)
    assert [r.prompt for r in result.pendings] == ["do a?", "do b?", "do c?"]
    assert result.pending == result.pendings[0]
    return list(result.pendings), runtime


# --------------------------------------------------------------- several at once


@BOTH
@pytest.mark.parametrize("order", list(permutations(range(3))))
async def test_one_by_one_in_any_order(policy: ResumePolicy, order: tuple[int, ...]) -> None:
    requests, runtime = await parked(policy)
    result = runtime.result()
    model_calls = result.usage.model_calls
    for position, index in enumerate(order):
        answer = yes(requests[index]) if index != 1 else no(requests[index])
        result = await runtime.resume(answer)
        if position < 2:
            assert result.status is Status.PENDING
            left = [r.id for n, r in enumerate(requests) if n in order[position + 1 :]]
            assert [r.id for r in result.pendings] == left
            assert result.usage.model_calls == model_calls, "nothing goes on before all are answered"
    assert result.status is Status.DONE
    assert tools_said(runtime.transcript(result.handle)) == ["a: yes", "b: no (declined)", "c: yes"]


@BOTH
async def test_all_at_once_in_reverse(policy: ResumePolicy) -> None:
    requests, runtime = await parked(policy)
    result = await runtime.resume([yes(requests[2]), no(requests[1]), yes(requests[0])])
    assert result.status is Status.DONE
    assert tools_said(runtime.transcript(result.handle)) == ["a: yes", "b: no (declined)", "c: yes"]


@BOTH
async def test_the_approved_call_gets_the_answer_whatever_the_order_of_the_replayed_batch(
    policy: ResumePolicy,
) -> None:
    rounds = iter([["a", "b"], ["b", "a"]])

    def script(request: Any) -> Any:
        if request.messages[-1].role == "tool":
            return say("end")
        return [call("approve", what=x) for x in next(rounds)]

    result, runtime = await agent(script, approve).run("go", resume_policy=policy)
    a, b = result.pendings
    result = await runtime.resume([yes(a), no(b)])
    assert result.status is Status.DONE
    assert sorted(tools_said(runtime.transcript(result.handle))) == ["a: yes", "b: no (declined)"]


Wrong = Callable[[list[Request]], list[Answer[Any]]]
WRONG: dict[str, tuple[Wrong, type[OvertError]]] = {
    "an unknown one": (lambda rs: [yes(rs[0]), Answer[Any](id="req_no", ok=True)], UnknownRequest),
    "one twice": (lambda rs: [yes(rs[0]), no(rs[0])], InvalidAnswer),
    "no JSON": (lambda rs: [yes(rs[0]), yes(rs[1], float("nan"))], InvalidAnswer),
    "none": (lambda rs: [], UnknownRequest),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_list_applies_whole_or_not_at_all(wrong: str) -> None:
    make, error = WRONG[wrong]
    requests, runtime = await parked()
    before = runtime.trace()
    with pytest.raises(error):
        await runtime.resume(make(requests))
    assert runtime.trace() == before, "nothing was stored"
    assert [r.id for r in runtime.pendings()] == [r.id for r in requests]
    result = await runtime.resume([yes(r) for r in requests])
    assert result.status is Status.DONE


async def test_a_refused_list_does_not_set_a_cut_off_run_going() -> None:
    entered: list[str] = []
    never, told = anyio.Event(), anyio.Event()

    async def on_pending(request: Request) -> None:
        told.set()

    @tool
    async def hang() -> str:
        """Hang."""
        entered.append("hang")
        await told.wait()
        host.cancel()
        await never.wait()
        return "never"

    worker = agent([[call("approve", what="a"), call("hang")], say("end")], approve, hang)
    runtime = Runtime(worker, on_pending=on_pending)
    with anyio.CancelScope() as host:
        await runtime.run("go")
    assert host.cancelled_caught
    assert runtime.result().status is Status.INTERRUPTED
    (request,) = runtime.pendings()
    before = runtime.trace()
    for answers in ([yes(request), yes(request)], [], [yes(request), Answer[Any](id="req_no", ok=True)]):
        with pytest.raises(UsageError):
            await runtime.resume(answers)
    assert runtime.trace() == before
    assert entered == ["hang"]


async def test_an_unknown_request_lists_what_is_open() -> None:
    requests, runtime = await parked()
    await runtime.resume(yes(requests[0]))
    with pytest.raises(UnknownRequest, match="req_nothing") as caught:
        await runtime.resume(Answer[Any](id="req_nothing", ok=True))
    assert set(caught.value.open) == {requests[1].id, requests[2].id}
    assert requests[1].id in str(caught.value)


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_an_answered_request_says_what_was_answered(elsewhere: bool) -> None:
    store = MemoryStore()
    requests, runtime = await parked(store=store, run_id="r")
    await runtime.resume(yes(requests[0], {"n": 1}, by="ada"))
    if elsewhere:
        runtime = await Runtime.open(agent(THREE, approve), "r", store=store)
    for answer, same in (
        (yes(requests[0], {"n": 1}), True),
        (yes(requests[0], {"n": 2}), False),
        (no(requests[0]), False),
    ):
        with pytest.raises(AlreadyAnswered) as caught:
            await runtime.resume(answer)
        assert caught.value.same is same
        assert (caught.value.answer.ok, caught.value.answer.data, caught.value.answer.by) == (
            True,
            {"n": 1},
            "ada",
        )
        assert caught.value.answer.at is not None
    await runtime.resume([yes(r) for r in requests[1:]])
    with pytest.raises(AlreadyAnswered):
        await runtime.resume(yes(requests[2]))


async def test_a_run_that_was_not_started_cannot_be_answered() -> None:
    runtime = Runtime(agent(THREE, approve))
    with pytest.raises(UsageError):
        await runtime.resume(Answer[Any](id="req_x", ok=True))


def test_resume_sync_is_resume() -> None:
    worker = agent(THREE, approve)
    result, runtime = worker.run_sync("go")
    result = runtime.resume_sync([yes(r) for r in result.pendings])
    assert result.text == "end"


# --------------------------------------------------------------- schemas


class Refund(BaseModel):
    amount: int = Field(ge=1, le=100)
    note: str | None = None


@dataclass
class Point:
    x: int
    y: int = 0


CASES: dict[str, tuple[Any, Any, Any, list[Any], str]] = {
    "model": (
        Refund,
        {"amount": 5},
        Refund(amount=5),
        [{"amount": 0}, {"amount": "5"}, {}, 5, None],
        "$.amount",
    ),
    "dataclass": (Point, {"x": 1}, Point(1), [{"y": 2}, {"x": None}, [1]], "x"),
    "union": (int | Refund, {"amount": 7}, Refund(amount=7), ["x", {"amount": 101}], "$"),
    "literal": (Literal["a", "b"], "b", "b", ["c", 1], "$"),
    "list": (list[Point], [{"x": 1}, {"x": 2}], [Point(1), Point(2)], [[{"x": "no"}], {}], "$"),
    "bool": (bool, False, False, ["yes", 0, None], "$"),
}


@pytest.mark.parametrize("case", CASES)
async def test_data_has_to_fit_the_schema_also_without_the_type(case: str) -> None:
    kind, good, typed, bad, place = CASES[case]
    heard: list[Any] = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        heard.append((await ctx.ask("which?", answer_type=kind)).data)
        return "ok"

    @tool(name="ask")
    def without_the_type(ctx: ToolContext) -> str:
        """Ask."""
        return "ok" if ctx.answer else "not asked"

    store = MemoryStore()
    script: Script = [call("ask"), say("end")]
    result, _ = await agent(script, ask).run(
        "go", store=store, run_id="r", resume_policy=ResumePolicy.CONTINUE
    )
    request = first(result)
    assert request.answer_schema is not None
    elsewhere = await Runtime.open(agent(script, without_the_type), "r", store=store)
    assert elsewhere.pendings()[0].answer_schema == request.answer_schema
    before = elsewhere.trace()
    for data in bad:
        with pytest.raises(InvalidAnswer) as caught:
            await elsewhere.resume(yes(request, data))
        assert caught.value.places
        assert request.id in str(caught.value)
    with pytest.raises(InvalidAnswer) as caught:
        await elsewhere.resume(yes(request, bad[0]))
    assert any(place in p for p in caught.value.places)
    assert elsewhere.trace() == before
    there = await Runtime.open(agent(script, ask), "r", store=store)
    result = await there.resume(yes(request, good))
    assert result.status is Status.DONE
    assert heard == [typed]
    assert type(heard[0]) is type(typed)


async def test_a_refusal_needs_no_data() -> None:
    heard: list[Any] = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        answer = await ctx.ask("which?", answer_type=Refund)
        heard.append((answer.ok, answer.data))
        return "ok"

    result, runtime = await agent([call("ask"), say("end")], ask).run("go")
    result = await runtime.resume(no(result))
    assert result.status is Status.DONE
    assert heard == [(False, None)]


# --------------------------------------------------------------- who may answer


@pytest.mark.parametrize("sync", [False, True])
async def test_verify_answer_is_asked_before_anything_changes(sync: bool) -> None:
    asked: list[tuple[str, str | None]] = []

    def verify(request: Request, answer: Answer[Any]) -> bool:
        asked.append((request.id, answer.by))
        return answer.by == "ada"

    async def verify_later(request: Request, answer: Answer[Any]) -> bool:
        return verify(request, answer)

    requests, runtime = await parked(verify_answer=verify if sync else verify_later)
    before = runtime.trace()
    with pytest.raises(InvalidAnswer, match="verify_answer"):
        await runtime.resume([yes(requests[0], by="ada"), yes(requests[1], by="mallory")])
    assert runtime.trace() == before
    assert asked == [(requests[0].id, "ada"), (requests[1].id, "mallory")]
    result = await runtime.resume([yes(r, by="ada") for r in requests])
    assert result.status is Status.DONE


@pytest.mark.parametrize("sync", [False, True])
async def test_a_verify_answer_that_raises_refuses(sync: bool) -> None:
    broken = [True]
    failure = ConnectionError("directory down")

    def verify(request: Request, answer: Answer[Any]) -> bool:
        if broken:
            raise failure
        return True

    async def verify_later(request: Request, answer: Answer[Any]) -> bool:
        return verify(request, answer)

    requests, runtime = await parked(verify_answer=verify if sync else verify_later)
    before = runtime.trace()
    with pytest.raises(InvalidAnswer, match="verify_answer raised ConnectionError") as caught:
        await runtime.resume([yes(r) for r in requests])
    assert caught.value.__cause__ is failure
    assert caught.value.places
    assert requests[0].id in str(caught.value)
    assert runtime.trace() == before
    broken.clear()
    assert (await runtime.resume([yes(r) for r in requests])).status is Status.DONE


async def test_a_verify_answer_may_say_why() -> None:
    def verify(request: Request, answer: Answer[Any]) -> bool:
        raise InvalidAnswer("not on a Sunday", places=("$: Sunday",))

    requests, runtime = await parked(verify_answer=verify)
    with pytest.raises(InvalidAnswer, match=r"^not on a Sunday$"):
        await runtime.resume(yes(requests[0]))


# --------------------------------------------------------------- copies


@BOTH
async def test_what_was_approved_cannot_be_altered(policy: ResumePolicy) -> None:
    ran: list[Any] = []

    @tool
    async def pay(ctx: ToolContext, to: dict[str, Any], amounts: list[int]) -> str:
        """Pay."""
        shown = dict(ctx.call.arguments)
        ctx.call.arguments["to"] = {"name": "mallory"}
        to["name"] = "mallory" if ctx.answer is None else to["name"]
        answer = await ctx.ask("pay?", kind="approval", data={"list": [1]})
        assert isinstance(answer.data, dict)
        answer.data["n"] = 99
        again = ctx.answer
        assert again is not None
        assert again.data == {"n": 1}
        ran.append((shown, amounts))
        return "paid"

    store = MemoryStore()
    worker = agent([call("pay", to={"name": "bob"}, amounts=[1, 2]), say("end")], pay)
    result, runtime = await worker.run("go", resume_policy=policy, store=store, run_id="r")
    expected = {"to": {"name": "bob"}, "amounts": [1, 2]}

    def tamper(request: Request) -> None:
        arguments = request.data["call"]
        assert isinstance(arguments, dict)
        assert arguments["arguments"] == expected
        assert request.data["list"] == [1]
        arguments["arguments"] = {"to": {"name": "mallory"}, "amounts": [9]}
        request.data["list"] = [2]

    tamper(first(result))
    tamper(first(runtime.result()))
    tamper(runtime.pendings()[0])
    for message in runtime.transcript(result.handle):
        if message.role == "assistant":
            message.tool_calls[0].arguments["amounts"] = [9]
    given = {"n": 1}
    answer = yes(runtime.pendings()[0], given)
    other = await Runtime.open(worker, "r", store=store)
    tamper(other.pendings()[0])
    result = await other.resume(answer)
    given["n"] = 2
    assert result.status is Status.DONE
    assert ran == [(expected, [1, 2])]
    for message in other.transcript(result.handle):
        if message.role == "assistant" and message.tool_calls:
            assert message.tool_calls[0].arguments == expected
            message.tool_calls[0].arguments["amounts"] = [9]
    texts = [m.tool_calls for m in other.transcript(result.handle) if m.role == "assistant" and m.tool_calls]
    assert texts[0][0].arguments == expected


async def test_the_request_shows_the_validated_arguments() -> None:
    ran: list[Any] = []

    @tool
    async def transfer(ctx: ToolContext, amount: int, force: bool = True) -> str:
        """Transfer."""
        await ctx.ask("ok?")
        ran.append((amount, force, dict(ctx.call.arguments)))
        return "ok"

    result, runtime = await agent([call("transfer", amount="12"), say("end")], transfer).run("go")
    shown = first(result).data["call"]
    assert shown == {"tool": "transfer", "arguments": {"amount": 12, "force": True}}
    await runtime.resume(yes(result))
    assert ran == [(12, True, {"amount": 12, "force": True})]
