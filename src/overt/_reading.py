"""What can be read of a run, at any time: its result, handles, transcripts, requests, costs and facts."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, Generic, cast

from typing_extensions import TypeVar

from overt.core import inputs as i
from overt.core.budget import remaining
from overt.core.render import committed
from overt.core.tree import CallState, Node
from overt.core.views import handle_view, ledger_of, open_requests, request_view, result_of
from overt.driver.caps import budget_of
from overt.driver.events import event_views
from overt.driver.loop import Driver
from overt.errors import SpecDrift, UnknownHandle, UsageError
from overt.events import Event
from overt.handle import Handle
from overt.journal.loading import Log, trace_lines
from overt.ledger import Ledger
from overt.message import Message, ToolMessage
from overt.policy import Budget, HandleView, ResumePolicy
from overt.request import Request
from overt.result import State, TaskResult
from overt.upgrade import Drift

__all__ = ("Reading", "id_of")

OutputT_co = TypeVar("OutputT_co", covariant=True, default=str)


class Reading(Generic[OutputT_co]):
    """The half of a `Runtime` that changes nothing."""

    _driver: Driver
    _first: i.Open | None

    @property
    def id(self) -> str:
        """The `run_id`."""
        return self._first.run_id if self._first is not None else self._driver.tree.run_id

    @property
    def root(self) -> Handle:
        """The root handle: it has no agent, and everything hangs below it."""
        return Handle("root", agent="")

    @property
    def policy(self) -> ResumePolicy:
        """The resume policy recorded with the run."""
        return ResumePolicy(self._first.policy if self._first is not None else self._driver.tree.policy)

    def __repr__(self) -> str:
        return f"<Runtime {self.id}>"

    def result(self) -> TaskResult[OutputT_co]:
        """Return the entry handle's latest result, also while it runs and after `open`.

        Raises:
            UsageError: The run was never started.
            SpecDrift: A stored output does not fit the `output_type` of this process.
        """
        return cast("TaskResult[OutputT_co]", self._result(self._entry()))

    def list(self) -> tuple[HandleView, ...]:
        """Return every handle in spawn order, the root left out."""
        tree = self._driver.tree
        return tuple(handle_view(tree, node) for id, node in tree.nodes.items() if id != "root")

    def inspect(self, handle: Handle | str) -> HandleView:
        """Return a handle as it stands.

        Raises:
            UnknownHandle: The run has no such handle.
        """
        return handle_view(self._driver.tree, self._node(handle))

    def handle(self, id: str) -> Handle:
        """Return the handle of an id.

        Raises:
            UnknownHandle: The run has none.
        """
        node = self._node(id)
        return Handle(node.id, agent=node.agent)

    def usage_tokens(self, handle: Handle | str) -> int:
        """Return the tokens of a handle and everything below it: the `total_tokens` of its results.

        Raises:
            UnknownHandle: The run has no such handle.
        """
        return self._node(handle).total.tokens

    def remaining(self, handle: Handle | str) -> Budget:
        """Return what a handle may still spend, its ancestors' caps included; `None` where nothing caps it.

        Raises:
            UnknownHandle: The run has no such handle.
        """
        driver = self._driver
        # Time runs for what is being performed; what was cut off has stood still since its last record.
        now = driver.now() if driver.working else driver.tree.now
        return budget_of(remaining(driver.tree, self._node(handle), now))

    def transcript(self, handle: Handle | str, *, uncommitted: bool = False) -> tuple[Message, ...]:
        """Return a handle's committed transcript: what a rewind would start from. Copies; change them at will.

        Args:
            handle: The handle.
            uncommitted: Return all of it instead, with what a parked or running wake has done since its checkpoint.

        Raises:
            UnknownHandle: The run has no such handle.
        """
        node = self._node(handle)
        messages = node.messages if uncommitted else committed(self._driver.tree, node, node.wake)
        return tuple(m.model_copy(deep=True) for m in messages)

    def tool_result(self, handle: Handle | str, call_id: str) -> str:
        """Return a tool result whole, also where the model saw a part.

        Raises:
            UsageError: The handle has no finished call of that id.
            UnknownHandle: The run has no such handle.
        """
        node = self._node(handle)
        if call_id in node.results:
            return node.results[call_id]
        for call in (node.wake.batch or ()) if node.wake is not None else ():
            if call.id == call_id and call.state == CallState.DONE:
                return call.output
        for message in node.messages:
            if isinstance(message, ToolMessage) and message.call_id == call_id:
                return message.text
        raise UsageError(f"{node.id} has no finished call {call_id!r}")

    def pendings(self) -> tuple[Request, ...]:
        """Return every open request of the run in call order, each with what answering it repeats."""
        tree = self._driver.tree
        return tuple(request_view(tree, r) for r in open_requests(tree, tree.root))

    def transitions(self, handle: Handle | str) -> tuple[tuple[State, State], ...]:
        """Return the moves of a handle from state to state, in order.

        Raises:
            UnknownHandle: The run has no such handle.
        """
        return tuple(self._node(handle).transitions)

    def trace(self) -> tuple[str, ...]:
        """Return the journal for people: one line a fact."""
        return tuple(trace_lines(self._stored()))

    def ledger(self) -> Ledger:
        """Return what the run has cost, as a tree of own and total usage."""
        return ledger_of(self._driver.tree, self._driver.tree.root, live=self._driver.live)

    def events(self, *, after: int = 0) -> tuple[Event, ...]:
        """Return the facts of the journal past position `after`."""
        return tuple(event_views(self._stored(), after, self._driver.tree))

    # ------------------------------------------------------------ help

    def _stored(self) -> Log:
        # What is on its way into the store may not come to be: a reader would read on behind it and miss a fact.
        log, durable = self._driver.log, self._driver.durable
        return log if len(log) == durable else log[:durable]

    def _unstored(self) -> bool:
        return not self._driver.tree.run_id

    def _entry(self) -> Node:
        entry = self._driver.tree.entry
        if entry is None:
            raise UsageError(f"run {self.id} has not been started")
        return entry

    def _node(self, handle: Handle | str) -> Node:
        id = id_of(handle)
        node = self._driver.tree.nodes.get(id)
        if node is None:
            if id == "root":
                return self._driver.tree.root
            raise UnknownHandle(f"run {self.id} has no handle {id!r}")
        return node

    def _result(self, node: Node) -> TaskResult[Any]:
        return result_of(self._driver.tree, node, live=self._driver.working, load=self._load)

    def _load(self, node: Node, output: str) -> object:
        member = self._driver.crew.of(node.agent)
        if member is None or member.output is None:
            return output
        try:
            return member.output.load(output)
        except (ValueError, TypeError) as error:
            what = f"the output of {node.id} no longer fits the output_type of {node.agent!r}: {error}"
            drift = Drift(
                kind="outputType",
                what=what,
                how="read it with a type that takes it",
                acceptable=False,
                handle=node.id,
                agent=node.agent,
            )
            raise SpecDrift(f"run {self.id}: {drift}", drifts=(drift,)) from error

    def _settled(self, handle: str) -> tuple[Callable[[], bool], builtins.list[TaskResult[Any]]]:
        """Whether a handle neither runs nor waits for a slot, and `on_pending` has been told.

        The second value holds the result of the first moment it did neither: by the time whoever waits is woken, the
        handle may have its next wake.
        """
        driver = self._driver
        nodes = driver.tree.nodes
        found: builtins.list[TaskResult[Any]] = []

        def settled() -> bool:
            if not found and nodes[handle].live == 0:
                found.append(self._result(nodes[handle]))
            return bool(found) and not driver.tells(handle)

        return settled, found


def id_of(handle: Handle | str) -> str:
    return handle.id if isinstance(handle, Handle) else handle
