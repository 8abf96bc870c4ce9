"""A local endpoint that speaks chat completions and does what the demo's instructions say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Steps: TypeAlias = Mapping[str, Sequence[Sequence[tuple[str, Mapping[str, object]]]]]


class ChatServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, steps: Steps, *, hang_at: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.steps = steps
        self.hang_at = hang_at
        self.hangs = threading.Event()
        self.go_on = threading.Event()
        self.bodies: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


@contextmanager
def chat_server(steps: Steps | None = None, *, hang_at: str = "") -> Iterator[ChatServer]:
    """Serve until the block ends; a request whose reply would call the tool `hang_at` hangs until `go_on` is set.

    `steps` are the replies of an agent, as calls, by one of its tools; after them it says something.
    """
    server = ChatServer(DEMO if steps is None else steps, hang_at=hang_at)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()


DEMO: Steps = {
    "task": [
        [
            ("task", {"agent": "researcher", "prompt": "Why so late?"}),
            ("task", {"agent": "payments", "prompt": "Settle A-1001"}),
        ]
    ],
    "track": [[("track", {"order": "A-1001"})]],
    "refund": [
        [("look_up", {"order": "A-1001"})],
        [("refund", {"order": "A-1001", "amount": 40})],
        [("send_voucher", {"order": "A-1001", "amount": 25})],
    ],
}


class _Handler(BaseHTTPRequestHandler):
    server: ChatServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        tools = {tool["function"]["name"] for tool in body["tools"]}
        steps = next(steps for tool, steps in self.server.steps.items() if tool in tools)
        done = sum(message["role"] == "assistant" for message in body["messages"])
        calls = steps[done] if done < len(steps) else []
        if self.server.hang_at in [name for name, _ in calls]:
            self.server.hangs.set()
            self.server.go_on.wait(200)
        message: dict[str, object] = {
            "role": "assistant",
            "content": None if calls else "Said over the wire.",
        }
        if calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{number}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for number, (name, arguments) in enumerate(calls)
            ]
        reply = {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [{"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }
        data = json.dumps(reply).encode()
        try:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            pass  # the client was interrupted meanwhile

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
