"""The one thread that touches a SQLite file, and the hand-over between it and event loops."""

from __future__ import annotations

import asyncio
import atexit
import copy
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final, Generic, Protocol, TypeVar, cast

import anyio
from anyio.lowlevel import checkpoint_if_cancelled, current_token

from overt.errors import RunConflict, RunExists, RunNotFound
from overt.journal._checks import used_after_close
from overt.journal._sqlite_file import Database, explain

__all__ = ("Job", "Worker")

T = TypeVar("T")

_SHARED_COMMIT = 256
"""Most operations that share one commit; bounds how long the first of them waits for the rest."""

# Raised by an operation before its first write, so what its neighbours wrote may be committed.
_REFUSALS = (RunConflict, RunExists, RunNotFound)


class _TrioToken(Protocol):
    def run_sync_soon(self, sync_fn: Callable[[], object]) -> object: ...


class Job(Generic[T]):
    """One operation, from the task that waits for it to the thread that does it.

    Made in the event loop of the waiting task.

    Args:
        run_id: The run it is about, for messages.
        work: Does it on the connection. May be called again if a neighbour in the same transaction fails.
        writes: Whether it needs a write transaction; otherwise `work` begins its own where it wants one.
        makes: Whether the file is made where it is missing; otherwise that is `RunNotFound`.
    """

    __slots__ = ("error", "event", "loop", "makes", "result", "run_id", "withdrawn", "work", "writes")

    def __init__(
        self, run_id: str, work: Callable[[sqlite3.Connection], T], *, writes: bool, makes: bool = False
    ) -> None:
        self.run_id: Final = run_id
        self.work: Final = work
        self.writes: Final = writes
        self.makes: Final = makes
        self.loop: Final = current_token().native_token
        self.event: Final = anyio.Event()
        self.withdrawn = False
        self.result: T | None = None
        self.error: Exception | None = None

    async def wait(self) -> T:
        """Wait for the thread; a cancelled wait withdraws the job if the thread has not begun it.

        Raises:
            StoreError: What went wrong.
        """
        try:
            await self.event.wait()
        except BaseException:
            self.withdrawn = True
            raise
        if self.error is not None:
            try:
                raise self.error
            finally:
                # The traceback holds this frame, and the frame this job.
                self.error = None
        return cast("T", self.result)


class Worker:
    """A thread that does jobs in order and commits those together that came while it was busy.

    Holds no reference to its store, so that the store can be collected while the thread waits. Belongs to the
    process that made it: a forked child has no such thread and must make its own.
    """

    def __init__(self, database: Database) -> None:
        self.pid: Final = os.getpid()
        self._database: Final = database
        self._queue: Final[SimpleQueue[Job[object] | None]] = SimpleQueue()
        # Collecting garbage may call `stop` at any allocation, also while this thread is in `stop`.
        self._lock: Final = threading.RLock()
        self._stopping = False
        self._thread: Final = threading.Thread(target=self._serve, name=f"overt {database.path}", daemon=True)
        self._thread.start()
        _workers.add(self)

    async def do(self, job: Job[T]) -> T:
        """Do `job` and return its result.

        Raises:
            StoreError: What went wrong, or the worker is stopped.
        """
        await checkpoint_if_cancelled()
        # Under the lock nothing can come behind the end mark, where nobody would serve it.
        with self._lock:
            if self._stopping:
                raise used_after_close(f"SQLiteStore({str(self._database.path)!r})")
            self._queue.put(cast("Job[object]", job))
        return await job.wait()

    def stop(self) -> None:
        """Let the thread end once it has done what was asked before; does not wait for it."""
        if self.pid != os.getpid():
            return
        with self._lock:
            if not self._stopping:
                self._stopping = True
                self._queue.put(None)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread to end, at most `timeout` seconds."""
        if self.pid == os.getpid():
            self._thread.join(timeout)

    def _serve(self) -> None:
        stopping = False
        try:
            while not stopping:
                batch = [self._queue.get()]
                try:
                    while len(batch) < _SHARED_COMMIT:
                        batch.append(self._queue.get_nowait())
                except Empty:
                    pass
                stopping = batch[-1] is None
                jobs = [job for job in batch if job is not None and not job.withdrawn]
                del batch
                writes = [job for job in jobs if job.writes]
                if writes:
                    self._write(writes)
                    _wake(writes)
                for job in jobs:
                    if not job.writes:
                        self._read(job)
                        _wake((job,))
                        del job
                # What a job read must not stay in memory until the next one comes.
                del jobs, writes
        finally:
            self._database.close()

    def _read(self, job: Job[object]) -> None:
        try:
            job.result = job.work(self._database.connection(make=job.makes))
        except Exception as error:  # noqa: BLE001 - the waiting task raises it
            self._database.recover(error)
            self._fail(job, error)

    def _write(self, jobs: Sequence[Job[object]]) -> None:
        try:
            connection = self._database.begin(make=any(job.makes for job in jobs))
        except Exception as error:  # noqa: BLE001 - the waiting task raises it
            self._database.recover(error)
            for job in jobs:
                # Each task gets an exception, and a traceback, of its own.
                self._fail(job, copy.copy(error))
            return
        for job in jobs:
            job.error = None
            try:
                job.result = job.work(connection)
            except _REFUSALS as refusal:
                job.error = refusal
            except Exception as error:  # noqa: BLE001 - the waiting task raises it
                self._database.recover(error)
                if len(jobs) == 1:
                    self._fail(job, error)
                    return
                # All was undone; whoever is at fault fails alone now.
                for one in jobs:
                    self._write((one,))
                return
        try:
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - the waiting task raises it
            self._database.recover(error)
            for job in jobs:
                # A refusal may rest on what a neighbour wrote, and that is gone.
                self._fail(job, error, committing=True)

    def _fail(self, job: Job[object], error: Exception, *, committing: bool = False) -> None:
        job.error = explain(error, self._database.path, run_id=job.run_id, committing=committing)
        if job.error is not error:
            job.error.__cause__ = error


def _wake(jobs: Sequence[Job[object]]) -> None:
    """Let the tasks of `jobs` go on, with one call into each event loop."""
    loops: dict[int, list[Job[object]]] = {}
    for job in jobs:
        loops.setdefault(id(job.loop), []).append(job)
    for ours in loops.values():
        events = [job.event for job in ours]
        loop = ours[0].loop

        def set_all(events: Sequence[anyio.Event] = events) -> None:
            for event in events:
                event.set()

        try:
            if isinstance(loop, asyncio.AbstractEventLoop):
                loop.call_soon_threadsafe(set_all)
            else:
                cast("_TrioToken", loop).run_sync_soon(set_all)
        except RuntimeError:
            # The loop has ended, and the tasks with it. Trio's error derives from RuntimeError as well.
            continue


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


def _stop_all() -> None:
    """Close every connection before the interpreter goes; a thread in the middle of a commit gets the time for it."""
    workers = list(_workers)
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.join(timeout=5.0)


atexit.register(_stop_all)
