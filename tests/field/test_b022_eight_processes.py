"""B022: eight processes released together on a fresh store; and processes that are killed while they write."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.places import store_at

from overt.errors import RunConflict
from overt.journal.owner import owner_here
from overt.journal.record import Record
from overt.testing._store_checks import now_is

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="the death of a process is not seen there"),
]

NOW = datetime(2024, 1, 1, tzinfo=UTC)
UNTIL = NOW + timedelta(days=1)

PRELUDE = """
import asyncio, sys
from datetime import UTC, datetime, timedelta
from overt.journal.owner import owner_here
from overt.journal.record import Record
from overt.testing._store_checks import now_is
from tests.places import store_at

NOW = datetime(2024, 1, 1, tzinfo=UTC)
UNTIL = NOW + timedelta(days=1)
place, run_id = sys.argv[1:]
store = store_at(place)

async def create():
    await store.create(run_id, (), agent="a", owner=owner_here(), now=NOW, until=UNTIL)

async def append(position):
    record = Record(position, 1, text=f"{run_id}: {position}")
    await store.append(run_id, [record], after=position - 1, epoch=1, change=now_is("running"))

def say(line):
    print(line, flush=True)
"""

TWENTY = (
    PRELUDE
    + """
async def main():
    say("ready")
    sys.stdin.readline()
    await create()
    for position in range(1, 21):
        await append(position)
    await store.close()
    say("done")

asyncio.run(main())
"""
)

HOLD = (
    PRELUDE
    + """
async def main():
    await create()
    await append(1)
    say("holding")
    sys.stdin.readline()

asyncio.run(main())
"""
)

WITHOUT_END = (
    PRELUDE
    + """
async def main():
    await create()
    position = 0
    while True:
        position += 1
        await append(position)
        say(position)

asyncio.run(main())
"""
)


def run(script: str, place: str, run_id: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", script, place, run_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent.parent,
    )


def heard(process: subprocess.Popen[str]) -> str:
    """The next line the process says; its complaint where it says none."""
    assert process.stdout is not None
    line = process.stdout.readline().rstrip("\n")
    if not line:
        raise AssertionError(process.communicate()[1])
    return line


def check_file(place: str) -> None:
    if not Path(place).exists():
        return
    connection = sqlite3.connect(place)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


async def test_eight_processes_on_a_fresh_store(place: str) -> None:
    processes = [run(TWENTY, place, f"run-{n}") for n in range(8)]
    for process in processes:
        assert heard(process) == "ready"
    assert not Path(place).exists()  # noqa: ASYNC240 - nothing else runs in this loop
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        out, complaint = process.communicate()
        assert (out, complaint, process.returncode) == ("done\n", "", 0)
    store = store_at(place)
    read = [one.text for n in range(8) for one in await store.read(f"run-{n}")]
    assert read == [f"run-{n}: {position}" for n in range(8) for position in range(1, 21)]
    assert len(read) == 160
    await store.close()
    check_file(place)


async def test_the_claim_of_a_killed_process_is_void_at_once(place: str) -> None:
    process = run(HOLD, place, "run")
    assert heard(process) == "holding"
    store = store_at(place)
    me = owner_here()
    with pytest.raises(RunConflict) as caught:
        await store.claim("run", owner=me, now=NOW, until=UNTIL)
    assert caught.value.owner is not None
    assert caught.value.owner.startswith(f"{process.pid}-")
    assert caught.value.until == UNTIL
    process.kill()
    process.communicate()
    # Same time as above: the claim has not run out, its process has ended.
    claim = await store.claim("run", owner=me, now=NOW, until=UNTIL)
    assert claim.epoch == 2
    await store.append("run", [Record(2, 1, text="next")], after=1, epoch=2, change=now_is("running"))
    assert [one.text for one in await store.read("run")] == ["run: 1", "next"]
    await store.close()


@pytest.mark.parametrize("appends", [1, 7, 40])
async def test_a_process_killed_while_it_appends_leaves_a_whole_journal(place: str, appends: int) -> None:
    process = run(WITHOUT_END, place, "run")
    told = 0
    while told < appends:
        told = int(heard(process))
    process.kill()
    assert process.stdout is not None
    for line in process.stdout.read().splitlines():
        told = int(line)
    process.communicate()
    store = store_at(place)
    read = await store.read("run")
    # What it was told is durable is there; one append more may have been under way.
    assert len(read) in (told, told + 1)
    assert [one.text for one in read] == [f"run: {n}" for n in range(1, len(read) + 1)]
    claim = await store.claim("run", owner=owner_here(), now=NOW, until=UNTIL)
    await store.append(
        "run", [Record(len(read) + 1, 1, text="x")], after=len(read), epoch=claim.epoch, change=now_is("done")
    )
    await store.close()
    check_file(place)
