"""What hosts read: results, requests, views. Computed from the tree when asked for, never stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, cast

from overt._frozen import trusted
from overt.core.ledger import Account
from overt.core.render import status_text
from overt.core.suspension import public_answer, when
from overt.core.tree import CallState, Node, RequestState, Tree, Wake
from overt.ledger import Ledger
from overt.message import Usage
from overt.policy import HandleView
from overt.request import Answer, ReplayedCall, Request
from overt.result import ErrorInfo, Limit, Replay, State, Status, TaskResult, Unpriced, Verdict

__all__ = ("answers_of", "handle_view", "ledger_of", "open_requests", "request_view", "result_of", "usage_of")


@cache
def _result_class() -> type[TaskResult[Any]]:
    """`TaskResult[Any]`, which pydantic makes when it is first asked for; not while this is imported."""
    return TaskResult[Any]


def usage_of(account: Account) -> Usage:
    """Return an account as public usage."""
    return trusted(
        Usage,
        input_tokens=account.input,
        output_tokens=account.output,
        cached_tokens=account.cached,
        cache_write_tokens=account.written,
        reasoning_tokens=account.reasoning,
        total_tokens=account.tokens,
        turns=account.turns,
        model_calls=account.model_calls,
        tool_calls=account.tool_calls,
        unreported_calls=account.unreported,
    )


def unpriced_of(node: Node) -> tuple[Unpriced, ...]:
    """Return the model calls of a subtree that could not be priced."""
    if not node.total.unpriced:
        return ()
    calls: dict[tuple[str, str], int] = {}
    for below in node.below():
        for key, number in (below.unpriced or {}).items():
            calls[key] = calls.get(key, 0) + number
    return tuple(
        trusted(Unpriced, model=model, calls=number, reason=why)
        for (model, why), number in sorted(calls.items())
    )


def open_requests(tree: Tree, node: Node) -> Iterator[RequestState]:
    """Yield the open requests in a handle and below it, in call order."""
    if node.open_requests == 0:
        return
    seen: set[str] = set()
    wake = node.wake
    if wake is not None:
        if wake.asks is not None and tree.requests[wake.asks].status == "open":
            yield tree.requests[wake.asks]
        for call in wake.batch or ():
            if call.request is not None and tree.requests[call.request].status == "open":
                yield tree.requests[call.request]
            elif call.child is not None and call.state == CallState.WAITING:
                seen.add(call.child)
                yield from open_requests(tree, tree.nodes[call.child])
    for child in node.children:
        if child.id not in seen:
            yield from open_requests(tree, child)


def request_view(tree: Tree, request: RequestState, *, parked: bool = False) -> Request:
    """Return a request as its readers see it, with what answering it repeats.

    Args:
        tree: The run.
        request: The request.
        parked: Say what an answer repeats once everything that waits for it has parked, where it has not yet.
    """
    q = request.question
    data: dict[str, Any] = json.loads(q.data)
    replays, turns = _repeats(tree, request, parked=parked)
    return trusted(
        Request,
        id=request.id,
        kind=q.kind,
        prompt=q.prompt,
        url=q.url,
        data=data,
        answer_schema=None if q.schema is None else json.loads(q.schema),
        expires_at=None if q.expires_at is None else when(q.expires_at),
        path=tuple(request.handle.split("/")),
        diverged=request.diverged,
        replays=replays,
        turns_again=turns,
    )


def _repeats(tree: Tree, request: RequestState, *, parked: bool) -> tuple[tuple[ReplayedCall, ...], int]:
    """What a durable answer runs again: finished `rerun` calls and turns of every wake that would rewind."""
    if tree.policy != "rewind" or request.question.kind in ("budget", "in_doubt"):
        return (), 0
    asker = tree.nodes[request.handle]
    if asker.wake is None or asker.wake.hosts:
        return (), 0  # while an interpreter is asked, an answer is an inline one
    calls: list[ReplayedCall] = []
    turns = 0
    for node in asker.chain:
        wake = node.wake
        if wake is None or not (node.state is State.SUSPENDED or (parked and node.state is State.RUNNING)):
            continue
        turns += wake.turns - wake.turns_kept
        kept = wake.kept()
        tools: Mapping[str, str] = node.plan.tools if node.plan is not None else {}
        calls += [
            replayed(node.id, memory.tool, memory.ran, memory.key)
            for memory in wake.memory.values()
            if memory.finished
            and memory.ran is not None
            and memory.finished_in == wake.attempt
            and memory.key in wake.claimed
            and memory.key not in kept
            and tools.get(memory.tool) == "rerun"
        ]
    return tuple(calls), turns


def replayed(handle: str, tool: str, args: str, key: str) -> ReplayedCall:
    """Return one repeated call."""
    return trusted(ReplayedCall, handle=handle, tool=tool, arguments=json.loads(args), idempotency_key=key)


def answers_of(tree: Tree, node: Node, key: str) -> list[tuple[RequestState, Answer[object]]]:
    """Return the questions of a call that have their answers, in order."""
    wake = node.wake
    assert wake is not None
    memory = wake.memory[key]
    found: list[tuple[RequestState, Answer[object]]] = []
    for id in memory.slots:
        request = tree.requests[id]
        if request.status != "answered":
            break
        found.append((request, public_answer(request)))
    return found


def handle_view(tree: Tree, node: Node) -> HandleView:
    """Return a handle as it stands."""
    first = next(open_requests(tree, node), None)
    return HandleView(
        id=node.id,
        agent=node.agent,
        state=node.state,
        turns=node.turns,
        total_tokens=node.total.tokens,
        own_tokens=node.own.tokens,
        inbox=len(node.inbox),
        pending_kind=None if first is None else first.question.kind,
    )


def result_of(
    tree: Tree, node: Node, *, live: bool, load: Callable[[Node, str], object] | None = None
) -> TaskResult[Any]:
    """Return the result of a handle's latest wake.

    Args:
        tree: The run.
        node: The handle.
        live: Whether a driver is at work on the run: a wake that runs is then still running, else it was cut off.
        load: Makes typed output of its JSON; without it the output is the text.
    """
    # What waits for a slot has no result yet, and that of an earlier wake is not its own.
    wake = None if node.queued == "wake" else node.wake
    status = None if wake is None or node.queued is not None else wake.status
    pendings: tuple[Request, ...] = ()
    text: str | None = None
    if node.open_requests:
        pendings = tuple(request_view(tree, r) for r in open_requests(tree, node))
    if status is None:
        if node.state is State.CLOSED:
            status = "closed"
        elif wake is None and node.queued is None:
            status = "closed" if node.closed_reason else "timeout"
        elif live and node.live:
            doing = "is still running" if node.queued is None else "waits for a slot"
            status, text = "timeout", f"{node.id} {doing}."
        elif node.live or _cut_below(node):
            status, text = "interrupted", f"{node.id} was cut off; recover() goes on with it."
        elif pendings:
            status, text = "pending", f"Waiting for an answer to: {pendings[0].prompt}"
            if len(pendings) > 1:
                text += f" (and {len(pendings) - 1} more)"
        else:
            status, text = "interrupted", f"{node.id} can go on; recover() does."
    replay = None
    if tree.replays is not None:
        r = tree.replays
        replay = Replay(
            attempt=1 if wake is None else wake.attempt,
            turns_bought_again=r.turns,
            calls_rerun=tuple(replayed(*c) for c in r.rerun),
            calls_reused=tuple(replayed(*c) for c in r.reused),
            unused_answers=tuple(r.unused_answers),
            unused_children=tuple(r.unused_children),
        )
    error = None
    if wake is not None and status == "error":
        assert wake.error is not None
        e = wake.error
        error = ErrorInfo(
            type=e.type,
            message=e.message,
            source=cast("Any", e.source),  # ErrorSpec keeps it as text; pydantic checks it here
            retryable=e.retryable,
            status_code=e.status_code,
            detail=e.detail,
            retry_after=e.retry_after,
            request_id=e.request_id,
        )
    if error is None and status == "pending":
        error = _passed_error(tree, node)
    final = text if text is not None else status_text(tree, node)
    output: object = final if status == "done" else None
    if wake is not None and wake.output is not None and status == "done" and load is not None:
        output = load(node, wake.output)
    return trusted(
        _result_class(),
        text=final,
        partial="" if wake is None else wake.partial,
        status=Status(status),
        output=output,
        limit=Limit(wake.limit) if status == "incomplete" and wake is not None and wake.limit else None,
        limit_at=wake.limit_at if status == "incomplete" and wake is not None else None,
        pending=pendings[0] if pendings else None,
        pendings=pendings,
        turns=node.turns,
        total_tokens=node.total.tokens,
        own_tokens=node.own.tokens,
        usage=usage_of(node.total),
        own_usage=usage_of(node.own),
        cost=None if node.total.unpriced else node.total.cost,
        unpriced=unpriced_of(node),
        priced=node.total.cost,
        replay=replay,
        verdicts=verdicts_of(wake),
        error=error,
        handle=node.id,
        run_id=tree.run_id,
    )


def _passed_error(tree: Tree, node: Node) -> ErrorInfo | None:
    """Return what the first that was to answer an open request at once raised instead."""
    for request in open_requests(tree, node):
        failed = request.host_error or request.resolve_error
        if failed is not None:
            type_, _, message = failed.partition(": ")
            of_host = request.host_error is not None
            return ErrorInfo(type=type_, message=message, source="wait_for" if of_host else "tool")
    return None


def verdicts_of(wake: Wake | None) -> tuple[Verdict, ...]:
    """Return the completion gate's judgements of the last attempt."""
    if wake is None or not wake.verdicts:
        return ()
    return tuple(trusted(Verdict, ok=ok, reason=reason, number=n) for ok, reason, n in wake.verdicts)


def _cut_below(node: Node) -> bool:
    return any(n.wake is not None and n.wake.cut and n.state is not State.CLOSED for n in node.below())


def ledger_of(tree: Tree, node: Node, *, live: bool) -> Ledger:
    """Return the accounts of a handle and everything below it."""
    return Ledger(
        handle=node.id,
        agent=node.agent,
        state=node.state,
        status="" if node.wake is None else str(result_of(tree, node, live=live).status),
        own=usage_of(node.own),
        total=usage_of(node.total),
        cost=None if node.total.unpriced else node.total.cost,
        unpriced=unpriced_of(node),
        priced=node.total.cost,
        children=tuple(ledger_of(tree, child, live=live) for child in node.children),
    )
