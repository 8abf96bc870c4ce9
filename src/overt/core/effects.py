"""What is left to do, in the imperative. Effects are values; the driver performs them.

An effect is open from the fact that issued it to the fact that closed it, and `tree.open` holds exactly those. What
it needs beyond its ids (messages, arguments) is read from the tree when it is performed.
"""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

__all__ = (
    "RESOLVER",
    "AskHost",
    "AskLimit",
    "CallModel",
    "CallTool",
    "CheckCalls",
    "CheckText",
    "Effect",
    "Notify",
    "Sleep",
    "Verify",
)


RESOLVER = "resolve"
"""In place of a handle: the tool whose call is in doubt is asked itself. Ids of handles begin with `root`."""


class CallModel(NamedTuple):
    """Ask the handle's model for the next turn, and validate the calls of its reply."""

    id: int
    handle: str
    left: int | None
    reserve: int
    money: Decimal | None = None
    """USD reserved; `None` where nothing caps it."""


class CallTool(NamedTuple):
    """Enter a tool."""

    id: int
    handle: str
    call: str


class AskHost(NamedTuple):
    """Ask a `wait_for` for an inline answer, or the tool in doubt what became of its call."""

    id: int
    handle: str
    request: str
    by: str
    """Id of the handle whose `wait_for` it is, or `RESOLVER`."""


class Notify(NamedTuple):
    """Tell `on_pending` of a request."""

    id: int
    handle: str
    request: str


class CheckCalls(NamedTuple):
    """Ask hook and guardrails about calls of the batch."""

    id: int
    handle: str
    calls: tuple[str, ...]


class CheckText(NamedTuple):
    """Ask guardrails about the prompt of the wake, or its final answer."""

    id: int
    handle: str
    what: str


class AskLimit(NamedTuple):
    """Ask `on_limit` about a cap that is spent."""

    id: int
    handle: str
    limit: str
    at: str
    cap: str
    spent: str


class Verify(NamedTuple):
    """Have the completion gate judge the work of the attempt."""

    id: int
    handle: str
    number: int


class Sleep(NamedTuple):
    """Wait until a model call is to be made again."""

    id: int
    handle: str
    until: int
    """Microseconds since 1970."""


Effect = CallModel | CallTool | AskHost | Notify | CheckCalls | CheckText | AskLimit | Verify | Sleep
