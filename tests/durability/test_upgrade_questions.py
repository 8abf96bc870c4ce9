"""Questions whose form has changed between the answer and the tool that asks: told by the host, or asked anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.durability.crew import RUN, facts_of

from overt import Agent, Answer, Request, ResumePolicy, Runtime, TaskResult, ToolContext, Upgrade, tool
from overt.core import facts as f
from overt.stores import MemoryStore, Store
from overt.testing import MockModel, call, say

pytestmark = pytest.mark.anyio
policies = pytest.mark.parametrize("policy", list(ResumePolicy))
entered: list[str] = []


@pytest.fixture(autouse=True)
def nothing_yet() -> None:
    entered.clear()


def asker(prompt: str, data: dict[str, Any], answer_type: Any = bool, *, second: str | None = None) -> Agent:
    """An agent whose tool asks; with `second` a further question follows."""

    async def _pay(ctx: ToolContext[None], n: int) -> str:
        """Pay."""
        entered.append(prompt)
        answer: Answer[Any] = await ctx.ask(prompt, data=data, answer_type=answer_type)
        if second is not None:
            await ctx.ask(second)
        return f"{answer.ok} {answer.data}"

    return Agent("w", does="Works.", tools=[tool(_pay, name="pay")], model=MODEL)


MODEL = MockModel([call("pay", n=7), say("end")])
OLD = ("Pay?", {"cents": 7})
NEW = ("Pay this?", {"amount": {"cents": 7, "currency": "EUR"}})


def as_new(request: Request) -> Request:
    """What the new tool would ask where the old one asked this."""
    data = {"amount": {"cents": request.data["cents"], "currency": "EUR"}}
    return request.model_copy(update={"prompt": "Pay this?", "data": data})


async def park(store: Store, policy: ResumePolicy) -> Request:
    result, _ = await asker(*OLD).run("go", store=store, run_id=RUN, resume_policy=policy)
    assert result.pending is not None
    return result.pending


async def answered(
    store: Store,
    agent: Agent,
    request: Request,
    upgrade: Upgrade | None,
    *,
    data: Any = True,
    ok: bool = True,
) -> tuple[TaskResult[Any], Runtime[Any]]:
    given: dict[str, Any] = {} if upgrade is None else {"upgrade": upgrade}
    runtime = await Runtime.open(agent, RUN, store=store, **given)
    return await runtime.resume(Answer(id=request.id, ok=ok, data=data if ok else None)), runtime


async def upgraded(store: Store) -> list[f.QuestionUpgraded]:
    return [x for x in await facts_of(store) if isinstance(x, f.QuestionUpgraded)]


def told(runtime: Runtime[Any]) -> list[str]:
    return [m.text for m in runtime.transcript("root/w.1", uncommitted=True) if m.role == "tool"]


@policies
@pytest.mark.parametrize("ok", [True, False])
async def test_the_answer_counts_for_the_question_in_its_new_form(policy: ResumePolicy, ok: bool) -> None:
    store = MemoryStore()
    request = await park(store, policy)
    result, runtime = await answered(store, asker(*NEW), request, Upgrade(questions=as_new), ok=ok)
    assert (result.status, result.text) == ("done", "end")
    assert told(runtime) == ["True True" if ok else "False None"]
    (fact,) = await upgraded(store)
    assert (fact.handle, fact.request, fact.question.prompt) == ("root/w.1", request.id, "Pay this?")
    assert '"call":{"arguments":{"n":7},"tool":"pay"}' in fact.question.data
    assert any("QuestionUpgraded(" in line for line in runtime.trace())
    (event,) = [e for e in runtime.events() if e.kind == "recorded" and e.fact == "question_upgraded"]
    assert event.data["request"] == request.id
    assert result.replay is not None
    assert not result.replay.unused_answers


@policies
async def test_without_it_the_question_is_asked_anew(policy: ResumePolicy) -> None:
    store = MemoryStore()
    request = await park(store, policy)
    result, _ = await answered(store, asker(*NEW), request, None)
    assert result.pending is not None
    assert (result.pending.prompt, result.pending.diverged) == ("Pay this?", True)


def other_prompt(request: Request) -> Request:
    return request.model_copy(update={"prompt": "Pay that?"})


def nothing(request: Request) -> None:
    return None


def other_kind(request: Request) -> Request:
    return as_new(request).model_copy(update={"kind": "approval"})


@policies
@pytest.mark.parametrize("fn", [other_prompt, nothing, other_kind])
async def test_it_is_applied_to_nothing_else(
    policy: ResumePolicy, fn: Callable[[Request], Request | None]
) -> None:
    """What is not what the tool asks now is no answer to it, whatever the host says."""
    store = MemoryStore()
    request = await park(store, policy)
    result, _ = await answered(store, asker(*NEW), request, Upgrade(questions=fn))
    assert result.pending is not None
    assert result.pending.diverged
    assert not await upgraded(store)
    assert result.pending.id != request.id


async def test_a_question_that_fits_is_not_shown_to_the_host() -> None:
    seen: list[Request] = []

    def note(request: Request) -> Request:
        seen.append(request)
        return as_new(request)

    store = MemoryStore()
    request = await park(store, ResumePolicy.REWIND)
    result, _ = await answered(store, asker(*OLD), request, Upgrade(questions=note))
    assert result.text == "end"
    assert not seen


@policies
async def test_an_answer_that_does_not_fit_the_new_type_is_asked_for_again(policy: ResumePolicy) -> None:
    """The schema need not be written down by the host: the recorded answer is held against the new one."""
    store = MemoryStore()
    request = await park(store, policy)
    result, _ = await answered(store, asker(*NEW, int), request, Upgrade(questions=as_new))
    assert result.pending is not None
    assert result.pending.answer_schema == {"type": "integer"}
    assert not await upgraded(store)


@policies
async def test_a_wider_type_takes_the_answer(policy: ResumePolicy) -> None:
    store = MemoryStore()
    request = await park(store, policy)
    result, runtime = await answered(store, asker(*NEW, bool | str), request, Upgrade(questions=as_new))
    assert (result.text, told(runtime)) == ("end", ["True True"])


@policies
async def test_the_upgraded_form_is_kept_for_entries_that_follow(policy: ResumePolicy) -> None:
    """The tool asks on and is entered again, by a process without the upgrade: the first question still fits."""
    store = MemoryStore()
    request = await park(store, policy)
    agent = asker(*NEW, second="And now?")
    result, _ = await answered(store, agent, request, Upgrade(questions=as_new))
    assert result.pending is not None
    assert (result.pending.prompt, result.pending.diverged) == ("And now?", False)
    result, runtime = await answered(store, agent, result.pending, None, data="x")
    assert (result.text, told(runtime)) == ("end", ["True True"])
    assert len(await upgraded(store)) == 1


def boom(request: Request) -> Request:
    raise LookupError("no such currency")


def number(request: Request) -> Any:
    return 3


def no_json(request: Request) -> Request:
    return request.model_copy(update={"data": {"at": object()}})


@policies
@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (boom, "Upgrade.questions raised LookupError: no such currency"),
        (number, "Upgrade.questions returned int, not a Request or None"),
        (no_json, "Upgrade.questions returned data that is no JSON: "),
    ],
)
async def test_one_that_fails_fails_the_wake_and_loses_nothing(
    policy: ResumePolicy, fn: Any, why: str
) -> None:
    store = MemoryStore()
    request = await park(store, policy)
    result, _ = await answered(store, asker(*NEW), request, Upgrade(questions=fn))
    assert result.status == "error"
    assert result.error is not None
    assert (result.error.type, result.error.source) == ("UpgradeFailed", "hook")
    assert result.error.message.startswith(why)
    mended = await Runtime.open(asker(*NEW), RUN, store=store, upgrade=Upgrade(questions=as_new))
    done: TaskResult[Any] = await mended.recover()
    assert (done.status, done.text, told(mended)) == ("done", "end", ["True True"])
    assert entered == ["Pay?", "Pay this?", "Pay this?"]
