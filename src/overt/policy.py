"""Budgets and what happens at their caps, the resume policy, and the small values of the verbs."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import TypeAlias

from pydantic import Field

from overt._frozen import Frozen
from overt.errors import UsageError
from overt.result import Limit, State

__all__ = (
    "Budget",
    "Extend",
    "HandleView",
    "InboxItem",
    "LimitDecision",
    "LimitInfo",
    "PostResult",
    "ResumePolicy",
    "RetryPolicy",
    "Stop",
    "Suspend",
    "may_succeed_later",
)


class ResumePolicy(StrEnum):
    """What an answer to a parked run does with the work since the checkpoint."""

    REWIND = "rewind"
    """Replay the suspended wake from its checkpoint: every finished `rerun` tool of it runs again, every model call
    is bought again. Tools reachable in a wake that may be suspended must be idempotent."""
    CONTINUE = "continue"
    """Go on where the wake stopped: recorded replies and finished results are carried, only calls that asked are
    entered again."""


class Budget(Frozen):
    """Caps on what a handle and everything below it may spend. `None` is no cap.

    Nothing is carved out for a child: a handle may spend the least of what is left on it and on each of its
    ancestors, now. `max_tokens`, `max_tool_calls`, `max_model_calls`, `max_cost` and `max_wall` count over the life
    of the handle and its subtree, replays included.

    ```python
    from overt import Agent, Budget
    from overt.testing import MockModel, call

    searcher = Agent("searcher", does="Searches.", model=MockModel([call("search"), call("search")]))
    result, runtime = searcher.run_sync("Search.", budget=Budget(max_tokens=150))
    print(result.status, result.limit, result.limit_at, result.total_tokens)
    #> incomplete maxTokens root 200
    ```
    """

    max_turns: int = Field(default=6, ge=0)
    """Turns per attempt of a wake. Where the run's own budget says it, it caps every handle of the tree."""
    max_tokens: int | None = Field(default=None, ge=0)
    max_tool_calls: int | None = Field(default=None, ge=0)
    max_model_calls: int | None = Field(default=None, ge=0)
    """Attempts at the provider."""
    max_wall: float | None = Field(default=None, ge=0, le=1e10, allow_inf_nan=False)
    """Seconds in which the handle or something below it runs; parked and dead time do not count."""
    max_cost: Decimal | None = Field(default=None, ge=0, allow_inf_nan=False)
    """USD."""
    max_children: int | None = Field(default=None, ge=0)
    """Children over the life of the handle."""
    max_concurrent: int = Field(default=8, ge=1)
    """Children running at once; further ones queue, first come first served."""
    max_depth: int = Field(default=3, ge=1)
    """Deepest level at which a handle may be spawned; the entry handle has depth 1. Of several along the chain
    that are set, the least counts."""


_RETRYABLE = frozenset({408, 409, 425, 429})


def may_succeed_later(status: int) -> bool:
    """Whether a request that was answered with this status is worth another attempt."""
    return status in _RETRYABLE or status >= 500


class RetryPolicy(Frozen):
    """How often and after which wait a failed model call is made again.

    Made again is what may succeed later: an answer of status 408, 409, 425, 429 or 5xx, a connection that failed, a
    stream that broke off; in short, what a model raises as `ModelError(retryable=True)`. Each attempt is a fact of the
    run and counts as a model call. Tools are entered once a reply is whole, so no attempt follows one that was.

    The wait before attempt n is `base * 2**(n - 1)` seconds, at most `cap`, less a random part of up to `jitter` of it.
    Where the provider says how long to wait (`Retry-After`), that is the least. It ends with whatever ends the run:
    a cancellation, an interrupt, `max_wall`; and what `max_wall` or another cap has no room for is not waited for.
    """

    max_retries: int = Field(default=2, ge=0, le=100)
    """Attempts after the first. Zero is none."""
    base: float = Field(default=0.5, ge=0, le=3600, allow_inf_nan=False)
    """Seconds before the second attempt."""
    cap: float = Field(default=8.0, ge=0, le=3600, allow_inf_nan=False)
    """Seconds no wait of our own is longer than."""
    jitter: float = Field(default=0.25, ge=0, le=1)
    """Part of a wait that is left to chance, so that many runs do not come back at once."""
    max_retry_after: float = Field(default=60.0, ge=0, le=86_400, allow_inf_nan=False)
    """Seconds of `Retry-After` that are waited for; where the provider asks for more, the call fails at once, and the
    error says for how much."""

    def wait(self, attempt: int, *, retry_after: float | None = None, chance: float = 0.0) -> float | None:
        """Return the seconds to wait before an attempt.

        Args:
            attempt: Which retry it is, from 1.
            retry_after: Seconds the provider asked for.
            chance: From 0 to 1: how much of the random part is taken off.

        Returns:
            Seconds; `None` where the provider asks for more than `max_retry_after`.
        """
        if retry_after is not None and retry_after > self.max_retry_after:
            return None
        own = min(self.base * 2.0 ** min(attempt - 1, 30), self.cap) * (1 - self.jitter * chance)
        return max(own, retry_after or 0.0)


class InboxItem(Frozen):
    """One message for a handle's inbox."""

    sender: str = "external"
    """A handle's id, or `"external"`."""
    channel: str = "external"
    """`"peer"`, `"timer"`, `"external"` or a word of the host's own."""
    text: str


class PostResult(Frozen):
    """Whether a post or a wake was taken."""

    ok: bool
    error: str | None = None


class HandleView(Frozen):
    """A handle as seen at one moment."""

    id: str
    agent: str
    state: State
    turns: int
    total_tokens: int
    own_tokens: int
    inbox: int
    """Items waiting in the inbox."""
    pending_kind: str | None = None
    """Kind of the first open request in or below the handle."""


class LimitInfo(Frozen):
    """A cap that is spent: what `on_limit` is asked about."""

    limit: Limit
    at: str
    """Id of the handle whose cap it is; `root` for the run's own budget."""
    cap: Decimal
    """In the limit's unit: turns, tokens, calls, seconds, USD."""
    spent: Decimal
    """In the same unit, of that handle and everything below it; of `maxTurns`, turns of the attempt."""
    handle: str
    """Id of the handle that wanted to go on."""


class Stop:
    """Stop: the wake ends `incomplete`, and `Runtime.extend` can still go on with it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Stop()"


class Extend:
    """Raise caps and go on.

    Attributes:
        budget: New totals for the handle whose cap is spent; only fields that are set count, none below the present.

    Raises:
        UsageError: `budget` is none.
    """

    __slots__ = ("budget",)

    budget: Budget

    def __init__(self, budget: Budget) -> None:
        if not isinstance(budget, Budget):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
            raise UsageError(f"Extend takes a Budget with the new totals, not {type(budget).__name__}")
        self.budget = budget

    def __repr__(self) -> str:
        return f"Extend({self.budget!r})"


class Suspend:
    """Ask somebody: a request of kind `budget`, answered with how much more may be spent.

    The answer's `data` is a number in the limit's unit, added to the cap. Answering goes on where the wake stopped,
    under either resume policy: nothing is bought twice. A refusal stops the wake as `Stop` does.

    Attributes:
        prompt: The question, for people; `None` takes one that names limit, cap, spent and whose.

    Raises:
        UsageError: `prompt` is empty or no text.
    """

    __slots__ = ("prompt",)

    prompt: str | None

    def __init__(self, prompt: str | None = None) -> None:
        if prompt is not None and not (isinstance(prompt, str) and prompt.strip()):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
            raise UsageError(f"Suspend takes a non-empty prompt or None, not {prompt!r:.80}")
        self.prompt = prompt

    def __repr__(self) -> str:
        return f"Suspend({self.prompt!r})"


LimitDecision: TypeAlias = Stop | Extend | Suspend
"""What `on_limit` returns."""
