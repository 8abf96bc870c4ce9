"""What stands before a call, a prompt and a final answer: hook, guardrails, and whoever they ask."""

from __future__ import annotations

import json
from collections.abc import Sequence

from overt.core import facts as f
from overt.core.desk import Desk
from overt.core.ending import fail
from overt.core.inputs import ChecksRuled, TextRuled
from overt.core.origins import is_other
from overt.core.replay import diverged_error, fits, match_delegations, unclaimed
from overt.core.suspension import ask_of_guard, ask_of_wake
from overt.core.tree import Call, CallState, Node, Tree, Wake

__all__ = (
    "act_on",
    "ask_checks",
    "checks_ruled",
    "denied_text",
    "settled_before",
    "text_ruled",
    "unasked",
)


def settled_before(d: Desk, node: Node, wake: Wake, call: Call) -> bool:
    """Give a call what an answer said of it, for good: it was declined, or has a reply in the tool's place.

    What a rule asked and nobody answered before the wake ended is asked again: it binds, also where the rule is gone.
    """
    memory = wake.memory[call.key]
    if memory.declined is not None:
        d.emit(f.CallDenied(node.id, call.id, memory.declined, declined=True))
        return True
    if memory.reply is not None:
        assert memory.approval is not None
        given = d.tree.requests[memory.approval].answer
        metadata: dict[str, object] = {"replied": True}
        if given is not None and given.by is not None:
            metadata["by"] = given.by
        d.emit(f.CallReturned(node.id, call.id, metadata=json.dumps(metadata), given=True))
        return True
    asked = None if memory.guard is None else d.tree.requests[memory.guard]
    if asked is not None and asked.status == "cancelled":
        ask_of_guard(d, node, wake, call, _about(asked.question, call), diverged=False)
        return True
    return False


def _about(question: f.Question, call: Call) -> f.Question:
    """Return the question with the arguments that would run: a hook may have changed them since it was asked."""
    shown = {"call": {"tool": call.name, "arguments": json.loads(call.run_args)}}
    return question._replace(
        data=json.dumps(shown, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    )


def ask_checks(d: Desk, node: Node, calls: Sequence[Call]) -> None:
    """Have hook and guardrails asked about calls."""
    d.emit(f.ChecksAsked(node.id, d.tree.next_effect, tuple(c.id for c in calls)))


def checks_ruled(d: Desk, inp: ChecksRuled, node: Node, wake: Wake, calls: Sequence[str]) -> None:
    """Hook and guardrails have been asked about calls of the batch."""
    if inp.error is not None:
        d.emit(f.EffectLost(node.id, inp.effect, "a hook failed"))
        fail(d, node, inp.error)
        return
    here = [wake.by_id[id] for id in calls]
    rulings = tuple(_agreed(d.tree, wake, c, r) for c, r in zip(here, inp.rulings, strict=True))
    d.emit(f.ChecksDone(node.id, inp.effect, tuple(map(unasked, rulings))))
    ruled = list(zip(here, rulings, strict=True))
    if not match_delegations(d, node, wake, [c for c, r in ruled if r.ruling != "deny" and r.output is None]):
        act_on(d, node, wake, ruled)
    d.touch(node)


def unasked(ruling: f.RulingSpec) -> f.RulingSpec:
    """Return a ruling as it is recorded: what it asks or gives is in the fact that does, and not twice in the journal.

    That a hook gave something is still to be seen: a ruling nothing came of has the hook asked again.
    """
    if ruling.output is not None:
        return ruling._replace(output="", is_error=False, metadata=None)
    return ruling if ruling.question is None else ruling._replace(question=None)


def _agreed(tree: Tree, wake: Wake, call: Call, ruling: f.RulingSpec) -> f.RulingSpec:
    """Turn a question into its answer where somebody has agreed to this very call already."""
    if ruling.ruling != "ask":
        return ruling
    memory = wake.memory[call.key]
    # Just before entry only a denial counts; what an answer changed is not what the rule was asked about then.
    agreed = call.approved or (memory.approval is not None and memory.edit is not None)
    if not agreed and memory.approval is not None and ruling.question is not None:
        asked = tree.requests[memory.approval].question
        if is_other(wake, call.name, call.args, delegates=call.task):
            # The wording is made of the name and the arguments, which were others; the call it is about is the same.
            asked = asked._replace(prompt=ruling.question.prompt)
        agreed = fits(asked, ruling.question)
    return ruling._replace(ruling="approved", question=None) if agreed else ruling


def act_on(d: Desk, node: Node, wake: Wake, ruled: Sequence[tuple[Call, f.RulingSpec]]) -> None:
    """Do what rulings say, in call order: deny, ask, or give the result a hook gave."""
    for call, ruling in ruled:
        if wake.status is not None:
            return
        if call.state != CallState.NEW:
            continue
        if ruling.ruling == "deny":
            d.emit(f.CallDenied(node.id, call.id, ruling.reason))
        elif ruling.output is not None:
            d.emit(
                f.CallReturned(node.id, call.id, 0, ruling.output, ruling.is_error, ruling.metadata),
            )
        elif ruling.ruling == "ask" and ruling.question is not None:
            _ask_about(d, node, wake, call, ruling.question)


def _ask_about(d: Desk, node: Node, wake: Wake, call: Call, question: f.Question) -> None:
    memory = wake.memory[call.key]
    left: str | None = None
    if memory.approval is not None:
        left = (
            f"the question {json.dumps(d.tree.requests[memory.approval].question.prompt, ensure_ascii=False)}"
        )
    else:
        left = unclaimed(d.tree, wake)
    if left is not None and not _may_stray(
        d, node, wake, f"{call.name}({call.args}): {question.prompt}", left
    ):
        return
    ask_of_guard(d, node, wake, call, question, diverged=left is not None)


def _may_stray(d: Desk, node: Node, wake: Wake, wanted: str, left: str) -> bool:
    """Note that a question strays from what an earlier attempt asked; past the bound the wake fails."""
    d.emit(f.Diverged(node.id, wanted, left))
    if wake.divergences <= d.tree.plan.max_divergences:
        return True
    fail(d, node, diverged_error(f"to ask {wanted}", left, entered=True))
    return False


def text_ruled(d: Desk, inp: TextRuled, node: Node, wake: Wake, what: str) -> None:
    """Guardrails have been asked about the prompt of a wake or its final answer."""
    ruling = inp.ruling
    earlier = (wake.approvals or {}).get(what)
    # Right after the answer only a denial counts, whatever the rule would ask now.
    if (
        ruling.ruling == "ask"
        and ruling.question is not None
        and earlier is not None
        and (wake.agreed == what or fits(d.tree.requests[earlier].question, ruling.question))
    ):
        ruling = ruling._replace(ruling="approved", question=None)
    d.emit(f.TextChecked(node.id, inp.effect, what, unasked(ruling)))
    if ruling.ruling == "deny":
        by = ", ".join(s.name for s in ruling.said if s.ruling == "deny")
        why = f"denied by {by}: {ruling.reason}" if by else f"denied: {ruling.reason}"
        fail(d, node, denied_text(what, why, ruling.said))
    elif ruling.ruling == "ask" and ruling.question is not None:
        diverged = earlier is not None
        if diverged:
            wanted, left = f"approval of another {what}", f"the approval of the {what}"
            if not _may_stray(d, node, wake, wanted, left):
                return
        ask_of_wake(d, node, wake, what, ruling.question, diverged=diverged)
    d.touch(node)


def denied_text(what: str, reason: str, said: Sequence[f.Said] = ()) -> f.ErrorSpec:
    """Return the error of a prompt or a final answer that a guardrail denied, with what every guardrail said."""
    each = "; ".join(f"{s.name}: {s.ruling}{f' ({s.reason})' if s.reason else ''}" for s in said)
    subject = "The prompt" if what == "prompt" else "The final answer"
    return f.ErrorSpec("GuardrailDenied", f"{subject} was {reason}.", "guardrail", False, None, each or None)
