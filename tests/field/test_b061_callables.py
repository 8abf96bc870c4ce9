"""B061: every kind of callable is a tool with the right schema, or refused at declaration."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

import pytest

from overt import DefinitionError, Tool, ToolContext, tool

P = ParamSpec("P")
R = TypeVar("R")


async def send(ctx: ToolContext, to: str, subject: str = "", urgent: bool = False) -> str:
    """Send it.

    Args:
        to: Address.
        subject: Line.
    """
    return f"{to}:{subject}:{urgent}"


class Shop:
    """A shop."""

    def order(self, what: str) -> str:
        """Order it."""
        return f"{type(self).__name__} {what}"

    @classmethod
    def find(cls, what: str) -> str:
        return f"{cls.__name__} {what}"

    @staticmethod
    def close(why: str) -> str:
        return why

    async def __call__(self, what: str) -> str:
        """Call it."""
        return f"called {what}"


class Sync:
    """Documented on the class."""

    def __call__(self, n: int) -> int:
        return n


def logged(fn: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(fn)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        return fn(*args, **kwargs)

    return wrapper


@logged
def counted(n: int) -> int:
    """Count."""
    return n


@logged
async def waited(n: int) -> int:
    return n


def bare_wrapper(fn: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


async def call(made: Tool[Any, ..., Any], **arguments: object) -> object:
    args, kwargs = made.bind(made.canonical(arguments))
    value = made(*((None,) if made.takes_context else ()), *args, **kwargs)
    return await value if isinstance(value, Awaitable) else value


def properties(made: Tool[Any, ..., Any]) -> list[str]:
    found = made.input_schema["properties"]
    assert isinstance(found, dict)
    return list(found)


@pytest.mark.anyio
async def test_partials_lose_what_they_bind() -> None:
    made = tool(functools.partial(send, subject="hi"))
    assert (made.name, made.description, made.is_async, made.takes_context) == (
        "send",
        "Send it.",
        True,
        True,
    )
    assert properties(made) == ["to", "urgent"]
    assert await call(made, to="me", urgent=True) == "me:hi:True"
    nested = tool(functools.partial(functools.partial(send, subject="hi"), urgent=True), name="nested")
    assert properties(nested) == ["to"]
    assert await call(nested, to="me") == "me:hi:True"
    by_position = tool(functools.partial(counted, 5))
    assert properties(by_position) == []
    assert await call(by_position) == 5


@pytest.mark.anyio
async def test_methods() -> None:
    for made, result in (
        (tool(Shop().order), "Shop x"),
        (tool(Shop.find), "Shop x"),
        (tool(functools.partial(Shop().order)), "Shop x"),
    ):
        assert properties(made) == ["what"]
        assert await call(made, what="x") == result
    assert tool(Shop().order).name == "order"
    assert tool(Shop().order).description == "Order it."
    assert await call(tool(Shop.close), why="late") == "late"


@pytest.mark.anyio
async def test_callable_objects() -> None:
    made = tool(Shop())
    assert (made.name, made.description, made.is_async) == ("Shop", "Call it.", True)
    assert await call(made, what="x") == "called x"
    sync = tool(Sync(), name="sync")
    assert (sync.description, sync.is_async) == ("Documented on the class.", False)
    assert await call(sync, n=1) == 1
    assert await call(tool(functools.partial(Sync(), n=2))) == 2


@pytest.mark.anyio
async def test_decorated_functions() -> None:
    made = tool(counted)
    assert (made.name, made.description, properties(made)) == ("counted", "Count.", ["n"])
    assert await call(made, n=3) == 3
    assert await call(tool(waited), n=4) == 4


def test_unsupported_ones_fail_at_declaration() -> None:
    with pytest.raises(DefinitionError, match=r"parameter 'args' is \*args.*functools\.wraps"):
        tool(bare_wrapper(counted))
    for wrong in (lambda n: n, lambda: 1):
        with pytest.raises(DefinitionError, match="a lambda has no name"):
            tool(wrong)
