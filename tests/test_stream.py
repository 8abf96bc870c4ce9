"""Streams of runs: what is seen, in which order, and what is left when a reader goes."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from overt import Agent, Answer, Budget, Request, ResumePolicy, RunStream, Runtime, Status, UsageError, tool
from overt.errors import AwaitingAnswer, ModelError, NoModel, RunConflict, RunExists, RunNotFound, StoreError
from overt.events import AnswerGiven, Event, RequestOpened, ResultReady
from overt.journal.store import Store
from overt.stores import MemoryStore, SQLiteStore
from overt.testing import CrashingStore, MockModel, call, say
from overt.testing.mock import Reply
from tests.driver.support import SlowStore, settle, tasks
from tests.stream_kit import ENTRY, Tool, all_of, facts, kinds, team, worker
from tests.suspend_kit import agent, approve, first, yes


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Both stores there are."""
    made: Store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "runs.db")
    yield made
    await made.close()


# ------------------------------------------------------------------ what is seen


async def test_every_fact_is_an_event_and_the_result_comes_last(store: Store) -> None:
    stream = worker(Tool(waits=False)).stream("go", store=store)
    events = await all_of(stream)
    stored, last = facts(events), events[-1]
    assert tuple(stored) == stream.runtime.events()
    assert [event.position for event in stored] == list(range(1, len(stored) + 1))
    assert isinstance(last, ResultReady)
    assert (last.position, last.handle) == (len(stored), ENTRY)
    assert last.result == stream.runtime.result() == await stream.result()
    assert {"wake", "turn", "tool_started", "tool_finished", "settled", "closed"} <= set(kinds(events))
    plain, runtime = await worker(Tool(waits=False)).run("go", store=store)
    assert last.result.model_copy(update={"run_id": plain.run_id}) == plain
    assert [e.kind for e in runtime.events()] == kinds(stored)


async def test_a_tool_is_seen_before_it_runs(store: Store) -> None:
    work = Tool()
    async with worker(work).stream("go", store=store) as stream:
        async for event in stream:
            if event.kind == "tool_started":
                # The tool cannot get past its gate before this reader opens it.
                work.go_on.set()
            if event.kind == "tool_finished":
                assert work.go_on.is_set()
    assert (await stream.result()).status is Status.DONE


async def test_only_the_result_is_wanted(store: Store) -> None:
    async with worker(Tool(waits=False)).stream("go", store=store) as stream:
        result = await stream.result()
        assert (result.text, result.total_tokens) == ("done", 200)
        assert [event async for event in stream] == []
    assert await stream.result() is result


async def test_a_failed_run_is_a_result_too() -> None:
    events = await all_of(agent([ModelError("down")]).stream("go"))
    assert isinstance(events[-1], ResultReady)
    assert events[-1].result.status is Status.ERROR


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_a_question_three_levels_down_is_seen_with_its_path(policy: ResumePolicy, store: Store) -> None:
    who = team()
    stream = who.stream("go", store=store, resume_policy=policy)
    events = await all_of(stream)
    asked = [event for event in events if isinstance(event, RequestOpened)]
    assert [(e.handle, e.request.path[-1]) for e in asked] == [("root/w.1/mid.1/low.1", "low.1")]
    assert [e.handle for e in events if e.kind == "parked"] == [
        "root/w.1/mid.1/low.1",
        "root/w.1/mid.1",
        "root/w.1",
    ]
    last = events[-1]
    assert isinstance(last, ResultReady)
    assert [request.id for request in last.result.pendings] == [asked[0].request.id]

    runtime = await Runtime.open(who, stream.runtime.id, store=store)
    seen = len(runtime.events())
    more = await all_of(runtime.stream(answer=yes(last.result)))
    assert [e.position for e in facts(more)] == list(range(seen + 1, seen + 1 + len(facts(more))))
    assert tuple(facts(more)) == runtime.events(after=seen)
    assert [(e.request_id, e.inline) for e in more if isinstance(e, AnswerGiven)] == [
        (asked[0].request.id, False)
    ]
    assert ("rewound" in kinds(more)) is (policy is ResumePolicy.REWIND)
    assert (await runtime.recover()).text == "top"


async def test_a_question_that_is_answered_at_once_is_seen_as_well(store: Store) -> None:
    async def wait_for(request: Request) -> Answer[Any]:
        assert request.path[-1] == "low.1"
        return Answer(id=request.id, ok=True)

    stream = team(wait_for=wait_for).stream("go", store=store)
    events = await all_of(stream)
    order = [
        e.kind for e in events if e.handle.endswith("low.1") and e.kind in ("request", "answer", "settled")
    ]
    assert order == ["request", "answer", "settled"]
    assert [e.inline for e in events if isinstance(e, AnswerGiven)] == [True]
    assert tuple(facts(events)) == stream.runtime.events()
    assert (await stream.result()).text == "top"


async def test_a_loop_is_streamed_prompt_by_prompt(store: Store) -> None:
    other = MockModel([say("other")])
    loop = Agent(
        "w", does="works", tools=[approve], model=MockModel(prompts=[[say("one")], [call("approve")]])
    ).loop(store=store)
    events = await all_of(loop.stream("1"))
    seen = len(facts(events))
    more = await all_of(loop.stream("2", model=other))
    assert [e.position for e in facts(more)] == list(range(seen + 1, seen + 1 + len(facts(more))))
    assert (loop.result().text, loop.result().total_tokens, len(other.requests)) == ("other", 200, 1)
    assert kinds(await all_of(loop.stream("3")))[-2:] == ["parked", "result"]
    refused = loop.stream("4")
    with pytest.raises(AwaitingAnswer):
        await all_of(refused)


async def test_context_variables_of_the_reader_reach_the_tools() -> None:
    who: ContextVar[str] = ContextVar("who", default="nobody")
    seen: list[str] = []

    @tool
    async def look() -> str:
        seen.append(who.get())
        return "ok"

    stream = agent([call("look"), say("done")], look).stream("go")
    who.set("reader")
    await all_of(stream)
    assert seen == ["reader"]


# ------------------------------------------------------------------ what is not read


async def test_a_stream_that_is_not_read_does_nothing(store: Store) -> None:
    model = MockModel([say("done")])
    who = Agent("w", does="works", model=model)
    before = tasks()
    never = who.stream("go", store=store, run_id="never")
    async with who.stream("go", store=store, run_id="entered") as entered:
        await settle()
        aiter(entered)
        await settle()
    assert model.requests == []
    assert tasks() == before
    for run_id in ("never", "entered"):
        with pytest.raises(RunNotFound):
            await store.info(run_id)
    assert never.runtime.trace() == entered.runtime.trace() == ()
    with pytest.raises(UsageError, match="left before the end"):
        await entered.result()
    with pytest.raises(UsageError, match="inside"):
        await never.result()
    del never, entered
    gc.collect()


async def test_it_is_read_inside_async_with() -> None:
    stream = agent([say("done")]).stream("go")
    with pytest.raises(UsageError, match="async with"):
        async for _ in stream:
            pass
    with pytest.raises(UsageError, match="async with"):
        await stream.__anext__()
    await all_of(stream)
    with pytest.raises(UsageError, match="has been left"):
        async for _ in stream:
            pass
    with pytest.raises(UsageError, match="entered once"):
        await all_of(stream)


async def test_it_has_one_reader_at_a_time() -> None:
    work = Tool()
    refused: list[str] = []

    async def second(stream: RunStream[Any]) -> None:
        await work.inside.wait()
        await settle()
        with pytest.raises(UsageError, match="somebody reads"):
            await stream.__anext__()
        with pytest.raises(UsageError, match="somebody reads"):
            await stream.result()
        refused.append("yes")
        work.go_on.set()

    async with worker(work).stream("go") as stream, anyio.create_task_group() as group:
        group.start_soon(second, stream)
        async for _ in stream:
            pass
    assert refused == ["yes"]
    assert (await stream.result()).status is Status.DONE


async def test_another_task_that_reads_is_told_when_the_stream_is_left() -> None:
    work = Tool()
    seen: list[Event] = []

    async def on_and_on(stream: RunStream[Any]) -> None:
        while True:
            seen.append(await stream.__anext__())

    async def other(stream: RunStream[Any]) -> None:
        with pytest.raises(UsageError, match="has been left"):
            await on_and_on(stream)

    async with anyio.create_task_group() as group, worker(work).stream("go", shutdown=0) as stream:
        group.start_soon(other, stream)
        await work.inside.wait()
    assert tuple(facts(seen)) == stream.runtime.events()[: len(facts(seen))]
    assert "result" not in kinds(seen)
    assert stream.runtime.result().status is Status.INTERRUPTED


async def test_recorded_events_are_those_that_are_stored() -> None:
    """What is still on its way into the store may not come to be."""
    store = CrashingStore(MemoryStore())
    gate = store.hold(2)
    runtime = Runtime(worker(Tool(waits=False)), store=store)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.run, "go")
        await gate.reached()
        stored = (await store.info(runtime.id)).position
        assert [event.position for event in runtime.events()] == list(range(1, stored + 1))
        assert len(runtime.trace()) == stored
        gate.release()
    assert len(runtime.events()) == len(runtime.trace()) > stored


async def test_wrong_arguments_are_told_at_once() -> None:
    with pytest.raises(NoModel):
        Agent("w", does="works").stream("go")
    runtime = Runtime(agent([say("done")]))
    wrong: list[Callable[[], object]] = [
        lambda: runtime.stream(3),  # type: ignore[arg-type]
        lambda: runtime.stream("go", answer=Answer(id="x", ok=True)),
        lambda: runtime.stream("go", policy=ResumePolicy.REWIND),
        lambda: runtime.stream(policy="back"),  # type: ignore[arg-type]
        lambda: runtime.stream(answer=3),  # type: ignore[arg-type]
        lambda: runtime.stream("go", after=-1),
        lambda: runtime.follow(after="1"),  # type: ignore[arg-type]
    ]
    for attempt in wrong:
        with pytest.raises(UsageError):
            attempt()
    with pytest.raises(UsageError, match="not been started"):
        await all_of(runtime.stream())


# ------------------------------------------------------------------ reading on


async def test_reading_on_behind_any_event_gives_exactly_the_rest(store: Store) -> None:
    whole = len(facts(await all_of(worker(Tool(waits=False)).stream("go"))))
    for last in range(1, whole + 1):
        work = Tool(waits=False)
        stream = worker(work).stream("go", store=store)
        seen: list[Event] = []
        async with stream:
            async for event in stream:
                seen.append(event)
                if event.position == last:
                    break
        runtime = await Runtime.open(worker(work), stream.runtime.id, store=store)
        rest = await all_of(runtime.stream(after=last))
        assert (*facts(seen), *facts(rest)) == runtime.events()
        assert (runtime.result().text, rest[-1].kind) == ("done", "result")
        assert facts(await all_of(runtime.follow(after=last))) == facts(rest)
        assert kinds(await all_of(runtime.follow(after=10**9))) == ["result"]


async def test_without_a_position_only_what_is_new_is_read(store: Store) -> None:
    who = agent([call("approve"), say("done")], approve)
    parked, first_runtime = await who.run("go", store=store)
    runtime = await Runtime.open(who, first_runtime.id, store=store)
    seen = len(runtime.events())
    only = await all_of(runtime.stream())
    assert kinds(only)[-1] == "result"
    assert all(event.position > seen for event in facts(only))
    assert runtime.result().status is Status.PENDING
    seen = len(runtime.events())
    events = await all_of(runtime.stream(answer=yes(parked)))
    assert tuple(facts(events)) == runtime.events(after=seen)
    assert events[0].position == seen + 1


async def test_what_another_process_did_meanwhile_is_read_first(store: Store) -> None:
    who = agent([call("approve"), say("done")], approve)
    parked, runtime = await who.run("go", store=store)
    other = await Runtime.open(who, runtime.id, store=store)
    seen = len(runtime.events())
    await other.resume(yes(parked))
    events = await all_of(runtime.stream())
    assert tuple(facts(events)) == other.events(after=seen)
    assert events[-1].kind == "result"
    assert (await runtime.recover()).status is Status.DONE


async def test_two_follow_while_another_drives(store: Store) -> None:
    work = Tool()
    runtime = Runtime(worker(work), store=store)
    before = tasks()
    seen: list[list[Event]] = []

    async def follow(after: int) -> None:
        seen.append(await all_of(runtime.follow(after=after)))

    async def leaves() -> None:
        async with runtime.follow() as stream:
            async for event in stream:
                if event.kind == "turn":
                    break
        work.go_on.set()

    async with anyio.create_task_group() as group:
        # One is there before the run begins.
        group.start_soon(follow, 0)
        await settle()
        group.start_soon(runtime.run, "go")
        await work.inside.wait()
        group.start_soon(follow, 3)
        group.start_soon(leaves)
    assert tasks() == before
    whole, rest = sorted(seen, key=len, reverse=True)
    assert tuple(facts(whole)) == runtime.events()
    assert facts(rest) == facts(whole)[3:]
    for events in (whole, rest):
        assert isinstance(events[-1], ResultReady)
        assert events[-1].result == runtime.result()


async def test_to_follow_what_is_at_rest_ends_at_once(store: Store) -> None:
    who = agent([call("approve"), say("done")], approve)
    parked, runtime = await who.run("go", store=store)
    opened = await Runtime.open(who, runtime.id, store=store)
    events = await all_of(opened.follow())
    assert tuple(facts(events)) == opened.events()
    assert isinstance(events[-1], ResultReady)
    assert events[-1].result == parked
    assert (await store.info(runtime.id)).owner is None


async def test_it_follows_from_one_verb_into_the_work_in_the_background() -> None:
    work = Tool()
    runtime = Runtime(worker(work))
    seen: list[Event] = []

    async def follow() -> None:
        seen.extend(await all_of(runtime.follow()))

    async with runtime, anyio.create_task_group() as group:
        handle = await runtime.spawn("root", "w")
        await runtime.wake(handle, "go")
        group.start_soon(follow)
        await work.inside.wait()
        await settle()
        assert seen == []
        work.go_on.set()
        await runtime.wait(handle)
    assert seen[-1].kind == "result"
    assert tuple(facts(seen)) == runtime.events()


# ------------------------------------------------------------------ slow readers


async def test_a_slow_reader_slows_nothing_and_misses_nothing(store: Store) -> None:
    work = Tool(waits=False)
    async with worker(work).stream("go", store=store) as stream:
        seen = [await stream.__anext__()]
        followers = await all_of(stream.runtime.follow())
        assert stream.runtime.result().status is Status.DONE
        seen += [event async for event in stream]
    assert tuple(facts(seen)) == stream.runtime.events()
    assert facts(followers) == facts(seen)


async def test_what_waits_to_be_read_is_the_journal_and_one_text_a_reply() -> None:
    text = "a word or two " * 20
    script: list[Reply] = [[say(text), call("work")] for _ in range(40)]
    work = Tool(waits=False)
    model = MockModel([*script, say(text)], chunk=3)
    who = Agent("w", does="works", tools=[work.tool], model=model, budget=Budget(max_turns=50))
    async with who.stream("go") as stream:
        await stream.__anext__()
        await all_of(stream.runtime.follow())
        assert len(stream._feed._pieces) == 41
        seen = [event async for event in stream]
    assert [event.text for event in seen if event.kind == "text"] == [text] * 41
    # Each before the reply it is part of, and after what led to it.
    spoken = [event.kind for event in seen if event.kind in ("text", "turn", "tool_finished")]
    assert spoken == ["text", "turn", "tool_finished"] * 40 + ["text", "turn"]


async def test_a_reader_that_never_waits_lets_others_run() -> None:
    work = Tool(waits=False)
    who = agent([call("work")] * 80 + [say("done")], work.tool, budget=Budget(max_turns=100))
    _, runtime = await who.run("go")
    ran = 0

    async def other() -> None:
        nonlocal ran
        while True:
            ran += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group, runtime.follow() as stream:
        await stream.__anext__()
        group.start_soon(other)
        async for event in stream:
            if event.position == 320:
                break
        assert ran >= 1
        group.cancel_scope.cancel()


# ------------------------------------------------------------------ what the run's verb raises


async def test_a_store_that_fails_is_told_to_the_reader() -> None:
    store: Any = SlowStore(fails_at=3, error=StoreError("disk full"))
    stream = worker(Tool(waits=False)).stream("go", store=store)
    seen: list[Event] = []
    before = tasks()
    with pytest.raises(StoreError, match="disk full"):
        await all_of(stream, into=seen)
    assert tasks() == before
    stored = (await store.inner.info(stream.runtime.id)).position
    assert [event.position for event in facts(seen)] == list(range(1, stored + 1))
    with pytest.raises(StoreError, match="disk full"):
        await all_of(stream.runtime.follow())


async def test_or_to_whoever_wants_the_result() -> None:
    store: Any = SlowStore(fails_at=3, error=StoreError("disk full"))
    async with worker(Tool(waits=False)).stream("go", store=store) as stream:
        with pytest.raises(StoreError):
            await stream.result()
        with pytest.raises(StoreError):
            await stream.result()
        assert [event async for event in stream] == []


async def test_a_failure_nobody_has_read_is_raised_on_leaving() -> None:
    store: Any = SlowStore(fails_at=2, error=StoreError("disk full"))

    async def leave(error: Exception | None) -> None:
        async with worker(Tool(waits=False)).stream("go", store=store) as stream:
            await stream.__anext__()
            while not stream._ended:
                await anyio.lowlevel.checkpoint()
            if error is not None:
                raise error

    with pytest.raises(StoreError, match="disk full"):
        await leave(None)
    store = SlowStore(fails_at=2, error=StoreError("disk full"))
    with pytest.raises(ZeroDivisionError):
        await leave(ZeroDivisionError())


async def test_misuse_is_told_with_the_first_event(store: Store) -> None:
    who = worker(Tool(waits=False))
    _, runtime = await who.run("go", store=store, run_id="r")
    with pytest.raises(UsageError, match="has been started"):
        await all_of(runtime.stream("again"))
    with pytest.raises(RunExists):
        await all_of(who.stream("go", store=store, run_id="r"))
    assert runtime.result().status is Status.DONE


async def test_another_driver_is_told_with_the_first_event(store: Store) -> None:
    work = Tool()
    runtime = Runtime(worker(work), store=store)
    async with anyio.create_task_group() as group:
        group.start_soon(runtime.run, "go")
        await work.inside.wait()
        other = await Runtime.open(worker(work), runtime.id, store=store)
        with pytest.raises(RunConflict):
            await all_of(other.stream())
        work.go_on.set()
    assert runtime.result().status is Status.DONE


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("calls", [1, 2])
async def test_the_end_of_the_process_comes_out_at_the_reader(
    kind: type[BaseException], calls: int, store: Store
) -> None:
    ends = [True]

    @tool
    async def ending() -> str:
        if ends[0]:
            raise kind
        return "ended"

    who = agent([[call("ending")] * calls, say("done")], ending)
    stream = who.stream("go", store=store)
    before = tasks()
    seen: list[Event] = []
    with pytest.raises(kind):
        await all_of(stream, into=seen)
    assert "tool_started" in kinds(seen)
    assert tasks() == before
    ends[0] = False
    runtime = await Runtime.open(who, stream.runtime.id, store=store)
    assert (await runtime.recover()).text == "done"


async def test_also_when_the_reader_has_left_by_then() -> None:
    inside = anyio.Event()

    @tool
    async def ending() -> str:
        inside.set()
        try:
            await anyio.sleep_forever()
        finally:
            raise KeyboardInterrupt  # as a signal that comes while it is cancelled

    stream = agent([call("ending"), say("done")], ending).stream("go", shutdown=0)

    async def leave() -> None:
        async with stream:
            async for event in stream:
                if event.kind == "tool_started":
                    await inside.wait()
                    break

    with pytest.raises(KeyboardInterrupt):
        await leave()


async def test_a_stream_nobody_holds_is_gone_without_a_collector() -> None:
    import weakref

    gc.collect()
    gc.disable()
    try:
        stream = worker(Tool(waits=False)).stream("go")
        await all_of(stream)
        gone = weakref.ref(stream.runtime)
        del stream
        await anyio.lowlevel.checkpoint()
        assert gone() is None
    finally:
        gc.enable()


async def test_a_request_of_a_parked_run_says_what_answering_repeats() -> None:
    work = Tool(waits=False)
    who = agent([[call("work"), call("approve")], say("done")], work.tool, approve)
    events = await all_of(who.stream("go"))
    asked = next(event for event in events if isinstance(event, RequestOpened))
    assert isinstance(events[-1], ResultReady)
    request = first(events[-1].result)
    assert request.id == asked.request.id
    assert [call.tool for call in request.replays] == ["work"]
