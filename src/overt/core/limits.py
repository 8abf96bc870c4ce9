"""What happens where a cap is spent: the wake stops, or `on_limit` says otherwise first."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from overt.core import facts as f
from overt.core.budget import CAP_OF, Stopped, cap_now, plain, spent_now, turn_cap
from overt.core.desk import Desk
from overt.core.effects import AskLimit
from overt.core.ending import fail, stop
from overt.core.inputs import AnswerSpec, LimitRuled
from overt.core.ledger import MONEY
from overt.core.recovery import check_raise
from overt.core.suspension import ask_of_wake, look_again
from overt.core.tree import Node, RequestState, Wake
from overt.errors import UsageError
from overt.result import Limit

__all__ = ("at_limit", "budget_answered", "limit_ruled")

WHOLE = (Limit.MAX_TURNS, Limit.MAX_TOKENS, Limit.MAX_TOOL_CALLS, Limit.MAX_MODEL_CALLS)


def at_limit(d: Desk, node: Node, wake: Wake, stopped: Stopped) -> None:
    """Ask `on_limit` about a cap that is spent; without one, or past what it said, stop."""
    at = d.tree.nodes[stopped.at]
    if not d.tree.plan.on_limit or stopped.limit not in CAP_OF or _was_no_help(at, wake, stopped):
        stop(d, node, stopped)
        return
    cap = cap_now(at, stopped.limit)
    if stopped.limit is Limit.MAX_WALL:
        cap = plain(Decimal(str(at.caps.max_wall)))
    spent = spent_now(d.tree, at, wake, stopped.limit)
    d.emit(f.LimitAsked(node.id, d.tree.next_effect, str(stopped.limit), stopped.at, cap, spent))


def _was_no_help(at: Node, wake: Wake, stopped: Stopped) -> bool:
    """Whether what was last decided about the cap has left no room. Where it has, somebody else took it since."""
    if wake.extended is None:
        return False
    limit, whose, spent = wake.extended
    if (limit, whose) != (stopped.limit, stopped.at):
        return False
    return Decimal(cap_now(at, stopped.limit)) <= Decimal(spent)


def limit_ruled(d: Desk, inp: LimitRuled, node: Node, wake: Wake, asked: AskLimit) -> None:
    """`on_limit` has decided."""
    target = d.tree.nodes[asked.at]
    error, caps = inp.error, inp.caps
    if error is None and caps is not None:
        caps = _not_lowered(target, asked, caps)
        try:
            for name, value in zip(f.Caps._fields, caps, strict=True):
                if value is not None:
                    check_raise(target, name, value, who="on_limit: Extend")
        except UsageError as wrong:
            error = f.ErrorSpec("UsageError", str(wrong), "hook")
    if error is not None:
        d.emit(f.EffectLost(node.id, inp.effect, "on_limit failed"))
        fail(d, node, error)
        return
    d.emit(f.LimitDecided(node.id, inp.effect, inp.decision))
    limit = Limit(asked.limit)
    if inp.decision == "extend" and caps is not None:
        d.emit(f.BudgetRaised(target.id, caps))
        if caps.max_concurrent is not None:
            d.touch(target)  # it has a place for who waits
        look_again(d, target, limit)
    elif inp.decision == "suspend":
        question = _question(asked, limit, inp.prompt)
        ask_of_wake(d, node, wake, "budget", question, limit=asked.limit, at=asked.at)
    elif inp.decision == "stop":
        stop(d, node, _stopped(limit, asked.at, asked.cap))
    d.touch(node)


def _not_lowered(target: Node, asked: AskLimit, caps: f.Caps) -> f.Caps:
    """Leave a cap where it is that somebody has raised further since this was asked."""
    limit = Limit(asked.limit)
    name = CAP_OF[limit]
    said: object = getattr(caps, name)
    present = cap_now(target, limit)
    if said is None or present == asked.cap or Decimal(str(said)) >= Decimal(present):
        return caps
    return caps._replace(**{name: getattr(target.caps, name)})


def _stopped(limit: Limit, at: str, cap: str) -> Stopped:
    unit = {Limit.MAX_WALL: " s", Limit.MAX_COST: " USD"}.get(limit, "")
    return Stopped(limit, at, f"{cap}{unit}")


def _question(asked: AskLimit, limit: Limit, prompt: str | None) -> f.Question:
    data = {
        "limit": {
            "limit": asked.limit,
            "cap": _number(asked.cap),
            "spent": _number(asked.spent),
            "at": asked.at,
            "handle": asked.handle,
        }
    }
    unit = {Limit.MAX_WALL: " seconds", Limit.MAX_COST: " USD"}.get(limit, "")
    whose = "the run" if asked.at == "root" else asked.at
    wants = "" if asked.at == asked.handle else f" {asked.handle} wants to go on."
    text = prompt or f"{limit} of {whose} is spent: {asked.spent} of {asked.cap}{unit}.{wants} How much more?"
    kind = "integer" if limit in WHOLE else "number"
    schema = {"type": kind, "exclusiveMinimum": 0, "maximum": 1e9 if kind == "number" else 10**15}
    return f.Question("budget", text, None, _text(data), _text(schema))


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _number(text: str) -> int | float:
    return int(text) if text.lstrip("-").isdecimal() else float(text)


def budget_answered(d: Desk, request: RequestState, answer: AnswerSpec) -> None:
    """Somebody was asked about a cap: raise it by what they said, or stop where they refused."""
    assert request.limit is not None
    assert request.at is not None
    limit = Limit(request.limit)
    if not answer.ok:
        wake = d.tree.nodes[request.handle].wake
        if wake is None or wake.status is not None:
            return  # it has ended meanwhile, or was cut off
        # Also where another answer has raised the cap since: a refusal is about this wake.
        cap = json.loads(request.question.data)["limit"]["cap"]
        stop(d, d.tree.nodes[request.handle], _stopped(limit, request.at, f"{cap}"))
        return
    if answer.data is None:
        return
    node = d.tree.nodes[request.at]
    name = CAP_OF[limit]
    more: Any = json.loads(answer.data)
    present: object = getattr(node.caps, name)
    if limit is Limit.MAX_TURNS and present is None:
        present = turn_cap(node)
    if present is None:
        return
    caps: dict[str, Any]
    if limit is Limit.MAX_COST:
        caps = {name: str(MONEY.add(Decimal(str(present)), Decimal(str(more))))}
    elif limit is Limit.MAX_WALL:
        caps = {name: float(str(present)) + float(more)}
    else:
        caps = {name: int(str(present)) + int(more)}
    d.emit(f.BudgetRaised(node.id, f.Caps(**caps)))
    # Who was answered for goes first.
    d.touch(d.tree.nodes[request.handle])
    look_again(d, node, limit)
