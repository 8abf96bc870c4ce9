"""aimock, a mock of many providers by others: started once, given fixtures by each test, asked what it was sent.

A test names its fixtures by a model of its own (`model`), so tests do not see each other's, and nothing is cleared.
Fixtures of one model are numbered: the first request gets the first, the next one the next.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import re
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, cast

from overt.demo import clients as demo

__all__ = ("KEY", "Aimock", "Fixture", "answer", "calls", "fails", "running", "text", "usage")

KEY = "sk-test-0123456789"
"""The key the server takes from tests."""

Fixture: TypeAlias = Mapping[str, Any]

# It lives as long as somebody holds its standard input open, so a killed test run leaves no server behind.
_KEEPER = """
trap '' INT
"$0" "$@" &
cat >/dev/null
kill $! 2>/dev/null
wait
"""
NOTHING = Path(__file__).with_name("nothing.json")
_CHARACTERS = 7
"""In a piece of a streamed reply."""
_LISTENS = re.compile(r"listening on (http://\S+)")
_SECONDS_TO_START = 30.0


class Aimock:
    """The running server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._names = itertools.count(1)

    def model(self, *replies: Fixture) -> str:
        """Return a new model's name; its n-th request gets the n-th reply, and there is none after the last."""
        name = f"m{next(self._names)}"
        self.add(name, *({**reply, "match": {"sequenceIndex": index}} for index, reply in enumerate(replies)))
        return name

    def add(self, model: str, *fixtures: Fixture) -> None:
        """Add fixtures that a model's requests are matched with, the first that fits is taken."""
        made = [{**fixture, "match": {**fixture["match"], "model": model}} for fixture in fixtures]
        self._ask("/__aimock/fixtures", {"fixtures": made})

    def requests(self, model: str) -> list[dict[str, Any]]:
        """Return the bodies a model was sent so far, whatever the provider in the form of chat completions."""
        sent = cast("list[dict[str, Any]]", self._ask("/__aimock/journal"))
        return [entry["body"] for entry in sent if (entry["body"] or {}).get("model") == model]

    def _ask(self, path: str, body: object = None) -> object:
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)


@contextmanager
def running(command: str) -> Iterator[Aimock]:
    """Start it on a free port, wait until it listens, and end it after the block.

    Args:
        command: Path of `llmock`.
    """
    process = subprocess.Popen(
        ["sh", "-c", _KEEPER, command, "-p", "0", "-c", str(_CHARACTERS), "-f", str(NOTHING)],
        env={**os.environ, "AIMOCK_API_KEYS": f"{KEY},{demo.KEY}", "AIMOCK_STRICT_TURN_INDEX": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    assert process.stdin is not None
    lines: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
    reader.start()
    try:
        yield Aimock(_url(lines))
    finally:
        process.stdin.close()
        process.wait(10)
        reader.join(10)
        assert process.stdout is not None
        process.stdout.close()


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    """Read all it prints: a full pipe would stop it."""
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def _url(lines: queue.Queue[str | None]) -> str:
    said: list[str] = []
    while True:
        line = lines.get(timeout=_SECONDS_TO_START)
        if line is None:
            raise RuntimeError("aimock did not start: " + "".join(said))
        if found := _LISTENS.search(line):
            return found[1]
        said.append(line)


# ------------------------------------------------------------------ fixtures


def usage(input: int, output: int) -> dict[str, int]:
    """Token counts under every provider's names for them."""
    return {
        "prompt_tokens": input,
        "completion_tokens": output,
        "input_tokens": input,
        "output_tokens": output,
        "promptTokenCount": input,
        "candidatesTokenCount": output,
    }


def answer(**response: Any) -> Fixture:
    """A reply of 80 and 20 tokens, as the scripted model reports them."""
    return {"response": {"usage": usage(80, 20), **response}}


def text(said: str, **response: Any) -> Fixture:
    """A reply of text."""
    return answer(content=said, **response)


def calls(*asked: tuple[str, Mapping[str, Any]], said: str = "", **response: Any) -> Fixture:
    """A reply of calls, with text before them or without."""
    made = [{"name": name, "arguments": dict(arguments)} for name, arguments in asked]
    return answer(toolCalls=made, **({"content": said} if said else {}), **response)


def fails(status: int, message: str = "it failed", *, after: int | None = None) -> Fixture:
    """An answer that says no, with the seconds to wait if given."""
    wait = {} if after is None else {"retryAfter": after}
    return {"response": {"error": {"message": message, "type": "some_error"}, "status": status, **wait}}


def broken(reply: Fixture, **how: Any) -> Fixture:
    """A reply that does not arrive as it should: `chaos={…}`, or `latency=2, truncateAfterChunks=3`."""
    return {**reply, **how}
