"""All stores do what is asked of every store, on both backends."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.postgres import Place

from overt.stores import EncryptedStore, MemoryStore, SQLiteStore, Store
from overt.testing import STORE_CHECKS, STORE_REOPEN_CHECKS, StoreCheck

pytestmark = pytest.mark.anyio
KEY = EncryptedStore.generate_key()


@pytest.mark.parametrize("check", STORE_CHECKS, ids=str)
async def test_memory(check: StoreCheck) -> None:
    await check(MemoryStore)


@pytest.mark.parametrize("check", [*STORE_CHECKS, *STORE_REOPEN_CHECKS], ids=str)
async def test_sqlite(check: StoreCheck, tmp_path: Path) -> None:
    def make() -> Store:
        return SQLiteStore(tmp_path / "runs.db")

    await check(make, reopen=make)


@pytest.mark.parametrize("check", STORE_CHECKS, ids=str)
async def test_encrypted_memory(check: StoreCheck) -> None:
    await check(lambda: EncryptedStore(MemoryStore(), KEY))


@pytest.mark.parametrize("check", [*STORE_CHECKS, *STORE_REOPEN_CHECKS], ids=str)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the loop plays no part in what is new here
async def test_encrypted_sqlite(check: StoreCheck, tmp_path: Path) -> None:
    def make() -> Store:
        return EncryptedStore(SQLiteStore(tmp_path / "runs.db"), KEY)

    await check(make, reopen=make)


@pytest.mark.parametrize("check", [*STORE_CHECKS, *STORE_REOPEN_CHECKS], ids=str)
async def test_postgres(check: StoreCheck, postgres: Place) -> None:
    await check(postgres.store, reopen=postgres.store)


@pytest.mark.parametrize("check", [*STORE_CHECKS, *STORE_REOPEN_CHECKS], ids=str)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the loop plays no part in what is new here
async def test_encrypted_postgres(check: StoreCheck, postgres: Place) -> None:
    def make() -> Store:
        return EncryptedStore(postgres.store(), KEY)

    await check(make, reopen=make)


async def test_a_check_that_needs_reopen_says_so() -> None:
    with pytest.raises(TypeError, match="reopen"):
        await STORE_REOPEN_CHECKS[0](MemoryStore)
