"""Calls in doubt: what a tool's own lookup is told of one, and what it may say of it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias

from pydantic import JsonValue
from typing_extensions import TypeVar

from overt.errors import DefinitionError

__all__ = ("Doubt", "Failed", "Resolution", "Resolver", "Retry", "Succeeded")

DoubtDepsT = TypeVar("DoubtDepsT", covariant=True, default=object)
D = TypeVar("D")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Doubt(Generic[DoubtDepsT]):
    """A call, or a `once` block of it, that was entered and left without an outcome: has it happened?

    What the `resolve` of a tool is given. Made by the runtime; a lookup that needs no `deps` takes a bare `Doubt`.

    Attributes:
        deps: What the host gave the run as `deps`; the object itself, never stored.
        run_id: The run.
        handle: Id of the calling handle, such as `root/coordinator.1`.
        tool: Name of the tool.
        arguments: The validated arguments, as JSON values.
        idempotency_key: The call's `ToolContext.idempotency_key`: what to look it up by.
        once: Label of the `ToolContext.once` block that is in doubt; `None` where it is the whole call.
        attempt: Which execution of the wake this is.
    """

    deps: DoubtDepsT
    run_id: str
    handle: str
    tool: str
    arguments: Mapping[str, JsonValue]
    idempotency_key: str
    once: str | None = None
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Succeeded:
    """It has happened, and went well.

    Attributes:
        output: Of a call what the tool would have returned: the model is given it as if it had. Of a `once` block its
            value.
    """

    output: object = None


@dataclass(frozen=True, slots=True)
class Failed:
    """It has failed for good: nothing is tried again.

    Attributes:
        output: Of a call what the model is told, as the result of an error. Of a `once` block what `ToolContext.once`
            raises as a `ToolError`.
    """

    output: object


@dataclass(frozen=True, slots=True)
class Retry:
    """It has not happened: the call is entered again, under the same idempotency key."""


Resolution: TypeAlias = Succeeded | Failed | Retry
"""What became of a call in doubt."""

Resolver = Callable[[Doubt[D]], Resolution | Awaitable[Resolution | None] | None]
"""Finds out what became of a call in doubt; `None` where it cannot tell: a person is asked then."""


def check_resolver(where: str, fn: object) -> None:
    """Check that a tool's `resolve` can be called with a doubt.

    Raises:
        DefinitionError: It cannot; says why.
    """
    if not callable(fn):
        raise DefinitionError(f"{where}: resolve has to be a function of the doubt, not {type(fn).__name__}")
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return  # a builtin does not say what it takes
    try:
        signature.bind(None)
    except TypeError as error:
        raise DefinitionError(f"{where}: resolve has to be a function of one Doubt: {error}") from None
