"""What every test has: async tests run on asyncio and on trio."""

from __future__ import annotations

import pytest

from tests.postgres import place, postgres, postgres_dsn, server

__all__ = ("anyio_backend", "place", "postgres", "postgres_dsn", "server")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop of an async test; others do not ask for it and run once."""
    return str(request.param)
