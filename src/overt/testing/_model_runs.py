"""Checks of models: whole runs over them, which have to come out as on a scripted model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import anyio
import anyio.lowlevel
from pydantic import BaseModel

from overt.agent import Agent
from overt.context import ToolContext
from overt.journal.memory import MemoryStore
from overt.message import AssistantMessage, Model, ToolMessage
from overt.policy import ResumePolicy, RetryPolicy
from overt.request import Answer
from overt.result import Status, TaskResult
from overt.runtime import Runtime
from overt.testing._model_cases import MODEL_CASES
from overt.testing._model_checks import ModelBench, ModelCheck, Needs, expect, leaves, truth, unsent
from overt.testing._model_mock import mock_of
from overt.tool import ToolResult, pending, tool

__all__ = ("RUN_CHECKS",)

PROMPT = "Where is it?"
PATIENCE = 30.0
"""Seconds a run may take that goes nowhere, such as one whose tools wait for each other in vain."""


class City(BaseModel):
    """Typed output of a run."""

    city: str


@dataclass(slots=True)
class _Scene:
    """One run: its agent over a model, and what its tools saw."""

    model: Model
    asks: bool = False
    together: int = 1
    """How many calls of `look` have to be there before any of them returns."""
    output_type: type[Any] = str
    entered: list[str] = field(default_factory=list)
    store: MemoryStore = field(default_factory=MemoryStore)

    def agent(self) -> Agent[None, Any]:
        here = anyio.Event()

        @tool
        async def look(ctx: ToolContext, at: str) -> ToolResult:
            """Look at a square."""
            self.entered.append(at)
            if self.asks and ctx.answer is None:
                return pending(kind="approval", prompt=f"look at {at}?")
            if len(self.entered) >= self.together:
                here.set()
            await here.wait()
            return ToolResult(f"kit-saw-{at}")

        return Agent(
            "scout",
            does="Looks.",
            soul="Look twice.",
            tools=[look],
            model=self.model,
            output_type=self.output_type,
        )


class _More(Protocol):
    def __call__(self, bench: ModelBench, scene: _Scene, /, *, runtime: Runtime[Any]) -> None: ...


_Play = Callable[[_Scene], Awaitable[tuple[TaskResult[Any], Runtime[Any]]]]


async def _run(scene: _Scene) -> tuple[TaskResult[Any], Runtime[Any]]:
    return await scene.agent().run(PROMPT, store=scene.store)


async def _run_streamed(scene: _Scene) -> tuple[TaskResult[Any], Runtime[Any]]:
    async with scene.agent().stream(PROMPT, store=scene.store) as stream:
        said = [event.text async for event in stream if event.kind == "text"]
        result, runtime = await stream.result(), stream.runtime
    truth(result.text in "".join(said), "the pieces that were streamed are not the text of the result")
    return result, runtime


def _approved(policy: ResumePolicy, *, elsewhere: bool = False) -> _Play:
    """Return what runs until a tool asks, and answers: in the same runtime, or in another that reads the store."""

    async def play(scene: _Scene) -> tuple[TaskResult[Any], Runtime[Any]]:
        result, runtime = await scene.agent().run(PROMPT, store=scene.store, resume_policy=policy)
        expect((result.status, len(result.pendings)), (Status.PENDING, 1), "after the tool has asked")
        truth(result.pending, "nothing is pending")
        request = result.pendings[0]
        if elsewhere:
            runtime = await Runtime.open(scene.agent(), result.run_id, store=scene.store)
        return await runtime.resume(Answer(id=request.id, ok=True)), runtime

    return play


async def _fails_and_recovers(scene: _Scene) -> tuple[TaskResult[Any], Runtime[Any]]:
    result, runtime = await scene.agent().run(PROMPT, store=scene.store)
    expect((result.status, result.usage.unreported_calls), (Status.ERROR, 1), "after the provider has failed")
    expect(None if result.error is None else result.error.source, "model", "source of the error")
    return await runtime.recover(), runtime


class _Skipping:
    """A clock on which a wait for a provider takes no time, and whatever is longer never ends."""

    def __init__(self) -> None:
        self._passed = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        return self._passed

    async def sleep(self, seconds: float) -> None:
        if seconds > 8:
            await anyio.sleep_forever()
        self._passed += max(seconds, 0.0)
        await anyio.lowlevel.checkpoint()


async def _waits(scene: _Scene) -> tuple[TaskResult[Any], Runtime[Any]]:
    retry = RetryPolicy(max_retries=1, base=0, jitter=0)
    return await scene.agent().run(PROMPT, store=scene.store, clock=_Skipping(), retry=retry)


def _outcome(result: TaskResult[Any], runtime: Runtime[Any]) -> dict[str, object]:
    """What has to be the same on every model."""
    texts = result.status is Status.DONE
    ledger = runtime.ledger()
    return {
        "status": result.status.value,
        "text": result.text if texts else "",
        "output": result.output,
        "error": None if result.error is None else (result.error.type, result.error.source),
        "usage": result.usage,
        "own usage": result.own_usage,
        "turns": result.turns,
        "waits": [event.seconds for event in runtime.events() if event.kind == "retry"],
        "ledger": [(depth, one.handle, one.own, one.total) for depth, one in ledger.walk()],
        "tool messages": [
            (message.call_id, message.name, message.is_error)
            for message in runtime.transcript(result.handle)
            if isinstance(message, ToolMessage)
        ],
    }


def _check(
    name: str,
    says: str,
    *cases: str,
    play: _Play = _run,
    more: _More | None = None,
    needs: Needs | None = None,
    **options: Any,
) -> ModelCheck:
    async def body(bench: ModelBench) -> None:
        answers = [MODEL_CASES[case] for case in cases]
        scene = _Scene(bench.model(*answers), **options)
        with anyio.fail_after(PATIENCE):
            result, runtime = await play(scene)
        native = bool(getattr(scene.model, "structured_output", False))
        mocked = _Scene(mock_of(answers, structured_output=native), **options)
        expected = _outcome(*await play(mocked))
        for part, found in _outcome(result, runtime).items():
            expect(found, expected[part], f"{part}, compared with a scripted model")
        expect(sorted(scene.entered), sorted(mocked.entered), "calls that entered the tool")
        expect(len(bench.sent()), len(cases), "requests")
        if more is not None:
            more(bench, scene, runtime=runtime)

    return ModelCheck(body, name=name, says=says, cases=tuple(dict.fromkeys(cases)), needs=needs)


def _texts(bench: ModelBench, number: int) -> list[str]:
    return [leaf for _, leaf in leaves(bench.sent()[number]) if isinstance(leaf, str)]


def _sent_results(bench: ModelBench, _: object, /, *, runtime: object) -> None:
    texts = _texts(bench, 1)
    found = [text for said in texts for text in ("kit-saw-A1", "kit-saw-B2") if text in said]
    expect(found, ["kit-saw-A1", "kit-saw-B2"], "results in the next request")


def _entered(*squares: str) -> _More:
    def more(_: object, scene: _Scene, /, *, runtime: object) -> None:
        expect(scene.entered, [*squares], "calls that entered the tool")

    return more


def _told_what_is_wrong(bench: ModelBench, scene: _Scene, /, *, runtime: object) -> None:
    expect(scene.entered, [], "calls that entered the tool")
    truth(any("arguments" in text for text in _texts(bench, 1)), "the model is not told what is wrong")


def _is_typed(_: object, __: object, /, *, runtime: Runtime[Any]) -> None:
    expect(runtime.result().output, City(city="Oslo"), "output")


def _reasoning_went_back(bench: ModelBench, _: object, /, *, runtime: Runtime[Any]) -> None:
    said = next(m for m in runtime.transcript("root/scout.1") if isinstance(m, AssistantMessage))
    truth(said.opaque, "the opaque parts of the reply are lost")
    expect(unsent(said.opaque or {}, bench.sent()[1]), [], "opaque parts that are not sent back as they came")


RUN_CHECKS = (
    _check(
        "runs_tools_side_by_side",
        "a run: parallel tools, results sent back in order, the same ledger as on the mock",
        "calls",
        "text",
        together=2,
        more=_sent_results,
    ),
    _check(
        "runs_streamed",
        "the same run as a stream",
        "calls",
        "text",
        play=_run_streamed,
        together=2,
        more=_sent_results,
        needs="stream",
    ),
    _check(
        "gives_typed_output",
        "a run: typed output by a schema",
        "structured",
        output_type=City,
        more=_is_typed,
        needs="schema",
    ),
    _check(
        "gives_typed_output_by_a_call",
        "a run: typed output by a call",
        "final_call",
        output_type=City,
        more=_is_typed,
        needs="call",
    ),
    _check(
        "goes_on_after_approval",
        "a run that parks for an approval and goes on",
        "call",
        "text",
        play=_approved(ResumePolicy.CONTINUE),
        asks=True,
        more=_entered("A1", "A1"),
    ),
    _check(
        "replays_after_approval",
        "a run that parks for an approval and is replayed",
        "call",
        "call",
        "text",
        play=_approved(ResumePolicy.REWIND),
        asks=True,
        more=_entered("A1", "A1"),
    ),
    _check(
        "goes_on_elsewhere_with_reasoning",
        "a run that parks, is read from its store and sends the reasoning back",
        "reasoning_call",
        "text",
        play=_approved(ResumePolicy.CONTINUE, elsewhere=True),
        asks=True,
        more=_reasoning_went_back,
    ),
    _check(
        "tells_the_model_what_is_wrong",
        "a run: bad arguments enter no tool, and the model hears of it",
        "bad_arguments",
        "text",
        more=_told_what_is_wrong,
    ),
    _check(
        "keeps_calls_of_one_id_apart",
        "a run: two calls under one id are two calls with two results",
        "repeated_id",
        "text",
        more=_entered("A1", "B2"),
    ),
    _check(
        "enters_no_call_that_was_cut_off",
        "a run: a call that was cut off enters no tool",
        "truncated_call",
        more=_entered(),
    ),
    _check("ends_on_a_refusal", "a run that ends with a refusal says so", "refusal"),
    _check("ends_on_a_filter", "a run the content filter ends says so", "filtered"),
    _check("ends_on_an_empty_reply", "a run that ends with an empty reply says so", "empty"),
    _check(
        "recovers_from_a_failure",
        "a run whose provider fails is an error, and recover() finishes it",
        "web_page",
        "text",
        play=_fails_and_recovers,
    ),
    _check(
        "waits_as_long_as_it_is_told",
        "a run waits as long as the provider asks, and makes the call again",
        "rate_limited",
        "text",
        play=_waits,
    ),
)
