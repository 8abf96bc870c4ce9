"""What a handle may still spend: the least of what is left on it and on each ancestor, now.

Nothing is carved out for a child. Token reservations are made when a model call is issued and settled when it
closes; a call that was lost, or whose usage nobody reported, turns its reservation into spend. Model and tool calls
are counted when they are issued, so their caps are exact under any interleaving.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from typing import NamedTuple

from overt._text import size
from overt.core.effects import AskLimit
from overt.core.facts import Caps
from overt.core.ledger import MONEY
from overt.core.render import shown
from overt.core.tree import Node, Tree, Wake
from overt.result import Limit

__all__ = (
    "CAP_OF",
    "Admitted",
    "Stopped",
    "Waits",
    "admit_model",
    "admit_tool",
    "asked_for_time",
    "cap_now",
    "deepest",
    "next_deadline",
    "plain",
    "remaining",
    "slots",
    "spent_now",
    "turn_cap",
    "turn_stop",
    "wall_left",
    "wall_spent",
)

CAP_OF = {
    Limit.MAX_TURNS: "max_turns",
    Limit.MAX_TOKENS: "max_tokens",
    Limit.MAX_TOOL_CALLS: "max_tool_calls",
    Limit.MAX_MODEL_CALLS: "max_model_calls",
    Limit.MAX_WALL: "max_wall",
    Limit.MAX_COST: "max_cost",
}
"""The field of a budget each limit is about."""

FIRST_CALL = 1_000
"""Tokens reserved for a handle's first model call, of which nothing is known."""


class Admitted(NamedTuple):
    """The call may be issued."""

    reserve: int
    left: int | None
    money: Decimal | None = None
    """USD to reserve; `None` where nothing caps it."""


class Waits(NamedTuple):
    """Nothing is left only because of reservations in flight."""


class Stopped(NamedTuple):
    """A cap is spent."""

    limit: Limit
    at: str
    cap: str


def turn_cap(node: Node) -> int:
    """Turns an attempt of the handle's wake may take: its own cap, and the run's where that is less or alone."""
    return _turn_cap(node)[0]


def turn_stop(node: Node) -> Stopped:
    """Return the stop at the cap on turns, with the handle whose cap it is."""
    cap, at = _turn_cap(node)
    return Stopped(Limit.MAX_TURNS, at.id, str(cap))


def _turn_cap(node: Node) -> tuple[int, Node]:
    own, root = node.caps.max_turns, node.chain[-1]
    top = root.caps.max_turns
    if top is not None and (own is None or top <= own):
        return top, root
    return (6 if own is None else own), node


def cap_now(at: Node, limit: Limit) -> str:
    """Return the cap a limit is about, as questions have it."""
    cap: object = getattr(at.caps, CAP_OF[limit])
    if limit is Limit.MAX_WALL:
        return f"{cap:.15g}"
    return "6" if cap is None and limit is Limit.MAX_TURNS else str(cap)


def spent_now(tree: Tree, at: Node, wake: Wake, limit: Limit) -> str:
    """Return what is spent of a cap, as questions have it; of turns, what the wake has taken."""
    match limit:
        case Limit.MAX_TURNS:
            return str(wake.turns)
        case Limit.MAX_TOKENS:
            return str(at.spent)
        case Limit.MAX_TOOL_CALLS:
            return str(at.total.tool_calls)
        case Limit.MAX_MODEL_CALLS:
            return str(at.total.model_calls)
        case Limit.MAX_WALL:
            return plain(Decimal(wall_spent(tree, at, tree.now)).scaleb(-6, MONEY))
        case _:
            return plain(at.money)


def plain(number: Decimal) -> str:
    """Return a number with all its digits and no others."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def slots(node: Node) -> int:
    """Children of the handle that may run at once."""
    return 8 if node.caps.max_concurrent is None else node.caps.max_concurrent


def deepest(node: Node) -> int:
    """Deepest level at which something may be spawned below the handle."""
    said = [a.caps.max_depth for a in node.chain if a.caps.max_depth is not None]
    return min(said, default=3)


def wall_spent(tree: Tree, node: Node, now: int) -> int:
    """Microseconds in which the handle or something below it has run."""
    return node.wall + (max(now, node.wall_since) - node.wall_since if node.active else 0)


def wall_left(tree: Tree, node: Node) -> float | None:
    """Microseconds of running time the handle has left now; `None` where nothing caps it."""
    left = [
        a.caps.max_wall * 1e6 - wall_spent(tree, a, tree.now)
        for a in node.chain
        if a.caps.max_wall is not None
    ]
    return min(left) if left else None


def next_deadline(tree: Tree) -> int | None:
    """Return when the first wall budget of something that runs is spent (microseconds), or `None`."""
    first: int | None = None
    for node in tree.walled:
        cap = node.caps.max_wall
        if cap is not None and node.active:
            at = node.wall_since + int(cap * 1e6) - node.wall
            if at <= tree.now and asked_for_time(tree, node):
                continue
            first = at if first is None else min(first, at)
    return first


def asked_for_time(tree: Tree, node: Node) -> bool:
    """Whether `on_limit` is being asked about the handle's running time: meanwhile that ends nothing."""
    return any(
        isinstance(e, AskLimit) and e.at == node.id and e.limit == Limit.MAX_WALL for e in tree.open.values()
    )


def estimate(tree: Tree, node: Node, output: int | None) -> int:
    """Tokens the next call is expected to use: a pure function of the facts."""
    if not node.last_input:
        return FIRST_CALL
    appended = node.bytes_since
    if node.wake is not None and node.wake.batch is not None:
        # The results of the finished batch go into the transcript with this call.
        limit = tree.plan.max_result_chars
        appended += sum(size(shown(call.output, limit, call.id)) for call in node.wake.batch)
    return node.last_input + appended // 4 + (output if output is not None else node.last_output)


def admit_model(tree: Tree, node: Node) -> Admitted | Waits | Stopped:
    """Say whether a model call of the handle may be issued now."""
    left: int | None = None
    money: Decimal | None = None
    waits = False
    for a in reversed(node.chain):
        caps = a.caps
        if caps is EMPTY:
            continue
        if caps.max_wall is not None and wall_spent(tree, a, tree.now) >= caps.max_wall * 1e6:
            return Stopped(Limit.MAX_WALL, a.id, f"{caps.max_wall:g} s")
        if caps.max_model_calls is not None and a.total.model_calls >= caps.max_model_calls:
            return Stopped(Limit.MAX_MODEL_CALLS, a.id, str(caps.max_model_calls))
        if caps.max_cost is not None:
            cap = Decimal(caps.max_cost)
            if a.money >= cap:
                return Stopped(Limit.MAX_COST, a.id, f"{caps.max_cost} USD")
            usd = _usd_left(cap, a)
            waits = waits or usd <= 0
            money = usd if money is None else min(money, usd)
        if caps.max_tokens is not None:
            if a.spent >= caps.max_tokens:
                return Stopped(Limit.MAX_TOKENS, a.id, str(caps.max_tokens))
            here = caps.max_tokens - a.spent - a.reserved
            waits = waits or here <= 0
            left = here if left is None else min(left, here)
    if waits:
        return Waits()
    wanted = estimate(tree, node, None if node.plan is None else node.plan.max_output)
    if money is not None:
        money = _money(node.chain[-1], wanted, money)
    return Admitted(wanted if left is None else min(wanted, left), left, money)


NANO = Decimal("1e-9")


def _money(root: Node, tokens: int, left: Decimal) -> Decimal:
    """USD a call of so many tokens is expected to cost, at what the run has paid for one so far.

    While nothing has been priced, nothing is known, and the call reserves all there is.
    """
    if not root.total.priced:
        return left
    total = root.total
    wanted = MONEY.divide(MONEY.multiply(total.cost, Decimal(tokens)), Decimal(total.priced))
    return min(wanted.quantize(NANO, ROUND_CEILING, MONEY), left)


def _usd_left(cap: Decimal, at: Node) -> Decimal:
    return MONEY.subtract(MONEY.subtract(cap, at.money), at.money_reserved)


def admit_tool(node: Node) -> Stopped | None:
    """Return the tool-call cap that is spent, or `None` when one more call may be drawn."""
    for a in reversed(node.chain):
        cap = a.caps.max_tool_calls
        if cap is not None and a.total.tool_calls >= cap:
            return Stopped(Limit.MAX_TOOL_CALLS, a.id, str(cap))
    return None


EMPTY = Caps()


def remaining(tree: Tree, node: Node, now: int) -> Caps:
    """Return what the handle may still spend in every pool; `None` where nothing caps it."""

    def least(values: list[int]) -> int | None:
        return max(min(values), 0) if values else None

    chain = node.chain
    wall = [a.caps.max_wall * 1e6 - wall_spent(tree, a, now) for a in chain if a.caps.max_wall is not None]
    cost = [_usd_left(Decimal(a.caps.max_cost), a) for a in chain if a.caps.max_cost is not None]
    return Caps(
        max_turns=max(
            turn_cap(node) - (node.wake.turns if node.wake is not None and node.wake.status is None else 0), 0
        ),
        max_tokens=least(
            [a.caps.max_tokens - a.spent - a.reserved for a in chain if a.caps.max_tokens is not None]
        ),
        max_tool_calls=least(
            [a.caps.max_tool_calls - a.total.tool_calls for a in chain if a.caps.max_tool_calls is not None]
        ),
        max_model_calls=least(
            [
                a.caps.max_model_calls - a.total.model_calls
                for a in chain
                if a.caps.max_model_calls is not None
            ]
        ),
        max_wall=max(min(wall), 0) / 1e6 if wall else None,
        max_cost=plain(max(min(cost), Decimal(0))) if cost else None,
        max_children=None
        if node.caps.max_children is None
        else max(node.caps.max_children - node.child_count, 0),
        max_concurrent=slots(node),
        max_depth=deepest(node),
    )
