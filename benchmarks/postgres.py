"""Durable turns a second of 64 runs at once on one PostgresStore, beside single-row commits of the same server.

On the server of OVERT_TEST_POSTGRES, or on one of its own where the machine has the programs; otherwise, and without
psycopg, nothing is measured.
"""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter, process_time

import anyio
from benchmarks.common import Numbers, Row, main, repeat, row
from benchmarks.workload import Script, worker
from tools.postgres import NoServer, throwaway

from overt import Status
from overt.stores import MemoryStore, PostgresStore, Store

RUNS = 64
TURNS = 20
SCHEMA = "overt_benchmark"


@contextmanager
def server() -> Iterator[str]:
    """Yield a DSN; the schema is removed at the end."""
    import psycopg

    given = os.environ.get("OVERT_TEST_POSTGRES")
    if given:
        try:
            yield given
        finally:
            with psycopg.connect(given) as connection:
                connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
    else:
        with throwaway() as own:
            yield own.dsn


async def turns(store: Store, runs: int) -> Numbers:
    """Run `runs` runs at once; model calls and their tool calls are turns, each made durable before it leaves."""
    ids = [uuid.uuid4().hex for _ in range(runs)]

    async def one(run_id: str) -> None:
        result, _ = await worker.run("go", model=Script(TURNS), store=store, run_id=run_id)
        assert result.status is Status.DONE, result

    wall, cpu = perf_counter(), process_time()
    async with anyio.create_task_group() as tasks:
        for run_id in ids:
            tasks.start_soon(one, run_id)
    wall, cpu = perf_counter() - wall, process_time() - cpu
    done = runs * (TURNS + 1)
    journal = await store.read(ids[0])
    size = sum(len(record.text) for record in journal) / len(journal)
    return {
        "rate": done / wall,
        "cpu": cpu / done * 1e3,
        "appends": len(journal) / (TURNS + 1),
        "size": size,
    }


def commits(dsn: str, text: str, count: int) -> Numbers:
    """Insert rows as large as a record, each in a transaction of its own."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {SCHEMA}.rows (id bigserial PRIMARY KEY, text text)".encode()
        )
        insert = f"INSERT INTO {SCHEMA}.rows (text) VALUES (%s)".encode()
        start = perf_counter()
        for _ in range(count):
            connection.execute(insert, (text,))
        return {"rate": count / (perf_counter() - start)}


async def measure(args: argparse.Namespace) -> Iterable[Row]:
    """Turns a second, wall; the store, memory and bare commits by turns."""
    times, warm = (1, 0) if args.quick else (7, 1)
    try:
        with server() as dsn:
            store = PostgresStore(dsn, schema=SCHEMA)
            try:
                size = (await turns(store, 1))["size"]

                async def many() -> Numbers:
                    return await turns(store, RUNS)

                async def alone() -> Numbers:
                    return await turns(store, 1)

                async def memory() -> Numbers:
                    return await turns(MemoryStore(), RUNS)

                async def bare() -> Numbers:
                    return commits(dsn, "x" * round(size), 300)

                run = {"many": many, "bare": bare, "memory": memory, "alone": alone}
                got = await repeat(run, times=times, warm=warm)
            finally:
                await store.close()
    except (ImportError, NoServer) as error:
        print(f"PostgreSQL is not measured: {error}", file=sys.stderr)
        return []
    appends = got["many"]["appends"][0]
    return [
        row(
            f"{RUNS} runs at once on one PostgresStore",
            got["many"]["rate"],
            "turns/s wall",
            floor=got["bare"]["rate"],
            rate=True,
            target=("value", ">=", 1000),
            note=f"{appends:.1f} appends a turn; the floor is single-row INSERT commits/s of one connection",
        ),
        row("  CPU of it in this process", got["many"]["cpu"], "ms/turn", floor=got["memory"]["cpu"]),
        row("  one run alone", got["alone"]["rate"], "turns/s wall"),
        row("  in memory instead", got["memory"]["rate"], "turns/s wall"),
    ]


if __name__ == "__main__":
    main(measure)
