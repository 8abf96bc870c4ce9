"""What the facts of a run change in a store's lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from overt.core import facts as f
from overt.core.suspension import when
from overt.core.tree import RequestState, Tree
from overt.core.work import is_ready
from overt.journal.store import Change, OpenRequest

__all__ = ("ENDED", "UNFINISHED", "change_of", "open_requests_of", "run_status")

ENDED = ("done", "interrupted", "closed")
"""Statuses of runs that have ended."""
UNFINISHED = ("", "idle", "running", "pending", "ready", "cut_off", "error", "incomplete")
"""Statuses of runs that may still go on."""

_Listed = f.CallAsked | f.WakeAsked | f.AnswerGiven | f.RequestCancelled
"""Facts that change the list of open requests."""


def run_status(tree: Tree) -> str:
    """Return the run's status for lists, as `RunInfo.status` describes it."""
    entry = tree.entry
    if tree.root.live and not (entry is not None and entry.wake is not None and entry.wake.cut):
        return "running"
    # A result calls both of these something else; whoever looks for runs to go on with must not take them for ended
    # ones, or for ones that wait.
    if tree.cut:
        return "cut_off"
    if tree.ready and any(is_ready(node) for node in tree.ready.values()):
        return "ready"
    if entry is None or entry.wake is None:
        return "idle"
    status = entry.wake.status or "pending"
    return "pending" if status in ENDED and tree.root.open_requests else status


def change_of(tree: Tree, facts: Sequence[f.Fact], *, obeyed: bool = False) -> Change:
    """Return what `facts`, which `tree` has taken in, change in the lists."""
    at = when(tree.now)
    status = run_status(tree)
    ids = dict.fromkeys(fact.request for fact in facts if isinstance(fact, _Listed))
    if any(isinstance(fact, f.AgentRenamed) for fact in facts):
        # They are listed under the name of the agent that asks.
        ids.update(dict.fromkeys(state.id for state in tree.requests.values() if state.status == "open"))
    if not ids:
        return Change(status=status, at=at, obeyed=obeyed)
    states = [tree.requests[id] for id in ids]
    return Change(
        status=status,
        at=at,
        asked=tuple(_listed(tree, state) for state in states if state.status == "open"),
        settled=tuple(state.id for state in states if state.status != "open"),
        obeyed=obeyed,
    )


def open_requests_of(tree: Tree) -> Iterator[OpenRequest]:
    """Return the rows a store has for this run."""
    return (_listed(tree, state) for state in tree.requests.values() if state.status == "open")


def _listed(tree: Tree, state: RequestState) -> OpenRequest:
    expires = state.question.expires_at
    return OpenRequest(
        run_id=tree.run_id,
        request=state.id,
        kind=state.question.kind,
        agent=tree.nodes[state.handle].agent,
        asked_at=when(state.asked_at),
        expires_at=None if expires is None else when(expires),
    )
