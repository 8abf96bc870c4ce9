"""Journals of earlier schemas: brought to the present one when they are read, by a table that is made up here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.golden.runs import RUNS, yes
from tests.journal.test_golden import PATHS, START, assert_says, name_of, records

from overt import Runtime, TaskResult
from overt.core import facts as f
from overt.errors import JournalCorrupt, UnsupportedSchema
from overt.journal import codec
from overt.journal.codec import CHECKED, SCHEMA, decode, encode, seal
from overt.journal.loading import load
from overt.journal.record import Record
from overt.journal.store import Owner
from overt.journal.upcasts import UPCASTS, Upcast, each, same, upcast
from overt.stores import MemoryStore, SQLiteStore
from overt.testing._store_checks import now_is

# Schema 1 called a prompt `text`; schema 2 counted in milliseconds; schema 3 is what facts are made of.


def said(fact: dict[str, Any]) -> None:
    fact["prompt"] = fact.pop("text")


def finer(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"at": row["at"] * 1000}


MADE_UP: dict[int, Upcast] = {1: each("wake_started", said), 2: finer}


def as_schema(version: int, text: str) -> str:
    """Write a record as an earlier release would have."""
    row = json.loads(text)
    if version < 3:
        assert row["at"] % 1000 == 0
        row["at"] //= 1000
    if version < 2:
        for fact in row["facts"]:
            if fact["kind"] == "wake_started":
                fact["text"] = fact.pop("prompt")
    return sealed(row, version)


def sealed(row: dict[str, Any], version: int) -> str:
    """Write a record with the checksum that schemas from 2 on have."""
    body = {key: value for key, value in row.items() if key not in ("v", "sum")}
    if version < CHECKED:
        return json.dumps({"v": version} | body)
    return seal(json.dumps(body).encode(), version=version)


@pytest.fixture
def third(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release whose schema is 3."""
    monkeypatch.setattr(codec, "SCHEMA", 3)
    monkeypatch.setattr(codec, "UPCASTS", MADE_UP)


FACTS: list[f.Fact] = [f.WakeStarted("root/a.1", "go"), f.ModelCalled("root/a.1", 1)]


@pytest.mark.usefixtures("third")
@pytest.mark.parametrize("version", [1, 2, 3])
def test_each_schema_is_read_as_the_present_one(version: int) -> None:
    text = as_schema(version, encode(7000, FACTS))
    assert json.loads(text)["v"] == version
    assert decode("r", Record(1, 2, text=text)) == (7000, FACTS)


def test_upcasts_are_applied_in_order_and_each_once() -> None:
    seen: list[int] = []

    def note(version: int) -> Upcast:
        def cast(row: dict[str, Any]) -> dict[str, Any]:
            assert row["v"] == version
            seen.append(version)
            return row

        return cast

    row = upcast({"v": 2, "at": 1, "facts": []}, to=5, upcasts={n: note(n) for n in range(1, 5)})
    assert (seen, row["v"]) == ([2, 3, 4], 5)
    assert upcast(row, to=5, upcasts={}) == row
    assert upcast(dict(row), to=6, upcasts={5: same}) == row | {"v": 6}


def test_there_is_an_upcast_from_every_earlier_schema() -> None:
    assert sorted(UPCASTS) == list(range(1, SCHEMA))


@pytest.mark.usefixtures("third")
@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the loop plays no part in what is new here
async def test_a_journal_of_several_schemas_reads_and_is_carried_on(path: Path, tmp_path: Path) -> None:
    """Its first third is of schema 1, the next of schema 2; what is appended is of schema 3."""
    case, name, rows = RUNS[name_of(path)], name_of(path), records(path)
    third = -(-len(rows) // 3)
    mixed = [
        Record(rec.position, rec.count, text=as_schema(min(1 + at // third, 3), rec.text))
        for at, rec in enumerate(rows)
    ]
    store = SQLiteStore(tmp_path / "runs.db")
    owner = Owner(id="gone")
    claim = await store.create(name, mixed, agent=case.agent.name, owner=owner, now=START, until=START)
    await store.append(name, (), after=mixed[-1].last, epoch=claim.epoch, change=now_is(""), release=True)
    runtime: Runtime[Any] = await Runtime.open(case.agent, name, **case.options(store))
    seen = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["result"]
    result = runtime.result().model_dump(mode="json")
    assert_says(result, seen)
    done: TaskResult[Any] = await runtime.recover()
    for _ in range(5):
        if done.status == "pending":
            done = await runtime.resume(yes(done))
    if done.status != "incomplete":
        assert (done.status, done.text) == (case.status, case.ends)
    written = {json.loads(rec.text)["v"] for rec in (await store.read(name))[len(rows) :]}
    assert written <= {3}
    await store.close()


@pytest.mark.usefixtures("third")
@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"v": 1, "at": 1, "facts": [{"kind": "wake_started", "handle": "h"}]}, "'text'"),
        ({"v": 1, "at": 1}, "'facts'"),
        ({"v": 1, "at": 1, "facts": 3}, "TypeError"),
        ({"v": 1, "at": 1, "facts": ["wake_started"]}, "TypeError"),
        ({"v": 2, "facts": []}, "'at'"),
    ],
)
def test_damage_that_an_upcast_meets_names_run_and_position(row: dict[str, Any], what: str) -> None:
    with pytest.raises(JournalCorrupt, match=what) as caught:
        decode("run-7", Record(12, 1, text=sealed(row, row["v"])))
    assert str(caught.value).startswith(
        f"run run-7, position 12: the record of schema {row['v']} cannot be brought to schema 3 "
    )


def test_an_upcast_that_moves_positions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "SCHEMA", 2)
    monkeypatch.setattr(codec, "UPCASTS", {1: lambda row: row | {"facts": row["facts"][:1]}})
    text = as_schema(1, encode(1000, FACTS))
    with pytest.raises(JournalCorrupt, match="made 1 facts of 2"):
        decode("r", Record(1, 1, text=text))


@pytest.mark.usefixtures("third")
@pytest.mark.parametrize("version", [0, -1, None, "2", 1.0, True, 4, 99])
async def test_no_other_schema_is_guessed_at(version: object) -> None:
    store, owner = MemoryStore(), Owner(id="gone")
    good = encode(1, [f.RunOpened("r", "a", "rewind", '{"agents":{}}')])
    strange = json.dumps(json.loads(encode(1, FACTS)) | {"v": version})
    rows = [Record(1, 1, text=good), Record(2, 2, text=strange)]
    await store.create("r", rows, agent="a", owner=owner, now=START, until=START)
    newer = type(version) is int and version > 3
    with pytest.raises(UnsupportedSchema if newer else JournalCorrupt) as caught:
        await load(store, "r")
    assert str(caught.value).startswith(f"run r, position 2: the record has schema {version!r}")


@pytest.mark.parametrize(
    ("fact", "what"),
    [
        ({"kind": "wake_melted", "handle": "h"}, "kind 'wake_melted' cannot be read: there is no such kind"),
        ({"kind": "wake_parked", "handle": "h", "mood": 1}, "kind 'wake_parked' .*'mood'"),
        (
            {"kind": "call_asked", "handle": "h", "call": "c1", "request": "r", "slot": 0, "question": {"mood": 1}},
            "kind 'call_asked' .*'mood'",
        ),
        ({"kind": "wake_started", "handle": "h"}, "kind 'wake_started' .*'prompt'"),
        ({"handle": "h"}, "a fact cannot be read .*'kind'"),
        ("wake_parked", "a fact cannot be read"),
    ],
)  # fmt: skip
def test_what_this_schema_does_not_have_is_refused_by_its_kind(fact: object, what: str) -> None:
    text = sealed({"at": 1, "facts": [{"kind": "wake_parked", "handle": "h"}, fact]}, SCHEMA)
    with pytest.raises(JournalCorrupt, match=f"run r, position 5: .*{what}"):
        decode("r", Record(5, 2, text=text))
