"""A failed model call is made again: how often, after which wait, and what the run says of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import pytest
from pydantic import ValidationError

from overt import Agent, Budget, Limit, RetryPolicy, Runtime, TaskResult, Usage, tool
from overt.core import facts as f
from overt.errors import DefinitionError, ModelError
from overt.events import ModelFailed, RetryAwaited, TextDelta
from overt.message import ModelDelta, ModelRequest, ModelResponse, ToolCallDelta
from overt.stores import SQLiteStore
from overt.testing import MockModel, VirtualClock, call, say
from tests.driver.support import agent, kinds

EXACT = RetryPolicy(jitter=0)


def busy(**more: Any) -> ModelError:
    return ModelError("HTTP 503", **{"type": "Busy", "status_code": 503, "retryable": True, **more})


class Flaky:
    """A model that raises what it is given, one after another, and then replies; it knows when it was asked."""

    name = "flaky"

    def __init__(self, *failures: BaseException, clock: VirtualClock, then: str = "done") -> None:
        self.failures = list(failures)
        self.clock = clock
        self.at: list[float] = []
        self.inner = MockModel([say(then)])

    async def generate(self, request: ModelRequest) -> ModelResponse:
        self.at.append(self.clock.monotonic())
        if self.failures:
            raise self.failures.pop(0)
        return await self.inner.generate(request)


async def run(
    model: Flaky, *steps: float, made: Agent[None, str] | None = None, **options: Any
) -> tuple[TaskResult[str], Runtime[str]]:
    """Run while the clock advances by steps, each once the run waits for it."""
    rt = Runtime(made or agent(), model=model, clock=model.clock, **{"retry": EXACT, **options})
    results: list[TaskResult[str]] = []

    async def go() -> None:
        results.append(await rt.run("go"))

    async with anyio.create_task_group() as group:
        group.start_soon(go)
        for step in steps:
            await model.clock.wait_for_sleepers()
            await model.clock.advance(step)
    return results[0], rt


def facts(rt: Runtime[Any]) -> list[f.Fact]:
    return [fact for _, _, found in rt._driver.log for fact in found]


async def test_it_is_made_again_twice_after_a_wait_that_doubles() -> None:
    model = Flaky(busy(), busy(), clock=VirtualClock())
    result, rt = await run(model, 0.5, 1.0)
    assert (result.status, result.text) == ("done", "done")
    assert model.at == [0.0, 0.5, 1.5]
    # Each attempt is a call, and what the failed ones used is not known.
    assert (result.usage.model_calls, result.usage.unreported_calls, result.turns) == (3, 2, 1)
    assert result.total_tokens == 100
    assert [type(x).__name__ for x in facts(rt)][4:] == [
        "ModelFailed", "RetryAwaited", "RetryDue", "ModelCalled",
        "ModelFailed", "RetryAwaited", "RetryDue", "ModelCalled",
        "ModelReplied", "WakeSettled", "HandleClosed", "HandleClosed",
    ]  # fmt: skip
    failed = [e for e in rt.events() if isinstance(e, ModelFailed)]
    again = [e for e in rt.events() if isinstance(e, RetryAwaited)]
    assert [(e.error.type, e.error.status_code, e.model, e.usage) for e in failed] == [
        ("Busy", 503, "flaky", None)
    ] * 2
    assert [(e.seconds, e.number) for e in again] == [(0.5, 1), (1.0, 2)]


async def test_past_the_last_attempt_the_error_is_the_result() -> None:
    model = Flaky(*[busy() for _ in range(3)], clock=VirtualClock())
    result, rt = await run(model, 0.5, 1.0)
    assert result.status == "error"
    assert result.error is not None
    assert (result.error.type, result.error.retryable, len(model.at)) == ("Busy", True, 3)
    # Whoever goes on with it has all attempts again.
    model.failures = [busy(), busy()]

    async with anyio.create_task_group() as group:

        async def go() -> None:
            assert (await rt.recover()).status == "done"

        group.start_soon(go)
        for step in (0.5, 1.0):
            await model.clock.wait_for_sleepers()
            await model.clock.advance(step)
    assert rt.result().usage.model_calls == 6


@pytest.mark.parametrize("retry", [RetryPolicy(max_retries=0), RetryPolicy(max_retries=0, base=0)])
async def test_zero_means_zero(retry: RetryPolicy) -> None:
    model = Flaky(busy(), clock=VirtualClock())
    result, _ = await run(model, retry=retry)
    assert (result.status, result.usage.model_calls, model.at) == ("error", 1, [0.0])


async def test_what_cannot_succeed_later_is_not_made_again() -> None:
    model = Flaky(ModelError("no such model", status_code=404), clock=VirtualClock())
    result, _ = await run(model)
    assert (result.status, result.usage.model_calls) == ("error", 1)


async def test_the_wait_the_provider_asks_for_is_the_least() -> None:
    model = Flaky(busy(status_code=429, retry_after=5.0), clock=VirtualClock())
    result, _ = await run(model, 4.99, 0.01)
    assert (result.status, model.at) == ("done", [0.0, 5.0])


async def test_a_longer_wait_than_allowed_fails_at_once_and_says_for_how_long() -> None:
    model = Flaky(busy(retry_after=61.0, request_id="req_7"), clock=VirtualClock())
    result, _ = await run(model)
    assert result.error is not None
    assert (result.error.retry_after, result.error.request_id, len(model.at)) == (61.0, "req_7", 1)


@pytest.mark.parametrize("wait", [3.0, 10.0])
async def test_what_max_wall_has_no_room_for_is_not_waited_for(wait: float) -> None:
    model = Flaky(busy(retry_after=wait), clock=VirtualClock())
    result, _ = await run(model, budget=Budget(max_wall=3.0))
    assert (result.status, result.limit, len(model.at)) == ("error", None, 1)
    model = Flaky(busy(retry_after=2.5), clock=VirtualClock())
    result, _ = await run(model, 2.5, budget=Budget(max_wall=3.0))
    assert (result.status, model.at) == ("done", [0.0, 2.5])


async def test_where_no_call_is_left_the_error_is_told_at_once() -> None:
    model = Flaky(busy(), clock=VirtualClock())
    result, _ = await run(model, budget=Budget(max_model_calls=1))
    assert result.error is not None
    assert (result.status, result.error.type) == ("error", "Busy")
    model = Flaky(busy(), busy(), clock=VirtualClock())
    result, rt = await run(model, 0.5, budget=Budget(max_model_calls=2))
    assert (result.status, result.usage.model_calls) == ("error", 2)
    assert (await rt.recover()).limit is Limit.MAX_MODEL_CALLS


async def test_an_interrupt_ends_the_wait() -> None:
    model = Flaky(busy(retry_after=30.0), clock=VirtualClock())
    rt = Runtime(agent(), model=model, clock=model.clock, retry=EXACT)
    async with anyio.create_task_group() as group:
        group.start_soon(rt.run, "go")
        await model.clock.wait_for_sleepers()
        await rt.interrupt()
    assert (rt.result().status, model.at, model.clock.sleepers) == ("interrupted", [0.0], 0)
    assert rt.result().usage.model_calls == 1


async def test_a_run_cut_off_while_it_waits_goes_on_at_once_in_another_process(tmp_path: Any) -> None:
    model, store = Flaky(busy(retry_after=30.0), clock=VirtualClock()), SQLiteStore(tmp_path / "runs.db")
    rt = Runtime(agent(), model=model, clock=model.clock, store=store, run_id="r", retry=EXACT)
    async with anyio.create_task_group() as group:
        group.start_soon(rt.run, "go")
        await model.clock.wait_for_sleepers(2)  # the wait, and the renewal of the claim
        group.cancel_scope.cancel()
    again = await Runtime.open(agent(), "r", store=store, model=model, clock=model.clock)
    assert again.result().status == "interrupted"
    result = await again.recover()
    assert (result.status, result.usage.model_calls, result.usage.unreported_calls) == ("done", 2, 1)
    await store.close()


async def test_a_wait_holds_no_place_among_the_calls_at_once() -> None:
    clock = VirtualClock()
    slow = Flaky(busy(retry_after=30.0), clock=clock)
    quick = Agent("quick", does="is quick", model=MockModel([say("quick")]))
    flaky = Agent("flaky", does="fails", model=slow)
    lead = Agent("lead", does="leads", team=[quick, flaky])
    rt = Runtime(lead, model=MockModel([say("x")]), clock=clock, retry=EXACT, max_concurrent_turns=1)
    async with rt:
        first = await rt.spawn("root", "flaky")
        await rt.wake(first, "go")
        await clock.wait_for_sleepers()
        second = await rt.spawn("root", "quick")
        assert (await rt.run_turn(second, "go")).text == "quick"
        await clock.advance(30)
        assert (await rt.wait(first)).status == "done"


async def test_what_was_charged_for_a_failed_attempt_is_in_the_ledger() -> None:
    spent = Usage(input_tokens=70, output_tokens=5, total_tokens=75, cached_tokens=30)
    model = Flaky(busy(usage=spent), clock=VirtualClock())
    result, rt = await run(model, 0.5)
    assert (result.total_tokens, result.usage.unreported_calls, result.turns) == (175, 0, 1)
    assert (result.usage.cached_tokens, rt.ledger().total.total_tokens) == (30, 175)
    (failed,) = [e for e in rt.events() if isinstance(e, ModelFailed)]
    assert failed.usage is not None
    assert failed.usage.total_tokens == 75
    assert rt.remaining(rt.result().handle).max_tokens is None


class HttpError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code = status


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (HttpError(429), 2),
        (HttpError(408), 2),
        (HttpError(500), 2),
        (HttpError(400), 1),
        (HttpError(401), 1),
        (ConnectionResetError("gone"), 2),
        (TimeoutError("late"), 2),
        (ValueError("wrong"), 1),
    ],
    ids=repr,
)
async def test_a_foreign_error_is_judged_by_its_status_or_that_nobody_answered(
    error: Exception, calls: int
) -> None:
    model = Flaky(error, clock=VirtualClock())
    result, _ = await run(model, *[0.5] * (calls - 1))
    assert result.usage.model_calls == len(model.at) == calls


class Breaking:
    """Streams half a reply and breaks, and then the whole."""

    name = "breaking"

    def __init__(self) -> None:
        self.asked = 0

    async def generate(self, request: ModelRequest) -> ModelResponse:
        raise AssertionError("asked for a whole reply")

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        self.asked += 1
        if any(message.role == "tool" for message in request.messages):
            yield ModelDelta(text="paid", finish_reason="stop")
            return
        yield ModelDelta(text="I pay", usage=Usage(input_tokens=10, total_tokens=10))
        yield ModelDelta(tool_call=ToolCallDelta(id="p", name="pay", arguments="{}"))
        if self.asked > 1:
            yield ModelDelta(finish_reason="tool_calls")


async def test_no_tool_of_a_reply_that_broke_off_is_entered_before_it_is_whole() -> None:
    entered: list[str] = []

    @tool
    async def pay() -> str:
        entered.append("paid")
        return "ok"

    model = Breaking()
    async with agent(pay).stream("go", model=model, retry=RetryPolicy(base=0)) as stream:
        events = [event async for event in stream]
        result = await stream.result()
    assert (result.status, entered, model.asked) == ("done", ["paid"], 3)
    said: Sequence[str] = [e.kind for e in events if e.kind in ("text", "model_failed", "retry", "turn")]
    assert said == ["text", "model_failed", "retry", "text", "turn", "text", "turn"]
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "I payI paypaid"


async def test_an_attempt_in_flight_is_ended_by_max_wall() -> None:
    clock = VirtualClock()
    model = MockModel([say("late")], think_time=10.0, clock=clock)
    rt = Runtime(agent(), model=model, clock=clock, budget=Budget(max_wall=2.0))
    async with anyio.create_task_group() as group:
        group.start_soon(rt.run, "go")
        await clock.wait_for_sleepers(2)
        await clock.advance(2.0)
    assert (rt.result().limit, rt.result().usage.model_calls) == (Limit.MAX_WALL, 1)


async def test_the_deadline_a_model_is_told_is_that_of_max_wall() -> None:
    model = MockModel([say("x")], clock=VirtualClock())
    clock = VirtualClock()
    await agent().run("go", model=model, clock=clock, budget=Budget(max_wall=2.0))
    deadline = model.requests[0].deadline
    assert deadline is not None
    assert (deadline - clock.now()).total_seconds() == pytest.approx(2.0)


async def test_attempts_are_counted_anew_after_each_reply() -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    clock = VirtualClock()
    model = Flaky(busy(), busy(), clock=clock)
    model.inner = MockModel([call("look"), say("done")])
    say_all = model.inner.generate

    async def then_fail(request: ModelRequest) -> ModelResponse:
        if len(model.at) == 3:
            model.failures += [busy(), busy()]
        return await say_all(request)

    model.inner.generate = then_fail  # type: ignore[method-assign]  # two more failures after the first reply
    result, rt = await run(model, 0.5, 1.0, 0.5, 1.0, made=agent(look))
    assert (result.status, result.usage.model_calls) == ("done", 6)
    assert [e.number for e in rt.events() if isinstance(e, RetryAwaited)] == [1, 2, 1, 2]
    assert kinds(rt).count("turn") == 2


@pytest.mark.parametrize(
    ("attempt", "hint", "chance", "seconds"),
    [
        (1, None, 0.0, 0.5),
        (1, None, 1.0, 0.375),
        (3, None, 0.0, 2.0),
        (9, None, 0.0, 8.0),
        (10_000, None, 0.0, 8.0),
        (1, 4.0, 1.0, 4.0),
        (5, 4.0, 0.0, 8.0),
        (1, 60.0, 0.0, 60.0),
        (1, 60.001, 0.0, None),
        (1, 0.0, 0.0, 0.5),
    ],
)
def test_waits(attempt: int, hint: float | None, chance: float, seconds: float | None) -> None:
    assert RetryPolicy().wait(attempt, retry_after=hint, chance=chance) == seconds


@pytest.mark.parametrize(
    "field", [{"max_retries": -1}, {"base": -1}, {"cap": float("nan")}, {"jitter": 2}, {"tries": 1}]
)
def test_a_policy_that_is_none_is_refused(field: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RetryPolicy(**field)


async def test_an_option_that_is_no_policy_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"option 'retry' has to be a RetryPolicy .*, not int"):
        await agent().run("go", model=MockModel(["x"]), retry=3)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize(
    "wrong",
    [
        {"usage": Usage(input_tokens=-1)},
        {"usage": "many"},
        {"retry_after": "5"},
        {"type": 7},
        {"detail": b"bytes"},
    ],
    ids=repr,
)
async def test_an_error_a_model_fills_in_with_what_is_none_fails_the_call_alone(
    wrong: dict[str, Any],
) -> None:
    error = busy()
    vars(error).update(wrong)
    result, rt = await run(Flaky(error, clock=VirtualClock()))
    assert (result.status, result.usage.model_calls, result.usage.unreported_calls) == ("error", 1, 1)
    assert result.error is not None
    assert (result.error.source, result.error.retryable) == ("model", False)
    again = await rt.recover()
    assert again.status == "done"


async def test_what_cannot_be_sent_is_no_call() -> None:
    model = Flaky(DefinitionError("a FilePart cannot be sent"), clock=VirtualClock())
    result, rt = await run(model)
    assert result.error is not None
    assert (result.error.type, result.error.source) == ("DefinitionError", "model")
    assert result.error.message == "a FilePart cannot be sent"
    assert (result.usage.model_calls, result.usage.unreported_calls, result.unpriced) == (0, 0, ())
    assert (await rt.recover()).status == "done"


@pytest.mark.parametrize("wait", [float("nan"), float("inf"), -1.0])
async def test_a_wait_that_is_none_is_not_waited_for(wait: float) -> None:
    model = Flaky(busy(retry_after=wait), clock=VirtualClock())
    result, rt = await run(model, 0.5)
    assert (result.status, model.at[1] - model.at[0]) == ("done", 0.5)
    (failed,) = [e for e in rt.events() if isinstance(e, ModelFailed)]
    assert failed.error.retry_after is None


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(("message", "text"), [("Busy 503: no", "Busy 503: no"), ("no", "Busy: no")])
async def test_the_text_of_an_error_says_its_type_once(message: str, text: str) -> None:
    failure = ModelError(message, type="Busy", status_code=503)
    result, _ = await run(Flaky(failure, clock=VirtualClock()))
    assert (result.status, result.text) == ("error", text)
