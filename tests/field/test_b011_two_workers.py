"""B011: of two processes that resume one run, one claims it and the other is told at once."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.durability.policed_crew import Mode
from tests.places import store_at
from tests.torture.cases import Case
from tests.torture.claims import claimed
from tests.torture.races import raced
from tests.torture.worker import Spot

from overt.journal.record import Record
from overt.journal.store import Owner
from overt.testing._store_checks import now_is

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
]

NOW = datetime(2024, 1, 1, tzinfo=UTC)

RESUME = """
import asyncio, sys
from datetime import UTC, datetime, timedelta
from overt.errors import RunConflict
from overt.journal.owner import owner_here
from overt.journal.record import Record
from overt.testing._store_checks import now_is
from tests.places import store_at

NOW = datetime(2024, 1, 1, tzinfo=UTC)

async def main():
    store = store_at(sys.argv[1])
    assert (await store.info("run")).status == "parked"
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        claim = await store.claim("run", owner=owner_here(), now=NOW, until=NOW + timedelta(seconds=30))
        await store.append("run", [Record(2, 1, text="allowed")], after=1, epoch=claim.epoch, change=now_is("running"))
        print("won", flush=True)
    except RunConflict as conflict:
        print("lost to", conflict.owner, flush=True)
    sys.stdin.readline()
    await store.close()

asyncio.run(main())
"""


def resume(place: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", RESUME, place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent.parent,
    )


async def test_one_of_two_workers_claims_the_run(place: str) -> None:
    store = store_at(place)
    await store.create(
        "run",
        [Record(1, 1, text="asked")],
        agent="a",
        owner=Owner(id="first"),
        now=NOW,
        until=NOW + timedelta(days=1),
    )
    await store.append("run", (), after=1, epoch=1, change=now_is("parked"), release=True)
    workers = [resume(place) for _ in range(2)]
    said: list[str] = []
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    # Both stay alive until both have spoken, or the claim of the winner would be void.
    for worker in workers:
        assert worker.stdout is not None
        said.append(worker.stdout.readline().strip())
    for worker in workers:
        worker.communicate("end\n")
        assert worker.returncode == 0
    winner = said.index("won")
    assert said[1 - winner].startswith(f"lost to {workers[winner].pid}-")
    assert [one.text for one in await store.read("run")] == ["asked", "allowed"]
    assert (await store.info("run")).epoch == 2
    await store.close()


@pytest.mark.parametrize("mode", ["rewind", "continue"])
async def test_two_workers_give_the_same_answer(mode: Mode, place: str, tmp_path: Path) -> None:
    """The whole of it: one goes on, the tool is entered once, and there is one continuation."""
    assert (
        await raced(Case(mode=mode), place, tmp_path / "world", seed=0, others=0, recovering=0) == "an answer"
    )


async def test_the_claim_of_a_killed_worker_runs_out(place: str, tmp_path: Path) -> None:
    """Where nobody can see that it is dead."""
    inside = Spot(place="entering book")
    await claimed(Case(mode="continue"), place, tmp_path / "world", inside, abroad=True)
