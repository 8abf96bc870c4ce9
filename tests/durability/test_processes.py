"""Real processes on one store: killed, held up, stopped, robbed of their run, and many at once.

A sample of what `make torture` does everywhere.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest
from tests.durability.crew import World, facts_of, notes
from tests.durability.deaths import EVERY
from tests.durability.policed_crew import Mode
from tests.places import store_at
from tests.torture.cases import Case, Tree
from tests.torture.claims import claimed
from tests.torture.fencing import LOSSES, lost
from tests.torture.fleet import Process, started
from tests.torture.kills import killed
from tests.torture.races import parked, raced
from tests.torture.worker import Job, Said, Spot

from overt.core import facts as f

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
]


@pytest.fixture
def anyio_backend() -> str:
    """The loop of the test itself plays no part."""
    return "asyncio"


def case_of(folder: Path, tree: Tree, mode: Mode) -> Case:
    """A run of its own, in a store that may have others."""
    return Case(tree=tree, mode=mode, run_id=f"{folder.name}-{secrets.token_hex(4)}")


def spot(text: str) -> Spot:
    place, _, number = text.rstrip(")").rpartition(" (")
    return Spot(place=place, number=int(number))


def shared(spots: Iterable[str]) -> list[tuple[str, str]]:
    """Give each place one of the stores in turn; each has all of them where no death is to be left out."""
    if EVERY:
        return [(spot, store) for spot in spots for store in STORES]
    return list(zip(spots, cycle(STORES)))


STORES = ("sqlite", "postgres")
KILLS: dict[str, tuple[Tree, Mode]] = {
    "before append (1)": ("crew", "rewind"),
    "after append (1)": ("crew", "continue"),
    "before append (4)": ("crew", "continue"),
    "after append (9)": ("crew", "rewind"),
    "after append (13)": ("crew", "continue"),
    "before append (18)": ("crew", "rewind"),
    "asking lead (1)": ("crew", "rewind"),
    "hearing worker (1)": ("crew", "continue"),
    "before charge A1 (1)": ("crew", "rewind"),
    "after charge A1 (1)": ("crew", "continue"),
    "after hold 12a (1)": ("crew", "rewind"),
    "telling Book 12a? (1)": ("crew", "continue"),
    "told Book 12a? (1)": ("crew", "rewind"),
    "answering Book 12a? (1)": ("crew", "continue"),
    "after book 12a yes (1)": ("crew", "rewind"),
    "extending (1)": ("crew", "rewind"),
    "before publish offer yes (1)": ("crew", "continue"),
    "judging offered (1)": ("crew", "rewind"),
    "judged published (1)": ("crew", "continue"),
    'ruling output {"count":3} (1)': ("policed", "inline"),
    "before refund A4 80 (1)": ("policed", "rewind"),
    "after send ann now (1)": ("policed", "continue"),
}
IN_DOUBT = ("before charge", "after charge", "after hold", "before refund")


@pytest.mark.parametrize(("at", "place"), shared(KILLS), indirect=["place"])
async def test_a_process_killed_there_is_followed(at: str, place: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, *KILLS[at])
    assert await killed(case, place, tmp_path / "world", spot(at), "retry") == "killed"
    if at.startswith(IN_DOUBT):
        store = store_at(place)
        facts = await facts_of(store, case.run_id)
        assert any(isinstance(x, f.CallAsked) and x.question.kind == "in_doubt" for x in facts)
        await store.close()


@pytest.mark.parametrize("abroad", [False, True], ids=["here", "abroad"])
@pytest.mark.parametrize(
    ("at", "mode"), [("asking lead (1)", "rewind"), ("entering publish (1)", "continue")]
)
async def test_a_living_process_keeps_its_run_and_a_dead_one_loses_it_at_once_or_in_time(
    at: str, mode: Mode, abroad: bool, place: str, tmp_path: Path
) -> None:
    await claimed(case_of(tmp_path, "crew", mode), place, tmp_path / "world", spot(at), abroad=abroad)


@pytest.mark.parametrize(("mode", "seed"), [("rewind", 1), ("continue", 2), ("continue", 3)])
async def test_one_of_many_answers_is_taken(mode: Mode, seed: int, place: str, tmp_path: Path) -> None:
    await raced(case_of(tmp_path, "crew", mode), place, tmp_path / "world", seed=seed)


async def test_others_are_told_at_once_while_one_is_at_work(place: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, "crew", "continue")
    job = Job(case=case, store=place, world=tmp_path / "world", verb="answer", waits=True, real_time=True)
    await parked(case, place, job.world)
    inside = spot("after book 12a yes (1)")
    others = (job, replace(job, yes="no"), replace(job, verb="recover"))
    async with started(replace(job, pauses=(inside,)), *others) as (first, *rest):
        for process in (first, *rest):
            assert (await heard(process)).kind == "opened"
        first.go()
        assert (await heard(first)).text == str(inside)
        for process in rest:
            process.go()
            said = await heard(process)
            assert said.text == "RunConflict"
            assert (said.owner or "").startswith(f"{first.pid}-")
        first.go()
        assert (await heard(first)).text == "incomplete"
    assert World.read(job.world).times("book 12a yes") == 1
    assert {note[0] for note in notes(job.world)} == {os.getpid(), first.pid}


ROBBED = (
    "before append (1)", "after append (2)", "after append (5)", "entering charge (1)", "hearing worker (1)",
    "telling Book 12a? (1)", "answering Book 12a? (1)", "judging offered (1)",
)  # fmt: skip


@pytest.mark.parametrize("late", [0.0, 2.0], ids=["soon", "late"])
@pytest.mark.parametrize(("at", "place"), shared(ROBBED), indirect=["place"])
async def test_a_process_that_lost_its_run_stores_and_enters_nothing_more(
    at: str, late: float, place: str, tmp_path: Path
) -> None:
    case = case_of(tmp_path, "crew", "continue" if late else "rewind")
    assert await lost(case, place, tmp_path / "world", spot(at), late=late) in LOSSES


async def test_a_stopped_process_comes_back_and_does_nothing(place: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, "crew", "continue")
    inside = spot("hearing worker (1)")
    job = Job(case=case, store=place, world=tmp_path / "world", verb="answer", real_time=True)
    await parked(case, place, job.world)
    async with started(replace(job, pauses=(inside,))) as (first,):
        assert (await heard(first)).text == str(inside)
        first.stop()
        first.go()
        async with started(replace(job, verb="recover", force=True)) as (second,):
            assert (await heard(second)).text == "incomplete"
        store = store_at(place)
        facts, done = await facts_of(store, case.run_id), notes(job.world)
        first.resume()
        assert (await heard(first)).text == "RunConflict"
        assert await facts_of(store, case.run_id) == facts
        # It was told the reply it had waited for.
        assert notes(job.world) == [*done, [first.pid, "reply"]]
        await store.close()


async def heard(process: Process[Job]) -> Said:
    said = await process.hear()
    assert said is not None, "it has failed"
    return said
