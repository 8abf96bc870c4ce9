"""A real HTTP server for an ASGI application, in a thread, that can be stopped and started at one address."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import uvicorn

__all__ = ("Site",)


class Site:
    """A server at a local address that stays its own while it is down."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port: int = found.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Serve; when this returns, requests are taken."""
        listening = socket.create_server(("127.0.0.1", self.port))
        made = threading.Event()

        def serve() -> None:
            # Made here, where no event loop of a test is about: what waits belongs to the loop it is made in.
            config = uvicorn.Config(
                self._make(), log_level="critical", ws="none", timeout_graceful_shutdown=1
            )
            self._server = uvicorn.Server(config)
            made.set()
            self._server.run([listening])

        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()
        assert made.wait(20)

    def stop(self) -> None:
        """Stop serving, and hang up on everybody."""
        assert self._server is not None
        assert self._thread is not None
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()

    def __enter__(self) -> Site:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
