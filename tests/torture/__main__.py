"""Torture: `make torture`, or `python -m tests.torture`. Exits with 1 where a promise was broken.

Read from the environment, lists with commas:

    STORES  memory, sqlite, postgres; the last where OVERT_TEST_POSTGRES holds the DSN of a database
    KINDS   deaths (memory), kills, races, fencing, claims, chaos
    CASES   crew-rewind, crew-continue, policed-rewind, policed-continue, policed-inline
    SEED    0; a breach says with which it is repeated
    ROUNDS  1; with 10 every kind has been everywhere
    JOBS    how many trials at once; the number of cores
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import anyio
from tests.torture.plans import CASES, IN_PROCESS, PROCESSES, Ground, Plan, Trial
from tests.torture.stores import available, place_of


def chosen(variable: str, every: Sequence[str]) -> list[str]:
    """What a variable names, or all there is."""
    names = [name for name in os.environ.get(variable, "").split(",") if name]
    unknown = set(names) - set(every)
    if unknown:
        raise SystemExit(f"{variable}: no {', '.join(sorted(unknown))} here; there are {', '.join(every)}")
    return names or list(every)


def number(variable: str, default: int) -> int:
    return int(os.environ.get(variable) or default)


def tell(text: str) -> None:
    print(text, flush=True)


async def inflict(kind: str, plan: Plan, ground: Ground, *, store: str, jobs: int) -> int:
    """Try everything a plan has, tell how it went, and return the number of breaches."""
    began = time.monotonic()
    outcomes: Counter[str] = Counter()
    breaches = 0
    limiter = anyio.Semaphore(jobs)

    async def attempt(trial: Trial) -> None:
        nonlocal breaches
        try:
            found = await trial.act()
        except Exception as error:  # noqa: BLE001  # told, and counted
            breaches += 1
            tell(f"BREACH  {kind} {store} {trial.name}: {type(error).__name__}: {error}")
            tell("".join(traceback.format_exception(error)))
            tell(f"repeat: make torture KINDS={kind} STORES={store} SEED={trial.seed} ROUNDS=1")
        else:
            outcomes.update(found if isinstance(found, Counter) else [str(found)])
        finally:
            limiter.release()

    trials = 0
    async with anyio.create_task_group() as group:
        async for trial in plan(ground):
            await limiter.acquire()
            trials += 1
            group.start_soon(attempt, trial)
    took = time.monotonic() - began
    figures = ", ".join(f"{what} {count}" for what, count in sorted(outcomes.items()))
    tell(f"{kind:8}{store:9}{trials:6} trials {breaches:4} breaches {took:7.1f} s   {figures}")
    return breaches


async def main() -> int:
    """Inflict all that was chosen."""
    stores = chosen("STORES", ("memory", *available()))
    kinds = chosen("KINDS", (*IN_PROCESS, *PROCESSES))
    wanted = chosen("CASES", [str(case) for case in CASES])
    breaches = 0
    token = secrets.token_hex(4)
    with tempfile.TemporaryDirectory(prefix="overt-torture-") as folder:
        for store in stores:
            for kind, plan in (IN_PROCESS if store == "memory" else PROCESSES).items():
                if kind not in kinds:
                    continue
                place = Path(folder) / f"{store}-{kind}"
                place.mkdir()
                ground = Ground(
                    url="" if store == "memory" else place_of(store, place, schema=f"torture_{token}"),
                    folder=place,
                    cases=[case for case in CASES if str(case) in wanted],
                    seed=number("SEED", 0),
                    rounds=number("ROUNDS", 1),
                    token=token,
                )
                jobs = 1 if store == "memory" else number("JOBS", os.cpu_count() or 1)
                breaches += await inflict(kind, plan, ground, store=store, jobs=jobs)
    tell("nothing lost, nothing twice" if breaches == 0 else f"{breaches} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main))
