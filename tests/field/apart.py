"""Running a function in a process of its own."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar, cast

import anyio
from anyio.to_thread import run_sync
from tests.torture.fleet import CONTEXT, PATIENCE
from typing_extensions import ParamSpec

T = TypeVar("T")
P = ParamSpec("P")


async def apart(fn: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Await `fn`, which a module has to define at its top, in a process of its own; what it returns is pickled.

    Raises:
        AssertionError: The process has failed; what it raised is on its standard error.
    """
    code, found = await _run(fn, args, kwargs)
    assert code == 0, f"{fn.__name__} has failed in its process, with exit code {code}"
    return cast("T", found)


async def dies_apart(fn: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> None:
    """The same with a process that is to be killed on its way.

    Raises:
        AssertionError: It was not.
    """
    code, found = await _run(fn, args, kwargs)
    assert code == -signal.SIGKILL, f"{fn.__name__} was to be killed and ended with {code}: {found}"


async def _run(fn: Callable[..., Any], args: object, kwargs: object) -> tuple[int | None, object]:
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_main, args=(fn, args, kwargs, theirs), daemon=True)
    process.start()
    theirs.close()
    found: object = None
    try:
        assert await run_sync(ours.poll, PATIENCE), f"{fn.__name__} does not come to an end"
        with suppress(EOFError):
            found = ours.recv()
        process.join()
        return process.exitcode, found
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()


def _main(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], pipe: Connection) -> None:
    warnings.simplefilter("error")

    async def run() -> None:
        pipe.send(await fn(*args, **kwargs))

    anyio.run(run)


class Notebook:
    """Lines that every process can add to and read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, line: object) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def read(self) -> list[str]:
        return self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)
