"""Running user code: in a copy of the context, in a thread, and telling how it ended."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

from overt._text import told

__all__ = (
    "Host",
    "InContext",
    "cancellations",
    "current_host",
    "describe",
    "let_through",
    "pause_here",
    "run_user_code",
    "stop_if_cancelled",
    "to_its_end",
)

T = TypeVar("T")


class InContext(Generic[T]):
    """Call an async function and await what it returns in a copy of the current context, without a task of its own.

    Each step of the coroutine runs inside the copy, so what one tool sets in a context variable reaches neither its
    siblings nor the next tool performed by the same task, nor the host whose task that may be.
    """

    __slots__ = ("_call", "_context")

    def __init__(self, fn: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> None:
        self._call = partial(fn, *args, **kwargs)
        self._context: Context = copy_context()

    def __await__(self) -> Generator[Any, Any, T]:
        run = self._context.run
        awaitable = run(self._call)
        coro: Coroutine[Any, Any, T] = awaitable if inspect.iscoroutine(awaitable) else _awaiting(awaitable)
        step: Callable[[Any], Any] = coro.send
        given: Any = None
        while True:
            try:
                yielded = run(step, given)
            except StopIteration as stop:
                value: T = stop.value
                return value
            try:
                sent = yield yielded
            except GeneratorExit:
                run(coro.close)
                raise
            except BaseException as error:  # noqa: BLE001  # handed on into the coroutine, whatever it is
                step, given = coro.throw, error
            else:
                step, given = coro.send, sent


async def _awaiting(awaitable: Awaitable[T]) -> T:
    return await awaitable


async def run_user_code(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, is_async: bool
) -> Any:
    """Call `fn`: awaited in a copy of the context, or in a worker thread that sees the caller's context variables.

    A thread is abandoned when the caller is cancelled: nothing can stop it, and nothing waits for it.
    """
    if is_async:
        return await InContext(fn, *args, **kwargs)
    value, error = await anyio.to_thread.run_sync(
        _outcome, partial(fn, *args, **kwargs), abandon_on_cancel=True
    )
    if error is not None:
        try:
            raise error
        finally:
            del error
    # A plain callable may hand out a coroutine (a lambda, a partial of something unusual).
    if inspect.isawaitable(value):
        return await InContext(_awaiting, value)
    return value


def _outcome(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Call, and return value and exception: event loops refuse to carry some of either out of a thread."""
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001  # raised again by who waits
        return None, error


# ------------------------------------------------------------------ how it ended


class Host(Protocol):
    """A task that others may cancel as such, as asyncio's."""

    def cancelling(self) -> int:
        """How often it was asked to."""
        ...


def current_host() -> Host | None:
    """Return the current task where the backend lets others cancel a task as such; `None` elsewhere."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def cancellations(host: Host | None) -> int:
    """Return how often the host's task has been asked to stop; 0 in any other task."""
    if host is None or host is not current_host():
        return 0
    return host.cancelling()


def pause_here() -> Callable[[], Awaitable[None]]:
    """Return the cheapest checkpoint of the running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return checkpoint
    # A cancelled scope cancels the task, so waiting once is enough; anyio's checkpoint costs three times as much.
    return partial(asyncio.sleep, 0)


async def stop_if_cancelled(before: int, host: Host | None) -> None:
    """Raise the cancellation that is under way, if one has come since `before` was counted."""
    await checkpoint_if_cancelled()
    if cancellations(host) > before:
        import asyncio

        raise asyncio.CancelledError


async def to_its_end(work: Callable[[], Awaitable[None]]) -> None:
    """Do `work` to its end, and raise a cancellation that came meanwhile only after it.

    A shield keeps cancelled scopes off. asyncio also lets anybody cancel the host's task as such, more than once, and
    past every shield: there the work is done in a task that nobody else knows.
    """
    if current_host() is None:
        await _shielded(work)
        return
    task = asyncio.create_task(_shielded(work))
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
    try:
        task.result()
        if cancelled is not None:
            raise cancelled
    finally:
        del cancelled, task  # they know this frame: a cycle that would keep the run


async def _shielded(work: Callable[[], Awaitable[None]]) -> None:
    with anyio.CancelScope(shield=True):
        await work()


async def let_through(error: BaseException, before: int, host: Host | None) -> None:
    """Raise what is no failure of the code that raised it: the end of the process, or a cancellation from outside.

    Cancellation that the code made up itself is its failure. Of an exception group that holds the end of the process
    only that is raised, of one that holds a cancellation only the cancellation.
    """
    if isinstance(error, Exception):
        return
    for kind in (KeyboardInterrupt, SystemExit):
        found = _first(error, kind)
        if found is not None:
            raise found from None
    if _first(error, anyio.get_cancelled_exc_class()) is not None:
        await stop_if_cancelled(before, host)


def _first(error: BaseException, kind: type[BaseException]) -> BaseException | None:
    if isinstance(error, kind):
        return error
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            found = _first(inner, kind)
            if found is not None:
                return found
    return None


def describe(error: BaseException) -> str:
    """Return type and message of an exception, without traceback; of a group, those of its members too."""
    name = type(error).__name__
    text = told(error)
    if isinstance(error, BaseExceptionGroup):
        members = cast("BaseExceptionGroup[BaseException]", error).exceptions
        text += ": " + "; ".join(describe(inner) for inner in members)
    return f"{name}: {text}" if text else name
