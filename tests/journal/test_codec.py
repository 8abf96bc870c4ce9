"""The journal's text: what is written comes back, what is damaged or too new is refused by name and place."""

from __future__ import annotations

import json
import re
from types import GenericAlias
from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overt import Budget
from overt.core import facts as f
from overt.errors import JournalCorrupt, StoreError, UnsupportedSchema
from overt.journal.codec import SCHEMA, decode, encode, record
from overt.journal.record import Record

# Anything a driver may hand over: cleaned text, so no lone surrogates, and NUL is kept.
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
whole = st.integers(0, 2**63)
number = st.floats(allow_nan=False, allow_infinity=False)


FIELDS: dict[object, st.SearchStrategy[Any]] = {
    str: text,
    int: whole,
    bool: st.booleans(),
    str | None: st.none() | text,
    int | None: st.none() | whole,
    float | None: st.none() | number,
}


def of(cls: type[Any], name: str, kind: object) -> st.SearchStrategy[Any]:
    """The values of a field; some texts are JSON themselves."""
    if (cls, name) in {(f.Question, "data"), (f.Question, "schema"), (f.AnswerGiven, "data")}:
        return st.dictionaries(text, text | st.none(), max_size=2).map(json.dumps)
    if (cls, name) in {(f.ArgumentsUpgraded, "before"), (f.ArgumentsUpgraded, "after")}:
        return st.dictionaries(text, whole, max_size=2).map(json.dumps)
    if (cls, name) == (f.Overridden, "messages"):
        return st.none() | st.lists(text, max_size=2).map(json.dumps)
    return FIELDS[kind]


def nested(cls: type[Any]) -> st.SearchStrategy[Any]:
    """A named tuple; fields that have a default keep it often. A field of an unknown kind is a KeyError here."""
    defaults: dict[str, Any] = cls._field_defaults
    fields = {
        name: of(cls, name, kind) if name not in defaults else st.just(defaults[name]) | of(cls, name, kind)
        for name, kind in get_type_hints(cls).items()
    }
    return st.builds(cls, **fields)


FIELDS[tuple[str, ...]] = st.lists(text, max_size=3).map(tuple)
FIELDS[tuple[str, ...] | None] = st.none() | FIELDS[tuple[str, ...]]
for part in (f.Caps, f.Tokens, f.ErrorSpec, f.Question, f.Said, f.RulingSpec, f.CallSpec):
    FIELDS[part] = nested(part)
    FIELDS[part | None] = st.none() | FIELDS[part]
    # As an expression, because `part` is no type to a checker.
    FIELDS[GenericAlias(tuple, (part, ...))] = st.lists(FIELDS[part], max_size=3).map(tuple)

any_fact: st.SearchStrategy[f.Fact] = st.one_of([nested(cls) for cls in f.FACTS.values()])


def through(at: int, facts: list[f.Fact]) -> tuple[int, list[f.Fact]]:
    return decode("run", Record(1, len(facts), text=record(1, at, facts).text))


@pytest.mark.parametrize("cls", f.FACTS.values(), ids=f.FACTS)
def test_each_fact_comes_back(cls: type[f.Fact]) -> None:
    @settings(max_examples=40)
    @given(nested(cls), whole)
    def check(fact: f.Fact, at: int) -> None:
        back = through(at, [fact])
        assert back == (at, [fact])
        assert type(back[1][0]) is cls

    check()


@given(st.lists(any_fact, min_size=1, max_size=6), whole)
def test_several_facts_come_back_in_order(facts: list[f.Fact], at: int) -> None:
    """A handle that is left out is that of the fact before, so what stands between them matters."""
    back = through(at, facts)[1]
    assert back == facts
    assert [type(x) for x in back] == [type(x) for x in facts]


@pytest.mark.parametrize("version", [1, 2])
def test_a_schema_that_became_another_is_found(version: int) -> None:
    """One bit is between 3 and 1, and between 3 and 2."""
    text = encode(7, [f.ResumeBegun("resume")])
    assert decode("r", Record(4, 1, text=text))
    changed = text.replace('{"v":3,', f'{{"v":{version},', 1)
    with pytest.raises(JournalCorrupt, match="run r, position 4: the record"):
        decode("r", Record(4, 1, text=changed))


def test_defaults_and_repeated_handles_are_left_out() -> None:
    facts: list[f.Fact] = [
        f.WakeStarted("root/a.1", "go"),
        f.ModelCalled("root/a.1", 1, 1000),
        f.ModelReplied("root/a.1", 1, "hi", tokens=f.Tokens(80, 20)),
        f.WakeSettled("root/b.2", "done"),
        f.ResumeBegun("resume"),
        f.HandleClosed("root/b.2"),
    ]
    written = json.loads(encode(7, facts))
    assert re.fullmatch("[0-9a-f]{8}", written.pop("sum"))
    assert written == {
        "v": 3,
        "at": 7,
        "facts": [
            {"kind": "wake_started", "handle": "root/a.1", "prompt": "go"},
            {"kind": "model_called", "effect": 1, "reserve": 1000},
            {"kind": "model_replied", "effect": 1, "text": "hi", "tokens": [80, 20]},
            {"kind": "wake_settled", "handle": "root/b.2", "status": "done"},
            {"kind": "resume_begun", "verb": "resume"},
            {"kind": "handle_closed"},
        ],
    }
    assert through(7, facts) == (7, facts)


def test_the_text_is_compact_utf8_with_nul_kept() -> None:
    written = encode(1, [f.WakeStarted("root/a.1", "é😀\x00")])
    assert "é😀\\u0000" in written
    assert ": " not in written
    assert through(1, [f.WakeStarted("root/a.1", "é😀\x00")])[1] == [f.WakeStarted("root/a.1", "é😀\x00")]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_no_json_is_not_written(number: float) -> None:
    """The one number in the facts that is not whole comes from a budget, which refuses them."""
    with pytest.raises(ValueError, match="finite"):
        Budget(max_wall=number)
    hints = {name: get_type_hints(cls) for name, cls in f.FACTS.items()}
    assert not [name for name, fields in hints.items() if float in fields.values()]


GOOD: dict[str, Any] = {"v": 1, "at": 5, "facts": [{"kind": "wake_parked", "handle": "root/a.1"}]}


@pytest.mark.parametrize(
    ("damaged", "what"),
    [
        ("", "no journal record"),
        (json.dumps(GOOD)[:-1], "no journal record"),
        ("[]", "no journal record"),
        ("null", "no journal record"),
        ("{}", "no journal record"),
        (json.dumps(GOOD) + "x", "no journal record"),
        ("[" * 20_000, "no journal record"),
        (json.dumps(GOOD | {"v": 0}), "schema 0"),
        (json.dumps(GOOD | {"v": None}), "schema None"),
        (json.dumps(GOOD | {"v": "1"}), "schema '1'"),
        (json.dumps(GOOD | {"v": True}), "schema True"),
        (json.dumps({"v": 1, "facts": GOOD["facts"]}), "cannot be read"),
        (json.dumps({"v": 1, "at": 5}), "cannot be brought"),
        (json.dumps(GOOD | {"at": "soon"}), "cannot be read"),
        (json.dumps(GOOD | {"at": 1.5}), "cannot be read"),
        (json.dumps(GOOD | {"facts": None}), "cannot be brought"),
        (json.dumps(GOOD | {"facts": {"kind": "wake_parked"}}), "cannot be read"),
        (json.dumps(GOOD | {"facts": [1]}), "cannot be read"),
        (json.dumps(GOOD | {"facts": [{"handle": "root/a.1"}]}), "cannot be read"),
        (json.dumps(GOOD | {"facts": [{"kind": "wake_melted", "handle": "root/a.1"}]}), "wake_melted"),
        (json.dumps(GOOD | {"facts": [{"kind": ["wake_parked"]}]}), "cannot be read"),
        (json.dumps(GOOD | {"facts": [{"kind": "wake_parked", "handle": "root/a.1", "mood": 1}]}), "mood"),
        (json.dumps(GOOD | {"facts": [{"kind": "wake_parked"}]}), "handle"),
        (json.dumps(GOOD | {"facts": [{"kind": "wake_started", "handle": "root/a.1"}]}), "prompt"),
        (
            json.dumps(
                GOOD | {"facts": [{"kind": "model_replied", "handle": "h", "effect": 1, "tokens": 3}]}
            ),
            "cannot be read",
        ),
        (json.dumps(GOOD | {"facts": []}), "holds 0 facts"),
        (json.dumps(GOOD | {"facts": [*GOOD["facts"], *GOOD["facts"]]}), "holds 2 facts"),
        ('{"v":1,"at":NaN,"facts":[{"kind":"wake_parked","handle":"h"}]}', "cannot be read"),
    ],
)
def test_damage_is_refused_with_run_and_position(damaged: str, what: str) -> None:
    with pytest.raises(JournalCorrupt, match=what) as caught:
        decode("run-7", Record(12, 1, text=damaged))
    assert str(caught.value).startswith("run run-7, position 12: ")


@given(st.integers(0, len(json.dumps(GOOD)) - 1))
def test_a_record_cut_off_anywhere_is_refused(at: int) -> None:
    with pytest.raises(JournalCorrupt, match="run r, position 3"):
        decode("r", Record(3, 1, text=json.dumps(GOOD)[:at]))


def test_a_newer_schema_is_refused_before_its_facts_are_read() -> None:
    newer = json.dumps({"v": SCHEMA + 1, "shape": "unknown"})
    with pytest.raises(UnsupportedSchema, match=rf"run r, position 3: .* schema {SCHEMA + 1}") as caught:
        decode("r", Record(3, 1, text=newer))
    assert isinstance(caught.value, StoreError)
    assert not isinstance(caught.value, JournalCorrupt)
