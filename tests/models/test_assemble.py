"""A reply put together from its pieces is the reply, however it was cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overt._text import clean
from overt.errors import ModelError
from overt.message import AssistantMessage, ModelDelta, ModelResponse, ToolCall, ToolCallDelta, Usage
from overt.models.arguments import parse_arguments
from overt.models.assemble import Assembler

END = ModelDelta(finish_reason="stop")
FINISHES: Any = st.sampled_from(["stop", "tool_calls", "length", "content_filter", "refusal", "unknown"])


def assembled(*deltas: ModelDelta) -> ModelResponse:
    made = Assembler()
    for delta in deltas:
        made.add(delta)
    return made.response()


def piece(index: int = 0, arguments: str | None = None, **fields: Any) -> ModelDelta:
    return ModelDelta(tool_call=ToolCallDelta(index=index, arguments=arguments, **fields))


# ------------------------------------------------------------------ any cut

texts = st.text(st.characters(codec=None, categories=None), max_size=12) | st.sampled_from(
    ["\ud83d\ude00", "a\ud83d\ude00b", "\ud800", 'é"\\', "\x00"]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
arguments = st.builds(
    json.dumps, st.dictionaries(texts, json_values, max_size=3), ensure_ascii=st.booleans()
) | st.sampled_from(["", "{", '{"a": "half', "[1]", "null", '{"a": 1, "a": 2}', '{"a": NaN}', "not json"])
calls_said = st.lists(
    st.tuples(
        st.none() | st.sampled_from(["", "x", "y", "call_9"]), st.sampled_from(["t", "u", "é"]), arguments
    ),
    max_size=4,
)
usages = st.none() | st.builds(
    Usage,
    input_tokens=st.integers(0, 99),
    output_tokens=st.integers(0, 99),
    cached_tokens=st.integers(0, 9),
    reasoning_tokens=st.integers(0, 9),
    total_tokens=st.integers(0, 200),
)


def whole(
    text: str,
    reasoning: str | None,
    calls: Sequence[tuple[str | None, str, str]],
    usage: Usage | None,
    finish: Any,
    opaque: dict[str, Any] | None,
) -> ModelResponse:
    """The reply as one that is not streamed is read."""
    made: list[ToolCall] = []
    invalid: dict[int, str] = {}
    for at, (id, name, raw) in enumerate(calls):
        read: dict[str, Any] = {}
        try:
            read = parse_arguments(raw)
        except ValueError:
            invalid[at] = clean(raw)
        made.append(ToolCall(id=f"call_{at}" if id is None else id, name=name, arguments=read))
    return ModelResponse(
        message=AssistantMessage(
            text=clean(text),
            reasoning=None if reasoning is None else clean(reasoning),
            tool_calls=tuple(made),
            opaque=opaque,
        ),
        usage=usage,
        finish_reason=finish,
        raw_finish_reason=f"raw {finish}",
        model="m-1",
        invalid_arguments=invalid,
    )


def cut(draw: st.DrawFn, text: str) -> list[str]:
    places = draw(st.lists(st.integers(0, len(text)), max_size=5))
    ends = [0, *sorted(places), len(text)]
    return [text[a:b] for a, b in pairwise(ends)]


def mixed(draw: st.DrawFn, queues: Sequence[Sequence[ModelDelta]]) -> list[ModelDelta]:
    """Pieces of several kinds in any order that keeps each kind's own."""
    order = draw(st.permutations([at for at, queue in enumerate(queues) for _ in queue]))
    left = [list(queue) for queue in queues]
    return [left[at].pop(0) for at in order]


@st.composite
def streams(draw: st.DrawFn) -> tuple[ModelResponse, list[ModelDelta]]:
    text = draw(texts)
    reasoning = draw(st.none() | texts)
    calls = draw(calls_said)
    usage = draw(usages)
    finish = draw(FINISHES)
    opaque: dict[str, Any] | None = draw(st.none() | st.just({"p": {"a": [1]}, "q": "s"}))
    queues: list[list[ModelDelta]] = [[ModelDelta(text=part) for part in cut(draw, text)]]
    if reasoning is not None:
        queues.append([ModelDelta(reasoning=part) for part in cut(draw, reasoning)])
    often = draw(st.booleans())
    for index, (id, name, raw) in enumerate(calls):
        first, *rest = cut(draw, raw)
        queue = [piece(index, first, id=id, name=name)]
        queue += [piece(index, part, id=id if often else None, name=name if often else "") for part in rest]
        queues.append(queue)
    if usage is not None:
        so_far = [Usage(input_tokens=usage.input_tokens, total_tokens=usage.input_tokens), usage, usage]
        queues.append([ModelDelta(usage=said) for said in so_far[draw(st.integers(0, 2)) :]])
    if opaque is not None:
        queues.append(
            [ModelDelta(opaque={"p": "before"}), ModelDelta(opaque={"q": "s"}), ModelDelta(opaque=opaque)]
        )
    queues.append([ModelDelta(model="m-0"), ModelDelta(model="m-1"), ModelDelta(model="")])
    queues.append([ModelDelta(finish_reason=finish, raw_finish_reason=f"raw {finish}")])
    queues.append([ModelDelta()] * draw(st.integers(0, 3)))
    said = mixed(draw, queues)
    # Calls are in the order of their indices, also where a later one comes first.
    return whole(text, reasoning, calls, usage, finish, opaque), said


@given(streams())
def test_however_a_reply_is_cut_it_is_the_same(stream: tuple[ModelResponse, list[ModelDelta]]) -> None:
    expected, deltas = stream
    assert assembled(*deltas) == expected


@given(streams(), st.data())
def test_a_stream_that_breaks_off_before_its_end_is_no_reply(
    stream: tuple[ModelResponse, list[ModelDelta]], data: st.DataObject
) -> None:
    deltas = stream[1]
    end = next(at for at, delta in enumerate(deltas) if delta.finish_reason is not None)
    with pytest.raises(ModelError) as caught:
        assembled(*deltas[: data.draw(st.integers(0, end))])
    assert (caught.value.type, caught.value.retryable) == ("StreamIncomplete", True)


# ------------------------------------------------------------------ single rules


def test_usage_said_again_is_not_added() -> None:
    usage = Usage(input_tokens=80, output_tokens=20, cached_tokens=7, reasoning_tokens=5, total_tokens=100)
    said = [ModelDelta(usage=usage), ModelDelta(text="x", usage=usage), ModelDelta(usage=None), END]
    assert assembled(*said, ModelDelta(usage=usage)).usage == usage


def test_the_last_usage_counts_for_every_counter() -> None:
    first = Usage(input_tokens=80, output_tokens=1, reasoning_tokens=1, total_tokens=81)
    last = Usage(input_tokens=80, output_tokens=20, cached_tokens=7, reasoning_tokens=5, total_tokens=100)
    assert assembled(ModelDelta(usage=first), END, ModelDelta(usage=last)).usage == last


def test_usage_nobody_said_is_unknown_and_not_zero() -> None:
    assert assembled(ModelDelta(text="x"), END).usage is None


def test_a_call_cut_off_by_the_output_limit_keeps_its_text() -> None:
    reply = assembled(
        piece(0, '{"path": "a', id="x", name="write"),
        piece(0, '", "te'),
        ModelDelta(finish_reason="length"),
    )
    assert reply.finish_reason == "length"
    assert reply.invalid_arguments == {0: '{"path": "a", "te'}
    assert reply.message.tool_calls[0].arguments == {}


def test_calls_of_one_id_stay_apart_by_their_index() -> None:
    reply = assembled(piece(0, "{}", id="same", name="a"), piece(1, "{}", id="same", name="b"), END)
    assert [(c.id, c.name) for c in reply.message.tool_calls] == [("same", "a"), ("same", "b")]


def test_calls_of_one_index_stay_apart_by_their_id() -> None:
    reply = assembled(
        piece(0, '{"n": ', id="one", name="a"),
        piece(0, "1}"),
        piece(0, '{"n": ', id="two", name="a"),
        piece(0, "2}", id="two"),
        END,
    )
    assert [(c.id, c.arguments) for c in reply.message.tool_calls] == [("one", {"n": 1}), ("two", {"n": 2})]


def test_calls_are_in_the_order_of_their_indices() -> None:
    reply = assembled(piece(2, "{}", name="c"), piece(0, "{}", name="a"), piece(1, "{}", name="b"), END)
    assert [(c.id, c.name) for c in reply.message.tool_calls] == [
        ("call_0", "a"),
        ("call_1", "b"),
        ("call_2", "c"),
    ]


def test_the_name_may_come_after_the_first_piece() -> None:
    reply = assembled(piece(0, "", id="x", name=""), piece(0, "{", name="late"), piece(0, "}"), END)
    assert [(c.name, c.arguments) for c in reply.message.tool_calls] == [("late", {})]


def test_empty_reasoning_is_not_none_and_none_is() -> None:
    assert assembled(ModelDelta(reasoning=""), END).message.reasoning == ""
    assert assembled(END).message.reasoning is None


def test_an_end_without_a_reason_is_unknown_where_the_model_says_so() -> None:
    assert assembled(ModelDelta(text="x"), ModelDelta(finish_reason="unknown")).finish_reason == "unknown"


def test_the_response_may_be_taken_again_and_shares_nothing() -> None:
    made = Assembler()
    for delta in (piece(0, '{"a": [1]}', name="t"), END):
        made.add(delta)
    first = made.response()
    first.message.tool_calls[0].arguments.clear()
    assert made.response().message.tool_calls[0].arguments == {"a": [1]}


def test_what_is_no_piece_is_named() -> None:
    wrong: Any = "text"
    with pytest.raises(TypeError, match="str, not a ModelDelta"):
        Assembler().add(wrong)
