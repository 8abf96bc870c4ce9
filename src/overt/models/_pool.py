"""Clients and connections of one provider, for each event loop its own, closed as the loop ends."""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar

from anyio.lowlevel import RunVar
from httpx2 import AsyncClient

__all__ = ("Pool",)

ClientT = TypeVar("ClientT")


class Pool(Generic[ClientT]):
    """Makes a provider's clients as models need them.

    All models of one event loop share its connections.

    Args:
        name: Name of the provider.
        make_http: Makes the connections of one event loop.
    """

    def __init__(self, name: str, *, make_http: Callable[[], AsyncClient]) -> None:
        self._make_http = make_http
        self._loops: RunVar[_Loop[ClientT] | None] = RunVar(f"overt.models.{name}")

    async def client(self, model: object, *, key: str, make: Callable[[AsyncClient], ClientT]) -> ClientT:
        """Return the client of a model in this event loop.

        Args:
            model: Whose client it is; weakly held.
            key: What the client was made with; another one makes a new client.
            make: Makes the client over the loop's connections.
        """
        loop = self._loops.get(None)
        if loop is None:
            loop = _Loop[ClientT](self._make_http(), self._forget)
            self._loops.set(loop)
            await loop.open()
        made = loop.clients.get(model)
        if made is None or made[0] != key:
            made = loop.clients[model] = (key, make(loop.http))
        return made[1]

    def _forget(self) -> None:
        self._loops.set(None)


class _Loop(Generic[ClientT]):
    def __init__(self, http: AsyncClient, forget: Callable[[], None]) -> None:
        self.http: AsyncClient = http
        self.clients: weakref.WeakKeyDictionary[object, tuple[str, ClientT]] = weakref.WeakKeyDictionary()
        self._keeper = self._keep(forget)

    async def open(self) -> None:
        await anext(self._keeper)

    async def _keep(self, forget: Callable[[], None]) -> AsyncGenerator[None]:
        # A loop closes the async generators that were begun in it, while it still runs: the one hook that both
        # asyncio and trio give to a library.
        try:
            yield
        finally:
            try:
                await self.http.aclose()
            finally:
                # The generator knows its loop, and would keep it alive from within the variable.
                forget()
