"""A loop: prompt after prompt on one handle; everything a run keeps, kept over many of them."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from overt import (
    Agent,
    AssistantMessage,
    Budget,
    DefinitionError,
    Limit,
    Loop,
    Message,
    ModelRequest,
    ResumePolicy,
    State,
    Status,
    UsageError,
    UserMessage,
    tool,
)
from overt.core import facts as f
from overt.errors import (
    AlreadyAnswered,
    AwaitingAnswer,
    HandleClosed,
    ModelError,
    RunExists,
    RunNotFound,
    SpecDrift,
    StoreError,
)
from overt.journal.store import Store
from overt.models import register
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import MockModel, call, say
from overt.testing.crashing import Crashed, CrashingStore
from tests.suspend_kit import agent, approve, no, tools_said, yes

HANDLE = "root/w.1"


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Both stores there are."""
    made: Store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "runs.db")
    yield made
    await made.close()


def talker(*scripts: Any, name: str = "w", tokens: int = 100, **options: Any) -> Agent[None, str]:
    """An agent with one script a prompt."""
    model = MockModel(prompts=[s if isinstance(s, list) else [s] for s in scripts], tokens=tokens)
    return Agent(name, does="works", model=model, **options)


def by_prompt(scripts: dict[str, list[Any]]) -> MockModel:
    """A model whose replies depend on the last prompt alone, whatever became of those before it."""

    def script(request: ModelRequest) -> Any:
        roles = [m.role for m in request.messages]
        last = len(roles) - 1 - roles[::-1].index("user")
        return scripts[request.messages[last].text][roles[last:].count("assistant")]

    return MockModel(script)


def said(loop: Loop[Any]) -> list[str]:
    return [m.text for m in loop.transcript()]


# ------------------------------------------------------------------ prompts


async def test_a_second_prompt_reports_both(store: Store) -> None:
    loop = talker(say("one"), say("two")).loop(store=store)
    assert (loop.status, loop.turns, loop.transcript()) == (State.IDLE, 0, ())
    one = await loop.run("1")
    assert (one.status, one.text, one.total_tokens, one.own_tokens, one.turns) == (
        Status.DONE,
        "one",
        100,
        100,
        1,
    )
    two = await loop.run("2")
    assert (two.status, two.text, two.total_tokens, two.own_tokens, two.turns) == (
        Status.DONE,
        "two",
        200,
        200,
        2,
    )
    assert (loop.status, loop.turns) == (State.IDLE, 2)
    assert said(loop) == ["1", "one", "2", "two"]
    assert loop.result() == two
    assert one.handle == two.handle == HANDLE
    assert loop.runtime.usage_tokens(HANDLE) == loop.runtime.ledger().total.total_tokens == 200


async def test_it_has_no_result_before_the_first_prompt() -> None:
    loop = talker(say("one")).loop()
    with pytest.raises(UsageError, match="not been started"):
        loop.result()
    with pytest.raises(UsageError, match="not been started"):
        await loop.recover()
    with pytest.raises(UsageError, match="prompt is a str"):
        await loop.run(3)  # type: ignore[arg-type]
    await loop.close()
    assert (await loop.run("1")).text == "one"


async def test_a_prompt_is_one_append(store: Store) -> None:
    """Of a process that dies right after it nothing is left half done: the handle has its prompt."""
    dying = CrashingStore(store, crash_at=1, when="after")
    who = talker(say("one"), say("two"))
    with pytest.raises((Crashed, StoreError, BaseExceptionGroup)):
        await who.loop(store=dying, run_id="r").run("1")
    loop = await Loop.open(who, "r", store=store)
    kinds = [type(fact) for _, _, facts in loop.runtime._driver.log for fact in facts]
    assert kinds[:3] == [f.RunOpened, f.HandleSpawned, f.WakeStarted]
    assert (await loop.recover()).text == "one"
    assert (await loop.run("2")).total_tokens >= 200


async def test_history_is_what_the_transcript_begins_with() -> None:
    history: list[Message] = [UserMessage(text="hello"), AssistantMessage(text="hi")]
    who = agent([say("one")])
    loop = who.loop(history=history)
    assert said(loop) == ["hello", "hi"]
    await loop.run("1")
    assert said(loop) == ["hello", "hi", "1", "one"]


async def test_the_tree_stays_open_until_it_is_closed(store: Store) -> None:
    loop = talker(say("one"), say("two")).loop(store=store)
    await loop.run("1")
    assert [view.state for view in loop.runtime.list()] == [State.IDLE]
    other = await loop.runtime.spawn("root", "w")
    await loop.close(reason="enough")
    assert loop.status is State.CLOSED
    assert loop.runtime.inspect(other).state is State.CLOSED
    with pytest.raises(HandleClosed):
        await loop.run("2")
    assert said(loop) == ["1", "one"]
    assert loop.result().total_tokens == 100


async def test_two_prompts_at_once_are_refused(store: Store) -> None:
    """Also where neither has made the handle yet."""
    go_on = anyio.Event()

    async def slow(request: ModelRequest) -> Any:
        await go_on.wait()
        return say("done")

    loop = Agent("w", does="works", model=MockModel(slow)).loop(store=store)
    refused: list[UsageError] = []

    async def prompt() -> None:
        try:
            assert (await loop.run("go")).status is Status.DONE
        except UsageError as error:
            refused.append(error)
            go_on.set()

    async with anyio.create_task_group() as group:
        group.start_soon(prompt)
        group.start_soon(prompt)
    assert len(refused) == 1
    assert [view.id for view in loop.runtime.list()] == [HANDLE]
    assert loop.turns == 1


async def test_a_prompt_to_a_handle_that_other_verbs_have_set_to_work_is_refused() -> None:
    loop = talker(say("one"), [call("waits"), say("two")], tools=[Waits().tool]).loop()
    await loop.run("1")
    async with loop.runtime as runtime:
        await runtime.wake(HANDLE, "2")
        with pytest.raises(UsageError, match="at work"):
            await loop.run("3", model=MockModel([say("wrong")]))
        assert runtime._driver.models == {}
        await runtime.interrupt(HANDLE)
    assert loop.status is State.IDLE


class Waits:
    """A tool that waits until it is let go."""

    def __init__(self) -> None:
        self.entered = anyio.Event()
        self.go_on = anyio.Event()

        @tool(name="waits")
        async def waits() -> str:
            self.entered.set()
            await self.go_on.wait()
            return "waited"

        self.tool = waits


async def test_a_run_of_its_id_is_not_touched(store: Store) -> None:
    who = talker(say("one"), say("two"))
    await who.loop(store=store, run_id="r").run("1")
    with pytest.raises(RunExists):
        await who.loop(store=store, run_id="r").run("1")
    assert said(await Loop.open(who, "r", store=store)) == ["1", "one"]


# ------------------------------------------------------------------ what goes wrong


async def test_a_failed_prompt_can_be_followed_by_another(store: Store) -> None:
    who = Agent("w", does="works", model=by_prompt({"1": [ModelError("down")], "2": [say("two")]}))
    loop = who.loop(store=store)
    one = await loop.run("1")
    assert (one.status, one.error is None, loop.status) == (Status.ERROR, False, State.IDLE)
    two = await loop.run("2")
    assert (two.status, two.error, two.partial) == (Status.DONE, None, "two")
    assert said(loop) == ["2", "two"]
    assert (two.usage.model_calls, two.usage.unreported_calls, two.turns) == (2, 1, 1)


async def test_or_gone_on_with() -> None:
    down = [True]

    def script(request: ModelRequest) -> Any:
        if down[0]:
            raise ModelError("down")
        return say(f"{len(request.messages)}")

    loop = agent(script).loop()
    assert (await loop.run("1")).status is Status.ERROR
    down[0] = False
    assert (await loop.recover()).text == "1"
    assert (await loop.run("2")).text == "3"
    assert said(loop) == ["1", "1", "2", "3"]


async def test_a_prompt_cut_off_is_recovered_or_followed_by_another(store: Store) -> None:
    held = Waits()
    model = by_prompt({"1": [call("waits"), say("one")], "2": [say("two")]})
    who = Agent("w", does="works", tools=[held.tool], model=model)
    loop = who.loop(store=store, shutdown=0)

    async def cut(prompt: str) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(loop.run, prompt)
            await held.entered.wait()
            group.cancel_scope.cancel()

    await cut("1")
    assert (loop.status, loop.result().status) == (State.IDLE, Status.INTERRUPTED)
    held.go_on.set()
    assert (await loop.recover()).text == "one"

    held.entered, held.go_on = anyio.Event(), anyio.Event()
    loop = who.loop(store=store, shutdown=0)
    await cut("1")
    assert loop.runtime.usage_tokens(HANDLE) == 100
    two = await loop.run("2")
    assert said(loop) == ["2", "two"]
    assert two.total_tokens == 200


async def test_an_interrupted_prompt_leaves_the_loop_open() -> None:
    held = Waits()
    model = by_prompt({"1": [call("waits"), say("one")], "2": [say("two")]})
    loop = Agent("w", does="works", tools=[held.tool], model=model).loop(shutdown=0)
    ended: list[Any] = []

    async def prompt() -> None:
        ended.append(await loop.run("1"))

    async with anyio.create_task_group() as group:
        group.start_soon(prompt)
        await held.entered.wait()
        await loop.runtime.interrupt()
    assert ended[0].status is Status.INTERRUPTED
    assert loop.status is State.IDLE
    held.go_on.set()
    assert (await loop.run("2")).status is Status.DONE


async def test_a_limit_is_a_result_and_the_next_prompt_has_the_work() -> None:
    loop = talker(
        [[say("thinking"), call("note")]] * 3,
        say("two"),
        tools=[note],
        tokens=70,
        budget=Budget(max_turns=3),
    ).loop()
    one = await loop.run("1")
    assert (one.status, one.limit, one.limit_at) == (Status.INCOMPLETE, Limit.MAX_TURNS, HANDLE)
    assert (one.turns, one.total_tokens) == (3, 210)
    two = await loop.run("2")
    assert (two.status, two.limit, two.text, two.turns, two.total_tokens) == (
        Status.DONE,
        None,
        "two",
        4,
        280,
    )
    assert tools_said(loop.transcript()) == ["noted", "noted", "not run (maxTurns)"]


@tool
def note() -> str:
    return "noted"


async def test_caps_are_for_the_life_of_the_loop(store: Store) -> None:
    loop = talker(say("one"), say("two"), say("three")).loop(store=store, budget=Budget(max_tokens=150))
    await loop.run("1")
    two = await loop.run("2")
    assert (two.status, two.total_tokens) == (Status.DONE, 200)
    three = await loop.run("3")
    assert (three.status, three.limit, three.limit_at, three.total_tokens) == (
        Status.INCOMPLETE,
        Limit.MAX_TOKENS,
        "root",
        200,
    )
    assert loop.runtime.remaining(HANDLE).max_tokens == 0
    done = await loop.extend(Budget(max_tokens=1000))
    assert (done.status, done.text, done.total_tokens) == (Status.DONE, "three", 300)


# ------------------------------------------------------------------ questions


async def test_a_prompt_to_a_suspended_loop_names_what_is_open(store: Store) -> None:
    loop = talker([[call("approve"), call("approve", what="more")], say("done")], tools=[approve]).loop(
        store=store
    )
    parked = await loop.run("1")
    assert (parked.status, loop.status) == (Status.PENDING, State.SUSPENDED)
    before = loop.runtime.trace()
    with pytest.raises(AwaitingAnswer) as raised:
        await loop.run("2", model=MockModel([say("wrong")]))
    assert raised.value.request_ids == tuple(r.id for r in parked.pendings)
    assert all(r.id in str(raised.value) for r in parked.pendings)
    assert loop.runtime.trace() == before
    assert loop.runtime._driver.models == {}


@pytest.mark.parametrize("ok", [True, False])
@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_it_is_answered_here(policy: ResumePolicy, ok: bool, store: Store) -> None:
    asking = [[say("asking"), call("note"), call("approve")], say("done")]
    loop = talker(asking, say("two"), tools=[note, approve]).loop(store=store, resume_policy=policy)
    parked = await loop.run("1")
    assert said(loop) == []
    answer = yes(parked) if ok else no(parked)
    done = await loop.resume(answer)
    assert (done.status, done.text, loop.status) == (Status.DONE, "done", State.IDLE)
    assert done.total_tokens == (300 if policy is ResumePolicy.REWIND else 200)
    assert tools_said(loop.transcript()) == ["noted", "it: yes" if ok else "it: no (declined)"]
    with pytest.raises(AlreadyAnswered):
        await loop.resume(answer)
    two = await loop.run("2")
    assert (two.text, two.replay, two.total_tokens) == ("two", None, done.total_tokens + 100)


async def test_a_question_can_be_dropped_and_the_next_prompt_given() -> None:
    model = by_prompt({"1": [call("approve"), say("one")], "2": [say("two")]})
    loop = Agent("w", does="works", tools=[approve], model=model).loop()
    parked = await loop.run("1")
    await loop.runtime.interrupt()
    assert (loop.result().status, loop.status, loop.runtime.pendings()) == (
        Status.INTERRUPTED,
        State.IDLE,
        (),
    )
    with pytest.raises(AlreadyAnswered):
        await loop.resume(yes(parked))
    assert (await loop.run("2")).status is Status.DONE


ELSEWHERE = """
import sys
import anyio
from overt import Answer, Loop
from overt.stores import SQLiteStore
from tests.test_loop import asker

async def main():
    store = SQLiteStore(sys.argv[1])
    loop = await Loop.open(asker(), "r", store=store)
    print(loop.status, loop.turns, len(loop.transcript()))
    result = await loop.resume([Answer(id=r.id, ok=True) for r in loop.runtime.pendings()])
    print(result.status, result.text, result.total_tokens, result.turns)
    await store.close()

anyio.run(main)
"""


def asker() -> Agent[None, str]:
    below = agent([[call("approve", what="below")], say("deployed")], approve, name="below")
    model = MockModel(
        prompts=[[[call("approve"), call("task", agent="below", prompt="deploy")], say("one")], [say("two")]]
    )
    return Agent("w", does="works", tools=[approve], team=[below], model=model)


async def test_it_is_answered_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SQLiteStore(path)
    loop = asker().loop(store=store, run_id="r")
    parked = await loop.run("1")
    assert (parked.status, len(parked.pendings), parked.total_tokens) == (Status.PENDING, 2, 200)
    done = await anyio.run_process(
        [sys.executable, "-W", "error", "-c", ELSEWHERE, str(path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        cwd=Path(__file__).parent.parent,
    )
    assert done.stdout.decode().splitlines() == ["suspended 1 0", "done one 600 3"]
    # This process learns of it with its next verb.
    two = await loop.run("2")
    assert (two.text, two.turns, two.total_tokens) == ("two", 4, 700)
    assert loop.runtime.inspect("root/w.1/below.1").total_tokens == 300
    await store.close()


async def test_a_loop_is_opened_again(store: Store) -> None:
    who = talker([call("approve"), say("one")], say("two"), tools=[approve])
    loop = who.loop(store=store, run_id="r")
    parked = await loop.run("1")
    again = await Loop.open(who, "r", store=store)
    assert (again.status, again.turns, again.result()) == (State.SUSPENDED, 1, parked)
    with pytest.raises(AwaitingAnswer):
        await again.run("2")
    assert (await again.resume(yes(parked))).text == "one"
    assert (await again.run("2")).text == "two"
    await again.close()
    assert (await Loop.open(who, "r", store=store)).status is State.CLOSED
    with pytest.raises(RunNotFound):
        await Loop.open(who, "other", store=store)
    with pytest.raises(SpecDrift):
        await Loop.open(talker(say("one"), name="x"), "r", store=store)


# ------------------------------------------------------------------ model= for one prompt


def other(*replies: Any) -> MockModel:
    return MockModel(list(replies), name="other", tokens=7)


async def test_a_model_for_one_prompt(store: Store) -> None:
    own = MockModel([[call("task", agent="below", prompt="p"), call("note")], say("own")])
    below = agent([say("below")], name="below")
    loop = Agent("w", does="works", tools=[note], team=[below], model=own).loop(store=store)
    one = await loop.run(
        "1", model=other([call("task", agent="below", prompt="p"), call("note")], say("other"))
    )
    # Every turn of the prompt, and none of the child.
    assert (one.text, one.own_tokens, one.total_tokens) == ("other", 14, 114)
    assert own.requests == []
    assert loop.runtime._driver.models == {}
    two = await loop.run("2")
    assert (two.text, two.own_tokens) == ("own", 214)


async def test_it_does_not_outlive_the_question() -> None:
    own = MockModel([[call("approve")], say("own")])
    loop = Agent("w", does="works", tools=[approve], model=own).loop()
    parked = await loop.run("1", model=other([call("approve")], say("other")))
    assert own.requests == []
    assert (await loop.resume(yes(parked))).text == "own"


async def test_nor_a_cancellation() -> None:
    held = Waits()
    own = MockModel([[call("waits")], say("own")])
    loop = Agent("w", does="works", tools=[held.tool], model=own).loop(shutdown=0)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: loop.run("1", model=other([call("waits")], say("other"))))
        await held.entered.wait()
        group.cancel_scope.cancel()
    held.go_on.set()
    assert loop.runtime._driver.models == {}
    assert (await loop.recover()).text == "own"


async def test_it_lasts_for_the_prompt_where_the_work_goes_on_in_the_background() -> None:
    held = Waits()
    own = MockModel([[call("waits")], say("own")])
    loop = Agent("w", does="works", tools=[held.tool], model=own).loop()
    async with loop.runtime as runtime:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: loop.run("1", model=other([call("waits")], say("other"))))
            await held.entered.wait()
            group.cancel_scope.cancel()
        held.go_on.set()
        assert (await runtime.wait(HANDLE)).text == "other"
        assert (await loop.run("2")).text == "own"


async def test_its_name_is_resolved_before_anything_happens() -> None:
    made: list[str] = []

    def make(name: str) -> MockModel:
        made.append(name)
        return other(say(name))

    register("of-test-loop", make)
    loop = talker(say("own")).loop()
    for wrong in ("nobody:x", "no-colon", 3, MockModel):
        with pytest.raises(DefinitionError):
            await loop.run("1", model=wrong)  # type: ignore[arg-type]
    assert loop.runtime.trace() == ()
    assert (await loop.run("1", model="of-test-loop:small")).text == "small"
    assert made == ["small"]
