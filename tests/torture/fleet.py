"""Processes of the operating system, each with one job, as the process that started them sees them.

They are forked from a server that has everything imported, so that thousands of them can be started and killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Generic, TypeVar

from anyio.to_thread import run_sync
from tests.torture.worker import Job, Said, work

if sys.platform == "win32":
    CONTEXT = multiprocessing.get_context("spawn")
else:
    CONTEXT = multiprocessing.get_context("forkserver")
    CONTEXT.set_forkserver_preload(
        ["tests.torture.worker", "anyio._backends._asyncio", "anyio._backends._trio", "psycopg"]
    )
JobT = TypeVar("JobT")
PATIENCE = 50.0
"""Seconds after which a process that says nothing is taken for stuck."""


class Silent(Exception):
    """A process has said nothing for too long."""


class Process(Generic[JobT]):
    """One process at its job."""

    def __init__(self, job: JobT, main: Callable[[JobT, Connection], None]) -> None:
        self.job = job
        self._pipe, theirs = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=main, args=(job, theirs), daemon=True)
        self._process.start()
        theirs.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    async def hear(self) -> Said | None:
        """Return what it says next; `None` where it has died instead."""
        return await run_sync(self._hear)

    def _hear(self) -> Said | None:
        if not self._pipe.poll(PATIENCE):
            raise Silent(f"{self.job}")
        try:
            said = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            return None
        assert isinstance(said, Said)
        return said

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; `None` while it lives."""
        return self._process.exitcode

    def go(self, word: str = "go") -> None:
        """Let it go on from where it waits; `"again"` lets one whose verb has ended try once more."""
        self._pipe.send(word)

    def kill(self) -> None:
        """Let it die where it is."""
        self._send(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it where it is, and wait until the system says that it is stopped, or has ended."""
        self._send(signal.SIGSTOP)
        while self._state() not in "TtZX":
            time.sleep(0.0001)

    def resume(self) -> None:
        """Let it go on, if it was stopped."""
        self._send(signal.SIGCONT)

    def _send(self, what: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # it has ended by itself
            os.kill(self.pid, what)

    def _state(self) -> str:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except OSError:
            return "X"

    async def ended(self) -> int:
        """Wait for its end and return its exit code, negative for a signal."""
        # Only this thread asks for the exit code: whoever came second would be told that there is none.
        await run_sync(wait, [self._process.sentinel])
        self._process.join()
        code = self._process.exitcode
        assert code is not None
        return code

    def close(self) -> None:
        """End it if it lives, and let go of it."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self._pipe.close()


@asynccontextmanager
async def started(*jobs: Job) -> AsyncIterator[list[Process[Job]]]:
    """Processes that are ended with the block, stopped ones too."""
    with ExitStack() as ends:
        processes: list[Process[Job]] = []
        for job in jobs:
            process = Process(job, work)
            ends.callback(process.close)
            processes.append(process)
        yield processes
