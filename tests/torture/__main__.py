"""Torture: `make torture`, or `python -m tests.torture`. Exits with 1 where a promise was broken.

Read from the environment, lists with commas:

    STORES  memory, sqlite, postgres; the last on the server of OVERT_TEST_POSTGRES (a DSN), or on one of its own
    KINDS   deaths (memory), kills, races, fencing, claims, chaos
    CASES   crew-rewind, crew-continue, policed-rewind, policed-continue, policed-inline
    SEED    0; a breach says with which it is repeated
    ROUNDS  1, some minutes a store; with 20 every kind has been everywhere
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import anyio
import psycopg
from tests.places import place_of
from tests.torture.plans import CASES, IN_PROCESS, PROCESSES, Ground, Plan, Trial
from tools.postgres import NoServer, find_programs, throwaway


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
    stores = chosen("STORES", ("memory", "sqlite", *(("postgres",) if has_postgres() else ())))
    kinds = chosen("KINDS", (*IN_PROCESS, *PROCESSES))
    wanted = chosen("CASES", [str(case) for case in CASES])
    breaches = 0
    with tempfile.TemporaryDirectory(prefix="overt-torture-") as folder:
        for store in stores:
            with server() if store == "postgres" else nullcontext("") as dsn:
                for kind, plan in (IN_PROCESS if store == "memory" else PROCESSES).items():
                    if kind not in kinds:
                        continue
                    own = Path(folder) / f"{store}-{kind}"
                    own.mkdir()
                    token = secrets.token_hex(4)
                    ground = Ground(
                        place=place_of(f"torture_{token}", dsn) if dsn else str(own / "runs.db"),
                        folder=own,
                        cases=[case for case in CASES if str(case) in wanted],
                        seed=number("SEED", 0),
                        rounds=number("ROUNDS", 1),
                        token=token,
                    )
                    jobs = 1 if store == "memory" else number("JOBS", os.cpu_count() or 1)
                    breaches += await inflict(kind, plan, ground, store=store, jobs=jobs)
    tell("nothing lost, nothing twice" if breaches == 0 else f"{breaches} breaches")
    return 1 if breaches else 0


def has_postgres() -> bool:
    """Whether there is a server, or one can be made."""
    if os.environ.get("OVERT_TEST_POSTGRES"):
        return True
    try:
        find_programs()
    except NoServer:
        return False
    return True


@contextmanager
def server() -> Iterator[str]:
    """The DSN of a server for the time being; schemas made on one that was given are removed."""
    given = os.environ.get("OVERT_TEST_POSTGRES")
    if not given:
        with throwaway() as own:
            yield own.dsn
        return
    try:
        yield given
    finally:
        with psycopg.connect(given, autocommit=True) as connection:
            connection.execute("SET client_min_messages = warning")
            for (name,) in connection.execute(
                "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'torture\\_%'"
            ).fetchall():
                connection.execute(f"DROP SCHEMA {name} CASCADE".encode())


if __name__ == "__main__":
    sys.exit(anyio.run(main))
