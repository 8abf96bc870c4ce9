"""What a model said once is said again: exactly that, to exactly that question, and never half of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from pydantic import BaseModel
from tests.testing.plain import PlainBench, PlainModel

from overt import (
    Agent,
    AssistantMessage,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    SystemMessage,
    ToolCall,
    ToolCallDelta,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
    tool,
)
from overt.errors import DefinitionError, ModelError
from overt.models import register
from overt.testing import (
    MODEL_CHECKS,
    Cassette,
    CassetteError,
    Gate,
    MockModel,
    ModelCase,
    call,
    say,
)

pytestmark = pytest.mark.anyio
ONE_LOOP = pytest.mark.parametrize("anyio_backend", ["asyncio"])


@pytest.fixture(autouse=True)
def _at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


@tool
async def look(at: str) -> str:
    """Look at a square."""
    return f"{at}: rain"


def scout(model: Any = None, **options: Any) -> Agent[None, str]:
    return Agent("scout", does="Looks.", soul="Look twice.", tools=[look], model=model, **options)


def script() -> MockModel:
    return MockModel([[call("look", at="A1"), call("look", at="B2")], say("It rains, wörld 🎉.", tokens=70)])


def ask(*texts: str, **more: Any) -> ModelRequest:
    return ModelRequest(
        messages=tuple(UserMessage(text=text) for text in texts or ("go",)), model="mock", **more
    )


async def pieces(model: Cassette, request: ModelRequest) -> list[ModelDelta]:
    return [delta async for delta in model.stream(request)]


def names(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]


async def read_on(model: Cassette, request: ModelRequest, said: list[str]) -> None:
    async for delta in model.stream(request):
        said += [delta.text] if delta.text else []


# ------------------------------------------------------------------ record, replay


@pytest.mark.parametrize("streams", [False, True])
async def test_a_run_is_recorded_once_and_replayed(tmp_path: Path, streams: bool) -> None:
    path = tmp_path / "folder" / "run.jsonl"

    async def run(model: Cassette) -> tuple[Any, list[str]]:
        if not streams:
            result, _ = await scout().run("Where?", model=model)
            return result, []
        async with scout().stream("Where?", model=model) as stream:
            said = [event.text async for event in stream if event.kind == "text"]
            return await stream.result(), said

    real = script()
    with Cassette(path, model=real) as recording:
        recorded, said = await run(recording)
    with Cassette(path, model=real) as replay:
        replayed, again = await run(replay)
    assert (recording.mode, replay.mode) == ("record", "replay")
    assert len(real.requests) == 2
    assert recorded.status == "done"
    same = {"run_id": ""}
    assert replayed.model_copy(update=same) == recorded.model_copy(update=same)
    assert "".join(again) == "".join(said)
    with Cassette(path) as replay:  # the model need not be there
        assert (await run(replay))[0].total_tokens == 170


async def test_the_file_is_for_people(tmp_path: Path) -> None:
    """Also the digest's stability: nothing in it depends on the process."""
    path = tmp_path / "run.jsonl"
    with Cassette(path, model=script()) as recording:
        await scout().run("Where?", model=recording)
    usage = '{"input_tokens": 80, "output_tokens": 20, "total_tokens": 100}'
    last = '{"input_tokens": 56, "output_tokens": 14, "total_tokens": 70}'
    first, second = (
        f'{{"id": "c{n}", "name": "look", "arguments": {{"at": "{at}"}}}}' for n, at in ((1, "A1"), (2, "B2"))
    )
    theirs = f"{first}, {second}".replace('"c', '"call_')
    schema = (
        '{"additionalProperties": false, "properties": {"at": {"type": "string"}}, "required": ["at"], '
        '"type": "object"}'
    )
    asks = f'{{"message": {{"tool_calls": [{theirs}]}}, "usage": {usage}, "finish_reason": "tool_calls"'
    says = f'{{"message": {{"text": "It rains, wörld 🎉."}}, "usage": {last}'
    assert path.read_text("utf-8").splitlines() == [
        '{"cassette": 1, "model": "mock", "provider": "", "structured_output": false}',
        f'{{"tool": "look", "name": "look", "description": "Look at a square.", "input_schema": {schema}}}',
        '{"call": 1, "agent": "scout", "tools": ["look"], "messages": 2}',
        '{"message": {"role": "system", "text": "Look twice."}}',
        '{"message": {"role": "user", "text": "Where?"}}',
        f'{{"reply": {asks}, "raw_finish_reason": "tool_calls", "model": "mock"}}}}',
        '{"call": 2, "agent": "scout", "tools": ["look"], "messages": 5, "follows": 1}',
        f'{{"message": {{"role": "assistant", "text": "", "tool_calls": [{first}, {second}]}}}}',
        '{"message": {"role": "tool", "text": "A1: rain", "call_id": "c1", "name": "look"}}',
        '{"message": {"role": "tool", "text": "B2: rain", "call_id": "c2", "name": "look"}}',
        f'{{"reply": {says}, "raw_finish_reason": "stop", "model": "mock"}}}}',
        '{"calls": 2}',
    ]
    assert names(tmp_path) == ["run.jsonl"]


class Real:
    """A model with all that a recording has to keep."""

    name = "real-1"
    provider = "kit"
    structured_output = True

    def __init__(self) -> None:
        self.closed = 0

    async def generate(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse(
            message=AssistantMessage(
                text="yes",
                tool_calls=(
                    ToolCall(id="", name="look"),
                    ToolCall(id="x", name="look", arguments={"at": 1.5}),
                ),
                reasoning="",
                opaque={"kit:host": {"signature": "abc=", "parts": [1, None]}},
            ),
            usage=None,
            finish_reason="unknown",
            raw_finish_reason="odd",
            model="real-1-2026",
            invalid_arguments={0: '{"at": '},
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        try:
            for delta in DELTAS:
                yield delta
        finally:
            self.closed += 1


DELTAS = [
    ModelDelta(),
    ModelDelta(model="real-1-2026", usage=Usage(input_tokens=9)),
    ModelDelta(reasoning=""),
    ModelDelta(text="half \ud83d"),
    ModelDelta(text="\ude00", tool_call=ToolCallDelta(index=1, id="x", name="look")),
    ModelDelta(tool_call=ToolCallDelta(index=1, arguments='{"at"')),
    ModelDelta(tool_call=ToolCallDelta(index=0)),
    ModelDelta(opaque={"kit:host": {"signature": "abc="}}),
    ModelDelta(
        finish_reason="tool_calls", raw_finish_reason="odd", usage=Usage(input_tokens=9, output_tokens=2)
    ),
]


async def test_all_of_a_reply_comes_back(tmp_path: Path) -> None:
    path, real = tmp_path / "c.jsonl", Real()
    with Cassette(path, model=real) as recording:
        whole = await recording.generate(ask("one"))
        assert await pieces(recording, ask("two")) == DELTAS
    with Cassette(path) as replay:
        assert (replay.name, replay.provider, replay.structured_output) == ("real-1", "kit", True)
        assert await replay.generate(ask("one")) == whole
        assert await pieces(replay, ask("two")) == DELTAS


async def test_whole_and_streamed_replies_stand_for_each_other(tmp_path: Path) -> None:
    path, real = tmp_path / "c.jsonl", MockModel([say("Hello, wörld 🎉, and good night.")], chunk=3)
    with Cassette(path, model=real) as recording:
        whole = await recording.generate(ask("one"))
        said = await pieces(recording, ask("two"))
    with Cassette(path) as replay:
        cut = await pieces(replay, ask("one"))
        assert "".join(delta.text or "" for delta in cut) == whole.message.text
        assert len(cut) > 2
        assert (await replay.generate(ask("two"))).message.text == "".join(delta.text or "" for delta in said)


@ONE_LOOP
async def test_a_model_that_does_not_stream_is_recorded_whole(tmp_path: Path) -> None:
    class Whole:
        name = "whole"

        async def generate(self, request: ModelRequest) -> ModelResponse:
            return ModelResponse(message=AssistantMessage(text="yes"))

    with Cassette(tmp_path / "c.jsonl", model=Whole()) as recording:
        assert "".join([delta.text or "" for delta in await pieces(recording, ask())]) == "yes"
    with Cassette(tmp_path / "c.jsonl") as replay:
        assert (await replay.generate(ask())).message.text == "yes"


class Twice:
    """A model that is recorded and then replayed, at every call."""

    structured_output = True

    def __init__(self, inner: PlainModel, folder: Path) -> None:
        self.inner = inner
        self.folder = folder

    @property
    def name(self) -> str:
        return "plain"

    def new_file(self) -> Path:
        return self.folder / f"{len(names(self.folder))}.jsonl"

    async def generate(self, request: ModelRequest) -> ModelResponse:
        path = self.new_file()
        with Cassette(path, model=self.inner) as recording, suppress(ModelError):
            await recording.generate(request)
        with Cassette(path) as replay:
            return await replay.generate(request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        path = self.new_file()
        with Cassette(path, model=self.inner) as recording, suppress(ModelError):
            await pieces(recording, request)
        with Cassette(path) as replay:
            async for delta in replay.stream(request):
                yield delta


class TwiceBench(PlainBench):
    folder: Path

    def model(self, *cases: ModelCase, pieces: int | None = None) -> Any:
        return Twice(super().model(*cases, pieces=pieces), self.folder)


@ONE_LOOP
async def test_a_replay_does_what_is_asked_of_every_model(tmp_path: Path) -> None:
    TwiceBench.folder = tmp_path
    for check in MODEL_CHECKS:
        if check.why_not(TwiceBench()) is None and not check.name.startswith(("sends_", "offers_")):
            await check(TwiceBench)
    assert len(names(tmp_path)) > 100


# ------------------------------------------------------------------ which reply


async def test_children_side_by_side_get_their_own(tmp_path: Path) -> None:
    """Recorded in one order, replayed in another."""
    path = tmp_path / "c.jsonl"
    order: list[str] = []

    def family(model: Any, first: str) -> Agent[None, str]:
        ready = anyio.Event()

        @tool
        async def fetch(what: str) -> str:
            """Fetch."""
            if what == first:
                ready.set()
            else:
                await ready.wait()
                await anyio.lowlevel.checkpoint()
            order.append(what)
            return f"{what}!"

        kid = Agent("kid", does="Fetches.", tools=[fetch], model=model)
        return Agent("mother", does="Asks.", team=[kid], model=model)

    def answer(request: ModelRequest) -> Any:
        said = request.messages[-1].text
        if request.agent == "kid":
            return call("fetch", what=said) if said in ("salt", "milk") else say(f"got {said}")
        if said == "Cook.":
            return [call("task", agent="kid", prompt=what) for what in ("salt", "milk")]
        return say(" and ".join(message.text for message in request.messages if message.role == "tool"))

    with Cassette(path, model=MockModel(answer)) as recording:
        recorded, _ = await family(recording, "salt").run("Cook.")
    with Cassette(path) as replay:
        replayed, _ = await family(replay, "milk").run("Cook.")
    assert order == ["salt", "milk", "milk", "salt"]
    assert recorded.text == replayed.text == "got salt! and got milk!"
    assert replayed.usage == recorded.usage


async def test_equal_requests_get_their_replies_in_order_and_each_once(tmp_path: Path) -> None:
    path, numbers = tmp_path / "c.jsonl", iter("123")
    with Cassette(path, model=MockModel(lambda _: say(next(numbers)))) as recording:
        for _ in range(3):
            await recording.generate(ask())
    replay = Cassette(path)
    assert [(await replay.generate(ask())).message.text for _ in range(2)] == ["1", "2"]
    assert list(replay.unused) == ["call 3 (1 message, the last 'go')"]
    await replay.generate(ask())
    assert list(replay.unused) == []
    with pytest.raises(ModelError, match=r"recorded 3 times, last as call 3, and has been used") as caught:
        await replay.generate(ask())
    assert (caught.value.type, caught.value.retryable) == ("NotRecorded", False)
    assert replay.missed == (str(caught.value),)


@ONE_LOOP
async def test_the_first_asked_is_the_first_recorded_whichever_ends_first(tmp_path: Path) -> None:
    path, gate = tmp_path / "c.jsonl", Gate()
    number = 0

    async def answer(_: ModelRequest) -> Any:
        nonlocal number
        number += 1
        mine = number
        if mine == 1:
            await gate.wait()
        return say(f"{mine}")

    with Cassette(path, model=MockModel(answer)) as recording:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(recording.generate, ask())
            await gate.reached()
            await recording.generate(ask())
            gate.release()
    replay = Cassette(path)
    assert [(await replay.generate(ask())).message.text for _ in range(2)] == ["1", "2"]


def turn(id: str, *, result: str = "sun", **more: Any) -> ModelRequest:
    messages = (
        SystemMessage(text="Be brief."),
        UserMessage(text="go"),
        AssistantMessage(text="", tool_calls=(ToolCall(id=id, name="look", arguments={"at": "A1"}),)),
        ToolMessage(text=result, call_id=id, name="look", metadata={"seconds": 1.5}),
    )
    spec = ToolSpec(name="look", description="Look.", input_schema={"type": "object"})
    return ModelRequest(messages=messages, tools=(spec,), model="mock", **more)


@ONE_LOOP
async def test_what_the_model_cannot_see_is_not_compared(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with Cassette(path, model=MockModel([say("1"), say("2")])) as recording:
        await recording.generate(turn("c1", agent="a", handle="root/a.1", max_output_tokens=5))
    with Cassette(path) as replay:
        other = turn("other-id", agent="b", handle="root/b.1", max_output_tokens=900)
        object.__setattr__(other.messages[-1], "metadata", {"seconds": 2.5})
        assert (await replay.generate(other)).message.text == "2"


LOOK = ToolSpec(name="look", description="Look.", input_schema={"type": "object"})


@ONE_LOOP
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (turn("c1", result="rain"), r"messages\[3\]\.text \(tool\): recorded 'sun', asked 'rain'\."),
        (
            turn("c1", settings=ModelSettings(temperature=0.5)),
            r"settings: recorded 'nothing', asked '\{\"temperature\": 0.5\}'\.",
        ),
        (turn("c1", output_schema={"type": "object"}), r"output_schema: recorded 'nothing', asked"),
        (
            ModelRequest(messages=turn("c1").messages, model="mock"),
            r"tools: recorded 'look', asked ''\.",
        ),
        (
            ModelRequest(
                messages=turn("c1").messages,
                model="mock",
                tools=(ToolSpec(name="look", description="Look up.", input_schema={"type": "object"}),),
            ),
            r"tool 'look', description: recorded 'Look\.', asked 'Look up\.'",
        ),
        (
            ModelRequest(messages=turn("c1").messages[:2], model="mock", tools=(LOOK,)),
            r"the number of messages: recorded 4, asked 2",
        ),
        (
            ModelRequest(messages=turn("c1").messages, model="other", tools=(LOOK,)),
            r"model: recorded 'nothing', asked 'other'",
        ),
    ],
)
async def test_a_request_that_was_not_recorded_says_what_differs(
    tmp_path: Path, asked: ModelRequest, told: str
) -> None:
    path = tmp_path / "c.jsonl"
    with Cassette(path, model=MockModel(lambda _: say("1"))) as recording:
        await recording.generate(ask("something else altogether"))
        await recording.generate(turn("c1"))
    replay = Cassette(path)
    with pytest.raises(ModelError, match=rf"Nearest is call 2 .*; it differs in {told}"):
        await replay.generate(asked)
    assert len(replay.unused) == 2


@ONE_LOOP
async def test_of_two_that_are_as_near_the_unused_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with Cassette(path, model=MockModel(lambda _: say("1"))) as recording:
        await recording.generate(ask("one"))
        await recording.generate(ask("two"))
    replay = Cassette(path)
    await replay.generate(ask("one"))
    with pytest.raises(ModelError, match="Nearest is call 2"):
        await replay.generate(ask("three"))


@ONE_LOOP
async def test_a_long_text_is_shown_where_it_differs(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with Cassette(path, model=MockModel(lambda _: say("1"))) as recording:
        await recording.generate(ask("a" * 500 + "X" + "b" * 500))
    with pytest.raises(ModelError) as caught:
        await Cassette(path).generate(ask("a" * 500 + "Y" + "b" * 500))
    assert f"recorded '…{'a' * 30}X{'b' * 29}…', asked '…{'a' * 30}Y{'b' * 29}…'" in str(caught.value)


# ------------------------------------------------------------------ the block


async def run_elsewhere(model: Cassette, *, fails: bool = False) -> None:
    result, _ = await scout().run("Elsewhere?", model=model)
    assert (result.status, result.error and result.error.type) == ("error", "NotRecorded")
    if fails:
        raise ZeroDivisionError


async def ask_and_fail(model: Cassette, *texts: str) -> None:
    await model.generate(ask(*texts))
    raise ZeroDivisionError


async def test_a_block_ends_with_what_was_missed_or_left_over(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with Cassette(path, model=script()) as recording:
        await scout().run("Where?", model=recording)
    with pytest.raises(AssertionError, match=r"messages\[1\]\.text"), Cassette(path) as replay:
        await run_elsewhere(replay)
    with (
        pytest.raises(AssertionError, match=r"nobody has asked for:\n  call 1 .*\n  call 2 "),
        Cassette(path),
    ):
        pass
    with Cassette(path, allow_unused=True):
        pass
    with pytest.raises(ZeroDivisionError) as caught, Cassette(path) as replay:
        await run_elsewhere(replay, fails=True)
    assert ["has no reply for" in note for note in caught.value.__notes__] == [True]


@ONE_LOOP
async def test_a_block_that_raises_records_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with pytest.raises(ZeroDivisionError), Cassette(path, model=script()) as recording:
        await ask_and_fail(recording)
    assert names(tmp_path) == []
    with Cassette(path, model=script()) as recording:
        await recording.generate(ask())
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError), Cassette(path, model=script(), mode="record") as recording:
        await ask_and_fail(recording, "other")
    assert path.read_bytes() == before
    with Cassette(path, model=script(), mode="record") as recording:
        await recording.generate(ask("other"))
    assert path.read_bytes() != before
    assert names(tmp_path) == ["c.jsonl"]


@ONE_LOOP
async def test_a_file_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.jsonl"
    with Cassette(path, model=script()) as recording:
        await recording.generate(ask())
    before = path.read_bytes()

    def full(self: Path, target: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"), Cassette(path, model=script(), mode="record") as recording:
        await recording.generate(ask("other"))
    assert path.read_bytes() == before
    assert names(tmp_path) == ["c.jsonl"]


async def test_a_call_that_was_cut_off_leaves_nothing(tmp_path: Path) -> None:
    path, real, gate = tmp_path / "c.jsonl", Real(), Gate()

    async def answer(request: ModelRequest) -> Any:
        if request.messages[-1].text == "hang":
            await gate.wait()
        if request.messages[-1].text == "break":
            raise KeyError("a bug")
        return say("1")

    with Cassette(path, model=MockModel(answer)) as recording:
        await recording.generate(ask("kept"))
        with pytest.raises(KeyError):
            await recording.generate(ask("break"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(recording.generate, ask("hang"))
            await gate.reached()
            tasks.cancel_scope.cancel()
    with Cassette(path) as replay:
        await replay.generate(ask("kept"))
    with Cassette(tmp_path / "s.jsonl", model=real) as recording:
        await pieces(recording, ask("kept"))
        left = recording.stream(ask("left"))
        await anext(left)
        await left.aclose()  # type: ignore[attr-defined]  # an async generator
    assert real.closed == 2
    with Cassette(tmp_path / "s.jsonl") as replay:
        await pieces(replay, ask("kept"))


@ONE_LOOP
async def test_nothing_is_recorded_outside_of_the_block(tmp_path: Path) -> None:
    recording = Cassette(tmp_path / "c.jsonl", model=script())
    with pytest.raises(CassetteError, match="inside its block"):
        await recording.generate(ask())
    with pytest.raises(CassetteError, match="the model was not asked"), recording:
        pass
    assert names(tmp_path) == []


# ------------------------------------------------------------------ errors, secrets, host data


async def test_errors_are_recorded_as_values(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    error = ModelError(
        "RateLimitError 429: slow down, sk-live-0123456789abcdef",
        type="RateLimitError",
        status_code=429,
        retryable=True,
        detail='{"key": "sk-live-0123456789abcdef", "why": "busy"}',
        retry_after=7.5,
        request_id="req_1",
        usage=Usage(input_tokens=5, total_tokens=5),
    )

    def answer(request: ModelRequest) -> Any:
        return [say("Hello, you out there", fail_after=2)] if request.messages[-1].text == "break" else error

    with Cassette(path, model=MockModel(answer)) as recording:
        with pytest.raises(ModelError):
            await recording.generate(ask())
        with pytest.raises(ModelError, match="broke off"):
            await pieces(recording, ask("break"))
    with Cassette(path) as replay:
        with pytest.raises(ModelError) as caught:
            await replay.generate(ask())
        said: list[str] = []
        with pytest.raises(ModelError, match="broke off") as broken:
            await read_on(replay, ask("break"), said)
    found = caught.value
    assert (found.type, found.status_code, found.retryable, found.retry_after) == (
        "RateLimitError",
        429,
        True,
        7.5,
    )
    assert (found.request_id, found.usage) == ("req_1", error.usage)
    assert str(found) == "RateLimitError 429: slow down, «redacted»"
    assert found.detail == '{"key":"«redacted»","why":"busy"}'
    assert said == ["Hello, y", "ou out t"]
    assert broken.value.retryable
    assert b"sk-live" not in path.read_bytes()


def hide(text: str) -> str:
    return text.replace("Alice", "«name»").replace("2026-05-01", "«date»")


async def test_data_of_the_host_stays_out_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"

    def answer(request: ModelRequest) -> Any:
        if request.messages[-1].role == "tool":
            return say("Alice sees rain.")
        return [say("I ask Alice."), call("look", at="Alice's")]

    async def run(model: Cassette, day: str, who: str) -> Any:
        async with scout().stream(f"Today is {day}. Who is {who}?", model=model) as stream:
            async for _ in stream:
                pass
            return await stream.result()

    # Pieces of three characters cut every name.
    with Cassette(path, model=MockModel(answer, chunk=3), redact=hide) as recording:
        assert (await run(recording, "2026-05-01", "Alice")).text == "Alice sees rain."
    text = path.read_text("utf-8")
    assert "Alice" not in text
    assert "2026-05-01" not in text
    assert "Ali" not in "".join(
        json.loads(line)["delta"].get("text", "") for line in text.split("\n") if 'delta":' in line
    )
    with Cassette(path, redact=hide) as replay:
        assert (await run(replay, "2026-05-01", "Alice")).text == "«name» sees rain."
    with Cassette(path, redact=hide) as replay:
        assert (await run(replay, "«date»", "Alice")).status == "done"


@ONE_LOOP
async def test_a_stream_that_breaks_is_redacted_too(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    real = MockModel([say("I know Alice well enough.", fail_after=5)], chunk=3)
    with Cassette(path, model=real, redact=hide) as recording, pytest.raises(ModelError):
        await pieces(recording, ask())
    assert "«name»" in path.read_text("utf-8")
    said: list[str] = []
    with pytest.raises(ModelError, match="broke off"):
        await read_on(Cassette(path, redact=hide), ask(), said)
    assert "".join(said) == "I know «name» we"


@ONE_LOOP
async def test_a_stream_without_an_end_has_none_in_the_replay(tmp_path: Path) -> None:
    class Endless(Real):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
            yield ModelDelta(text="I know Alice")

    with Cassette(tmp_path / "c.jsonl", model=Endless(), redact=hide) as recording:
        await pieces(recording, ask())
    with pytest.raises(ModelError, match="without a finish reason"):
        await Cassette(tmp_path / "c.jsonl", redact=hide).generate(ask())


@ONE_LOOP
async def test_a_hook_that_does_not_leave_its_own_work_alone_is_refused(tmp_path: Path) -> None:
    recording = Cassette(tmp_path / "c.jsonl", model=script(), redact=lambda text: f"{text}!")
    with pytest.raises(DefinitionError, match="leave what it has returned alone"), recording:
        await recording.generate(ask())


@ONE_LOOP
async def test_keys_in_settings_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    settings = ModelSettings(temperature=0.5, extra={"api_key": "sk-live-0123456789abcdef", "seed": 7})
    with Cassette(path, model=script()) as recording:
        await recording.generate(ask(settings=settings))
    assert '"extra": {"api_key": "«redacted»", "seed": 7}' in path.read_text("utf-8")
    assert b"sk-live" not in path.read_bytes()
    with Cassette(path) as replay:
        await replay.generate(ask(settings=settings))
    large = ModelSettings(extra={"api_key": "sk-live-0123456789abcdef", "text": "x" * 60_000})
    with Cassette(path, model=script(), mode="record") as recording:
        await recording.generate(ask(settings=large))
    assert b"sk-live" not in path.read_bytes()
    with Cassette(path) as replay:
        await replay.generate(ask(settings=large))


# ------------------------------------------------------------------ what is refused


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"

    async def record() -> None:
        with Cassette(path, model=script()) as recording:
            await scout().run("Where?", model=recording)
            await pieces(recording, ask("go", "on"))

    anyio.run(record)
    return path


def test_a_file_that_ends_early_is_refused_wherever(recorded: Path) -> None:
    whole = recorded.read_bytes()
    for end in {*range(0, len(whole) - 1, 41), *(at for at, byte in enumerate(whole) if byte == 10)} - {
        len(whole) - 1
    }:
        recorded.write_bytes(whole[:end])
        with pytest.raises(CassetteError, match=r"(ends early|damaged).*|not UTF-8"):
            Cassette(recorded)


def test_a_file_that_lacks_a_line_or_has_one_twice_is_refused(recorded: Path) -> None:
    lines = recorded.read_text("utf-8").splitlines(keepends=True)
    for at, line in enumerate(lines):
        without, twice = [*lines[:at], *lines[at + 1 :]], [*lines[:at], line, *lines[at:]]
        for changed in (without, twice):
            recorded.write_text("".join(changed), "utf-8")
            with pytest.raises(CassetteError, match=r"damaged at line \d+|ends early"):
                Cassette(recorded)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('{"cassette": 1,', '{"cassette": 2,', r"is of version 2, this release reads up to 1: update overt"),
        ('{"cassette": 1,', '{"casette": 1,', r"line 1: it is not the head"),
        ('"call": 2,', '"call": 3,', r"line 7: call 2 is missing"),
        ('"follows": 1', '"follows": 2', r"line 7: follows names no call"),
        ('"tools": ["look"]', '"tools": ["see"]', r"line 3: tools names one that is not there"),
        ('"agent": "scout"', '"agents": "scout"', r"line 3: a call has the unknown field 'agents'"),
        ('{"reply": {', '{"reply": {"kit": 1, ', r"line 6: kit: Extra inputs"),
        ('{"delta": {', '{"delta": {"kit": 1, ', r"a piece has the unknown field 'kit'"),
        ('{"finish_reason": "tool_calls"', '{"finish_reason": "stopp"', r"finish_reason is none"),
        ('{"role": "user"', '{"role": "usher"', r"line 5: a message without a role"),
        ('{"deltas": ', '{"deltas": 1', r"pieces are in the file, not"),
        ('{"calls": 3}', '{"calls": 2}', r"3 calls are in the file, not 2"),
        ('{"tool": ', '{"tol": ', r"line 2: nobody knows 'tol'"),
        ("Where?", "Whe\nre?", r"line 5: it is not JSON"),
    ],
)
def test_damage_is_named_by_its_line(recorded: Path, old: str, new: str, told: str) -> None:
    text = recorded.read_text("utf-8")
    assert old in text
    recorded.write_text(text.replace(old, new, 1), "utf-8")
    with pytest.raises(CassetteError, match=told) as caught:
        Cassette(recorded)
    assert str(recorded) in str(caught.value)


def test_what_may_not_be_recorded_is_said_before_anything_is_asked(
    tmp_path: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "missing.jsonl"
    with pytest.raises(CassetteError, match="there is no cassette"):
        Cassette(missing, mode="replay")
    with pytest.raises(CassetteError, match="no model= to record it from"):
        Cassette(missing)
    with pytest.raises(DefinitionError, match="give the model="):
        Cassette(missing, mode="record")
    with pytest.raises(DefinitionError, match="'auto', 'record' or 'replay'"):
        Cassette(missing, mode="recording")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(CassetteError, match="was recorded from 'mock', not from 'gpt-5-mini'"):
        Cassette(recorded, model="openai:gpt-5-mini")
    assert Cassette(recorded, model="no-such-provider:mock").mode == "replay"
    register("kit", lambda _: script())
    named = tmp_path / "named.jsonl"

    async def record() -> None:
        with Cassette(named, model="kit:any") as recording:
            await recording.generate(ask())

    anyio.run(record)
    assert Cassette(named, model="kit:any").name == "mock"
    with pytest.raises(CassetteError, match="was recorded from 'kit:any', not from 'other:any'"):
        Cassette(named, model="other:any")
    for value, refused in (("true", True), ("1", True), ("false", False), ("", False)):
        monkeypatch.setenv("CI", value)
        if refused:
            with pytest.raises(CassetteError, match="nothing is recorded where CI is set"):
                Cassette(missing, model=script())
        else:
            assert Cassette(missing, model=script()).mode == "record"
    monkeypatch.setenv("CI", "true")
    assert Cassette(recorded, model=script()).mode == "replay"
    assert Cassette(missing, model=script(), mode="record").mode == "record"


@ONE_LOOP
async def test_typed_output_is_replayed_as_it_was_asked(tmp_path: Path) -> None:
    class City(BaseModel):
        city: str

    path = tmp_path / "c.jsonl"
    agent = Agent("geographer", does="Knows.", output_type=City)
    with Cassette(path, model=MockModel(['{"city": "Oslo"}'], structured_output=True)) as recording:
        await agent.run("Where?", model=recording)
    with Cassette(path) as replay:
        result, _ = await agent.run("Where?", model=replay)
    assert result.unwrap() == City(city="Oslo")


@ONE_LOOP
async def test_many_runs_in_many_threads_use_each_reply_once(tmp_path: Path) -> None:
    path, count = tmp_path / "c.jsonl", 12
    numbers = iter(range(count))
    with Cassette(path, model=MockModel(lambda _: say(f"{next(numbers)}"))) as recording:
        for _ in range(count):
            await recording.generate(ask())
    said: list[str] = []

    async def one(replay: Cassette) -> None:
        said.append((await replay.generate(ask())).message.text)

    with Cassette(path) as replay:
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(anyio.to_thread.run_sync, anyio.run, one, replay)
    assert sorted(said, key=int) == [f"{number}" for number in range(count)]


@ONE_LOOP
async def test_a_transcript_that_goes_on_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    messages = [UserMessage(text=f"message {number}") for number in range(40)]
    with Cassette(path, model=MockModel(lambda _: say("1"))) as recording:
        for end in range(1, 41):
            await recording.generate(ModelRequest(messages=tuple(messages[:end]), model="mock"))
    assert path.read_text("utf-8").count('{"message": {"role"') == 40
    with Cassette(path) as replay:
        for end in range(1, 41):
            await replay.generate(ModelRequest(messages=tuple(messages[:end]), model="mock"))
