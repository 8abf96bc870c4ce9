"""B025: what an earlier release stored is read and carried on, what a later one stored is refused by name.

The golden journals are what earlier releases wrote; a store holds them as a process that is gone left it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.golden.runs import RUNS, yes
from tests.journal.test_golden import PATHS, START, name_of, records, stored

from overt import Runtime, TaskResult
from overt.errors import UnsupportedSchema
from overt.journal.codec import SCHEMA
from overt.journal.record import Record
from overt.journal.store import Owner
from overt.stores import SQLiteStore

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("schema", range(1, SCHEMA + 1))
async def test_a_store_of_an_earlier_release(schema: int, tmp_path: Path) -> None:
    """Every journal there is of it, in one file, with one from the future among them."""
    paths = [path for path in PATHS if path.stem.startswith(f"v{schema}_")]
    file = tmp_path / "runs.db"
    store = SQLiteStore(file)
    for path in paths:
        await stored(path, store)
    future = records(paths[0])
    text = json.dumps(json.loads(future[0].text) | {"v": SCHEMA + 1, "mood": "strange"})
    rows = [Record(1, future[0].count, text=text), *future[1:]]
    await store.create("future", rows, agent="clerk", owner=Owner(id="gone"), now=START, until=START)
    await store.close()

    store = SQLiteStore(file)
    for path in paths:
        name, case = name_of(path), RUNS[name_of(path)]
        runtime: Runtime[Any] = await Runtime.open(case.agent, name, **case.options(store))
        result: TaskResult[Any] = await runtime.recover()
        for _ in range(5):
            if result.status == "pending":
                result = await runtime.resume(yes(result))
        if result.status != "incomplete":
            assert (result.status, result.text) == (case.status, case.ends), name
    case = RUNS[name_of(paths[0])]
    with pytest.raises(
        UnsupportedSchema, match=f"run future, position 1: .* schema {SCHEMA + 1}, this release"
    ):
        await Runtime.open(case.agent, "future", **case.options(store))
    assert [rec.text for rec in await store.read("future")] == [rec.text for rec in rows], (
        "nothing was changed"
    )
    await store.close()


READS = """
import json, sys
import anyio
from overt.journal.loading import load
from overt.stores import SQLiteStore

async def main():
    store = SQLiteStore(sys.argv[1])
    tree, log = await load(store, sys.argv[2])
    print(json.dumps([tree.agent, len(log), sorted(tree.nodes)]))
    await store.close()

anyio.run(main)
assert not [name for name in sys.modules if name.startswith("tests")]
"""


@pytest.mark.parametrize("name", ["rewind_parked", "upgraded"])
async def test_no_code_of_the_user_is_needed_to_read_it(name: str, tmp_path: Path) -> None:
    path = next(path for path in PATHS if name_of(path) == name)
    store = SQLiteStore(tmp_path / "runs.db")
    await stored(path, store)
    await store.close()
    command = [sys.executable, "-c", READS, str(tmp_path / "runs.db"), name]
    ran = await anyio.run_process(command, check=False, cwd=Path(__file__).parents[2])
    assert ran.returncode == 0, ran.stderr.decode()
    agent, count, nodes = json.loads(ran.stdout)
    assert (agent, count) == (RUNS[name].agent.name, len(records(path)))
    assert f"root/{agent}.1" in nodes
