"""The state of a run: a function of its facts, changed in place by `apply` and by nothing else.

Rules of this module: no clock, no randomness, no await, no names of models, stores or user code. Every method here
reads; only `core/apply.py` writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

from overt.core.batch import Call, CallState, Memory, Once
from overt.core.effects import Effect
from overt.core.facts import AnswerGiven, Caps, ErrorSpec, Question
from overt.core.ledger import ZERO, Account
from overt.core.origins import Origins
from overt.core.plan import AgentPlan, Plan
from overt.message import Message
from overt.result import State

__all__ = ("Call", "CallState", "Item", "Memory", "Node", "Once", "Replays", "RequestState", "Tree", "Wake")


class Item(NamedTuple):
    """One message of an inbox."""

    sender: str
    channel: str
    text: str


class RequestState:
    """A request and what became of it."""

    __slots__ = (
        "about",
        "answer",
        "answered_at",
        "asked_at",
        "at",
        "call",
        "diverged",
        "guard",
        "handle",
        "host",
        "host_error",
        "id",
        "key",
        "limit",
        "once",
        "question",
        "resolve_error",
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
        self.resolve_error: str | None = None
        """What a tool's own lookup raised instead of saying what became of its call."""
        self.guard: bool = False
        """Whether a guardrail asks about the call, and not the tool."""
        self.about: str | None = None
        """What the wake itself asks about; `None` where a call asks."""
        self.limit: str | None = None
        self.at: str | None = None
        """Of a question about a cap: which, and whose."""


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
    final: bool = False
    """Whether the last reply that is kept is a final answer, which nobody has judged to its end."""
    text: str = ""
    """That answer."""
    output: str | None = None
    """Canonical JSON of it, where it is typed."""


class Wake:
    """One unit of work on a handle, over all its attempts."""

    __slots__ = (
        "accepted",
        "agreed",
        "approvals",
        "asked",
        "asks",
        "attempt",
        "batch",
        "by_id",
        "bytes_kept",
        "capped",
        "check",
        "checkpoint",
        "claimed",
        "cleared",
        "closes",
        "cut",
        "declined",
        "divergences",
        "drop",
        "effects",
        "entered",
        "error",
        "extended",
        "failing",
        "final",
        "flushed",
        "full",
        "full_input",
        "hosts",
        "items",
        "limit",
        "limit_at",
        "limit_cap",
        "memory",
        "model",
        "number",
        "occurrences",
        "offers",
        "origins",
        "output",
        "partial",
        "passed",
        "prompt",
        "reason",
        "rebought",
        "rebuy",
        "replaced",
        "retries",
        "rewind_due",
        "stale",
        "status",
        "strayed",
        "text",
        "turns",
        "turns_kept",
        "unchecked",
        "unused_answers",
        "unused_children",
        "user",
        "verdicts",
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
        self.rebought: bool = False
        """Whether the last reply was one of those."""
        self.flushed: int = 0
        """Messages of the current batch that are in the transcript already (after a limit stop)."""
        self.hosts: int = 0
        """Open `AskHost` effects."""
        self.drop: bool = False
        """The last reply is at fault."""
        self.batch: list[Call] | None = None
        self.by_id: dict[str, Call] = {}
        """The calls of the batch by id."""
        self.entered: int = 0
        """Calls of the batch that are inside their tool."""
        self.memory: dict[str, Memory] = {}
        self.occurrences: dict[str, int] = {}
        self.checkpoint: Checkpoint = Checkpoint(0, {})
        self.bytes_kept: int = 0
        """Bytes up to the checkpoint that no reported input covers: what `Node.bytes_since` goes back to."""
        self.claimed: set[str] = set()
        """Keys that a call of this attempt has, and `@prompt` and `@output` where that is what was agreed to."""
        self.retries: int = 0
        """Attempts at the model that failed since it last replied, each followed by another."""
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
        self.capped: bool = False
        """Whether the cap on turns may keep calls of this batch out: it did, or the wake went on from a stop."""
        self.check: int = 0
        """The open effect of the wake itself that is no model call, or 0."""
        self.asks: str | None = None
        """The open request of the wake itself."""
        self.asked: int = 0
        """Requests the wake itself has made."""
        self.approvals: dict[str, str] | None = None
        """What was agreed to of the prompt and the final answer: the request."""
        self.agreed: str | None = None
        """What somebody has just agreed to: the very prompt or final answer that is checked once more."""
        self.replaced: tuple[str, ...] = ()
        """Answered requests about either whose place another question took."""
        self.declined: tuple[str, str] | None = None
        """What was declined, the prompt or the final answer, and why."""
        self.unchecked: bool = False
        """Whether guardrails have to see the prompt in this attempt."""
        self.final: bool = False
        """Whether the last reply is a final answer."""
        self.output: str | None = None
        """Canonical JSON of the typed output."""
        self.passed: bool = False
        """Whether the completion gate has let the final answer pass."""
        self.cleared: bool = False
        """Whether the guardrails have let it pass."""
        self.verdicts: list[tuple[bool, str, int]] = []
        """The gate's judgements of this attempt."""
        self.extended: tuple[str, str, str] | None = None
        """The cap that was just decided upon: limit, whose, and what was spent of it.

        Where it still stops the wake, the wake stops; what it has left room for, others may have taken.
        """
        self.failing: ErrorSpec | None = None
        """Why the wake fails once its batch is through."""
        self.offers: tuple[str, ...] | None = None
        """Names of the tools a hook left for the model call under way."""
        self.full: list[Message] | None = None
        """The transcript up to the checkpoint, where a hook has replaced it since."""
        self.full_input: int = 0
        self.origins: Origins | None = None
        """What is called otherwise since the wake began."""
        self.accepted: frozenset[tuple[str, str]] = frozenset()
        """Where the host goes on although the code does not fit: kind, and the tool or the id of the call."""
        self.stale: tuple[str | None, str] | None = None
        """A final answer that does not fit its type any more, and why; it goes back to the model."""

    def kept(self) -> frozenset[str]:
        """Return the keys of calls whose results the checkpoint has: a rewind does not make them again."""
        again = {c.key for c in self.checkpoint.batch or () if c.state != CallState.DONE}
        return self.checkpoint.claimed - again

    def set_batch(self, batch: list[Call] | None) -> None:
        """Take over a batch; only `apply` does."""
        self.batch = batch
        self.by_id = {call.id: call for call in batch or ()}


class Node:
    """One handle."""

    __slots__ = (
        "active",
        "agent",
        "bytes_since",
        "call_seq",
        "caps",
        "chain",
        "checks",
        "child_count",
        "children",
        "closed_reason",
        "depth",
        "gated",
        "gone",
        "id",
        "inbox",
        "last_input",
        "last_output",
        "live",
        "messages",
        "money",
        "money_reserved",
        "next_wake",
        "open_requests",
        "own",
        "parent",
        "plan",
        "prompted",
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
        "unpriced",
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
        """The transcript. This list grows and shrinks at its end; what replaces any other part is another list."""
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
        self.money: Decimal = ZERO
        """Money pool, USD: prices, plus the reservations of calls that could not be priced."""
        self.money_reserved: Decimal = ZERO
        self.unpriced: dict[tuple[str, str], int] | None = None
        """Own calls that could not be priced, by model and why."""
        self.turns: int = 0
        self.last_input: int = 0
        self.last_output: int = 0
        self.bytes_since: int = 0
        self.open_requests: int = 0
        """Open requests at or below this handle."""
        self.results: dict[str, str] = {}
        """Whole outputs of tool results the model saw a part of, by call id."""
        self.closed_reason: str | None = None
        self.gone: ErrorSpec | None = None
        """Why its wakes fail: there is no such agent any more, and the host goes on without it."""
        self.checks: bool = False
        """Whether a hook or guardrails see its calls before they are entered."""
        self.prompted: bool = False
        """Whether guardrails see its prompts."""
        self.gated: bool = False
        """Whether something judges its final answers."""

    def police(self, run: Plan) -> None:
        """Note what stands before its calls, prompts and answers; only `apply` does."""
        plan = self.plan
        assert plan is not None
        self.checks = bool(plan.guards or run.guards or plan.before_tool or run.before_tool)
        self.prompted = bool(plan.prompt_guards or run.prompt_guards)
        self.gated = bool(plan.gate is not None or plan.output_guards or run.output_guards)

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
        "cut",
        "entry",
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
