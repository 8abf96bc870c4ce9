"""How a final answer becomes the result: judged by the completion gate, seen by the output guardrails."""

from __future__ import annotations

from overt.core import facts as f
from overt.core.budget import Stopped
from overt.core.desk import Desk
from overt.core.ending import fail, settle, stop
from overt.core.inputs import VerifyDone
from overt.core.tree import Node, Wake
from overt.result import Limit

__all__ = ("conclude", "verified")


def conclude(d: Desk, node: Node, wake: Wake) -> None:
    """Take a final answer one step on: to the gate, then to the guardrails, then it is the result."""
    plan = node.plan
    if plan is not None and plan.gate is not None and not wake.passed:
        d.emit(f.VerifyAsked(node.id, d.tree.next_effect, len(wake.verdicts) + 1))
        return
    if ((plan is not None and plan.output_guards) or d.tree.plan.output_guards) and not wake.cleared:
        d.emit(f.TextCheckAsked(node.id, d.tree.next_effect, "output"))
        return
    settle(d, node, "done")


def verified(d: Desk, inp: VerifyDone, node: Node, wake: Wake, number: int) -> None:
    """The gate has judged, or its verifier raised."""
    if inp.error is not None:
        d.emit(f.EffectLost(node.id, inp.effect, "the verifier failed"))
        fail(d, node, inp.error)
        return
    d.emit(f.Judged(node.id, inp.effect, number, inp.ok, inp.reason))
    rounds = None if node.plan is None else node.plan.gate
    if not inp.ok and rounds is not None and number >= rounds:
        stop(d, node, Stopped(Limit.COMPLETION, node.id, str(rounds)))
        return
    d.touch(node)
