"""PostgreSQL for tests: the server of OVERT_TEST_POSTGRES, or one of their own for each test run (or xdist worker).

A test asks for the fixture `postgres` (a schema of its own), `server` (a server it may stop) or `place` (SQLite and
PostgreSQL by turns). Without a server on the machine they skip, or fail where CI or OVERT_REQUIRE_POSTGRES is set.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from tools.postgres import NoServer, Server, throwaway

from overt.stores import PostgresStore
from tests.places import place_of

__all__ = ("Place", "place", "postgres", "postgres_dsn", "server")

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Place:
    """A server and a schema of one test."""

    dsn: str
    schema: str

    def store(
        self, *, dsn: str = "", lock_timeout: float = 10.0, reconnect_timeout: float = 10.0
    ) -> PostgresStore:
        """A new store over the same tables, as another process would open it."""
        return PostgresStore(
            dsn or self.dsn,
            schema=self.schema,
            lock_timeout=lock_timeout,
            reconnect_timeout=reconnect_timeout,
        )

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """A connection of the test's own; names without a schema are the store's."""
        connection = psycopg.connect(self.dsn, autocommit=True)
        connection.execute(f"SET search_path = {self.schema}".encode())
        return connection

    def sql(self, *statements: str) -> list[tuple[object, ...]]:
        """Execute statements; the rows of the last."""
        with self.connect() as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where several processes keep runs, for `store_at`; a test that asks for it is run once for each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "runs.db")
    postgres: Place = request.getfixturevalue("postgres")
    return place_of(postgres.schema, postgres.dsn)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server of this test run that a test may stop and configure, and leaves as it was."""
    try:
        with throwaway() as own:
            yield own
    except NoServer as error:
        if os.environ.get("CI") or os.environ.get("OVERT_REQUIRE_POSTGRES"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def postgres_dsn(request: pytest.FixtureRequest) -> str:
    """Where tests connect to that need no more than a schema."""
    given = os.environ.get("OVERT_TEST_POSTGRES")
    if given:
        return given
    own: Server = request.getfixturevalue("server")
    return own.dsn


@pytest.fixture
def postgres(postgres_dsn: str) -> Iterator[Place]:
    """A schema of its own, not made yet."""
    place = Place(postgres_dsn, f"test_{os.getpid()}_{next(_numbers)}")
    yield place
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute(f"DROP SCHEMA IF EXISTS {place.schema} CASCADE".encode())
