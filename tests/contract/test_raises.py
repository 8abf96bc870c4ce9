"""Every promised error is real, and every one that is listed in `stubs/raises.toml` is shown to be.

A provocation makes one callable raise one error: the callable's own code is in the traceback, and of the classes the
error has, the nearest that users can import is the promised one.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import anyio
import pytest
from tests.contract import of_models, of_runs, of_stores, of_testing, of_values  # noqa: F401  # they fill the table
from tests.contract.kit import TABLE
from tools.contract_raises import read_promises

import overt
from overt import errors, testing
from overt.sources import mcp

ROOT = Path(__file__).parent.parent.parent
PROMISED = sorted(
    (path, error)
    for path, errors in read_promises(ROOT / "stubs" / "raises.toml").items()
    for error in errors
)
PUBLIC = {name for module in (overt, errors, testing, mcp) for name in module.__all__} | set(dir(builtins))
UMBRELLAS = {"OvertError", "BaseException"}
"""Promised where it is whatever another callable, or a script, raises."""
# What it returns raises when it is read.
READ_BY = {"overt.operations.follow": "overt.operations._Following.__anext__"}


def test_every_promise_is_in_the_table_and_nothing_else() -> None:
    assert sorted(TABLE) == PROMISED


@pytest.mark.parametrize(("path", "error"), PROMISED, ids=lambda part: part)
def test_it_is_raised(path: str, error: str) -> None:
    raised = provoked(path, error)
    nearest = next(cls.__name__ for cls in type(raised).__mro__ if cls.__name__ in PUBLIC)
    assert nearest == error or (error in UMBRELLAS and isinstance(raised, class_of(error)))
    assert codes_of(path) & set(frames_of(raised)), f"{path} did not raise it"


def provoked(path: str, error: str) -> BaseException:
    async def await_it(given: object) -> None:
        while isinstance(given, Awaitable):
            given = await given
        if isinstance(given, AsyncIterator):
            async for _ in given:
                pass

    def run() -> None:
        provocation = TABLE[path, error]
        if inspect.iscoroutinefunction(provocation):
            anyio.run(lambda: await_it(provocation()))
            return
        given = provocation()  # where no event loop runs
        if isinstance(given, (Awaitable, AsyncIterator)):
            anyio.run(await_it, given)

    with pytest.raises(class_of(error)) as caught:
        run()
    return caught.value


def class_of(name: str) -> type[BaseException]:
    found: object = next(
        getattr(module, name) for module in (errors, testing, mcp, builtins) if hasattr(module, name)
    )
    assert isinstance(found, type)
    assert issubclass(found, BaseException)
    return found


def frames_of(error: BaseException) -> Iterator[CodeType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code
        trace = trace.tb_next


def codes_of(path: str) -> set[CodeType]:
    """The code of a callable and, of a method, of those that override it."""
    read = codes_of(READ_BY[path]) if path in READ_BY else set[CodeType]()
    door = path
    while True:
        door = door.rpartition(".")[0]
        try:
            module = importlib.import_module(door)
        except ModuleNotFoundError:
            continue
        break
    names = path.removeprefix(f"{door}.").split(".")
    found: Any = functools.reduce(getattr, names[:-1], module)
    if isinstance(found, type):
        kinds = [found, *subclasses(found)]
        return {
            code for kind in kinds for code in code_in(inspect.getattr_static(kind, names[-1], None))
        } | read
    made = getattr(module, names[-1])
    if isinstance(made, type):
        return {
            code
            for name in ("__init__", "__post_init__", "__new__")
            for code in code_in(inspect.getattr_static(made, name, None))
        }
    return code_in(made) | read


def subclasses(cls: type) -> Iterator[type]:
    below: list[type] = cls.__subclasses__()
    for sub in below:
        yield sub
        yield from subclasses(sub)


def code_in(found: Any) -> set[CodeType]:
    found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    code = getattr(inspect.unwrap(found) if callable(found) else found, "__code__", None)
    return {code} if code is not None else set()
