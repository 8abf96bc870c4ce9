"""What a replay finds of earlier attempts, and where it strays from them.

A rewound wake diverges when, after all calls of a batch are matched with what earlier attempts left, it has to ask
or delegate anew while an answered question or a settled child of an earlier attempt is unclaimed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from overt.core import facts as f
from overt.core.delegation import refusal
from overt.core.desk import Desk
from overt.core.ending import fail
from overt.core.tree import Call, CallState, Memory, Node, Tree, Wake

__all__ = ("diverged_error", "fits", "match_delegations", "note_divergence", "unclaimed")


def fits(asked: f.Question, now: f.Question) -> bool:
    """Whether an answer to `asked` answers `now`: everything but the expiry is the same."""
    return asked._replace(expires_at=None) == now._replace(expires_at=None)


def describe(memory: Memory) -> str:
    """Return the call as people read it."""
    text = f"{memory.tool}({memory.args})"
    return text if len(text) <= 300 else text[:297] + "..."


def unclaimed(tree: Tree, wake: Wake) -> str | None:
    """Return what an earlier attempt left that no call of this attempt has claimed, the first such thing."""
    if wake.attempt == 1:
        return None
    for memory in wake.memory.values():
        if memory.key in wake.claimed:
            continue
        if any(tree.requests[r].status == "answered" for r in memory.slots) or (
            memory.guard is not None and tree.requests[memory.guard].status == "answered"
        ):
            return describe(memory)
        if memory.child is not None:
            child = tree.nodes[memory.child].wake
            if child is not None and child.status is not None:
                return describe(memory)
    # The prompt comes first in every attempt; the final answer is still to come.
    if "output" in (wake.approvals or ()) and "@output" not in wake.claimed:
        return "the approval of the output"
    return None


def diverged_error(wanted: str, left: str, *, entered: bool = False) -> f.ErrorSpec:
    """Return the error that names both wordings."""
    return f.ErrorSpec(
        "ReplayDiverged",
        f"The replayed wake wants {wanted}, while {left} of an earlier attempt is settled and unused. "
        f"{'' if entered else 'Nothing was entered. '}"
        "recover() asks the model again; ResumePolicy.CONTINUE does not replay.",
        "runtime",
    )


def match_delegations(d: Desk, node: Node, wake: Wake, calls: Iterable[Call]) -> bool:
    """Refuse a batch that delegates anew past an unclaimed answer or child; say whether it was refused.

    Args:
        d: Where facts go.
        node: The handle.
        wake: Its wake.
        calls: Those of the batch that no rule keeps from delegating.
    """
    # Once something of the batch has happened it has been matched, and what it left must not be dropped.
    if wake.attempt == 1 or any(c.state != CallState.NEW for c in wake.batch or ()):
        return False
    for call in calls:
        if (
            call.task
            and call.error is None
            and wake.memory[call.key].child is None
            and wake.memory[call.key].declined is None
            and wake.memory[call.key].reply is None
            and refusal(node, call) is None
        ):
            left = unclaimed(d.tree, wake)
            if left is not None:
                wanted = describe(wake.memory[call.key])
                d.emit(f.Diverged(node.id, wanted, left, question=False))
                fail(d, node, diverged_error(wanted, left), drop=True)
                return True
            return False
    return False


def note_divergence(d: Desk, node: Node, wake: Wake, key: str, question: f.Question, slot: int) -> str | None:
    """Return what the question strays from, `None` if it does not, after noting it as a fact."""
    memory = wake.memory[key]
    left: str | None = None
    if slot < len(memory.slots) and d.tree.requests[memory.slots[slot]].status == "answered":
        left = f"the question {json.dumps(d.tree.requests[memory.slots[slot]].question.prompt, ensure_ascii=False)}"
    else:
        left = unclaimed(d.tree, wake)
    if left is not None:
        d.emit(f.Diverged(node.id, f"{describe(memory)}: {question.prompt}", left))
    return left
