"""A run that asks after 50 turns, is written down as text, read from it, and answered under CONTINUE."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from time import process_time
from typing import Any

from benchmarks import floor
from benchmarks.common import Numbers, Row, main, repeat, row
from benchmarks.workload import Script, approver

from overt import Answer, ResumePolicy, Runtime, Status
from overt.journal.record import Record
from overt.journal.store import Owner
from overt.stores import MemoryStore

TURNS = 50
NOW = datetime(2024, 1, 1, tzinfo=UTC)


async def ours() -> Numbers:
    model = Script(TURNS, last="danger", marks={TURNS})
    store = MemoryStore()
    start = process_time()
    parked, runtime = await approver.run("go", model=model, store=store, resume_policy=ResumePolicy.CONTINUE)
    suspended = process_time()
    lines = [f"{r.position} {r.count} {r.text}" for r in await store.read(runtime.id)]
    text = "\n".join(lines).encode()
    written = process_time()
    assert parked.status is Status.PENDING, parked
    assert parked.pending is not None

    fresh = MemoryStore()
    records: list[Record] = []
    for line in text.decode().split("\n"):
        position, count, rest = line.split(" ", 2)
        records.append(Record(int(position), int(count), text=rest))
    claim = await fresh.create(
        runtime.id, records, agent="approver", owner=Owner(id="writer"), now=NOW, until=NOW + timedelta(1)
    )
    await fresh.release(runtime.id, epoch=claim.epoch)
    again = await Runtime.open(approver, runtime.id, model=model, store=fresh)
    loaded = process_time()
    answer: Answer[Any] = Answer(id=parked.pending.id, ok=True)
    result = await again.resume(answer)
    resumed = process_time()

    assert result.status is Status.DONE, result
    assert result.turns == TURNS + 2, result
    assert result.replay is None or result.replay.turns_bought_again == 0, result
    return _numbers(start, model.stamps[TURNS], suspended, written, loaded, resumed, len(text))


async def bare() -> Numbers:
    async def tool(x: int) -> str:
        return "ok"

    model = floor.FloorModel(TURNS, last="danger", marks={TURNS})
    tools: floor.Tools = {"noop": tool, "danger": tool}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    start = process_time()
    assert await floor.loop(model, tools, messages, usage=[0, 0], gated="danger") is None
    suspended = process_time()
    text = json.dumps(messages).encode()
    written = process_time()
    messages = json.loads(text)
    loaded = process_time()
    call = messages[-1]["tool_calls"][0]
    out = await tools["danger"](**json.loads(call["arguments"]))
    messages.append({"role": "tool", "tool_call_id": call["id"], "content": out})
    assert await floor.loop(model, tools, messages, usage=[0, 0]) == "done"
    return _numbers(start, model.stamps[TURNS], suspended, written, loaded, process_time(), len(text))


def _numbers(
    start: float,
    asking: float,
    suspended: float,
    written: float,
    loaded: float,
    resumed: float,
    size: int,
) -> Numbers:
    return {
        "turns": (asking - start) * 1e3,
        "suspend": (suspended - asking) * 1e3,
        "write": (written - suspended) * 1e3,
        "load": (loaded - written) * 1e3,
        "resume": (resumed - loaded) * 1e3,
        "all": (resumed - asking) * 1e3,
        "size": size / 1000,
    }


PARTS = {
    "suspend": "the asking turn, until run() has returned the pending result",
    "write": "the journal of all 50 turns as text",
    "load": "records made from the text, Runtime.open on a fresh store",
    "resume": "the answer, until resume() has returned the finished result: one tool, one turn",
}


async def measure(args: argparse.Namespace) -> Iterable[Row]:
    """CPU time from the asking model call to the finished result, and bytes while parked."""
    times, warm = (1, 1) if args.quick else (25, 3)
    got = await repeat({"floor": bare, "ours": ours, "ours without gc": ours}, times=times, warm=warm)
    ours_, floor_, no_gc = got["ours"], got["floor"], got["ours without gc"]
    whole = row(
        f"parked after {TURNS} turns, and resumed",
        ours_["all"],
        "ms CPU",
        floor=floor_["all"],
        without_gc=no_gc["all"],
        target=("value", "<=", 3),
        note="the four parts below; without the 50 turns before",
    )
    parts = [
        row(f"  {name}", ours_[name], "ms CPU", floor=floor_[name], without_gc=no_gc[name], note=note)
        for name, note in PARTS.items()
    ]
    size = row(
        f"parked run of {TURNS} turns", ours_["size"], "kB", floor=floor_["size"], target=("value", "<=", 25)
    )
    return [whole, *parts, size]


if __name__ == "__main__":
    main(measure)
