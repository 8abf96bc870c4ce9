"""What `make torture` tries, and how it tells of a broken promise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.torture.__main__ import chosen, inflict
from tests.torture.kills import spots
from tests.torture.plans import CASES, IN_PROCESS, PROCESSES, Ground, Trial

pytestmark = pytest.mark.anyio
SOME = [case for case in CASES if str(case) in ("crew-rewind", "policed-inline")]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(place="", folder=tmp_path, cases=SOME, seed=0, rounds=1, token="t")


async def test_a_breach_is_told_with_the_seed_that_repeats_it(
    ground: Ground, capsys: pytest.CaptureFixture[str]
) -> None:
    async def plan(_: Ground) -> AsyncIterator[Trial]:
        yield Trial(name="one that holds", seed=1, act=holds)
        yield Trial(name="one that does not", seed=17, act=breaks)

    async def holds() -> str:
        return "held"

    async def breaks() -> str:
        raise AssertionError("an answer was lost")

    assert await inflict("races", plan, ground, store="sqlite", jobs=1) == 1
    told = capsys.readouterr().out
    assert "BREACH  races sqlite one that does not: AssertionError: an answer was lost" in told
    assert "make torture KINDS=races STORES=sqlite SEED=17 ROUNDS=1" in told
    assert "2 trials    1 breaches" in told
    assert "held 1" in told


@pytest.mark.parametrize("kind", [*IN_PROCESS, *PROCESSES])
async def test_every_kind_has_trials_that_are_told_apart(kind: str, ground: Ground) -> None:
    plan = {**IN_PROCESS, **PROCESSES}[kind]
    found = [f"{trial.name} {trial.seed}" async for trial in plan(ground)]
    assert len(found) == len(set(found)) >= 6


async def test_a_few_seeds_kill_processes_everywhere(ground: Ground) -> None:
    missing = {f"{case} {spot}" for case in SOME for spot in spots(await case.calm())}
    for seed in range(8):
        async for trial in PROCESSES["kills"](replace(ground, seed=seed)):
            missing.discard(trial.name.rsplit(" ", 2)[0])
    assert not missing


def test_a_word_that_means_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KINDS", "races,floods")
    with pytest.raises(SystemExit, match="KINDS: no floods here"):
        chosen("KINDS", ("races", "chaos"))
    monkeypatch.setenv("KINDS", "races")
    assert chosen("KINDS", ("races", "chaos")) == ["races"]
    monkeypatch.delenv("KINDS")
    assert chosen("KINDS", ("races", "chaos")) == ["races", "chaos"]
