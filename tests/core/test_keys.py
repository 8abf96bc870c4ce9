from __future__ import annotations

import json
import string
from random import Random
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from overt.core.keys import call_key, idempotency_key, request_id

texts = (
    st.text(max_size=6)
    | st.text(st.characters(), max_size=3)
    | st.sampled_from(["", "a", "ab", "b", '"', ",", "\ud800"])
)
wholes = st.integers(0, 50)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
calls = st.tuples(
    texts, texts, wholes, texts, st.dictionaries(st.text(max_size=3), values, max_size=3), wholes
)


Call = tuple[str, str, int, str, dict[str, object], int]


def key(call: Call) -> str:
    run, handle, wake, tool, arguments, occurrence = call
    return idempotency_key(run, handle, wake, tool, json.dumps(arguments), occurrence)


def frozen(value: object) -> object:
    """Equality as JSON has it: 1 is 1.0, and no boolean."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return (type(value).__name__, value)
    if isinstance(value, dict):
        return ("object", frozenset((k, frozen(v)) for k, v in value.items()))
    if isinstance(value, list):
        return ("array", tuple(frozen(v) for v in value))
    return ("number", value)


@given(calls, calls)
def test_keys_are_equal_exactly_when_every_component_is(one: Call, other: Call) -> None:
    same = all(frozen(a) == frozen(b) for a, b in zip(one, other, strict=True))
    assert (key(one) == key(other)) is same


@given(calls, st.integers(0, 5), st.data())
def test_a_change_in_any_single_component_changes_the_key(
    call: Call, place: int, data: st.DataObject
) -> None:
    strategies = [
        texts,
        texts,
        wholes,
        texts,
        st.dictionaries(st.text(max_size=3), values, max_size=3),
        wholes,
    ]
    changed: list[Any] = list(call)
    changed[place] = data.draw(strategies[place].filter(lambda v: frozen(v) != frozen(call[place])))
    assert key(cast("Call", tuple(changed))) != key(call)


@given(texts, texts, st.integers(0, 12))
def test_texts_do_not_run_into_each_other(left: str, right: str, cut: int) -> None:
    whole = left + right
    moved = (whole[:cut], whole[cut:])
    if moved != (left, right):
        assert idempotency_key(*moved, 1, "t", "{}", 0) != idempotency_key(left, right, 1, "t", "{}", 0)
        assert request_id(*moved, 1, "k", 0) != request_id(left, right, 1, "k", 0)


@given(texts, texts, wholes, texts, wholes, st.integers(0, 4), st.data())
def test_request_ids_differ_in_every_component(
    run: str, handle: str, wake: int, word: str, ordinal: int, place: int, data: st.DataObject
) -> None:
    parts: list[Any] = [run, handle, wake, word, ordinal]
    changed = list(parts)
    changed[place] = data.draw((wholes if place in (2, 4) else texts).filter(lambda v: v != parts[place]))
    assert request_id(*changed) != request_id(*parts)


@given(st.dictionaries(st.text(max_size=4), values, max_size=5), st.randoms(use_true_random=False))
def test_order_of_keys_makes_no_difference(arguments: dict[str, object], random: Random) -> None:
    items = list(arguments.items())
    random.shuffle(items)
    assert key(("r", "h", 1, "t", dict(items), 0)) == key(("r", "h", 1, "t", arguments, 0))


def test_numbers_count_by_value() -> None:
    def of(text: str) -> str:
        return idempotency_key("r", "h", 1, "t", f'{{"n":{text}}}', 0)

    assert of("1") == of("1.0") == of("1e0") == of("10E-1")
    assert of("0") == of("-0.0") == of("-0") == of("0.0")
    assert of("0.1") == of("0.10") == of("1e-1")
    assert of("1e22") == of("10000000000000000000000")
    assert (
        len(
            {
                of("1"),
                of("-1"),
                of("1.5"),
                of("true"),
                of('"1"'),
                of("[1]"),
                of("null"),
                of("9007199254740993"),
            }
        )
        == 8
    )


def test_form() -> None:
    made = idempotency_key("run", "root/a.1", 1, "charge", '{"amount":5}', 0)
    assert len(made) == 32
    assert set(made) <= set(string.hexdigits.lower())
    asked = request_id("run", "root/a.1", 1, made, 0)
    assert asked.startswith("req_")
    assert len(asked) == 28
    assert set(asked[4:]) <= set(string.hexdigits.lower())


def test_keys_are_the_same_in_every_process_and_release() -> None:
    made = idempotency_key("run", "root/a.1", 1, "charge", '{"amount":5,"note":"é"}', 0)
    assert made == "69b894c0d47bafbdbd9411f8b7a96dfe"
    assert request_id("run", "root/a.1", 1, made, 0) == "req_cdb03b8cb811d1a16cf1707c"


@given(
    st.text(),
    st.text(),
    st.integers(1, 99),
    st.text(),
    st.dictionaries(
        st.text(),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.text()
            | st.floats(allow_nan=False, allow_infinity=False),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ),
    ),
)
def test_the_key_put_together_is_the_key_of_the_parsed_arguments(
    run_id: str, handle: str, wake: int, tool: str, arguments: dict[str, object]
) -> None:
    canonical = json.dumps(arguments, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert call_key(run_id, handle, wake, tool, canonical, 2) == idempotency_key(
        run_id, handle, wake, tool, canonical, 2
    )
