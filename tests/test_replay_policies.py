"""REWIND and CONTINUE: what is run again, what is carried, what was said about it beforehand and afterwards."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from overt import Agent, ResumePolicy, Runtime, Status, TaskResult, tool
from overt.stores import MemoryStore
from overt.testing import call, say
from tests.suspend_kit import agent, approve, first, tools_said, yes

pytestmark = pytest.mark.anyio

REWIND, CONTINUE = ResumePolicy.REWIND, ResumePolicy.CONTINUE
ran: list[str] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    ran.clear()


def counter(name: str, on_replay: Literal["rerun", "reuse"] = "rerun") -> Any:
    @tool(name=name, on_replay=on_replay)
    def count(n: int = 0) -> str:
        """Count."""
        ran.append(f"{name}{n}")
        return f"{name}{n}"

    return count


def replayed(result: TaskResult[Any]) -> list[tuple[str, str]]:
    assert result.replay is not None
    return [(c.handle, c.tool) for c in result.replay.calls_rerun]


def nested() -> Agent[None, str]:
    """Three levels; each has run a tool of each kind before it delegated or asked."""
    leaf = agent(
        [[call("t3"), call("u3")], call("approve"), say("leaf")],
        counter("t3"), counter("u3", "reuse"), approve, name="leaf",
    )  # fmt: skip
    middle = agent(
        [call("t2"), [call("task", agent="leaf", prompt="p"), call("t2", n=1)], say("middle")],
        counter("t2"), name="middle", team=[leaf],
    )  # fmt: skip
    return agent(
        [[call("t1"), call("task", agent="middle", prompt="p")], say("top")],
        counter("t1"), name="top", team=[middle],
    )  # fmt: skip


TOP, MIDDLE, LEAF = "root/top.1", "root/top.1/middle.1", "root/top.1/middle.1/leaf.1"


async def test_a_request_says_what_answering_repeats_ancestors_included() -> None:
    store = MemoryStore()
    result, runtime = await nested().run("go", store=store, run_id="r")
    expected = [(LEAF, "t3"), (MIDDLE, "t2"), (MIDDLE, "t2"), (TOP, "t1")]
    for request in (
        first(result),
        runtime.pendings()[0],
        (await Runtime.open(nested(), "r", store=store)).pendings()[0],
    ):
        assert sorted((c.handle, c.tool) for c in request.replays) == sorted(expected)
        assert request.turns_again == 2 + 2 + 1
    by = {(c.handle, c.tool, c.arguments["n"]) for c in first(result).replays}
    assert (MIDDLE, "t2", 1) in by
    assert len({c.idempotency_key for c in first(result).replays}) == 4

    before = sorted(ran)
    asked = first(result)
    result = await runtime.resume(yes(result))
    assert result.status is Status.DONE
    assert sorted(replayed(result)) == sorted(expected)
    assert result.replay is not None
    assert result.replay.turns_bought_again == asked.turns_again == 5
    assert [(c.handle, c.tool) for c in result.replay.calls_reused] == [(LEAF, "u3")]
    assert {c.idempotency_key for c in result.replay.calls_rerun} == {
        c.idempotency_key for c in asked.replays
    }
    assert sorted(ran) == sorted([*before, "t30", "t20", "t21", "t10"])
    assert result.replay.attempt == 2
    assert (result.replay.unused_answers, result.replay.unused_children) == ((), ())
    assert len(runtime.list()) == 3, "children are found again, never made twice"


async def test_continue_repeats_nothing_and_says_so() -> None:
    result, runtime = await nested().run("go", resume_policy=CONTINUE)
    assert (first(result).replays, first(result).turns_again) == ((), 0)
    before = list(ran)
    turns = result.usage.turns
    result = await runtime.resume(yes(result))
    assert (result.status, result.text) == (Status.DONE, "top")
    assert ran == before
    assert result.usage.turns == turns + 3, "one more turn for each of the three"
    assert result.replay is not None
    assert result.replay.turns_bought_again == 0
    assert replayed(result) == []
    assert result.replay.calls_reused == ()
    assert result.replay.attempt == 1


@pytest.mark.parametrize("recorded", [REWIND, CONTINUE])
@pytest.mark.parametrize("chosen", [REWIND, CONTINUE, None])
async def test_the_policy_may_be_chosen_for_one_answer(
    recorded: ResumePolicy, chosen: ResumePolicy | None
) -> None:
    worker = agent(
        [call("t"), call("approve", what="a"), call("approve", what="b"), say("end")], counter("t"), approve
    )
    result, runtime = await worker.run("go", resume_policy=recorded)
    result = await runtime.resume(yes(result), policy=chosen)
    rewound = (chosen or recorded) is REWIND
    assert len(ran) == (2 if rewound else 1)
    assert result.status is Status.PENDING
    assert runtime.policy is recorded, "for this once"
    await runtime.resume(yes(result))
    assert len(ran) == (2 if rewound else 1) + (recorded is REWIND)


async def test_one_rewinding_answer_of_two_rewinds() -> None:
    batch = [call("approve", what="a"), call("approve", what="b")]
    for policies, times in (((CONTINUE, REWIND), 2), ((REWIND, CONTINUE), 2), ((CONTINUE, CONTINUE), 1)):
        ran.clear()
        result, runtime = await agent([call("t"), batch, say("end")], counter("t"), approve).run("go")
        for policy in policies:
            result = await runtime.resume(yes(result), policy=policy)
        assert result.status is Status.DONE
        assert len(ran) == times


async def test_the_committed_transcript_is_the_checkpoint_while_parked() -> None:
    @tool
    def note() -> str:
        """Note."""
        return "noted"

    worker = agent(
        lambda request: [call("note"), call("approve"), say("end")][
            sum(m.role == "assistant" for m in request.messages[_last_user(request) :])
        ],
        note, approve,
    )  # fmt: skip
    for policy in ResumePolicy:
        async with Runtime(worker, resume_policy=policy) as runtime:
            handle = await runtime.spawn(runtime.root, "w")
            one = await runtime.run_turn(handle, "one")
            assert runtime.transcript(handle) == ()
            await runtime.resume(yes(first(one)))
            settled = runtime.transcript(handle)
            assert [m.role for m in settled] == [
                "user",
                "assistant",
                "tool",
                "assistant",
                "tool",
                "assistant",
            ]
            two = await runtime.run_turn(handle, "two")
            assert two.status is Status.PENDING
            assert runtime.transcript(handle) == settled
            await runtime.resume(yes(first(two)))
            assert runtime.transcript(handle)[: len(settled)] == settled
            assert len(runtime.transcript(handle)) == 2 * len(settled)
            await runtime.close()


def _last_user(request: Any) -> int:
    return max(n for n, m in enumerate(request.messages) if m.role == "user")


async def test_continue_enters_only_the_calls_that_asked() -> None:
    batch = [call("t"), call("approve"), call("t", n=1), call("nope"), call("u")]
    worker = agent([batch, say("end")], counter("t"), counter("u", "reuse"), approve)
    result, runtime = await worker.run("go", resume_policy=CONTINUE)
    before = sorted(ran)
    result = await runtime.resume(yes(result))
    assert sorted(ran) == before == ["t0", "t1", "u0"]
    said = tools_said(runtime.transcript(result.handle))
    assert said[0] == "t0"
    assert said[1:3] == ["it: yes", "t1"]
    assert "nope" in said[3]
    assert said[4] == "u0"


async def test_a_reuse_tool_is_not_entered_again_an_error_result_included() -> None:
    @tool(on_replay="reuse")
    def fail() -> str:
        """Fail."""
        ran.append("fail")
        raise ValueError("no")

    worker = agent(
        [[call("fail"), call("u", n=1), call("u", n=1)], call("approve"), say("end")],
        fail,
        counter("u", "reuse"),
        approve,
    )
    result, runtime = await worker.run("go")
    assert sorted(ran) == ["fail", "u1", "u1"], "two calls alike are two calls"
    assert first(result).replays == ()
    result = await runtime.resume(yes(result))
    assert sorted(ran) == ["fail", "u1", "u1"]
    assert result.replay is not None
    assert sorted(c.tool for c in result.replay.calls_reused) == ["fail", "u", "u"]
    said = tools_said(runtime.transcript(result.handle))
    assert "ValueError: no" in said[0]
    assert said[1:] == ["u1", "u1", "it: yes"]


async def test_a_reuse_tool_the_replay_does_not_call_again_costs_nothing() -> None:
    rounds: list[int] = []

    def script(request: Any) -> Any:
        done = sum(m.role == "assistant" for m in request.messages)
        if done == 0:
            rounds.append(1)
            return call("u", n=len(rounds))
        return [call("approve"), say("end")][done - 1]

    result, runtime = await agent(script, counter("u", "reuse"), approve).run("go")
    result = await runtime.resume(yes(result))
    assert result.status is Status.DONE
    assert ran == ["u1", "u2"], "other arguments are another call"


async def test_numbers_never_go_down_and_attempts_count() -> None:
    attempts: list[int] = []

    @tool
    def look(ctx: Any = None) -> str:
        """Look."""
        return "seen"

    worker = agent(
        [call("look"), call("approve", what="a"), call("approve", what="b"), say("end")], look, approve
    )
    result, runtime = await worker.run("go")
    last = 0
    while result.status is Status.PENDING:
        assert result.total_tokens > last
        last = result.total_tokens
        result = await runtime.resume(yes(result))
        assert result.replay is not None
        attempts.append(result.replay.attempt)
    assert attempts == [2, 3]
    assert result.turns == 2 + 3 + 4
    assert result.usage.tool_calls == (1 + 1) + (1 + 1 + 1) + (1 + 1 + 1) - 0
