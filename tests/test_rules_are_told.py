"""What rules and verifiers are given, and what whoever answers or goes on is told."""

from __future__ import annotations

import anyio
import pytest

from overt import (
    Agent,
    Allow,
    Answer,
    Ask,
    Attempt,
    Completion,
    GuardrailEvent,
    OutputEvent,
    PromptEvent,
    Ruling,
    Runtime,
    UsageError,
    require_approval,
    tool,
)
from overt.errors import InvalidAnswer
from overt.loop import Loop
from overt.stores import MemoryStore
from overt.testing import MockModel, call, say


@tool
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def test_rules_and_verifiers_are_given_the_deps_of_the_run() -> None:
    deps = {"user": "ann"}
    seen: list[object] = []

    def on_call(event: GuardrailEvent) -> Ruling:
        seen.append(event.deps)
        return Allow()

    def on_prompt(event: PromptEvent) -> Ruling:
        seen.append(event.deps)
        return Allow()

    def on_output(event: OutputEvent) -> Ruling:
        seen.append(event.deps)
        return Allow()

    def verify(attempt: Attempt) -> tuple[bool, str]:
        seen.append(attempt.deps)
        return attempt.handle == "root/w.1" and attempt.run_id == "r", "of another run"

    agent = Agent(
        "w",
        does="x",
        tools=[pay],
        guardrails=[on_call],
        input_guardrails=[on_prompt],
        output_guardrails=[on_output],
        completion=Completion(verify, max_attempts=1),
        model=MockModel([call("pay", amount=1), "done"]),
        deps_type=dict[str, str],
    )
    result, _ = await agent.run("go", deps=deps, run_id="r")
    assert result.status == "done"
    assert len(seen) == 4
    assert all(one is deps for one in seen)


async def test_an_answer_of_another_shape_is_told_which_there_are() -> None:
    agent = Agent(
        "w",
        does="x",
        tools=[pay],
        guardrails=[require_approval("pay")],
        model=MockModel([call("pay", amount=1), "done"]),
    )
    result, runtime = await agent.run("go")
    (request,) = result.pendings
    with pytest.raises(InvalidAnswer, match=r'\{"arguments": \{…\}\} runs the call with others'):
        await runtime.resume(Answer(id=request.id, ok=True, data={"amount": 2}))
    assert runtime.pendings() == (request,)


@pytest.mark.parametrize("what", ["prompt", "output"])
async def test_approving_a_text_takes_no_data(what: str) -> None:
    def ask(event: PromptEvent | OutputEvent) -> Ruling:
        return Ask("may it?")

    agent = Agent(
        "w",
        does="x",
        input_guardrails=[ask] if what == "prompt" else [],
        output_guardrails=[ask] if what == "output" else [],
        model=MockModel(["done"]),
    )
    result, runtime = await agent.run("go")
    (request,) = result.pendings
    with pytest.raises(InvalidAnswer, match=f"approving a {what} takes none"):
        await runtime.resume(Answer(id=request.id, ok=True, data="another"))
    assert (await runtime.resume(Answer(id=request.id, ok=True))).text == "done"


async def test_a_loop_that_was_cut_off_says_what_goes_on_with_it() -> None:
    inside = anyio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        inside.set()
        await anyio.sleep_forever()
        return ""

    def made(*, model: MockModel) -> Agent[None, str]:
        return Agent("w", does="x", tools=[wait], model=model)

    store = MemoryStore()
    loop = made(model=MockModel([call("wait")])).loop(store=store, run_id="r")
    async with anyio.create_task_group() as group:
        group.start_soon(loop.run, "go")
        await inside.wait()
        group.cancel_scope.cancel()
    # Cancelled, it has been closed off, and another prompt takes its place.
    again = await Loop.open(made(model=MockModel(["fine"])), "r", store=store)
    assert (await again.run("another")).text == "fine"


async def test_the_calls_a_rule_lets_by_are_the_same_without_it() -> None:
    model = MockModel([call("pay", amount=1), say("done")])
    plain = Agent("w", does="x", tools=[pay], model=model)
    bare, one = await plain.run("go")
    ruled, two = await plain.run("go", guardrails=[lambda _: Allow()])
    assert (bare.text, bare.usage) == (ruled.text, ruled.usage)
    assert one.transcript("root/w.1") == two.transcript("root/w.1")
    assert isinstance(two, Runtime)
    with pytest.raises(UsageError):
        await two.run("again")
