"""The state of a run: a function of its facts, changed in place by `apply` and by nothing else.

Rules of this module: no clock, no randomness, no await, no names of models, stores or user code. Every method here
reads; only `core/apply.py` writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from overt.core.effects import Effect
from overt.core.facts import AnswerGiven, Caps, ErrorSpec, Question
from overt.core.ledger import Account
from overt.core.plan import AgentPlan, Plan
from overt.message import Message
from overt.result import State

__all__ = ("Call", "CallState", "Item", "Memory", "Node", "Once", "Replays", "RequestState", "Tree", "Wake")


class CallState:
    """Where a call of the current batch stands."""

    NEW = "new"
    """To be entered, or entered again."""
    ENTERED = "entered"
    ASKED = "asked"
    WAITING = "waiting"
    """A `task` call whose child has not settled."""
    DONE = "done"
    REFUSED = "refused"
    """Does not fit a budget; stays open."""
    CUT = "cut"
    """Entered and left without an outcome; `recover` decides."""


class Item(NamedTuple):
    """One message of an inbox."""

    sender: str
    channel: str
    text: str


class Once:
    """A `once` block of a call."""

    __slots__ = ("done", "error", "value")

    def __init__(self) -> None:
        self.done: bool = False
        self.value: str | None = None
        self.error: str | None = None


class Memory:
    """What is known of one call (by its idempotency key) over all attempts of a wake."""

    __slots__ = (
        "args",
        "asked",
        "child",
        "finished",
        "finished_in",
        "is_error",
        "key",
        "metadata",
        "once",
        "output",
        "replaced",
        "slots",
        "tool",
        "unsettled",
    )

    def __init__(self, key: str, tool: str, args: str) -> None:
        self.key: str = key
        self.tool: str = tool
        self.args: str = args
        self.asked: int = 0
        """Questions ever asked, the ordinal of the next request id."""
        self.slots: tuple[str, ...] = ()
        """Request ids: the n-th question of an entry."""
        self.replaced: tuple[str, ...] = ()
        """Answered requests whose place another question took."""
        self.finished: bool = False
        self.finished_in: int = 0
        """The last attempt in which it finished."""
        self.output: str = ""
        self.is_error: bool = False
        self.metadata: str | None = None
        self.unsettled: bool = False
        """A `reuse` call was entered and has no outcome."""
        self.once: dict[str, Once] | None = None
        self.child: str | None = None

    def doubt(self) -> str | None:
        """Return the label of a `once` block in doubt, `""` for the call itself, `None` for no doubt."""
        if self.once is not None:
            for label, once in self.once.items():
                if not once.done:
                    return label
        return "" if self.unsettled else None


class Call:
    """One call of the current batch."""

    __slots__ = (
        "args",
        "at",
        "child",
        "drew",
        "effect",
        "error",
        "id",
        "is_error",
        "key",
        "limit",
        "metadata",
        "name",
        "output",
        "raw",
        "request",
        "state",
        "task",
    )

    def __init__(self, id: str, name: str, raw: str) -> None:
        self.id: str = id
        self.name: str = name
        self.raw: str = raw
        self.args: str = ""
        self.key: str = ""
        self.error: str | None = None
        self.task: bool = False
        self.state: str = CallState.NEW
        self.drew: bool = False
        """Whether this call has drawn a tool call in this attempt."""
        self.effect: int = 0
        self.request: str | None = None
        self.child: str | None = None
        self.output: str = ""
        self.is_error: bool = False
        self.metadata: str | None = None
        self.limit: str | None = None
        self.at: str | None = None

    def copy(self) -> Call:
        """Return a call that shares nothing that changes."""
        other = Call(self.id, self.name, self.raw)
        for name in Call.__slots__:
            setattr(other, name, getattr(self, name))
        return other


class RequestState:
    """A request and what became of it."""

    __slots__ = (
        "answer",
        "answered_at",
        "asked_at",
        "call",
        "diverged",
        "handle",
        "host",
        "host_error",
        "id",
        "key",
        "once",
        "question",
        "slot",
        "status",
        "wake",
    )

    def __init__(self, id: str, handle: str, wake: int, call: str, key: str, question: Question) -> None:
        self.id: str = id
        self.handle: str = handle
        self.wake: int = wake
        self.call: str = call
        self.key: str = key
        self.question: Question = question
        self.slot: int = 0
        self.once: str | None = None
        self.diverged: bool = False
        self.status: str = "open"
        self.answer: AnswerGiven | None = None
        self.asked_at: int = 0
        self.answered_at: int = 0
        self.host: int = 0
        """The open `AskHost` effect, or 0."""
        self.host_error: str | None = None
        """What a `wait_for` raised instead of answering."""


class Checkpoint(NamedTuple):
    """Where a rewind goes back to."""

    messages: int
    """How many messages of the transcript are kept."""
    occurrences: dict[str, int]
    batch: tuple[Call, ...] | None = None
    """Copies of the calls of the batch at a limit stop."""
    prompt: bool = True
    """Whether the wake's own user message has to be appended again."""
    claimed: frozenset[str] = frozenset()
    """Keys of the calls in the part of the transcript that is kept, and in `batch`."""


class Wake:
    """One unit of work on a handle, over all its attempts."""

    __slots__ = (
        "attempt",
        "batch",
        "checkpoint",
        "claimed",
        "closes",
        "cut",
        "divergences",
        "drop",
        "effects",
        "error",
        "flushed",
        "hosts",
        "items",
        "limit",
        "limit_at",
        "limit_cap",
        "memory",
        "model",
        "number",
        "occurrences",
        "partial",
        "prompt",
        "reason",
        "rebuy",
        "rewind_due",
        "status",
        "strayed",
        "text",
        "turns",
        "turns_kept",
        "unused_answers",
        "unused_children",
        "user",
        "waiting",
    )

    def __init__(self, number: int, prompt: str, closes: bool) -> None:
        self.number: int = number
        self.prompt: str = prompt
        self.closes: bool = closes
        self.attempt: int = 1
        self.user: Message | None = None
        self.items: list[Item] = []
        self.turns: int = 0
        """Turns of this attempt."""
        self.turns_kept: int = 0
        """Those of them that are in the checkpoint."""
        self.rebuy: int = 0
        """Turns of earlier attempts this one has not bought again yet."""
        self.flushed: int = 0
        """Messages of the current batch that are in the transcript already (after a limit stop)."""
        self.hosts: int = 0
        """Open `AskHost` effects."""
        self.drop: bool = False
        """The last reply is at fault."""
        self.batch: list[Call] | None = None
        self.memory: dict[str, Memory] = {}
        self.occurrences: dict[str, int] = {}
        self.checkpoint: Checkpoint = Checkpoint(0, {})
        self.claimed: set[str] = set()
        """Keys that a call of this attempt has."""
        self.rewind_due: bool = False
        self.divergences: int = 0
        """Questions that strayed."""
        self.strayed: bool = False
        """Whether a delegation did."""
        self.waiting: bool = False
        """A model call waits for reservations in flight."""
        self.model: int = 0
        """The open `CallModel` effect, or 0."""
        self.effects: set[int] = set()
        self.status: str | None = None
        self.limit: str | None = None
        self.limit_at: str | None = None
        self.limit_cap: str | None = None
        self.error: ErrorSpec | None = None
        self.cut: bool = False
        self.reason: str | None = None
        self.text: str = ""
        self.partial: str = ""
        self.unused_answers: list[str] = []
        self.unused_children: list[str] = []


class Node:
    """One handle."""

    __slots__ = (
        "active",
        "agent",
        "bytes_since",
        "call_seq",
        "caps",
        "chain",
        "child_count",
        "children",
        "closed_reason",
        "depth",
        "id",
        "inbox",
        "last_input",
        "last_output",
        "live",
        "messages",
        "next_wake",
        "open_requests",
        "own",
        "parent",
        "plan",
        "queue",
        "queued",
        "reserved",
        "results",
        "running",
        "spent",
        "state",
        "task_call",
        "total",
        "transitions",
        "turns",
        "wake",
        "wakes",
        "wall",
        "wall_since",
    )

    def __init__(self, id: str, parent: Node | None, agent: str, caps: Caps, plan: AgentPlan | None) -> None:
        self.id: str = id
        self.parent: Node | None = parent
        self.agent: str = agent
        self.plan: AgentPlan | None = plan
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.chain: tuple[Node, ...] = (self,) if parent is None else (self, *parent.chain)
        self.caps: Caps = caps
        self.children: list[Node] = []
        self.child_count: int = 0
        self.state: State = State.IDLE
        self.transitions: list[tuple[State, State]] = []
        self.queue: deque[Node] = deque()
        """Children that wait for a slot, first come first served."""
        self.queued: str | None = None
        """`"wake"`, `"resume"` or `"reopen"` while this handle waits for a slot of its parent."""
        self.next_wake: tuple[str, bool] | None = None
        """Prompt and `closes` of a wake that waits for a slot."""
        self.running: int = 0
        """Children that are running."""
        self.active: int = 0
        """Handles at or below this one that are running."""
        self.live: int = 0
        """Handles at or below that run or wait for a slot, plus `wait_for`s being asked: who is not parked."""
        self.wall: int = 0
        """Microseconds of running time up to `wall_since`."""
        self.wall_since: int = 0
        self.inbox: list[Item] = []
        self.messages: list[Message] = []
        self.call_seq: int = 0
        self.wake: Wake | None = None
        self.wakes: int = 0
        self.task_call: str | None = None
        """The parent's call this handle was spawned by, in the parent's current batch."""
        self.own: Account = Account()
        self.total: Account = Account()
        self.spent: int = 0
        """Token pool: usage, plus the reservations of calls that were lost or unreported."""
        self.reserved: int = 0
        self.turns: int = 0
        self.last_input: int = 0
        self.last_output: int = 0
        self.bytes_since: int = 0
        self.open_requests: int = 0
        """Open requests at or below this handle."""
        self.results: dict[str, str] = {}
        """Whole outputs of tool results the model saw a part of, by call id."""
        self.closed_reason: str | None = None

    def __repr__(self) -> str:
        return f"<{self.id} {self.state}>"

    def below(self) -> Iterator[Node]:
        """Yield this handle and everything below it, parents first."""
        yield self
        for child in self.children:
            yield from child.below()


class Replays:
    """What the resume under way has repeated."""

    __slots__ = ("rerun", "reused", "turns", "unused_answers", "unused_children", "verb")

    def __init__(self, verb: str) -> None:
        self.verb: str = verb
        self.turns: int = 0
        self.rerun: list[tuple[str, str, str, str]] = []
        """Handle, tool, canonical arguments, idempotency key."""
        self.reused: list[tuple[str, str, str, str]] = []
        self.unused_answers: list[str] = []
        self.unused_children: list[str] = []


class Tree:
    """The whole run."""

    __slots__ = (
        "agent",
        "before",
        "entry",
        "cut",
        "expiring",
        "has_wall",
        "next_effect",
        "nodes",
        "now",
        "open",
        "plan",
        "policy",
        "ready",
        "replays",
        "requests",
        "root",
        "run_id",
        "seq",
        "waiting",
        "walled",
    )

    def __init__(self) -> None:
        self.run_id: str = ""
        self.agent: str = ""
        self.policy: str = "rewind"
        self.plan: Plan = Plan({})
        self.nodes: dict[str, Node] = {}
        self.root: Node = Node("root", None, "", Caps(), None)
        self.entry: Node | None = None
        self.requests: dict[str, RequestState] = {}
        self.open: dict[int, Effect] = {}
        self.next_effect: int = 1
        self.waiting: deque[Node] = deque()
        """Handles whose model call waits for reservations in flight."""
        self.replays: Replays | None = None
        self.has_wall: bool = False
        """Whether a handle has a cap on its running time."""
        self.walled: list[Node] = []
        """Handles with such a cap."""
        self.ready: dict[str, Node] = {}
        """Suspended handles with a call that has its answer: what an expiry left to go on."""
        self.expiring: dict[str, RequestState] = {}
        """Open requests with a time to be answered by."""
        self.cut: dict[str, Node] = {}
        """Handles whose wake was cut off and can be recovered."""
        self.seq: int = 0
        """Position of the last fact."""
        self.now: int = 0
        """Time of the last record, microseconds since 1970."""
        self.before: int = 0
        """Time of the record before it."""
