"""What people say to a guardrail's question: yes, no, with other arguments, with a reply of their own, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

import anyio
import pytest
from pydantic import BaseModel

from overt import (
    Agent,
    Allow,
    Answer,
    Ask,
    Budget,
    Deny,
    GuardrailEvent,
    Request,
    ResumePolicy,
    Ruling,
    Runtime,
    Status,
    ToolContext,
    ToolMessage,
    require_approval,
    tool,
)
from overt.core import facts as f
from overt.errors import AlreadyAnswered, InvalidAnswer, RequestExpired
from overt.stores import MemoryStore
from overt.testing import MockModel, VirtualClock, call, say
from tests.guard_kit import World, asking, facts, rule
from tests.suspend_kit import first, no, tools_said, yes

HANDLE = "root/w.1"
policies = pytest.mark.parametrize("policy", list(ResumePolicy))


class Till:
    """A shop's till: what it paid, and under which keys."""

    def __init__(self) -> None:
        self.paid: list[tuple[int, str, list[str]]] = []
        self.keys: list[str] = []
        self.calls: list[dict[str, Any]] = []

    def agent(self, *replies: Any, rules: Sequence[Any], **more: Any) -> Agent[None, str]:
        till = self

        @tool
        async def refund(ctx: ToolContext, amount: int, currency: str = "EUR", notes: list[str] = []) -> str:  # noqa: B006  # a default of the schema
            """Pay back."""
            till.paid.append((amount, currency, notes))
            till.keys.append(ctx.idempotency_key)
            till.calls.append(dict(ctx.call.arguments))
            return f"paid {amount}"

        model = MockModel([*(replies or [call("refund", amount=100)]), say("end")])
        return Agent("w", does="pays", tools=[refund], guardrails=list(rules), model=model, **more)


def metadata(runtime: Runtime[Any]) -> list[dict[str, Any]]:
    """The metadata of the worker's tool messages."""
    return [m.metadata for m in runtime.transcript(HANDLE) if isinstance(m, ToolMessage)]


ASKS = require_approval("refund")

# ------------------------------------------------------------------ the request


async def test_the_request_shows_the_call_and_takes_an_approval_an_edit_or_a_reply() -> None:
    till = Till()
    result, _ = await till.agent(call("refund", amount="100"), rules=[ASKS]).run("go")
    request = first(result)
    assert (request.kind, request.path, request.diverged) == ("approval", ("root", "w.1"), False)
    assert request.prompt == "Allow refund(amount=100, currency='EUR', notes=[])?"
    assert request.data == {
        "call": {"tool": "refund", "arguments": {"amount": 100, "currency": "EUR", "notes": []}}
    }
    assert request.answer_schema is not None
    assert (request.replays, request.turns_again) == ((), 1)
    request.data["call"] = "another"
    assert till.paid == []


@policies
async def test_what_answering_repeats_is_said_beforehand(policy: ResumePolicy) -> None:
    world = World(call("safe", n=5), [call("safe", n=6), call("danger")], own=[asking("danger")])
    result, runtime = await world.worker().run("go", **world.options(resume_policy=policy))
    request = first(result)
    again = [("safe", {"n": 5}), ("safe", {"n": 6})] if policy is ResumePolicy.REWIND else []
    assert [(c.tool, c.arguments) for c in request.replays] == again
    assert request.turns_again == (2 if again else 0)
    result = await runtime.resume(yes(result))
    assert sorted(world.ran) == sorted(
        ["safe 5", "safe 6", "danger 1", *(["safe 5", "safe 6"] if again else [])]
    )
    assert result.replay is not None
    assert [(c.tool, c.arguments) for c in result.replay.calls_rerun] == again


@policies
async def test_replies_by_hand_and_denied_calls_are_not_among_what_is_repeated(policy: ResumePolicy) -> None:
    world = World([call("safe"), call("danger")], call("once"), own=[asking("danger", "once")])
    result, runtime = await world.worker().run("go", **world.options(resume_policy=policy))
    result = await runtime.resume(yes(result, {"output": "by hand"}))
    request = first(result)
    assert "once" in str(request.data)
    again = ["safe"] if policy is ResumePolicy.REWIND else []
    assert [c.tool for c in request.replays] == again
    result = await runtime.resume(yes(result))
    assert result.replay is not None
    assert [c.tool for c in result.replay.calls_rerun] == again
    assert set(world.ran) == {"safe 1", "once 1"}


# ------------------------------------------------------------------ answers that carry data


class Terms(BaseModel):
    reason: Literal["broken", "late"]
    days: int = 0


def terms(event: GuardrailEvent) -> Ruling:
    return Ask("on which terms?", kind="terms", answer_type=Terms)


@policies
async def test_an_answer_type_is_in_the_request_and_checked(policy: ResumePolicy) -> None:
    till = Till()
    result, runtime = await till.agent(rules=[terms]).run("go", resume_policy=policy)
    request = first(result)
    assert request.kind == "terms"
    assert request.answer_schema is not None
    assert "broken" in str(request.answer_schema)
    bad: list[Any] = [
        None,
        {"reason": "old"},
        {"days": 2},
        {"reason": "late", "days": "x"},
        "late",
        {"arguments": 3},
    ]
    for data in bad:
        with pytest.raises(InvalidAnswer):
            await runtime.resume(yes(request, data))
    assert runtime.pendings() == (request,)
    assert till.paid == []
    result = await runtime.resume(yes(request, {"reason": "late", "days": 3}))
    assert result.status is Status.DONE
    assert [p[0] for p in till.paid] == [100]
    (answered,) = [e for e in runtime.events() if e.kind == "answer"]
    assert answered.data == {"reason": "late", "days": 3}


@policies
async def test_an_answer_type_leaves_edits_and_replies_their_place(policy: ResumePolicy) -> None:
    till = Till()
    result, runtime = await till.agent(rules=[terms]).run("go", resume_policy=policy)
    result = await runtime.resume(yes(result, {"arguments": {"amount": 1}}))
    assert (result.status, till.paid) == (Status.DONE, [(1, "EUR", [])])
    result, runtime = await till.agent(rules=[terms]).run("go", resume_policy=policy)
    result = await runtime.resume(yes(result, {"output": "no need"}))
    assert (result.status, len(till.paid)) == (Status.DONE, 1)


@pytest.mark.parametrize(
    "data", [{"approved": True}, "yes", 3, [], {"arguments": 3}, {"arguments": {}, "output": ""}, {}]
)
async def test_an_approval_without_a_type_takes_nothing_else(data: Any) -> None:
    till = Till()
    result, runtime = await till.agent(rules=[ASKS]).run("go")
    before = len(runtime.trace())
    with pytest.raises(InvalidAnswer) as caught:
        await runtime.resume(yes(result, data))
    assert caught.value.places
    assert (len(runtime.trace()), till.paid) == (before, [])


# ------------------------------------------------------------------ other arguments


@policies
@pytest.mark.parametrize("where", ["here", "elsewhere", "inline"])
async def test_arguments_put_in_place_are_exactly_those_that_run(policy: ResumePolicy, where: str) -> None:
    till, plain = Till(), Till()
    _, runtime = await plain.agent(rules=[]).run("go", run_id="r")
    edit = {"amount": "60", "notes": ["half"]}

    async def wait_for(request: Request) -> Answer[Any] | None:
        return yes(request, {"arguments": edit}, by="ann")

    store = MemoryStore()
    options: dict[str, Any] = {"store": store, "resume_policy": policy}
    if where == "inline":
        options["wait_for"] = wait_for
    result, runtime = await till.agent(rules=[ASKS]).run("go", run_id="r", **options)
    if where != "inline":
        if where == "elsewhere":
            runtime = await Runtime.open(till.agent(rules=[ASKS]), "r", store=store)
        result = await runtime.resume(yes(result, {"arguments": edit}, by="ann"))
    assert result.status is Status.DONE
    assert till.paid == [(60, "EUR", ["half"])]
    assert till.calls == [{"amount": 60, "currency": "EUR", "notes": ["half"]}]
    assert till.keys == plain.keys, "it is the same call as far as idempotency goes"
    assert metadata(runtime) == [{"arguments": {"amount": 60, "currency": "EUR", "notes": ["half"]}}]
    assert [
        m.tool_calls[0].arguments
        for m in runtime.transcript(HANDLE)
        if m.role == "assistant" and m.tool_calls
    ]
    (said,) = tools_said(runtime.transcript(HANDLE))
    assert said.endswith("paid 60")
    assert "60" in said.removesuffix("paid 60"), "the model is told, or it would go on from what it asked for"


@pytest.mark.parametrize(
    ("edit", "place"),
    [
        ({"amount": "many"}, "amount"),
        ({}, "amount"),
        ({"amount": 1, "to": "me"}, "to"),
        ({"amount": 1, "notes": [1]}, "notes"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_and_change_nothing(
    edit: dict[str, Any], place: str
) -> None:
    till = Till()
    result, runtime = await till.agent(rules=[ASKS]).run("go")
    request, before = first(result), runtime.trace()
    with pytest.raises(InvalidAnswer, match=place) as caught:
        await runtime.resume(yes(request, {"arguments": edit}))
    assert [p.startswith("$.arguments") and place in p for p in caught.value.places] == [True]
    assert (runtime.trace(), runtime.pendings(), till.paid) == (before, (request,), [])
    assert (await runtime.resume(yes(request))).status is Status.DONE
    assert [p[0] for p in till.paid] == [100]


async def test_an_interpreters_edit_that_does_not_fit_parks_the_run() -> None:
    till = Till()

    async def wait_for(request: Request) -> Answer[Any] | None:
        return yes(request, {"arguments": {"amount": "many"}})

    result, runtime = await till.agent(rules=[ASKS]).run("go", wait_for=wait_for)
    assert (result.status, till.paid) == (Status.PENDING, [])
    assert result.error is not None
    assert (result.error.type, result.error.source) == ("InvalidAnswer", "wait_for")
    await runtime.resume(yes(result))
    assert [p[0] for p in till.paid] == [100]


def limited(event: GuardrailEvent) -> Ruling:
    """Nobody may approve more than 500."""
    amount = event.call.arguments["amount"]
    assert isinstance(amount, int)
    return Deny("over 500") if amount > 500 else Ask(f"refund {amount}?")


@policies
@pytest.mark.parametrize("inline", [False, True])
async def test_arguments_put_in_place_are_guarded_again(policy: ResumePolicy, inline: bool) -> None:
    till = Till()
    edits = {"arguments": {"amount": 501}}

    async def wait_for(request: Request) -> Answer[Any] | None:
        return yes(request, edits)

    options: dict[str, Any] = {"wait_for": wait_for} if inline else {}
    result, runtime = await till.agent(rules=[limited]).run("go", resume_policy=policy, **options)
    if not inline:
        result = await runtime.resume(yes(result, edits))
    assert (result.status, till.paid) == (Status.DONE, [])
    assert tools_said(runtime.transcript(HANDLE)) == ["denied: over 500"]
    # One that only asks has its answer already, whatever it would call the new amount.
    edits = {"arguments": {"amount": 499}}
    result, runtime = await till.agent(rules=[limited]).run("go", resume_policy=policy, **options)
    if not inline:
        result = await runtime.resume(yes(result, edits))
    assert (result.status, [p[0] for p in till.paid]) == (Status.DONE, [499])


@policies
async def test_an_edited_call_stays_edited_when_the_wake_is_replayed(policy: ResumePolicy) -> None:
    till = Till()
    agent = till.agent(call("refund", amount=100), call("refund", amount=7), rules=[limited])
    result, runtime = await agent.run("go", resume_policy=policy)
    result = await runtime.resume(yes(result, {"arguments": {"amount": 60}}))
    request = first(result)
    assert request.data["call"] != {}
    shown = [c.arguments["amount"] for c in request.replays]
    assert shown == ([60] if policy is ResumePolicy.REWIND else []), "what is repeated is what ran"
    result = await runtime.resume(yes(result))
    assert result.status is Status.DONE
    assert [p[0] for p in till.paid] == ([60, 60, 7] if policy is ResumePolicy.REWIND else [60, 7])
    assert result.replay is not None
    assert [c.arguments["amount"] for c in result.replay.calls_rerun] == shown
    assert [m.get("arguments", {}).get("amount") for m in metadata(runtime)] == [60, None]


@policies
async def test_a_delegation_may_be_given_another_prompt(policy: ResumePolicy) -> None:
    heard: list[str] = []

    def script(request: Any) -> Any:
        heard.append(request.messages[-1].text)
        return say("done below")

    below = Agent("b", does="works", model=MockModel(script))
    model = MockModel([call("task", agent="b", prompt="wipe it"), say("end")])
    lead = Agent("w", does="leads", team=[below], guardrails=[asking("task")], model=model)
    result, runtime = await lead.run("go", resume_policy=policy)
    with pytest.raises(InvalidAnswer):
        await runtime.resume(yes(result, {"arguments": {"agent": "b"}}))
    edit = {"agent": "b", "prompt": "look at it"}
    result = await runtime.resume(yes(result, {"arguments": edit}))
    assert (result.status, heard) == (Status.DONE, ["look at it"])
    assert [h.id for h in runtime.list()] == ["root/w.1", "root/w.1/b.1"]
    result, runtime = await lead.run("go", resume_policy=policy)
    result = await runtime.resume(yes(result, {"arguments": {"agent": "nobody", "prompt": "p"}}))
    assert (result.status, len(heard)) == (Status.DONE, 1)
    (said,) = tools_said(runtime.transcript(HANDLE))
    assert "not in the team" in said


# ------------------------------------------------------------------ a reply in the tool's place


@policies
@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize(
    ("output", "text"),
    [("done it myself", "done it myself"), ({"ref": 7}, '{"ref":7}'), (None, "null"), ("", "")],
)
async def test_a_reply_takes_the_tools_place(
    policy: ResumePolicy, inline: bool, output: Any, text: str
) -> None:
    till = Till()

    async def wait_for(request: Request) -> Answer[Any] | None:
        return yes(request, {"output": output}, by="ann")

    options: dict[str, Any] = {"wait_for": wait_for} if inline else {}
    # Also where a tool is not run twice, and a later question has the wake replayed.
    agent = till.agent([call("refund", amount=1)], call("approve"), rules=[ASKS])
    agent = Agent("w", does="pays", tools=[*agent.tools, asker], guardrails=[ASKS], model=agent.model)
    result, runtime = await agent.run("go", resume_policy=policy, **options)
    if not inline:
        result = await runtime.resume(yes(result, {"output": output}, by="ann"))
        result = await runtime.resume(yes(result))
    assert (result.status, till.paid) == (Status.DONE, [])
    assert tools_said(runtime.transcript(HANDLE))[0] == text
    assert metadata(runtime)[0] == {"replied": True, "by": "ann"}
    messages = [m for m in runtime.transcript(HANDLE) if isinstance(m, ToolMessage)]
    assert messages[0].is_error is False
    assert result.own_usage.tool_calls == facts_entered(runtime), "a reply draws no tool call"


@tool(name="approve")
async def asker(ctx: ToolContext) -> str:
    """Ask."""
    await ctx.ask("go on?")
    return "asked"


def facts_entered(runtime: Runtime[Any]) -> int:
    """How many attempts entered the tool that asks."""
    return len({fact.call for fact in facts(runtime, f.CallEntered)})


# ------------------------------------------------------------------ no


@policies
@pytest.mark.parametrize("inline", [False, True])
async def test_a_decline_is_told_with_its_reason_and_kept_with_who_and_when(
    policy: ResumePolicy, inline: bool
) -> None:
    till, clock = Till(), VirtualClock()

    async def wait_for(request: Request) -> Answer[Any] | None:
        return no(request, "too much", by="ann")

    options: dict[str, Any] = {"wait_for": wait_for} if inline else {}
    result, runtime = await till.agent(rules=[ASKS]).run("go", clock=clock, resume_policy=policy, **options)
    if not inline:
        await clock.advance(3600)
        result = await runtime.resume(no(result, "too much", by="ann"))
    assert (result.status, till.paid) == (Status.DONE, [])
    assert tools_said(runtime.transcript(HANDLE)) == ["declined: too much"]
    assert metadata(runtime) == [{"declined": True}]
    (answer,) = [e for e in runtime.events() if e.kind == "answer"]
    assert (answer.ok, answer.reason, answer.by, answer.at) == (False, "too much", "ann", clock.now())
    (denied,) = [e for e in runtime.events() if e.kind == "tool_denied"]
    assert (denied.declined, denied.reason) == (True, "too much")
    (line,) = [line for line in runtime.trace() if "AnswerGiven" in line]
    assert "ann" in line
    assert "too much" in line
    with pytest.raises(AlreadyAnswered) as caught:
        await runtime.resume(yes(Request(id=answer.request_id, kind="approval", prompt="p", path=())))
    assert caught.value.answer == Answer[Any](
        id=answer.request_id, ok=False, reason="too much", by="ann", at=answer.at
    )


@policies
async def test_what_expires_is_declined(policy: ResumePolicy) -> None:
    till, clock = Till(), VirtualClock()

    def rules(event: GuardrailEvent) -> Ruling:
        return Ask("refund?", expires_at=clock.now() + timedelta(hours=1))

    result, runtime = await till.agent(rules=[rules]).run("go", clock=clock, resume_policy=policy)
    assert first(result).expires_at == clock.now() + timedelta(hours=1)
    await clock.advance(3600)
    with pytest.raises(RequestExpired):
        await runtime.resume(yes(result))
    result = await runtime.recover()
    assert (result.status, till.paid) == (Status.DONE, [])
    assert tools_said(runtime.transcript(HANDLE)) == ["declined: expired"]


async def test_the_earliest_time_of_several_counts() -> None:
    till, clock = Till(), VirtualClock()

    def at(hours: int | None) -> Any:
        when = None if hours is None else clock.now() + timedelta(hours=hours)
        return lambda event: Ask(f"by {hours}?", expires_at=when)

    result, _ = await till.agent(rules=[at(None), at(5), at(2)]).run("go", clock=clock)
    assert first(result).expires_at == clock.now() + timedelta(hours=2)


# ------------------------------------------------------------------ who is asked, and several at once


async def test_the_nearest_interpreter_answers() -> None:
    asked: list[str] = []

    def interpreter(name: str, ok: bool | None) -> Any:
        async def wait_for(request: Request) -> Answer[Any] | None:
            asked.append(f"{name}: {'/'.join(request.path)}")
            return None if ok is None else Answer[Any](id=request.id, ok=ok, reason=None if ok else name)

        return wait_for

    for own, ran, who in (
        (True, ["danger 1"], "w"),
        (False, [], "w"),
        (None, [], "w"),
        ("none", ["danger 1"], "p"),
    ):
        asked.clear()
        more = {} if own == "none" else {"wait_for": interpreter("w", own)}  # type: ignore[arg-type]  # a word of the loop
        world = World(call("danger"), own=[asking("danger")], more=more)
        model = MockModel([call("task", agent="w", prompt="go"), say("end")])
        lead = Agent("p", does="leads", team=[world.worker()], model=model, wait_for=interpreter("p", True))
        result, _ = await lead.run("go", wait_for=interpreter("root", True))
        assert asked == [f"{who}: root/p.1/w.1"]
        assert world.ran == ran
        assert result.status is (Status.PENDING if own is None else Status.DONE)


@policies
async def test_a_list_of_answers_applies_whole_or_not_at_all(policy: ResumePolicy) -> None:
    till = Till()
    batch = [call("refund", amount=n) for n in (1, 2, 3)]
    result, runtime = await till.agent(batch, rules=[ASKS]).run("go", resume_policy=policy)
    one, two, three = result.pendings
    before = runtime.trace()
    with pytest.raises(InvalidAnswer):
        await runtime.resume([yes(one), yes(two, {"arguments": {"amount": "x"}}), no(three)])
    assert (runtime.trace(), runtime.pendings(), till.paid) == (before, (one, two, three), [])
    result = await runtime.resume([yes(three, {"output": "by hand"}), yes(one), no(two, "why?")])
    assert result.status is Status.DONE
    assert [p[0] for p in till.paid] == [1]
    assert tools_said(runtime.transcript(HANDLE)) == ["paid 1", "declined: why?", "by hand"]


@policies
async def test_a_wake_waits_until_all_its_questions_have_answers(policy: ResumePolicy) -> None:
    till = Till()
    batch = [call("refund", amount=n) for n in (1, 2)]
    result, runtime = await till.agent(batch, rules=[ASKS]).run("go", resume_policy=policy)
    one, two = result.pendings
    result = await runtime.resume(yes(two))
    assert (result.status, result.pendings, till.paid) == (Status.PENDING, (one,), [])
    result = await runtime.resume(yes(one))
    assert result.status is Status.DONE
    assert sorted(p[0] for p in till.paid) == [1, 2]


async def test_an_answer_to_a_wake_that_still_works_is_an_inline_one() -> None:
    blocked, told = anyio.Event(), anyio.Event()

    @tool
    async def slow() -> str:
        """Take its time."""
        world.ran.append("slow")
        await blocked.wait()
        return "slow"

    async def on_pending(request: Request) -> None:
        assert [r.id for r in runtime.pendings()] == [request.id]
        told.set()

    world = World(
        [call("slow"), call("danger"), call("safe")], own=[asking("danger")], more={"tools": [slow]}
    )
    runtime = Runtime(world.worker(), **world.options(on_pending=on_pending))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.run, "go")
            await told.wait()
            assert "danger 1" not in world.ran

            async def answer() -> None:
                await runtime.resume(yes(runtime.pendings()[0]))

            group.start_soon(answer)
            while "danger 1" not in world.ran:
                await anyio.lowlevel.checkpoint()
            blocked.set()
    assert runtime.result().status is Status.DONE
    assert sorted(world.ran) == ["danger 1", "safe 1", "slow"], "nothing is replayed"


# ------------------------------------------------------------------ budget


@policies
async def test_an_approved_call_draws_once_and_when_it_is_entered(policy: ResumePolicy) -> None:
    till = Till()
    agent = till.agent(rules=[ASKS])
    result, runtime = await agent.run("go", resume_policy=policy, budget=Budget(max_tool_calls=1))
    assert (result.status, result.usage.tool_calls) == (Status.PENDING, 0)
    result = await runtime.resume(yes(result))
    assert (result.status, result.usage.tool_calls) == (Status.DONE, 1)
    assert [p[0] for p in till.paid] == [100]


@policies
async def test_an_approval_is_no_tool_call_the_budget_does_not_have(policy: ResumePolicy) -> None:
    world = World([call("danger"), call("safe")], own=[asking("danger")])
    budget = Budget(max_tool_calls=1 if policy is ResumePolicy.CONTINUE else 2)
    result, runtime = await world.worker().run("go", **world.options(resume_policy=policy, budget=budget))
    assert world.ran == ["safe 1"]
    result = await runtime.resume(yes(result))
    assert (result.status, result.limit) == (Status.INCOMPLETE, "maxToolCalls")
    assert world.ran.count("danger 1") == (0 if policy is ResumePolicy.CONTINUE else 1)
    result = await runtime.extend(Budget(max_tool_calls=9))
    assert result.status is Status.DONE
    assert world.ran.count("danger 1") == 1


async def test_a_rule_that_allows_what_it_asked_about_before_lets_it_in_unasked() -> None:
    """`Allow` of today is as good as a yes of yesterday, for a call made anew."""
    till = Till()
    result, _ = await till.agent(rules=[rule({"refund": Allow()})]).run("go")
    assert (result.status, [p[0] for p in till.paid]) == (Status.DONE, [100])
