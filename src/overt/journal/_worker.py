"""The one thread of a store that touches its database, and the hand-over between it and event loops."""

from __future__ import annotations

import asyncio
import atexit
import copy
import enum
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import anyio
from anyio.lowlevel import checkpoint_if_cancelled, current_token

from overt.errors import RunConflict, RunExists, RunNotFound, StoreError
from overt.journal._checks import used_after_close

__all__ = ("Database", "Job", "Next", "Worker")

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
T = TypeVar("T")

_SHARED_COMMIT = 256
"""Most operations that share one commit; bounds how long the first of them waits for the rest."""

# Raised by an operation before its first write, so what its neighbours wrote may be committed.
_REFUSALS = (RunConflict, RunExists, RunNotFound)

_TRIES = 4
"""How often the same jobs are tried together before they fail."""


class Next(enum.Enum):
    """What becomes of the jobs of a transaction that failed and left nothing behind."""

    AGAIN = enum.auto()
    """They are all tried once more, together: what stood in the way was not theirs and may be gone."""
    APART = enum.auto()
    """Each is tried alone, so that only the one at fault fails."""


class Database(Protocol[C_co]):
    """What a worker needs of a database. Used from its thread only; `C_co` is what a job does its work on."""

    @property
    def name(self) -> str:
        """Where it is, in a few words."""
        ...

    def connection(self, *, make: bool) -> C_co:
        """Return what a job reads from, connected.

        Args:
            make: Whether the tables are made where they are missing; otherwise that is `RunNotFound`.
        """
        ...

    def begin(self, runs: Sequence[str], *, make: bool) -> C_co:
        """Start a transaction that writes, for jobs about these runs."""
        ...

    def commit(self) -> None:
        """Make what the jobs wrote durable."""
        ...

    def committed(self) -> None:
        """Do what can wait until those who waited for the commit were told. Must not raise."""
        ...

    def recover(self, error: Exception) -> Next | None:
        """Undo the open transaction after `error`, and drop the connection if it may be broken.

        Returns:
            What becomes of the jobs; `None` where the worker is to go by what it did: the work of a job failed, then
            each is tried alone, and otherwise all fail.
        """
        ...

    def close(self) -> None:
        """Let go of the connection; an open transaction is undone."""
        ...

    def explain(self, error: Exception, *, run_id: str, committing: bool) -> StoreError:
        """Return `error` in words that say where it happened and what to do.

        Args:
            error: What an operation raised.
            run_id: The run the operation was about.
            committing: Whether the commit itself failed, so that nobody knows whether it happened.
        """
        ...


class _TrioToken(Protocol):
    def run_sync_soon(self, sync_fn: Callable[[], object]) -> object: ...


class Job(Generic[C, T]):
    """One operation, from the task that waits for it to the thread that does it.

    Made in the event loop of the waiting task.

    Args:
        run_id: The run it is about, for messages.
        work: Does it on the connection. May be called again if a neighbour in the same transaction fails.
        writes: Whether it needs a write transaction; otherwise `work` begins its own where it wants one.
        makes: Whether the tables are made where they are missing; otherwise that is `RunNotFound`.
    """

    __slots__ = ("error", "event", "loop", "makes", "result", "run_id", "withdrawn", "work", "writes")

    def __init__(self, run_id: str, work: Callable[[C], T], *, writes: bool, makes: bool = False) -> None:
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


class Worker(Generic[C]):
    """A thread that does jobs in order and commits those together that came while it was busy.

    Holds no reference to its store, so that the store can be collected while the thread waits. Belongs to the
    process that made it: a forked child has no such thread and must make its own.

    Args:
        database: Given to the thread.
        store: What the store is called in messages.
    """

    def __init__(self, database: Database[C], store: str) -> None:
        self.pid: Final = os.getpid()
        self._database: Final = database
        self._store: Final = store
        self._queue: Final[SimpleQueue[Job[C, object] | None]] = SimpleQueue()
        # Collecting garbage may call `stop` at any allocation, also while this thread is in `stop`.
        self._lock: Final = threading.RLock()
        self._stopping = False
        self._thread: Final = threading.Thread(target=self._serve, name=f"overt {database.name}", daemon=True)
        self._thread.start()
        _workers.add(self)

    async def do(self, job: Job[C, T]) -> T:
        """Do `job` and return its result.

        Raises:
            StoreError: What went wrong, or the worker is stopped.
        """
        await checkpoint_if_cancelled()
        # Under the lock nothing can come behind the end mark, where nobody would serve it.
        with self._lock:
            if self._stopping:
                raise used_after_close(self._store)
            self._queue.put(cast("Job[C, object]", job))
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
                    self._database.committed()
                for job in jobs:
                    if not job.writes:
                        self._read(job)
                        _wake((job,))
                        del job
                # What a job read must not stay in memory until the next one comes.
                del jobs, writes
        finally:
            self._database.close()

    def _read(self, job: Job[C, object]) -> None:
        for tries in range(1, _TRIES + 1):
            try:
                job.result = job.work(self._database.connection(make=job.makes))
                return
            except Exception as error:  # noqa: BLE001 - the waiting task raises it
                after = self._database.recover(error)
                if after is not Next.AGAIN or tries == _TRIES:
                    self._fail(job, error)
                    return

    def _write(self, jobs: Sequence[Job[C, object]]) -> bool:
        """Do `jobs` in one transaction; return `False` if none can be begun now, whatever the jobs."""
        for tries in range(1, _TRIES + 1):
            begun = committing = False
            try:
                connection = self._database.begin(
                    [job.run_id for job in jobs], make=any(job.makes for job in jobs)
                )
                begun = True
                for job in jobs:
                    job.error = None
                    try:
                        job.result = job.work(connection)
                    except _REFUSALS as refusal:
                        job.error = refusal
                committing = True
                self._database.commit()
                return True
            except Exception as error:  # noqa: BLE001 - the waiting tasks raise it
                after = self._database.recover(error)
                if after is Next.AGAIN and tries < _TRIES:
                    continue
                if len(jobs) > 1 and (after is Next.APART or (begun and not committing)):
                    self._write_apart(jobs)
                    return True
                # A refusal may rest on what a neighbour wrote, and that is gone. Each task gets an exception, and a
                # traceback, of its own.
                for job in jobs:
                    self._fail(job, error if len(jobs) == 1 else copy.copy(error), committing=committing)
                return begun or after is not None
        raise AssertionError("the last try returns")

    def _write_apart(self, jobs: Sequence[Job[C, object]]) -> None:
        """Do each job in a transaction of its own, so that whoever is at fault fails alone."""
        for place, job in enumerate(jobs):
            if not self._write((job,)):
                # Where there is nothing to write to, the others need not wait for that to be found out again.
                for other in jobs[place + 1 :]:
                    other.error = copy.copy(job.error)
                return

    def _fail(self, job: Job[C, object], error: Exception, *, committing: bool = False) -> None:
        job.error = self._database.explain(error, run_id=job.run_id, committing=committing)
        if job.error is not error:
            job.error.__cause__ = error


def _wake(jobs: Sequence[Job[C, object]]) -> None:
    """Let the tasks of `jobs` go on, with one call into each event loop."""
    loops: dict[int, list[Job[C, object]]] = {}
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


_workers: weakref.WeakSet[Worker[Any]] = weakref.WeakSet()


def _stop_all() -> None:
    """Close every connection before the interpreter goes; a thread in the middle of a commit gets the time for it."""
    workers = list(_workers)
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.join(timeout=5.0)


atexit.register(_stop_all)
