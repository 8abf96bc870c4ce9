"""Running user code: in a copy of the context, in a thread, and telling its own cancellation from the run's."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Generic, TypeGuard, TypeVar

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled

__all__ = ("InContext", "cancellations", "is_cancelled", "pause_here", "run_user_code")

T = TypeVar("T")


class InContext(Generic[T]):
    """Await a coroutine in a copy of the current context, without a task of its own.

    Each step of the coroutine runs inside the copy, so what one tool sets in a context variable neither reaches its
    siblings nor the next tool performed by the same task.
    """

    __slots__ = ("_context", "_coro")

    def __init__(self, coro: Coroutine[Any, Any, T]) -> None:
        self._coro = coro
        self._context: Context = copy_context()

    def __await__(self) -> Generator[Any, Any, T]:
        run, coro = self._context.run, self._coro
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


async def run_user_code(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, is_async: bool
) -> Any:
    """Call `fn`: awaited in a copy of the context, or in a worker thread that sees the caller's context variables.

    A thread is abandoned when the caller is cancelled: nothing can stop it, and nothing waits for it.
    """
    if is_async:
        return await InContext(fn(*args, **kwargs))
    value = await anyio.to_thread.run_sync(partial(fn, *args, **kwargs), abandon_on_cancel=True)
    # A plain callable may hand out a coroutine (a lambda, a partial of something unusual).
    if _is_coroutine(value):
        return await InContext(value)
    return value


def _is_coroutine(value: object) -> TypeGuard[Coroutine[Any, Any, Any]]:
    return isinstance(value, Coroutine)


def cancellations() -> int:
    """Return how often the current task has been asked to stop, where the backend counts that."""
    # Nobody is in a task of asyncio who has not imported it; with trio it is left alone.
    if "asyncio" in sys.modules:
        from asyncio import current_task

        try:
            task = current_task()
        except RuntimeError:
            return 0
        if task is not None:
            return task.cancelling()
    return 0


def pause_here() -> Callable[[], Awaitable[None]]:
    """Return the cheapest checkpoint of the running event loop."""
    if "asyncio" in sys.modules:
        from asyncio import get_running_loop, sleep

        try:
            get_running_loop()
        except RuntimeError:
            return checkpoint
        # A cancelled scope cancels the task, so waiting once is enough; anyio's checkpoint costs three times as much.
        return partial(sleep, 0)
    return checkpoint


async def is_cancelled(before: int) -> bool:
    """Say whether the current task is being cancelled from outside since `before` was counted."""
    if cancellations() > before:
        return True
    try:
        await checkpoint_if_cancelled()
    except anyio.get_cancelled_exc_class():
        return True
    return False
