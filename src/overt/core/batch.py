"""The calls of a batch, and what is known of a call over all attempts of its wake."""

from __future__ import annotations

__all__ = ("Call", "CallState", "Memory", "Once")


class CallState:
    """Where a call of the current batch stands."""

    NEW = "new"
    """To be entered, or entered again."""
    CHECKING = "checking"
    """Hook and guardrails are being asked about it."""
    FINAL = "final"
    """Not a tool: the call that gives the typed output."""
    ENTERED = "entered"
    ASKED = "asked"
    WAITING = "waiting"
    """A `task` call whose child has not settled."""
    DONE = "done"
    REFUSED = "refused"
    """Does not fit a budget; stays open."""
    CUT = "cut"
    """Entered and left without an outcome; `recover` decides."""


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
        "approval",
        "args",
        "asked",
        "call",
        "child",
        "declined",
        "edit",
        "finished",
        "finished_in",
        "guard",
        "is_error",
        "key",
        "metadata",
        "once",
        "output",
        "ran",
        "replaced",
        "reply",
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
        self.call: str = ""
        """Id of the last call that had this key."""
        self.guard: str | None = None
        """The last request a guardrail made about it."""
        self.approval: str | None = None
        """The request that was answered with yes."""
        self.declined: str | None = None
        """Why it was declined: for good, in every attempt."""
        self.edit: str | None = None
        """Canonical arguments an answer put in place."""
        self.reply: str | None = None
        """What an answer gave in the tool's place."""
        self.ran: str | None = None
        """Canonical arguments of its last entry, or delegation; `None` where there was none."""

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
        "approved",
        "args",
        "at",
        "base",
        "changed",
        "child",
        "cleared",
        "drew",
        "edit",
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
        "said",
        "seen",
        "state",
        "task",
    )

    def __init__(self, id: str, name: str, raw: str) -> None:
        self.id: str = id
        self.name: str = name
        self.raw: str = raw
        self.args: str = ""
        self.key: str = ""
        self.base: str = ""
        """What equal calls are counted by."""
        self.said: str = name
        """The name the model called it by: the transcript keeps that."""
        self.error: str | None = None
        """What it is given instead of being entered."""
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
        self.edit: str | None = None
        """Canonical arguments a hook or an answer put in place of the model's."""
        self.seen: bool = False
        """Whether the hook has seen it."""
        self.cleared: bool = False
        """Whether the checks allow the entry that comes next; each entry needs it anew."""
        self.approved: bool = False
        """Whether somebody agreed to it in this attempt."""
        self.changed: bool = False
        """Whether it ran with arguments an answer put in place."""

    @property
    def run_args(self) -> str:
        """Canonical JSON of the arguments that are run."""
        return self.args if self.edit is None else self.edit

    def copy(self) -> Call:
        """Return a call that shares nothing that changes."""
        other = Call(self.id, self.name, self.raw)
        for name in Call.__slots__:
            setattr(other, name, getattr(self, name))
        return other
