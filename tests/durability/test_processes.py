"""Real processes on one SQLite file: killed, stopped, and two at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.durability.crew import LEAD, RUN, Host, World, check, facts_of

from overt import ResumePolicy, Runtime
from overt.core import facts as f
from overt.stores import MemoryStore, SQLiteStore

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
]


class Worker:
    """One process, spoken to line by line."""

    def __init__(self, folder: Path, verb: str, *pauses: str, policy: ResumePolicy) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable, "-W", "error", "-m", "tests.durability.worker",
                str(folder / "runs.db"), str(folder / "world"), policy.value, verb, *pauses,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            cwd=Path(__file__).parent.parent.parent,
        )  # fmt: skip

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        with self.process:  # closes its pipes and waits for it
            pass


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    """Processes that are ended with the test."""
    started: list[Worker] = []
    yield started
    for one in started:
        one.kill()


async def quiet(policy: ResumePolicy) -> list[f.Fact]:
    store = MemoryStore()
    await Host(World(), store, policy).run()
    return await facts_of(store)


@pytest.fixture
def anyio_backend() -> str:
    """The loop of the test itself plays no part; the processes take long enough to start."""
    return "asyncio"


PLACES = [
    ("asking lead", ResumePolicy.REWIND),
    ("before charge A1", ResumePolicy.REWIND),
    ("after charge A1", ResumePolicy.CONTINUE),
    ("after hold 12a", ResumePolicy.REWIND),
    ("telling Book 12a?", ResumePolicy.CONTINUE),
    ("after book 12a yes", ResumePolicy.REWIND),
    ("before publish offer yes", ResumePolicy.CONTINUE),
]


@pytest.mark.parametrize(("place", "policy"), PLACES, ids=[place for place, _ in PLACES])
async def test_a_killed_process_is_followed_at_once(
    place: str, policy: ResumePolicy, tmp_path: Path, workers: list[Worker]
) -> None:
    worker = Worker(tmp_path, "run", place, policy=policy)
    workers.append(worker)
    assert worker.hear() == f"at {place}"
    store = SQLiteStore(tmp_path / "runs.db")
    assert (await store.info(RUN)).owner is not None
    worker.kill()
    # The clock of the next process stands where that of the dead one stood: the claim has not run out.
    world = World.read(tmp_path / "world")
    result = await Host(world, store, policy).run()
    facts = await facts_of(store)
    check(world, result, facts, await quiet(policy))
    in_doubt = place.startswith(("before charge", "after charge", "after hold"))
    assert any(isinstance(x, f.CallAsked) and x.question.kind == "in_doubt" for x in facts) == in_doubt
    await store.close()


async def parked(folder: Path, policy: ResumePolicy) -> None:
    store = SQLiteStore(folder / "runs.db")
    host = Host(World(path=folder / "world"), store, policy)
    result = await Runtime(LEAD, run_id=RUN, **host.options()).run("sell")
    assert result.status == "pending"
    await store.close()


@pytest.mark.parametrize("policy", list(ResumePolicy))
async def test_two_processes_deliver_the_same_answer(
    policy: ResumePolicy, tmp_path: Path, workers: list[Worker]
) -> None:
    await parked(tmp_path, policy)
    workers += [Worker(tmp_path, "answer", "opened", "end", policy=policy) for _ in range(2)]
    for worker in workers:
        assert worker.hear() == "at opened"
    for worker in workers:
        worker.go()
    said = sorted(worker.hear() for worker in workers)
    assert said[0].startswith(("AlreadyAnswered ", "RunConflict "))
    assert said[1].startswith("incomplete ")
    store = SQLiteStore(tmp_path / "runs.db")
    facts = await facts_of(store)
    assert sum(isinstance(x, f.AnswerGiven) for x in facts) == 1
    assert sum(isinstance(x, f.ResumeBegun) for x in facts) == 1
    world = World.read(tmp_path / "world")
    assert world.times("book 12a yes") == 1
    assert world.times("charge A1") == 1
    await store.close()


async def test_the_second_process_is_told_at_once_while_the_first_is_at_work(
    tmp_path: Path, workers: list[Worker]
) -> None:
    policy = ResumePolicy.CONTINUE
    await parked(tmp_path, policy)
    second = Worker(tmp_path, "answer", "opened", policy=policy)
    workers.append(second)
    assert second.hear() == "at opened"
    first = Worker(tmp_path, "answer", "after book 12a yes", policy=policy)
    workers.append(first)
    assert first.hear() == "at after book 12a yes"
    third = Worker(tmp_path, "recover", policy=policy)
    workers.append(third)
    second.go()
    for other in (second, third):
        said = other.hear()
        assert said.startswith("RunConflict "), said
        assert f"'{first.process.pid}-" in said
    first.go()
    assert first.hear().startswith("incomplete ")
    assert World.read(tmp_path / "world").times("book 12a yes") == 1


async def test_a_stopped_process_comes_back_and_does_nothing(tmp_path: Path, workers: list[Worker]) -> None:
    policy = ResumePolicy.CONTINUE
    await parked(tmp_path, policy)
    worker = Worker(tmp_path, "answer", "hearing worker", policy=policy)
    workers.append(worker)
    assert worker.hear() == "at hearing worker"
    worker.process.send_signal(signal.SIGSTOP)
    worker.go()
    world = World.read(tmp_path / "world")
    store = SQLiteStore(tmp_path / "runs.db")
    host = Host(world, store, policy)
    runtime = await Runtime.open(LEAD, RUN, **host.options())
    result = await runtime.recover(force=True)
    assert result.status == "incomplete"
    before, done = await facts_of(store), (tmp_path / "world").read_text()
    worker.process.send_signal(signal.SIGCONT)
    assert worker.hear().startswith("RunConflict ")
    assert await facts_of(store) == before
    assert (tmp_path / "world").read_text().replace(done, "") in ("", '["reply"]\n')
    await store.close()
