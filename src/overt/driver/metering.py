"""Telling a host what happened as it happens: metrics, and handles that come and go. None of it is kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from overt.core import facts as f
from overt.core.tree import Node
from overt.core.views import usage_of
from overt.handle import Handle
from overt.hooks import MetricEvent
from overt.message import Usage

if TYPE_CHECKING:
    from overt.driver.crew import Member
    from overt.driver.loop import Driver

__all__ = ("Watcher", "measure")

LOG = logging.getLogger("overt")


def _tell(fn: Callable[..., object], *args: object) -> None:
    """Call a listener of the host; what it raises is logged, since nothing depends on it."""
    try:
        fn(*args)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # a cancellation too: nothing cancels a plain function, so it is of its own making
        LOG.exception("a listener of the run raised: %r", fn)


def measure(
    driver: Driver,
    member: Member,
    node: Node,
    event: Literal["llm", "tool"],
    name: str,
    status: str,
    since: float,
    *,
    usage: Usage | None = None,
    pending: bool = False,
) -> None:
    """Tell `on_metric` of a model call or an entry of a tool that has ended."""
    assert member.on_metric is not None
    told = MetricEvent(
        event=event,
        run_id=driver.tree.run_id,
        handle=node.id,
        agent=node.agent,
        model=name if event == "llm" else None,
        tool=name if event == "tool" else None,
        status=status,
        seconds=max(driver.clock.monotonic() - since, 0.0),
        usage=usage,
        pending=pending,
    )
    _tell(member.on_metric, told)


class Watcher:
    """Listens to the facts of a run for `on_spawn`, `on_close` and the `run` metric."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._since: dict[str, float] = {}

    def record(self, position: int, at: int, facts: Sequence[f.Fact]) -> None:
        """Hear of facts that are durable. Of those another process has added, it was told there."""
        if self._driver.catching_up:
            return
        for fact in facts:
            act = ACTS.get(type(fact))
            if act is not None:
                act(self, fact)

    def _member(self, handle: str) -> tuple[Node, Member | None]:
        node = self._driver.tree.nodes[handle]
        return node, self._driver.crew.members.get(node.agent)

    def _spawned(self, fact: f.HandleSpawned) -> None:
        node, member = self._member(fact.handle)
        if member is not None and member.on_spawn is not None:
            _tell(member.on_spawn, Handle(node.id, agent=node.agent))

    def _closed(self, fact: f.HandleClosed) -> None:
        node, member = self._member(fact.handle)
        if member is not None and member.on_close is not None:
            _tell(member.on_close, Handle(node.id, agent=node.agent), fact.reason or "")

    def _began(self, fact: f.WakeStarted | f.Resumed | f.WakeReopened) -> None:
        self._since[fact.handle] = self._driver.clock.monotonic()

    def _ended(self, fact: f.WakeSettled | f.WakeParked) -> None:
        node, member = self._member(fact.handle)
        now = self._driver.clock.monotonic()
        since = self._since.pop(fact.handle, now)
        if member is None or member.on_metric is None:
            return
        pending = isinstance(fact, f.WakeParked)
        event = MetricEvent(
            event="run",
            run_id=self._driver.tree.run_id,
            handle=node.id,
            agent=node.agent,
            status="pending" if isinstance(fact, f.WakeParked) else fact.status,
            seconds=max(now - since, 0.0),
            usage=usage_of(node.total),
            pending=pending,
        )
        _tell(member.on_metric, event)


ACTS: dict[type, Callable[[Watcher, Any], None]] = {
    f.HandleSpawned: Watcher._spawned,
    f.HandleClosed: Watcher._closed,
    f.WakeStarted: Watcher._began,
    f.Resumed: Watcher._began,
    f.WakeReopened: Watcher._began,
    f.WakeSettled: Watcher._ended,
    f.WakeParked: Watcher._ended,
}
