"""A provider on this machine: any model behind HTTP, in the protocols of four providers, whole or streamed."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import anyio

from overt.demo.provider.anthropic import Anthropic
from overt.demo.provider.chat import OpenAIChat
from overt.demo.provider.google import Google
from overt.demo.provider.responses import OpenAIResponses
from overt.demo.provider.spoken import Spoken, balanced
from overt.errors import ModelError
from overt.message import Model

__all__ = ("Exchange", "Provider", "serve")

_PROTOCOLS: tuple[Spoken, ...] = (OpenAIChat(), OpenAIResponses(), Anthropic(), Google())


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request that came in.

    Attributes:
        path: Where to, without the query.
        headers: Of the request, names in lower case.
        body: Of the request, read as JSON.
        streamed: Whether the reply was sent in pieces.
        status: HTTP status of the answer.
    """

    path: str
    headers: Mapping[str, str]
    body: Any
    streamed: bool
    status: int


class Provider(ThreadingHTTPServer):
    """The server; made by `serve`.

    Attributes:
        model: Who answers. It is asked in a thread and an event loop of its own for each request.
        exchanges: What came in so far, in the order it was answered.
    """

    daemon_threads = True

    def __init__(self, model: Model) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model: Model = model
        self.exchanges: list[Exchange] = []

    @property
    def url(self) -> str:
        """Where it listens: `http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away."""


@contextmanager
def serve(model: Model) -> Generator[Provider]:
    """Serve a model on a free port of this machine until the block ends.

    Chat completions and responses are at `url + "/v1"`, Anthropic's and Google's protocols at `url`. Any key will do.
    Requests are checked as providers check them: a call without a result, or a result without a call, is refused. A
    `ModelError` of the model is answered with its status, 500 where it has none.

    Args:
        model: Who answers; its ids of calls are replaced by unique ones.
    """
    server = Provider(model)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Provider  # pyright: ignore[reportIncompatibleVariableOverride]  # handlers of this server only
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        spoken = next((known for known in _PROTOCOLS if known.fits(path)), None)
        if spoken is None:
            self._json(404, {"error": {"message": f"there is nothing at {path}"}}, None)
            return
        body: Any = None
        try:
            body = json.loads(data)
            asked = spoken.read(path, body)
            wrong = balanced(asked.request.messages)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            self._json(400, spoken.refusal(400, f"{type(error).__name__}: {error}"), body)
            return
        if wrong is not None:
            self._json(400, spoken.refusal(400, wrong), body)
            return
        try:
            response = anyio.run(partial(self.server.model.generate, asked.request))
        except ModelError as error:
            status = error.status_code or 500
            self._json(status, spoken.refusal(status, str(error)), body, retry_after=error.retry_after)
            return
        # Of the transcript alone, so that a request asked again gets the same reply, ids and all.
        id = f"{len(asked.request.messages):06d}"
        if not asked.streamed:
            self._json(200, spoken.whole(response, id), body)
            return
        self._note(body, streamed=True, status=200)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in spoken.events(response, id, counted=asked.counted):
            piece = event.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def _json(self, status: int, reply: Any, body: Any, *, retry_after: float | None = None) -> None:
        data = json.dumps(reply, ensure_ascii=False).encode()
        self._note(body, streamed=False, status=status)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if retry_after is not None:
            self.send_header("Retry-After", f"{retry_after:g}")
        self.end_headers()
        self.wfile.write(data)

    def _note(self, body: Any, *, streamed: bool, status: int) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        path = urlsplit(self.path).path
        exchange = Exchange(path=path, headers=headers, body=body, streamed=streamed, status=status)
        self.server.exchanges.append(exchange)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
