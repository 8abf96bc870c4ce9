"""Questions and answers: asking, inline interpreters, delivering, expiring, and doubt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from overt._frozen import trusted
from overt.core import facts as f
from overt.core.desk import Desk
from overt.core.effects import RESOLVER
from overt.core.ending import fail
from overt.core.inputs import AnswerSpec, Deliver, HostDone, ToolAsked
from overt.core.keys import request_id
from overt.core.replay import diverged_error, note_divergence
from overt.core.tree import Call, CallState, Node, RequestState, Tree, Wake
from overt.errors import AlreadyAnswered, InvalidAnswer, RequestExpired, UnknownRequest
from overt.request import Answer
from overt.result import State

__all__ = (
    "DOUBT_SCHEMA",
    "ask_doubt",
    "ask_of_guard",
    "ask_of_wake",
    "check",
    "check_list",
    "deliver",
    "expire",
    "host_again",
    "host_done",
    "look_again",
    "public_answer",
    "tool_asked",
    "when",
)

DOUBT_SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "outcome": {"enum": ["succeeded", "failed", "retry"]},
            "output": {"description": "what the call is taken to have returned"},
        },
        "required": ["outcome"],
        "additionalProperties": False,
    },
    sort_keys=True,
    separators=(",", ":"),
)
ANSWER = Answer[object]
"""Kept, because pydantic makes a parametrised model anew whenever nobody holds the last one."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def when(micros: int) -> datetime:
    """Return a time of the core as an aware datetime."""
    return EPOCH + timedelta(microseconds=micros)


def public_answer(request: RequestState) -> Answer[object]:
    """Return the recorded answer of an answered or cancelled request."""
    given = request.answer
    if given is None:
        return trusted(
            ANSWER,
            id=request.id,
            ok=False,
            data=None,
            reason="cancelled",
            by=None,
            at=when(request.answered_at),
        )
    return trusted(
        ANSWER,
        id=request.id,
        ok=given.ok,
        data=None if given.data is None else json.loads(given.data),
        reason=given.reason,
        by=given.by,
        at=when(request.answered_at),
    )


# --------------------------------------------------------------- asking


def tool_asked(d: Desk, inp: ToolAsked, node: Node, wake: Wake, call: Call) -> None:
    """A tool asks a question it has no answer to."""
    left = note_divergence(d, node, wake, call.key, inp.question, inp.slot)
    if left is not None and wake.divergences > d.tree.plan.max_divergences:
        d.emit(f.EffectLost(node.id, inp.effect, "diverged", asked=True))
        wanted = f"to ask {json.dumps(inp.question.prompt, ensure_ascii=False)}"
        fail(d, node, diverged_error(wanted, left, entered=True))
        return
    _ask(d, node, wake, call, inp.question, inp.slot, effect=inp.effect, diverged=left is not None)


def ask_doubt(d: Desk, node: Node, wake: Wake, call: Call, *, host: bool = True) -> None:
    """Ask whether a call that was left without an outcome has happened."""
    memory = wake.memory[call.key]
    label = memory.doubt()
    what = call.name if not label else f"the block {label!r} of {call.name}"
    data: dict[str, object] = {
        "call": {"tool": call.name, "arguments": json.loads(call.run_args)},
        "idempotency_key": call.key,
    }
    if label:
        data["once"] = label
    question = f.Question(
        "in_doubt",
        f"{what} was entered and left without an outcome. Has it happened?",
        data=json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False),
        schema=DOUBT_SCHEMA,
    )
    _ask(d, node, wake, call, question, len(memory.slots), once=label or None, host=host)


def _ask(
    d: Desk,
    node: Node,
    wake: Wake,
    call: Call,
    question: f.Question,
    slot: int,
    *,
    effect: int = 0,
    diverged: bool = False,
    once: str | None = None,
    host: bool = True,
) -> None:
    tree = d.tree
    id = request_id(tree.run_id, node.id, wake.number, call.key, wake.memory[call.key].asked + 1)
    d.emit(f.CallAsked(node.id, call.id, id, question, slot, effect, diverged, once))
    if host:
        host_again(d, tree.requests[id])
    if not wake.entered:
        d.touch(node)


def ask_of_guard(
    d: Desk, node: Node, wake: Wake, call: Call, question: f.Question, *, diverged: bool
) -> None:
    """Ask about a call before its tool is entered."""
    tree = d.tree
    id = request_id(tree.run_id, node.id, wake.number, call.key, wake.memory[call.key].asked + 1)
    d.emit(f.CallAsked(node.id, call.id, id, question, 0, 0, diverged, guard=True))
    host_again(d, tree.requests[id])


def ask_of_wake(
    d: Desk,
    node: Node,
    wake: Wake,
    about: str,
    question: f.Question,
    *,
    diverged: bool = False,
    limit: str | None = None,
    at: str | None = None,
) -> None:
    """Ask about the prompt, the final answer or a cap: a question of the wake itself, not of a call."""
    id = request_id(d.tree.run_id, node.id, wake.number, f"@{about}", wake.asked + 1)
    d.emit(f.WakeAsked(node.id, id, about, question, diverged, limit, at))
    host_again(d, d.tree.requests[id])


def _interpreter(tree: Tree, node: Node) -> str | None:
    for a in node.chain:
        if a.plan is not None and a.plan.wait_for:
            return a.id
    return "root" if tree.plan.wait_for else None


def _resolves(tree: Tree, node: Node, request: RequestState) -> bool:
    """Whether the tool whose call is in doubt finds out itself what became of it."""
    if request.question.kind != "in_doubt" or node.plan is None or node.wake is None:
        return False
    return node.wake.memory[request.key].tool in node.plan.resolves


def host_again(d: Desk, request: RequestState, *, resolve: bool = True) -> None:
    """Ask who is to answer at once: the tool in doubt, then the nearest interpreter. With none, tell `on_pending`."""
    node = d.tree.nodes[request.handle]
    by = RESOLVER if resolve and _resolves(d.tree, node, request) else _interpreter(d.tree, node)
    if by is not None:
        d.emit(f.HostAsked(node.id, request.id, d.tree.next_effect, by))
    else:
        tell(d, request)


def tell(d: Desk, request: RequestState) -> None:
    """Have `on_pending` told, if there is one."""
    if d.tree.plan.on_pending:
        d.emit(f.NotifyAsked(request.handle, request.id, d.tree.next_effect))


# --------------------------------------------------------------- answering


def _told(request: RequestState, recorded: Answer[object]) -> str:
    if request.status != "answered":
        return f"{request.status} at {recorded.at}"
    by = f" by {recorded.by!r}" if recorded.by is not None else ""
    return f"answered ok={recorded.ok}{by} at {recorded.at}"


def check(tree: Tree, answer: AnswerSpec, now: int) -> RequestState:
    """Return the open request an answer is for.

    Raises:
        UnknownRequest: There is none of that id.
        AlreadyAnswered: It has its answer, or was cancelled.
        RequestExpired: It has expired.
    """
    request = tree.requests.get(answer.request)
    if request is None:
        open_ids = [r.id for r in tree.requests.values() if r.status == "open"]
        listed = ", ".join(open_ids) or "none"
        raise UnknownRequest(
            f"run {tree.run_id} has no request {answer.request!r}; open: {listed}", open=open_ids
        )
    at = request.question.expires_at
    expired = request.answer is not None and request.answer.reason == "expired" and request.answer.by is None
    expired = expired and at is not None and request.answered_at >= at
    if at is not None and (expired or (request.status == "open" and at <= now)):
        raise RequestExpired(
            f"request {request.id} expired at {when(at).isoformat()}; recover() goes on with that",
            expires_at=when(at),
        )
    if request.status != "open":
        recorded = public_answer(request)
        same = (
            recorded.ok == answer.ok
            and recorded.reason == answer.reason
            and (request.answer is None or request.answer.data == answer.data)
        )
        raise AlreadyAnswered(
            f"request {request.id} was {_told(request, recorded)}; yours {'says the same' if same else 'differs'}",
            answer=recorded,
            same=same,
        )
    return request


def check_list(tree: Tree, ids: Sequence[str]) -> None:
    """Check that a list of answers has some, and one for each request.

    Raises:
        UnknownRequest: It is empty.
        InvalidAnswer: A request is answered twice.
    """
    if not ids:
        raise UnknownRequest(
            "there is no answer in the list",
            open=[r.id for r in tree.requests.values() if r.status == "open"],
        )
    for id in ids:
        if ids.count(id) > 1:
            raise InvalidAnswer(f"request {id} is answered twice in one list", places=("$: two answers",))


def deliver(d: Desk, inp: Deliver) -> None:
    """Take answers of the host: all of them, or none."""
    tree = d.tree
    check_list(tree, [answer.request for answer in inp.answers])
    requests = [check(tree, answer, tree.now) for answer in inp.answers]
    if tree.root.live == 0 or tree.replays is None:
        d.emit(f.ResumeBegun("resume"))
    # What expired since the run parked goes on too, in whatever branch it is.
    for node in reversed(tree.ready.values()):
        d.touch(node)
    given = list(zip(requests, inp.answers, strict=True))
    for request, answer in given:
        _give(d, request, answer, inp.policy)
    # Only now: what follows from one may take the question of another back, and all of them apply.
    for request, answer in given:
        _act_on(d, request, answer)


def _give(d: Desk, request: RequestState, answer: AnswerSpec, policy: str | None) -> None:
    node = d.tree.nodes[request.handle]
    wake = node.wake
    assert wake is not None
    parked = node.state is State.SUSPENDED and wake.hosts == 0
    d.emit(
        f.AnswerGiven(
            node.id,
            request.id,
            answer.ok,
            answer.data,
            answer.reason,
            answer.by,
            (policy or d.tree.policy) if parked else None,
            args=answer.args,
        )
    )


def _act_on(d: Desk, request: RequestState, answer: AnswerSpec, *, touch: bool = True) -> None:
    node = d.tree.nodes[request.handle]
    wake = node.wake
    assert wake is not None
    if request.about == "budget":
        from overt.core.limits import budget_answered  # which asks through this module

        budget_answered(d, request, answer)
    if wake.status is not None and not wake.cut:
        return  # another answer of the list has ended it
    _doubt_left(d, node, wake, request, answer)
    if touch:
        d.touch(node)
        # With another question open it stays where it is, and whoever waits for it may have nothing left to wait for.
        d.touch_above(node)


def look_again(d: Desk, at: Node, limit: str) -> None:
    """Let others go on that ask about a cap which has been raised: their questions are stale.

    Where the cap is spent for them all the same, they ask anew, with what it stands at.
    """
    for request in [r for r in d.tree.requests.values() if r.status == "open" and r.at == at.id]:
        if request.limit == limit and request.question.kind == "budget":
            d.emit(f.RequestCancelled(request.handle, request.id))
            d.touch(d.tree.nodes[request.handle])


def _doubt_left(d: Desk, node: Node, wake: Wake, request: RequestState, answer: AnswerSpec) -> None:
    """Ask on where an answer about a doubt did not settle it, or the call has another block in doubt."""
    for call in wake.batch or ():
        if call.state == CallState.CUT and call.id == request.call:
            ask_doubt(d, node, wake, call, host=answer.ok)
            if not answer.ok:
                tell(d, d.tree.requests[call.request or ""])


def host_done(d: Desk, inp: HostDone, request: RequestState, by: str) -> None:
    """A `wait_for` is through, or a tool's own lookup."""
    node = d.tree.nodes[request.handle]
    # An interpreter that will not settle a doubt has passed: asking it again would never end.
    if inp.answer is None or (request.question.kind == "in_doubt" and not inp.answer.ok):
        d.emit(f.HostPassed(node.id, inp.effect, inp.error))
        if by == RESOLVER:
            host_again(d, request, resolve=False)
        else:
            tell(d, request)
        d.touch_above(node)
        return
    answer = inp.answer
    at = request.question.expires_at
    if at is not None and at <= d.tree.now:
        # It came too late: what is approved after its time is not approved.
        answer = AnswerSpec(request.id, False, None, "expired")
    d.emit(
        f.AnswerGiven(
            node.id,
            request.id,
            answer.ok,
            answer.data,
            answer.reason,
            answer.by,
            None,
            inp.effect,
            answer.args,
        )
    )
    _act_on(d, request, answer)


def expire(d: Desk, *, drive: bool) -> None:
    """Answer every open request whose time is over."""
    tree = d.tree
    due = [
        r
        for r in tree.expiring.values()
        if r.question.expires_at is not None and r.question.expires_at <= tree.now
    ]
    for request in due:
        expired = AnswerSpec(request.id, False, None, "expired")
        _give(d, request, expired, None)
        _act_on(d, request, expired, touch=drive)
