"""Guardrails on prompts and final answers: the same three rulings, and nothing is bought or given past them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from overt import (
    Agent,
    Allow,
    Answer,
    Ask,
    Deny,
    InboxItem,
    ModelRequest,
    OutputEvent,
    PromptEvent,
    Request,
    ResumePolicy,
    Ruling,
    Runtime,
    Status,
    TaskResult,
    ToolContext,
    tool,
)
from overt.core import facts as f
from overt.errors import InvalidAnswer
from overt.stores import MemoryStore
from overt.testing import MockModel, VirtualClock, call, say
from overt.testing.crashing import CrashingStore
from tests.guard_kit import answer_all, facts
from tests.suspend_kit import first, no, tools_said, yes

HANDLE = "root/w.1"
policies = pytest.mark.parametrize("policy", list(ResumePolicy))
kinds = pytest.mark.parametrize("what", ["prompt", "output"])


class Desk:
    """An agent that says what it is told to, and what was bought for it and done by it."""

    def __init__(self, *says: str, steps: bool = True) -> None:
        self.left = list(says) or ["answer"]
        self.bought = 0
        self.did: list[str] = []
        self.steps = steps

    def agent(self, **given: Any) -> Agent[Any, Any]:
        desk = self

        @tool
        async def step() -> str:
            """Do something."""
            desk.did.append("step")
            return "stepped"

        def script(request: ModelRequest) -> Any:
            desk.bought += 1
            if desk.steps and request.messages[-1].role == "user":
                return call("step")
            return say(desk.left.pop(0) if len(desk.left) > 1 else desk.left[0])

        given = {"model": MockModel(script), "tools": [step], **given}
        return Agent("w", does="answers", **given)


class Says:
    """A rule that says one thing after another, the last one for good, and notes what it saw."""

    def __init__(self, *rulings: Any, name: str = "says", waits: bool = False) -> None:
        self.rulings = rulings
        self.seen: list[Any] = []
        self.__name__ = name
        self.waits = waits

    def __call__(self, event: Any) -> Any:
        self.seen.append(event)
        ruling = self.rulings[min(len(self.seen), len(self.rulings)) - 1]
        if isinstance(ruling, BaseException):
            raise ruling
        if not self.waits:
            return ruling

        async def later() -> Any:
            await anyio.lowlevel.checkpoint()
            return ruling

        return later()


def rules_on(what: str, *rules: Any) -> dict[str, Any]:
    return {f"{'input' if what == 'prompt' else 'output'}_guardrails": list(rules)}


def denied(result: TaskResult[Any], text: str) -> bool:
    """Whether a result is a denial that says so."""
    assert result.status is Status.ERROR, result
    assert result.error is not None
    assert (result.error.type, result.error.source) == ("GuardrailDenied", "guardrail")
    assert result.output is None
    return text in result.error.message and text in result.text


# ------------------------------------------------------------------ rulings


@kinds
@pytest.mark.parametrize("whose", ["own", "house"])
@pytest.mark.parametrize("waits", [False, True])
async def test_what_is_denied_ends_the_wake(what: str, whose: str, waits: bool) -> None:
    desk = Desk()
    rules = rules_on(
        what, Says(Allow(), name="fine"), Says(Deny("rude"), name="polite", waits=waits), Says(Ask("ok?"))
    )
    own, house = (rules, {}) if whose == "own" else ({}, rules)
    result, runtime = await desk.agent(**own).run("go", **house)
    subject = "The prompt" if what == "prompt" else "The final answer"
    assert denied(result, f"{subject} was denied by polite: rude.")
    assert result.error is not None
    assert result.error.detail == "fine: allow; polite: deny (rude); says: ask (ok?)"
    assert not result.error.retryable
    assert (desk.bought, desk.did) == ((0, []) if what == "prompt" else (2, ["step"]))
    assert runtime.pendings() == ()


@kinds
async def test_several_denials_are_all_named(what: str) -> None:
    rules = [Says(Deny("rude"), name="polite"), Says(Deny("long"), name="brief", waits=True), Says(Allow())]
    result, _ = await Desk().agent(**rules_on(what, *rules)).run("go")
    assert denied(result, "was denied by polite, brief: rude; long.")


@kinds
@pytest.mark.parametrize("ruling", [ValueError("broken"), True, None])
async def test_a_rule_that_fails_denies(what: str, ruling: Any) -> None:
    for waits in (False, True):
        desk = Desk()
        result, _ = await desk.agent(**rules_on(what, Says(ruling, name="odd", waits=waits))).run("go")
        told = "raised ValueError: broken" if ruling is not None and ruling is not True else "returned"
        assert denied(result, f"guardrail 'odd' {told}")
        assert desk.bought == (0 if what == "prompt" else 2)


@kinds
async def test_a_rule_that_takes_too_long_denies(what: str) -> None:
    clock = VirtualClock()
    desk = Desk()

    async def slow(event: Any) -> Ruling:
        await anyio.sleep_forever()
        return Allow()

    found: list[TaskResult[Any]] = []

    async def work() -> None:
        agent = desk.agent(**rules_on(what, slow, Says(Allow(), name="quick")))
        found.append((await agent.run("go", clock=clock, guardrail_timeout=3))[0])

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await clock.wait_for_sleepers()
            await clock.advance(3)
    assert denied(found[0], "guardrail 'slow' did not say within 3 s")
    assert found[0].error is not None
    assert found[0].error.detail is not None
    assert "quick: allow" in found[0].error.detail, "what the others said is told all the same"
    assert desk.bought == (0 if what == "prompt" else 2)


@kinds
async def test_what_is_allowed_is_asked_about_once_and_goes_its_way(what: str) -> None:
    desk, one, two = Desk(), Says(Allow()), Says(Allow(), waits=True)
    result, _ = await desk.agent(**rules_on(what, one)).run("go", **rules_on(what, two))
    assert (result.status, result.text) == (Status.DONE, "answer")
    assert (len(one.seen), len(two.seen), desk.bought) == (1, 1, 2)


# ------------------------------------------------------------------ what they see


async def test_a_prompt_is_what_the_model_would_read() -> None:
    rule = Says(Allow())
    runtime = Runtime(Desk().agent(input_guardrails=[rule]))
    handle = await runtime.spawn("root", "w")
    await runtime.post(handle, InboxItem(sender="mail", channel="mail", text="hello"))
    await runtime.wake(handle, "go")
    (event,) = rule.seen
    assert isinstance(event, PromptEvent)
    assert (event.run_id, event.handle, event.agent) == (runtime.id, HANDLE, "w")
    assert event.prompt == runtime.transcript(HANDLE)[0].text
    assert event.prompt.startswith("go")
    assert "hello" in event.prompt


class Order(BaseModel):
    item: str
    count: int = 1


async def test_typed_output_is_seen_as_the_type_it_is() -> None:
    for model in (
        MockModel([call("final_result", item="tea")]),
        MockModel([say('{"item": "tea"}')], structured_output=True),
    ):
        rule = Says(Allow())
        agent = Agent("w", does="orders", output_type=Order, model=model, output_guardrails=[rule])
        result, runtime = await agent.run("go")
        assert result.output == Order(item="tea")
        (event,) = rule.seen
        assert isinstance(event, OutputEvent)
        assert event.output == Order(item="tea")
        assert event.text == result.text
        assert (event.run_id, event.handle, event.agent) == (runtime.id, HANDLE, "w")


@policies
async def test_typed_output_is_denied_and_asked_about_too(policy: ResumePolicy) -> None:
    model = MockModel([call("final_result", item="tea", count=3)])

    def made(*rulings: Any) -> Agent[None, Order]:
        return Agent("w", does="orders", output_type=Order, model=model, output_guardrails=[Says(*rulings)])

    result, _ = await made(Deny("no tea")).run("go", resume_policy=policy)
    assert denied(result, "no tea")
    result, runtime = await made(Ask("tea?")).run("go", resume_policy=policy)
    assert first(result).data == {"output": {"item": "tea", "count": 3}}
    result = await runtime.resume(yes(result))
    assert (result.status, result.output) == (Status.DONE, Order(item="tea", count=3))


async def test_an_answer_that_still_asks_for_tools_is_none() -> None:
    rule = Says(Allow())
    result, _ = await Desk().agent(output_guardrails=[rule]).run("go")
    assert result.status is Status.DONE
    assert [e.text for e in rule.seen] == ["answer"]


# ------------------------------------------------------------------ members of a team


def lead(desk: Desk, *, how: str, own: dict[str, Any], **given: Any) -> Agent[None, str]:
    child = desk.agent(**own)
    delegates = call("task", agent="w", prompt="below") if how == "task" else call("w", prompt="below")
    members: dict[str, Any] = {"team": [child]} if how == "task" else {"tools": [child.as_tool()]}
    return Agent("p", does="leads", model=MockModel([delegates, say("end")]), **members, **given)


@kinds
@pytest.mark.parametrize("how", ["task", "as_tool"])
@pytest.mark.parametrize("whose", ["own", "house"])
async def test_a_members_prompt_and_answer_are_guarded(what: str, how: str, whose: str) -> None:
    desk = Desk()
    texts = ("below", "answer")

    class Rule(Says):
        def __call__(self, event: Any) -> Any:
            self.seen.append(event)
            text = event.prompt if what == "prompt" else event.text
            return Deny("rude") if text in texts else Allow()

    rule = Rule()
    own, house = (rules_on(what, rule), {}) if whose == "own" else ({}, rules_on(what, rule))
    result, runtime = await lead(desk, how=how, own=own).run("go", **house)
    assert (result.status, result.text) == (Status.DONE, "end"), (
        "an error of a member is a result to its lead"
    )
    (said,) = tools_said(runtime.transcript("root/p.1"))
    assert said.startswith("[error] GuardrailDenied: ")
    assert "rude" in said
    assert "answer" not in said.removeprefix("[error] GuardrailDenied: The final answer"), (
        "what was denied stays below"
    )
    assert (desk.bought, desk.did) == ((0, []) if what == "prompt" else (2, ["step"]))
    assert [e.agent for e in rule.seen if e.agent == "w"] == ["w"]
    assert len(rule.seen) == (1 if whose == "own" else 2)


@kinds
@policies
async def test_a_question_about_a_members_text_comes_up_with_its_path(
    what: str, policy: ResumePolicy
) -> None:
    desk, store = Desk(), MemoryStore()

    def made() -> Agent[None, str]:
        return lead(desk, how="task", own=rules_on(what, Says(Ask("fine?"))))

    result, _ = await made().run("go", store=store, run_id="r", resume_policy=policy)
    request = first(result)
    assert (request.path, request.prompt) == (("root", "p.1", "w.1"), "fine?")
    assert request.data == {what: "below" if what == "prompt" else "answer"}
    assert desk.bought == (0 if what == "prompt" else 2)
    runtime = await Runtime.open(made(), "r", store=store)
    result = await runtime.resume(yes(request))
    assert (result.status, result.text) == (Status.DONE, "end")
    assert tools_said(runtime.transcript("root/p.1")) == ["answer"]


# ------------------------------------------------------------------ asking


@kinds
@policies
@pytest.mark.parametrize("where", ["here", "elsewhere", "inline"])
@pytest.mark.parametrize("ok", [True, False])
async def test_a_question_is_answered(what: str, policy: ResumePolicy, where: str, ok: bool) -> None:
    desk, rule, store = Desk(), Says(Ask("fine?"), waits=True), MemoryStore()
    agent = desk.agent(**rules_on(what, rule))

    async def wait_for(request: Request) -> Answer[Any] | None:
        return Answer(id=request.id, ok=ok, reason=None if ok else "rude")

    options: dict[str, Any] = {"wait_for": wait_for} if where == "inline" else {}
    result, runtime = await agent.run("go", store=store, run_id="r", resume_policy=policy, **options)
    attempts = 2 if what == "output" and policy is ResumePolicy.REWIND and ok and where != "inline" else 1
    if where != "inline":
        request = first(result)
        assert (request.kind, request.prompt, request.path) == ("approval", "fine?", ("root", "w.1"))
        assert request.data == {what: "go" if what == "prompt" else "answer"}
        again = what == "output" and policy is ResumePolicy.REWIND
        assert (len(request.replays), request.turns_again) == ((1, 2) if again else (0, 0))
        if where == "elsewhere":
            runtime = await Runtime.open(desk.agent(**rules_on(what, rule)), "r", store=store)
        result = await runtime.resume(Answer(id=request.id, ok=ok, reason=None if ok else "rude"))
    if ok:
        assert (result.status, result.text) == (Status.DONE, "answer")
        assert (desk.bought, len(desk.did)) == (2 * attempts, attempts)
        assert len(rule.seen) == 2, "once more for Deny, right before it counts"
    else:
        assert denied(result, "declined: rude")
        assert (desk.bought, len(rule.seen)) == (0 if what == "prompt" else 2, 1)
    assert len(facts(runtime, f.WakeAsked)) == 1


@kinds
@policies
async def test_what_is_denied_after_it_was_approved_is_denied(what: str, policy: ResumePolicy) -> None:
    desk = Desk()
    result, runtime = await desk.agent(**rules_on(what, Says(Ask("fine?"), Deny("not any more")))).run(
        "go", resume_policy=policy
    )
    result = await runtime.resume(yes(result))
    assert denied(result, "not any more")
    if what == "prompt":
        assert desk.bought == 0


@kinds
async def test_several_questions_are_one_and_its_type_is_checked(what: str) -> None:
    class Terms(BaseModel):
        days: int

    rules = rules_on(what, Says(Ask("one?")), Says(Ask("two?", answer_type=Terms)), Says(Ask("one?")))
    result, runtime = await Desk().agent(**rules).run("go")
    request = first(result)
    assert request.prompt == "one?\ntwo?"
    bad: list[Any] = [None, {}, {"days": "many"}, {"arguments": {}}, {"output": "mine"}]
    for data in bad:
        with pytest.raises(InvalidAnswer):
            await runtime.resume(yes(request, data))
    assert runtime.pendings() == (request,)
    assert (await runtime.resume(yes(request, {"days": 2}))).status is Status.DONE


@kinds
async def test_what_expires_is_declined(what: str) -> None:
    clock = VirtualClock()
    rule = Says(Ask("fine?", expires_at=clock.now() + timedelta(hours=1)))
    result, runtime = await Desk().agent(**rules_on(what, rule)).run("go", clock=clock)
    assert result.status is Status.PENDING
    await clock.advance(3600)
    assert denied(await runtime.recover(), "declined: expired")


@kinds
@policies
async def test_a_question_binds_although_its_rule_is_gone(what: str, policy: ResumePolicy) -> None:
    for ok in (True, False):
        desk, store = Desk(), MemoryStore()
        agent = desk.agent(**rules_on(what, Says(Ask("fine?"))))
        result, _ = await agent.run("go", store=store, run_id="r", resume_policy=policy)
        runtime = await Runtime.open(desk.agent(), "r", store=store)
        assert (await runtime.recover()).status is Status.PENDING
        bought = desk.bought
        result = await runtime.resume(Answer(id=first(result).id, ok=ok))
        if ok:
            assert result.status is Status.DONE
        else:
            assert denied(result, "declined")
            assert desk.bought == bought


@kinds
@pytest.mark.parametrize("inline", [False, True])
async def test_what_was_just_agreed_to_is_not_asked_about_in_other_words(what: str, inline: bool) -> None:
    async def wait_for(request: Request) -> Answer[Any] | None:
        return yes(request)

    agent = Desk().agent(**rules_on(what, Says(Ask("at noon?"), Ask("a second later?"))))
    options: dict[str, Any] = {"wait_for": wait_for} if inline else {}
    result, runtime = await agent.run("go", resume_policy=ResumePolicy.CONTINUE, **options)
    if not inline:
        result = await runtime.resume(yes(result))
    assert (result.status, len(facts(runtime, f.WakeAsked))) == (Status.DONE, 1)


# ------------------------------------------------------------------ replays


async def test_another_answer_than_the_approved_one_is_asked_about_anew_and_marked() -> None:
    desk = Desk("a", "b", "b", "b")
    result, runtime = await desk.agent(output_guardrails=[Says(Ask("fine?"))]).run("go")
    one = first(result)
    assert (one.data, one.diverged) == ({"output": "a"}, False)
    result = await runtime.resume(yes(one))
    two = first(result)
    assert (two.data, two.diverged, two.id != one.id) == ({"output": "b"}, True, True)
    result = await runtime.resume(yes(two))
    assert (result.status, result.text) == (Status.DONE, "b")
    assert result.replay is not None
    assert result.replay.unused_answers == (one.id,)


async def test_an_approved_answer_nobody_gave_again_is_reported() -> None:
    desk = Desk("a", "b")

    def rule(event: OutputEvent) -> Ruling:
        return Ask("fine?") if event.text == "a" else Allow()

    result, runtime = await desk.agent(output_guardrails=[rule]).run("go")
    one = first(result)
    result = await runtime.resume(yes(one))
    assert (result.status, result.text) == (Status.DONE, "b")
    assert result.replay is not None
    assert result.replay.unused_answers == (one.id,)


async def test_a_replay_that_asks_or_delegates_instead_of_giving_the_approved_answer_strays() -> None:
    @tool
    async def wonder(ctx: ToolContext) -> str:
        """Ask."""
        await ctx.ask("really?")
        return "so"

    below = Agent("b", does="works", model=MockModel([say("done below")]))
    for instead in (call("wonder"), call("task", agent="b", prompt="p")):
        replies: list[Any] = [say("a"), instead, say("a")]
        model = MockModel(lambda request, replies=replies: replies.pop(0))
        agent = Agent(
            "w",
            does="answers",
            model=model,
            tools=[wonder],
            team=[below],
            output_guardrails=[Says(Ask("fine?"))],
        )
        result, runtime = await agent.run("go")
        result = await runtime.resume(yes(result))
        if result.pending is not None:
            assert (result.pending.prompt, result.pending.diverged) == ("really?", True)
        else:
            assert result.error is not None
            assert result.error.type == "ReplayDiverged"
            assert "the approval of the output" in result.error.message
            assert [h.agent for h in runtime.list()] == ["w"]


@pytest.mark.parametrize("bound", [0, 1, 2, 3])
async def test_a_replay_strays_at_most_so_often(bound: int) -> None:
    desk = Desk(*"abcdefgh")
    result, runtime = await desk.agent(output_guardrails=[Says(Ask("fine?"))]).run(
        "go", max_divergences=bound
    )
    asked: list[bool] = []
    while result.pending is not None:
        asked.append(result.pending.diverged)
        result = await runtime.resume(yes(result))
    assert asked == [False, *[True] * bound]
    assert result.error is not None
    assert result.error.type == "ReplayDiverged"


@policies
async def test_an_approved_prompt_stays_approved_when_the_wake_is_replayed(policy: ResumePolicy) -> None:
    desk, rule, out = Desk(), Says(Ask("prompt?")), Says(Ask("output?"))
    agent = desk.agent(input_guardrails=[rule], output_guardrails=[out])
    result, runtime = await agent.run("go", resume_policy=policy)
    assert first(result).prompt == "prompt?"
    result = await runtime.resume(yes(result))
    assert first(result).prompt == "output?"
    result = await runtime.resume(yes(result))
    assert result.status is Status.DONE
    assert len(facts(runtime, f.WakeAsked)) == 2
    assert result.replay is not None
    assert result.replay.unused_answers == ()


@kinds
@policies
async def test_an_answer_holds_wherever_the_process_dies(what: str, policy: ResumePolicy) -> None:
    for at in range(1, 40):
        desk, store = Desk(), MemoryStore()
        agent = desk.agent(**rules_on(what, Says(Ask("fine?"))))
        result, _ = await agent.run("go", store=store, run_id="r", resume_policy=policy)
        dying = CrashingStore(store, crash_at=at, when="after")
        runtime = await Runtime.open(agent, "r", store=dying)
        try:
            await runtime.resume(yes(result))
            assert at > 2
            return
        except BaseException:
            if not dying.crashed:
                raise
        runtime = await Runtime.open(agent, "r", store=store)
        result = await runtime.recover()
        assert (result.status, len(facts(runtime, f.WakeAsked))) == (Status.DONE, 1)


# ------------------------------------------------------------------ going on


@kinds
async def test_recover_asks_again_about_what_was_denied(what: str) -> None:
    desk = Desk()
    result, runtime = await desk.agent(**rules_on(what, Says(Deny("rude"), Deny("rude"), Allow()))).run("go")
    assert denied(result, "rude")
    assert denied(await runtime.recover(), "rude")
    assert desk.bought == (0 if what == "prompt" else 2), "the same answer is asked about again"
    result = await runtime.recover()
    assert (result.status, result.text) == (Status.DONE, "answer")
    assert (desk.bought, desk.did) == (2, ["step"])


@kinds
@policies
async def test_what_was_declined_stays_declined(what: str, policy: ResumePolicy) -> None:
    desk, rule = Desk(), Says(Ask("fine?"), Allow())
    result, runtime = await desk.agent(**rules_on(what, rule)).run("go", resume_policy=policy)
    result = await runtime.resume(no(result, "rude"))
    for chosen in (None, ResumePolicy.REWIND):
        assert denied(result, "declined: rude")
        result = await runtime.recover(policy=chosen)
    assert denied(result, "declined: rude")
    assert (desk.bought, len(rule.seen)) == (0 if what == "prompt" else 2, 1)


@kinds
@pytest.mark.parametrize("how", ["denied", "declined"])
async def test_a_second_prompt_that_is_denied_leaves_the_first_as_it_was(what: str, how: str) -> None:
    ruling = Deny("rude") if how == "denied" else Ask("fine?")
    # One check for each prompt, and one more for each answer.
    rule = Says(Allow(), ruling, Allow())
    desk = Desk("one", "two", "three")
    loop = desk.agent(**rules_on(what, rule)).loop()
    result = await loop.run("first")
    before = loop.transcript()
    assert [m.text for m in before] == ["first", "", "stepped", "one"]
    result = await loop.run("second")
    if how == "declined":
        assert loop.transcript() == before, "while it waits, too"
        result = await loop.resume(no(result))
    assert denied(result, "rude" if how == "denied" else "declined")
    assert loop.transcript() == before
    result = await loop.run("third")
    assert result.status is Status.DONE
    texts = [m.text for m in loop.transcript()]
    assert texts[:5] == ["first", "", "stepped", "one", "third"]
    assert "second" not in texts
    assert result.total_tokens == desk.bought * 100, "what was bought for nothing is in the bill"


def answers(runtime: Runtime[Any]) -> Sequence[Any]:
    return [e for e in runtime.events() if e.kind == "answer"]


@kinds
async def test_who_answered_and_when_is_kept(what: str) -> None:
    clock = VirtualClock()
    result, runtime = await Desk().agent(**rules_on(what, Says(Ask("fine?")))).run("go", clock=clock)
    await clock.advance(60)
    await answer_all(result, lambda a: runtime.resume(no(result, "rude", by="ann")))
    (answer,) = answers(runtime)
    assert (answer.ok, answer.reason, answer.by, answer.at) == (False, "rude", "ann", clock.now())
