"""A long transcript becomes a short one that any provider takes, and nothing but its older part is touched."""

from __future__ import annotations

import doctest
import itertools
import re
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

import overt.compaction
from overt import (
    Agent,
    AssistantMessage,
    Budget,
    DefinitionError,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    tool,
)
from overt.compaction import compactor, estimate_tokens
from overt.hooks import BeforeLLM, Hooks, LLMOverride
from overt.testing import MockModel, call, say

MARK = re.compile(r"\[Summary of (\d+) earlier messages, which it replaces\]\n\n(.*)", re.DOTALL)


def user(text: str) -> UserMessage:
    return UserMessage(text=text)


_ids = itertools.count()


def batch(calls: int, text: str = "", result: str = "ok") -> list[Message]:
    made = [ToolCall(id=f"c{next(_ids)}", name="t", arguments={"text": text}) for _ in range(calls)]
    results = [ToolMessage(text=result, call_id=call.id, name="t") for call in made]
    return [AssistantMessage(text=text, tool_calls=tuple(made)), *results]


def event(messages: Sequence[Message]) -> BeforeLLM:
    return BeforeLLM(handle="root/a.1", turn=1, model="m", messages=tuple(messages), tools=())


async def compacted(messages: Sequence[Message], **options: Any) -> tuple[Message, ...] | None:
    override = await compactor(**{"summarize": lambda _: "what happened", **options})(event(messages))
    if override is None:
        return None
    assert isinstance(override, LLMOverride)
    assert override.tools is None
    assert override.messages is not None
    return tuple(override.messages)


def summaries(messages: Sequence[Message]) -> list[tuple[int, str]]:
    found = [MARK.fullmatch(m.text) for m in messages if isinstance(m, UserMessage)]
    return [(int(m[1]), m[2]) for m in found if m is not None]


def assert_valid(messages: Sequence[Message]) -> None:
    """Every call is answered right after it, in order, and nothing else is answered."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert waiting
            assert waiting.pop(0) == message.call_id
        else:
            assert not waiting
            if isinstance(message, AssistantMessage):
                waiting = [call.id for call in message.tool_calls]
    assert not waiting


def same(left: Sequence[object], right: Sequence[object]) -> bool:
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))


def test_the_examples_run() -> None:
    done = doctest.testmod(overt.compaction)
    assert done.attempted >= 4
    assert not done.failed


# ------------------------------------------------------------------ any transcript, any parameters

texts = st.sampled_from(["", "a", "b" * 40, "é" * 30, "c" * 400])


@st.composite
def _transcripts(draw: st.DrawFn) -> list[Message]:
    messages: list[Message] = [SystemMessage(text=text) for text in draw(st.lists(texts, max_size=1))]
    for kind in draw(st.lists(st.sampled_from(["user", "said", "batch", "batch"]), max_size=14)):
        if kind == "user":
            messages.append(user(draw(texts)))
        elif kind == "said":
            messages.append(AssistantMessage(text=draw(texts), reasoning=draw(st.none() | texts)))
        else:
            messages += batch(draw(st.integers(1, 5)), draw(texts), draw(texts))
    return messages


@given(
    transcript=_transcripts(),
    more=_transcripts(),
    max_tokens=st.integers(1, 300),
    keep_tail=st.integers(1, 12),
    summary=st.text(min_size=1, max_size=300).filter(str.strip),
)
def test_any_transcript_stays_valid_and_shrinks(
    transcript: list[Message], more: list[Message], max_tokens: int, keep_tail: int, summary: str
) -> None:
    given_: list[Sequence[Message]] = []

    def summarize(messages: Sequence[Message]) -> str:
        given_.append(messages)
        return summary

    async def once(messages: Sequence[Message]) -> Sequence[Message]:
        given_.clear()
        made = await compacted(messages, max_tokens=max_tokens, keep_tail=keep_tail, summarize=summarize)
        if made is None:
            return messages
        assert estimate_tokens(messages) > max_tokens
        assert_valid(made)
        assert estimate_tokens(made) < estimate_tokens(messages)
        tail = min(keep_tail, len(messages))
        assert same(made[-tail:], messages[-tail:])
        # Everything is either there as it was, in its order, or was handed to be summarised.
        kept = [m for m in made if any(m is old for old in messages)]
        assert len(kept) == len(made) - 1
        (replaced,) = given_
        assert len(kept) + len(replaced) == len(messages)
        order = [next(i for i, old in enumerate(messages) if old is m) for m in kept]
        assert order == sorted(order)
        ((count, _),) = summaries(made)
        older = sum(n for n, _ in summaries(messages))
        assert count == len(replaced) - len(summaries(messages)) + older
        return made

    async def main() -> None:
        await once([*await once(transcript), *[m for m in more if not isinstance(m, SystemMessage)]])

    anyio.run(main)


# ------------------------------------------------------------------ what is replaced


def long(turns: int) -> list[Message]:
    return [m for _ in range(turns) for m in batch(1, "x" * 100)]


def never(messages: Sequence[Message]) -> str:
    raise AssertionError


async def test_a_short_transcript_is_left_alone() -> None:
    messages = [user("task"), *long(5)]
    assert (
        await compacted(messages, max_tokens=estimate_tokens(messages), keep_tail=1, summarize=never) is None
    )
    assert await compacted(messages, max_tokens=estimate_tokens(messages) - 1, keep_tail=1) is not None


async def test_the_task_stays_in_front_and_the_summary_follows() -> None:
    messages = [SystemMessage(text="be brief"), user("task"), *long(10)]
    made = await compacted(messages, max_tokens=100, keep_tail=4)
    assert made is not None
    assert same(made[:2], messages[:2])
    assert made[2] == user("[Summary of 16 earlier messages, which it replaces]\n\nwhat happened")
    assert same(made[3:], messages[-4:])


async def test_a_task_that_is_long_itself_is_summarised() -> None:
    messages = [user("t" * 100), *long(10)]
    for max_tokens, kept in ((100, False), (101, True)):
        made = await compacted(messages, max_tokens=max_tokens, keep_tail=4)
        assert made is not None
        assert (made[0] is messages[0]) == kept
        assert summaries(made)[0][0] == (16 if kept else 17)


async def test_what_was_asked_last_stays_too() -> None:
    messages = [user("first"), *long(3), user("second"), *long(3), user("third"), *long(6)]
    made = await compacted(messages, max_tokens=100, keep_tail=4)
    assert made is not None
    assert [m.text for m in made[:2]] == ["first", "third"]
    assert summaries(made[2:3])
    assert same(made[3:], messages[-4:])
    again = await compacted([*made, user("fourth"), *long(4)], max_tokens=100, keep_tail=4)
    assert again is not None
    assert [m.text for m in again[:2]] == ["first", "fourth"]
    assert summaries(again) == [(6 + 1 + 6 + 8 + 4 + 1 + 4, "what happened")]


async def test_what_is_asked_in_the_tail_makes_the_one_before_old() -> None:
    messages = [user("first"), *long(3), user("second"), *long(6), user("third")]
    made = await compacted(messages, max_tokens=100, keep_tail=2)
    assert made is not None
    assert made[0] is messages[0]
    assert "second" not in [m.text for m in made]
    assert made[-1] is messages[-1]


@pytest.mark.parametrize("keep_tail", range(1, 11))
async def test_a_cut_inside_a_batch_moves_before_it(keep_tail: int) -> None:
    messages = [user("task"), *batch(2, "x" * 100), *batch(9, "y" * 100)]
    made = await compacted(messages, max_tokens=10, keep_tail=keep_tail, summarize=lambda _: "s")
    assert made is not None
    assert_valid(made)
    assert made[0] is messages[0]
    assert same(made[2:], messages[4:])


async def test_results_that_come_late_or_out_of_order_keep_their_call() -> None:
    asked, result = batch(1, "x" * 200)
    one, two = batch(1, "y" * 200)
    messages = [user("t" * 99), asked, user("note " * 20), one, two, result, user("go on")]
    for keep_tail in (2, 3, 4, 5):
        made = await compacted(messages, max_tokens=40, keep_tail=keep_tail, summarize=lambda _: "s")
        assert made is not None
        assert same(made[1:], messages[1:])


async def test_two_calls_of_one_id_wait_for_two_results() -> None:
    twice = ToolCall(id="same", name="t")
    result = ToolMessage(text="x" * 200, call_id="same", name="t")
    messages: list[Message] = [user("t" * 99), AssistantMessage(tool_calls=(twice, twice)), result, result]
    made = await compacted(messages, max_tokens=20, keep_tail=1, summarize=lambda _: "s")
    assert made is not None
    assert same(made[1:], messages[1:])


async def test_one_giant_batch_is_left_alone() -> None:
    for messages in ([user("task"), *batch(9, "x" * 200)], batch(9, "x" * 200), [user("x" * 900)], []):
        assert await compacted(messages, max_tokens=50, keep_tail=3, summarize=never) is None


async def test_an_earlier_summary_is_taken_in_and_counted() -> None:
    seen: list[Sequence[Message]] = []

    def summarize(messages: Sequence[Message]) -> str:
        seen.append(messages)
        return f"round {len(seen)}"

    messages: Sequence[Message] = [user("task"), *long(10)]
    for number in range(1, 5):
        made = await compacted(messages, max_tokens=100, keep_tail=4, summarize=summarize)
        assert made is not None
        assert summaries(made) == [(16 + 10 * (number - 1), f"round {number}")]
        assert made[0].text == "task"
        messages = [*made, *long(5)]
    assert seen[1][0].text.endswith("\n\nround 1")


async def test_a_summary_that_repeats_the_mark_has_it_once() -> None:
    def echo(messages: Sequence[Message]) -> str:
        return "[Summary of 7 earlier messages, which it replaces]\n\nbody"

    made = await compacted([user("task"), *long(10)], max_tokens=100, keep_tail=4, summarize=echo)
    assert made is not None
    assert summaries(made) == [(16, "body")]


async def test_a_summary_alone_is_not_summarised_again() -> None:
    messages = [user("task"), *long(10)]
    made = await compacted(messages, max_tokens=100, keep_tail=4)
    assert made is not None
    assert estimate_tokens(made) > 100
    assert await compacted(made, max_tokens=100, keep_tail=4, summarize=never) is None


async def test_a_summary_that_is_no_shorter_changes_nothing() -> None:
    messages = [user("task"), *long(10)]
    assert await compacted(messages, max_tokens=100, summarize=lambda _: "s" * 5000) is None


# ------------------------------------------------------------------ summarize


async def test_summarize_may_be_async_and_sees_what_goes() -> None:
    seen: list[Sequence[Message]] = []

    async def summarize(messages: Sequence[Message]) -> str:
        await anyio.lowlevel.checkpoint()
        seen.append(messages)
        return "half \ud800"

    messages = [user("task"), *long(10)]
    made = await compacted(messages, max_tokens=100, keep_tail=4, summarize=summarize)
    assert made is not None
    assert same(seen[0], messages[1:-4])
    assert summaries(made) == [(16, "half \ufffd")]


async def test_what_summarize_raises_is_let_through() -> None:
    def broken(messages: Sequence[Message]) -> str:
        raise ConnectionError("no model")

    with pytest.raises(ConnectionError, match="no model"):
        await compacted([user("task"), *long(10)], max_tokens=100, summarize=broken)


@pytest.mark.parametrize("given_", ["", " \n", None, 3, b"text"])
async def test_a_summary_that_is_no_text_is_refused(given_: object) -> None:
    with pytest.raises(TypeError, match="compactor: summarize has to return text, not"):
        await compacted([user("task"), *long(10)], max_tokens=100, summarize=lambda _: given_)


# ------------------------------------------------------------------ declaring


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_tokens": 0}, "max_tokens is an int of at least 1, not 0"),
        ({"max_tokens": -5}, "max_tokens is an int of at least 1, not -5"),
        ({"max_tokens": 1.5}, "max_tokens is an int of at least 1, not 1.5"),
        ({"max_tokens": True}, "max_tokens is an int of at least 1, not True"),
        ({"keep_tail": 0}, "keep_tail is an int of at least 1, not 0"),
        ({"keep_tail": None}, "keep_tail is an int of at least 1, not None"),
        ({"summarize": None}, "summarize has to be a function of the messages, not NoneType"),
        ({"summarize": "text"}, "summarize has to be a function of the messages, not str"),
    ],
)
def test_a_bad_declaration_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError, match=f"^compactor: {re.escape(says)}$"):
        compactor(**{"max_tokens": 100, "summarize": lambda _: "s", **options})


def test_it_is_a_hook() -> None:
    hooks = Hooks(before_llm=compactor(max_tokens=100, summarize=lambda messages: messages[0].text))
    assert hooks.before_llm is not None


def test_the_estimate_counts_text_arguments_and_reasoning() -> None:
    assert estimate_tokens([]) == 0
    assert estimate_tokens([SystemMessage(text="abcd"), user("é" * 2)]) == 2
    assert estimate_tokens([AssistantMessage(text="ab", reasoning="cd" * 5)]) == 3
    assert (
        estimate_tokens([AssistantMessage(tool_calls=(ToolCall(id="c", name="name", arguments={"a": "é"}),))])
        == 3
    )
    assert estimate_tokens([ToolMessage(text="abcdefgh", call_id="c", name="t")]) == 2
    parts = (TextPart(text="abcd"), ImagePart(data="x" * 400))
    assert estimate_tokens([UserMessage(text="abcd", parts=parts)]) == 2


# ------------------------------------------------------------------ in a run


async def test_a_long_run_stays_short_and_its_transcript_is_what_the_model_saw() -> None:
    @tool
    async def look(n: int) -> str:
        return "z" * 400

    replies = iter([*(call("look", n=n) for n in range(12)), say("seen")])
    model = MockModel(lambda _: next(replies))
    hook = compactor(max_tokens=600, keep_tail=4, summarize=lambda messages: f"looked {len(messages)} times")
    agent = Agent(
        "a", does="d", soul="be good", tools=[look], budget=Budget(max_turns=20), hooks=Hooks(before_llm=hook),
        model=model,
    )  # fmt: skip
    result, runtime = await agent.run("look around")
    assert result.text == "seen"
    requests = [request.messages for request in model.requests]
    assert max(len(messages) for messages in requests) == 13
    for messages in requests:
        assert_valid(messages)
        assert [m.text for m in messages[:2]] == ["be good", "look around"]
    found = [summaries(messages) for messages in requests]
    assert [len(one) for one in found] == [0] * 6 + [1] * 7
    assert [one[0] for one in found[6:]] == [(8, "looked 8 times")] * 4 + [(16, "looked 9 times")] * 3
    (view,) = runtime.list()
    assert runtime.transcript(view.id)[:-1] == requests[-1][1:]


async def test_a_summary_that_fails_ends_the_wake_as_the_hooks_fault() -> None:
    def broken(messages: Sequence[Message]) -> str:
        raise ConnectionError("no model")

    @tool
    async def look() -> str:
        return "z" * 400

    replies = iter([call("look"), call("look"), say("seen")])
    hook = compactor(max_tokens=50, keep_tail=1, summarize=broken)
    agent = Agent(
        "a", does="d", tools=[look], hooks=Hooks(before_llm=hook), model=MockModel(lambda _: next(replies))
    )
    result, _ = await agent.run("look around")
    assert result.error is not None
    assert (result.error.source, result.error.type) == ("hook", "ConnectionError")
