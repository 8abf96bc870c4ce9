"""Facts as hosts read them: the typed events, made of the facts alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

from pydantic import JsonValue
from pydantic_core import from_json

from overt import events as e
from overt._frozen import Frozen, trusted
from overt.core import facts as f
from overt.core.render import child_outcome
from overt.core.suspension import EPOCH, when
from overt.core.tree import Tree
from overt.core.views import request_view
from overt.driver.seen import Seen, SeenCall
from overt.journal.codec import plain_fields
from overt.journal.loading import Log
from overt.message import AssistantMessage, Usage
from overt.request import Request
from overt.result import ErrorInfo, Limit, Status, Verdict

__all__ = ("EventFold", "event_views")

EventT = TypeVar("EventT", bound=Frozen)
_FACT = {cls: name for name, cls in f.FACTS.items()}
_KIND: dict[type, str] = {
    cls: cls.model_fields["kind"].default
    for name in e.__all__
    if name != "Event"
    for cls in (getattr(e, name),)
}


def event_views(log: Log, after: int, tree: Tree | None = None) -> Iterator[e.Event]:
    """Yield the events past a position.

    Args:
        log: The whole journal.
        after: The position.
        tree: The run as it stands, for what answering the requests that are still open would repeat.
    """
    fold = EventFold()
    for position, at, facts in log:
        for offset, fact in enumerate(facts):
            event = fold.feed(position + offset, at, fact, tree=tree)
            if position + offset > after:
                yield event


class EventFold:
    """Makes each fact the event it is. Whoever reads the journal later sees what was seen live."""

    __slots__ = ("_at", "_position", "_seen", "_stamp", "_tree")

    def __init__(self) -> None:
        self._seen: Seen = Seen()
        self._tree: Tree | None = None
        self._position: int = 0
        self._at: int = -1
        self._stamp: datetime = EPOCH

    def feed(self, position: int, at: int, fact: f.Fact, *, tree: Tree | None = None) -> e.Event:
        """Return the event of the next fact. Every fact has to be fed, from the first one on, in order.

        Args:
            position: The fact's position in the journal.
            at: Time of its record.
            fact: The fact.
            tree: The run with the facts applied, for what answering a request repeats that is open in it; without it
                requests say nothing of that.
        """
        if at != self._at:
            self._at = at
            self._stamp = when(at)
        self._position, self._tree = position, tree
        rule = _RULES.get(type(fact))
        event = None if rule is None else rule(self, fact)
        if event is not None:
            return event
        data: dict[str, Any] = plain_fields(fact)
        handle = data.pop("handle", "root")
        return self._event(e.Recorded, handle, fact=_FACT[type(fact)], data=data)

    def _event(self, cls: type[EventT], handle: str, /, **fields: Any) -> EventT:
        return trusted(cls, kind=_KIND[cls], position=self._position, handle=handle, at=self._stamp, **fields)

    # ----------------------------------------------------------- the run and its handles

    def planned(self, fact: f.RunOpened | f.PlanChanged) -> None:
        self._seen.planned(fact.plan)

    def handle_spawned(self, fact: f.HandleSpawned) -> e.Event:
        self._seen.spawned(fact)
        return self._event(e.HandleSpawned, fact.handle, agent=fact.agent, parent=fact.parent)

    def agent_renamed(self, fact: f.AgentRenamed) -> None:
        self._seen.agent_renamed(fact)

    def tool_renamed(self, fact: f.ToolRenamed) -> None:
        self._seen.tool_renamed(fact)

    def arguments_upgraded(self, fact: f.ArgumentsUpgraded) -> None:
        self._seen.arguments_upgraded(fact)

    def drift_accepted(self, fact: f.DriftAccepted) -> None:
        self._seen.accepted(fact)

    def history_seeded(self, fact: f.HistorySeeded) -> None:
        self._seen.seeded(fact)

    def handle_closed(self, fact: f.HandleClosed) -> e.Event:
        self._seen.closed(fact)
        return self._event(e.HandleClosed, fact.handle, reason=fact.reason)

    # ----------------------------------------------------------- wakes

    def wake_queued(self, fact: f.WakeQueued) -> None:
        self._seen.queued(fact)

    def wake_started(self, fact: f.WakeStarted) -> e.Event:
        wake = self._seen.began(fact.handle, fact.prompt, closes=fact.closes)
        return self._event(e.WakeBegan, fact.handle, prompt=fact.prompt, number=wake.number)

    def wake_dropped(self, fact: f.WakeDropped) -> e.Event | None:
        # What had parked or stopped before it waited for its slot stays as it was.
        return self._settled(fact.handle, fact.status) if self._seen.dropped(fact) else None

    def wake_settled(self, fact: f.WakeSettled) -> e.Event:
        self._seen.settled(fact)
        return self._settled(
            fact.handle,
            fact.status,
            limit=None if fact.limit is None else Limit(fact.limit),
            limit_at=fact.at,
            cap=fact.cap,
            error=None if fact.error is None else trusted(ErrorInfo, **fact.error._asdict()),
            reason=fact.reason,
            cut=fact.cut,
        )

    def _settled(
        self,
        handle: str,
        status: str,
        *,
        limit: Limit | None = None,
        limit_at: str | None = None,
        cap: str | None = None,
        error: ErrorInfo | None = None,
        reason: str | None = None,
        cut: bool = False,
    ) -> e.Event:
        return self._event(
            e.HandleSettled,
            handle,
            status=Status(status),
            limit=limit,
            limit_at=limit_at,
            cap=cap,
            error=error,
            reason=reason,
            cut=cut,
        )

    def wake_given_up(self, fact: f.WakeGivenUp) -> None:
        self._seen.wake(fact.handle)[1].reason = fact.reason

    def wake_parked(self, fact: f.WakeParked) -> e.Event:
        return self._event(e.Parked, fact.handle)

    def resumed(self, fact: f.Resumed) -> e.Event:
        return self._event(e.Resumed, fact.handle, stopped=False)

    def wake_reopened(self, fact: f.WakeReopened) -> e.Event:
        self._seen.reopened(fact.handle)
        return self._event(e.Resumed, fact.handle, stopped=True)

    def rewound(self, fact: f.Rewound) -> e.Event:
        return self._event(e.Rewound, fact.handle, attempt=self._seen.rewound(fact.handle).attempt)

    # ----------------------------------------------------------- turns and calls

    def model_replied(self, fact: f.ModelReplied) -> e.Event:
        tokens = fact.tokens
        total = 0 if tokens is None else tokens.total or tokens.input + tokens.output
        wake, calls = self._seen.replied(fact, total)
        message = trusted(
            AssistantMessage,
            role="assistant",
            text=fact.text,
            tool_calls=calls,
            reasoning=fact.reasoning,
            opaque=json.loads(fact.opaque) if fact.opaque else None,
        )
        return self._event(
            e.TurnFinished,
            fact.handle,
            turn=wake.turns,
            attempt=wake.attempt,
            message=message,
            usage=None if tokens is None else _usage(tokens, total),
            cost=None if fact.cost is None else Decimal(fact.cost),
            finish_reason=fact.finish,
            model=fact.model,
        )

    def model_failed(self, fact: f.ModelFailed) -> e.Event:
        self._seen.failed(fact)
        tokens = fact.tokens
        return self._event(
            e.ModelFailed,
            fact.handle,
            error=trusted(ErrorInfo, **fact.error._asdict()),
            usage=None if tokens is None else _usage(tokens, tokens.total or tokens.input + tokens.output),
            cost=None if fact.cost is None else Decimal(fact.cost),
            model=fact.model,
        )

    def retry_awaited(self, fact: f.RetryAwaited) -> e.Event:
        number = self._seen.retried(fact.handle)
        return self._event(e.RetryAwaited, fact.handle, seconds=fact.wait / 1e6, number=number)

    def effect_lost(self, fact: f.EffectLost) -> None:
        self._seen.lost(fact)

    def call_entered(self, fact: f.CallEntered) -> e.Event:
        call = self._seen.call(fact.handle, fact.call)
        self._seen.entered(fact, call)
        return self._started(fact.handle, call)

    def delegated(self, fact: f.Delegated) -> e.Event:
        call = self._seen.call(fact.handle, fact.call)
        call.child = fact.child
        return self._started(fact.handle, call)

    def reattached(self, fact: f.Reattached) -> e.Event:
        call = self._seen.call(fact.handle, fact.call)
        call.child, call.reused = fact.child, True
        return self._started(fact.handle, call)

    def _started(self, handle: str, call: SeenCall) -> e.Event:
        return self._event(e.ToolStarted, handle, call=call.public(), child=call.child, reused=call.reused)

    def call_returned(self, fact: f.CallReturned) -> e.Event:
        call = self._seen.call(fact.handle, fact.call)
        output = self._seen.returned(fact, call)
        return self._finished(fact.handle, call, output, fact.is_error, fact.metadata)

    def call_reused(self, fact: f.CallReused) -> e.Event:
        call = self._seen.call(fact.handle, fact.call)
        call.reused = True
        memory = self._seen.memory(fact.handle, call)
        assert memory is not None
        return self._finished(fact.handle, call, memory.output, memory.is_error, memory.metadata)

    def child_returned(self, fact: f.ChildReturned) -> e.Event:
        call = self._seen.call(fact.handle, fact.call)
        call.child = fact.child
        tree = self._seen.tree
        return self._finished(fact.handle, call, *child_outcome(tree, tree.nodes[fact.child]))

    def _finished(
        self, handle: str, call: SeenCall, output: str, is_error: bool, metadata: str | None
    ) -> e.Event:
        return self._event(
            e.ToolFinished,
            handle,
            call_id=call.id,
            name=call.name,
            output=output,
            is_error=is_error,
            metadata=from_json(metadata) if metadata else {},
            child=call.child,
            reused=call.reused,
        )

    def checks_asked(self, fact: f.ChecksAsked) -> None:
        self._seen.checking(fact)

    def checks_done(self, fact: f.ChecksDone) -> None:
        self._seen.checked(fact)

    def call_denied(self, fact: f.CallDenied) -> e.Event:
        call = self._seen.call(fact.handle, fact.call).public()
        return self._event(e.ToolDenied, fact.handle, call=call, reason=fact.reason, declined=fact.declined)

    def once_entered(self, fact: f.OnceEntered) -> None:
        self._seen.block(fact.handle, fact.call, fact.label, done=False)

    def once_done(self, fact: f.OnceDone) -> None:
        self._seen.block(fact.handle, fact.call, fact.label, done=True)

    # ----------------------------------------------------------- limits and the gate

    def call_refused(self, fact: f.CallRefused) -> e.Event:
        return self._limit(fact.handle, fact.limit, fact.at, call=fact.call)

    def limit_asked(self, fact: f.LimitAsked) -> e.Event:
        return self._limit(fact.handle, fact.limit, fact.at, cap=fact.cap, spent=fact.spent)

    def _limit(
        self,
        handle: str,
        limit: str,
        at: str,
        *,
        cap: str | None = None,
        spent: str | None = None,
        call: str | None = None,
    ) -> e.Event:
        return self._event(
            e.LimitReached, handle, limit=Limit(limit), limit_at=at, cap=cap, spent=spent, call_id=call
        )

    def output_refused(self, fact: f.OutputRefused) -> None:
        self._seen.wake(fact.handle)[1].output = None

    def judged(self, fact: f.Judged) -> e.Event:
        self._seen.judged(fact)
        verdict = trusted(Verdict, ok=fact.ok, reason=fact.reason, number=fact.number)
        return self._event(e.VerdictGiven, fact.handle, verdict=verdict)

    # ----------------------------------------------------------- requests

    def call_asked(self, fact: f.CallAsked) -> e.Event:
        self._seen.call_asked(fact)
        return self._event(e.RequestOpened, fact.handle, request=self._request(fact), call_id=fact.call)

    def wake_asked(self, fact: f.WakeAsked) -> e.Event:
        self._seen.wake_asked(fact)
        return self._event(e.RequestOpened, fact.handle, request=self._request(fact), call_id=None)

    def _request(self, fact: f.CallAsked | f.WakeAsked) -> Request:
        state = None if self._tree is None else self._tree.requests.get(fact.request)
        if self._tree is not None and state is not None and state.status == "open":
            return request_view(self._tree, state, parked=True)
        q = fact.question
        return trusted(
            Request,
            id=fact.request,
            kind=q.kind,
            prompt=q.prompt,
            url=q.url,
            data=json.loads(q.data),
            answer_schema=None if q.schema is None else json.loads(q.schema),
            expires_at=None if q.expires_at is None else when(q.expires_at),
            path=tuple(fact.handle.split("/")),
            diverged=fact.diverged,
            replays=(),
            turns_again=0,
        )

    def answer_given(self, fact: f.AnswerGiven) -> e.Event:
        data: JsonValue = None if fact.data is None else from_json(fact.data)
        asked = self._seen.answered(fact, data)
        expired = asked.expires_at is not None and asked.expires_at <= self._at
        return self._event(
            e.AnswerGiven,
            fact.handle,
            request_id=fact.request,
            ok=fact.ok,
            data=data,
            reason=fact.reason,
            by=fact.by,
            expired=expired and fact.reason == "expired" and fact.by is None,
            inline=fact.policy is None,
        )

    def request_cancelled(self, fact: f.RequestCancelled) -> e.Event:
        return self._event(e.RequestCancelled, fact.handle, request_id=fact.request)


def _usage(tokens: f.Tokens, total: int) -> Usage:
    return trusted(
        Usage,
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cached_tokens=tokens.cached,
        cache_write_tokens=tokens.written,
        reasoning_tokens=tokens.reasoning,
        total_tokens=total,
        turns=0,
        model_calls=0,
        tool_calls=0,
        unreported_calls=0,
    )


_RULES: dict[type, Callable[[EventFold, Any], e.Event | None]] = {
    f.RunOpened: EventFold.planned,
    f.PlanChanged: EventFold.planned,
    f.AgentRenamed: EventFold.agent_renamed,
    f.ToolRenamed: EventFold.tool_renamed,
    f.ArgumentsUpgraded: EventFold.arguments_upgraded,
    f.DriftAccepted: EventFold.drift_accepted,
    f.HandleSpawned: EventFold.handle_spawned,
    f.HistorySeeded: EventFold.history_seeded,
    f.HandleClosed: EventFold.handle_closed,
    f.WakeQueued: EventFold.wake_queued,
    f.WakeStarted: EventFold.wake_started,
    f.WakeDropped: EventFold.wake_dropped,
    f.WakeSettled: EventFold.wake_settled,
    f.WakeGivenUp: EventFold.wake_given_up,
    f.WakeParked: EventFold.wake_parked,
    f.Resumed: EventFold.resumed,
    f.WakeReopened: EventFold.wake_reopened,
    f.Rewound: EventFold.rewound,
    f.ModelReplied: EventFold.model_replied,
    f.ModelFailed: EventFold.model_failed,
    f.RetryAwaited: EventFold.retry_awaited,
    f.EffectLost: EventFold.effect_lost,
    f.CallEntered: EventFold.call_entered,
    f.Delegated: EventFold.delegated,
    f.Reattached: EventFold.reattached,
    f.CallReturned: EventFold.call_returned,
    f.CallReused: EventFold.call_reused,
    f.ChildReturned: EventFold.child_returned,
    f.CallDenied: EventFold.call_denied,
    f.OnceEntered: EventFold.once_entered,
    f.OnceDone: EventFold.once_done,
    f.CallRefused: EventFold.call_refused,
    f.LimitAsked: EventFold.limit_asked,
    f.ChecksAsked: EventFold.checks_asked,
    f.ChecksDone: EventFold.checks_done,
    f.OutputRefused: EventFold.output_refused,
    f.Judged: EventFold.judged,
    f.CallAsked: EventFold.call_asked,
    f.WakeAsked: EventFold.wake_asked,
    f.AnswerGiven: EventFold.answer_given,
    f.RequestCancelled: EventFold.request_cancelled,
}
