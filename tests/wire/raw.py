"""A server that sends exactly the bytes it is told to, and ends as it is told to."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__all__ = ("Raw", "sending")


class Raw(socketserver.ThreadingTCPServer):
    """Answers every request with status 200 and `pieces`, each in a chunk of its own.

    Attributes:
        pieces: What is sent; may be changed between requests.
        ends: Whether the body is brought to its proper end; else the connection is dropped.
        kind: The content type.
        status: HTTP status.
        requests: How many came.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pieces: Sequence[bytes] = ()
        self.ends = True
        self.kind = "text/event-stream"
        self.status = 200
        self.requests = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away."""


class _Handler(socketserver.StreamRequestHandler):
    server: Raw
    disable_nagle_algorithm = True

    def handle(self) -> None:
        length = 0
        while (line := self.rfile.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        self.rfile.read(length)
        self.server.requests += 1
        head = (
            f"HTTP/1.1 {self.server.status} Some\r\nContent-Type: {self.server.kind}\r\nConnection: close\r\n"
        )
        self.wfile.write(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        for piece in self.server.pieces:
            if piece:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if self.server.ends:
            self.wfile.write(b"0\r\n\r\n")


@contextmanager
def sending() -> Iterator[Raw]:
    """Serve until the block ends."""
    server = Raw()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
