"""What the tests of MCP tools share: servers in processes and in memory, and runs of one script."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import anyio
from anyio.to_thread import run_sync

from overt import Agent, AnyTool, Runtime, TaskResult
from overt.sources.mcp import ToolServer
from overt.testing import MockModel

__all__ = ("FAKE", "Fake", "agent", "gone", "ran", "said")

PATIENCE = 20.0
FAKE = Path(__file__).with_name("fake_server.py")


class Fake:
    """A server in a process of its own, and what it tells of what happens to it."""

    def __init__(
        self,
        folder: Path,
        name: str = "fake",
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        env: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        told = folder / f"{name}.fifo"
        os.mkfifo(told)
        # For both: it never blocks a server, nor ends with one.
        self._reading = os.open(told, os.O_RDWR)
        self._lines: list[str] = []
        self._rest = ""
        listing: list[str] = []
        if tools is not None:
            path = folder / f"{name}.json"
            path.write_text(json.dumps(tools), "utf-8")
            listing = [str(path)]
        # Isolated, which is quick; what it writes in UTF-8 it reads so too.
        args = ["-I", "-S", "-X", "utf8", str(FAKE), str(told), *listing]
        self.server = ToolServer.stdio(name, command=sys.executable, args=args, env=env, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.server.close()
        os.close(self._reading)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._reading], [], [], seconds)
        if ready:
            *lines, self._rest = (self._rest + os.read(self._reading, 65_536).decode()).split("\n")
            self._lines += lines
        return bool(ready)

    def happened(self) -> list[str]:
        """Return its lines so far."""
        while self._read(0):
            pass
        return list(self._lines)

    async def until(self, line: str, times: int = 1) -> None:
        """Wait until it has told that something happened: the beginning of a line."""
        while sum(found.startswith(line) for found in self._lines) < times:
            assert await run_sync(self._read, PATIENCE), f"{line!r} does not happen: {self._lines}"

    def pids(self) -> list[int]:
        """Return the processes there have been, in order."""
        return [int(line.split()[1]) for line in self.happened() if line.startswith("begins")]


async def gone(pid: int) -> None:
    """Wait until there is no such process any more."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = await run_sync(select.select, [process], [], [], PATIENCE)
        assert ready, f"process {pid} does not end"
    finally:
        os.close(process)


def agent(script: Any, tools: Sequence[AnyTool[Any]], **options: Any) -> Agent[None, str]:
    """Return an agent that follows a script."""
    return Agent("w", does="works", tools=tools, model=MockModel(script), **options)


async def ran(
    script: Any, tools: Sequence[AnyTool[Any]], **options: Any
) -> tuple[TaskResult[str], Runtime[str]]:
    """Run an agent that follows a script."""
    return await agent(script, tools).run("go", **options)


def said(runtime: Runtime[Any]) -> list[Any]:
    """Return the results of tools in the entry handle's transcript."""
    result = runtime.result()
    return [message for message in runtime.transcript(result.handle) if message.role == "tool"]
