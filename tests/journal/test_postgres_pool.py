"""The PostgreSQL store through PgBouncer, which gives each transaction another session."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator

import anyio
import pytest
from tests.journal.test_postgres_thread import append, start
from tests.postgres import Place
from tools.postgres import Server

from overt.stores import PostgresStore
from overt.testing import STORE_CHECKS, STORE_REOPEN_CHECKS, StoreCheck

pytestmark = pytest.mark.anyio

SETTINGS = """
[databases]
postgres = host={folder} dbname=postgres user=postgres password={password}
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 3
logfile = {folder}/pgbouncer.log
"""


@pytest.fixture(scope="module")
def pool(server: Server) -> Iterator[str]:
    """A DSN that leads through a pool of three sessions to the server of this test run."""
    # Debian keeps it where only root looks.
    program = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed")
    settings = server.folder / "pgbouncer.ini"
    settings.write_text(SETTINGS.format(folder=server.folder, password=server.password), encoding="utf-8")
    server.give(settings)
    process = server.run(program, str(settings))
    try:
        while not (server.folder / ".s.PGSQL.6432").exists():
            assert process.poll() is None, "PgBouncer has ended"
            time.sleep(0.01)
        yield f"host={server.folder} port=6432 user=postgres dbname=postgres"
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def anyio_backend() -> str:
    """What a pool changes has nothing to do with the event loop."""
    return "asyncio"


@pytest.fixture
def place(pool: str, postgres: Place) -> Place:
    return Place(pool, postgres.schema)


@pytest.mark.parametrize("check", [*STORE_CHECKS, *STORE_REOPEN_CHECKS], ids=str)
async def test_conformance(check: StoreCheck, place: Place) -> None:
    await check(place.store, reopen=place.store)


async def test_many_stores_share_a_few_sessions(place: Place) -> None:
    stores = [place.store() for _ in range(10)]

    async def drive(store: PostgresStore, run_id: str) -> None:
        await start(store, run_id)
        for after in range(10):
            await append(store, run_id, after=after)

    async with anyio.create_task_group() as tasks:
        for n, store in enumerate(stores):
            tasks.start_soon(drive, store, f"run {n}")
    assert [one.position for one in await stores[0].runs()] == [10] * 10
    for store in stores:
        await store.close()
