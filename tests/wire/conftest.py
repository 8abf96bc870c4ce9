"""What tests over HTTP share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.npm import npm_program
from tests.wire.aimock import Aimock, running

__all__ = ("aimock", "anyio_backend", "one_loop", "version_of_google")


@pytest.fixture(scope="session")
def aimock() -> Iterator[Aimock]:
    """A server of this test run or xdist worker."""
    with running(npm_program("llmock")) as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def version_of_google() -> Iterator[None]:
    """The version of Google's API that aimock has; the client's own choice is another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOOGLE_GENAI_API_VERSION", "v1beta")
        yield


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop: `test_trio.py` has the other."""
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
async def one_loop(anyio_backend: str) -> AsyncIterator[None]:
    """Keep one loop for all tests of a module: each begins with reading certificates, for a tenth of a second."""
    yield  # noqa: PT022  # the loop lives as long as the fixture does
