"""The one thread in which connections to servers live, and the hand-over between its event loop and any other.

A session of the SDK holds task groups open and has to be left by the task that entered it. Here each lives in a task of
one event loop in a thread of its own, so callers come from any task, event loop and thread, and may go in any order.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import anyio
from anyio.lowlevel import checkpoint_if_cancelled, current_token

from overt.errors import UsageError

__all__ = ("Asked", "Errand", "Portal", "do", "portal")

T = TypeVar("T")

GRACE = 6.0
"""Seconds that connections have at the end of the process; a server that does not go by itself is killed in 4."""
PATIENCE = 2.0
"""Seconds a caller that leaves waits until the portal has let go of what it asked for."""


class _TrioToken(Protocol):
    def run_sync_soon(self, sync_fn: Callable[[], object]) -> object: ...


class Portal:
    """A daemon thread with an asyncio event loop. Belongs to the process that made it."""

    def __init__(self) -> None:
        self.pid: Final = os.getpid()
        self.closers: Final[set[Callable[[], None]]] = set()
        """Told at the end of the process, in the portal's thread."""
        self._loop: Final = asyncio.new_event_loop()
        self._stopping: Final = asyncio.Event()
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._thread: Final = threading.Thread(target=self._run, name="overt mcp", daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int | None:
        """Identifies the thread, as `threading.get_ident` does inside it."""
        return self._thread.ident

    def soon(self, fn: Callable[[], object]) -> None:
        """Call a function in the portal's thread.

        Raises:
            RuntimeError: The process is ending.
        """
        self._loop.call_soon_threadsafe(fn, context=Context())

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]], context: Context | None = None) -> None:
        """Begin a task; it has to deal with whatever it raises. In the portal's thread only.

        Args:
            work: The task.
            context: The context variables it has; `None` for none.
        """
        # Its own reference: the loop itself holds tasks only weakly.
        task = self._loop.create_task(work(), context=context or Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """Close everything and end the thread, with no more than `GRACE` seconds for it."""
        if self.pid != os.getpid():
            return
        with suppress(RuntimeError):
            self.soon(self._stopping.set)
        self._thread.join(GRACE + PATIENCE)

    def _run(self) -> None:
        # Not `asyncio.run`: it ends by starting a thread, and an interpreter that is going starts none any more.
        try:
            self._loop.run_until_complete(self._main())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    async def _main(self) -> None:
        await self._stopping.wait()
        for close in tuple(self.closers):
            close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=PATIENCE)


_portal: Portal | None = None
_lock = threading.Lock()


def portal() -> Portal:
    """Return this process's portal, which begins at first use. A forked child has one of its own."""
    global _portal
    with _lock:
        if _portal is None or _portal.pid != os.getpid():
            _portal = Portal()
        return _portal


def _stop() -> None:
    if _portal is not None:
        _portal.stop()


def _after_fork() -> None:
    """Another thread may have held the lock when the process was forked."""
    global _lock
    _lock = threading.Lock()


atexit.register(_stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _ending() -> UsageError:
    return UsageError("the process is ending: no MCP server can be reached any more")


class Asked:
    """A question that came up in the portal, on its way to the task that knows whom to ask."""

    __slots__ = ("_come", "answer", "question")

    def __init__(self, question: object) -> None:
        self.question: Final = question
        self.answer: object = None
        """What came of it; `None` when the errand was over before."""
        self._come: Final = asyncio.Event()

    def settle(self, answer: object) -> None:
        """Give the answer. In the portal's thread only."""
        self.answer = answer
        self._come.set()

    async def wait(self) -> object:
        await self._come.wait()
        return self.answer


class Errand(Generic[T]):
    """Something done in the portal for a task of any event loop, which may be asked questions meanwhile.

    Made in the caller's event loop, then `begin`, `next` as often as there is a question, and in any case `leave`, by
    the task that began it.
    """

    def __init__(self, work: Callable[[Errand[T]], Awaitable[T]]) -> None:
        self._work: Final = work
        self._portal: Final = portal()
        self._caller: Final = current_token().native_token
        self._bell = anyio.Event()
        self._told: Final[deque[Asked]] = deque()
        self._result: list[T] = []
        self._error: Exception | None = None
        self._over = False
        # What is below belongs to the portal's thread.
        self._scope: anyio.CancelScope | None = None
        self._withdrawn = False
        self._open: set[Asked] = set()

    # ------------------------------------------------------------ in the caller's event loop

    def begin(self) -> None:
        """Set it going.

        Raises:
            UsageError: The process is ending.
        """
        # The caller's trace goes on at the server.
        context = copy_context()
        with suppress(ImportError):
            import sniffio  # anyio goes by what it says, where it is installed

            context.run(sniffio.current_async_library_cvar.set, "asyncio")
        try:
            self._portal.soon(partial(self._start, context))
        except RuntimeError:
            self._over = True
            raise _ending() from None

    async def next(self) -> T | Asked:
        """Return the next question, or what came of it.

        Raises:
            Exception: Whatever the work raised.
        """
        while not self._told and not self._over:
            await self._bell.wait()
            self._bell = anyio.Event()
        if self._told:
            return self._told.popleft()
        if self._error is not None:
            try:
                raise self._error
            finally:
                # The traceback holds this frame, and the frame the errand.
                self._error = None
        if not self._result:
            raise _ending()
        return self._result[0]

    def answer(self, asked: Asked, answer: object) -> None:
        """Answer a question."""
        with suppress(RuntimeError):
            self._portal.soon(partial(asked.settle, answer))

    async def leave(self) -> None:
        """Withdraw what is not done yet, and wait a moment until the portal has let go of it."""
        if self._over:
            return
        try:
            self._portal.soon(self._withdraw)
        except RuntimeError:
            return
        with anyio.move_on_after(PATIENCE, shield=True):
            while not self._over:
                await self._bell.wait()
                self._bell = anyio.Event()

    # ------------------------------------------------------------ in the portal's thread

    async def ask(self, question: object) -> object:
        """Hand a question to the caller, and return the answer; `None` when the errand is over."""
        asked = Asked(question)
        if self._over:
            return None
        self._open.add(asked)
        self._told.append(asked)
        self._ring()
        try:
            return await asked.wait()
        finally:
            self._open.discard(asked)

    def _start(self, context: Context) -> None:
        if self._withdrawn:
            self._end((), None)
        else:
            self._portal.spawn(self._do, context)

    def _withdraw(self) -> None:
        self._withdrawn = True
        if self._scope is not None:
            self._scope.cancel()

    async def _do(self) -> None:
        found: list[T] = []
        error: Exception | None = None
        try:
            with anyio.CancelScope() as self._scope:
                if self._withdrawn:
                    self._scope.cancel()
                found.append(await self._work(self))
        except Exception as raised:  # noqa: BLE001  # who waits for it raises it
            error = raised
        finally:
            self._scope = None
            self._end(found, error)

    def _end(self, found: Sequence[T], error: Exception | None) -> None:
        self._result += found
        self._error = error
        self._over = True
        for asked in tuple(self._open):
            asked.settle(None)
        self._ring()

    def _ring(self) -> None:
        """Let the caller look, in its own event loop."""

        def ring() -> None:
            self._bell.set()

        try:
            if isinstance(self._caller, asyncio.AbstractEventLoop):
                self._caller.call_soon_threadsafe(ring)
            else:
                cast("_TrioToken", self._caller).run_sync_soon(ring)
        except RuntimeError:
            # Its loop has ended, and the caller with it. Trio's error derives from RuntimeError as well.
            if self._scope is not None:
                self._scope.cancel()


async def do(work: Callable[[], Awaitable[T]]) -> T:
    """Do something in the portal and return what came of it; cancelled here, it is cancelled there.

    Raises:
        Exception: Whatever the work raised.
    """

    async def alone(_: Errand[T]) -> T:
        return await work()

    await checkpoint_if_cancelled()
    errand = Errand(alone)
    try:
        errand.begin()
        found = await errand.next()
        assert not isinstance(found, Asked), "nobody asks here"
        return found
    finally:
        await errand.leave()
