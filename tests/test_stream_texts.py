"""What models say while they say it: the same text, the same bill, and nothing where nobody reads."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overt import Agent, AssistantMessage, ModelRequest, ModelResponse, RetryPolicy, Status, Usage, tool
from overt.driver.audience import Audience
from overt.driver.streaming import generate
from overt.errors import ModelError
from overt.events import Event, ReasoningDelta, TextDelta, TurnFinished
from overt.message import ModelDelta
from overt.testing import MockModel, call, say
from tests.driver.support import settle, tasks
from tests.stream_kit import all_of, facts, kinds, team

RESPONSE = ModelResponse(
    message=AssistantMessage(text="It is 4 °C in Zürich 🥶.", reasoning="Look it up. 🤔"),
    usage=Usage(input_tokens=11, output_tokens=7, total_tokens=18),
)


ONCE = RetryPolicy(max_retries=0)


def who(model: Any, **options: Any) -> Agent[None, str]:
    return Agent("w", does="works", model=model, **options)


def text_of(events: list[Event], handle: str = "root/w.1") -> str:
    return "".join(e.text for e in events if isinstance(e, TextDelta) and e.handle == handle)


class Streams:
    """A model that streams what it is given, and nothing else."""

    name = "streams"

    def __init__(self, *deltas: ModelDelta | str | BaseException, reasoning: bool = False) -> None:
        self.deltas = [self.piece(d, reasoning=reasoning) if isinstance(d, str) else d for d in deltas]
        self.asked: list[str] = []
        self.closed = 0
        self.between = anyio.lowlevel.checkpoint

    def piece(self, text: str, *, reasoning: bool) -> ModelDelta:
        return ModelDelta(reasoning=text) if reasoning else ModelDelta(text=text)

    async def generate(self, request: ModelRequest) -> ModelResponse:
        self.asked.append("generate")
        return ModelResponse(message=AssistantMessage(text="whole"))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        self.asked.append("stream")
        try:
            for delta in self.deltas:
                await self.between()
                if isinstance(delta, BaseException):
                    raise delta
                yield delta
        finally:
            self.closed += 1


END = ModelDelta(finish_reason="stop")


@pytest.mark.parametrize("chunk", [1, 2, 5, 1000])
async def test_the_bill_and_the_reply_are_those_of_a_run_nobody_reads(chunk: int) -> None:
    model = MockModel([RESPONSE], chunk=chunk)
    plain, _ = await who(model).run("go")
    stream = who(model).stream("go")
    events = await all_of(stream)
    result = await stream.result()
    assert result == plain.model_copy(update={"run_id": result.run_id})
    (turn,) = [e for e in events if isinstance(e, TurnFinished)]
    assert (turn.usage, turn.message.text) == (RESPONSE.usage, RESPONSE.message.text)
    assert text_of(events) == RESPONSE.message.text
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == RESPONSE.message.reasoning
    order = [kind for kind in kinds(events) if kind in ("reasoning", "text", "turn")]
    assert order == sorted(order)
    assert len(model.requests) == 2


async def test_a_model_is_only_asked_to_stream_where_somebody_reads() -> None:
    model = Streams("said", END)
    result, _ = await who(model).run("go")
    assert (result.text, model.asked) == ("whole", ["generate"])
    stream = who(model).stream("go")
    await all_of(stream)
    assert ((await stream.result()).text, model.asked) == ("said", ["generate", "stream"])
    assert not stream.runtime._driver.audience


async def test_a_model_that_cannot_stream_is_read_as_well() -> None:
    class Whole:
        name = "whole"

        async def generate(self, request: ModelRequest) -> ModelResponse:
            return RESPONSE

    events = await all_of(who(Whole()).stream("go"))
    assert text_of(events) == ""
    assert any(isinstance(e, TurnFinished) and e.message.text == RESPONSE.message.text for e in events)


async def test_a_delta_stands_where_it_was_said() -> None:
    model = Streams("one ", "two", END)
    gates = [anyio.Event() for _ in range(3)]
    said = iter(gates)

    async def between() -> None:
        await next(said).wait()

    model.between = between
    async with who(model).stream("go") as stream:
        began = None
        async for event in stream:
            if event.kind == "wake":
                began = event.at
            gates[0].set()
            if event.kind == "text":
                assert began is not None
                assert event.at >= began
                assert event.position == stream.runtime.events()[-1].position
                gates[1 if event.text == "one " else 2].set()
    assert (await stream.result()).text == "one two"


async def test_every_level_of_the_team_is_heard() -> None:
    async def wait_for(request: Any) -> Any:
        from overt import Answer

        return Answer(id=request.id, ok=True)

    stream = team(wait_for=wait_for).stream("go")
    events = await all_of(stream)
    said = {handle: text_of(events, handle) for handle in (h.id for h in stream.runtime.list())}
    assert said == {"root/w.1": "top", "root/w.1/mid.1": "mid", "root/w.1/mid.1/low.1": "low"}
    assert tuple(facts(events)) == stream.runtime.events()


async def test_texts_of_two_calls_are_never_joined_and_kinds_stay_in_order() -> None:
    @tool
    async def t() -> str:
        return "t"

    class Mixed(Streams):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
            async for delta in super().stream(request):
                yield delta

    deltas = [
        ModelDelta(reasoning="a"),
        ModelDelta(reasoning="b"),
        ModelDelta(text="c"),
        ModelDelta(reasoning="d"),
    ]
    model = Mixed(*deltas, ModelDelta(text="e"), ModelDelta(text="f"), ModelDelta(), END)
    async with who(model).stream("go") as stream:
        await stream.__anext__()
        await all_of(stream.runtime.follow())
        events = [event async for event in stream]
    assert [e.text for e in events if isinstance(e, TextDelta | ReasoningDelta)] == ["ab", "c", "d", "ef"]


async def test_a_reply_that_breaks_off_is_a_failed_call_and_its_pieces_stay_said() -> None:
    stream = who(MockModel([say("never to be finished", fail_after=2)], chunk=5)).stream("go", retry=ONCE)
    events = await all_of(stream)
    result = await stream.result()
    assert (result.status, result.text == "never to be", text_of(events)) == (
        Status.ERROR,
        False,
        "never to b",
    )
    assert (result.usage.model_calls, result.usage.unreported_calls, result.usage.turns) == (1, 1, 0)
    for error in (ModelError("no"), ValueError("no")):
        model = Streams("half", error)
        stream = who(model).stream("go")
        assert text_of(await all_of(stream)) == "half"
        found = (await stream.result()).error
        assert found is not None
        assert (found.type, found.source, model.closed) == (type(error).__name__, "model", 1)


async def test_one_that_ends_without_a_reason_has_broken_off() -> None:
    stream = who(Streams("half")).stream("go", retry=ONCE)
    await all_of(stream)
    error = (await stream.result()).error
    assert error is not None
    assert error.type == "StreamIncomplete"


async def test_what_is_no_piece_is_the_models_failure() -> None:
    stream = who(Streams("half", {"text": "wrong"})).stream("go")  # type: ignore[arg-type]
    await all_of(stream)
    error = (await stream.result()).error
    assert error is not None
    assert error.type == "TypeError"


@pytest.mark.parametrize("kind", ["leave", "interrupt", "wall"])
async def test_a_call_that_is_stopped_closes_its_generator(kind: str) -> None:
    """Not the collector of the event loop, at some time, in another task."""
    from overt import Budget
    from overt.testing import VirtualClock

    clock = VirtualClock()
    model = Streams("never ", "to be heard", END)
    begun = iter([anyio.lowlevel.checkpoint, anyio.sleep_forever])
    model.between = lambda: next(begun)()
    before = tasks()
    agent = who(model, budget=Budget(max_wall=10))
    async with agent.stream("go", clock=clock, shutdown=0) as stream:
        async for event in stream:
            if event.kind == "text":
                if kind == "leave":
                    break
                if kind == "interrupt":
                    await stream.runtime.interrupt()
                if kind == "wall":
                    await settle()
                    await clock.advance(11)
    assert model.closed == 1
    assert tasks() == before
    gc.collect()
    status = stream.runtime.result().status
    assert status is (Status.INCOMPLETE if kind == "wall" else Status.INTERRUPTED)
    assert stream.runtime.result().usage.unreported_calls == 1


async def test_a_model_whose_stream_cannot_be_closed_is_fine() -> None:
    class Bare:
        name = "bare"

        async def generate(self, request: ModelRequest) -> ModelResponse:
            raise AssertionError

        def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
            return Pieces()

    class Pieces:
        def __init__(self) -> None:
            self.left = [ModelDelta(text="said"), END]

        def __aiter__(self) -> Pieces:
            return self

        async def __anext__(self) -> ModelDelta:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop(0)

    assert text_of(await all_of(who(Bare()).stream("go"))) == "said"


async def test_a_follower_that_comes_in_the_middle_hears_the_rest() -> None:
    model = Streams("one ", "two", END)
    go_on = anyio.Event()
    begun = iter([anyio.lowlevel.checkpoint, go_on.wait, anyio.lowlevel.checkpoint])
    model.between = lambda: next(begun)()
    seen: list[Event] = []

    async with anyio.create_task_group() as group, who(model).stream("go") as stream:
        async for event in stream:
            if event.kind == "text" and event.text == "one ":
                group.start_soon(lambda: all_of(stream.runtime.follow(), into=seen))
                await settle()
                go_on.set()
    assert text_of(seen) == "two"
    assert tuple(facts(seen)) == stream.runtime.events()


# ------------------------------------------------------------------ characters cut in two


def halves(text: str) -> list[str]:
    """A text as UTF-16 has it: each half of a pair on its own."""
    units = text.encode("utf-16-le", "surrogatepass")
    return [units[i : i + 2].decode("utf-16-le", "surrogatepass") for i in range(0, len(units), 2)]


class Hears:
    def __init__(self) -> None:
        self.said = {True: "", False: ""}

    def piece(self, handle: str, call: object, *, reasoning: bool, text: str) -> None:
        assert text
        text.encode()
        self.said[reasoning] += text


class FakeDriver:
    def __init__(self) -> None:
        self.audience = Audience()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(alphabet="aé🥶\ud83e\udd76\x00", min_size=0, max_size=4), max_size=6),
    st.booleans(),
)
def test_pieces_are_the_reply_however_it_is_cut(texts: list[str], reasoning: bool) -> None:
    async def main() -> None:
        driver, hears = FakeDriver(), Hears()
        driver.audience.add(hears)
        model = Streams(*texts, END, reasoning=reasoning)
        response = await generate(driver, "h", model, ModelRequest(messages=()))  # type: ignore[arg-type]
        message = response.message
        assert hears.said[reasoning] == ((message.reasoning or "") if reasoning else message.text)
        assert hears.said[not reasoning] == ""

    anyio.run(main)


async def test_half_a_character_waits_for_the_other_half() -> None:
    pieces = halves("a🥶b")
    assert len(pieces) == 4
    events = await all_of(who(Streams(*pieces, END)).stream("go"))
    assert text_of(events) == "a🥶b"
    events = await all_of(who(Streams("a", "\ud83e", END)).stream("go"))
    assert text_of(events) == "a\ufffd"


async def test_calls_are_not_text() -> None:
    model = MockModel([[say("first "), call("missing", text="secret")], say("then")], chunk=2)
    stream = who(model).stream("go")
    assert text_of(await all_of(stream)) == "first then"
