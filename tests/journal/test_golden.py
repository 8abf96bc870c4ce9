"""Journals of every released schema: read as they were read then, and carried on to their end."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.core.sim import fold, tree_snapshot
from tests.golden.runs import RUNS, yes

from overt import Budget, Runtime, TaskResult
from overt.core import facts as f
from overt.errors import UnsupportedSchema
from overt.journal.codec import SCHEMA, decode, encode
from overt.journal.listing import run_status
from overt.journal.record import Record
from overt.journal.store import Owner
from overt.stores import MemoryStore, SQLiteStore, Store
from overt.testing._store_checks import now_is

FOLDER = Path(__file__).parent.parent / "golden"
PATHS = sorted(FOLDER.glob("v*.jsonl"))
golden = pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
one_loop = pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the loop plays no part in what is stored
START = datetime(2026, 1, 1, tzinfo=UTC)


def name_of(path: Path) -> str:
    return path.stem.partition("_")[2]


def records(path: Path) -> list[Record]:
    found: list[Record] = []
    position = 1
    for line in path.read_text(encoding="utf-8").splitlines():
        count = len(json.loads(line)["facts"])
        found.append(Record(position, count, text=line))
        position += count
    return found


async def stored(path: Path, store: Store, *, run_id: str | None = None) -> Store:
    """Put a golden journal into a store, as a process that is gone left it."""
    owner = Owner(id="gone")
    name = run_id or name_of(path)
    rows = records(path)
    claim = await store.create(
        name,
        rows,
        agent=RUNS[name_of(path)].agent.name,
        owner=owner,
        now=START,
        until=START + timedelta(seconds=30),
    )
    await store.append(name, (), after=rows[-1].last, epoch=claim.epoch, change=now_is(""), release=True)
    return store


def assert_says(now: Any, then: Any) -> None:
    """Assert that a value says all that an earlier release read; a later one may say more, never something else."""
    if isinstance(then, dict):
        for key, value in then.items():
            assert_says(now[key], value)
    elif isinstance(then, list):
        assert len(now) == len(then)
        for one, other in zip(now, then, strict=True):
            assert_says(one, other)
    else:
        assert now == then


def test_there_is_a_journal_of_each_kind() -> None:
    for name in RUNS:
        assert FOLDER / f"v{SCHEMA}_{name}.jsonl" in PATHS, "python -m tools.golden writes it"


@pytest.mark.parametrize("policy", ["rewind", "continue"])
@pytest.mark.parametrize("stands", ["pending", "running", "done"])
@pytest.mark.parametrize("schema", range(1, SCHEMA + 1))
def test_there_is_one_of_each_policy_parked_crashed_and_finished(
    schema: int, stands: str, policy: str
) -> None:
    found = [
        path
        for path in PATHS
        if path.stem.startswith(f"v{schema}_")
        for tree in [fold([decode("run", rec) for rec in records(path)])]
        if (tree.policy, run_status(tree)) == (policy, stands)
    ]
    assert found


def test_every_fact_that_is_easy_to_come_by_is_in_one() -> None:
    kinds = {type(x) for path in PATHS for rec in records(path) for x in decode("run", rec)[1]}
    rare = {
        f.HistorySeeded, f.WakeQueued, f.ModelAwaited, f.Diverged, f.HostAsked, f.HostPassed,
        f.NotifyAsked, f.Notified, f.ResumeQueued, f.RewindAsked, f.WakeDropped, f.ReopenQueued, f.WakeReopened,
        f.RequestCancelled, f.BudgetRaised, f.EffectLost, f.DriverLost, f.WakeGivenUp,
    }  # fmt: skip
    assert set(f.FACTS.values()) - kinds <= rare


@golden
@one_loop
async def test_it_reads_as_it_did(path: Path) -> None:
    seen = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    name = name_of(path)
    store = await stored(path, MemoryStore())
    runtime = await Runtime.open(RUNS[name].agent, name, **RUNS[name].options(store))
    result = runtime.result().model_dump(mode="json")
    handles = [view.model_dump(mode="json") for view in runtime.list()]
    shown = [m.model_dump(mode="json") for m in runtime.transcript(runtime.result().handle)]
    assert_says({"result": result, "handles": handles, "transcript": shown}, seen)
    assert not (await store.read(name))[len(records(path)) :], "opening wrote something"


@golden
@one_loop
async def test_it_is_carried_on_to_its_end(path: Path, tmp_path: Path) -> None:
    case, name = RUNS[name_of(path)], name_of(path)
    store = await stored(path, SQLiteStore(tmp_path / "runs.db"))
    runtime: Runtime[Any] = await Runtime.open(case.agent, name, **case.options(store))
    result: TaskResult[Any] = await runtime.recover()
    for _ in range(5):
        if result.status == "pending":
            result = await runtime.resume(yes(result))
        elif result.status == "incomplete":
            result = await runtime.extend(Budget(max_tool_calls=20))
    assert (result.status, result.text) == (case.status, case.ends)
    assert result.total_tokens == case.tokens
    usage, (unreported, charged) = result.usage, odd_calls(runtime)
    assert usage.model_calls == usage.turns + usage.unreported_calls - unreported + charged
    await store.close()


def odd_calls(runtime: Runtime[Any]) -> tuple[int, int]:
    """Replies without usage, turns that count as unreported too; and failures with one, which are neither."""
    facts = [fact for _, _, found in runtime._driver.log for fact in found]
    return (
        sum(isinstance(fact, f.ModelReplied) and fact.tokens is None for fact in facts),
        sum(isinstance(fact, f.ModelFailed) and fact.tokens is not None for fact in facts),
    )


@golden
def test_it_can_be_read_without_any_agent(path: Path) -> None:
    tree = fold([decode("run", rec) for rec in records(path)])
    assert tree.run_id == name_of(path)
    again = fold([decode("run", rec) for rec in records(path)])
    assert tree_snapshot(tree) == tree_snapshot(again)
    whole = path.read_text(encoding="utf-8")
    assert "tests." not in whole, "a journal names no import path"


@pytest.mark.parametrize("path", [p for p in PATHS if p.stem.startswith(f"v{SCHEMA}_")], ids=lambda p: p.stem)
def test_the_present_schema_is_still_written_so(path: Path) -> None:
    for rec in records(path):
        assert encode(*decode("run", rec)) == rec.text, "the format has changed: it needs a higher schema"


@golden
@one_loop
async def test_the_same_journal_of_a_newer_release_is_refused(path: Path) -> None:
    name, store = name_of(path), MemoryStore()
    last = records(path)[-1]
    newer = json.dumps(json.loads(last.text) | {"v": SCHEMA + 1})
    rows = [*records(path)[:-1], Record(last.position, last.count, text=newer)]
    await store.create(name, rows, agent="clerk", owner=Owner(id="gone"), now=START, until=START)
    with pytest.raises(UnsupportedSchema, match=f"run {name}, position {last.position}: "):
        await Runtime.open(RUNS[name].agent, name, **RUNS[name].options(store))
